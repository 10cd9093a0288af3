//! Figure 9: latency of asynchronous appends, along a sequence of them.

use super::streams::{Cell, Played, Runs, SLOW, play};
use crate::error::FigureError;
use crate::figure::{Figure, Results, Scale};
use crate::figures::common::{axis, ours, picture};
use crate::number::short;
use crate::{Claim, Context};
use engine::DataMode;
use workloads::SyncKind;

pub fn figure() -> Figure {
    Figure {
        name: "9",
        title: "Latency of asynchronous appends along a sequence",
        source: "Okeanos (TOS 2013), Figure 9",
        about: "1,000 threads append 125 B once a second to a file each, without waiting for the disk, 200 times; the mean \
                over all threads of each append, on two Cheetahs. Once a writer waits for a block under commit, as in ext3, and \
                once for nothing, as ours.",
        minutes: 1,
        by_chance: false,
        real_time: false,
        run,
    }
}

const SHOWN: [DataMode; 4] =
    [DataMode::Ordered, DataMode::Journal, DataMode::Wasteless, DataMode::Selective];

fn run(context: &Context) -> Result<Results, FigureError> {
    let (streams, seconds) = match (context.quick, context.varied) {
        (true, _) => (50, 8),
        (false, Some(_)) => (1000, 60),
        (false, None) => (1000, 200),
    };
    let cell = |writers_wait| {
        let one = move |data| Cell {
            sync: SyncKind::None,
            writers_wait,
            ..Cell::new(data, streams, SLOW, seconds)
        };
        SHOWN.map(one)
    };
    let runs = play(context, [cell(true), cell(false)].concat())?;
    let line = |played: &Played| {
        let points = (1..).zip(&played.means_ms).map(|(number, mean)| (f64::from(number), *mean));
        ours(played.cell.data.name(), points.collect())
    };
    let drawn = |writers_wait: bool, title: &str| {
        let series = runs
            .0
            .iter()
            .filter(|played| played.cell.writers_wait == writers_wait)
            .map(line)
            .collect();
        let (x, y) = (axis("append", Scale::Linear), axis("mean latency (ms)", Scale::Linear));
        picture(title, x, y, series)
    };
    let pictures = vec![
        drawn(true, "1 Kbps, asynchronous; writers wait for blocks under commit, as in ext3"),
        drawn(false, "1 Kbps, asynchronous; writers wait for nothing, as ours"),
    ];
    let means = |writers_wait| {
        let of = |data| steady(&runs, data, writers_wait);
        (of(DataMode::Ordered), of(DataMode::Selective))
    };
    let (ordered, selective) = means(false);
    let (waiting, of_selective) = means(true);
    let claims =
        vec![
            Claim::of("9/ordered-over-selective", waiting / of_selective).with_other_choice(
                format!("{} and {} ms without", short(ordered), short(selective)),
            ),
        ];
    Ok(Results { pictures, claims, notes: notes() })
}

/// Leaves out the first appends, which read bitmaps and inode tables.
fn steady(runs: &Runs, data: DataMode, writers_wait: bool) -> f64 {
    let is_it = |cell: &Cell| (cell.data, cell.writers_wait) == (data, writers_wait);
    let played = runs.0.iter().find(|played| is_it(&played.cell)).expect("it is played");
    let means = &played.means_ms[played.means_ms.len() / 10..];
    means.iter().sum::<f64>() / means.len().max(1) as f64
}

fn notes() -> Vec<String> {
    vec![
        "In ours an asynchronous append waits for no disk in any mode, ordered included, and virtual time holds nothing else: \
         blocks in memory are shared with the commit that writes them, and a writer that changes one during the commit gets a copy. In the \
         paper's ext3 a writer whose block was being written for a commit waited until it was: for the blocks of the inode \
         table in every mode, for the data as well in ordered mode (docs/modes/ordered.md)."
            .into(),
        "The first picture has that habit of ext3 (StageOptions::writers_wait): a writer that appends to a file that is in a \
         transaction being committed waits until that is durable. ext3 waited for the one block, which may be written before the \
         others; so ordered's times are an upper bound."
            .into(),
    ]
}
