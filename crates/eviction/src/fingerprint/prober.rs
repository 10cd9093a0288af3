//! The phases of a fingerprint.

use super::choice::{Wanted, best};
use super::{Cell, Fingerprint, FingerprintOptions, Threshold};
use crate::{EvictionWorkload, ZoneError};
use device::{Buffer, DeviceError, Disk, World};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

/// Reads of either kind that calibrate the times of the cache and of the medium.
const CALIBRATION: usize = 25;
/// A calibration write is read back after this; drives are slow to answer a read behind a write.
const SETTLE: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub enum FingerprintError {
    #[error("{0}")]
    Device(#[from] DeviceError),
    #[error("{0}")]
    Zone(#[from] ZoneError),
    /// The addresses of the largest workload must vary.
    #[error("{available} bytes are too few for a fingerprint: it needs {needed}")]
    RangeTooSmall { available: u64, needed: u64 },
    #[error(
        "reads that the cache answers and reads from the medium take alike ({cached_us:.0} and {uncached_us:.0} \
         microseconds): the content of the cache cannot be found out by time"
    )]
    NoDifference { cached_us: f64, uncached_us: f64 },
    #[error("the measurements kept from before are of another grid: begin anew")]
    OtherGrid,
    #[error("stopped; the measurements so far are kept")]
    Stopped,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbePhase {
    Calibration,
    /// Every cell of the grid, a few trials.
    Grid,
    /// Cells whose neighbours differ.
    Borders,
    /// The cheapest that has always evicted.
    Choice,
    /// The cheapest that has always evicted at once, too.
    AtOnce,
}

#[derive(Clone, Copy, Debug)]
pub struct ProbeProgress {
    pub phase: ProbePhase,
    /// Trials done in this phase.
    pub done: u64,
    pub of: u64,
    /// Estimated time left in this phase, from the trials so far.
    pub remaining: Duration,
}

/// Measures until `state` is complete; its measurements are kept. `watch` is called after every
/// trial and may stop the run.
pub async fn fingerprint(
    world: &Rc<dyn World>,
    disk: &Rc<dyn Disk>,
    options: &FingerprintOptions,
    state: &mut Fingerprint,
    watch: &mut dyn FnMut(&Fingerprint, ProbeProgress) -> ControlFlow<()>,
) -> Result<(), FingerprintError> {
    let sector = disk.geometry().logical_sector;
    let workloads = options.grid.workloads();
    options.check_range(sector)?;
    if state.cells.is_empty() {
        let fresh = |workload| Cell {
            workload,
            read_us: Vec::new(),
            at_once_us: Vec::new(),
            milliseconds: 0.0,
        };
        state.cells = workloads.iter().copied().map(fresh).collect();
    } else if !state.cells.iter().map(|cell| cell.workload).eq(workloads) {
        return Err(FingerprintError::OtherGrid);
    }
    let mut prober =
        Prober { world, disk, options, used: BTreeSet::new(), sector: u64::from(sector) };
    prober.calibrate(state, watch).await?;
    prober.every_cell(state, watch).await?;
    prober.borders(state, watch).await?;
    prober.choose(state, watch).await
}

type Watch<'a> = dyn FnMut(&Fingerprint, ProbeProgress) -> ControlFlow<()> + 'a;

pub(super) struct Prober<'a> {
    pub(super) world: &'a Rc<dyn World>,
    pub(super) disk: &'a Rc<dyn Disk>,
    pub(super) options: &'a FingerprintOptions,
    /// Former targets, which may still be in the cache.
    pub(super) used: BTreeSet<u64>,
    pub(super) sector: u64,
}

/// Calls `watch` for each trial of a phase.
struct Reporter {
    phase: ProbePhase,
    of: u64,
    done: u64,
    begun: units::Instant,
}

impl Reporter {
    fn trial(
        &mut self,
        world: &dyn World,
        state: &Fingerprint,
        watch: &mut Watch<'_>,
    ) -> Result<(), FingerprintError> {
        self.done += 1;
        let left = self.of.saturating_sub(self.done);
        let remaining =
            world.now().since(self.begun).div_f64(self.done as f64).mul_f64(left as f64);
        let progress = ProbeProgress { phase: self.phase, done: self.done, of: self.of, remaining };
        match watch(state, progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(FingerprintError::Stopped),
        }
    }
}

impl Prober<'_> {
    fn reporter(&self, phase: ProbePhase, of: u64) -> Reporter {
        Reporter { phase, of, done: 0, begun: self.world.now() }
    }

    /// Measures reads that the cache must answer, and reads that it cannot.
    async fn calibrate(
        &mut self,
        state: &mut Fingerprint,
        watch: &mut Watch<'_>,
    ) -> Result<(), FingerprintError> {
        let mut reporter = self.reporter(ProbePhase::Calibration, 2 * CALIBRATION as u64);
        let content = Rc::new(Buffer::zeroed(self.sector as usize));
        while state.cached_us.len() < CALIBRATION {
            let target = self.fresh_target(&(0..0), self.sector);
            self.write(target, &content).await?;
            self.world.sleep_until(self.world.now().plus(SETTLE)).await;
            state.cached_us.push(self.timed_read(target, self.sector).await?);
            reporter.trial(&**self.world, state, watch)?;
        }
        while state.uncached_us.len() < CALIBRATION {
            let target = self.fresh_target(&(0..0), self.sector);
            self.world.sleep_until(self.world.now().plus(SETTLE)).await;
            state.uncached_us.push(self.timed_read(target, self.sector).await?);
            reporter.trial(&**self.world, state, watch)?;
        }
        self.threshold(state).map(drop)
    }

    fn threshold(&self, state: &Fingerprint) -> Result<Threshold, FingerprintError> {
        let median = |times: &[f64]| {
            let mut sorted = times.to_vec();
            sorted.sort_by(f64::total_cmp);
            sorted.get(sorted.len() / 2).copied().unwrap_or_default()
        };
        state.threshold().ok_or_else(|| FingerprintError::NoDifference {
            cached_us: median(&state.cached_us),
            uncached_us: median(&state.uncached_us),
        })
    }

    async fn every_cell(
        &mut self,
        state: &mut Fingerprint,
        watch: &mut Watch<'_>,
    ) -> Result<(), FingerprintError> {
        let least = self.options.trials_min;
        let missing =
            state.cells.iter().map(|cell| u64::from(least.saturating_sub(cell.trials()))).sum();
        let mut reporter = self.reporter(ProbePhase::Grid, missing);
        for index in 0..state.cells.len() {
            while state.cells[index].trials() < least {
                self.trial(&mut state.cells[index]).await?;
                reporter.trial(&**self.world, state, watch)?;
            }
        }
        Ok(())
    }

    /// Repeats trials of cells with mixed results, or whose neighbours differ.
    async fn borders(
        &mut self,
        state: &mut Fingerprint,
        watch: &mut Watch<'_>,
    ) -> Result<(), FingerprintError> {
        let threshold = self.threshold(state)?;
        let grid = &self.options.grid;
        let kind = |cell: &Cell| match cell.evicted(threshold) {
            0 => 0,
            evicted if evicted == cell.trials() => 2,
            _ => 1,
        };
        let is_border = |index: &usize| {
            let mine = kind(&state.cells[*index]);
            mine == 1
                || grid.neighbours(*index).iter().any(|beside| kind(&state.cells[*beside]) != mine)
        };
        let borders: Vec<usize> = (0..state.cells.len()).filter(is_border).collect();
        let wanted = self.options.trials_at_borders;
        let missing =
            |index: &usize| u64::from(wanted.saturating_sub(state.cells[*index].trials()));
        let mut reporter = self.reporter(ProbePhase::Borders, borders.iter().map(missing).sum());
        for index in borders {
            while state.cells[index].trials() < wanted {
                self.trial(&mut state.cells[index]).await?;
                reporter.trial(&**self.world, state, watch)?;
            }
        }
        Ok(())
    }

    /// Chooses the paper's workload, and then one that also evicts at once.
    async fn choose(
        &mut self,
        state: &mut Fingerprint,
        watch: &mut Watch<'_>,
    ) -> Result<(), FingerprintError> {
        let trials = self.options.trials;
        state.of_paper = self.prove_best(state, Wanted { trials, at_once: 0 }, watch).await?;
        state.chosen = match self.options.at_once {
            true => self.prove_best(state, Wanted { trials, at_once: trials }, watch).await?,
            false => state.of_paper,
        };
        Ok(())
    }

    /// Gives all trials to the cheapest of the cells that have always evicted, and to the one with
    /// more data; if one fails, to the next. Then to the simplest of equal cost.
    async fn prove_best(
        &mut self,
        state: &mut Fingerprint,
        wanted: Wanted,
        watch: &mut Watch<'_>,
    ) -> Result<Option<EvictionWorkload>, FingerprintError> {
        let columns = self.options.grid.bytes.len();
        let phase = if wanted.at_once == 0 { ProbePhase::Choice } else { ProbePhase::AtOnce };
        loop {
            let threshold = self.threshold(state)?;
            let Some(index) = best(&state.cells, columns, threshold, wanted) else {
                return Ok(None);
            };
            let missing = wanted.missing(&state.cells[index]);
            if missing == 0 {
                return Ok(Some(state.cells[index].workload));
            }
            let mut reporter = self.reporter(phase, missing);
            while wanted.missing(&state.cells[index]) > 0 {
                // Most cells that fail do so in the first trials.
                let cell = &mut state.cells[index];
                match cell.trials_at_once() < wanted.at_once {
                    true => self.trial_at_once(cell).await?,
                    false => self.trial(cell).await?,
                }
                reporter.trial(&**self.world, state, watch)?;
                if !wanted.has_always_evicted(&state.cells[index], threshold) {
                    break;
                }
            }
        }
    }
}
