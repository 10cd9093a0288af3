//! What counts of a file is logged anew when the journal is short: the older bytes in it go, and
//! the store gets nothing.
//!
//! All of it under the file's lock, so that nothing is added meanwhile.
//! 1. Only where the servers must have the state that the slot builds on: the store holds all
//!    others back, and the unchanged number proves it. So the states in between may be forgotten.
//!    The new slot builds on the same one, and has the last.
//! 2. The old slot is freed behind the last piece of the new one. A crash before finds the old one,
//!    and perhaps pieces of the new one that say the same.
//! 3. Who holds a file waits for nobody's room. Without room the file goes to the store.

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

/// Read from the store's buffer before they are logged: a MiB of memory at most.
const PIECES_AT_ONCE: usize = 16;
const PIECE_BYTES_MAX: u64 = 64 << 10;

type Reading<'a> = Pin<Box<dyn Future<Output = Result<(Range<u64>, Vec<u8>), HostError>> + 'a>>;

impl Host {
    /// Rule 1.
    pub(crate) fn may_be_logged_anew(&self, file: &File, dirty: &Dirty) -> bool {
        let held = Duration::from_millis(self.store.hold_ms());
        let is_held_back = self.world.now().since(dirty.since) < held;
        // After a failure nothing was written: the store has one of the two as well.
        let is_known = self.store.counts_every_change() && is_held_back || file.has_failed();
        is_known && !file.recalled.get()
    }

    pub(crate) async fn log_anew_or_destage(&self, file: &Rc<File>) -> Result<(), HostError> {
        let guard = file.lock.write().await;
        if !self.log_anew(file).await? {
            self.bring_home(file).await?;
        }
        drop(guard);
        self.let_go(file).await
    }

    /// A file that the store does not take is logged anew at any price, so that the tail can move.
    /// False: there was no room for it.
    pub(crate) async fn carry_on(&self, file: &Rc<File>) -> Result<bool, HostError> {
        let _guard = file.lock.write().await;
        if file.has_failed() { self.log_anew(file).await } else { Ok(true) }
    }

    /// The file's lock is held for writing. False: it was not to be, and the file must go to the
    /// store.
    async fn log_anew(&self, file: &File) -> Result<bool, HostError> {
        self.check()?;
        if !self.may_try_again(file) {
            self.check_file(file)?;
        }
        let Some(dirty) = file.dirty.get() else { return Ok(true) };
        let Some(open) = file.open.get().filter(|_| self.may_be_logged_anew(file, &dirty)) else {
            return Ok(false);
        };
        // What is running may be of the old slot, which is freed behind it.
        self.log().commit(dirty.last).await?;
        let attributes = self.noted(self.store.attributes(file.id).await)?;
        let on_last = units::fault!("host-logged-anew-on-last-state");
        let dirty = Dirty { base: if on_last { attributes.version } else { dirty.base }, ..dirty };
        if attributes.version != file.told.get() {
            return Ok(false);
        }
        let log = self.log();
        let fresh = Dirty { slot: log.new_slot(), slot_since: self.world.now(), ..dirty };
        if units::fault!("host-freed-before-logged-anew") {
            log.free(dirty.slot);
        }
        match self.log_pieces(&log, file, open, &fresh, &attributes).await {
            Ok(Some(last)) => {
                log.free(dirty.slot);
                self.files.set_dirty(file, Some(Dirty { last, ..fresh }));
                self.count(|counters| counters.logged_anew_bytes += file.ranges.borrow().bytes());
                Ok(true)
            }
            // The recovery looks after both slots.
            Err(error) if self.check().is_err() => Err(error),
            Ok(None) | Err(_) => {
                // Nothing of the new slot counts.
                log.commit_all().await?;
                log.free(fresh.slot);
                Ok(false)
            }
        }
    }

    /// All that the store may not have, as it is now. The transaction with the last of it; `None`:
    /// not all of it is logged.
    async fn log_pieces(
        &self,
        log: &Rc<HostLog>,
        file: &File,
        open: OpenFile,
        fresh: &Dirty,
        attributes: &FileAttributes,
    ) -> Result<Option<TransactionId>, HostError> {
        let pieces = file.ranges.borrow().pieces(PIECE_BYTES_MAX);
        let mut last = None;
        for some in pieces.chunks(PIECES_AT_ONCE) {
            let read = |piece: &Range<u64>| -> Reading<'_> {
                let (piece, length) = (piece.clone(), (piece.end - piece.start) as usize);
                Box::pin(async move {
                    let bytes = self.noted(self.store.read(open, piece.start, length).await)?;
                    Ok((piece, bytes))
                })
            };
            let contents =
                join_window(some.iter().map(read).collect::<Vec<_>>(), PIECES_AT_ONCE).await?;
            for (piece, bytes) in contents {
                // Who waits for the token gets it sooner without this.
                let goes_on = bytes.len() as u64 == piece.end - piece.start && !file.recalled.get();
                let Some(room) = log.room_now(bytes.len()).await?.filter(|_| goes_on) else {
                    return Ok(None);
                };
                last = Some(log.append(
                    &room,
                    fresh.slot,
                    fresh.base,
                    attributes,
                    FileChange { is_removed: file.is_gone(), at: piece.start, bytes: &bytes },
                ));
            }
            // Else whoever syncs meanwhile waits for one long write.
            log.begin_commit();
        }
        Ok(last)
    }
}
