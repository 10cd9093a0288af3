//! The proof that the servers still have this connection's session, and with it its tokens.
//!
//! T14: a session that was lost is replaced by the library without a word, and what it had buffered
//! of attributes is dropped: the next sync finds nothing to send, and succeeds. A client that was
//! excluded notices nothing if the exclusion ends, by an administrator or after an hour, before its
//! next request. But the servers drop the locks of a lost session. So each connection holds one
//! that nobody else has, and asks whether it stands. A server that restarts gets the locks of
//! living sessions back from their clients.

use super::Errno;
use super::objects::{Handle, Inode};
use std::collections::hash_map::RandomState;
use std::ffi::CStr;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use store::{Creator, FileAttributes, FileId, FileKind, NewNode};

/// Owners of the lock and of the question: a lock does not stand against its own owner. Those of
/// programs are small numbers.
const HOLDER: u64 = 1 << 62;
const ASKER: u64 = HOLDER + 1;
/// Owner of the locks under which files are extended.
const EXTENDER: u64 = HOLDER + 2;
/// Bytes of those locks, one for each file number, behind the bytes of sessions.
const EXTENSIONS: u64 = store::LOCK_END | 1 << 62;
const FILE_NUMBERS: u64 = (1 << 62) - 1;

/// An empty file in the directory that the connection serves. Not that directory itself: opening
/// one may wait for ever.
const NAME: &CStr = c".okeanos-sessions";

pub struct SessionLock {
    file: Handle,
    /// Offset of the session's byte, beyond [`store::LOCK_END`], where no program can lock one.
    at: u64,
}

impl SessionLock {
    /// Takes the lock. The error has the failed call and the errno.
    pub fn take(root: Inode) -> Result<SessionLock, String> {
        let failed = |what: &str, Errno(code)| {
            let error = std::io::Error::from_raw_os_error(code);
            format!("{what} {NAME:?}, by whose lock a lost session shows, failed: {error}")
        };
        let (file, attributes) = find_or_make(&root).map_err(|errno| failed("making", errno))?;
        if attributes.kind != FileKind::Regular {
            return Err(failed("opening", Errno::INVALID));
        }
        let file = Arc::new(file).open(false).map_err(|errno| failed("opening", errno))?;
        // Different for each connection, as the same one would prove nothing.
        let random = RandomState::new().build_hasher().finish();
        let at = store::LOCK_END | random >> 2;
        file.lock_byte(HOLDER, at).map_err(|errno| failed("locking", errno))?;
        Ok(SessionLock { file, at })
    }

    /// Returns a number that no other connection has.
    pub fn number(&self) -> u64 {
        self.at
    }
    /// Locks out other connections that extend the file. EAGAIN: one of them is doing so. The lock
    /// is not in the file itself: there a program of any other client may lock everything up to the
    /// highest offset.
    pub fn lock_extension(&self, file: FileId) -> Result<(), Errno> {
        match file.0 > FILE_NUMBERS {
            // Two files would share a byte, and one would unlock the other.
            true => Err(Errno(libc::EOVERFLOW)),
            false => self.file.lock_byte_alone(EXTENDER, EXTENSIONS | file.0),
        }
    }
    pub fn unlock_extension(&self, file: FileId) -> Result<(), Errno> {
        self.file.unlock_byte(EXTENDER, EXTENSIONS | file.0)
    }
    /// Asks the servers. ENOTCONN: they do not have the session any more; ESHUTDOWN: they refuse
    /// this client.
    pub fn ask(&self) -> Result<(), Errno> {
        match self.file.is_byte_locked(ASKER, self.at) {
            Ok(true) => Ok(()),
            Ok(false) if units::fault!("ceph-lost-session-kept") => Ok(()),
            // The library knows by itself that it lost locks.
            Ok(false) | Err(Errno(libc::EIO)) => Err(Errno(libc::ENOTCONN)),
            Err(other) => Err(other.of_question()),
        }
    }
}

fn find_or_make(root: &Inode) -> Result<(Inode, FileAttributes), Errno> {
    let us = Creator { uid: 0, gid: 0, umask: 0 };
    match root.lookup(NAME) {
        Err(Errno(libc::ENOENT)) => match root.make(NAME, &NewNode::Regular { mode: 0o600 }, us) {
            // Another host was first.
            Err(Errno(libc::EEXIST)) => root.lookup(NAME),
            made => made,
        },
        found => found,
    }
}
