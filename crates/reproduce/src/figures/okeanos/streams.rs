//! Streams, as figures 1, 7a-c, 8a, 8b, 9 and the RAID-0 paragraph play them. Their threads begin
//! together and append to a file of their own once a second. This is one run of them.

use crate::figures::common::rig;
use crate::{Context, FigureError};
use engine::DataMode;
use std::time::Duration;
use testbeds::{Stage, StageOptions, Traffic, VolumeLayout};
use workloads::{PeriodicOptions, SyncKind, periodic};

/// Bytes of an append of 1 Kbps at one append a second.
pub(super) const SLOW: usize = 125;
/// Bytes of an append of 1 Mbps.
pub(super) const FAST: usize = 125_000;

/// Location of the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rig {
    /// One drive for the volume, one for the journal.
    TwoDrives,
    /// A RAID-0 of both drives, the journal a hidden file.
    Raid0,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cell {
    pub data: DataMode,
    pub layout: VolumeLayout,
    pub rig: Rig,
    pub streams: u32,
    /// Bytes of an append.
    pub size: usize,
    pub sync: SyncKind,
    pub seconds: u64,
    /// Writers wait as in ext3: [`StageOptions::writers_wait`].
    pub writers_wait: bool,
    /// Whether selective's threshold is judged for each block.
    pub per_block: bool,
}

impl Cell {
    /// Makes a cell of synchronous appends on the paper's volume.
    pub fn new(data: DataMode, streams: u32, size: usize, seconds: u64) -> Cell {
        let (layout, rig, sync) = (VolumeLayout::Ext3Paper, Rig::TwoDrives, SyncKind::OSync);
        let (writers_wait, per_block) = (false, false);
        Cell { data, layout, rig, streams, size, sync, seconds, writers_wait, per_block }
    }
    fn options(&self, context: &Context) -> StageOptions {
        let (layout, writers_wait) = (self.layout, self.writers_wait);
        let mut options = StageOptions { layout, writers_wait, ..rig(context, self.data) };
        options.engine.threshold_per_block = self.per_block;
        if self.rig == Rig::Raid0 {
            options.home.drives = 2;
            options.journal = None;
        }
        options
    }
}

#[derive(Clone, Debug)]
pub(super) struct Played {
    pub cell: Cell,
    pub seconds: f64,
    pub journal: Traffic,
    pub home: Traffic,
    pub mean_ms: f64,
    /// Means over all streams' n-th appends.
    pub means_ms: Vec<f64>,
}

const MIB: f64 = (1 << 20) as f64;

impl Played {
    pub fn journal_mib(&self) -> f64 {
        self.journal.bytes_written as f64 / MIB
    }
    /// Returns MiB/s.
    pub fn journal_rate(&self) -> f64 {
        self.journal_mib() / self.seconds
    }
    pub fn home_rate(&self) -> f64 {
        self.home.bytes_written as f64 / MIB / self.seconds
    }
}

/// Runs of a figure.
pub(super) struct Runs(pub Vec<Played>);

pub(super) fn play(context: &Context, cells: Vec<Cell>) -> Result<Runs, FigureError> {
    static ALL: crate::figures::common::result_cache::ResultCache<Cell, Played> =
        crate::figures::common::result_cache::ResultCache::new();
    Ok(Runs(ALL.all(context, &cells, |context, cell| play_one(cell, context))?))
}

pub(super) fn play_one(cell: &Cell, context: &Context) -> Result<Played, FigureError> {
    let stage = Stage::build(&cell.options(context))?;
    let options = PeriodicOptions {
        streams: cell.streams,
        size: cell.size,
        period: Duration::from_secs(1),
        time: Duration::from_secs(cell.seconds),
        count: u64::MAX,
        sync: cell.sync,
    };
    let report = stage.run(move |files| async move { periodic(&files, options).await })?;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(Played {
        cell: *cell,
        // An append that began in the last second may have returned after it, and idle time belongs
        // to a period.
        seconds: report.took.as_secs_f64().max(cell.seconds as f64),
        journal: stage.journal_traffic(),
        home: stage.home_traffic(),
        mean_ms: ms(report.mean),
        means_ms: report.means.into_iter().map(ms).collect(),
    })
}

impl Runs {
    /// Returns `x` and `y` of the wanted runs.
    pub fn points(
        &self,
        wanted: impl Fn(&Cell) -> bool,
        x: impl Fn(&Played) -> f64,
        y: impl Fn(&Played) -> f64,
    ) -> Vec<(f64, f64)> {
        self.0
            .iter()
            .filter(|played| wanted(&played.cell))
            .map(|played| (x(played), y(played)))
            .collect()
    }
    /// Returns the run of a mode with the most streams.
    pub fn most(&self, data: DataMode) -> &Played {
        let mine = self.0.iter().filter(|played| played.cell.data == data);
        mine.max_by_key(|played| played.cell.streams).expect("every mode is played")
    }
}
