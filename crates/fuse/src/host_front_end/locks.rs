//! Locks of programs: each request asks the store, and a signal ends one that waits.

use super::{HostFrontEnd, Result};
use crate::error::RequestError;
use fuse_session::abi::{self, FileLock as Wire, *};
use fuse_session::{Reply, Request};
use host::Interrupt;
use store::{FileId, FileLock, LOCK_END, LockKind, LockMode, LockOwner};

impl HostFrontEnd {
    pub(super) async fn getlk(&self, header: &InHeader, arguments: LkIn) -> Result {
        let found = self.host.test_lock(self.file(header.nodeid)?, lock_of(&arguments)?).await?;
        let lk = match found {
            None => Wire { kind: libc::F_UNLCK as u32, ..arguments.lk },
            Some(lock) => Wire {
                start: lock.range.start,
                end: lock.range.end - 1,
                kind: kind_of(lock.mode),
                pid: 0,
            },
        };
        Ok(Reply::of(&LkOut { lk }))
    }

    pub(super) async fn setlk(&self, request: &Request, arguments: LkIn, waits: bool) -> Result {
        let unique = request.header.unique;
        let (file, lock) = (self.file(request.header.nodeid)?, lock_of(&arguments)?);
        if !waits {
            self.host.lock(file, lock, arguments.fh, None).await?;
            return Ok(Reply::empty());
        }
        // The first attempt may wait, too: for the connection, or for a destage.
        let signal = self.waiting.begin_lock(unique).ok_or(RequestError::Refused(libc::ENOLCK))?;
        let locked = self.wait_for_lock(request, (file, lock), arguments.fh, &signal).await;
        locked.map(|()| Reply::empty())
    }

    async fn wait_for_lock(
        &self,
        request: &Request,
        (file, lock): (FileId, FileLock),
        descriptor: u64,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let first = self.host.lock(file, lock.clone(), descriptor, None).await;
        match first.map_err(RequestError::from) {
            Err(RequestError::Refused(libc::EAGAIN)) => {}
            result => return result,
        }
        let _permit = request.begin_wait().ok_or(RequestError::Refused(libc::ENOLCK))?;
        Ok(self.host.lock(file, lock, descriptor, Some(interrupt)).await?)
    }

    /// Drops the range locks of a program that closes a descriptor, whichever descriptor they came
    /// by.
    pub(super) async fn flush(&self, header: &InHeader, arguments: FlushIn) -> Result {
        let owner = LockOwner { kind: LockKind::Bytes, number: arguments.lock_owner };
        self.host.unlock_owner(self.file(header.nodeid)?, owner).await?;
        Ok(Reply::empty())
    }
}

fn kind_of(mode: Option<LockMode>) -> u32 {
    (match mode {
        Some(LockMode::Shared) => libc::F_RDLCK,
        Some(LockMode::Exclusive) => libc::F_WRLCK,
        None => libc::F_UNLCK,
    }) as u32
}

fn lock_of(arguments: &LkIn) -> Result<FileLock> {
    let Wire { start, end, kind, .. } = arguments.lk;
    let mode = match kind as i32 {
        libc::F_RDLCK => Some(LockMode::Shared),
        libc::F_WRLCK => Some(LockMode::Exclusive),
        libc::F_UNLCK => None,
        _ => return Err(RequestError::Refused(libc::EINVAL)),
    };
    let is_whole = arguments.lk_flags & abi::lk::FLOCK != 0;
    let kind = if is_whole { LockKind::Whole } else { LockKind::Bytes };
    let range = match is_whole {
        true => 0..LOCK_END,
        false => start.min(LOCK_END)..end.saturating_add(1).min(LOCK_END),
    };
    Ok(FileLock { owner: LockOwner { kind, number: arguments.owner }, mode, range })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_where_the_kernel_says() {
        let arguments = |start, end, flags| LkIn {
            lk: Wire { start, end, kind: libc::F_WRLCK as u32, pid: 1 },
            lk_flags: flags,
            owner: 7,
            ..Default::default()
        };
        let range = |start, end, flags| lock_of(&arguments(start, end, flags)).unwrap().range;
        assert_eq!(range(3, 9, 0), 3..10);
        assert_eq!(range(0, i64::MAX as u64, 0), 0..LOCK_END);
        assert_eq!(range(3, u64::MAX, 0), 3..LOCK_END);
        assert_eq!(range(3, 9, abi::lk::FLOCK), 0..LOCK_END);
    }
}
