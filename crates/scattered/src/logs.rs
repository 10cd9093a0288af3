//! One scattered log: how far it is filled, and what of it is still needed.
//!
//! Invariants: records follow each other from the begin to `fill`; `live` counts the table's
//! entries that lie here and are not clean. A log is overwritten from its begin only in a new
//! epoch, after a snapshot without its records is durable and no read of it is in flight.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    pub epoch: u32,
    /// Blocks that records take.
    pub fill: u32,
    /// Tag of the last record; 0 in an empty log.
    pub tag: u64,
    pub live: u32,
    /// Reads in flight.
    pub readers: u32,
    /// A snapshot that empties it is being written.
    pub closing: bool,
    /// A near-head record went here since the log was last emptied or swapped.
    pub hot: bool,
    /// Time of the last record, in nanoseconds of the world.
    pub used: u64,
}

impl Log {
    /// Empty, with everything that lies in it forgotten.
    pub fn next_life(&self) -> Log {
        Log { epoch: self.epoch.wrapping_add(1), ..Log::default() }
    }
    /// Blocks that a record may take.
    pub fn free_blocks(&self, log_blocks: u32) -> u32 {
        let resting = self.closing || (self.fill == 0 && self.readers > 0);
        if resting { 0 } else { log_blocks.saturating_sub(self.fill) }
    }
}
