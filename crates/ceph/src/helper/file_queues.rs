//! Threads, and the order of calls: those on one file one after the other, except for those that
//! only look; different files beside each other. A thread is started when work finds none idle.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use store::FileId;

pub type Job = Box<dyn FnOnce() + Send>;

/// When a job may run.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The file whose order it keeps.
    pub file: Option<FileId>,
    /// Runs beside others of the file that do so, too.
    pub shares: bool,
    /// Another client waits for it.
    pub is_awaited: bool,
}

#[derive(Default)]
struct Lane {
    waiting: VecDeque<(bool, Job)>,
    running: usize,
    /// The one that runs shares with nobody.
    is_exclusive: bool,
}

#[derive(Default)]
struct State {
    lanes: BTreeMap<FileId, Lane>,
    /// What can run now, and its lane.
    ready: VecDeque<(Option<FileId>, Job)>,
    idle: usize,
    threads: usize,
}

pub struct Lanes {
    state: Mutex<State>,
    changed: Condvar,
    threads_max: usize,
}

impl Lanes {
    pub fn new(threads_max: usize) -> Arc<Lanes> {
        Arc::new(Lanes { state: Mutex::default(), changed: Condvar::new(), threads_max })
    }

    pub fn add(self: &Arc<Self>, turn: Turn, job: Job) {
        let mut state = self.lock();
        match turn.file {
            None => state.ready.push_back((None, job)),
            Some(file) => {
                state.lanes.entry(file).or_default().waiting.push_back((turn.shares, job));
                state.advance(file);
            }
        }
        self.staff(&mut state);
    }

    /// Begins a call of whoever asks, if the file has none now: no other runs beside it. It ends
    /// with [`Lanes::leave`].
    pub fn enter(&self, file: FileId) -> bool {
        let mut state = self.lock();
        let is_idle = !state.lanes.contains_key(&file);
        if is_idle {
            state.lanes.insert(file, Lane { running: 1, is_exclusive: true, ..Lane::default() });
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

    /// A thread for each job that is ready, up to the bound.
    fn staff(self: &Arc<Self>, state: &mut State) {
        for _ in 0..state.ready.len().min(state.idle) {
            self.changed.notify_one();
        }
        let missing = state.ready.len().saturating_sub(state.idle);
        for _ in 0..missing.min(self.threads_max - state.threads) {
            state.threads += 1;
            let lanes = self.clone();
            std::thread::spawn(move || lanes.work());
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
    /// Makes ready what the lane's order allows.
    fn advance(&mut self, file: FileId) {
        let Some(lane) = self.lanes.get_mut(&file) else { return };
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
            self.lanes.remove(&file);
        }
    }
    fn end(&mut self, file: FileId) {
        if let Some(lane) = self.lanes.get_mut(&file) {
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

    fn turn(file: u64, shares: bool) -> Turn {
        Turn { file: Some(FileId(file)), shares, is_awaited: false }
    }

    #[test]
    fn calls_on_one_file_run_in_order() {
        let lanes = Lanes::new(8);
        let (done, results) = mpsc::channel();
        for number in 0..1000u64 {
            let done = done.clone();
            lanes.add(turn(number % 3, false), Box::new(move || done.send(number).unwrap()));
        }
        let mut last = [None; 3];
        for _ in 0..1000 {
            let number = results.recv_timeout(Duration::from_secs(60)).unwrap();
            let last = &mut last[(number % 3) as usize];
            assert!(last.is_none_or(|last| last < number));
            *last = Some(number);
        }
        // The last job told before its lane ended.
        while !lanes.lock().lanes.is_empty() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_call_outside_of_the_threads_keeps_its_files_order() {
        let lanes = Lanes::new(4);
        let (done, results) = mpsc::channel();
        assert!(lanes.enter(FileId(1)));
        assert!(!lanes.enter(FileId(1)), "one at a time");
        for file in [1, 2] {
            let done = done.clone();
            lanes.add(turn(file, true), Box::new(move || done.send(file).unwrap()));
        }
        assert_eq!(results.recv_timeout(Duration::from_secs(60)).unwrap(), 2, "another file");
        assert!(results.recv_timeout(Duration::from_millis(50)).is_err());
        assert!(!lanes.enter(FileId(1)), "nobody passes those who wait");
        lanes.leave(FileId(1));
        assert_eq!(results.recv_timeout(Duration::from_secs(60)).unwrap(), 1);
    }

    #[test]
    fn a_call_that_waits_holds_up_its_own_file_only_and_looks_share() {
        let lanes = Lanes::new(4);
        let (release, released) = mpsc::channel::<()>();
        let (done, results) = mpsc::channel();
        let say = |what: &'static str| -> Job {
            let done = done.clone();
            Box::new(move || done.send(what).unwrap())
        };
        let patience = Duration::from_secs(60);
        lanes.add(turn(1, true), Box::new(move || released.recv().unwrap()));
        lanes.add(turn(1, true), say("looks beside the one that waits"));
        assert_eq!(results.recv_timeout(patience).unwrap(), "looks beside the one that waits");
        lanes.add(turn(1, false), say("changes after"));
        lanes.add(turn(1, true), say("looks after the change"));
        lanes.add(turn(2, false), say("another file"));
        assert_eq!(results.recv_timeout(patience).unwrap(), "another file");
        assert!(results.recv_timeout(Duration::from_millis(50)).is_err());
        release.send(()).unwrap();
        assert_eq!(results.recv_timeout(patience).unwrap(), "changes after");
        assert_eq!(results.recv_timeout(patience).unwrap(), "looks after the change");
    }
}
