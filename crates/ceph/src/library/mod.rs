//! libcephfs, loaded at run time. All unsafe code of this crate is in this module; its interface is
//! safe to use from any thread, as the library is.

mod abi;
mod drop_detector;
mod listener;
mod mount;
mod names;
mod objects;
mod process;
mod session;

pub use drop_detector::DropDetector;
pub use mount::{Mount, Settings};
pub use objects::{Handle, Inode};
pub use process::{end_process, end_with, ignore_signals, waits};
pub use session::SessionLock;

/// An errno of the library, made positive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// Checks the library's answer: negative is an error.
    fn check(answer: i32) -> Result<i32, Errno> {
        if answer < 0 { Err(Errno(-answer)) } else { Ok(answer) }
    }
    /// Returns the meaning of the answer to a question whether the servers know this client: one
    /// that is excluded is refused a new session.
    fn of_question(self) -> Errno {
        if self == Errno(libc::EPERM) { Errno(libc::ESHUTDOWN) } else { self }
    }
    pub const INVALID: Errno = Errno(libc::EINVAL);
}
