//! Running where the program runs that asks. If it runs on another processor, each request wakes that processor, and each answer
//! the other one: in a virtual machine both go through the host, and take longer than the request itself. On the same one the
//! program's wait is a switch.
//!
//! 1. Only a program that asks nearly alone is followed: with several, two processors do more than one.
//! 2. The kernel chooses where programs run. Whoever follows looks again from time to time.
//! 3. Who follows does not poll for requests: that would keep the processor from whoever makes the next one.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::Cell;
use std::io;

/// Requests of one process in a row, nearly, before it is followed; and below which it is not any more.
const ENOUGH: u32 = 32;
const TOO_FEW: u32 = 16;
const MOST: u32 = 64;
/// What a request of another counts.
const OTHER: u32 = 8;
/// Requests between two looks where the program runs.
const LOOK: u32 = 64;

/// The processors of a machine that a thread may run on.
trait Processors {
    /// Where `process`, a thread, runs or ran last.
    fn of(&self, process: u32) -> Option<usize>;
    /// This thread runs there from now on; `None`: wherever it may.
    fn bind(&self, to: Option<usize>) -> bool;
}

pub(crate) struct Follow {
    machine: Option<Box<dyn Processors>>,
    process: Cell<u32>,
    score: Cell<u32>,
    since_look: Cell<u32>,
    bound: Cell<Option<usize>>,
}

impl Follow {
    pub fn nobody() -> Follow {
        Follow {
            machine: None,
            process: Cell::new(0),
            score: Cell::new(0),
            since_look: Cell::new(0),
            bound: Cell::new(None),
        }
    }
    /// Whoever asks this thread, if there is more than one processor to run on.
    pub fn who_asks() -> io::Result<Follow> {
        let machine = Machine::of_this_thread()?;
        let several = machine.usual.count() > 1;
        Ok(Follow { machine: several.then(|| Box::new(machine) as Box<dyn Processors>), ..Follow::nobody() })
    }

    pub fn follows(&self) -> bool {
        self.bound.get().is_some()
    }

    /// A request of `process` has come (zero: nobody that can be seen from here).
    pub fn asked_by(&self, process: u32) {
        let Some(machine) = &self.machine else { return };
        if process != self.process.get() || process == 0 {
            self.score.set(self.score.get().saturating_sub(OTHER));
            if self.score.get() == 0 {
                self.process.set(process);
            }
            if self.score.get() < TOO_FEW && self.bound.take().is_some() {
                machine.bind(None);
            }
            return;
        }
        self.score.set((self.score.get() + 1).min(MOST));
        self.since_look.set(self.since_look.get() + 1);
        if self.score.get() >= ENOUGH && (!self.follows() || self.since_look.get() >= LOOK) {
            self.since_look.set(0);
            let at = machine.of(process);
            if at != self.bound.get() && machine.bind(at) {
                self.bound.set(at);
            }
        }
    }
}

struct Machine {
    usual: CpuSet,
}

impl Machine {
    fn of_this_thread() -> io::Result<Machine> {
        Ok(Machine { usual: sched_getaffinity(None)? })
    }
}

impl Processors for Machine {
    fn of(&self, process: u32) -> Option<usize> {
        /// Behind the name, which may hold anything, blanks and brackets too: proc(5), field 39.
        const BEHIND_NAME: usize = 36;
        let stat = std::fs::read(format!("/proc/{process}/stat")).ok()?;
        let name_end = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
        rest.split_ascii_whitespace().nth(BEHIND_NAME)?.parse().ok()
    }
    fn bind(&self, to: Option<usize>) -> bool {
        let mut set = self.usual;
        if let Some(to) = to {
            if to >= CpuSet::MAX_CPU || !self.usual.is_set(to) {
                return false;
            }
            set.clear();
            set.set(to);
        }
        sched_setaffinity(None, &set).is_ok()
    }
}
