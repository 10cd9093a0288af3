//! The limit of the memory that requests in flight may hold: their own bytes, and the largest
//! possible replies.
//!
//! No more requests are taken from the kernel than fit the limit; the rest waits there, in the
//! memory of the callers. No request in flight waits for one that is not yet taken, so that memory
//! is always returned.
//!
//! The C library keeps what a burst leaves free within the heap, unless it is asked to return it.

use super::MAX_WRITE;
use crate::{Operation, Request};
use runtime::sync::Event;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Bytes: thousands of small requests, or sixty of the largest.
const MEMORY_MAX: usize = 64 << 20;
/// Cost of a request besides its bytes: its task and what the file system keeps for it.
const OVERHEAD: usize = 4 << 10;
/// Bytes of requests, at once or one after another, after which returning memory is worthwhile.
const BURST: usize = 16 << 20;
/// Time after the start of a burst when the heap returns what is free. It does so again after each
/// such time while the burst lasts, and once no request has come for that time.
pub(super) const GIVE_BACK_AFTER: Duration = Duration::from_secs(1);
/// Maximum memory cost of a request, in bytes.
const LARGEST: usize = MAX_WRITE as usize + 4096 + OVERHEAD;

#[derive(Default)]
pub(super) struct RequestMemory {
    used: Cell<usize>,
    changed: Event,
    /// Bytes of requests since the last [`RequestMemory::give_back`].
    taken: Cell<usize>,
    /// Whether more than a burst was held at once since then.
    burst: Cell<bool>,
    /// Whether a task is about to return what the heap keeps.
    giving_back: Cell<bool>,
}

/// A request's share of the memory, returned when dropped.
pub(super) struct Share {
    memory: Rc<RequestMemory>,
    size: usize,
}

impl RequestMemory {
    pub fn is_left(&self) -> bool {
        self.used.get() + LARGEST <= MEMORY_MAX
    }
    /// Waits until one more request may be taken, whatever it is.
    pub async fn until_left(&self) {
        self.changed.until(|| self.is_left().then_some(())).await
    }
    pub fn take(self: &Rc<Self>, request: &Request) -> Share {
        let size = cost(request).min(LARGEST);
        self.used.set(self.used.get() + size);
        self.taken.set(self.taken.get() + size);
        self.burst.set(self.burst.get() || self.is_burst());
        Share { memory: self.clone(), size }
    }
    fn is_burst(&self) -> bool {
        self.used.get() > BURST
    }
    /// Returns whether enough requests have come. The caller then calls
    /// [`RequestMemory::give_back`] repeatedly, until it returns true.
    pub fn is_worth_giving_back(&self) -> bool {
        self.taken.get() > BURST && !self.giving_back.replace(true)
    }
    /// Searches the heap for free pages only when no request waits for it, or when a burst left
    /// many.
    pub fn give_back(&self) -> bool {
        let quiet = self.taken.replace(0) == 0;
        if self.burst.replace(self.is_burst()) || quiet {
            // SAFETY: takes no memory that is in use.
            #[cfg(target_env = "gnu")]
            unsafe {
                libc::malloc_trim(0);
            }
        }
        let over = quiet && !self.is_burst();
        self.giving_back.set(!over);
        over
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let was_full = !self.memory.is_left();
        self.memory.used.set(self.memory.used.get() - self.size);
        if was_full && self.memory.is_left() {
            self.memory.changed.notify();
        }
    }
}

fn cost(request: &Request) -> usize {
    let reply = match request.operation() {
        Ok(Operation::Read(arguments)) => arguments.size,
        Ok(Operation::Readdir(arguments) | Operation::Readdirplus(arguments)) => arguments.size,
        Ok(Operation::Getxattr { size, .. } | Operation::Listxattr { size }) => size,
        // A piece as it was read, and a copy that is being written.
        Ok(Operation::CopyFileRange(arguments)) => {
            return OVERHEAD
                + request.held()
                + 2 * arguments.length.min(u64::from(MAX_WRITE)) as usize;
        }
        _ => 0,
    };
    OVERHEAD + request.held() + reply.min(MAX_WRITE) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{InHeader, ReadIn, opcode};
    use zerocopy::IntoBytes;

    fn read_of(size: u32) -> Request {
        let arguments = ReadIn { size, ..Default::default() };
        let header = InHeader { len: 80, opcode: opcode::READ, ..Default::default() };
        Request::from_message(&[header.as_bytes(), arguments.as_bytes()].concat()).unwrap()
    }

    #[test]
    fn memory_stays_within_its_limit_and_is_returned() {
        let memory = Rc::<RequestMemory>::default();
        let mut shares = Vec::new();
        while memory.is_left() {
            shares.push(memory.take(&read_of(u32::MAX)));
        }
        assert!(memory.used.get() <= MEMORY_MAX && shares.len() > 50, "{} requests", shares.len());
        shares.pop();
        assert!(memory.is_left());
        drop(shares);
        assert_eq!(memory.used.get(), 0);
    }

    #[test]
    fn thousands_of_small_requests_fit_the_limit() {
        let memory = Rc::<RequestMemory>::default();
        let shares: Vec<_> = (0..10_000).map(|_| memory.take(&read_of(100))).collect();
        assert!(memory.is_left(), "{} requests take {} bytes", shares.len(), memory.used.get());
    }

    #[test]
    fn the_heap_is_trimmed_after_many_small_requests() {
        let memory = Rc::<RequestMemory>::default();
        assert!(!memory.is_worth_giving_back(), "nothing has come");
        while !memory.is_worth_giving_back() {
            drop(memory.take(&read_of(100)));
        }
        assert!(!memory.give_back(), "some came since");
        drop(memory.take(&read_of(100)));
        assert!(
            !memory.is_worth_giving_back() && !memory.give_back(),
            "a check is already scheduled"
        );
        assert!(memory.give_back(), "none came");
        assert!(!memory.is_worth_giving_back(), "nothing has come");
    }
}
