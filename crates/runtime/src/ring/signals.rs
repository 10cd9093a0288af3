//! SIGTERM and SIGINT as something to await.

use super::Ring;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::rc::Rc;

/// `sizeof(struct signalfd_siginfo)`; its first field is the signal's number (signalfd(2)).
const SIGNAL_INFO: usize = 128;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    Terminate,
    Interrupt,
}

/// Termination signals that were blocked by [`block_signals`].
pub struct Signals {
    ring: Ring,
    file: super::File,
}

/// Keeps SIGTERM and SIGINT from ending the process, for this thread and those it starts later: call it at
/// the start of the program, before any thread.
pub fn block_signals() -> io::Result<()> {
    // SAFETY: the set is a local, initialised value; the previous mask is not asked for.
    let code = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &termination(), std::ptr::null_mut()) };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

impl Ring {
    pub(crate) fn signals(&self) -> io::Result<Signals> {
        // SAFETY: -1 makes a new descriptor; the set is a local, initialised value.
        let number = unsafe { libc::signalfd(-1, &termination(), libc::SFD_CLOEXEC) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, so nobody else owns it.
        let file = Rc::new(unsafe { OwnedFd::from_raw_fd(number) });
        Ok(Signals { ring: self.clone(), file })
    }
}

impl Signals {
    pub async fn next(&mut self) -> io::Result<Signal> {
        loop {
            let info = self.ring.receive(&self.file, SIGNAL_INFO).await?;
            let number = info.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
            match number {
                Some(libc::SIGTERM) => return Ok(Signal::Terminate),
                Some(libc::SIGINT) => return Ok(Signal::Interrupt),
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
        set.assume_init()
    }
}
