//! Calls over an io_uring (Linux 5.19).

use super::call::{Call, Completion, LENGTH_MAX, Source};
use super::is_passing;
use crate::ring::UNOBSERVED;
use device::Durability;
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use std::io;
use std::time::{Duration, Instant};

/// Submissions gathered before the kernel is called, and completions it may pile up.
const SUBMISSIONS: u32 = 4096;
const COMPLETIONS: u32 = 16384;
/// Kernel threads for operations that would block: fsync, fallocate, buffered reads and writes of
/// files (bounded), all else (unbounded). Reads that never return, as of a file whose server is
/// gone, must not take all of the former from the syncs of other files.
const WORKERS: [u32; 2] = [64, 4];
/// `_IO(0x12, 0)` of linux/blkdev.h: BLOCK_URING_CMD_DISCARD.
const DISCARD: u32 = 0x12 << 8;

pub(in crate::ring) struct Uring(IoUring<Entry128, cqueue::Entry>);

impl Uring {
    /// # Errors
    /// The kernel's, of io_uring_setup or of a first io_uring_enter.
    pub fn new() -> io::Result<Uring> {
        let ring = build(true).or_else(|error| match error.raw_os_error() {
            // Kernels before 6.1 do not know deferred task work.
            Some(libc::EINVAL) => build(false),
            _ => Err(error),
        })?;
        // Only a bound: a kernel that refuses it works all the same.
        let _ = ring.submitter().register_iowq_max_workers(&mut WORKERS.clone());
        // Likewise: saves the kernel a look-up of the ring's file at each call.
        let _ = ring.submitter().register_ring_fd();
        let mut uring = Uring(ring);
        // A filter may allow the one call and refuse the other.
        uring.look()?;
        Ok(uring)
    }

    /// Queues a call; false if the queue is full: then [`Uring::submit`] comes first.
    ///
    /// # Safety
    /// All memory that the call points to must live until its last completion.
    pub unsafe fn push(&mut self, call: &Call, user_data: u64) -> bool {
        let entry = entry_of(call).user_data(user_data);
        // SAFETY: as promised by the caller.
        unsafe { self.0.submission().push(&entry) }.is_ok()
    }

    pub fn submit(&mut self) -> io::Result<()> {
        self.0.submit().map(drop)
    }

    pub fn has_completions(&mut self) -> bool {
        !self.0.completion().is_empty()
    }

    /// Fetches deferred work, which becomes completions only inside the kernel; it flags when there
    /// is some.
    pub fn find_deferred(&mut self) -> io::Result<bool> {
        let is_deferred = self.0.submission().taskrun();
        if is_deferred {
            self.look()?;
        }
        Ok(is_deferred)
    }

    pub fn has_pending(&mut self) -> bool {
        let queue = self.0.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    /// Submits, and takes available completions.
    pub fn look(&mut self) -> io::Result<()> {
        self.enter(0)
    }

    /// Submits, and waits for a completion, for at most `limit` (else ETIME).
    pub fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        let Some(limit) = limit else { return self.enter(1) };
        let time = types::Timespec::from(limit);
        let arguments = types::SubmitArgs::new().timespec(&time);
        self.0.submitter().submit_with_args(1, &arguments).map(drop)
    }

    fn enter(&mut self, want: u32) -> io::Result<()> {
        const GET_EVENTS: u32 = 1;
        let submissions = self.0.submission().len() as u32;
        // SAFETY: no signal mask is passed, and the entries' memory is owned by their slots.
        unsafe { self.0.submitter().enter::<libc::sigset_t>(submissions, want, GET_EVENTS, None) }
            .map(drop)
    }

    pub fn collect(&mut self, arrived: &mut Vec<Completion>) {
        for entry in self.0.completion() {
            let (result, more) = (entry.result(), cqueue::more(entry.flags()));
            arrived.push(Completion { user_data: entry.user_data(), result, more });
        }
    }

    /// Cancels `running` operations where possible and waits for the rest until `deadline`. Returns
    /// whether all have ended.
    pub fn end(&mut self, running: usize, deadline: Instant) -> bool {
        let (mut running, mut asked) = (running, false);
        let mut arrived = Vec::new();
        while running > 0 && Instant::now() < deadline {
            if !asked {
                let cancel = opcode::AsyncCancel2::new(types::CancelBuilder::any())
                    .build()
                    .user_data(UNOBSERVED);
                // SAFETY: a cancel request points to no memory.
                asked = unsafe { self.0.submission().push(&Entry128::from(cancel)) }.is_ok();
            }
            match self.wait(Some(Duration::from_millis(100))) {
                Err(error) if !is_passing(&error) => return false,
                _ => self.collect(&mut arrived),
            }
            let is_last = |it: &Completion| it.user_data != UNOBSERVED && !it.more;
            running = running.saturating_sub(arrived.drain(..).filter(is_last).count());
        }
        running == 0
    }
}

fn build(deferred: bool) -> io::Result<IoUring<Entry128, cqueue::Entry>> {
    let mut builder = IoUring::<Entry128, cqueue::Entry>::builder();
    builder.setup_cqsize(COMPLETIONS);
    if deferred {
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
    } else {
        builder.setup_coop_taskrun().setup_taskrun_flag();
    }
    builder.build(SUBMISSIONS)
}

fn entry_of(call: &Call) -> Entry128 {
    /// Offset that stands for the file's own position.
    const HERE: u64 = u64::MAX;
    match *call {
        Call::Read { file, start, length, at } => {
            opcode::Read::new(types::Fd(file), start, length).offset(at).build().into()
        }
        Call::Write { file, source, at, durability } => {
            let flags = if durability == Durability::Durable { libc::RWF_DSYNC } else { 0 };
            write(file, source, at, flags)
        }
        Call::SyncData { file } => {
            let flags = types::FsyncFlags::DATASYNC;
            opcode::Fsync::new(types::Fd(file)).flags(flags).build().into()
        }
        Call::Allocate { file, mode, at, length } => {
            opcode::Fallocate::new(types::Fd(file), length).offset(at).mode(mode).build().into()
        }
        Call::Discard { file, at, length } => {
            // The start goes into `addr`, the length into `addr3` (byte 48: the first eight bytes
            // of the command area).
            let mut area = [0; 80];
            area[..8].copy_from_slice(&length.to_ne_bytes());
            command_to(file, DISCARD, &area, at, 0)
        }
        Call::Receive { file, start, length } => {
            opcode::Read::new(types::Fd(file), start, length).offset(HERE).build().into()
        }
        Call::Send { file, start, length } => opcode::Send::new(types::Fd(file), start, length)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build()
            .into(),
        Call::Message { file, source } => write(file, source, HERE, 0),
        Call::Poll { file, mask } => {
            let mask = u32::from(mask as u16);
            opcode::PollAdd::new(types::Fd(file), mask).multi(true).build().into()
        }
        Call::Cancel { user_data } => opcode::AsyncCancel::new(user_data).build().into(),
        Call::Raw(ref entry) => entry.clone(),
    }
}

fn write(file: i32, source: Source, at: u64, flags: i32) -> Entry128 {
    let file = types::Fd(file);
    match source {
        Source::One { start, length } => {
            debug_assert!(length as usize <= LENGTH_MAX);
            opcode::Write::new(file, start, length).offset(at).rw_flags(flags).build().into()
        }
        Source::Many { vectors, count } => {
            opcode::Writev::new(file, vectors, count).offset(at).rw_flags(flags).build().into()
        }
    }
}

/// Returns a command for a driver (IORING_OP_URING_CMD) with 80 bytes of its own; `address` and
/// `length` as the driver defines them.
pub(in crate::ring) fn command_to(
    file: i32,
    operation: u32,
    area: &[u8; 80],
    address: u64,
    length: u32,
) -> Entry128 {
    /// Offset of `len` in `struct io_uring_sqe`; the io-uring crate cannot set it for this
    /// operation.
    const LENGTH_AT: usize = 24;
    let command = opcode::UringCmd80::new(types::Fd(file), operation).cmd(*area);
    let mut entry = command.addr(Some(address)).build();
    const { assert!(size_of::<Entry128>() == 128) };
    // SAFETY: Entry128 is `repr(C)` around the kernel's 128-byte structure of plain integers.
    unsafe { (&raw mut entry).cast::<u8>().add(LENGTH_AT).cast::<u32>().write_unaligned(length) };
    entry
}
