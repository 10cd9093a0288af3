//! Writes to the log that are in flight, by their place: a disk may carry out in any order what it
//! was given at once.

use runtime::sync::Event;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

#[derive(Clone, Default)]
pub(crate) struct LogWrites(Rc<State>);

#[derive(Default)]
struct State {
    /// Bytes of the log's disk.
    in_flight: RefCell<Vec<Range<u64>>>,
    ended: Event,
}

/// A write in flight, until dropped.
pub(crate) struct LogWrite {
    of: LogWrites,
    bytes: Range<u64>,
}

impl LogWrites {
    pub fn begin(&self, bytes: Range<u64>) -> LogWrite {
        self.0.in_flight.borrow_mut().push(bytes.clone());
        LogWrite { of: self.clone(), bytes }
    }

    /// Waits until no write to these bytes is in flight.
    pub async fn until_none(&self, bytes: Range<u64>) {
        let meets = |other: &Range<u64>| other.start < bytes.end && bytes.start < other.end;
        let is_free = || !self.0.in_flight.borrow().iter().any(meets);
        self.0.ended.until(|| is_free().then_some(())).await;
    }
}

impl Drop for LogWrite {
    fn drop(&mut self) {
        let mut in_flight = self.of.0.in_flight.borrow_mut();
        let own = in_flight.iter().position(|bytes| *bytes == self.bytes);
        in_flight.swap_remove(own.expect("it was begun"));
        drop(in_flight);
        self.of.0.ended.notify();
    }
}
