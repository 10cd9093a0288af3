//! Operations on files, with safe types: buffers go in and come out, and belong to the ring while
//! it works.

use super::kernel::{Call, LENGTH_MAX, Source, command_to};
use super::slots::{Owned, Parts, Slot, Waiter};
use super::{File, Ring};
use device::{Buffer, Durability};
use io_uring::squeue::Entry128;
use std::any::Any;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::rc::Rc;

/// Maximum number of parts in one write by Linux (UIO_MAXIOV).
const PARTS_MAX: usize = 1024;
/// Number of "again" results after which an operation fails.
const RETRIES_MAX: u32 = 1000;

/// A range of a shared buffer.
#[derive(Clone, Debug)]
pub struct Slice {
    pub buffer: Rc<Buffer>,
    pub range: Range<usize>,
}

impl Ring {
    /// Reads exactly `length` bytes (a multiple of 512) from byte `at` on; less is `UnexpectedEof`.
    pub async fn read(&self, file: &File, at: u64, length: usize) -> io::Result<Buffer> {
        // All of it is read, or there is an error.
        let mut buffer = Buffer::to_fill(length);
        let (mut done, mut retries) = (0, 0);
        while done < length {
            let wanted = (length - done).min(LENGTH_MAX) as u32;
            let start = buffer[done..].as_mut_ptr();
            let (at, number) = (at + done as u64, file.as_raw_fd());
            let call = Call::Read { file: number, start, length: wanted, at };
            // SAFETY: `start` lies in the buffer's heap memory with `wanted` bytes behind it; the
            // slot owns it.
            let operation = unsafe { self.start(call, Owned::Buffer(buffer), Some(file.clone())) };
            let (result, owned) = operation.await;
            let Owned::Buffer(back) = owned else { unreachable!("a read owns a buffer") };
            buffer = back;
            match check(result, &mut retries)? {
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(count) => done += count,
                None => {}
            }
        }
        Ok(buffer)
    }

    /// Reads once, at most `length` bytes, from something without positions: a pipe, a signalfd.
    pub async fn receive(&self, file: &File, length: usize) -> io::Result<Vec<u8>> {
        let mut retries = 0;
        loop {
            let mut buffer = Buffer::zeroed(length.next_multiple_of(512));
            let start = buffer.as_mut_ptr();
            let number = file.as_raw_fd();
            let call = Call::Receive { file: number, start, length: length as u32 };
            // SAFETY: `start` is the buffer's heap memory of at least `length` bytes; the slot owns
            // it.
            let operation = unsafe { self.start(call, Owned::Buffer(buffer), Some(file.clone())) };
            let (result, owned) = operation.await;
            let Owned::Buffer(buffer) = owned else { unreachable!("a read owns a buffer") };
            if let Some(count) = check(result, &mut retries)? {
                return Ok(buffer[..count.min(length)].to_vec());
            }
        }
    }

    /// Writes all of `bytes` to a stream socket. If its other end is gone: `BrokenPipe`, and no
    /// signal. One caller at a time, or the bytes of two are mixed.
    pub async fn send_all(&self, socket: &File, bytes: Vec<u8>) -> io::Result<()> {
        let (mut bytes, mut done, mut retries) = (bytes, 0, 0);
        while done < bytes.len() {
            let rest = &bytes[done..];
            let (start, length) = (rest.as_ptr(), rest.len().min(LENGTH_MAX) as u32);
            let call = Call::Send { file: socket.as_raw_fd(), start, length };
            // SAFETY: `start` lies in the vector's heap memory with `length` bytes behind it; the
            // slot owns it.
            let operation = unsafe { self.start(call, Owned::Bytes(bytes), Some(socket.clone())) };
            let (result, owned) = operation.await;
            let Owned::Bytes(back) = owned else { unreachable!("a send owns bytes") };
            bytes = back;
            done += check(result, &mut retries)?.unwrap_or(0);
        }
        Ok(())
    }

    /// Writes the parts one after the other from byte `at` on: one operation up to 1024 parts.
    /// `Durable` is RWF_DSYNC: FUA where the disk has it, else a flush after the write. Of files on
    /// some file systems, such as FUSE, that makes nothing durable: `disks::FileDisk` knows.
    pub async fn write(
        &self,
        file: &File,
        at: u64,
        parts: &[Rc<Buffer>],
        durability: Durability,
    ) -> io::Result<()> {
        let mut at = at;
        for group in parts.chunks(PARTS_MAX) {
            let length: usize = group.iter().map(|part| part.len()).sum();
            let (mut done, mut retries) = (0, 0);
            while done < length {
                let (source, parts) = gather(group, done);
                let (at, number) = (at + done as u64, file.as_raw_fd());
                let call = Call::Write { file: number, source, at, durability };
                // SAFETY: as `gather` promises: `source` points to what `parts` owns.
                let operation =
                    unsafe { self.start(call, Owned::Parts(parts), Some(file.clone())) };
                let (result, _) = operation.await;
                match check(result, &mut retries)? {
                    Some(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Some(count) => done += count,
                    None => {}
                }
            }
            at += length as u64;
        }
        Ok(())
    }

    /// Writes `head` and then `body` (at most 1023 slices) as one message without awaiting the
    /// result: for replies to `/dev/fuse`. A failure is counted
    /// ([`super::RingStatistics::failed_sends`]). `guard` is dropped with head and body, when the
    /// kernel has them.
    pub fn send(&self, file: &File, head: Vec<u8>, body: Vec<Slice>, guard: Option<Box<dyn Any>>) {
        assert!(body.len() < PARTS_MAX, "{} slices are too many for one message", body.len());
        let (source, owned) = if body.is_empty() {
            let source = Source::One { start: head.as_ptr(), length: head.len() as u32 };
            (source, Owned::Bytes(head))
        } else {
            let mut vectors = Vec::with_capacity(body.len() + 1);
            vectors.push(vector(&head));
            vectors.extend(body.iter().map(|slice| vector(&slice.buffer[slice.range.clone()])));
            let source = Source::Many { vectors: vectors.as_ptr(), count: vectors.len() as u32 };
            let buffers = body.into_iter().map(|slice| slice.buffer).collect();
            (source, Owned::Parts(Parts { head, buffers, vectors }))
        };
        let call = Call::Message { file: file.as_raw_fd(), source };
        let slot = Slot {
            waiter: Waiter::Nobody { counted: true },
            owned,
            file: Some(file.clone()),
            guard,
        };
        // SAFETY: head, slices and vector table are heap memory that the slot owns. Shared buffers
        // are only read, by the kernel and by all others (an `Rc` in the slot prevents changes in
        // place).
        unsafe { self.enqueue(call, slot) };
    }
}

impl Ring {
    /// Makes completed writes durable: `fdatasync`.
    pub async fn sync_data(&self, file: &File) -> io::Result<()> {
        let number = file.as_raw_fd();
        // SAFETY: a sync points to no memory.
        unsafe { self.repeat(file, || Call::SyncData { file: number }) }.await
    }

    /// Calls `fallocate`; `mode` consists of `libc::FALLOC_FL_*`.
    pub async fn allocate(&self, file: &File, mode: i32, at: u64, length: u64) -> io::Result<()> {
        let number = file.as_raw_fd();
        // SAFETY: fallocate points to no memory.
        unsafe { self.repeat(file, || Call::Allocate { file: number, mode, at, length }) }.await
    }

    /// Discards a range of a block device without blocking the thread. (Over a ring from Linux 6.12
    /// on; EOPNOTSUPP, EINVAL or ENOTTY before.)
    pub async fn discard(&self, device: &File, at: u64, length: u64) -> io::Result<()> {
        let number = device.as_raw_fd();
        // SAFETY: the call's numbers are positions on the device, not memory.
        unsafe { self.repeat(device, || Call::Discard { file: number, at, length }) }.await
    }

    /// # Safety
    /// The calls point to no memory.
    async unsafe fn repeat(&self, file: &File, call: impl Fn() -> Call) -> io::Result<()> {
        let mut retries = 0;
        loop {
            // SAFETY: as promised by the caller.
            let operation = unsafe { self.start(call(), Owned::Nothing, Some(file.clone())) };
            if check(operation.await.0, &mut retries)?.is_some() {
                return Ok(());
            }
        }
    }
}

/// Returns a command for a driver (IORING_OP_URING_CMD) with 80 bytes of its own; `address` and
/// `length` as the driver defines them. To be started with [`Ring::submit`].
pub fn command(
    file: &File,
    operation: u32,
    area: &[u8; 80],
    address: u64,
    length: u32,
) -> Entry128 {
    command_to(file.as_raw_fd(), operation, area, address, length)
}

/// Returns the bytes of `parts` without the first `done`, and the memory that they lie in.
fn gather(parts: &[Rc<Buffer>], done: usize) -> (Source, Parts) {
    let mut skip = done;
    let mut vectors = Vec::with_capacity(parts.len());
    for part in parts {
        let skipped = skip.min(part.len());
        skip -= skipped;
        if skipped < part.len() {
            vectors.push(vector(&part[skipped..]));
        }
    }
    let source = match vectors[..] {
        [single] if single.iov_len <= LENGTH_MAX => {
            Source::One { start: single.iov_base.cast(), length: single.iov_len as u32 }
        }
        _ => Source::Many { vectors: vectors.as_ptr(), count: vectors.len() as u32 },
    };
    (source, Parts { head: Vec::new(), buffers: parts.to_vec(), vectors })
}

fn vector(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// Checks a result; `None`: interrupted, to be tried again.
fn check(result: i32, retries: &mut u32) -> io::Result<Option<usize>> {
    match -result {
        ..=0 => Ok(Some(result as usize)),
        libc::EINTR | libc::EAGAIN if *retries < RETRIES_MAX => {
            *retries += 1;
            Ok(None)
        }
        code => Err(io::Error::from_raw_os_error(code)),
    }
}
