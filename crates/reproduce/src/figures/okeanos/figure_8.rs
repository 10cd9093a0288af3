//! Figures 8a and 8b: latency of synchronous appends of streams.

use super::figure_7::{
    fast_counts, fast_streams, last, paper_line, per_block_line, per_block_note, slow_counts,
    slow_streams,
};
use super::streams::{FAST, Played, Runs, SLOW};
use crate::error::FigureError;
use crate::figure::{Figure, Picture, Results, Scale};
use crate::figures::common::{FIVE_MODES, axis, drive_alone, least, most, ours, picture};
use crate::{Claim, Context};
use engine::DataMode;
use runtime::VirtualWorld;
use std::time::Duration;
use testbeds::LogStructuredFiles;
use workloads::{PeriodicOptions, SyncKind, periodic};

const STAND_IN: &str = "The log-structured line stands for NILFS: the same writes, placed one after the other on one drive with a segment's \
own blocks. It is a placement and not that file system.";

pub fn figure_8a() -> Figure {
    Figure {
        name: "8a",
        title: "Write latency of 1 Kbps streams",
        source: "Okeanos (TOS 2013), Figure 8a",
        about: "The runs of 7a: the mean time of an append.",
        minutes: 18,
        by_chance: true,
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
        by_chance: true,
        real_time: false,
        run: run_8b,
    }
}

fn mean(played: &Played) -> f64 {
    played.mean_ms
}

fn latencies(title: &str, runs: &Runs) -> Picture {
    let series = FIVE_MODES.iter().map(|&data| ours(data.name(), paper_line(runs, data, mean)));
    let series = series.chain(per_block_line(runs, mean)).collect();
    let y = axis("mean latency of an append (ms)", Scale::Logarithmic);
    picture(title, axis("streams", Scale::Logarithmic), y, series)
}

fn run_8a(context: &Context) -> Result<Results, FigureError> {
    let runs = slow_streams(context)?;
    let (counts, seconds) = slow_counts(context);
    let log_structured = log_structured(context, counts, SLOW, seconds)?;
    let nilfs = log_structured.last().map_or(f64::NAN, |point| point.1);
    let of = |data| last(&runs, data, mean);
    let (ordered, wasteless) = (of(DataMode::Ordered), of(DataMode::Wasteless));
    let claims = vec![
        Claim::of("8a/ordered-over-wasteless", ordered / wasteless),
        Claim::of("8a/writeback-over-wasteless", of(DataMode::Writeback) / wasteless),
        Claim::of("8a/ordered-over-data", ordered / of(DataMode::Journal)),
        Claim::of("8a/selective-over-wasteless", of(DataMode::Selective) / wasteless),
        Claim::of("8a/wasteless-over-nilfs", wasteless / nilfs),
    ];
    let mut picture = latencies("1 Kbps", &runs);
    picture.series.push(ours("log-structured", log_structured));
    Ok(Results { pictures: vec![picture], claims, notes: vec![memory_note(), STAND_IN.into()] })
}

fn run_8b(context: &Context) -> Result<Results, FigureError> {
    let runs = fast_streams(context)?;
    let (counts, seconds) = fast_counts(context);
    let log_structured = log_structured(context, counts, FAST, seconds)?;
    let of = |data| last(&runs, data, mean);
    let nilfs = log_structured.last().map_or(f64::NAN, |point| point.1);
    let (ordered, wasteless) = (of(DataMode::Ordered), of(DataMode::Wasteless));
    let (selective, journal) = (of(DataMode::Selective), of(DataMode::Journal));
    let orders = least([ordered, selective]) / most([wasteless, journal, nilfs]);
    let claims = vec![
        Claim::of("8b/selective-over-ordered", selective / ordered),
        Claim::of("8b/wasteless-over-data", wasteless / journal),
        Claim::of("8b/wasteless-over-nilfs", wasteless / nilfs),
        Claim::of("8b/ordered-over-wasteless", ordered / wasteless),
        Claim::of("8b/atc-orders", orders),
    ];
    let mut picture = latencies("1 Mbps", &runs);
    picture.series.push(ours("log-structured", log_structured));
    let notes =
        vec![per_block_note(&runs, "the latency (ms)", mean), memory_note(), STAND_IN.into()];
    Ok(Results { pictures: vec![picture], claims, notes })
}

/// Returns the mean latency, over the number of streams, on a log-structured drive.
fn log_structured(
    context: &Context,
    counts: &[u32],
    size: usize,
    seconds: u64,
) -> Result<Vec<(f64, f64)>, FigureError> {
    let latency = |&streams: &u32| -> Result<(f64, f64), FigureError> {
        let world = VirtualWorld::new(context.seed);
        let disk = drive_alone(context, &world)?;
        // An append finds its block in memory. A log that is never cleaned would hold gigabytes of
        // former ones.
        disk.forget_content();
        let files = LogStructuredFiles::new(world.clone(), disk);
        let options = PeriodicOptions {
            streams,
            size,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Varied, test_figure};
    use emulated::{Change, ModelChange};

    #[test]
    fn a_varied_drive_is_that_of_the_log_structured_line_too() {
        let context = test_figure::context(1);
        let latency = |varied| log_structured(&context.with_varied(varied), &[2], FAST, 2).unwrap();
        let doubled =
            Varied::Drive(ModelChange { key: "interface.hit_ms", change: Change::Times(2.0) });
        assert_ne!(latency(Varied::Nothing), latency(doubled));
    }
}
