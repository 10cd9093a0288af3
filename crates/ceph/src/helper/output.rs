//! The channel to the daemon. Reports that come together are sent in one piece.

use crate::library::end_process;
use crate::wire::{Report, frame};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes above which reports are not held back.
const HELD_MAX: usize = 64 << 10;

pub struct Output(Mutex<Outbound>);

struct Outbound {
    socket: UnixStream,
    /// Output that is held back, in the order in which it was reported.
    held: Vec<u8>,
}

impl Output {
    pub fn new(socket: UnixStream) -> Output {
        Output(Mutex::new(Outbound { socket, held: Vec::new() }))
    }
    fn lock(&self) -> MutexGuard<'_, Outbound> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn send(&self, report: &Report) {
        let mut outbound = self.lock();
        outbound.held.extend_from_slice(&frame(report));
        outbound.flush();
    }
    /// Holds the report until the next [`Output::send`] or [`Output::flush`].
    pub fn hold(&self, report: &Report) {
        let mut outbound = self.lock();
        outbound.held.extend_from_slice(&frame(report));
        if outbound.held.len() >= HELD_MAX {
            outbound.flush();
        }
    }
    pub fn flush(&self) {
        self.lock().flush();
    }
    /// Sends the last report. T4: a library that lost its connection is not called again, not even
    /// to close files.
    pub fn lost(&self, fenced: bool, why: &str) -> ! {
        self.send(&Report::Lost { fenced, why: why.as_bytes().to_vec() });
        end_process(3)
    }
}

impl Outbound {
    fn flush(&mut self) {
        if !self.held.is_empty() && self.socket.write_all(&self.held).is_err() {
            end_process(0);
        }
        self.held.clear();
    }
}
