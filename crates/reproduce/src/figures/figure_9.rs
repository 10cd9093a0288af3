//! Figure 9: how long asynchronous appends take, along a sequence of them.

use super::shared::{axis, name, ours, picture, ratio};
use super::streams::{Cell, Played, Runs, SLOW, play};
use crate::Context;
use crate::figure::{Figure, FigureError, Results, Scale};
use crate::statement::{Expected, ORDERS};
use engine::DataMode;
use workloads::SyncKind;

pub fn figure() -> Figure {
    Figure {
        name: "9",
        title: "Latency of asynchronous appends along a sequence",
        source: "Okeanos (TOS 2013), Figure 9",
        about: "1,000 threads append 125 B once a second to a file each, without waiting for the disk, 200 times; the mean \
                over all threads of each append, on two Cheetahs.",
        minutes: 1,
        by_chance: false,
        real_time: false,
        run,
    }
}

const SHOWN: [DataMode; 4] = [DataMode::Ordered, DataMode::Journal, DataMode::Wasteless, DataMode::Selective];

fn run(context: &Context) -> Result<Results, FigureError> {
    let (streams, seconds) = if context.quick { (50, 8) } else { (1000, 200) };
    let cell = |&data| Cell { sync: SyncKind::None, ..Cell::new(data, streams, SLOW, seconds) };
    let runs = play(context, SHOWN.iter().map(cell).collect())?;
    let line = |played: &Played| {
        let points = (1..).zip(&played.means_ms).map(|(number, mean)| (f64::from(number), *mean));
        ours(name(played.cell.data), points.collect())
    };
    let series = runs.0.iter().map(line).collect();
    let x = axis("append", Scale::Linear);
    let y = axis("mean latency (ms)", Scale::Linear);
    let claims = vec![ratio(
        "ordered's mean latency over selective's",
        "orders of magnitude",
        Expected::Words(&ORDERS),
        (steady(&runs, DataMode::Ordered), steady(&runs, DataMode::Selective).max(1e-6)),
    )];
    Ok(Results { pictures: vec![picture("1 Kbps, asynchronous", x, y, series)], claims, notes: notes() })
}

/// Without the first appends, which read bitmaps and inode tables.
fn steady(runs: &Runs, data: DataMode) -> f64 {
    let played = runs.0.iter().find(|played| played.cell.data == data).expect("it is played");
    let means = &played.means_ms[played.means_ms.len() / 10..];
    means.iter().sum::<f64>() / means.len().max(1) as f64
}

fn notes() -> Vec<String> {
    vec![
        "Here an asynchronous append waits for no disk in any mode, ordered included, and virtual time holds nothing else. \
         Blocks in memory are shared with the commit that writes them, and whoever changes one meanwhile gets a copy. In the \
         paper's ext3 a writer whose block was being written for a commit waited until it was: for the blocks of the inode \
         table in every mode, for the data as well in ordered mode (docs/modes/ordered.md)."
            .into(),
    ]
}
