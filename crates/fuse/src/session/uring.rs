//! FUSE over io_uring: each entry is a loop of its own that fetches a request, answers it with the same
//! command that asks for the next, and lives until the connection ends.
//!
//! 1. The kernel takes the ring into use when every possible processor's queue has an entry; until then, and
//!    always for FORGET and INTERRUPT, requests come by the classic channel.
//! 2. An entry's buffers belong to the kernel while a command is under way, and to us between its completion
//!    and the next command. The command under way holds a reference to them.

use super::{MAX_WRITE, Session};
use crate::abi::{
    InHeader, URING_COMMIT_AND_FETCH, URING_REGISTER, UringCommand, UringEntryInOut, UringHeaders,
};
use crate::{Answer, FileSystem, Request};
use device::World;
use runtime::command;
use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::rc::Rc;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Entries of one queue. When more requests wait, they wait in the kernel.
const QUEUE_DEPTH: usize = 128;
/// The area that a command has for itself.
const AREA: usize = 80;

/// The buffers of one entry. Payload memory that no request ever reached is never backed by pages.
struct Entry {
    queue: u16,
    headers: UnsafeCell<UringHeaders>,
    payload: Box<UnsafeCell<[u8]>>,
    /// What REGISTER points to: the two buffers above.
    vectors: UnsafeCell<[libc::iovec; 2]>,
}

impl Entry {
    fn new(queue: u16) -> Rc<Entry> {
        let payload = <[u8]>::new_box_zeroed_with_elems(MAX_WRITE as usize).expect("memory for a payload");
        let entry = Rc::new(Entry {
            queue,
            headers: UnsafeCell::new(UringHeaders::new_zeroed()),
            // SAFETY: UnsafeCell has the layout of what it holds.
            payload: unsafe { Box::from_raw(Box::into_raw(payload) as *mut UnsafeCell<[u8]>) },
            vectors: UnsafeCell::new([libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 2]),
        });
        // SAFETY: nobody else knows the entry yet.
        unsafe {
            *entry.vectors.get() = [
                libc::iovec { iov_base: entry.headers.get().cast(), iov_len: size_of::<UringHeaders>() },
                libc::iovec { iov_base: entry.payload.get().cast(), iov_len: MAX_WRITE as usize },
            ];
        }
        entry
    }

    /// # Safety
    /// No command of this entry may be under way.
    unsafe fn request(&self) -> (u64, Option<Request>) {
        // SAFETY: the buffers are ours now, as the caller promises, and this thread makes no other reference.
        let (headers, payload) = unsafe { (&*self.headers.get(), &*self.payload.get()) };
        let parse = || {
            let (header, _) = InHeader::read_from_prefix(&headers.in_out).ok()?;
            let payload = payload.get(..headers.entry.payload_size as usize)?;
            Request::from_parts(header, &headers.op_in, payload).ok()
        };
        (headers.entry.commit_id, parse())
    }

    /// # Safety
    /// No command of this entry may be under way.
    unsafe fn put(&self, unique: u64, answer: Answer) {
        // SAFETY: as in `request`.
        let (headers, payload) = unsafe { (&mut *self.headers.get(), &mut *self.payload.get()) };
        let (header, length) = answer.copy_to(unique, payload).unwrap_or_else(|| {
            Answer::error(libc::EIO).copy_to(unique, &mut []).expect("an error has no payload")
        });
        headers.in_out[..size_of_val(&header)].copy_from_slice(header.as_bytes());
        headers.entry = UringEntryInOut { payload_size: length as u32, ..headers.entry };
    }
}

impl<F: FileSystem> Session<F> {
    /// Gives the kernel all entries. INIT has been answered.
    pub(super) fn start_ring(self: &Rc<Self>) {
        for queue in 0..self.processors {
            for _ in 0..QUEUE_DEPTH {
                let session = self.clone();
                self.world.spawn(Box::pin(async move { session.serve_entry(Entry::new(queue)).await }));
            }
        }
    }

    /// Until the kernel takes the entry no more (ENOTCONN after unmounting), or the session is told to stop.
    async fn serve_entry(self: Rc<Self>, entry: Rc<Entry>) {
        let mut result = self.run_command(&entry, URING_REGISTER, 0).await;
        if result < 0 && result != -libc::ENOTCONN {
            // The kernel serves nobody before all entries are there (`fuse_block_alloc`): better no mount than
            // one that hangs. Seen when `fuse.enable_uring` was switched off after INIT.
            self.ring_refused.set(true);
            self.stop();
        }
        // A request that comes after the stop stays where it is: the connection's end answers it.
        while result >= 0 && !self.stopping.get() {
            self.note(|statistics| statistics.ring_requests += 1);
            // SAFETY: the command has completed.
            let (commit_id, request) = unsafe { entry.request() };
            let unique = request.as_ref().map_or(0, |request| request.header.unique);
            let answer = match request {
                Some(request) => {
                    self.count_in();
                    self.answer(request).await
                }
                None => Answer::error(libc::EINVAL),
            };
            // SAFETY: the next command comes after this.
            unsafe { entry.put(unique, answer) };
            result = self.run_command(&entry, URING_COMMIT_AND_FETCH, commit_id).await;
        }
    }

    async fn run_command(&self, entry: &Rc<Entry>, operation: u32, commit_id: u64) -> i32 {
        let mut area = [0; AREA];
        let own = UringCommand { commit_id, qid: entry.queue, ..Default::default() };
        area[..size_of_val(&own)].copy_from_slice(own.as_bytes());
        let (address, length) = match operation {
            URING_REGISTER => (entry.vectors.get() as u64, 2),
            _ => (0, 0),
        };
        let command = command(self.classic.file(), operation, &area, address, length);
        // SAFETY: vectors and buffers live as long as the entry, of which the ring now holds a reference; they
        // are not looked at before completion. The session keeps the file open.
        unsafe { self.world.ring().submit(command, Box::new(entry.clone())) }.await
    }
}

const _: () = assert!(offset_of!(UringHeaders, entry) == 256);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{OutHeader, opcode};

    #[test]
    fn a_request_is_read_from_an_entry_and_its_answer_put_there() {
        let entry = Entry::new(0);
        let header = InHeader { opcode: opcode::LOOKUP, unique: 7, ..Default::default() };
        // SAFETY: no command is under way.
        unsafe {
            let headers = &mut *entry.headers.get();
            headers.in_out[..40].copy_from_slice(header.as_bytes());
            headers.entry = UringEntryInOut { commit_id: 9, payload_size: 5, ..Default::default() };
            (&mut *entry.payload.get())[..5].copy_from_slice(b"name\0");
            let (commit_id, request) = entry.request();
            assert_eq!((commit_id, request.unwrap().header.unique), (9, 7));
            entry.put(7, Answer::bytes(b"answer"));
            let headers = &*entry.headers.get();
            assert_eq!(OutHeader::read_from_prefix(&headers.in_out).unwrap().0.len, 22);
            assert_eq!((headers.entry.payload_size, &(&*entry.payload.get())[..6]), (6, &b"answer"[..]));
            // Nonsense from the kernel's side is no reason to stop.
            (&mut *entry.headers.get()).entry.payload_size = u32::MAX;
            assert!(entry.request().1.is_none());
        }
    }
}
