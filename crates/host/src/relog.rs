//! Relogs a file when the journal is short: the bytes that still count are logged again, which
//! frees the older records. The store gets nothing.
//!
//! Everything happens under the file's lock, so that nothing is added at the same time.
//! 1. Only where the servers must have the state that the slot builds on: the store holds all later
//!    states back, and the unchanged number proves it. So the states in between may be forgotten.
//!    The new slot builds on the same state, and has the last one.
//! 2. The old slot is freed after the last piece of the new one. A crash before that finds the old
//!    slot, and perhaps pieces of the new one with the same bytes.
//! 3. A task that holds a file must not wait for space. Without space the file is destaged.

use crate::error::HostError;
use crate::files::{Dirty, File};
use crate::host::Host;
use crate::log::{FileChange, HostLog};
use runtime::join_window;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use store::{FileAttributes, OpenFile};
use units::TransactionId;

/// Ranges read from the store's buffer at once: a MiB of memory at most.
const READS_AT_ONCE: usize = 16;
const READ_BYTES_MAX: u64 = 64 << 10;

type Reading<'a> = Pin<Box<dyn Future<Output = Result<(Range<u64>, Vec<u8>), HostError>> + 'a>>;

impl Host {
    /// Returns whether rule 1 holds.
    pub(crate) fn may_be_relogged(&self, file: &File, dirty: &Dirty) -> bool {
        let held = Duration::from_millis(self.store.hold_ms());
        let is_held_back = self.world.now().since(dirty.since) < held;
        // After a failure nothing was written: then, too, the store has one of the two states.
        let is_known = self.store.counts_every_change() && is_held_back || file.has_failed();
        is_known && !file.recalled.get()
    }

    pub(crate) async fn relog_or_destage(&self, file: &Rc<File>) -> Result<(), HostError> {
        let guard = file.lock.write().await;
        if !self.relog(file).await? {
            self.destage_locked(file).await?;
        }
        drop(guard);
        self.let_go(file).await
    }

    /// Relogs a file that the store refuses, whatever that costs, so that the tail can move.
    /// Returns false if the log had no space for it.
    pub(crate) async fn carry_on(&self, file: &Rc<File>) -> Result<bool, HostError> {
        let _guard = file.lock.write().await;
        if file.has_failed() { self.relog(file).await } else { Ok(true) }
    }

    /// Relogs the file; the caller holds its lock for writing. Returns false if it cannot be and
    /// must be destaged.
    async fn relog(&self, file: &File) -> Result<bool, HostError> {
        self.check()?;
        if !self.may_try_again(file) {
            self.check_file(file)?;
        }
        let Some(dirty) = file.dirty.get() else { return Ok(true) };
        let Some(open) = file.open.get().filter(|_| self.may_be_relogged(file, &dirty)) else {
            return Ok(false);
        };
        // The running transaction may have records of the old slot, which is freed after it.
        self.log().commit(dirty.last).await?;
        let attributes = self.noted(self.store.attributes(file.id).await)?;
        let on_last = units::fault!("host-logged-anew-on-last-state");
        let dirty = Dirty { base: if on_last { attributes.version } else { dirty.base }, ..dirty };
        if attributes.version != file.reported.get() {
            return Ok(false);
        }
        let log = self.log();
        let fresh = Dirty { slot: log.new_slot(), slot_since: self.world.now(), ..dirty };
        if units::fault!("host-freed-before-logged-anew") {
            log.free(dirty.slot);
        }
        match self.relog_ranges(&log, file, open, &fresh, &attributes).await {
            Ok(Some(last)) => {
                log.free(dirty.slot);
                self.files.set_dirty(file, Some(Dirty { last, ..fresh }));
                self.count(|counters| counters.logged_anew_bytes += file.ranges.borrow().bytes());
                Ok(true)
            }
            // The recovery takes care of both slots.
            Err(error) if self.check().is_err() => Err(error),
            Ok(None) | Err(_) => {
                // The records of the new slot are void.
                log.commit_all().await?;
                log.free(fresh.slot);
                Ok(false)
            }
        }
    }

    /// Logs every byte that the store may lack, as it is now. Returns the transaction with the last
    /// of it; `None` if not all of it is logged.
    async fn relog_ranges(
        &self,
        log: &Rc<HostLog>,
        file: &File,
        open: OpenFile,
        fresh: &Dirty,
        attributes: &FileAttributes,
    ) -> Result<Option<TransactionId>, HostError> {
        let pieces = file.ranges.borrow().pieces(READ_BYTES_MAX);
        let mut last = None;
        for some in pieces.chunks(READS_AT_ONCE) {
            let read = |piece: &Range<u64>| -> Reading<'_> {
                let (piece, length) = (piece.clone(), (piece.end - piece.start) as usize);
                Box::pin(async move {
                    let bytes = self.noted(self.store.read(open, piece.start, length).await)?;
                    Ok((piece, bytes))
                })
            };
            let contents =
                join_window(some.iter().map(read).collect::<Vec<_>>(), READS_AT_ONCE).await?;
            for (piece, bytes) in contents {
                // A client that waits for the token gets it sooner without this.
                let goes_on = bytes.len() as u64 == piece.end - piece.start && !file.recalled.get();
                let Some(reservation) = log.try_reserve(bytes.len()).await?.filter(|_| goes_on)
                else {
                    return Ok(None);
                };
                last = Some(log.append(
                    &reservation,
                    fresh.slot,
                    fresh.base,
                    attributes,
                    FileChange { is_removed: file.is_gone(), at: piece.start, bytes: &bytes },
                ));
            }
            // Otherwise a concurrent sync would wait for one large write.
            log.begin_commit();
        }
        Ok(last)
    }
}
