//! Locks of programs: each request asks the store, and a signal ends one that waits.

use super::{HostFrontEnd, Result};
use crate::error::RequestError;
use fuse_session::abi::{self, FileLock as Wire, *};
use fuse_session::{Reply, Request};
use host::Interrupt;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use store::{FileId, FileLock, LOCK_END, LockKind, LockMode, LockOwner};

/// Waiting requests hold memory of the session.
const WAITING_MAX: usize = 1024;
/// Interrupts may arrive before their requests.
const EARLY_MAX: usize = 64;

/// Requests that wait for a lock.
#[derive(Default)]
pub(super) struct WaitingLocks {
    by_request: RefCell<BTreeMap<u64, Rc<Interrupt>>>,
    early: RefCell<VecDeque<u64>>,
    stopped: Cell<bool>,
}

impl WaitingLocks {
    pub fn interrupt(&self, unique: u64) {
        if let Some(waiting) = self.by_request.borrow().get(&unique) {
            return waiting.set();
        }
        let mut early = self.early.borrow_mut();
        // Most are of other operations, whose requests do not look here.
        early.push_back(unique);
        if early.len() > EARLY_MAX {
            early.pop_front();
        }
    }
    pub fn stop(&self) {
        self.stopped.set(true);
        self.by_request.borrow().values().for_each(|waiting| waiting.set());
    }
    /// Begins to wait; `None` if too many requests wait.
    fn begin(&self, unique: u64) -> Option<Rc<Interrupt>> {
        let mut waiting = self.by_request.borrow_mut();
        if waiting.len() >= WAITING_MAX {
            return None;
        }
        let interrupt = waiting.entry(unique).or_default().clone();
        let mut early = self.early.borrow_mut();
        let came = early.iter().position(|&other| other == unique);
        if came.and_then(|at| early.remove(at)).is_some() || self.stopped.get() {
            interrupt.set();
        }
        Some(interrupt)
    }
    fn end(&self, unique: u64) {
        self.by_request.borrow_mut().remove(&unique);
    }
}

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
        let interrupt = self.waiting.begin(unique).ok_or(RequestError::Refused(libc::ENOLCK))?;
        let locked = self.wait_for_lock(request, (file, lock), arguments.fh, &interrupt).await;
        self.waiting.end(unique);
        locked.map(|()| Reply::empty())
    }

    async fn wait_for_lock(
        &self,
        request: &Request,
        (file, lock): (FileId, FileLock),
        descriptor: u64,
        interrupt: &Rc<Interrupt>,
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

    #[test]
    fn an_interrupt_that_comes_first_ends_the_wait() {
        let waiting = WaitingLocks::default();
        waiting.interrupt(8);
        assert!(waiting.begin(8).unwrap().is_set());
        let later = waiting.begin(10).unwrap();
        assert!(!later.is_set());
        waiting.interrupt(10);
        assert!(later.is_set());
        waiting.end(8);
        waiting.end(10);
        // Those of other requests, younger and older ones, stay for a while.
        (100..100 + 2 * EARLY_MAX as u64).for_each(|unique| waiting.interrupt(unique));
        waiting.interrupt(12);
        assert!(waiting.begin(12).unwrap().is_set());
        waiting.end(12);
        let requests = 0..2 * WAITING_MAX as u64;
        let begun = requests.filter(|unique| waiting.begin(*unique).is_some()).count();
        assert_eq!(begun, WAITING_MAX);
    }
}
