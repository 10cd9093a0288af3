//! One set of cells in real time, on any file system, and in virtual time, for Okeanos.

use crate::{Context, FigureError};
use std::io;
use std::time::Duration;
use testbeds::{Programs, RealStage, RealStageOptions, RigError};
use testbeds::{Stage, StageOptions, Traffic};
use workloads::{
    DirectoryFiles, Files, PeriodicOptions, PostmarkOptions, SyncKind, at_once, periodic, postmark,
};

const MODEL: &str = "cheetah-15k5-300";
/// Bytes of the home disk in both kinds of time: a volume that mke2fs makes in real time within
/// seconds.
const HOME_SIZE: u64 = 8 << 30;
const JOURNAL_SIZE: u64 = 128 << 20;
/// Bytes of an append: 1 Kbps at one append a second.
const STREAM_SIZE: usize = 125;

/// One file system under one load.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    /// Name as in `okeanos-lab bench compare`: `ext4:ordered`, `okeanos:wasteless`.
    pub contender: &'static str,
    pub load: Load,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    /// Streams of 1 Kbps for a number of seconds.
    Streams {
        count: u32,
        time: Duration,
    },
    Postmark {
        transactions: u64,
    },
}

/// Result of a cell, in one kind of time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    pub seconds: f64,
    pub journal: Traffic,
    pub home: Traffic,
    /// Mean of synchronous writes.
    pub mean_ms: f64,
    pub operations_per_second: f64,
}

impl Measured {
    /// Returns MiB/s.
    pub fn journal_rate(&self) -> f64 {
        rate(self.journal, self.seconds)
    }
    pub fn home_rate(&self) -> f64 {
        rate(self.home, self.seconds)
    }
}

fn rate(traffic: Traffic, seconds: f64) -> f64 {
    traffic.bytes_written as f64 / f64::from(1 << 20) / seconds.max(1e-9)
}

impl Cell {
    /// Returns the mode, if it is a cell of Okeanos.
    pub fn mode(&self) -> Option<&'static str> {
        self.contender.strip_prefix("okeanos:")
    }

    pub fn in_real_time(&self, seed: u64) -> Result<Measured, FigureError> {
        let options = RealStageOptions {
            contender: self.contender.parse().map_err(FigureError::Other)?,
            model: MODEL.into(),
            home_size: HOME_SIZE,
            journal_size: JOURNAL_SIZE,
            directory: std::env::temp_dir(),
            programs: Programs::find().map_err(rig_error)?,
        };
        let stage = RealStage::build(&options).map_err(rig_error)?;
        let files = DirectoryFiles::new(stage.mount_point());
        stage.restart_counting().map_err(rig_error)?;
        let done = at_once(self.load.run(&files, seed))?;
        let (journal, home) =
            (stage.journal_traffic().map_err(rig_error)?, stage.home_traffic().map_err(rig_error)?);
        stage.take_down().map_err(rig_error)?;
        Ok(Measured { journal, home, ..done })
    }

    /// Returns `None` for the kernel's file systems.
    pub fn in_virtual_time(&self, seed: u64) -> Result<Option<Measured>, FigureError> {
        let Some(mode) = self.mode() else { return Ok(None) };
        let data = mode.parse().map_err(|_| FigureError::Other(format!("{mode} is no mode")))?;
        let mut options =
            StageOptions { journal_size: JOURNAL_SIZE, seed, ..StageOptions::of_paper(data) };
        options.home.options.size = Some(HOME_SIZE);
        // As in the real mount, not as in the paper's kernel.
        options.tick = Duration::ZERO;
        let stage = Stage::build(&options)?;
        let load = self.load;
        let done = stage.run(move |files| async move { load.run(&files, seed).await })?;
        let (journal, home) = (stage.journal_traffic(), stage.home_traffic());
        stage.close_and_check()?;
        Ok(Some(Measured { journal, home, ..done }))
    }
}

impl Load {
    async fn run<F: Files>(self, files: &F, seed: u64) -> io::Result<Measured> {
        match self {
            Load::Streams { count, time } => {
                let options = PeriodicOptions {
                    streams: count,
                    size: STREAM_SIZE,
                    period: Duration::from_secs(1),
                    time,
                    count: u64::MAX,
                    sync: SyncKind::OSync,
                };
                let report = periodic(files, options).await?;
                let seconds = report.took.as_secs_f64();
                Ok(Measured {
                    seconds,
                    mean_ms: report.mean.as_secs_f64() * 1e3,
                    operations_per_second: report.operations as f64 / seconds,
                    ..Measured::default()
                })
            }
            Load::Postmark { transactions } => {
                let options = PostmarkOptions { transactions, seed, ..PostmarkOptions::default() };
                let report = postmark(files, &options, |_| ()).await?;
                Ok(Measured {
                    seconds: report.seconds,
                    mean_ms: report.write_latency.mean_ns as f64 / 1e6,
                    operations_per_second: report.transactions_per_second,
                    ..Measured::default()
                })
            }
        }
    }
}

/// Plays all cells: first in virtual time, several at once; then in real time, one after the other,
/// because they would disturb each other.
pub(super) fn play(context: &Context, cells: Vec<Cell>) -> Result<Vec<Played>, FigureError> {
    let in_virtual_time = context.play(&cells, |cell| cell.in_virtual_time(context.seed))?;
    let in_real_time = context.one_by_one(&cells, |cell| {
        let name = cell.contender;
        cell.in_real_time(context.seed)
            .map_err(|error| FigureError::Other(format!("{name}: {error}")))
    })?;
    let both = in_real_time.into_iter().zip(in_virtual_time);
    Ok(cells
        .into_iter()
        .zip(both)
        .map(|(cell, (real, virtually))| Played { cell, real, virtually })
        .collect())
}

/// A cell and its results.
#[derive(Clone, Debug)]
pub(super) struct Played {
    pub cell: Cell,
    pub real: Measured,
    /// Result in virtual time, if it is a cell of Okeanos.
    pub virtually: Option<Measured>,
}

fn rig_error(error: RigError) -> FigureError {
    FigureError::Other(error.to_string())
}
