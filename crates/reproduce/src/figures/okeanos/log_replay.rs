//! Logs of databases and of a mail store, many on one volume: figures 10b and 10c.

use crate::figures::common::{FOUR_MODES, NO_KERNEL, axis, least, most, ours, rig};
use crate::number::short;
use crate::{Claim, Context, Figure, FigureError, Picture, Results, Scale};
use engine::DataMode;
use std::time::Duration;
use testbeds::Stage;
use units::SplitMix;
use workloads::{LogTrace, ReplayOptions, ReplayReport, replay_log};

pub const FIGURE_10B: Figure = Figure {
    name: "10b",
    title: "A mail store's log, many at once",
    source: "Okeanos (TOS 2013), Figure 10b",
    about: "The first minute of the log trace mail-store is replayed by 1 to 128 instances at once, each appending to its own \
            file, in four modes: mean time of a synchronous append. Once with records of 512 bytes to 32 KiB, as the paper states \
            of its log, at the trace's times; once as recorded.",
    minutes: 2,
    by_chance: true,
    real_time: false,
    run: figure_10b,
};

pub const FIGURE_10C: Figure = Figure {
    name: "10c",
    title: "InnoDB's log under its three flush methods, many at once",
    source: "Okeanos (TOS 2013), Figure 10c",
    about: "The first minute of InnoDB's log under an order-entry load, recorded with each flush method, is replayed by 1 to \
            128 instances at once, each over a log file that exists, ordered and wasteless: mean time of a flush.",
    minutes: 2,
    by_chance: true,
    real_time: false,
    run: figure_10c,
};

const TRACES: &str = "The paper's traces are not to be had. These were recorded for this project (docs/TRACES.md); their \
records are larger and fewer than what the paper states of its own, so absolute times do not compare.";

const LARGE_RECORDS: &str = "As recorded, of the writes of mail-store 83 % are of 4 KiB or more, on average 14 KiB; the paper's log presumably was of \
smaller records. Those are above selective journaling's threshold and are written home, each to its own place: with 128 instances 45,000 \
writes of 19 KiB in the minute, more than the disk can do, as in ordered journaling (44,000); of wasteless 2,100 were written home, 334 KiB \
each, when it pleased (--trace). For the same reason data journaling, which logs whole blocks, logs but a tenth more than wasteless \
(1,146 and 1,044 MB), and both wait for little but the clock's ticks, on and on while instances join";

const LIGHT_LOAD: &str = "Prd/Disk flushes once a second: 128 instances are 139 home writes of 95 KiB a second in ordered \
journaling, half of which the drive's cache takes in 0.23 ms (--trace), so both modes wait for the clock's ticks more than for a \
disk. Cmt/Cache: each commit writes without a flush and joins the transaction that others wait for, which keeps those waiting tick \
after tick in both modes. Where every commit is flushed, ordered journaling asks 70,500 home writes for the minute, and takes 80 s \
longer. The paper's flushes took seconds in both modes, so its disks had far more to do.";

/// Gives each record a new length: from 512 bytes to 32 KiB in sectors, each doubling equally
/// likely. Times and syncs stay.
fn with_made_records(mut trace: LogTrace, seed: u64) -> LogTrace {
    const SECTOR: u64 = 512;
    const DOUBLINGS: u32 = 6;
    let rng = SplitMix::new(seed);
    let mut end = 0;
    for record in trace.records.iter_mut().filter(|record| record.size > 0) {
        let share = rng.below(1 << 20) as f64 / f64::from(1 << 20);
        let sectors = (share * f64::from(DOUBLINGS)).exp2().round() as u64;
        (record.offset, record.size) = (end, (sectors * SECTOR) as u32);
        end += sectors * SECTOR;
    }
    trace
}

struct Cell {
    trace: &'static str,
    made_records: bool,
    mode: DataMode,
    instances: u32,
    preallocated: bool,
}

fn play(context: &Context, cell: &Cell) -> Result<ReplayReport, FigureError> {
    let trace =
        LogTrace::open(cell.trace).map_err(|error| FigureError::Other(error.to_string()))?;
    let trace = if cell.made_records { with_made_records(trace, context.seed) } else { trace };
    let options = ReplayOptions {
        instances: cell.instances,
        until: Some(Duration::from_secs(match (context.quick, context.varied) {
            (true, _) => 3,
            (false, Some(_)) => 20,
            (false, None) => 60,
        })),
        preallocated: cell.preallocated,
        seed: context.seed,
        ..ReplayOptions::default()
    };
    let stage = Stage::build(&rig(context, cell.mode))?;
    Ok(stage.run(move |files| async move { replay_log(&files, &trace, &options, |_| ()).await })?)
}

/// Returns writes per second of the mail store's log that one of `instances` could have made
/// durable, in selective mode.
pub(super) fn selective(
    context: &Context,
    made_records: bool,
    instances: u32,
) -> Result<f64, FigureError> {
    let (trace, mode, preallocated) = ("mail-store", DataMode::Selective, false);
    let report = play(context, &Cell { trace, made_records, mode, instances, preallocated })?;
    Ok(1e3 / report.sync_mean_ms)
}

fn instances(context: &Context) -> &'static [u32] {
    match (context.quick, context.varied) {
        (true, _) => &[1, 8],
        (false, Some(_)) => &[16, 128],
        (false, None) => &[1, 4, 16, 32, 64, 128],
    }
}

fn picture(title: &str, series: Vec<crate::Series>) -> Picture {
    Picture {
        title: title.into(),
        x: axis("instances", Scale::Logarithmic),
        y: axis("mean time until durable (ms)", Scale::Logarithmic),
        series,
    }
}

fn figure_10b(context: &Context) -> Result<Results, FigureError> {
    let counts = instances(context);
    let mut cells = Vec::new();
    for made_records in [true, false] {
        for mode in FOUR_MODES {
            let cell = |&instances| Cell {
                trace: "mail-store",
                made_records,
                mode,
                instances,
                preallocated: false,
            };
            cells.extend(counts.iter().map(cell));
        }
    }
    let reports = context.play(&cells, |cell| play(context, cell))?;
    let (made, recorded) = reports.split_at(reports.len() / 2);
    let titled =
        [("Records of 512 B to 32 KiB", made), ("A mail store's log as recorded", recorded)];
    let pictures = titled.map(|(title, reports)| {
        let series = FOUR_MODES.iter().zip(reports.chunks(counts.len())).map(|(mode, reports)| {
            let points =
                counts.iter().zip(reports).map(|(count, it)| (f64::from(*count), it.sync_mean_ms));
            ours(mode.name(), points.collect())
        });
        picture(title, series.collect())
    });

    let at_most = |reports: &[ReplayReport]| {
        [0, 1, 2, 3].map(|mode| reports[(mode + 1) * counts.len() - 1].sync_mean_ms)
    };
    let [ordered, selective, data, wasteless] = at_most(made);
    let [other_ordered, other_selective, other_data, other_wasteless] = at_most(recorded);
    let as_recorded = |id: &str, value: f64, other: f64| {
        Claim::of(&format!("10b/{id}"), value)
            .with_other_choice(format!("as recorded {}", short(other)))
    };
    let claims = vec![
        as_recorded("wasteless-tens", wasteless, other_wasteless),
        as_recorded("selective-tens", selective, other_selective),
        as_recorded(
            "selective-over-wasteless",
            selective / wasteless,
            other_selective / other_wasteless,
        ),
        as_recorded("ordered-over-wasteless", ordered / wasteless, other_ordered / other_wasteless),
        as_recorded("data-over-wasteless", data / wasteless, other_data / other_wasteless),
    ];
    let pictures = pictures.into();
    Ok(Results {
        pictures,
        claims,
        notes: vec![LARGE_RECORDS.into(), TRACES.into(), NO_KERNEL.into()],
    })
}

fn figure_10c(context: &Context) -> Result<Results, FigureError> {
    const METHODS: [(&str, &str); 3] = [
        ("Cmt/Disk", "innodb-cmt-disk"),
        ("Prd/Disk", "innodb-prd-disk"),
        ("Cmt/Cache", "innodb-cmt-cache"),
    ];
    const MODES: [DataMode; 2] = [DataMode::Ordered, DataMode::Wasteless];
    /// Instances from which on the ATC paper states its times; with `--quick` fewer.
    const MANY: u32 = 64;
    let counts = instances(context);
    let mut cells = Vec::new();
    for (_, trace) in METHODS {
        for mode in MODES {
            let cell = |&instances| Cell {
                trace,
                made_records: false,
                mode,
                instances,
                preallocated: true,
            };
            cells.extend(counts.iter().map(cell));
        }
    }
    let reports = context.play(&cells, |cell| play(context, cell))?;
    let of = |method: usize, mode: usize| {
        let from = (method * MODES.len() + mode) * counts.len();
        &reports[from..from + counts.len()]
    };
    let (mut pictures, mut claims, mut of_many) = (Vec::new(), Vec::new(), Vec::new());
    for (method, (title, _)) in METHODS.iter().enumerate() {
        let series = MODES.iter().enumerate().map(|(at, mode)| {
            let points = counts.iter().zip(of(method, at));
            ours(
                mode.name(),
                points.map(|(count, it)| (f64::from(*count), it.sync_mean_ms)).collect(),
            )
        });
        pictures.push(picture(&format!("InnoDB's log, {title}"), series.collect()));
        let times = |at: usize| of(method, 0)[at].sync_mean_ms / of(method, 1)[at].sync_mean_ms;
        let id = title.to_lowercase().replace('/', "-");
        claims.push(Claim::of(&format!("10c/{id}"), most((0..counts.len()).map(times))));
        of_many.extend((0..counts.len()).filter(|&at| counts[at] >= MANY).map(times));
    }
    claims.push(Claim::of("10c/atc-all", least(of_many)));
    Ok(Results {
        pictures,
        claims,
        notes: vec![LIGHT_LOAD.into(), TRACES.into(), NO_KERNEL.into()],
    })
}
