//! Calls that wait for a disk, on a few threads: plain system calls in the ring's place.
//!
//! Invariants:
//! 1. A job is with the queue, with one thread, or done. Its memory is owned by its slot until its
//!    completion was taken; threads see addresses and numbers alone.
//! 2. Threads are made by the world's thread when there is work for them, so that they have its
//!    rights, its limits and its filters. Behind [`Threads::renew`] those that have older ones take
//!    no job; the calls that they are in are not waited for.
//! 3. Idle threads sleep until they are notified.

use super::call::{Call, Completion, Source};
use device::Durability;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

/// Maximum number of calls that wait for disks at the same time; an elevator or an SSD has no use
/// for many more.
const THREADS_MAX: usize = 16;
/// Maximum number of waiting calls that neither write nor flush: a disk that answers no read does
/// not stop syncs of others.
const OTHERS_MAX: usize = THREADS_MAX - 2;
/// Stack of a thread in bytes: threads make system calls, and little else.
const STACK: usize = 128 << 10;
/// `_IO(0x12, 119)` of linux/fs.h: BLKDISCARD.
const BLKDISCARD: libc::Ioctl = 0x1277;

struct Job {
    call: Call,
    user_data: u64,
}

// SAFETY: the pointers of a call lead to heap memory that its slot owns until the completion was
// taken (invariant 1). The slot's thread does not look at what the kernel writes before, and nobody
// changes what the kernel reads. The queue's lock orders what either side does.
unsafe impl Send for Job {}

#[derive(PartialEq, Eq)]
enum Kind {
    /// A flush or a durable write.
    Commit,
    Write,
    Other,
}

impl Job {
    fn kind(&self) -> Kind {
        match self.call {
            Call::Write { durability: Durability::Durable, .. } | Call::SyncData { .. } => {
                Kind::Commit
            }
            Call::Write { .. } => Kind::Write,
            _ => Kind::Other,
        }
    }
}

/// Jobs that no thread has taken. Durable writes and flushes go first: with many readers they would
/// otherwise reach the disk behind all reads, as they do not over a ring. Of the others, the first
/// goes first, and writes, which a flush may wait for, have threads that no read takes.
#[derive(Default)]
struct Jobs {
    commits: VecDeque<Job>,
    /// Queued writes, each with the number of jobs that came before.
    writes: VecDeque<(u64, Job)>,
    others: VecDeque<(u64, Job)>,
    pushed: u64,
    /// Jobs of `others` that threads have taken and not finished.
    others_under_way: usize,
}

impl Jobs {
    fn push(&mut self, job: Job) {
        self.pushed += 1;
        match job.kind() {
            Kind::Commit => self.commits.push_back(job),
            Kind::Write => self.writes.push_back((self.pushed, job)),
            Kind::Other => self.others.push_back((self.pushed, job)),
        }
    }
    fn pop(&mut self) -> Option<Job> {
        if let Some(commit) = self.commits.pop_front() {
            return Some(commit);
        }
        let number = |queue: &VecDeque<(u64, Job)>| queue.front().map(|(number, _)| *number);
        let other = number(&self.others).filter(|_| self.others_under_way < OTHERS_MAX);
        let next = match (number(&self.writes), other) {
            (Some(write), other) if other.is_none_or(|other| write < other) => &mut self.writes,
            (_, Some(_)) => {
                self.others_under_way += 1;
                &mut self.others
            }
            (_, None) => return None,
        };
        next.pop_front().map(|(_, job)| job)
    }
    fn has_for_now(&self) -> bool {
        let takes_others = self.others_under_way < OTHERS_MAX;
        !self.commits.is_empty()
            || !self.writes.is_empty()
            || takes_others && !self.others.is_empty()
    }
    fn len(&self) -> usize {
        self.commits.len() + self.writes.len() + self.others.len()
    }
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[derive(Default)]
struct State {
    jobs: Jobs,
    /// Jobs that threads have taken and not finished.
    under_way: usize,
    done: Vec<Completion>,
    /// Number of renewals. Threads of an earlier generation take no jobs, and end.
    generation: u64,
    /// Threads of this generation that sleep, and those that have not looked for work yet.
    idle: usize,
    starting: usize,
    /// Set when threads are to end, whatever is in the queue.
    is_over: bool,
    /// Set while the world's thread sleeps, and must be woken by the next completion.
    wants_alarm: bool,
}

impl State {
    /// Whether a thread of this generation is to end.
    fn ends(&self, generation: u64) -> bool {
        self.is_over || self.generation != generation
    }
}

struct Shared {
    state: Mutex<State>,
    /// Signals jobs, or the end.
    filled: Condvar,
    /// Signals that the last running job was finished.
    emptied: Condvar,
    /// `done` is not empty.
    is_done: AtomicBool,
    /// An eventfd that wakes the world's thread.
    alarm: OwnedFd,
}

pub(super) struct Threads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Threads of earlier generations that may still be in a call.
    former: Vec<JoinHandle<()>>,
}

impl Threads {
    pub fn new() -> io::Result<Threads> {
        // SAFETY: the call takes integers.
        let number = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, so nobody else owns it.
        let alarm = unsafe { OwnedFd::from_raw_fd(number) };
        let shared = Shared {
            state: Mutex::default(),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            is_done: AtomicBool::new(false),
            alarm,
        };
        Ok(Threads { shared: Arc::new(shared), threads: Vec::new(), former: Vec::new() })
    }

    /// Returns the alarm, which becomes readable, by an edge, when something is done and
    /// [`Threads::wants_alarm`] returned true.
    pub fn alarm(&self) -> RawFd {
        self.shared.alarm.as_raw_fd()
    }

    /// # Safety
    /// All memory that the call points to must live until its completion was taken; it is a call
    /// that waits for a disk.
    pub unsafe fn push(&mut self, call: Call, user_data: u64) {
        self.shared.state().jobs.push(Job { call, user_data });
        self.shared.filled.notify_one();
    }

    /// Starts as many threads as there is work for.
    pub fn staff(&mut self) {
        while self.threads.len() < THREADS_MAX {
            let state = self.shared.state();
            let is_enough = state.jobs.len() <= state.idle + state.starting;
            drop(state);
            if is_enough || !self.begin_one() {
                break;
            }
        }
    }

    /// Starts one more thread. Returns whether there is one; without any the caller does the work.
    fn begin_one(&mut self) -> bool {
        let shared = self.shared.clone();
        let generation = {
            let mut state = self.shared.state();
            state.starting += 1;
            state.generation
        };
        let builder = Builder::new().name("disk".into()).stack_size(STACK);
        match without_signals(|| builder.spawn(move || shared.work(generation))) {
            Ok(thread) => self.threads.push(thread),
            Err(_) => {
                self.shared.state().starting -= 1;
                while self.threads.is_empty() && self.shared.carry_out_next(generation) {}
                return false;
            }
        }
        true
    }

    pub fn has_completions(&self) -> bool {
        self.shared.is_done.load(Ordering::Acquire)
    }

    pub fn collect(&mut self, arrived: &mut Vec<Completion>) {
        if self.has_completions() {
            let mut state = self.shared.state();
            arrived.append(&mut state.done);
            self.shared.is_done.store(false, Ordering::Release);
        }
    }

    /// Whether the caller may sleep: nothing is done, and the next completion raises the alarm.
    pub fn wants_alarm(&self) -> bool {
        let mut state = self.shared.state();
        state.wants_alarm = state.done.is_empty();
        state.wants_alarm
    }
    pub fn is_awake(&self) {
        self.shared.state().wants_alarm = false;
    }

    /// Retires the threads: each ends behind the call that it is in, which may be one to a disk
    /// that does not answer. New threads carry out all other jobs, as soon as [`Threads::staff`]
    /// makes them.
    pub fn renew(&mut self) {
        let mut state = self.shared.state();
        state.generation += 1;
        (state.idle, state.starting) = (0, 0);
        drop(state);
        self.shared.filled.notify_all();
        self.former.append(&mut self.threads);
        let former = std::mem::take(&mut self.former).into_iter();
        let waits = units::fault!("renewal-waits-for-calls");
        let (ended, in_call): (Vec<_>, _) =
            former.partition(|thread| waits || thread.is_finished());
        ended.into_iter().for_each(join);
        self.former = in_call;
    }

    /// Waits for all jobs until `deadline`. Returns whether all are done, and the threads gone.
    pub fn end(&mut self, deadline: Instant) -> bool {
        let mut state = self.shared.state();
        while !state.jobs.is_empty() || state.under_way > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // A disk that does not answer keeps its thread.
                state.is_over = true;
                drop(state);
                self.shared.filled.notify_all();
                return false;
            }
            let waited = self.shared.emptied.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_over = true;
        drop(state);
        self.shared.filled.notify_all();
        self.former.drain(..).chain(self.threads.drain(..)).for_each(join);
        true
    }
}

fn join(thread: JoinHandle<()>) {
    // It does not panic, and would have nothing to say if it did.
    let _ = thread.join();
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the loop of a thread of this generation.
    fn work(&self, generation: u64) {
        let mut state = self.state();
        if state.generation == generation {
            state.starting -= 1;
        }
        drop(state);
        loop {
            if self.carry_out_next(generation) {
                continue;
            }
            let mut state = self.state();
            if state.ends(generation) {
                return;
            }
            if !state.jobs.has_for_now() {
                state.idle += 1;
                let until =
                    |state: &mut State| !state.jobs.has_for_now() && !state.ends(generation);
                let woken = self.filled.wait_while(state, until);
                let mut state = woken.unwrap_or_else(PoisonError::into_inner);
                if state.generation == generation {
                    state.idle -= 1;
                }
            }
        }
    }

    /// Carries out a job; false if there is none, or threads of this generation are to end.
    fn carry_out_next(&self, generation: u64) -> bool {
        let mut state = self.state();
        if state.ends(generation) {
            return false;
        }
        let Some(job) = state.jobs.pop() else { return false };
        let is_other = job.kind() == Kind::Other;
        state.under_way += 1;
        drop(state);
        let completion = Completion::last(job.user_data, carry_out(&job.call));
        let mut state = self.state();
        state.under_way -= 1;
        state.jobs.others_under_way -= usize::from(is_other);
        state.done.push(completion);
        self.is_done.store(true, Ordering::Release);
        let wants_alarm = std::mem::take(&mut state.wants_alarm);
        let is_empty = state.under_way == 0 && state.jobs.is_empty();
        // This thread may take a commit before the next of the others.
        let frees_another = is_other && state.jobs.others_under_way + 1 == OTHERS_MAX;
        drop(state);
        if frees_another {
            self.filled.notify_one();
        }
        if wants_alarm {
            let one = 1u64.to_ne_bytes();
            // SAFETY: the bytes are live and as long as said. The counter never fills.
            unsafe { libc::write(self.alarm.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
        if is_empty {
            self.emptied.notify_all();
        }
        true
    }
}

/// Runs `begin` with signals blocked, which are for the world's thread: a handler, or a signalfd,
/// expects them there.
fn without_signals<T>(begin: impl FnOnce() -> T) -> T {
    let mut before = std::mem::MaybeUninit::uninit();
    // SAFETY: sigfillset initialises the whole set, and pthread_sigmask the set of before, which is
    // the one that is restored.
    unsafe {
        let mut all = std::mem::MaybeUninit::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        let begun = begin();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        begun
    }
}

/// Carries out a call. Returns its result as the ring does: negative is an errno.
fn carry_out(call: &Call) -> i32 {
    match *call {
        // SAFETY: the slot owns `length` bytes behind `start`, and nobody reads them before
        // completion.
        Call::Read { file, start, length, at } => result_of(|| unsafe {
            libc::pread(file, start.cast(), length as usize, at as libc::off_t)
        }),
        Call::Write { file, source, at, durability } => write(file, source, at, durability),
        Call::SyncData { file } => sync_data(file),
        Call::Allocate { file, mode, at, length } => {
            let (at, length) = (at as libc::off_t, length as libc::off_t);
            // SAFETY: the call takes integers.
            result_of(|| unsafe { libc::fallocate(file, mode, at, length) } as isize)
        }
        Call::Discard { file, at, length } => {
            let range = [at, length];
            // SAFETY: the range outlives the call, which reads two numbers.
            result_of(|| unsafe { libc::ioctl(file, BLKDISCARD, range.as_ptr()) } as isize)
        }
        _ => unreachable!("a call that waits for no disk"),
    }
}

fn write(file: RawFd, source: Source, at: u64, durability: Durability) -> i32 {
    let one;
    let (vectors, count) = match source {
        Source::One { start, length } => {
            one = libc::iovec { iov_base: start.cast_mut().cast(), iov_len: length as usize };
            (&raw const one, 1)
        }
        Source::Many { vectors, count } => (vectors, count as libc::c_int),
    };
    let at = at as libc::off_t;
    if durability == Durability::Durable {
        // SAFETY: the slot owns the table of `count` vectors and what they point to.
        let result =
            result_of(|| unsafe { libc::pwritev2(file, vectors, count, at, libc::RWF_DSYNC) });
        if !is_unknown(result) {
            return result;
        }
    }
    // SAFETY: as above.
    let written = result_of(|| unsafe { libc::pwritev(file, vectors, count, at) });
    if durability != Durability::Durable || written < 0 {
        return written;
    }
    match sync_data(file) {
        0 => written,
        error => error,
    }
}

fn sync_data(file: RawFd) -> i32 {
    // SAFETY: the call takes an integer.
    result_of(|| unsafe { libc::fdatasync(file) } as isize)
}

/// Whether the kernel, the file or a filter does not know the call; another serves as well.
fn is_unknown(result: i32) -> bool {
    matches!(-result, libc::ENOSYS | libc::EOPNOTSUPP | libc::EPERM)
}

/// Returns the result, or the negative errno.
pub(super) fn result_of(call: impl FnOnce() -> isize) -> i32 {
    match call() {
        -1 => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
        result => result as i32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(durability: Durability) -> Call {
        let source = Source::One { start: std::ptr::null(), length: 0 };
        Call::Write { file: 0, source, at: 0, durability }
    }
    fn read() -> Call {
        Call::Read { file: 0, start: std::ptr::null_mut(), length: 0, at: 0 }
    }

    #[test]
    fn commits_overtake_other_calls_in_their_own_order() {
        let calls = [
            read(),
            write(Durability::Cached),
            write(Durability::Durable),
            read(),
            Call::SyncData { file: 0 },
        ];
        let mut jobs = Jobs::default();
        for (user_data, call) in (0..).zip(calls) {
            jobs.push(Job { call, user_data });
        }
        let order: Vec<_> = std::iter::from_fn(|| jobs.pop()).map(|job| job.user_data).collect();
        assert_eq!(order, [2, 4, 0, 1, 3]);
    }

    #[test]
    fn calls_that_never_end_leave_threads_to_commits() {
        let mut jobs = Jobs::default();
        (0..2 * THREADS_MAX as u64)
            .for_each(|user_data| jobs.push(Job { call: read(), user_data }));
        assert_eq!(std::iter::from_fn(|| jobs.pop()).count(), OTHERS_MAX);
        assert!(!jobs.has_for_now());
        jobs.push(Job { call: write(Durability::Cached), user_data: 98 });
        jobs.push(Job { call: Call::SyncData { file: 0 }, user_data: 99 });
        assert!(jobs.has_for_now());
        let order: Vec<_> = std::iter::from_fn(|| jobs.pop()).map(|job| job.user_data).collect();
        assert_eq!(order, [99, 98]);
        jobs.others_under_way -= 1;
        assert!(jobs.pop().is_some() && jobs.pop().is_none());
    }
}
