//! Figure 1: journal traffic of 100 synchronous writers, by the size of their requests.

use super::streams::{Cell, Played, play};
use crate::error::FigureError;
use crate::figure::{Figure, Results, Scale};
use crate::figures::common::{axis, of_paper, ours, picture};
use crate::{Claim, Context};
use engine::DataMode;
use testbeds::VolumeLayout;

pub fn figure() -> Figure {
    Figure {
        name: "1",
        title: "Journal traffic of 100 synchronous writers, by request size",
        source: "Okeanos (TOS 2013), Figure 1",
        about: "100 threads append 128 B to 4 KiB once a second to a file each, O_SYNC, for 5 minutes of virtual time on two \
                Cheetahs; all that is written to the journal's drive. Also data journaling on today's ext4 layout.",
        minutes: 1,
        by_chance: false,
        real_time: false,
        run,
    }
}

/// Modes shown; the paper shows the first three.
const SHOWN: [DataMode; 5] = [
    DataMode::Journal,
    DataMode::Ordered,
    DataMode::Writeback,
    DataMode::Wasteless,
    DataMode::Selective,
];

fn run(context: &Context) -> Result<Results, FigureError> {
    let (sizes, seconds): (&[usize], u64) = match (context.quick, context.varied) {
        (true, _) => (&[128, 4096], 4),
        (false, Some(_)) => (&[128, 4096], 60),
        (false, None) => (&[128, 256, 512, 1024, 2048, 4096], 300),
    };
    let streams = if context.quick { 20 } else { 100 };
    let of = |data, layout| {
        sizes.iter().map(move |&size| Cell { layout, ..Cell::new(data, streams, size, seconds) })
    };
    let mut cells: Vec<Cell> =
        SHOWN.iter().flat_map(|&data| of(data, VolumeLayout::Ext3Paper)).collect();
    cells.extend(of(DataMode::Journal, VolumeLayout::Ext4));
    let runs = play(context, cells)?;

    let size = |played: &Played| played.cell.size as f64;
    let line = |data: DataMode, layout: VolumeLayout| {
        runs.points(|cell| cell.data == data && cell.layout == layout, size, Played::journal_mib)
    };
    let mut series: Vec<_> =
        SHOWN.iter().map(|&data| ours(data.name(), line(data, VolumeLayout::Ext3Paper))).collect();
    series.push(ours("journal, ext4 layout", line(DataMode::Journal, VolumeLayout::Ext4)));
    series.push(of_paper(DataMode::Journal.name(), vec![(128.0, 138.0), (4096.0, 267.0)]));
    let at = |data, index: usize| line(data, VolumeLayout::Ext3Paper)[index].1;
    let last = sizes.len() - 1;
    let over = |(data, index): (DataMode, usize), (other, of_other): (DataMode, usize)| {
        at(data, index) / at(other, of_other)
    };
    let journal = (DataMode::Journal, 0);
    let claims = vec![
        Claim::of("1/128-over-4096", over(journal, (DataMode::Journal, last))),
        Claim::of("1/data-over-ordered", over(journal, (DataMode::Ordered, 0))),
        Claim::of("1/wasteless-saves", over(journal, (DataMode::Wasteless, 0))),
    ];
    let title = format!("{streams} threads, {seconds} s");
    let x = axis("bytes of a request", Scale::Logarithmic);
    let y = axis("written to the journal (MiB)", Scale::Linear);
    let notes = vec![
        "The threads are in step: all begin together and write once a second, as threads with a timer do. Spread over the \
         second, nearly every write would need a commit of its own."
            .into(),
        "In ext3's layout a file of more than 48 KiB has indirect blocks, and every append of a new block changes one: at \
         4 KiB that is as much journal traffic as the data. With today's extents it is not there."
            .into(),
    ];
    Ok(Results { pictures: vec![picture(&title, x, y, series)], claims, notes })
}
