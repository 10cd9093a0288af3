//! Space in logs of one length: what each has left, and what is reserved for transactions that are
//! not bound yet.
//!
//! 1. A log is filled from its start. Its space is freed when all of its runs are released, and all
//!    at once.
//! 2. A run that fits when it is reserved fits when it is taken: other reservations may take the
//!    longest free spaces of all.

#[derive(Clone, Debug)]
pub(super) struct FreeSpace {
    /// Blocks of each log.
    length: u32,
    used: Vec<UsedSpace>,
    /// Blocks that are free, and how many of them are reserved.
    free: u32,
    reserved: u32,
    /// The longest free spaces of all logs, longest first.
    longest: [u32; 3],
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct UsedSpace {
    pub blocks: u32,
    /// Runs that are not released.
    pub live: u32,
    /// Blocks of runs that were put there since others were moved there.
    pub fresh: u32,
}

impl FreeSpace {
    pub fn new(logs: u32, length: u32) -> FreeSpace {
        let used = vec![UsedSpace::default(); logs as usize];
        let mut space =
            FreeSpace { length, used, free: logs * length, reserved: 0, longest: [0; 3] };
        space.note_longest();
        space
    }

    fn note_longest(&mut self) {
        let mut longest = [0; 3];
        for used in &self.used {
            let mut room = self.length - used.blocks;
            for best in &mut longest {
                (*best, room) = ((*best).max(room), (*best).min(room));
            }
        }
        self.longest = longest;
    }

    /// Returns the blocks that are neither taken nor reserved.
    pub fn free(&self) -> u32 {
        self.free - self.reserved
    }
    /// Returns the longest run that fits beside `reservations` others wherever they are placed.
    pub fn fitting(&self, reservations: usize) -> u32 {
        let [longest, ..] = self.longest;
        // Each reserved run may take the space of one log; or all of them that of a single log.
        let untouched = self.longest.get(reservations).copied().unwrap_or(0);
        untouched.max(longest.saturating_sub(self.reserved))
    }
    /// Returns the blocks that are taken of `log`.
    pub fn used(&self, log: u32) -> UsedSpace {
        self.used[log as usize]
    }
    pub fn fits(&self, log: u32, blocks: u32) -> bool {
        self.length - self.used(log).blocks >= blocks
    }

    pub fn reserve(&mut self, blocks: u32) {
        self.reserved += blocks;
    }
    /// Takes a reservation in `log`, and returns the block at which the run begins there.
    pub fn take(&mut self, log: u32, blocks: u32) -> u32 {
        let used = &mut self.used[log as usize];
        let first = used.blocks;
        *used =
            UsedSpace { blocks: first + blocks, live: used.live + 1, fresh: used.fresh + blocks };
        self.reserved -= blocks;
        self.free -= blocks;
        self.note_longest();
        first
    }
    /// Releases a run in `log`.
    pub fn release(&mut self, log: u32) {
        let used = &mut self.used[log as usize];
        used.live -= 1;
        if used.live == 0 || used.live == 1 && units::fault!("scattered-begun-early") {
            self.free += used.blocks;
            *used = UsedSpace::default();
        }
        self.note_longest();
    }
    /// Keeps `log` from being begun again before one more release than it has runs.
    pub fn hold(&mut self, log: u32) {
        self.used[log as usize].live += 1;
    }
    /// Closes `log`: nothing fits into it any more.
    pub fn close(&mut self, log: u32) {
        self.set(log, UsedSpace { blocks: self.length, ..self.used(log) });
    }
    /// Sets what is used of `log` from now on.
    pub fn set(&mut self, log: u32, used: UsedSpace) {
        self.free = self.free + self.used(log).blocks - used.blocks;
        self.used[log as usize] = used;
        self.note_longest();
    }
}
