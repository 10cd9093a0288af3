//! Shows whether the library has dropped content that it had buffered.
//!
//! T16: when a pool becomes full the library drops the buffered content of every file of that pool,
//! all in one step, and a sync of such a file succeeds: nothing is left to be sent. Only the close
//! of an open file would report it. So each connection has a file of its own, without a name, of
//! which one byte is buffered and never sent on purpose. The byte is dropped with the others, and
//! reads as zero then. It is written again at each look, and before every few changes: what the
//! library sends once it has buffered much (`client_oc_target_dirty`) is what was buffered longest,
//! and the byte must not be sent before what it guards.
//!
//! Not seen: files of another pool than that of the directory which the connection serves.

use super::Errno;
use super::objects::{Handle, Inode};
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};
use store::{Creator, NewNode};

/// Changes, each of [`store::TRANSFER_BYTES_MAX`] at most, that one writing of the byte guards.
const CHANGES_GUARDED: u64 = 16;

pub struct DropDetector {
    file: Handle,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of times content was dropped.
    drops: u64,
    /// Changes since the byte was written.
    changes: u64,
    /// Whether the byte is buffered.
    is_armed: bool,
    /// Whether the pool was too full for it.
    was_refused: bool,
}

impl State {
    fn arm(&mut self, file: &Handle) {
        self.changes = 0;
        self.is_armed = file.write(0, &[1]).is_ok();
        // What was buffered in between is not guarded.
        self.drops += u64::from(self.is_armed && self.was_refused);
        self.was_refused = !self.is_armed;
    }
}

impl DropDetector {
    /// Makes the file; `number` distinguishes its name until it has none. The error has the failed
    /// call and the errno.
    pub fn make(root: &Inode, number: u64) -> Result<DropDetector, String> {
        let name = CString::new(format!(".okeanos-buffered-{number:x}")).expect("no zero byte");
        let us = Creator { uid: 0, gid: 0, umask: 0 };
        let made =
            root.make(&name, &NewNode::Regular { mode: 0o600 }, us).and_then(|(inode, _)| {
                let file = Arc::new(inode).open(true);
                root.unlink(&name).and(file)
            });
        let failed = |Errno(code)| {
            let error = std::io::Error::from_raw_os_error(code);
            format!("making a file without a name, by which dropped content shows, failed: {error}")
        };
        Ok(DropDetector { file: made.map_err(failed)?, state: Mutex::default() })
    }

    /// Returns how often content was dropped as far as is known, for a file of which content is
    /// about to be buffered.
    pub fn drops(&self) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.changes += 1;
        if state.is_armed && state.changes > CHANGES_GUARDED {
            state.drops += u64::from(!self.is_kept().unwrap_or(false));
            state.is_armed = false;
        }
        if !state.is_armed {
            // On a full pool it fails, as the write that follows does.
            state.arm(&self.file);
        }
        state.drops
    }
    /// Returns how often content was dropped until now.
    pub fn look(&self) -> Result<u64, Errno> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if units::fault!("ceph-dropped-content-trusted") {
            return Ok(state.drops);
        }
        let is_kept = state.is_armed && self.is_kept()?;
        state.drops += u64::from(!is_kept);
        state.arm(&self.file);
        Ok(state.drops)
    }

    /// Returns whether the byte is still what was buffered.
    fn is_kept(&self) -> Result<bool, Errno> {
        Ok(self.file.read(0, 1)? == [1])
    }
}
