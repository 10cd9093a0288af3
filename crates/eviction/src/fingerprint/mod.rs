//! Fingerprints: the writes that evict a target from a drive's cache, and at what cost (Rajimwale
//! et al., DSN 2011, section III).
//!
//! A trial writes a target sector at a random place, then the workload, then asks for a flush
//! (which the drive may ignore). It waits, and reads the target: a slow read came from the medium,
//! so the target had been evicted. The two modes of all read times separate slow from fast. The
//! workload's writes are placed as those of evictions will be, in a
//! [`FlushZone`](crate::FlushZone).
//!
//! Trials are spent where they give most information: few in every cell of the grid, more where
//! neighbours disagree. The cheapest cell that has always evicted gets all of them, and so does the
//! one with more data.
//!
//! That is the paper's method. It gives the drive one small write to do and a second of rest. That
//! proves nothing about a drive that is busy when the power fails. So the recommended workload has
//! also evicted in as many trials "at once".

mod choice;
mod grid;
mod picture;
mod prober;
mod threshold;
mod trial;

pub use grid::Grid;
pub use prober::{FingerprintError, ProbePhase, ProbeProgress, fingerprint};
pub use threshold::{Threshold, threshold};

use crate::{EvictionWorkload, FlushZone, Profile};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::time::Duration;

/// Parameters of a fingerprint.
#[derive(Clone, Debug)]
pub struct FingerprintOptions {
    pub grid: Grid,
    /// Trials of the cell that is to be chosen, all of which must evict.
    pub trials: u32,
    /// Trials that every cell gets.
    pub trials_min: u32,
    /// Trials of cells whose neighbours differ from them.
    pub trials_at_borders: u32,
    /// Time between the workload and the read of the target.
    pub pause: Duration,
    /// Whether the chosen workload must also evict at once, on a busy drive; if not, it is the
    /// paper's choice.
    pub at_once: bool,
    /// Bytes of the disk that may be written, targets and workloads anywhere among them.
    pub range: Range<u64>,
}

impl FingerprintOptions {
    /// The paper's trials, distributed where they give most information, and as many at once.
    pub fn adaptive(grid: Grid, range: Range<u64>) -> FingerprintOptions {
        FingerprintOptions {
            grid,
            trials: 50,
            trials_min: 2,
            trials_at_borders: 8,
            pause: Duration::from_secs(1),
            at_once: true,
            range,
        }
    }

    /// Checks that the range is large enough for the addresses of the largest workload to vary.
    pub fn check_range(&self, sector: u32) -> Result<(), FingerprintError> {
        let workloads = self.grid.workloads();
        let sizes = workloads.iter().map(|workload| FlushZone::size(workload, sector));
        let needed = sizes.max().unwrap_or_default() * 4;
        let available = self.range.end.saturating_sub(self.range.start);
        if available < needed {
            Err(FingerprintError::RangeTooSmall { available, needed })
        } else {
            Ok(())
        }
    }
}

/// The measurements so far; a run that was stopped continues from them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Microseconds of reads that the cache had to answer, and of reads that it could not.
    pub cached_us: Vec<f64>,
    pub uncached_us: Vec<f64>,
    /// The cells in the order of the grid's workloads.
    pub cells: Vec<Cell>,
    /// The choice of the paper's method.
    #[serde(default)]
    pub of_paper: Option<EvictionWorkload>,
    /// The recommended workload.
    pub chosen: Option<EvictionWorkload>,
}

/// One workload of the grid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub workload: EvictionWorkload,
    /// Microseconds of the read of the target, trial by trial.
    pub read_us: Vec<f64>,
    /// Microseconds of the fastest read of a target, for each trial at once.
    #[serde(default)]
    pub at_once_us: Vec<f64>,
    /// Milliseconds that the workload's writes took, of all trials of the paper's kind together.
    pub milliseconds: f64,
}

impl Cell {
    pub fn trials(&self) -> u32 {
        self.read_us.len() as u32
    }
    pub fn evicted(&self, threshold: Threshold) -> u32 {
        self.read_us.iter().filter(|time| threshold.is_slow(**time)).count() as u32
    }
    pub fn trials_at_once(&self) -> u32 {
        self.at_once_us.len() as u32
    }
    pub fn evicted_at_once(&self, threshold: Threshold) -> u32 {
        self.at_once_us.iter().filter(|time| threshold.is_slow(**time)).count() as u32
    }
    pub fn probability(&self, threshold: Threshold) -> f64 {
        f64::from(self.evicted(threshold)) / f64::from(self.trials().max(1))
    }
    /// Mean milliseconds of one eviction.
    pub fn mean_milliseconds(&self) -> f64 {
        self.milliseconds / f64::from(self.trials().max(1))
    }
}

impl Fingerprint {
    /// The border between cached and uncached reads; `None` before anything was measured, or if
    /// both take the same time.
    pub fn threshold(&self) -> Option<Threshold> {
        let cells = self.cells.iter().flat_map(|cell| cell.read_us.iter());
        let times: Vec<f64> =
            self.cached_us.iter().chain(&self.uncached_us).chain(cells).copied().collect();
        let threshold = threshold(&times)?;
        // The two modes must be cache and medium, not two kinds of seeks.
        let right = |times: &[f64], slow: bool| {
            times.iter().filter(|time| threshold.is_slow(**time) == slow).count() * 10
                >= times.len() * 8
        };
        (right(&self.cached_us, false) && right(&self.uncached_us, true)).then_some(threshold)
    }

    pub fn cell(&self, workload: &EvictionWorkload) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.workload == *workload)
    }

    /// The profile of the chosen workload.
    pub fn profile(&self, model: &str, size: u64) -> Option<Profile> {
        self.profile_of(&self.chosen?, model, size)
    }
    /// The profile of any workload.
    pub fn profile_of(
        &self,
        workload: &EvictionWorkload,
        model: &str,
        size: u64,
    ) -> Option<Profile> {
        let cell = self.cell(workload)?;
        Some(Profile {
            model: model.to_owned(),
            size,
            workload: cell.workload,
            trials: cell.trials(),
            milliseconds: cell.mean_milliseconds(),
        })
    }
}
