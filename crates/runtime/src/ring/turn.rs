//! The world's side of the ring: hand operations over, wait, dispatch completions.

use super::slots::Waiter;
use super::{Ring, UNOBSERVED, Uring};
use crate::polling::Ended;
use io_uring::{cqueue, types};
use std::io;
use std::time::{Duration, Instant};

/// What to do until something completes.
pub(crate) enum Wait {
    /// Hand over submissions and take what is there.
    No,
    /// Look at the completion queue for at most `awake` without sleeping, then as `Asleep`.
    Awake { awake: Duration, limit: Option<Duration> },
    /// Sleep, for at most this long.
    Asleep(Option<Duration>),
}

impl Ring {
    pub(crate) fn turn(&self, wait: Wait) -> io::Result<Ended> {
        let mut ended;
        {
            let mut uring = self.0.uring.borrow_mut();
            let result = match wait {
                _ if !uring.completion().is_empty() || !self.0.arrived.borrow().is_empty() => {
                    self.enter(&mut uring, 0, None).map(|()| Ended::AtOnce)
                }
                Wait::No => self.enter(&mut uring, 0, None).map(|()| Ended::AtOnce),
                Wait::Awake { awake, limit } => self.poll_completions(&mut uring, awake, limit),
                Wait::Asleep(limit) => self.enter(&mut uring, 1, limit).map(|()| Ended::Completion),
            };
            ended = match result {
                Ok(ended) => ended,
                Err(error) if is_passing(&error) => Ended::Timer,
                Err(error) => return Err(error),
            };
            self.collect(&mut uring);
            if ended == Ended::Completion && self.nobody_waits_for_what_arrived() {
                ended = Ended::AtOnce;
            }
        }
        self.dispatch();
        Ok(ended)
    }

    fn enter(&self, uring: &mut Uring, want: usize, limit: Option<Duration>) -> io::Result<()> {
        let (submissions, pending) = {
            let queue = uring.submission();
            (queue.len(), queue.taskrun() || queue.cq_overflow())
        };
        if want == 0 && submissions == 0 && !pending {
            return Ok(());
        }
        if want > 0 {
            self.hold_awake(false);
        }
        self.count(|statistics| statistics.enters += 1);
        match limit {
            Some(limit) if want > 0 => {
                let time = types::Timespec::from(limit);
                uring
                    .submitter()
                    .submit_with_args(want, &types::SubmitArgs::new().timespec(&time))?;
            }
            _ => {
                // SAFETY: no signal mask is passed, and the entries' memory is owned by their
                // slots.
                unsafe {
                    const GET_EVENTS: u32 = 1;
                    uring.submitter().enter::<libc::sigset_t>(
                        submissions as u32,
                        want as u32,
                        GET_EVENTS,
                        None,
                    )?
                };
            }
        }
        Ok(())
    }

    /// Looks for completions without sleeping, as long as nobody else needs the processor; then
    /// sleeps.
    fn poll_completions(
        &self,
        uring: &mut Uring,
        awake: Duration,
        limit: Option<Duration>,
    ) -> io::Result<Ended> {
        self.enter(uring, 0, None)?;
        if !uring.completion().is_empty() {
            // What is handed over may complete at once, as an answer to a request does. Nothing was
            // waited for.
            return Ok(Ended::AtOnce);
        }
        let (begin, until) = (Instant::now(), limit.map_or(awake, |limit| limit.min(awake)));
        let (mut now, mut ended) = (begin, Ended::Completion);
        while uring.completion().is_empty() {
            let waited = now.duration_since(begin);
            if ended == Ended::Crowded || waited >= until {
                let rest = limit.map(|limit| limit.saturating_sub(waited));
                if rest == Some(Duration::ZERO) {
                    return Ok(if ended == Ended::Crowded { ended } else { Ended::Timer });
                }
                self.count(|statistics| statistics.polls_in_vain += 1);
                return match self.enter(uring, 1, rest) {
                    Ok(()) => Ok(ended),
                    Err(error) if is_passing(&error) && ended == Ended::Crowded => Ok(ended),
                    Err(error) => Err(error),
                };
            }
            // Deferred work becomes completions only inside the kernel; it says when there is some.
            if uring.submission().taskrun() {
                self.enter(uring, 0, None)?;
                // The time in the kernel was not taken by others.
                now = Instant::now();
                continue;
            }
            // SAFETY: the call has no preconditions. It returns at once unless somebody waits for
            // this processor.
            unsafe { libc::sched_yield() };
            let before = std::mem::replace(&mut now, Instant::now());
            if now.duration_since(before) > awake {
                ended = Ended::Crowded;
            }
        }
        self.count(|statistics| statistics.polls += 1);
        Ok(ended)
    }

    pub(super) fn collect(&self, uring: &mut Uring) {
        let mut arrived = self.0.arrived.borrow_mut();
        for entry in uring.completion() {
            arrived.push((entry.user_data(), entry.result(), entry.flags()));
        }
    }

    /// Such completions tell nothing about how long a wait takes: an answer that was sent completes
    /// by itself.
    fn nobody_waits_for_what_arrived(&self) -> bool {
        let mut slots = self.0.slots.borrow_mut();
        self.0.arrived.borrow().iter().all(|&(user_data, ..)| {
            user_data == UNOBSERVED
                || matches!(slots.get(user_data as u32).waiter, Waiter::Nobody { .. })
        })
    }

    fn dispatch(&self) {
        let mut arrived = self.0.arrived.take();
        self.count(|statistics| statistics.completions += arrived.len() as u64);
        for (user_data, result, flags) in arrived.drain(..) {
            if user_data != UNOBSERVED {
                self.complete(user_data as u32, result, cqueue::more(flags));
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

/// Whether a failed io_uring_enter is to be repeated: interrupted, out of time, or short of room
/// for now.
pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN))
}
