//! The ring's side for the world: submits operations, waits, dispatches completions.

use super::kernel::{Completion, Kernel, is_passing};
use super::slots::Waiter;
use super::{Ring, UNOBSERVED};
use crate::polling::Ended;
use std::io;
use std::time::{Duration, Instant};

/// Way to wait until something completes.
pub(crate) enum Wait {
    /// Submit and take available completions.
    No,
    /// Poll the completion queue for at most `awake` without sleeping, then as `Asleep`.
    Awake { awake: Duration, limit: Option<Duration> },
    /// Sleep, for at most this long.
    Asleep(Option<Duration>),
}

impl Ring {
    pub(crate) fn submit_and_wait(&self, wait: Wait) -> io::Result<Ended> {
        let mut ended;
        {
            let mut kernel = self.0.kernel.borrow_mut();
            let result = match wait {
                _ if kernel.has_completions() || !self.0.arrived.borrow().is_empty() => {
                    self.look(&mut kernel).map(|()| Ended::AtOnce)
                }
                Wait::No => self.look(&mut kernel).map(|()| Ended::AtOnce),
                Wait::Awake { awake, limit } => self.poll_completions(&mut kernel, awake, limit),
                Wait::Asleep(limit) => self.sleep(&mut kernel, limit).map(|()| Ended::Completion),
            };
            ended = match result {
                Ok(ended) => ended,
                Err(error) if is_passing(&error) => Ended::Timer,
                Err(error) => return Err(error),
            };
            kernel.collect(&mut self.0.arrived.borrow_mut());
            if ended == Ended::Completion && self.nobody_waits_for_what_arrived() {
                ended = Ended::AtOnce;
            }
        }
        self.dispatch();
        Ok(ended)
    }

    fn look(&self, kernel: &mut Kernel) -> io::Result<()> {
        if !kernel.has_pending() {
            return Ok(());
        }
        self.count(|statistics| statistics.enters += 1);
        kernel.look()
    }

    fn sleep(&self, kernel: &mut Kernel, limit: Option<Duration>) -> io::Result<()> {
        self.hold_awake(false);
        self.count(|statistics| statistics.enters += 1);
        kernel.wait(limit)
    }

    /// Polls for completions without sleeping, as long as no other thread needs the processor; then
    /// sleeps.
    fn poll_completions(
        &self,
        kernel: &mut Kernel,
        awake: Duration,
        limit: Option<Duration>,
    ) -> io::Result<Ended> {
        self.look(kernel)?;
        if kernel.has_completions() {
            // Submitted operations may complete at once, as an answer to a request does. Nothing
            // was waited for.
            return Ok(Ended::AtOnce);
        }
        let (begin, until) = (Instant::now(), limit.map_or(awake, |limit| limit.min(awake)));
        let (mut now, mut ended) = (begin, Ended::Completion);
        while !kernel.has_completions() {
            let waited = now.duration_since(begin);
            if ended == Ended::Contended || waited >= until {
                let rest = limit.map(|limit| limit.saturating_sub(waited));
                if rest == Some(Duration::ZERO) {
                    return Ok(if ended == Ended::Contended { ended } else { Ended::Timer });
                }
                self.count(|statistics| statistics.polls_in_vain += 1);
                return match self.sleep(kernel, rest) {
                    Ok(()) => Ok(ended),
                    Err(error) if is_passing(&error) && ended == Ended::Contended => Ok(ended),
                    Err(error) => Err(error),
                };
            }
            if kernel.find_deferred()? {
                self.count(|statistics| statistics.enters += 1);
                // The time in the kernel was not taken by others.
                now = Instant::now();
                continue;
            }
            // SAFETY: the call has no preconditions. It returns at once unless another thread waits
            // for this processor.
            unsafe { libc::sched_yield() };
            let before = std::mem::replace(&mut now, Instant::now());
            if now.duration_since(before) > awake {
                ended = Ended::Contended;
            }
        }
        self.count(|statistics| statistics.polls += 1);
        Ok(ended)
    }

    /// Whether nobody waits for the completions: they show nothing about how long a wait takes,
    /// since an answer that was sent completes by itself.
    fn nobody_waits_for_what_arrived(&self) -> bool {
        let mut slots = self.0.slots.borrow_mut();
        self.0.arrived.borrow().iter().all(|it| {
            it.user_data == UNOBSERVED
                || matches!(slots.get(it.user_data as u32).waiter, Waiter::Nobody { .. })
        })
    }

    fn dispatch(&self) {
        let mut arrived = self.0.arrived.take();
        self.count(|statistics| statistics.completions += arrived.len() as u64);
        for Completion { user_data, result, more } in arrived.drain(..) {
            if user_data != UNOBSERVED {
                self.complete(user_data as u32, result, more);
            }
        }
        // Keep the allocation, unless a destructor has started an operation and more has arrived.
        let mut place = self.0.arrived.borrow_mut();
        if place.is_empty() {
            *place = arrived;
        }
    }

    fn complete(&self, index: u32, result: i32, more: bool) {
        let mut slots = self.0.slots.borrow_mut();
        if !more {
            slots.running -= 1;
        }
        let slot = slots.get(index);
        let waker = match &mut slot.waiter {
            Waiter::Task(waker) => {
                let waker = waker.take();
                slot.waiter = Waiter::Done(result);
                waker
            }
            Waiter::Stream { events, error, ended, waker } => {
                if result < 0 {
                    *error = result
                } else {
                    *events |= result as u32
                }
                *ended = !more;
                waker.take()
            }
            Waiter::Nobody { counted } => {
                if *counted && result < 0 {
                    self.count(|statistics| statistics.failed_sends += 1);
                }
                let ended = (!more).then(|| slots.remove(index));
                drop(slots);
                drop(ended);
                return;
            }
            Waiter::Done(_) => unreachable!("operation {index} completed twice"),
        };
        drop(slots);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
