//! How much memory requests under way may hold: what they bring, and what their answers may grow
//! to.
//!
//! No more is taken from the kernel than there is room for; the rest waits there, in the memory of
//! those who ask. No request under way waits for one that is not yet taken, so that room always
//! comes back.
//!
//! The C library keeps what a burst leaves free within the heap, unless it is told to give it back.

use super::MAX_WRITE;
use crate::{Operation, Request};
use runtime::sync::Event;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Thousands of small requests, or sixty of the largest. In bytes.
const ROOM: usize = 64 << 20;
/// What a request costs besides its bytes: its task and what the volume keeps while it works on it.
const OVERHEAD: usize = 4 << 10;
/// What more requests leave behind, at once or one after another, is worth giving back. In bytes.
const BURST: usize = 16 << 20;
/// So long after a burst began the heap gives back what is free. It does so again after each such
/// time while it lasts, and once nothing has come for so long.
pub(super) const GIVE_BACK_AFTER: Duration = Duration::from_secs(1);
/// No request costs more than this.
const LARGEST: usize = MAX_WRITE as usize + 4096 + OVERHEAD;

#[derive(Default)]
pub(super) struct Room {
    used: Cell<usize>,
    changed: Event,
    /// What has come since the last [`Room::give_back`].
    taken: Cell<usize>,
    /// More than a burst was held at once since then.
    burst: Cell<bool>,
    /// Someone is about to give back what the heap keeps.
    giving_back: Cell<bool>,
}

/// A request's share, given back when dropped.
pub(super) struct Share {
    room: Rc<Room>,
    size: usize,
}

impl Room {
    pub fn is_left(&self) -> bool {
        self.used.get() + LARGEST <= ROOM
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
        Share { room: self.clone(), size }
    }
    fn is_burst(&self) -> bool {
        self.used.get() > BURST
    }
    /// Enough has come. Whoever is told so calls [`Room::give_back`] again and again, until that
    /// says that it is over.
    pub fn is_worth_giving_back(&self) -> bool {
        self.taken.get() > BURST && !self.giving_back.replace(true)
    }
    /// Looks for free pages of the heap only where it costs nobody time, or where a burst left
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
        let was_full = !self.room.is_left();
        self.room.used.set(self.room.used.get() - self.size);
        if was_full && self.room.is_left() {
            self.room.changed.notify();
        }
    }
}

fn cost(request: &Request) -> usize {
    let answer = match request.operation() {
        Ok(Operation::Read(arguments)) => arguments.size,
        Ok(Operation::Readdir(arguments) | Operation::Readdirplus(arguments)) => arguments.size,
        Ok(Operation::Getxattr { size, .. } | Operation::Listxattr { size }) => size,
        // A piece as it was read, and once more on its way to be written.
        Ok(Operation::CopyFileRange(arguments)) => {
            return OVERHEAD
                + request.held()
                + 2 * arguments.length.min(u64::from(MAX_WRITE)) as usize;
        }
        _ => 0,
    };
    OVERHEAD + request.held() + answer.min(MAX_WRITE) as usize
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
    fn room_ends_before_its_limit_and_comes_back() {
        let room = Rc::<Room>::default();
        let mut shares = Vec::new();
        while room.is_left() {
            shares.push(room.take(&read_of(u32::MAX)));
        }
        assert!(room.used.get() <= ROOM && shares.len() > 50, "{} requests", shares.len());
        shares.pop();
        assert!(room.is_left());
        drop(shares);
        assert_eq!(room.used.get(), 0);
    }

    #[test]
    fn small_requests_find_room_by_the_thousand() {
        let room = Rc::<Room>::default();
        let shares: Vec<_> = (0..10_000).map(|_| room.take(&read_of(100))).collect();
        assert!(room.is_left(), "{} requests take {} bytes", shares.len(), room.used.get());
    }

    #[test]
    fn after_many_small_requests_the_heap_is_looked_at_once_they_have_ended() {
        let room = Rc::<Room>::default();
        assert!(!room.is_worth_giving_back(), "nothing has come");
        while !room.is_worth_giving_back() {
            drop(room.take(&read_of(100)));
        }
        assert!(!room.give_back(), "some came since");
        drop(room.take(&read_of(100)));
        assert!(!room.is_worth_giving_back() && !room.give_back(), "somebody looks already");
        assert!(room.give_back(), "none came");
        assert!(!room.is_worth_giving_back(), "nothing has come");
    }
}
