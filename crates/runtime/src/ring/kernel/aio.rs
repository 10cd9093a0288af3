//! Short direct reads and writes of block devices by Linux AIO (io_submit(2)), which needs no
//! thread: a commit is then not passed from thread to thread before it reaches the disk.
//!
//! io_submit(2) waits for the disk where a file is not a block device opened with O_DIRECT, where
//! the device's queue is full, perhaps with requests of others, and where the device is suspended.
//! So only short requests to such devices use it, with `RWF_NOWAIT`: what would wait is refused,
//! and carried out by a thread, as are all other calls.

use super::call::{Call, Completion, Source};
use super::threads::result_of;
use device::Durability;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Maximum number of requests in flight. A SATA disk queues 31.
const REQUESTS: usize = 16;
/// Longest request, in bytes. The kernel makes one or two requests of it.
const LENGTH_MAX: u64 = 128 << 10;
/// Completions taken with one call.
const EVENTS: usize = REQUESTS;

/// `struct iocb` of linux/aio_abi.h.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    /// Swapped with the next field on big-endian machines.
    key: u32,
    flags_of_call: i32,
    operation: u16,
    priority: i16,
    file: u32,
    address: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    alarm: u32,
}
const _: () = assert!(size_of::<Request>() == 64 && cfg!(target_endian = "little"));

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct AioEvent {
    data: u64,
    request: u64,
    result: i64,
    result_more: i64,
}

const READ: u16 = 0;
const WRITE: u16 = 1;
const WRITE_VECTORS: u16 = 8;
/// `IOCB_FLAG_RESFD`: completions are counted by an eventfd.
const ALARM: u32 = 1;

pub(super) struct Aio {
    context: libc::c_ulong,
    alarm: RawFd,
    /// Calls in flight, each with the number of its operation.
    calls: Vec<(u64, Call)>,
}

/// Results of requests.
#[derive(Default)]
pub(super) struct Outcome {
    pub completions: Vec<Completion>,
    /// Calls that would have waited for something else than their completion.
    pub refused: Vec<(u64, Call)>,
}

impl Aio {
    /// Creates the context; `None` where the kernel, or a filter, has no such calls. Completions
    /// raise the alarm.
    pub fn new(alarm: RawFd) -> Option<Aio> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the context is a live number, zero as the call wants it.
        let result = result_of(|| unsafe {
            libc::syscall(libc::SYS_io_setup, REQUESTS, &raw mut context) as isize
        });
        (result == 0).then(|| Aio { context, alarm, calls: Vec::with_capacity(REQUESTS) })
    }

    /// Submits a call. Returns it if the kernel does not accept it.
    ///
    /// # Safety
    /// All memory that the call points to must live until its completion.
    pub unsafe fn submit(&mut self, call: Call, user_data: u64) -> Option<Call> {
        if self.calls.len() == REQUESTS {
            return Some(call);
        }
        // SAFETY: as promised by the caller.
        let Some(mut request) = (unsafe { request_of(&call) }) else { return Some(call) };
        (request.data, request.flags) = (user_data, ALARM);
        request.alarm = self.alarm as u32;
        let requests = [&raw mut request];
        // SAFETY: the kernel copies the request. The memory it points to lives, as the caller
        // promises.
        let taken = result_of(|| unsafe {
            libc::syscall(libc::SYS_io_submit, self.context, 1, requests.as_ptr()) as isize
        });
        if taken != 1 {
            return Some(call);
        }
        self.calls.push((user_data, call));
        None
    }

    /// Takes results, and waits for the first for at most `limit`.
    pub fn collect(&mut self, limit: Duration, outcome: &mut Outcome) {
        let mut events = [AioEvent::default(); EVENTS];
        let mut time =
            libc::timespec { tv_sec: limit.as_secs() as _, tv_nsec: limit.subsec_nanos().into() };
        while !self.calls.is_empty() {
            let least = libc::c_long::from(!limit.is_zero());
            // SAFETY: there is space for as many events as passed, and the time outlives the call.
            let count = result_of(|| unsafe {
                let (events, time) = (events.as_mut_ptr(), &raw mut time);
                libc::syscall(libc::SYS_io_getevents, self.context, least, EVENTS, events, time)
                    as isize
            });
            let count = usize::try_from(count).unwrap_or(0);
            events[..count].iter().for_each(|event| self.take(event, outcome));
            if count < EVENTS {
                break;
            }
        }
    }

    fn take(&mut self, event: &AioEvent, outcome: &mut Outcome) {
        let is_it = |(user_data, _): &(u64, Call)| *user_data == event.data;
        let at = self.calls.iter().position(is_it).expect("a request in flight");
        let call = self.calls.swap_remove(at);
        match event.result as i32 {
            result if would_wait(result) => outcome.refused.push(call),
            result => outcome.completions.push(Completion::last(event.data, result)),
        }
    }

    /// Waits for all until `deadline`. Returns whether none is left.
    pub fn end(&mut self, deadline: Instant, outcome: &mut Outcome) -> bool {
        while !self.calls.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.collect(left, outcome);
        }
        // SAFETY: no request is in flight, and the context is no longer used.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
        true
    }
}

/// Whether a request was not carried out, or not all of it, because it would have waited, or
/// because the device cannot tell whether it would (EOPNOTSUPP).
fn would_wait(result: i32) -> bool {
    matches!(-result, libc::EAGAIN | libc::EOPNOTSUPP)
}

/// # Safety
/// The memory that the call points to lives.
unsafe fn request_of(call: &Call) -> Option<Request> {
    let request = match *call {
        Call::Read { file, start, length, at } if u64::from(length) <= LENGTH_MAX => Request {
            flags_of_call: without_wait(),
            operation: READ,
            file: file as u32,
            address: start as u64,
            length: length.into(),
            offset: at as i64,
            ..Request::default()
        },
        Call::Write { file, source, at, durability } => {
            // SAFETY: as promised by the caller.
            let bytes = unsafe { length_of(source) };
            if bytes > LENGTH_MAX {
                return None;
            }
            let (operation, address, length) = match source {
                Source::One { start, length } => (WRITE, start as u64, length.into()),
                Source::Many { vectors, count } => (WRITE_VECTORS, vectors as u64, count.into()),
            };
            let is_durable = durability == Durability::Durable;
            Request {
                flags_of_call: without_wait() | if is_durable { libc::RWF_DSYNC } else { 0 },
                operation,
                file: file as u32,
                address,
                length,
                offset: at as i64,
                ..Request::default()
            }
        }
        _ => return None,
    };
    is_direct_device(request.file as RawFd).then_some(request)
}

fn without_wait() -> i32 {
    if units::fault!("aio-waits-for-the-device") { 0 } else { libc::RWF_NOWAIT }
}

/// Returns the length in bytes.
///
/// # Safety
/// The table of vectors lives.
unsafe fn length_of(source: Source) -> u64 {
    match source {
        Source::One { length, .. } => length.into(),
        Source::Many { vectors, count } => {
            // SAFETY: as promised by the caller.
            let vectors = unsafe { std::slice::from_raw_parts(vectors, count as usize) };
            vectors.iter().map(|vector| vector.iov_len as u64).sum()
        }
    }
}

fn is_direct_device(file: RawFd) -> bool {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat fills the structure where it succeeds; fcntl takes integers.
    unsafe {
        libc::fcntl(file, libc::F_GETFL) & libc::O_DIRECT != 0
            && libc::fstat(file, status.as_mut_ptr()) == 0
            && status.assume_init().st_mode & libc::S_IFMT == libc::S_IFBLK
    }
}
