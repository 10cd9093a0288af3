//! Files that were written at the same time, read one after the other: figure 8c.

use crate::figures::common::{axis, drive_alone, ours, rig};
use crate::{Claim, Context, Figure, FigureError, Picture, Results, Scale};
use engine::DataMode;
use runtime::VirtualWorld;
use std::time::Duration;
use testbeds::{LogStructuredFiles, Stage};
use workloads::{Files, Limit, ReadBackReport, StreamOptions, SyncKind, read_back, streams};

pub const FIGURE_8C: Figure = Figure {
    name: "8c",
    title: "Reading files that were written at the same time",
    source: "Okeanos (TOS 2013), Figure 8c",
    about: "10 to 100 files are written at the same time at 1 Mbit/s each, one synchronous write a second for a minute; then, \
            with cold caches, one thread reads them one after the other in requests of 4 KiB. Five modes, and an emulated \
            log-structured placement as a stand-in for NILFS.",
    minutes: 1,
    by_chance: false,
    real_time: false,
    run: figure_8c,
};

/// Bytes of 1 Mbit/s, one write a second.
const WRITE: usize = 125_000;
const READ: usize = 4096;
/// The kernel's default window.
const READ_AHEAD: usize = 128 << 10;
const PREFIX: &str = "stream-";
const LOG_STRUCTURED: &str = "log-structured";

const MODES: [DataMode; 5] = [
    DataMode::Writeback,
    DataMode::Ordered,
    DataMode::Journal,
    DataMode::Selective,
    DataMode::Wasteless,
];

struct Cell {
    /// Mode. `None`: log-structured.
    mode: Option<DataMode>,
    files: u32,
}

fn play(context: &Context, cell: &Cell) -> Result<ReadBackReport, FigureError> {
    let files = cell.files;
    let options = StreamOptions {
        writers: files,
        size: WRITE,
        limit: Limit::Count(if context.quick { 4 } else { 60 }),
        rate: Some(1.0),
        sync: SyncKind::OSync,
        prefix: PREFIX.into(),
    };
    match cell.mode {
        Some(mode) => {
            let mut stage = Stage::build(&rig(context, mode))?;
            stage.run(move |files| async move { write(&files, &options).await })?;
            stage.remount()?;
            stage.run(move |on| async move {
                Ok(read_back(&on, PREFIX, files, (READ, READ_AHEAD)).await?)
            })
        }
        None => {
            let world = VirtualWorld::new(context.seed);
            let on = LogStructuredFiles::new(world.clone(), drive_alone(context, &world)?);
            let result = world.run(async move {
                write(&on, &options).await?;
                // The minimum time of a remount: the drive has nothing more to write.
                on.sleep_until(on.now().plus(Duration::from_secs(30))).await;
                on.drop_caches();
                Ok(read_back(&on, PREFIX, files, (READ, READ_AHEAD)).await?)
            });
            world.end();
            result
        }
    }
}

async fn write<F: Files>(files: &F, options: &StreamOptions) -> Result<(), FigureError> {
    let (report, _) = streams(files, options, |_| ()).await?;
    match report.failure {
        Some(failure) => Err(FigureError::Other(failure)),
        None => Ok(()),
    }
}

fn figure_8c(context: &Context) -> Result<Results, FigureError> {
    let counts: &[u32] = match (context.quick, context.varied) {
        (true, _) => &[10],
        (false, Some(_)) => &[100],
        (false, None) => &[10, 20, 50, 100],
    };
    let modes: Vec<Option<DataMode>> = MODES.into_iter().map(Some).chain([None]).collect();
    let cells: Vec<Cell> = modes
        .iter()
        .flat_map(|mode| counts.iter().map(|files| Cell { mode: *mode, files: *files }))
        .collect();
    let reports = context.play(&cells, |cell| play(context, cell))?;
    let of_modes = reports.chunks(counts.len());
    let series = modes.iter().zip(of_modes).map(|(mode, reports)| {
        let points = counts
            .iter()
            .zip(reports)
            .map(|(files, report)| (f64::from(*files), report.read_mean_ms));
        ours(mode.map_or(LOG_STRUCTURED, DataMode::name), points.collect())
    });
    let picture = Picture {
        title: "Reading in requests of 4 KiB".into(),
        x: axis("files written at the same time", Scale::Logarithmic),
        y: axis("mean time of a read (ms)", Scale::Logarithmic),
        series: series.collect(),
    };
    let last = |at: usize| reports[(at + 1) * counts.len() - 1].read_mean_ms;
    let slowest = (0..MODES.len()).map(last).fold(0.0, f64::max);
    let over = last(MODES.len()) / slowest;
    let claims = ["8c/nilfs-over-slowest", "8c/atc-order"].map(|id| Claim::of(id, over));
    let notes = vec![
        "The log-structured placement is not NILFS: what it is stands in crates/testbeds/src/virtual_time/log_structured.rs. In its log a second \
         of one file, 31 blocks, lies between those of the others, so the arm moves once for every 31 reads, for 3 ms: a short \
         seek and half a revolution. That alone is what its time shows, and ten times ours would need a movement for every 8 or 9. It \
         keeps its map in memory, where NILFS with cold caches also reads its index and its address translation; but of 100 files \
         these are some 2,150 blocks beside 183,000, so they explain a distance of 4 to 5 at most. What else it was in the paper \
         we do not know."
            .into(),
        "There is no kernel to read ahead, so the reader does: 128 KiB at once, and no more before those are used up. The \
         paper does not say how many files and how long; here each is 7.5 MB."
            .into(),
    ];
    Ok(Results { pictures: vec![picture], claims: claims.into(), notes })
}
