//! SIGTERM, SIGINT and SIGHUP as awaitable events.

use super::{PollStream, Ring};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::rc::Rc;

/// `sizeof(struct signalfd_siginfo)`; its first field is the signal's number (signalfd(2)).
const SIGNAL_INFO: usize = 128;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    Terminate,
    Interrupt,
    /// The terminal was closed.
    HangUp,
}

/// Termination signals that were blocked by [`block_signals`].
pub struct Signals {
    file: File,
    changes: PollStream,
}

/// Keeps SIGTERM, SIGINT and SIGHUP from ending the process, for this thread and those it starts
/// later. Call it at the start of the program, before any thread.
pub fn block_signals() -> io::Result<()> {
    // SAFETY: the set is a local, initialised value; the previous mask is not requested.
    let code =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &termination(), std::ptr::null_mut()) };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

impl Ring {
    pub(crate) fn signals(&self) -> io::Result<Signals> {
        // SAFETY: -1 makes a new descriptor; the set is a local, initialised value.
        let number =
            unsafe { libc::signalfd(-1, &termination(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, so nobody else owns it.
        let file = unsafe { OwnedFd::from_raw_fd(number) };
        let changes = self.poll(&Rc::new(file.try_clone()?), libc::POLLIN);
        Ok(Signals { file: file.into(), changes })
    }
}

impl Signals {
    pub async fn next(&mut self) -> io::Result<Signal> {
        loop {
            let mut info = [0; SIGNAL_INFO];
            match self.file.read(&mut info) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.changes.next().await?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let number = info.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
            match number {
                Some(libc::SIGTERM) => return Ok(Signal::Terminate),
                Some(libc::SIGINT) => return Ok(Signal::Interrupt),
                Some(libc::SIGHUP) => return Ok(Signal::HangUp),
                _ => continue,
            }
        }
    }
}

fn termination() -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the whole set, and sigaddset gets valid signal numbers.
    unsafe {
        let mut set = std::mem::MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
        if !is_ignored(libc::SIGHUP) {
            libc::sigaddset(set.as_mut_ptr(), libc::SIGHUP);
        }
        set.assume_init()
    }
}

/// Whether the signal is ignored, as under nohup(1). A signal that is only blocked would still
/// come.
fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is changed, and the kernel fills the structure.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}
