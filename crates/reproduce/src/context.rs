//! What a running figure may use: a seed, processors, progress.

use crate::FigureError;
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// One run of one figure.
pub struct Context {
    pub seed: u64,
    /// Which of a figure's seeds this is, from 0: side pictures are played with the first alone.
    pub turn: u64,
    /// Shorter runs and fewer points, for tests: the shapes need not come out.
    pub quick: bool,
    /// Cells played at once.
    pub jobs: usize,
    /// Told how many cells of how many are done.
    pub progress: Arc<dyn Fn(usize, usize) + Send + Sync>,
    /// Set from outside (Ctrl-C): no further cell begins.
    pub interrupted: &'static AtomicBool,
    /// Directory for the requests of all disks, if they are to be kept.
    pub trace: Option<PathBuf>,
    /// Where block traces are that figures play which need some; without it they make their own.
    pub block_traces: Option<PathBuf>,
    /// Something of the rig is other than the figure says, to see what depends on it. Long series are then cut to their ends.
    pub varied: Option<Varied>,
}

/// A parameter that was chosen, and what it is instead.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Varied {
    /// As it is.
    Nothing,
    /// A number of the drives' model.
    Drive(stages::Scaled),
    /// The ticks of the host's clock.
    Tick(f64),
}

impl Varied {
    pub(crate) fn apply(self, options: &mut stages::StageOptions) {
        match self {
            Varied::Nothing => {}
            Varied::Tick(factor) => options.tick = options.tick.mul_f64(factor),
            Varied::Drive(scaled) => {
                options.home.scaled = Some(scaled);
                options.journal.iter_mut().for_each(|journal| journal.scaled = Some(scaled));
            }
        }
    }
}

thread_local! {
    /// The number of the cell that this thread plays.
    static CELL: Cell<usize> = const { Cell::new(0) };
}

impl Context {
    /// The same with another seed: turn `turn` of `turns`, whose progress is that of all turns.
    pub(crate) fn with_seed(&self, seed: u64, (turn, turns): (u64, u64)) -> Context {
        let progress = self.progress.clone();
        let of_all =
            move |done: usize, cells: usize| progress(turn as usize * cells + done, turns as usize * cells);
        let Context { quick, jobs, interrupted, varied, .. } = *self;
        // Requests of one seed are enough, and those of another would overwrite them.
        let trace = self.trace.clone().filter(|_| turn == 0);
        let (progress, block_traces) = (Arc::new(of_all), self.block_traces.clone());
        Context { seed, turn, quick, jobs, progress, interrupted, trace, block_traces, varied }
    }

    /// Sorted. Without a directory, and where it cannot be read: none.
    pub(crate) fn names_of_block_traces(&self) -> Vec<String> {
        let entries = self.block_traces.iter().filter_map(|directory| std::fs::read_dir(directory).ok());
        let names = entries.flatten().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    /// The same with something varied, one seed, no traces and no progress.
    pub(crate) fn with_varied(&self, varied: Varied) -> Context {
        let Context { seed, turn, quick, jobs, interrupted, .. } = *self;
        let progress = Arc::new(|_, _| ());
        let (varied, block_traces) = (Some(varied), self.block_traces.clone());
        Context { seed, turn, quick, jobs, progress, interrupted, trace: None, block_traces, varied }
    }

    /// Where the traces of the cell's disks begin with, if there shall be any.
    pub fn trace_prefix(&self, name: &str) -> Option<PathBuf> {
        Some(self.trace.as_ref()?.join(format!("{:02}-{name}", CELL.get())))
    }

    /// As [`Context::play`], one cell after the other: for real time, where they would disturb each other.
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

    /// Plays all cells, several at once, and returns their values in the order of the cells. A cell is one stage: a thread
    /// of its own, nothing shared, so what runs beside it changes nothing.
    pub fn play<C: Sync, R: Send>(
        &self,
        cells: &[C],
        play: impl Fn(&C) -> Result<R, FigureError> + Sync,
    ) -> Result<Vec<R>, FigureError> {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.clamp(1, cells.len().max(1)) {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(cell) = cells.get(index) else { return };
                        CELL.set(index);
                        let result = if self.interrupted.load(Ordering::Relaxed) {
                            Err(FigureError::Interrupted)
                        } else {
                            play(cell)
                        };
                        let mut done = done.lock().expect("no cell panics while it holds this");
                        done.push((index, result));
                        (self.progress)(done.len(), cells.len());
                    }
                });
            }
        });
        let mut done = done.into_inner().expect("all threads ended well");
        done.sort_by_key(|(index, _)| *index);
        done.into_iter().map(|(_, result)| result).collect()
    }
}
