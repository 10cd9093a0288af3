//! Locks of programs, as the metadata server keeps them.
//!
//! Invariant: ranges of one owner do not overlap, and none is empty.

use crate::attributes::FileId;
use crate::lock::{FileLock, LockMode, LockOwner};
use std::ops::Range;

#[derive(Default)]
pub(super) struct SimulatedLocks(Vec<HeldLock>);

struct HeldLock {
    file: FileId,
    session: u64,
    owner: LockOwner,
    mode: LockMode,
    range: Range<u64>,
}

impl SimulatedLocks {
    /// Returns another owner's lock that conflicts with `wanted`.
    pub fn against(&self, file: FileId, session: u64, wanted: &FileLock) -> Option<FileLock> {
        let held = self.0.iter().find(|held| {
            let is_other = (held.session, held.owner) != (session, wanted.owner);
            let overlaps =
                held.range.start < wanted.range.end && wanted.range.start < held.range.end;
            let excludes =
                held.mode == LockMode::Exclusive || wanted.mode == Some(LockMode::Exclusive);
            let same_kind = held.owner.kind == wanted.owner.kind;
            held.file == file && is_other && overlaps && excludes && same_kind
        })?;
        Some(FileLock { owner: held.owner, mode: Some(held.mode), range: held.range.clone() })
    }
    /// Replaces what the owner had of the range. The caller has checked for conflicts.
    pub fn set(&mut self, file: FileId, session: u64, lock: &FileLock) {
        let (start, end) = (lock.range.start, lock.range.end);
        let (own, mut kept): (Vec<HeldLock>, Vec<HeldLock>) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|held| (held.file, held.session, held.owner) == (file, session, lock.owner));
        let mut keep = |held: &HeldLock, range: Range<u64>| {
            if range.start < range.end {
                kept.push(HeldLock { range, ..*held });
            }
        };
        for held in own {
            keep(&held, held.range.start..held.range.end.min(start));
            keep(&held, held.range.start.max(end)..held.range.end);
        }
        if let Some(mode) = lock.mode.filter(|_| start < end) {
            kept.push(HeldLock { file, session, owner: lock.owner, mode, range: start..end });
        }
        self.0 = kept;
    }
    pub fn drop_session(&mut self, session: u64) {
        self.0.retain(|held| held.session != session);
    }
}
