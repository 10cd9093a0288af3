//! Records which steps of tasks took the processor for long ([`device::STEP_LONG`]).
//!
//! A step is timed by the wall clock, which costs some nanoseconds. On a shared machine that is no
//! proof: the thread may have had no processor. So where the wall clock calls a step long, the
//! thread's own processor time decides. Reading it is a system call, made now and then, and again
//! at the end of such a step. The share of the time between the last sample and the step is at most
//! [`SAMPLE_EVERY`], and is subtracted: no step is blamed for another.

use device::{LongSteps, STEP_LONG};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

/// [`STEP_LONG`] in nanoseconds, the unit of all times here: each step reads the clock, and the
/// arithmetic of [`std::time::Instant`] costs a third as much as the reading.
const LONG: u64 = STEP_LONG.as_nanos() as u64;

/// Greatest age of a sample of the processor time when a step begins.
const SAMPLE_EVERY: u64 = 250_000;

pub(crate) struct StepClock {
    /// Time when the thread last began to take steps.
    begun: Cell<u64>,
    /// Time when the last step, or the wait behind it, ended.
    last: Cell<u64>,
    /// Processor time of the thread, and when it was sampled.
    sample: Cell<(u64, u64)>,
    long: RefCell<BTreeMap<&'static str, LongSteps>>,
}

impl Default for StepClock {
    fn default() -> StepClock {
        let now = wall_time();
        StepClock {
            begun: Cell::new(now),
            last: Cell::new(now),
            sample: Cell::new((processor_time(), now)),
            long: RefCell::default(),
        }
    }
}

impl StepClock {
    /// Begins steps anew: the thread has done something else, or has slept.
    pub fn begin(&self) {
        let now = wall_time();
        self.begun.set(now);
        self.last.set(now);
        self.sample_if_old(now);
    }
    /// Returns the wall-clock time from there to the end of the last step.
    pub fn steps_took(&self) -> Duration {
        Duration::from_nanos(self.last.get() - self.begun.get())
    }

    /// Ends a step of a task of this name, which began where the one before ended.
    pub fn step_ended(&self, task: &'static str) {
        let now = wall_time();
        let began = self.last.replace(now);
        if now - began >= LONG {
            self.look_closely(task, began, now);
        } else {
            self.sample_if_old(now);
        }
    }

    fn sample_if_old(&self, now: u64) {
        if now - self.sample.get().1 >= SAMPLE_EVERY {
            self.sample.set((processor_time(), now));
        }
    }

    fn look_closely(&self, task: &'static str, began: u64, now: u64) {
        let (used, at) = self.sample.replace((processor_time(), now));
        let took = self.sample.get().0.saturating_sub(used).saturating_sub(began - at);
        if took < LONG {
            return;
        }
        let mut long = self.long.borrow_mut();
        let none = LongSteps { task, count: 0, longest: Duration::ZERO };
        let steps = long.entry(task).or_insert(none);
        steps.count += 1;
        steps.longest = steps.longest.max(Duration::from_nanos(took));
    }

    /// Returns the long steps, the longest first.
    pub fn long_steps(&self) -> Vec<LongSteps> {
        let mut all: Vec<_> = self.long.borrow().values().copied().collect();
        all.sort_by_key(|steps| std::cmp::Reverse(steps.longest));
        all
    }
}

/// Returns the time of a clock that never goes back.
fn wall_time() -> u64 {
    time_of(libc::CLOCK_MONOTONIC)
}

/// Returns the processor time of this thread, in user space and in the kernel.
fn processor_time() -> u64 {
    time_of(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn time_of(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec to be filled. A thread may always ask for these clocks.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps the processor for `time` of the thread's own time.
    fn work(time: Duration) {
        let until = processor_time() + time.as_nanos() as u64;
        while processor_time() < until {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_step_is_long_by_its_processor_time_alone() {
        let clock = StepClock::default();
        clock.begin();
        std::thread::sleep(2 * STEP_LONG);
        clock.step_ended("sleeps");
        work(STEP_LONG / 8);
        clock.step_ended("short");
        work(2 * STEP_LONG);
        clock.step_ended("works");
        work(4 * STEP_LONG);
        clock.step_ended("works longer");
        work(2 * STEP_LONG);
        clock.begin();
        clock.step_ended("comes after a wait");
        let long = clock.long_steps();
        let names: Vec<_> = long.iter().map(|steps| (steps.task, steps.count)).collect();
        assert_eq!(names, [("works longer", 1), ("works", 1)]);
        assert!(long[0].longest >= 4 * STEP_LONG - Duration::from_nanos(SAMPLE_EVERY), "{long:?}");
    }
}
