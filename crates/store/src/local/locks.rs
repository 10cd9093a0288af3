//! Locks of programs are locks on the store's own files: programs that use the directory itself see
//! them, and the kernel drops them with this process. Each owner has its own open file description,
//! to which its locks belong.

use super::store::Local;
use crate::error::{Refusal, StoreError};
use crate::lock::{FileLock, LockKind, LockMode, LockOwner};
use crate::open_file::OpenFile;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

impl Local {
    pub fn lock(&self, open: OpenFile, lock: &FileLock) -> Result<(), StoreError> {
        let (file, handle) = self.handle_of(open)?;
        let key = (file, lock.owner);
        if lock.mode.is_none() && lock.is_whole() {
            self.locks.borrow_mut().remove(&key);
            return Ok(());
        }
        let mut locks = self.locks.borrow_mut();
        let fresh = match locks.get(&key) {
            Some(_) => None,
            None if lock.mode.is_none() => return Ok(()),
            None => Some(reopened(&handle).map_err(|error| no_lock(&error))?),
        };
        let description = fresh.as_ref().unwrap_or_else(|| &locks[&key]);
        set(description, lock).map_err(|error| no_lock(&error))?;
        if let Some(fresh) = fresh {
            locks.insert(key, fresh);
        }
        Ok(())
    }

    /// Returns another owner's lock that conflicts with this one.
    pub fn test_lock(
        &self,
        open: OpenFile,
        lock: &FileLock,
    ) -> Result<Option<FileLock>, StoreError> {
        let (file, handle) = self.handle_of(open)?;
        let Some(mode) = lock.mode else { return Ok(None) };
        let locks = self.locks.borrow();
        let handle: &File = locks.get(&(file, lock.owner)).unwrap_or(&handle);
        let found = disks::range_lock_against(handle, mode == LockMode::Exclusive, &lock.range)
            .map_err(|error| no_lock(&error))?;
        Ok(found.map(|(is_exclusive, range)| {
            let mode = if is_exclusive { LockMode::Exclusive } else { LockMode::Shared };
            // The kernel does not report its owner.
            let owner = LockOwner { number: 0, ..lock.owner };
            FileLock { owner, mode: Some(mode), range }
        }))
    }
}

/// Opens another description, as locks of one description do not conflict. A file that cannot be
/// written can be locked for readers. One of which a program has a lease counts as locked until the
/// lease has ended: the only thread must not wait for that.
fn reopened(handle: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let flags = if units::fault!("store-lock-waits-for-lease") { 0 } else { libc::O_NONBLOCK };
    let open = |write| File::options().read(true).write(write).custom_flags(flags).open(&path);
    open(true).or_else(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Err(error),
        _ => open(false),
    })
}

fn set(file: &File, lock: &FileLock) -> io::Result<()> {
    match lock.owner.kind {
        LockKind::Bytes => {
            let is_exclusive = lock.mode.map(|mode| mode == LockMode::Exclusive);
            disks::lock_range(file, is_exclusive, &lock.range)
        }
        LockKind::Whole => Ok(flock(
            file,
            match lock.mode {
                Some(LockMode::Shared) => FlockOperation::NonBlockingLockShared,
                Some(LockMode::Exclusive) => FlockOperation::NonBlockingLockExclusive,
                None => FlockOperation::Unlock,
            },
        )?),
    }
}

/// Maps errors: EAGAIN means that another owner has the lock, any other that the store's file
/// system cannot lock.
fn no_lock(error: &io::Error) -> StoreError {
    let is_held = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES));
    Refusal::Other(if is_held { libc::EAGAIN } else { libc::ENOLCK }).into()
}
