//! Figure 5: Filebench's webserver.

use super::variants::{
    CACHINGS, MODES, OFF, PLACE, PLANS, RIG, UNSAFE, Variant, WITH_COSTLY, all, bars, costs,
    paper_plan_bars, with_paper_plan,
};
use crate::figures::common::{NO_KERNEL, axis, ours, picture};
use crate::{Claim, Context, Figure, FigureError, Picture, Results, Scale};
use disks::HostScheduler;
use eviction::CoercionStatistics;
use std::time::Duration;
use workloads::{FilebenchOptions, FilebenchReport, Limit, Personality, filebench};

pub const FIGURE_5: Figure = Figure {
    name: "discreet-figure-5",
    title: "A web server on a drive that is not trusted",
    source: "Discreet (DSN 2011), Figure 5",
    about: "Filebench's webserver, 16 threads, files of 16 KiB on average, appends of 1 B to 16 KiB to one log, for 10 s; files \
            and memory are an eighth of the paper's 500 and 1 GiB; ordered and data journaling on an emulated Hitachi with its cache \
            off, discreet with either eviction, and unsafe.",
    minutes: 3,
    by_chance: true,
    real_time: false,
    run,
};

/// Divisor of the paper's number of files and of its memory.
const SHARE: u64 = 8;

struct Cell {
    variant: Variant,
    /// Processor time of a loop of the workload.
    processor: Duration,
}

fn run(context: &Context) -> Result<Results, FigureError> {
    let variants: Vec<Variant> = all().into_iter().chain(with_paper_plan()).collect();
    let cells: Vec<Cell> =
        variants.iter().map(|&variant| Cell { variant, processor: Duration::ZERO }).collect();
    let played = context.play(&cells, |cell| play(context, cell))?;
    let (rates, of_paper_plan): (Vec<f64>, Vec<f64>) = {
        let rates: Vec<f64> = played.iter().map(|(report, _)| megabits(report)).collect();
        let (own, others) = rates.split_at(all().len());
        (own.to_vec(), others.to_vec())
    };
    let rate = |mode: usize, caching: usize| rates[mode * CACHINGS.len() + caching];
    let mut claims = Vec::new();
    for (mode, data) in MODES.iter().enumerate() {
        for (caching, name) in [(UNSAFE, "unsafe"), (OFF, "off")] {
            let id = format!("discreet-figure-5/{}-over-{name}", data.name());
            claims.push(Claim::of(&id, rate(mode, WITH_COSTLY) / rate(mode, caching)));
        }
    }
    for (caching, name) in [(OFF, "off"), (WITH_COSTLY, "costly"), (UNSAFE, "unsafe")] {
        let id = format!("discreet-figure-5/ordered-over-data-{name}");
        claims.push(Claim::of(&id, rate(0, caching) / rate(1, caching)));
    }
    let shares =
        of_paper_plan.chunks(2).enumerate().map(|(mode, rates)| rates[0] / rate(mode, UNSAFE));
    let shares: Vec<String> = shares.map(|share| format!("{share:.2}")).collect();
    let evictions =
        variants.iter().zip(&played).map(|(variant, (_, coercion))| (variant, *coercion));
    let notes = vec![
        format!(
            "With the paper's plan of evictions (128 writes) ordered journaling has {} of what unsafe caching has, data journaling {}.",
            shares[0], shares[1]
        ),
        "A processor takes time, too, and a slower host asks less of the drive: the second picture has its share of unsafe caching by what a \
         loop (31 calls) takes of one processor, over 30 s. On the processor of a current server these loops take some 0.1 ms (okeanos-lab bench filebench webserver \
         on a tmpfs); the paper had one Opteron of 2.2 GHz and Filebench's own work."
            .into(),
        "The files fit into memory, and a read from there takes no virtual time: threads read until the log's dirty blocks fill \
         half of the memory (an eighth of the paper's), and from then on the drive sets the pace with which the log is written."
            .into(),
        costs(evictions),
        PLACE.into(),
        PLANS.into(),
        RIG.into(),
        NO_KERNEL.into(),
    ];
    let mut webserver = bars("Webserver", "read and written (Mbit/s)", &rates, None);
    webserver.series.extend(paper_plan_bars(&of_paper_plan));
    let mut pictures = vec![webserver];
    if context.run_index == 0 {
        pictures.push(slower_hosts(context)?);
    }
    Ok(Results { pictures, claims, notes })
}

/// Plots the rest of unsafe caching's advantage where a processor takes time as well.
fn slower_hosts(context: &Context) -> Result<Picture, FigureError> {
    let microseconds: &[u64] = if context.quick { &[1000] } else { &[250, 300, 400, 500, 1000] };
    let choices = [CACHINGS[OFF], CACHINGS[WITH_COSTLY], CACHINGS[UNSAFE]];
    let lines: Vec<Variant> = MODES
        .into_iter()
        .flat_map(|data| choices.map(|caching| Variant { data, caching, paper_plan: false }))
        .collect();
    let with_times = |&variant: &Variant| {
        microseconds
            .iter()
            .map(move |&time| Cell { variant, processor: Duration::from_micros(time) })
    };
    let cells: Vec<Cell> = lines.iter().flat_map(with_times).collect();
    let played = context.play(&cells, |cell| play(context, cell))?;
    let rates: Vec<Vec<f64>> = played
        .chunks(microseconds.len())
        .map(|line| line.iter().map(|(report, _)| megabits(report)).collect())
        .collect();
    let mut series = Vec::new();
    for (lines, rates) in lines.chunks(choices.len()).zip(rates.chunks(choices.len())) {
        let (best, others) = rates.split_last().expect("unsafe caching is the last");
        for (variant, rates) in lines.iter().zip(others) {
            let shares = rates.iter().zip(best).map(|(rate, best)| rate / best);
            let points = microseconds.iter().map(|time| *time as f64 / 1e3).zip(shares).collect();
            series.push(ours(&variant.name(), points));
        }
    }
    let x = axis("ms of the processor for a loop", Scale::Logarithmic);
    Ok(picture(
        "Where the host takes time, too",
        x,
        axis("of unsafe caching", Scale::Linear),
        series,
    ))
}

/// Returns megabits read and written per second.
pub(super) fn megabits(report: &FilebenchReport) -> f64 {
    (report.bytes_read + report.bytes_written) as f64 * 8.0 / 1e6 / report.seconds
}

fn play(
    context: &Context,
    cell: &Cell,
) -> Result<(FilebenchReport, CoercionStatistics), FigureError> {
    let time = match cell.processor {
        _ if context.quick => Duration::from_millis(500),
        Duration::ZERO => Duration::from_secs(10),
        // Later commits come by timer.
        _ => Duration::from_secs(30),
    };
    let of_figure = &context.overrides;
    let share = of_figure.whole("discreet-figure-5", "SHARE", SHARE);
    // The second picture has processor times of its own.
    let processor = match cell.processor {
        Duration::ZERO => of_figure.time("discreet-figure-5", "processor", Duration::ZERO),
        given => given,
    };
    let workload = FilebenchOptions {
        threads: 16,
        files: 500 / share,
        file_size: 16 << 10,
        append_size: 16 << 10,
        processor,
        limit: Limit::Time(time),
        seed: context.seed,
        ..FilebenchOptions::of(Personality::Webserver)
    };
    let quick = context.quick;
    let stage = cell.variant.stage(context, |options| {
        // Linux 2.6.13.
        options.home.elevator = Some(HostScheduler::ANTICIPATORY);
        options.engine.cache_bytes =
            if quick { 32 << 20 } else { options.engine.cache_bytes / share };
    })?;
    let report =
        stage.run(move |files| async move { filebench(&files, &workload, |_| ()).await })?;
    Ok((report, stage.coercion()))
}
