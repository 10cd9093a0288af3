//! FUSE over io_uring. Each entry is its own loop, which lives until the connection ends. It
//! fetches a request, and replies to it with the same command that asks for the next.
//!
//! 1. The kernel uses the ring when every possible processor's queue has an entry. Until then, and
//!    always for FORGET and INTERRUPT, requests come by the classic channel.
//! 2. An entry's buffers belong to the kernel while a command is in flight, and to us between its
//!    completion and the next command. The command in flight holds a reference to them.
//! 3. A long request is read where the kernel put it: its payload is lent until its reply is
//!    there. Only the file system copies it.

use super::Session;
use super::payloads::{PAYLOAD, Payloads, queue_depths};
use crate::abi::{
    InHeader, URING_COMMIT_AND_FETCH, URING_REGISTER, UringCommand, UringEntryInOut, UringHeaders,
    opcode,
};
use crate::request::Lent;
use crate::ring_queue::RingQueue;
use crate::{FileSystem, Reply, Request};
use device::World;
use runtime::command;
use std::cell::{Cell, UnsafeCell};
use std::io;
use std::mem::offset_of;
use std::ops::Deref;
use std::rc::Rc;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Length, in bytes, from which a payload is lent and not copied.
const LENT_MIN: usize = 4096;

/// Length of the area of a command.
const AREA: usize = 80;

/// The entries for the kernel, queue after queue. Made before the kernel accepts the ring: after
/// that, lack of memory cannot make anything fail.
pub(super) struct Entries(Vec<Rc<Entry>>);

impl Entries {
    pub fn new(processors: u16) -> io::Result<Entries> {
        let depths = queue_depths(processors);
        let payloads = Rc::new(Payloads::map(depths.iter().sum())?);
        let places = depths.iter().enumerate().flat_map(|(number, depth)| {
            let queue = RingQueue::new(number as u16, *depth);
            (0..*depth).map(move |at| (queue.clone(), at))
        });
        let entry = |(index, (queue, at))| Entry::new(queue, at == 0, payloads.clone(), index);
        Ok(Entries(places.enumerate().map(entry).collect()))
    }
}

/// The buffers of one entry.
struct Entry {
    queue: Rc<RingQueue>,
    /// Whether it is the queue's first, which must not be missing.
    is_first: bool,
    headers: UnsafeCell<UringHeaders>,
    payloads: Rc<Payloads>,
    /// Index of its payload; below, how much of that was used.
    index: usize,
    reached: Cell<usize>,
    /// Whether a request reads it.
    is_lent: Cell<bool>,
    /// The two buffers to which REGISTER points.
    vectors: UnsafeCell<[libc::iovec; 2]>,
}

impl Entry {
    fn new(
        queue: Rc<RingQueue>,
        is_first: bool,
        payloads: Rc<Payloads>,
        index: usize,
    ) -> Rc<Entry> {
        let entry = Rc::new(Entry {
            queue,
            is_first,
            headers: UnsafeCell::new(UringHeaders::new_zeroed()),
            payloads,
            index,
            reached: Cell::new(0),
            is_lent: Cell::new(false),
            vectors: UnsafeCell::new(
                [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 2],
            ),
        });
        // SAFETY: nobody else knows the entry yet.
        unsafe {
            *entry.vectors.get() = [
                libc::iovec {
                    iov_base: entry.headers.get().cast(),
                    iov_len: size_of::<UringHeaders>(),
                },
                libc::iovec { iov_base: entry.payloads.at(index).cast(), iov_len: PAYLOAD },
            ];
        }
        entry
    }

    /// # Safety
    /// No command of this entry may be in flight, and no other reference to the payload may live.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that it is the only one")]
    unsafe fn payload(&self) -> &mut [u8] {
        // SAFETY: the mapping lives as long as the entry, and this part of it belongs to the entry
        // alone.
        unsafe { std::slice::from_raw_parts_mut(self.payloads.at(self.index), PAYLOAD) }
    }

    /// Returns the request that the kernel put here: copied, or its payload lent.
    ///
    /// # Safety
    /// No command of this entry may be in flight, nor may one be issued before [`Entry::put`].
    unsafe fn request(self: &Rc<Self>) -> (u64, Option<Request>) {
        // SAFETY: the buffers are ours now, as the caller promises, and this thread makes no other
        // reference.
        let headers = unsafe { &*self.headers.get() };
        let length = headers.entry.payload_size as usize;
        self.payloads.note(&self.reached, PAYLOAD.min(length));
        let parse = || {
            let (header, _) = InHeader::read_from_prefix(&headers.in_out).ok()?;
            if (LENT_MIN..=PAYLOAD).contains(&length) {
                return Request::from_lent(
                    header,
                    &headers.op_in,
                    Rc::new(LentPayload::new(self, length)),
                )
                .ok();
            }
            // SAFETY: as above; the reference ends here.
            let payload = unsafe { &*self.payload() }.get(..length)?;
            Request::from_parts(header, &headers.op_in, payload).ok()
        };
        let request = parse().map(|request| request.in_queue(self.queue.clone()));
        (headers.entry.commit_id, request)
    }

    /// # Safety
    /// No command of this entry may be in flight.
    unsafe fn put(&self, unique: u64, reply: Reply) {
        // Otherwise two references to one memory would follow.
        assert!(!self.is_lent.get(), "a request is dropped before it is answered");
        // SAFETY: the request is done, and nobody needs what it held.
        unsafe { self.payloads.give_back(self.index, &self.reached) };
        // SAFETY: as in `request`; nothing is lent.
        let (headers, payload) = unsafe { (&mut *self.headers.get(), self.payload()) };
        let (header, length) = reply.copy_to(unique, payload).unwrap_or_else(|| {
            Reply::error(libc::EIO).copy_to(unique, &mut []).expect("an error has no payload")
        });
        self.payloads.note(&self.reached, length);
        headers.in_out[..size_of_val(&header)].copy_from_slice(header.as_bytes());
        headers.entry = UringEntryInOut { payload_size: length as u32, ..headers.entry };
    }
}

/// The beginning of an entry's payload, as long as its request lives.
struct LentPayload {
    entry: Rc<Entry>,
    length: usize,
}

impl LentPayload {
    fn new(entry: &Rc<Entry>, length: usize) -> LentPayload {
        assert!(length <= PAYLOAD && !entry.is_lent.replace(true), "one request at a time");
        LentPayload { entry: entry.clone(), length }
    }
}

impl Deref for LentPayload {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping lives as long as the entry, and has that length. Nothing writes
        // there: no command is issued before `put`, and `put` not before this is dropped.
        unsafe { std::slice::from_raw_parts(self.entry.payloads.at(self.entry.index), self.length) }
    }
}
impl std::fmt::Debug for LentPayload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LentPayload({} bytes)", self.length)
    }
}
impl Drop for LentPayload {
    fn drop(&mut self) {
        self.entry.is_lent.set(false);
    }
}
impl Lent for LentPayload {}

impl<F: FileSystem> Session<F> {
    /// Gives the kernel all entries, after INIT has been answered.
    pub(super) fn start_ring(self: &Rc<Self>, entries: Entries) {
        for entry in entries.0 {
            let session = self.clone();
            self.world.spawn(Box::pin(async move { session.serve_entry(entry).await }));
        }
    }

    /// Serves an entry until the kernel no longer takes it (ENOTCONN after unmounting), or the
    /// session is stopped.
    async fn serve_entry(self: Rc<Self>, entry: Rc<Entry>) {
        let mut result = self.run_command(&entry, URING_REGISTER, 0).await;
        if result < 0 && result != -libc::ENOTCONN && entry.is_first {
            // The kernel serves nobody before every queue has an entry (`fuse_block_alloc`): better
            // no mount than one that hangs. Seen when `fuse.enable_uring` was switched off after
            // INIT.
            self.ring_refused.set(true);
            self.stop();
        }
        while result >= 0 {
            self.note(|statistics| statistics.ring_requests += 1);
            // The kernel sent it unasked; it waits in its payload.
            self.memory.until_left().await;
            // SAFETY: the command has completed, and the next one comes after `put`.
            let (commit_id, request) = unsafe { entry.request() };
            let unique = request.as_ref().map_or(0, |request| request.header.unique);
            let reply = match request {
                // Its reply says that everything is written back: the connection's end is it.
                Some(request)
                    if self.stopping.get() && request.header.opcode == opcode::DESTROY =>
                {
                    return;
                }
                // The caller of a request that was taken could not be killed.
                Some(_) if self.stopping.get() => Reply::error(libc::ENOTCONN),
                Some(request) => {
                    let _share = self.reserve_memory(&request);
                    self.count_in();
                    self.reply(request).await
                }
                None => Reply::error(libc::EINVAL),
            };
            // SAFETY: the next command comes after this.
            unsafe { entry.put(unique, reply) };
            result = self.run_command(&entry, URING_COMMIT_AND_FETCH, commit_id).await;
        }
    }

    async fn run_command(&self, entry: &Rc<Entry>, operation: u32, commit_id: u64) -> i32 {
        let mut area = [0; AREA];
        let own = UringCommand { commit_id, qid: entry.queue.number, ..Default::default() };
        area[..size_of_val(&own)].copy_from_slice(own.as_bytes());
        let (address, length) = match operation {
            URING_REGISTER => (entry.vectors.get() as u64, 2),
            _ => (0, 0),
        };
        let command = command(self.classic.file(), operation, &area, address, length);
        // SAFETY: vectors and buffers live as long as the entry, to which the ring now holds a
        // reference; they are not read before completion. The session keeps the file open.
        unsafe { self.world.ring().submit(command, Box::new(entry.clone())) }.await
    }
}

const _: () = assert!(offset_of!(UringHeaders, entry) == 256);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Operation;
    use crate::abi::{OutHeader, WriteIn, opcode};

    #[test]
    fn a_request_is_read_from_an_entry_and_its_reply_put_there() {
        let entry = Entry::new(RingQueue::new(0, 4), true, Rc::new(Payloads::map(2).unwrap()), 1);
        let header = InHeader { opcode: opcode::LOOKUP, unique: 7, ..Default::default() };
        // SAFETY: no command is in flight.
        unsafe {
            let headers = &mut *entry.headers.get();
            headers.in_out[..40].copy_from_slice(header.as_bytes());
            headers.entry = UringEntryInOut { commit_id: 9, payload_size: 5, ..Default::default() };
            entry.payload()[..5].copy_from_slice(b"name\0");
            let (commit_id, request) = entry.request();
            assert_eq!((commit_id, request.unwrap().header.unique), (9, 7));
            entry.put(7, Reply::bytes(b"answer"));
            let headers = &*entry.headers.get();
            assert_eq!(OutHeader::read_from_prefix(&headers.in_out).unwrap().0.len, 22);
            assert_eq!((headers.entry.payload_size, &entry.payload()[..6]), (6, &b"answer"[..]));
            // A long one is not copied.
            let write = WriteIn { size: 5000, ..Default::default() };
            let header = InHeader { opcode: opcode::WRITE, unique: 8, ..Default::default() };
            let headers = &mut *entry.headers.get();
            headers.in_out[..40].copy_from_slice(header.as_bytes());
            headers.op_in[..40].copy_from_slice(write.as_bytes());
            headers.entry.payload_size = 5000;
            entry.payload()[..5000].fill(7);
            let request = entry.request().1.unwrap();
            let Ok(Operation::Write { data, .. }) = request.operation() else {
                panic!("{request:?}")
            };
            assert!(
                data == [7; 5000] && data.as_ptr() == entry.payloads.at(1) && entry.is_lent.get()
            );
            drop(request);
            entry.put(8, Reply::empty());
            // Nonsense from the kernel must not stop the session.
            (&mut *entry.headers.get()).entry.payload_size = u32::MAX;
            assert!(entry.request().1.is_none());
        }
    }
}
