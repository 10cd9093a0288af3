//! The context of a running figure: a seed, processors, progress.

use crate::error::FigureError;
use crate::jobs::Jobs;
use crate::overrides::Overrides;
use emulated::ModelChange;
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// One run of one figure.
pub struct Context {
    pub seed: u64,
    /// Index of the seed among a figure's seeds, from 0: side pictures are played with the first
    /// alone.
    pub run_index: u64,
    /// Whether runs are shorter and points fewer, for tests: the shapes need not come out.
    pub quick: bool,
    /// Limit of cells played at once, of all runs together.
    pub jobs: Arc<Jobs>,
    /// Progress callback, called with the cells done and all cells.
    pub progress: Arc<dyn Fn(usize, usize) + Send + Sync>,
    /// Set from outside (Ctrl-C): no further cell begins.
    pub interrupted: &'static AtomicBool,
    /// Directory for the requests of all disks, if they are to be kept.
    pub trace: Option<PathBuf>,
    /// Directory of the block traces that figures play; without it they make their own.
    pub block_traces: Option<PathBuf>,
    /// A change of the rig from the figure's description, to see what depends on it. Long series
    /// are then cut to their ends.
    pub varied: Option<Varied>,
    /// Overridden values of chosen parameters; none in a figure as it is described.
    pub overrides: Arc<Overrides>,
}

/// A chosen parameter, and its other value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Varied {
    /// Nothing is changed.
    Nothing,
    /// A number of the drives' model.
    Drive(ModelChange),
    /// The ticks of the host's clock.
    Tick(f64),
    /// The size up to which selective journaling takes requests for small.
    Threshold(engine::WriteThreshold),
}

impl Varied {
    pub(crate) fn apply(self, options: &mut testbeds::StageOptions) {
        match self {
            Varied::Nothing => {}
            Varied::Tick(factor) => options.tick = options.tick.mul_f64(factor),
            Varied::Threshold(threshold) => options.engine.threshold = threshold,
            Varied::Drive(change) => {
                options.home.changes.push(change);
                options.journal.iter_mut().for_each(|journal| journal.changes.push(change));
            }
        }
    }
}

thread_local! {
    /// Number of the cell that this thread plays.
    static CELL: Cell<usize> = const { Cell::new(0) };
}

impl Context {
    /// Plays something with this seed and the next ones, several at once. Progress is that of all
    /// together.
    pub(crate) fn each_seed<R: Send>(
        &self,
        seeds: u64,
        play: impl Fn(&Context) -> Result<R, FigureError> + Sync,
    ) -> Result<Vec<R>, FigureError> {
        // For each seed: cells done, and all cells. A run that has not begun will have as many as
        // the others.
        let done: Mutex<Vec<(usize, usize)>> = Mutex::new(vec![(0, 0); seeds as usize]);
        let (done, progress) = (Arc::new(done), &self.progress);
        let play_run = |index: usize| {
            let (done, progress) = (done.clone(), progress.clone());
            let of_all = move |of_run: usize, cells: usize| {
                let mut done = done.lock().expect("nobody panics while holding it");
                done[index] = (of_run, cells);
                let all = |of: &(usize, usize)| if of.1 == 0 { cells } else { of.1 };
                progress(done.iter().map(|of| of.0).sum(), done.iter().map(all).sum());
            };
            let Context { quick, interrupted, varied, .. } = *self;
            let (seed, jobs) = (self.seed + index as u64, self.jobs.clone());
            // Requests of one seed are enough, and those of another would overwrite them.
            let trace = self.trace.clone().filter(|_| index == 0);
            let (run_index, progress, block_traces) =
                (index as u64, Arc::new(of_all), self.block_traces.clone());
            let overrides = self.overrides.clone();
            play(&Context {
                seed,
                run_index,
                quick,
                jobs,
                progress,
                interrupted,
                trace,
                block_traces,
                varied,
                overrides,
            })
        };
        self.jobs.side_by_side(seeds as usize, play_run).into_iter().collect()
    }

    /// Returns the sorted names of the block traces with their checksums; none without a directory,
    /// or if it cannot be read.
    pub(crate) fn known_block_traces(&self) -> Vec<String> {
        let entries =
            self.block_traces.iter().filter_map(|directory| std::fs::read_dir(directory).ok());
        let known = |entry: std::fs::DirEntry| {
            let content = std::fs::read(entry.path()).ok()?;
            let name = entry.file_name().to_string_lossy().into_owned();
            Some(format!("{name} ({})", crate::identity::checksum(&content)))
        };
        let mut all: Vec<_> = entries.flatten().flatten().filter_map(known).collect();
        all.sort();
        all
    }

    /// Returns this context with something varied, one seed, no traces and no progress.
    pub(crate) fn with_varied(&self, varied: Varied) -> Context {
        let Context { seed, run_index, quick, interrupted, .. } = *self;
        let (jobs, progress) = (self.jobs.clone(), Arc::new(|_, _| ()));
        let (varied, block_traces) = (Some(varied), self.block_traces.clone());
        let overrides = self.overrides.clone();
        Context {
            seed,
            run_index,
            quick,
            jobs,
            progress,
            interrupted,
            trace: None,
            block_traces,
            varied,
            overrides,
        }
    }

    /// Returns the prefix of the traces of the cell's disks, if traces are requested.
    pub fn trace_prefix(&self, name: &str) -> Option<PathBuf> {
        Some(self.trace.as_ref()?.join(format!("{:02}-{name}", CELL.get())))
    }

    /// Plays cells as [`Context::play`] does, but one after the other: for real time, where they
    /// would disturb each other.
    pub fn one_by_one<C, R>(
        &self,
        cells: &[C],
        play: impl Fn(&C) -> Result<R, FigureError>,
    ) -> Result<Vec<R>, FigureError> {
        let one = |(index, cell): (usize, &C)| {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(FigureError::Interrupted);
            }
            let result = play(cell);
            (self.progress)(index + 1, cells.len());
            result
        };
        cells.iter().enumerate().map(one).collect()
    }

    /// Plays all cells, several at once, and returns their values in the order of the cells. A cell
    /// is one stage: a thread of its own, nothing shared, so concurrent cells do not affect it.
    pub fn play<C: Sync, R: Send>(
        &self,
        cells: &[C],
        play: impl Fn(&C) -> Result<R, FigureError> + Sync,
    ) -> Result<Vec<R>, FigureError> {
        let done = Mutex::new(0);
        let one = |index: usize| {
            let job = self.jobs.begin();
            CELL.set(index);
            let result = match self.interrupted.load(Ordering::Relaxed) {
                true => Err(FigureError::Interrupted),
                false => play(&cells[index]),
            };
            drop(job);
            let mut done = done.lock().expect("no cell panics while it holds this");
            *done += 1;
            (self.progress)(*done, cells.len());
            result
        };
        self.jobs.side_by_side(cells.len(), one).into_iter().collect()
    }
}
