//! `threshold=auto` on the loads of other figures, beside fixed thresholds.

use super::streams::{Cell, FAST, SLOW};
use super::{filebench, log_replay, mpi_io, postmark, streams};
use crate::figures::common::{NO_KERNEL, axis, ours};
use crate::{Claim, Context, Figure, FigureError, Picture, Results, Scale, Varied};
use engine::{DataMode, WriteThreshold};

pub const FIGURE: Figure = Figure {
    name: "threshold",
    title: "Selective journaling's write threshold: fixed, and chosen on line",
    source: "ours",
    about: "Loads of Okeanos' figures in selective mode: streams (8a, 8b), Postmark (10a), Filebench (Table I), a mail store's \
            log (10b) and MPI-IO (11), with requests below 4 KiB, 64 KiB and 1 MiB logged, and with threshold=auto. Speeds, or \
            the inverse of a write's mean time.",
    minutes: 12,
    by_chance: true,
    real_time: false,
    run,
};

/// Fixed thresholds: a page, as in the paper; and the most that `auto` may call small.
const FIXED: [u64; 3] = [4 << 10, 64 << 10, 1 << 20];

/// Load of another figure, in selective mode.
#[derive(Clone, Copy)]
enum SelectiveLoad {
    Streams { count: u32, size: usize },
    Postmark { request: u64 },
    Filebench { part: usize },
    MailLog { made_records: bool, instances: u32 },
    MpiIo { size: u64 },
}

impl SelectiveLoad {
    /// Returns the speed: more is better.
    fn speed(self, context: &Context) -> Result<f64, FigureError> {
        match self {
            SelectiveLoad::Streams { count, size } => {
                let seconds = if context.quick { 3 } else { 60 };
                let cell = Cell::new(DataMode::Selective, count, size, seconds);
                Ok(1e3 / streams::play_one(&cell, context)?.mean_ms)
            }
            SelectiveLoad::Postmark { request } => postmark::selective(context, request),
            SelectiveLoad::Filebench { part } => filebench::selective(context, part),
            SelectiveLoad::MailLog { made_records, instances } => {
                log_replay::selective(context, made_records, instances)
            }
            SelectiveLoad::MpiIo { size } => mpi_io::selective(context, size),
        }
    }
    /// Returns the name in identifiers of statements.
    fn id(self) -> String {
        match self {
            SelectiveLoad::Streams { size, .. } if size == SLOW => "8a".into(),
            SelectiveLoad::Streams { count, .. } => format!("8b-{count}"),
            SelectiveLoad::Postmark { request } => format!("10a-{request}"),
            SelectiveLoad::Filebench { part } => format!("table-1-{part}"),
            SelectiveLoad::MailLog { made_records: true, instances } => {
                format!("10b-made-{instances}")
            }
            SelectiveLoad::MailLog { instances, .. } => format!("10b-{instances}"),
            SelectiveLoad::MpiIo { size } => format!("11-{size}"),
        }
    }
    fn name(self) -> String {
        match self {
            SelectiveLoad::Streams { count, size } if size == SLOW => {
                format!("8a: {count} streams of 1 Kbps")
            }
            SelectiveLoad::Streams { count, .. } => format!("8b: {count} streams of 1 Mbps"),
            SelectiveLoad::Postmark { request } => format!("10a: requests of {request} B"),
            SelectiveLoad::Filebench { part } => format!("Table I: {}", filebench::title(part)),
            SelectiveLoad::MailLog { made_records: true, instances } => {
                format!("10b: {instances} logs, records of 512 B to 32 KiB")
            }
            SelectiveLoad::MailLog { instances, .. } => {
                format!("10b: {instances} logs as recorded")
            }
            SelectiveLoad::MpiIo { size } => format!("11: writes of {size} B"),
        }
    }
}

fn loads(quick: bool) -> Vec<SelectiveLoad> {
    if quick {
        return vec![
            SelectiveLoad::Streams { count: 20, size: SLOW },
            SelectiveLoad::Postmark { request: 4 << 10 },
        ];
    }
    let streams = [(1000, SLOW), (20, FAST), (60, FAST)]
        .map(|(count, size)| SelectiveLoad::Streams { count, size });
    let mut all = Vec::from(streams);
    all.extend(
        [1 << 10, 4 << 10, 16 << 10, 128 << 10].map(|request| SelectiveLoad::Postmark { request }),
    );
    all.extend([0, 1, 2].map(|part| SelectiveLoad::Filebench { part }));
    let logs = [(true, 128), (false, 16), (false, 128)];
    all.extend(
        logs.map(|(made_records, instances)| SelectiveLoad::MailLog { made_records, instances }),
    );
    all.extend([mpi_io::SMALL, mpi_io::LARGE].map(|size| SelectiveLoad::MpiIo { size }));
    all
}

fn run(context: &Context) -> Result<Results, FigureError> {
    let loads = loads(context.quick);
    let thresholds: Vec<WriteThreshold> =
        FIXED.map(WriteThreshold::Fixed).into_iter().chain([WriteThreshold::Auto]).collect();
    let mut cells = Vec::new();
    for &load in &loads {
        cells.extend(thresholds.iter().map(|threshold| (load, *threshold)));
    }
    let of_cell = |(load, threshold): &(SelectiveLoad, WriteThreshold)| {
        load.speed(&context.with_varied(Varied::Threshold(*threshold)))
    };
    let speeds = context.play(&cells, of_cell)?;

    let best = |speeds: &[f64]| speeds[..FIXED.len()].iter().copied().fold(0.0, f64::max);
    let of_loads: Vec<&[f64]> = speeds.chunks(thresholds.len()).collect();
    let claims = loads.iter().zip(&of_loads).map(|(load, speeds)| {
        Claim::of(&format!("threshold/{}", load.id()), speeds[FIXED.len()] / best(speeds))
    });
    let series = thresholds.iter().enumerate().map(|(at, threshold)| {
        let name = match threshold {
            WriteThreshold::Fixed(bytes) => format!("{} KiB", bytes >> 10),
            WriteThreshold::Auto => "auto".into(),
        };
        let share = |(index, speeds): (usize, &&[f64])| (index as f64, speeds[at] / best(speeds));
        ours(&name, of_loads.iter().enumerate().map(share).collect())
    });
    let pictures = vec![Picture {
        title: "Speed, of the best fixed threshold's".into(),
        x: axis("load", Scale::Names(loads.iter().map(|load| load.name()).collect())),
        y: axis("of the best fixed threshold's speed", Scale::Linear),
        series: series.collect(),
    }];
    let notes = vec!["Each load begins with a fresh mount, which has learnt nothing: what learning costs is in its numbers.".into(), NO_KERNEL.into()];
    Ok(Results { claims: claims.collect(), pictures, notes })
}
