//! Figures 7 and 8: Filebench's varmail, by how much is appended before a sync.

use super::figure_5::megabits;
use super::variants::{
    CACHINGS, MODES, OFF, PLACE, PLANS, RIG, UNSAFE, Variant, WITH_COSTLY, WITH_EFFICIENT, all,
    bars, costs, paper_plan_bars, with_paper_plan,
};
use crate::figures::common::{NO_KERNEL, axis, least, ours, picture};
use crate::{Claim, Context, Figure, FigureError, Results, Scale};
use eviction::CoercionStatistics;
use std::time::Duration;
use workloads::{FilebenchOptions, FilebenchReport, Limit, Personality, filebench};

const ABOUT: &str = "Filebench's varmail, 1 thread, 500 files of 16 KiB, appends of 16 KiB to 8 MiB before each fsync, for 20 s; ordered and journal \
journaling on an emulated Hitachi with its cache off, discreet with either eviction, and unsafe. Figures 7 and 8 share these runs.";

pub const FIGURE_7: Figure = Figure {
    name: "discreet-figure-7",
    title: "Varmail on a drive that is not trusted: 16 KiB and 8 MiB for each fsync",
    source: "Discreet (DSN 2011), Figure 7",
    about: ABOUT,
    minutes: 2,
    by_chance: true,
    real_time: false,
    run: figure_7,
};

pub const FIGURE_8: Figure = Figure {
    name: "discreet-figure-8",
    title: "Varmail on a drive that is not trusted: the time of an fsync",
    source: "Discreet (DSN 2011), Figure 8",
    about: ABOUT,
    minutes: 2,
    by_chance: true,
    real_time: false,
    run: figure_8,
};

const SMALL: u64 = 16 << 10;
const LARGE: u64 = 8 << 20;

#[derive(Clone, Copy, PartialEq)]
enum Host {
    OfThePaper,
    /// The drive has 32 requests at once, if the engine issues that many.
    Queueing,
}

#[derive(Clone, PartialEq)]
struct Cell {
    variant: Variant,
    append: u64,
    host: Host,
}

#[derive(Clone)]
struct Played {
    megabits: f64,
    sync_ms: f64,
    coercion: CoercionStatistics,
}

/// Plays all cells, by variant, then by size.
fn play_all(
    context: &Context,
    variants: Vec<Variant>,
    sizes: &[u64],
    host: Host,
) -> Result<(Vec<Cell>, Vec<Played>), FigureError> {
    static ALL: crate::figures::common::result_cache::ResultCache<Cell, Played> =
        crate::figures::common::result_cache::ResultCache::new();
    let of = |variant| sizes.iter().map(move |&append| Cell { variant, append, host });
    let cells: Vec<Cell> = variants.into_iter().flat_map(of).collect();
    let played = ALL.all(context, &cells, play)?;
    Ok((cells, played))
}

fn play(context: &Context, cell: &Cell) -> Result<Played, FigureError> {
    let seconds = if context.quick { 3 } else { 20 };
    let workload = FilebenchOptions {
        threads: 1,
        files: 500,
        file_size: 16 << 10,
        append_size: cell.append,
        append_exactly: true,
        limit: Limit::Time(Duration::from_secs(seconds)),
        seed: context.seed,
        ..FilebenchOptions::of(Personality::Varmail)
    };
    let stage = cell.variant.stage(context, |options| {
        if cell.host == Host::Queueing {
            options.home.elevator = None;
        }
        // As in the paper's varmail.
        options.engine.transaction_checksum = options.eviction.is_some();
        options.evictions_a_sync = options.evictions_a_sync.saturating_sub(1);
    })?;
    let report: FilebenchReport =
        stage.run(move |files| async move { filebench(&files, &workload, |_| ()).await })?;
    Ok(Played {
        megabits: megabits(&report),
        sync_ms: report.sync_mean_ms,
        coercion: stage.coercion(),
    })
}

fn figure_7(context: &Context) -> Result<Results, FigureError> {
    let sizes = [SMALL, if context.quick { LARGE / 8 } else { LARGE }];
    let (cells, played) = play_all(context, all(), &sizes, Host::OfThePaper)?;
    let (_, of_paper_plan) = play_all(context, with_paper_plan(), &sizes, Host::OfThePaper)?;
    let rate = |mode: usize, caching: usize, size: usize| {
        played[(mode * CACHINGS.len() + caching) * sizes.len() + size].megabits
    };
    let (mut pictures, mut claims) = (Vec::new(), Vec::new());
    for (size, title) in ["16 KiB before each fsync", "8 MiB before each fsync"].iter().enumerate()
    {
        let rates: Vec<f64> =
            (0..all().len()).map(|at| played[at * sizes.len() + size].megabits).collect();
        let mut picture = bars(title, "read and written (Mbit/s)", &rates, None);
        let others = of_paper_plan.chunks(sizes.len()).map(|played| played[size].megabits);
        picture.series.extend(paper_plan_bars(&others.collect::<Vec<_>>()));
        pictures.push(picture);
    }
    let (_, queueing) = play_all(context, all(), &sizes[1..], Host::Queueing)?;
    let rates: Vec<f64> = queueing.iter().map(|played| played.megabits).collect();
    let title =
        "8 MiB before each fsync, 32 requests of up to 4 MiB at the drive (not the paper's host)";
    pictures.push(bars(title, "read and written (Mbit/s)", &rates, None));
    for (mode, data) in MODES.iter().enumerate() {
        let id = |row: &str| format!("discreet-figure-7/{}-{row}", data.name());
        let best = rate(mode, WITH_COSTLY, 0).max(rate(mode, WITH_EFFICIENT, 0));
        claims.push(Claim::of(&id("small"), best / rate(mode, OFF, 0)));
        let efficient = rate(mode, WITH_EFFICIENT, 1);
        claims.push(Claim::of(&id("large"), efficient / rate(mode, OFF, 1)));
    }
    let over = rate(0, WITH_EFFICIENT, 1) / rate(0, WITH_COSTLY, 1);
    claims.push(Claim::of("discreet-figure-7/efficient-over-costly", over));
    let gain = |mode: usize, caching: usize| rate(mode, caching, 1) / rate(mode, caching, 0);
    let modes = 0..MODES.len();
    let all_gain = modes.clone().flat_map(|mode| (0..CACHINGS.len()).map(move |it| (mode, it)));
    let all_gain = all_gain.map(|(mode, caching)| gain(mode, caching));
    claims.push(Claim::of("discreet-figure-7/all-gain", least(all_gain)));
    let lead = |mode: usize| {
        let discreet = gain(mode, WITH_COSTLY).min(gain(mode, WITH_EFFICIENT));
        discreet / gain(mode, OFF).max(gain(mode, UNSAFE))
    };
    claims.push(Claim::of("discreet-figure-7/discreet-gain-most", least(modes.map(lead))));
    Ok(Results { pictures, claims, notes: notes(&cells, &played) })
}

fn figure_8(context: &Context) -> Result<Results, FigureError> {
    let sizes: &[u64] = match context.quick {
        true => &[SMALL, LARGE / 8],
        false => &[SMALL, 64 << 10, 256 << 10, 1 << 20, 4 << 20, LARGE],
    };
    let (cells, played) = play_all(context, all(), sizes, Host::OfThePaper)?;
    let time = |mode: usize, caching: usize, size: usize| {
        played[(mode * CACHINGS.len() + caching) * sizes.len() + size].sync_ms
    };
    let last = sizes.len() - 1;
    let mut series = Vec::new();
    for (at, variant) in all().iter().enumerate() {
        let line = sizes
            .iter()
            .enumerate()
            .map(|(size, &it)| (it as f64, played[at * sizes.len() + size].sync_ms));
        series.push(ours(&variant.name(), line.collect()));
    }
    let mut claims = Vec::new();
    for (mode, data) in MODES.iter().enumerate() {
        let id = |row: &str| format!("discreet-figure-8/{}-{row}", data.name());
        let growth = |caching: usize| time(mode, caching, last) / time(mode, caching, 0);
        let discreet = growth(WITH_COSTLY).max(growth(WITH_EFFICIENT));
        let all = [OFF, WITH_COSTLY, WITH_EFFICIENT, UNSAFE].map(|it| format!("{:.1}", growth(it)));
        claims.push(
            Claim::of(&id("growth"), growth(OFF).min(growth(UNSAFE)) / discreet)
                .shown(all.join(", ")),
        );
        let over = time(mode, WITH_COSTLY, 0) / time(mode, WITH_EFFICIENT, 0);
        claims.push(Claim::of(&id("costly-over-efficient"), over));
    }
    let x = axis("append before an fsync (bytes)", Scale::Logarithmic);
    let y = axis("mean time of an fsync (ms)", Scale::Logarithmic);
    Ok(Results {
        pictures: vec![picture("Varmail", x, y, series)],
        claims,
        notes: notes(&cells, &played),
    })
}

fn notes(cells: &[Cell], played: &[Played]) -> Vec<String> {
    let evictions = cells.iter().zip(played).map(|(cell, played)| (&cell.variant, played.coercion));
    vec![
        "Each append has the stated size (the paper's captions; Filebench's own varmail appends half of it on average).".into(),
        costs(evictions),
        PLACE.into(),
        PLANS.into(),
        RIG.into(),
        NO_KERNEL.into(),
    ]
}
