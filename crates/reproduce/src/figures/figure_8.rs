//! Figures 8a and 8b: how long synchronous appends of streams take.

use super::figure_7::{fast_counts, fast_streams, last, paper_line, slow_streams};
use super::shared::{FIVE_MODES, alike, at_least, axis, name, ours, picture};
use super::streams::{FAST, Played, Runs};
use crate::Context;
use crate::figure::{Figure, FigureError, Picture, Results, Scale};
use emulated::{EmulatedDisk, Model};
use engine::DataMode;
use runtime::VirtualWorld;
use stages::LogStructuredFiles;
use std::rc::Rc;
use std::time::Duration;
use workloads::{PeriodicOptions, SyncKind, periodic};

/// Of the log-structured drive: that of the paper's rig.
const MODEL: &str = "cheetah-15k5-300";

pub fn figure_8a() -> Figure {
    Figure {
        name: "8a",
        title: "Write latency of 1 Kbps streams",
        source: "Okeanos (TOS 2013), Figure 8a",
        about: "The runs of 7a: the mean time of an append.",
        minutes: 12,
        real_time: false,
        run: run_8a,
    }
}

pub fn figure_8b() -> Figure {
    Figure {
        name: "8b",
        title: "Write latency of 1 Mbps streams",
        source: "Okeanos (TOS 2013), Figure 8b",
        about: "The runs of 7b: the mean time of an append.",
        minutes: 1,
        real_time: false,
        run: run_8b,
    }
}

fn mean(played: &Played) -> f64 {
    played.mean_ms
}

fn latencies(title: &str, runs: &Runs) -> Picture {
    let series = FIVE_MODES.iter().map(|&data| ours(name(data), paper_line(runs, data, mean))).collect();
    let y = axis("mean latency of an append (ms)", Scale::Logarithmic);
    picture(title, axis("streams", Scale::Logarithmic), y, series)
}

fn run_8a(context: &Context) -> Result<Results, FigureError> {
    let runs = slow_streams(context)?;
    let of = |data| last(&runs, data, mean);
    let claims = vec![
        at_least(
            "ordered takes at least 10 times wasteless's latency, at the most streams",
            "orders of magnitude",
            (of(DataMode::Ordered), of(DataMode::Wasteless)),
            10.0,
        ),
        at_least(
            "writeback takes at least 10 times wasteless's latency, at the most streams",
            "orders of magnitude",
            (of(DataMode::Writeback), of(DataMode::Wasteless)),
            10.0,
        ),
        at_least(
            "ordered takes at least 10 times data journaling's latency, at the most streams",
            "several seconds against tens of milliseconds",
            (of(DataMode::Ordered), of(DataMode::Journal)),
            10.0,
        ),
        alike(
            "selective follows wasteless, at the most streams",
            "follows",
            (of(DataMode::Selective), of(DataMode::Wasteless)),
            1.2,
        ),
    ];
    Ok(Results { pictures: vec![latencies("1 Kbps", &runs)], claims, notes: vec![memory_note()] })
}

fn run_8b(context: &Context) -> Result<Results, FigureError> {
    let runs = fast_streams(context)?;
    let log_structured = log_structured(context)?;
    let of = |data| last(&runs, data, mean);
    let claims = vec![
        alike(
            "selective nears ordered: neither takes more than twice the other's latency, at the most streams",
            "approaches",
            (of(DataMode::Selective), of(DataMode::Ordered)),
            2.0,
        ),
        alike(
            "wasteless nears data journaling: neither takes more than twice the other's latency, at the most streams",
            "comparable",
            (of(DataMode::Wasteless), of(DataMode::Journal)),
            2.0,
        ),
        alike(
            "wasteless nears NILFS: neither takes more than 3 times the other's latency, at the most streams",
            "comparable",
            (of(DataMode::Wasteless), log_structured.last().map_or(0.0, |point| point.1)),
            3.0,
        ),
        at_least(
            "ordered takes at least twice wasteless's latency, at the most streams",
            "much higher",
            (of(DataMode::Ordered), of(DataMode::Wasteless)),
            2.0,
        ),
    ];
    let mut picture = latencies("1 Mbps", &runs);
    picture.series.push(ours("log-structured", log_structured));
    let notes = vec![
        memory_note(),
        "The log-structured line stands for NILFS: the same writes, placed one after the other on one drive with a segment's \
         own blocks. It is a placement and not that file system."
            .into(),
    ];
    Ok(Results { pictures: vec![picture], claims, notes })
}

/// The mean latency, over the number of streams, on a log-structured drive.
fn log_structured(context: &Context) -> Result<Vec<(f64, f64)>, FigureError> {
    let (counts, seconds) = fast_counts(context);
    let latency = |&streams: &u32| -> Result<(f64, f64), FigureError> {
        let shipped = emulated::shipped().find(|(name, _)| *name == MODEL);
        let (_, text) = shipped.ok_or_else(|| FigureError::Other(format!("no model {MODEL}")))?;
        let model = Model::parse(text).map_err(|error| FigureError::Other(error.to_string()))?;
        let world = VirtualWorld::new(context.seed);
        let disk = EmulatedDisk::new(Rc::new(world.clone()), model, emulated::Options::default());
        let files = LogStructuredFiles::new(world.clone(), disk);
        let options = PeriodicOptions {
            streams,
            size: FAST,
            period: Duration::from_secs(1),
            time: Duration::from_secs(seconds),
            count: u64::MAX,
            sync: SyncKind::OSync,
        };
        let report = world.run(async move { periodic(&files, options).await });
        world.end();
        Ok((f64::from(streams), report?.mean.as_secs_f64() * 1e3))
    };
    context.play(counts, latency)
}

fn memory_note() -> String {
    "Drive caches are on and there are no barriers, as in the paper: a write counts as done when the drive's cache has it. No \
     time passes but the drives': the paper's numbers hold the processor's and the interface's as well."
        .into()
}
