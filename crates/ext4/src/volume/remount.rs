//! Switching an open volume between read-only and writable (`remount,rw`, `remount,ro`).

use super::mmp::Protection;
use super::open::check_features;
use super::{Access, OpenReport, Volume, superblock};
use crate::{Error, Result};
use engine::EngineError;
use format::ext4::VolumeSuperblock;
use runtime::sync::ReadGuard;
use std::rc::Rc;
use units::Refusal;

impl Volume {
    /// Allows changes, as opening for writing does behind the journal's replay: marks the volume as
    /// in use, cleans up orphans. Harmless where changes are allowed already. On failure the volume
    /// stays read-only.
    pub async fn allow_changes(self: &Rc<Self>) -> Result<OpenReport> {
        let _guard = self.access_changes.write().await;
        let mut report = OpenReport::default();
        if self.closed.get() {
            return Err(Error::Engine(EngineError::ShutDown));
        }
        // A failed engine stays failed.
        self.engine.check()?;
        if !self.is_read_only() {
            return Ok(report);
        }
        if self.options.without_journal {
            return Err(Error::Journal(
                "without its journal (noload) a volume can only be read".into(),
            ));
        }
        let known = self.superblock();
        check_features(&known, Access::ReadWrite)?;
        let world = self.engine.world().clone();
        let protected = self.protected.borrow().clone();
        let disk = protected.first().map_or(self.home_disk(), |protected| protected.beneath());
        let protection = Protection::begin(&world, disk, &known, &self.options.node).await?;
        if let Some(protection) = &protection {
            protected.iter().for_each(|disk| disk.protect(protection));
        }
        let begun = self.begin_protected_changes(protection.as_deref(), &mut report).await;
        match (begun, protection) {
            (Ok(()), protection) => *self.protection.borrow_mut() = protection,
            (Err(error), protection) => {
                if let Some(protection) = protection {
                    // If the release cannot be written, others wait a while. They wait after a
                    // failure of the engine, too, whose note may be in flight.
                    let _ = protection.end(self.engine.check().is_ok()).await;
                }
                return Err(error);
            }
        }
        self.access.set(Access::ReadWrite);
        // The kernel may have forgotten some of them during the wait.
        if let Err(error) = self.free_unused().await {
            report.warnings.push(format!("files without names are not freed yet: {error}"));
        }
        Ok(report)
    }

    async fn begin_protected_changes(
        self: &Rc<Self>,
        protection: Option<&Protection>,
        report: &mut OpenReport,
    ) -> Result<()> {
        protection.map_or(Ok(()), |protection| protection.guard(&self.engine))?;
        let (known, found) = (self.superblock(), superblock::read(&**self.home_disk()).await?);
        if marks_of_change(&found) != marks_of_change(&known) {
            // Memory may be older than the disk: e2fsck, or another mount, may have changed it.
            return Err(Error::Journal(
                "the volume was changed by others while it was mounted read-only".into(),
            ));
        }
        self.engine.begin_writing().await?;
        let begun = self.begin_changes(report).await;
        if begun.is_err() {
            self.is_marked_in_use.set(false);
            // The next opening replays what was committed.
            let _ = self.engine.quiesce().await;
        }
        begun
    }

    /// Writes everything home, empties the journal, marks the superblock clean, and forbids
    /// changes. The kernel passes no change on, and has nothing open for writing. Harmless where
    /// changes are forbidden already.
    pub async fn forbid_changes(self: &Rc<Self>) -> Result<()> {
        let _guard = self.access_changes.write().await;
        // It is not harmless where the last attempt failed: something is not home.
        self.engine.check()?;
        if self.is_read_only() || self.closed.get() {
            return Ok(());
        }
        // From now on no read changes an access time, which nobody could store any more.
        self.access.set(Access::ReadOnly);
        if let Err(error) = self.store_access_times().await {
            self.access.set(Access::ReadWrite);
            return Err(error);
        }
        self.is_marked_in_use.set(false);
        let rested = self.rest_clean().await;
        if let Err(error) = &rested {
            self.stop_for(error);
        }
        self.end_protection(rested).await
    }

    /// Waits while changes are being allowed or forbidden. They stay allowed until the result is
    /// dropped; afterwards another computer may mount the volume.
    ///
    /// # Errors
    /// Changes are forbidden, or the volume is closed or has failed.
    pub(crate) async fn keep_writable(&self) -> Result<ReadGuard> {
        let guard = self.access_changes.read().await;
        match self.is_read_only() {
            _ if units::fault!("trim-goes-on") => {}
            true => return Err(Refusal::ReadOnly.into()),
            false if self.closed.get() => return Err(Error::Engine(EngineError::ShutDown)),
            false => self.engine.check()?,
        }
        Ok(guard)
    }

    async fn rest_clean(&self) -> Result<()> {
        self.engine.quiesce().await?;
        self.mark_clean().await
    }

    /// Stops the volume, whose disk is not clean, as failed. A sound journal is replayed by the
    /// next mount: e2fsck is not needed.
    fn stop_for(&self, error: &Error) {
        let cause = match error {
            Error::Engine(cause) => cause.clone(),
            other => EngineError::BadJournal { why: other.to_string() },
        };
        self.engine.stop_writing(&cause);
    }
}

/// Superblock fields that change when a volume is made, checked or mounted. A read-only mount of
/// the kernel frees orphans, and changes no time.
fn marks_of_change(superblock: &VolumeSuperblock) -> impl PartialEq {
    let times = (superblock.mount_time, superblock.write_time, superblock.last_check);
    let orphans = superblock.last_orphan;
    (superblock.uuid, superblock.features, superblock.mount_count, times, orphans)
}
