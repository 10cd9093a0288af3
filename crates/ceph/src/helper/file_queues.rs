//! Threads that run calls: those on one file one after the other, except for read-only ones;
//! different files concurrently. A thread is started when work finds none idle.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use store::FileId;

pub type Job = Box<dyn FnOnce() + Send>;

/// Ordering of a job.
#[derive(Clone, Copy, Debug)]
pub struct CallOrder {
    /// The file whose order it keeps.
    pub file: Option<FileId>,
    /// Whether it may run beside other such jobs of the file.
    pub shares: bool,
    /// Whether another client waits for it.
    pub is_awaited: bool,
}

#[derive(Default)]
struct FileQueue {
    waiting: VecDeque<(bool, Job)>,
    running: usize,
    /// Whether the running job excludes all others.
    is_exclusive: bool,
}

#[derive(Default)]
struct State {
    queues: BTreeMap<FileId, FileQueue>,
    /// Jobs that can run now, and their queues.
    ready: VecDeque<(Option<FileId>, Job)>,
    idle: usize,
    threads: usize,
}

pub struct FileQueues {
    state: Mutex<State>,
    changed: Condvar,
    threads_max: usize,
}

impl FileQueues {
    pub fn new(threads_max: usize) -> Arc<FileQueues> {
        Arc::new(FileQueues { state: Mutex::default(), changed: Condvar::new(), threads_max })
    }

    pub fn add(self: &Arc<Self>, order: CallOrder, job: Job) {
        let mut state = self.lock();
        match order.file {
            None => state.ready.push_back((None, job)),
            Some(file) => {
                state.queues.entry(file).or_default().waiting.push_back((order.shares, job));
                state.advance(file);
            }
        }
        self.staff(&mut state);
    }

    /// Begins a call of the calling thread, if the file has none now: no other runs beside it. It
    /// ends with [`FileQueues::leave`].
    pub fn enter(&self, file: FileId) -> bool {
        let mut state = self.lock();
        let is_idle = !state.queues.contains_key(&file);
        if is_idle {
            state
                .queues
                .insert(file, FileQueue { running: 1, is_exclusive: true, ..FileQueue::default() });
        }
        is_idle
    }
    pub fn leave(self: &Arc<Self>, file: FileId) {
        let mut state = self.lock();
        state.end(file);
        self.staff(&mut state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a thread for each job that is ready, up to the bound.
    fn staff(self: &Arc<Self>, state: &mut State) {
        for _ in 0..state.ready.len().min(state.idle) {
            self.changed.notify_one();
        }
        let missing = state.ready.len().saturating_sub(state.idle);
        for _ in 0..missing.min(self.threads_max - state.threads) {
            state.threads += 1;
            let queues = self.clone();
            std::thread::spawn(move || queues.work());
        }
    }

    fn work(self: Arc<Self>) {
        let mut state = self.lock();
        loop {
            let Some((file, job)) = state.ready.pop_front() else {
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                continue;
            };
            drop(state);
            job();
            state = self.lock();
            if let Some(file) = file {
                state.end(file);
                self.staff(&mut state);
            }
        }
    }
}

impl State {
    /// Makes jobs ready as the queue's order allows.
    fn advance(&mut self, file: FileId) {
        let Some(lane) = self.queues.get_mut(&file) else { return };
        while let Some((shares, _)) = lane.waiting.front() {
            let shares = *shares;
            if lane.running > 0 && (lane.is_exclusive || !shares) {
                break;
            }
            let (_, job) = lane.waiting.pop_front().expect("it was just seen");
            lane.running += 1;
            lane.is_exclusive = !shares;
            self.ready.push_back((Some(file), job));
        }
        if lane.running == 0 {
            self.queues.remove(&file);
        }
    }
    fn end(&mut self, file: FileId) {
        if let Some(lane) = self.queues.get_mut(&file) {
            lane.running -= 1;
        }
        self.advance(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    fn order(file: u64, shares: bool) -> CallOrder {
        CallOrder { file: Some(FileId(file)), shares, is_awaited: false }
    }

    #[test]
    fn calls_on_one_file_run_in_order() {
        let queues = FileQueues::new(8);
        let (done, results) = mpsc::channel();
        for number in 0..1000u64 {
            let done = done.clone();
            queues.add(order(number % 3, false), Box::new(move || done.send(number).unwrap()));
        }
        let mut last = [None; 3];
        for _ in 0..1000 {
            let number = results.recv_timeout(Duration::from_secs(60)).unwrap();
            let last = &mut last[(number % 3) as usize];
            assert!(last.is_none_or(|last| last < number));
            *last = Some(number);
        }
        // The last job reported before its queue ended.
        while !queues.lock().queues.is_empty() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_call_outside_the_threads_keeps_its_files_order() {
        let queues = FileQueues::new(4);
        let (done, results) = mpsc::channel();
        assert!(queues.enter(FileId(1)));
        assert!(!queues.enter(FileId(1)), "one at a time");
        for file in [1, 2] {
            let done = done.clone();
            queues.add(order(file, true), Box::new(move || done.send(file).unwrap()));
        }
        assert_eq!(results.recv_timeout(Duration::from_secs(60)).unwrap(), 2, "another file");
        assert!(results.recv_timeout(Duration::from_millis(50)).is_err());
        assert!(!queues.enter(FileId(1)), "nobody passes those who wait");
        queues.leave(FileId(1));
        assert_eq!(results.recv_timeout(Duration::from_secs(60)).unwrap(), 1);
    }

    #[test]
    fn a_waiting_call_delays_only_its_own_file() {
        let queues = FileQueues::new(4);
        let (release, released) = mpsc::channel::<()>();
        let (done, results) = mpsc::channel();
        let say = |what: &'static str| -> Job {
            let done = done.clone();
            Box::new(move || done.send(what).unwrap())
        };
        let patience = Duration::from_secs(60);
        queues.add(order(1, true), Box::new(move || released.recv().unwrap()));
        queues.add(order(1, true), say("looks beside the one that waits"));
        assert_eq!(results.recv_timeout(patience).unwrap(), "looks beside the one that waits");
        queues.add(order(1, false), say("changes after"));
        queues.add(order(1, true), say("looks after the change"));
        queues.add(order(2, false), say("another file"));
        assert_eq!(results.recv_timeout(patience).unwrap(), "another file");
        assert!(results.recv_timeout(Duration::from_millis(50)).is_err());
        release.send(()).unwrap();
        assert_eq!(results.recv_timeout(patience).unwrap(), "changes after");
        assert_eq!(results.recv_timeout(patience).unwrap(), "looks after the change");
    }
}
