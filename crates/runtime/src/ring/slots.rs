//! Table of operations in flight: the memory each owns, and the task that waits for it.

use device::Buffer;
use std::any::Any;
use std::rc::Rc;
use std::task::Waker;

use super::File;

/// Memory that the kernel may read or write until the operation's last completion. All of it lives
/// on the heap, so moving an `Owned` moves no byte that the kernel accesses.
pub(super) enum Owned {
    Nothing,
    Bytes(Vec<u8>),
    Buffer(Buffer),
    Parts(#[expect(dead_code, reason = "kept for the kernel")] Parts),
    Any(#[expect(dead_code, reason = "kept for the kernel")] Box<dyn Any>),
}

#[expect(dead_code, reason = "kept for the kernel")]
/// A gathered write: the vector table and the buffers it points to.
pub(super) struct Parts {
    pub head: Vec<u8>,
    pub buffers: Vec<Rc<Buffer>>,
    pub vectors: Vec<libc::iovec>,
}

pub(super) enum Waiter {
    /// A future, which may not have been polled yet.
    Task(Option<Waker>),
    /// Done; the future has not yet fetched the result.
    Done(i32),
    /// The future was dropped, or there never was one; an error is counted if `counted`.
    Nobody { counted: bool },
    /// A multishot operation: results gathered since the last look, the errors first.
    Stream { events: u32, error: i32, ended: bool, waker: Option<Waker> },
}

pub(super) struct Slot {
    pub waiter: Waiter,
    pub owned: Owned,
    /// File kept open so that its number is not reused before the kernel has looked at it.
    #[expect(dead_code, reason = "kept for the kernel")]
    pub file: Option<File>,
    /// Value dropped with the operation's memory.
    #[expect(dead_code, reason = "its end says that the memory is free")]
    pub guard: Option<Box<dyn Any>>,
}

/// Slots of operations, numbered; the number is the operation's `user_data` and is free again after
/// its last completion was fetched.
#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    pub running: usize,
}

impl Slots {
    pub fn insert(&mut self, slot: Slot) -> u32 {
        self.running += 1;
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = Some(slot);
                index
            }
            None => {
                self.slots.push(Some(slot));
                (self.slots.len() - 1) as u32
            }
        }
    }
    pub fn get(&mut self, index: u32) -> &mut Slot {
        self.slots[index as usize].as_mut().expect("an operation that is in flight")
    }
    pub fn remove(&mut self, index: u32) -> Slot {
        self.free.push(index);
        self.slots[index as usize].take().expect("an operation that is in flight")
    }
    /// Takes all remaining slots, for the ring's end.
    pub fn take_all(&mut self) -> Vec<Slot> {
        self.free.clear();
        std::mem::take(&mut self.slots).into_iter().flatten().collect()
    }
}
