//! Figure 5: Filebench's webserver.

use super::super::shared::{NO_KERNEL, at_least, name};
use super::variants::{
    CACHINGS, MODES, OFF, PLACE, PLANS, RIG, UNSAFE, Variant, WITH_COSTLY, all, bars, caching_name, costs,
};
use crate::{Context, Figure, FigureError, Results};
use bench::{FilebenchOptions, FilebenchReport, HostScheduler, Limit, Personality, filebench};
use eviction::CoercionStatistics;
use std::time::Duration;

pub const FIGURE_5: Figure = Figure {
    name: "discreet-figure-5",
    title: "A web server on a drive that is not trusted",
    source: "Discreet (DSN 2011), Figure 5",
    about: "Filebench's webserver, 16 threads, files of 16 KiB on average, appends of 1 B to 16 KiB to one log, for 10 s; files \
            and memory are an eighth of the paper's 500 and 1 GiB; ordered and data journaling on an emulated Hitachi with its cache \
            off, discreet with either eviction, and unsafe.",
    minutes: 10,
    real_time: false,
    run,
};

/// Of the paper's number of files and of its memory.
const SHARE: u64 = 8;

fn run(context: &Context) -> Result<Results, FigureError> {
    let variants = all();
    let played = context.play(&variants, |variant| play(context, variant))?;
    let rates: Vec<f64> = played.iter().map(|(report, _)| megabits(report)).collect();
    let rate = |mode: usize, caching: usize| rates[mode * CACHINGS.len() + caching];
    let mut claims = Vec::new();
    for (mode, data) in MODES.iter().enumerate() {
        let data = name(*data);
        claims.push(at_least(
            &format!("{data}: discreet (128 writes) has at least 0.9 of what unsafe caching has"),
            "0.93 to 0.96",
            (rate(mode, WITH_COSTLY), rate(mode, UNSAFE)),
            0.9,
        ));
        claims.push(at_least(
            &format!(
                "{data}: discreet (128 writes) is ahead of the cache switched off by at least a twentieth"
            ),
            "1.18 to 1.25 (without the cache 15 to 20 % less)",
            (rate(mode, WITH_COSTLY), rate(mode, OFF)),
            1.05,
        ));
    }
    for (caching, choice) in CACHINGS.into_iter().enumerate() {
        claims.push(at_least(
            &format!("{}: ordered is faster than data journaling by at least a fifth", caching_name(choice)),
            "significantly higher",
            (rate(0, caching), rate(1, caching)),
            1.2,
        ));
    }
    let evictions = variants.iter().zip(&played).map(|(variant, (_, coercion))| (variant, *coercion));
    let notes = vec![
        "The files fit into memory, and a read from there takes no virtual time: threads read until the log's dirty blocks fill \
         half of the memory (an eighth of the paper's), and from then on the drive sets the pace with which the log is written."
            .into(),
        costs(evictions),
        PLACE.into(),
        PLANS.into(),
        RIG.into(),
        NO_KERNEL.into(),
    ];
    let pictures = vec![bars("Webserver", "read and written (Mbit/s)", &rates, None)];
    Ok(Results { pictures, claims, notes })
}

/// Read and written by the workload, in a second.
pub(super) fn megabits(report: &FilebenchReport) -> f64 {
    (report.bytes_read + report.bytes_written) as f64 * 8.0 / 1e6 / report.seconds
}

fn play(context: &Context, variant: &Variant) -> Result<(FilebenchReport, CoercionStatistics), FigureError> {
    let time = if context.quick { Duration::from_millis(500) } else { Duration::from_secs(10) };
    let workload = FilebenchOptions {
        threads: 16,
        files: 500 / SHARE,
        file_size: 16 << 10,
        append_size: 16 << 10,
        limit: Limit::Time(time),
        seed: context.seed,
        ..FilebenchOptions::of(Personality::Webserver)
    };
    let quick = context.quick;
    let stage = variant.stage(context, |options| {
        // Linux 2.6.13.
        options.home.elevator = Some(HostScheduler::ANTICIPATORY);
        options.engine.cache_bytes = if quick { 32 << 20 } else { options.engine.cache_bytes / SHARE };
    })?;
    let report = stage.run(move |files| async move { filebench(&files, &workload, |_| ()).await })?;
    Ok((report, stage.coercion()))
}
