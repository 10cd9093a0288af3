//! Filebench's fileserver and oltp: Table I.

use crate::figures::common::{FOUR_MODES, NO_KERNEL, axis, least_step, of_paper, ours, rig};
use crate::number::short;
use crate::{Claim, Context, Figure, FigureError, Picture, Results, Scale};
use engine::DataMode;
use std::time::Duration;
use testbeds::Stage;
use workloads::{FilebenchOptions, FilebenchReport, Limit, Personality, filebench};

pub const TABLE_1: Figure = Figure {
    name: "table-1",
    title: "Filebench: fileserver and oltp",
    source: "Okeanos (TOS 2013), Table I",
    about: "Filebench's fileserver with appends of 16 and of 4 KiB, and oltp, a minute each, in four modes; files and memory \
            are a hundredth of the paper's for fileserver and a tenth for oltp, in the same proportion.",
    minutes: 1,
    by_chance: true,
    real_time: false,
    run: table_1,
};

pub const TABLE_1_SCALE: Figure = Figure {
    name: "table-1-scale",
    title: "Filebench: fileserver and oltp, by how much of the paper's files there is",
    source: "Okeanos (TOS 2013), Table I",
    about: "The runs of Table I with a 400th to a tenth of the paper's files and memory, in the same proportion: each mode's operations \
            per second over ordered's. From which share on no two modes change places.",
    minutes: 8,
    by_chance: true,
    real_time: false,
    run: table_1_scale,
};

/// A part of the paper's table; its numbers are in the order of [`FOUR_MODES`].
struct Workload {
    /// Name in identifiers of statements.
    id: &'static str,
    title: &'static str,
    personality: Personality,
    largest_append: u64,
    per_second: [f64; 4],
    milliseconds: [f64; 4],
}

const WORKLOADS: [Workload; 3] = [
    Workload {
        id: "fileserver-16",
        title: "fileserver (16 KiB)",
        personality: Personality::Fileserver,
        largest_append: 16 << 10,
        per_second: [579.2, 493.8, 652.2, 680.4],
        milliseconds: [314.6, 368.9, 278.2, 266.9],
    },
    Workload {
        id: "fileserver-4",
        title: "fileserver (4 KiB)",
        personality: Personality::Fileserver,
        largest_append: 4 << 10,
        per_second: [576.8, 559.2, 700.0, 711.0],
        milliseconds: [315.5, 326.1, 260.1, 255.5],
    },
    Workload {
        id: "oltp",
        title: "oltp",
        personality: Personality::Oltp,
        largest_append: 16 << 10,
        per_second: [779.8, 810.2, 826.8, 825.2],
        milliseconds: [182.2, 156.3, 146.6, 146.7],
    },
];

/// The paper's number of fileserver's files.
const FILES: u64 = 250_000;
const FILE_SIZE: u64 = 600 << 20;
const MEMORY: u64 = 3 << 30;

#[derive(Clone, PartialEq)]
struct Cell {
    workload: usize,
    mode: DataMode,
    /// Divisor of the paper's files and memory.
    share: u64,
}

/// Share by which a mode leads at least; less counts as level.
const LEAD: f64 = 0.02;

/// Returns the divisor for Table I.
fn share_of_table(context: &Context, personality: Personality) -> u64 {
    let share = if personality == Personality::Oltp { 10 } else { 100 };
    context.overrides.whole("table-1", "share_of_table", share)
}

#[derive(Clone)]
struct Played {
    operations_per_second: f64,
    latency_mean_ms: f64,
}

/// Plays cells, some of which Table I and its curve share.
fn play_all(context: &Context, cells: &[Cell]) -> Result<Vec<Played>, FigureError> {
    static ALL: crate::figures::common::result_cache::ResultCache<Cell, Played> =
        crate::figures::common::result_cache::ResultCache::new();
    ALL.all(context, cells, play)
}

pub(super) fn title(workload: usize) -> &'static str {
    WORKLOADS[workload].title
}
/// Returns operations per second of selective journaling in each part of Table I.
pub(super) fn selective(context: &Context, workload: usize) -> Result<f64, FigureError> {
    let share = share_of_table(context, WORKLOADS[workload].personality);
    Ok(play(context, &Cell { workload, mode: DataMode::Selective, share })?.operations_per_second)
}

fn play(context: &Context, cell: &Cell) -> Result<Played, FigureError> {
    let Workload { personality, largest_append: append_size, .. } = WORKLOADS[cell.workload];
    let own = FilebenchOptions::of(personality);
    let seconds = Duration::from_secs(if context.quick { 2 } else { 60 });
    let mut workload =
        FilebenchOptions { append_size, limit: Limit::Time(seconds), seed: context.seed, ..own };
    let mut options = rig(context, cell.mode);
    if personality == Personality::Oltp {
        workload.file_size = FILE_SIZE / cell.share;
    } else {
        workload.files = FILES / cell.share;
    }
    options.engine.cache_bytes = MEMORY / cell.share;
    if context.quick {
        let threads = workload.threads / 10;
        workload = FilebenchOptions {
            files: workload.files.min(100),
            file_size: 1 << 18,
            threads,
            ..workload
        };
    }
    let stage = Stage::build(&options)?;
    let report =
        stage.run(move |files| async move { filebench(&files, &workload, |_| ()).await })?;
    let FilebenchReport { operations_per_second, latency_mean_ms, .. } = report;
    Ok(Played { operations_per_second, latency_mean_ms })
}

fn table_1(context: &Context) -> Result<Results, FigureError> {
    let mut cells = Vec::new();
    for (workload, Workload { personality, .. }) in WORKLOADS.iter().enumerate() {
        let share = share_of_table(context, *personality);
        cells.extend(FOUR_MODES.map(|mode| Cell { workload, mode, share }));
    }
    // Oltp failed with a hundredth.
    let with_tenth = cells.len();
    cells.extend(FOUR_MODES.map(|mode| Cell { workload: 2, mode, share: 100 }));
    let reports = play_all(context, &cells)?;
    let (reports, hundredth) = reports.split_at(with_tenth);
    let hundredth = [0, 1, 2, 3].map(|at| hundredth[at].operations_per_second);
    let names = Scale::Names(FOUR_MODES.map(|mode| mode.name().to_string()).to_vec());
    let (mut pictures, mut claims) = (Vec::new(), Vec::new());
    for (workload, reports) in WORKLOADS.iter().zip(reports.chunks(FOUR_MODES.len())) {
        let Workload { id, title, personality, per_second: paper, milliseconds, .. } = workload;
        let numbered =
            |values: [f64; 4]| (0..4).map(|at| (at as f64, values[at])).collect::<Vec<_>>();
        let rates = [0, 1, 2, 3].map(|at| reports[at].operations_per_second);
        pictures.push(Picture {
            title: format!("{title}: operations per second"),
            x: axis("mode", names.clone()),
            y: axis("operations per second", Scale::Linear),
            series: vec![ours(title, numbered(rates)), of_paper(title, numbered(*paper))],
        });
        let latencies = [0, 1, 2, 3].map(|at| reports[at].latency_mean_ms);
        pictures.push(Picture {
            title: format!("{title}: mean time of a read or write"),
            x: axis("mode", names.clone()),
            y: axis("ms", Scale::Linear),
            series: vec![
                ours(title, numbered(latencies)),
                of_paper(title, numbered(*milliseconds)),
            ],
        });
        let [ordered, selective, data, wasteless] = rates;
        let over =
            |mode: &str, rate: f64| Claim::of(&format!("table-1/{id}-{mode}"), rate / ordered);
        claims.push(over("wasteless", wasteless));
        claims.push(over("journal", data));
        if *personality != Personality::Oltp {
            claims.push(over("selective", selective));
            continue;
        }
        let in_order = [ordered, selective, wasteless].map(|rate| format!("{rate:.0}")).join(", ");
        let step = least_step(&[wasteless, selective, ordered]);
        claims.push(Claim::of("table-1/oltp-selective-between", step).shown(in_order));
        let [ordered, selective, data, wasteless] = hundredth;
        let over = |rate: f64| short(rate / ordered);
        let both = format!("{} and {}", over(selective), over(wasteless));
        let from = claims.len() - 3;
        let others = [over(wasteless), over(data), both];
        for (claim, other) in claims[from..].iter_mut().zip(others) {
            *claim =
                claim.clone().with_other_choice(format!("{other} of ordered's with a hundredth"));
        }
    }
    let notes = vec![
        "Why wasteless does not lead in fileserver: the file system's disk limits every mode, at some 320 requests a second, and an \
         operation needs about as many in each. With appends of 16 KiB (--trace) wasteless wrote 8,555 times in the minute and ordered \
         9,941, but read 10,484 and 9,768 times: blocks that wait for write-back cannot be evicted. Selective, most of whose \
         writes bypass the log, is ordered. With a tenth of the paper's files and memory it is the other way round (440, 460, 371 and \
         387 operations per second in the order above): 30 s of writes then fit into memory but not into the log, which wraps, and \
         each time metadata must be written back; 7,258 writes of up to four blocks in wasteless, 5,047 in ordered. Where the paper's ordered \
         mode lost its time we do not know; our commits let new operations begin while data is written home."
            .into(),
        "Of fileserver's 250,000 files of 128 KiB and of 3 GiB of memory there is a hundredth here, because emulated disks keep what is \
         written in memory; of oltp's ten files of 600 MiB and the memory a tenth. What fits into memory is the same share. The journal \
         is the paper's 128 MiB, so it holds a larger share of the files than there, and checkpoints come later."
            .into(),
        "An asynchronous write is in the running transaction at once, where the kernel would keep it to itself until its own \
         write-back hands it on: in data and wasteless journaling all data that is not overwritten within 5 s passes \
         the log."
            .into(),
        "Filebench's oltp burns processor time between its reads; in virtual time that is left out.".into(),
        NO_KERNEL.into(),
    ];
    Ok(Results { pictures, claims, notes })
}

fn table_1_scale(context: &Context) -> Result<Results, FigureError> {
    let shares: &[u64] = if context.quick { &[400, 100] } else { &[400, 200, 100, 50, 25] };
    let mut cells = Vec::new();
    for workload in 0..WORKLOADS.len() {
        for &share in shares {
            cells.extend(FOUR_MODES.map(|mode| Cell { workload, mode, share }));
        }
    }
    // The cells that Table I has of oltp.
    let tenth = cells.len();
    if !context.quick {
        cells.extend(FOUR_MODES.map(|mode| Cell { workload: 2, mode, share: 10 }));
    }
    let reports = play_all(context, &cells)?;
    let rates: Vec<f64> = reports.iter().map(|report| report.operations_per_second).collect();
    let lead = context.overrides.number("table-1-scale", "LEAD", LEAD);
    let (mut pictures, mut claims) = (Vec::new(), Vec::new());
    for (at, Workload { id, title, per_second, personality, .. }) in WORKLOADS.iter().enumerate() {
        let from = at * shares.len() * FOUR_MODES.len();
        let mut rows: Vec<(u64, &[f64])> =
            shares.iter().copied().zip(rates[from..].chunks(FOUR_MODES.len())).collect();
        if *personality == Personality::Oltp && !context.quick {
            rows.push((10, &rates[tenth..]));
        }
        let mut series = Vec::new();
        for (mode, data) in FOUR_MODES.iter().enumerate().skip(1) {
            let over =
                |(share, rates): &(u64, &[f64])| (100.0 / *share as f64, rates[mode] / rates[0]);
            series.push(ours(data.name(), rows.iter().map(over).collect()));
            series.push(of_paper(data.name(), vec![(100.0, per_second[mode] / per_second[0])]));
        }
        let percent = 100.0 / rows[stable_from(&rows, lead)].0 as f64;
        claims.push(Claim::of(&format!("table-1-scale/{id}"), percent));
        pictures.push(Picture {
            title: format!("{title}: over ordered"),
            x: axis("of the paper's files and memory (%)", Scale::Logarithmic),
            y: axis("operations per second over ordered's", Scale::Linear),
            series,
        });
    }
    let notes = vec![
        "A mode that is ahead by less than 2 % counts as level with the other.".into(),
        "The journal has the paper's 128 MiB throughout, so with few files it holds a larger share of them. Of fileserver more than a \
         25th takes gigabytes of memory for each part, as emulated disks keep what is written."
            .into(),
        NO_KERNEL.into(),
    ];
    Ok(Results { pictures, claims, notes })
}

/// Returns the first row from which on no two modes change their order.
fn stable_from(rows: &[(u64, &[f64])], lead: f64) -> usize {
    let ahead = |rates: &[f64], one: usize, other: usize| rates[one] > rates[other] * (1.0 + lead);
    let change_places = |(_, earlier): &(u64, &[f64]), (_, later): &(u64, &[f64])| {
        let modes = 0..FOUR_MODES.len();
        let pairs = modes.clone().flat_map(|one| modes.clone().map(move |other| (one, other)));
        pairs.into_iter().any(|(one, other)| ahead(earlier, one, other) && ahead(later, other, one))
    };
    let unsettled =
        |at: &usize| rows[at + 1..].iter().any(|later| change_places(&rows[*at], later));
    (0..rows.len()).filter(unsettled).max().map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_settled_after_the_last_change_of_places() {
        let rows: [(u64, &[f64]); 4] = [
            (400, &[100.0, 105.0, 90.0, 80.0]),
            (200, &[100.0, 105.0, 80.0, 90.0]),
            // The first two are equal within the lead.
            (100, &[100.0, 99.0, 85.0, 90.0]),
            (50, &[100.0, 110.0, 85.0, 95.0]),
        ];
        assert_eq!(stable_from(&rows, LEAD), 1);
        assert_eq!(stable_from(&rows[1..], LEAD), 0);
        assert_eq!(stable_from(&[rows[0], rows[1]], LEAD), 1);
    }
}
