//! Threads that repeat a list of steps on files that they share.

use super::file_set::FileSet;
use super::{FilebenchOptions, FilebenchWork, Personality};
use crate::files::{Actor, Files};
use crate::random::ActorRandom;
use crate::semaphore::Semaphore;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use units::Instant;

/// One step of a loop. `Open` to `Sync` use the file that the thread has open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowStep {
    /// Make a file of the set that does not exist, and open it.
    Create,
    Open,
    Close,
    /// Writes the bytes that this file has by the distribution of sizes.
    WriteWhole,
    ReadWhole,
    /// Appends up to `append_size` bytes.
    Append,
    Sync,
    /// Deletes a file that no thread uses.
    Delete,
    /// stat(2) of some file.
    Stat,
    /// Appends to the one log that all threads share.
    AppendLog,
}

pub struct Flow {
    pub personality: Personality,
    /// One loop.
    pub steps: &'static [FlowStep],
}

/// Steps of one loop of each personality.
pub const FLOWS: &[Flow] = {
    use FlowStep::*;
    &[
        Flow {
            personality: Personality::Fileserver,
            steps: &[
                Create, WriteWhole, Close, Open, Append, Close, Open, ReadWhole, Close, Delete,
                Stat,
            ],
        },
        Flow {
            personality: Personality::Varmail,
            steps: &[
                Delete, Create, Append, Sync, Close, Open, ReadWhole, Append, Sync, Close, Open,
                ReadWhole, Close,
            ],
        },
        Flow {
            personality: Personality::Webserver,
            steps: &[
                Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open,
                ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole,
                Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close,
                AppendLog,
            ],
        },
        Flow { personality: Personality::Createfiles, steps: &[Create, WriteWhole, Close] },
    ]
};

const LOG: &str = "weblog";

/// State that the threads share.
struct FlowRun {
    options: FilebenchOptions,
    steps: &'static [FlowStep],
    set: FileSet,
    processor: Semaphore,
    /// Time at which the next operation may start, if there is a rate.
    next: Mutex<Instant>,
    operations: AtomicU64,
    /// Set when one thread has run out of files: the end for all.
    over: AtomicBool,
}

impl FlowRun {
    /// Waits until the rate permits the next operation. Returns false if the run has ended by then.
    async fn hold<F: Files>(&self, files: &F, begin: Instant) -> bool {
        let Some(rate) = self.options.per_second else { return true };
        let due_at = {
            let mut next = self.next.lock().expect("nobody panics while holding it");
            let due_at = (*next).max(files.now());
            *next = due_at.plus(Duration::from_secs(1) / rate);
            due_at
        };
        files.sleep_until(due_at).await;
        !self.options.limit.is_reached(files.now().since(begin), 0)
    }
    /// Takes the processor time of a loop.
    async fn compute<F: Files>(&self, files: &F) {
        let time = self.options.processor;
        if !time.is_zero() {
            self.processor.take(1).await;
            files.sleep_until(files.now().plus(time)).await;
            self.processor.give(1);
        }
    }
}

pub async fn run<F: Files>(
    files: &F,
    options: &FilebenchOptions,
    mut progress: impl FnMut(u64),
) -> io::Result<(FilebenchWork, Duration)> {
    let flow = FLOWS.iter().find(|flow| flow.personality == options.personality);
    let run = Arc::new(FlowRun {
        options: options.clone(),
        steps: flow.expect("every personality but oltp has a flow").steps,
        set: FileSet::new(options),
        processor: Semaphore::new(1),
        next: Mutex::new(Instant(0)),
        operations: AtomicU64::new(0),
        over: AtomicBool::new(false),
    });
    for directory in run.set.directories(options.files) {
        files.make_directory(&directory).await?;
    }
    if run.steps.contains(&FlowStep::AppendLog) {
        let log = files.create(LOG, options.sync).await?;
        files.close(log).await;
    }
    let threads =
        (0..options.threads).map(|number| FlowThread { number, run: run.clone() }).collect();
    let results =
        files.run_actors(threads, || progress(run.operations.load(Ordering::Relaxed))).await?;
    FilebenchWork::of_all(results)
}

struct FlowThread {
    number: u32,
    run: Arc<FlowRun>,
}

/// State of a thread.
struct Hands<F: Files> {
    random: ActorRandom,
    log: Option<F::File>,
    open: Option<(u64, F::File)>,
    buffer: Vec<u8>,
    /// Buffer into which a file is read, as long as a request.
    space: Vec<u8>,
    work: FilebenchWork,
}

impl<F: Files> Actor<F> for FlowThread {
    type Ready = Hands<F>;
    type Output = io::Result<(FilebenchWork, Duration)>;

    /// Makes its share of the files that exist before the run.
    async fn prepare(&self, files: &F) -> io::Result<Hands<F>> {
        let FlowRun { options, steps, .. } = &*self.run;
        let number = u64::from(self.number);
        let mut hands = Hands {
            random: ActorRandom::new(options.seed, number),
            log: None,
            open: None,
            buffer: (0..options.request.max(options.append_size))
                .map(|at| (at * 7 + number) as u8)
                .collect(),
            space: Vec::new(),
            work: FilebenchWork::default(),
        };
        if steps.contains(&FlowStep::AppendLog) {
            hands.log = Some(files.open(LOG, options.sync).await?);
        }
        let existing = options.files * options.existing / 100;
        let threads = u64::from(options.threads);
        for _ in 0..existing / threads + u64::from(number < existing % threads) {
            for step in [FlowStep::Create, FlowStep::WriteWhole, FlowStep::Close] {
                self.step(files, &mut hands, step).await?;
            }
        }
        hands.work = FilebenchWork::default();
        Ok(hands)
    }

    async fn act(
        self,
        files: &F,
        mut hands: Hands<F>,
        begin: Instant,
    ) -> io::Result<(FilebenchWork, Duration)> {
        let run = &*self.run;
        let mut loops = 0;
        while !run.over.load(Ordering::Relaxed)
            && !run.options.limit.is_reached(files.now().since(begin), loops)
        {
            run.compute(files).await;
            for step in run.steps {
                if !run.hold(files, begin).await || !self.step(files, &mut hands, *step).await? {
                    break;
                }
                run.operations.fetch_add(1, Ordering::Relaxed);
                hands.work.operations += 1;
            }
            loops += 1;
        }
        if let Some(log) = hands.log {
            files.close(log).await;
        }
        Ok((hands.work, files.now().since(begin)))
    }
}

impl FlowThread {
    /// Carries out a step. Returns false if every file exists, and the run has ended.
    async fn step<F: Files>(
        &self,
        files: &F,
        hands: &mut Hands<F>,
        step: FlowStep,
    ) -> io::Result<bool> {
        let FlowRun { options, set, over, .. } = &*self.run;
        let asked = files.now();
        match step {
            FlowStep::Create => {
                let Some(file) = set.take_missing(&hands.random) else {
                    over.store(true, Ordering::Relaxed);
                    return Ok(false);
                };
                hands.open = Some((file, files.create(&set.path(file), options.sync).await?));
            }
            // Where other threads use or have deleted every file, this step and those on its file
            // do nothing.
            FlowStep::Open => {
                if let Some(file) = set.take_existing(&hands.random) {
                    hands.open = Some((file, files.open(&set.path(file), options.sync).await?));
                }
            }
            FlowStep::Close => {
                if let Some((file, open)) = hands.open.take() {
                    files.close(open).await;
                    set.give_existing(file);
                }
            }
            FlowStep::WriteWhole => {
                if let Some((file, _)) = &hands.open {
                    let size =
                        ActorRandom::new(!options.seed, *file).size_around(options.file_size);
                    append(files, hands, size, options.request).await?;
                }
            }
            FlowStep::Append => {
                let size = options.append_bytes(&hands.random);
                append(files, hands, size, size).await?;
            }
            FlowStep::ReadWhole => {
                if let Some((_, open)) = &hands.open {
                    let mut at = 0;
                    hands.space.resize(options.request as usize, 0);
                    loop {
                        let read = files.read_at(open, at, &mut hands.space).await?;
                        at += read as u64;
                        if read < hands.space.len() {
                            break;
                        }
                    }
                    hands.work.bytes_read += at;
                }
            }
            FlowStep::Sync => {
                if let Some((_, open)) = &hands.open {
                    files.sync(open).await?;
                }
            }
            FlowStep::Delete => {
                if let Some(file) = set.take_existing(&hands.random) {
                    files.unlink(&set.path(file)).await?;
                    set.give_missing(file);
                }
            }
            FlowStep::Stat => {
                if let Some(file) = set.take_existing(&hands.random) {
                    files.length(&set.path(file)).await?;
                    set.give_existing(file);
                }
            }
            FlowStep::AppendLog => {
                let size = options.append_bytes(&hands.random);
                if let Some(log) = &mut hands.log {
                    files.append(log, &hands.buffer[..size as usize]).await?;
                    hands.work.bytes_written += size;
                }
            }
        }
        if matches!(
            step,
            FlowStep::WriteWhole
                | FlowStep::ReadWhole
                | FlowStep::Append
                | FlowStep::AppendLog
                | FlowStep::Sync
        ) {
            hands.work.latencies.add(files.now().since(asked));
        }
        if step == FlowStep::Sync {
            hands.work.syncs.add(files.now().since(asked));
        }
        if matches!(step, FlowStep::WriteWhole | FlowStep::Append | FlowStep::AppendLog) {
            hands.work.writes.add(files.now().since(asked));
        }
        Ok(true)
    }
}

/// Appends to the open file, if there is one.
async fn append<F: Files>(
    files: &F,
    hands: &mut Hands<F>,
    bytes: u64,
    request: u64,
) -> io::Result<()> {
    let Some((_, open)) = &mut hands.open else { return Ok(()) };
    let mut left = bytes;
    while left > 0 {
        let piece = left.min(request);
        files.append(open, &hands.buffer[..piece as usize]).await?;
        left -= piece;
    }
    hands.work.bytes_written += bytes;
    Ok(())
}
