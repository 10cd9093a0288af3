//! Calls without a ring: AIO and threads for those that wait for a disk, epoll for those that wait
//! for another program, and system calls of the world's thread for messages. All in Linux 5.4 and
//! older.
//!
//! 1. Calls are submitted in the next iteration of the world's loop, in their order, as over a
//!    ring. Those that wait for a disk may then overtake one another, as over a ring.
//! 2. A completion comes once, and for all but polls it is the last.

use super::aio::{Aio, Outcome};
use super::call::{Call, Completion};
use super::threads::Threads;
use super::watches::Watches;
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

pub(in crate::ring) struct Classic {
    submissions: VecDeque<(Call, u64)>,
    /// Completions of calls that no thread carried out.
    ready: Vec<Completion>,
    threads: Threads,
    /// AIO context; `None` where AIO is not available.
    aio: Option<Aio>,
    watches: Watches,
}

impl Classic {
    pub fn new() -> io::Result<Classic> {
        let threads = Threads::new()?;
        let (watches, aio) = (Watches::new(threads.alarm())?, Aio::new(threads.alarm()));
        Ok(Classic { submissions: VecDeque::new(), ready: Vec::new(), threads, aio, watches })
    }

    /// # Safety
    /// All memory that the call points to must live until its last completion.
    pub unsafe fn push(&mut self, call: Call, user_data: u64) {
        self.submissions.push_back((call, user_data));
    }

    pub fn has_completions(&self) -> bool {
        !self.ready.is_empty() || self.threads.has_completions()
    }

    /// Submits, and takes available completions.
    pub fn look(&mut self) -> io::Result<()> {
        self.hand_over();
        self.find_events().map(drop)
    }

    /// Takes events of files that became ready. Returns whether there were any.
    pub fn find_events(&mut self) -> io::Result<bool> {
        if self.watches.look(&mut self.ready)? {
            if let Some(aio) = &mut self.aio {
                let mut outcome = Outcome::default();
                aio.collect(Duration::ZERO, &mut outcome);
                self.take(outcome);
            }
        }
        Ok(!self.ready.is_empty())
    }

    fn take(&mut self, outcome: Outcome) {
        self.ready.extend(outcome.completions);
        if !outcome.refused.is_empty() {
            for (user_data, call) in outcome.refused {
                // SAFETY: as promised to `push`: the operation has had no completion.
                unsafe { self.threads.push(call, user_data) };
            }
            self.threads.staff();
        }
    }

    /// Submits, and waits for a completion, for at most `limit` (else ETIME).
    pub fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.hand_over();
        if self.ready.is_empty() && self.threads.wants_alarm() {
            let waited = self.watches.wait(limit);
            self.threads.is_awake();
            waited?;
        }
        self.find_events().map(drop)
    }

    pub fn collect(&mut self, arrived: &mut Vec<Completion>) {
        arrived.append(&mut self.ready);
        self.threads.collect(arrived);
    }

    /// Renews threads: calls are from now on begun by threads that have the current rights and
    /// filters of this thread. Calls that others are in are not waited for.
    pub fn renew_threads(&mut self) {
        self.threads.renew();
    }

    /// Drops operations that wait for other programs, and waits for all others until `deadline`.
    /// Returns whether all have ended.
    pub fn end(&mut self, deadline: Instant) -> bool {
        self.hand_over();
        self.watches.clear();
        let mut outcome = Outcome::default();
        let has_ended = self.aio.as_mut().is_none_or(|aio| aio.end(deadline, &mut outcome));
        self.take(outcome);
        self.threads.end(deadline) && has_ended
    }

    fn hand_over(&mut self) {
        while let Some((call, user_data)) = self.submissions.pop_front() {
            let completion = match call {
                Call::Poll { file, mask } => self.watches.poll(file, mask, user_data),
                Call::Cancel { user_data } => self.watches.cancel(user_data),
                Call::Receive { .. } | Call::Send { .. } | Call::Message { .. } => {
                    self.watches.make_when_ready(call, user_data)
                }
                Call::Raw(_) => Some(Completion::last(user_data, -libc::ENOSYS)),
                Call::Read { .. }
                | Call::Write { .. }
                | Call::SyncData { .. }
                | Call::Allocate { .. }
                | Call::Discard { .. } => {
                    // SAFETY: as promised to `push`.
                    unsafe {
                        let refused = match &mut self.aio {
                            Some(aio) => aio.submit(call, user_data),
                            None => Some(call),
                        };
                        if let Some(call) = refused {
                            self.threads.push(call, user_data);
                        }
                    }
                    None
                }
            };
            self.ready.extend(completion);
        }
        self.threads.staff();
    }
}
