//! The ring entries of one processor, and how many of them requests occupy that wait for others.
//!
//! The kernel puts a request into the queue of the processor that its caller runs on, and no other.
//! A request that waits for another one, such as for a lock, occupies its entry. If all entries
//! waited, the request that ends the wait would never be read: a quarter of them stays free.

use std::cell::Cell;
use std::rc::Rc;

#[derive(Debug)]
pub(crate) struct RingQueue {
    pub number: u16,
    entries: usize,
    waiting: Cell<usize>,
}

/// The permission of a request to wait for another request, until it is dropped.
#[derive(Debug)]
pub struct WaitPermit(Option<Rc<RingQueue>>);

impl RingQueue {
    pub fn new(number: u16, entries: usize) -> Rc<RingQueue> {
        Rc::new(RingQueue { number, entries, waiting: Cell::new(0) })
    }
    fn waiting_max(&self) -> usize {
        match units::fault!("ring-waits-fill-queue") {
            true => self.entries,
            false => self.entries * 3 / 4,
        }
    }
    pub fn begin_wait(self: &Rc<Self>) -> Option<WaitPermit> {
        let waiting = self.waiting.get();
        if waiting >= self.waiting_max() {
            return None;
        }
        self.waiting.set(waiting + 1);
        Some(WaitPermit(Some(self.clone())))
    }
}

impl WaitPermit {
    /// The permission of a request that occupies no entry.
    pub(crate) fn unlimited() -> WaitPermit {
        WaitPermit(None)
    }
}
impl Drop for WaitPermit {
    fn drop(&mut self) {
        if let Some(queue) = &self.0 {
            queue.waiting.set(queue.waiting.get() - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_a_queue_stays_free() {
        for (entries, most) in [(1, 0), (2, 1), (4, 3), (64, 48)] {
            let queue = RingQueue::new(0, entries);
            let mut permits: Vec<_> = std::iter::from_fn(|| queue.begin_wait()).collect();
            assert_eq!(permits.len(), most, "{entries} entries");
            if permits.pop().is_some() {
                assert!(queue.begin_wait().is_some(), "a wait has ended");
            }
        }
    }
}
