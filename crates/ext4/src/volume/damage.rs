//! The mark of damage in the superblock, by which e2fsck and the next mount know of it.
//!
//! A contradiction is met within an operation, whose handle has no credits for the superblock. So a
//! task of its own makes the mark durable (kernel: `s_sb_upd_work`), and a sync waits for it: what
//! a sync has promised is never found on a volume that seems sound, whose bitmaps may give it away.

use super::{OnError, Volume, superblock};
use crate::{Error, Result};
use engine::{Credits, EngineError};
use format::ext4::superblock::state;
use units::TransactionId;

/// Place of the mark of damage found since the volume was opened. The first mark
/// is made durable at once; what is found later only adds to the count, which is written when the
/// superblock is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum DamageMark {
    /// No damage was found.
    #[default]
    None,
    InMemory,
    /// Logged in this transaction, or a later one.
    Logged(TransactionId),
    /// Written home, past the log.
    AtHome,
}

impl Volume {
    /// Whether damage was found on the volume, or left out by a recovery, and e2fsck has not looked
    /// since.
    pub fn needs_check(&self) -> bool {
        self.superblock.borrow().state & state::ERROR != 0
    }

    /// Marks the volume as damaged (e2fsck will look) if the error says so, stops it if that was
    /// asked for, and returns the error.
    pub fn note_damage(&self, error: Error) -> Error {
        if matches!(error, Error::Corrupt { .. }) {
            if self.live.get().on_error == OnError::Stop && !self.is_read_only() {
                self.count_damage();
                self.stop_for_damage(&error);
            } else {
                self.mark_damage();
            }
        }
        error
    }

    /// Marks the volume as damaged, and never stops it.
    pub(crate) fn mark_damage(&self) {
        self.count_damage();
        self.record_damage_soon();
    }

    fn count_damage(&self) {
        let mut superblock = self.superblock.borrow_mut();
        superblock.state |= state::ERROR;
        superblock.error_count = superblock.error_count.saturating_add(1);
        if self.damage_mark.get() == DamageMark::None {
            self.damage_mark.set(DamageMark::InMemory);
        }
    }

    fn stop_for_damage(&self, error: &Error) {
        self.engine.abort(&EngineError::Stopped { cause: error.to_string() });
        // No later commit can contain the mark. If the log has parts of the superblock, they are
        // replayed over it, and its checksum would be wrong. The journal says that it was aborted
        // for damage, so the next mount marks it.
        if !self.engine.would_replay(self.superblock_block.number())
            || units::fault!("mark-past-log")
        {
            self.engine.world().spawn(Box::pin(superblock::mark_damaged(self.home.clone())));
        }
    }

    /// Notes that the superblock, with what memory has of damage, is in `transaction`.
    pub(super) fn damage_mark_is_logged(&self, transaction: TransactionId) {
        self.damage_mark_is(DamageMark::Logged(transaction));
    }
    /// Notes that the superblock, with what memory has of damage, is being written home.
    pub(super) fn damage_mark_is_home(&self) {
        self.damage_mark_is(DamageMark::AtHome);
    }
    fn damage_mark_is(&self, place: DamageMark) {
        if self.damage_mark.get() == DamageMark::InMemory {
            self.damage_mark.set(place);
        }
    }

    /// Records damage in a task of its own: the caller may have a handle open.
    pub(super) fn record_damage_soon(&self) {
        let volume = self.this.upgrade().filter(|_| self.has_damage_to_record());
        if let Some(volume) = volume.filter(|_| !units::fault!("damage-in-memory")) {
            self.engine.world().clone().spawn(Box::pin(async move {
                // A failure has ended the engine, which every sync reports.
                let _ = volume.record_damage().await;
            }));
        }
    }

    /// Makes the mark of damage durable, or waits until it is. The caller has no handle open.
    ///
    /// # Errors
    /// That of the volume's end, if it has ended.
    pub(crate) async fn record_damage(&self) -> Result<()> {
        if !self.has_damage_to_record() || units::fault!("damage-in-memory") {
            return Ok(());
        }
        // A volume that has ended refuses handles as one that takes no changes does.
        self.engine.check()?;
        if let Err(error) = self.log_damage().await {
            self.engine.check()?;
            return Err(error);
        }
        match self.damage_mark.get() {
            DamageMark::Logged(transaction) => Ok(self.engine.commit(transaction).await?),
            _ => Ok(()),
        }
    }

    /// Puts the mark into a transaction, if it is in none.
    async fn log_damage(&self) -> Result<()> {
        // While changes are forbidden, or the volume is closed, the superblock is written anyway.
        let _guard = self.access_changes.read().await;
        if self.damage_mark.get() != DamageMark::InMemory || !self.is_marked_in_use.get() {
            return Ok(());
        }
        let mut handle = self.engine.start(Credits(1)).await?;
        self.change_superblock(&mut handle);
        handle.stop();
        Ok(())
    }

    /// Ends the recording of damage: the engine is about to end. Waits for a mark that is being
    /// logged.
    pub(super) async fn end_marking(&self) {
        self.is_marked_in_use.set(false);
        drop(self.access_changes.write().await);
    }

    fn has_damage_to_record(&self) -> bool {
        let is_missing = match self.damage_mark.get() {
            DamageMark::None | DamageMark::AtHome => false,
            DamageMark::InMemory => true,
            DamageMark::Logged(transaction) => !self.engine.committed().is_at_or_after(transaction),
        };
        is_missing && self.is_marked_in_use.get()
    }
}
