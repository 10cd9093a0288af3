//! Records that are being written: by log, in the order of their places.

use std::collections::BTreeMap;

#[derive(Default)]
pub struct InFlight {
    /// By log and position: whether it goes through the disk's cache.
    records: BTreeMap<(u32, u32), bool>,
}

impl InFlight {
    pub fn count(&self) -> usize {
        self.records.len()
    }
    pub fn is_in(&self, log: u32) -> bool {
        self.records.range((log, 0)..=(log, u32::MAX)).next().is_some()
    }
    pub fn begin(&mut self, log: u32, position: u32, cached: bool) {
        self.records.insert((log, position), cached);
    }
    pub fn end(&mut self, log: u32, position: u32) {
        self.records.remove(&(log, position));
    }
    /// Returns whether none before it in its log is in flight.
    pub fn is_first(&self, log: u32, position: u32) -> bool {
        self.records.range((log, 0)..(log, position)).next().is_none()
    }
    /// Returns whether a durable record after these of the log needs a flush.
    pub fn chains(&self, log: u32) -> bool {
        self.records.range((log, 0)..=(log, u32::MAX)).any(|(_, cached)| *cached)
    }
}
