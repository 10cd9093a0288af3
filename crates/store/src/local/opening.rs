//! Opening: of files that others have leases of, and of those that their modes keep from their
//! owner, this process.

use super::held::{open_held, path_of};
use super::lent_rights::{LentMode, open_as_owner};
use super::store::Local;
use super::tokens::Excluded;
use crate::attributes::{FileId, FileKind};
use crate::error::{Refusal, StoreError};
use crate::open_file::{OpenFile, OpenMode};
use rustix::process::geteuid;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::time::Duration;

/// Pause before a file is opened again whose lease is being ended, and attempts to open it: longer
/// than the kernel lets a program keep a lease.
const LEASE_POLL: Duration = Duration::from_millis(500);
const ATTEMPTS_MAX: u32 = 100;

impl Local {
    /// Opens a file. One that another program has a lease of, or that its mode keeps from its
    /// owner, is opened on a thread: that waits until the lease has ended
    /// (`/proc/sys/fs/lease-break-time` at most), or for the disk.
    pub async fn open(&self, file: FileId, access: OpenMode) -> Result<OpenFile, StoreError> {
        let what = "opening";
        let (held, found) = self.searching(|| self.places.hold(file)).await?;
        if !found.is_file() {
            return Err(Refusal::Stale.into());
        }
        let waits = !units::fault!("store-lease-not-waited-for");
        let handle = match open_held(&held, access, libc::O_NONBLOCK) {
            Err(error) if waits && error.kind() == io::ErrorKind::WouldBlock => {
                self.on_thread(what, move || open_held(&held, access, 0)).await?
            }
            Err(error)
                if waits
                    && error.raw_os_error() == Some(libc::EACCES)
                    && found.uid() == geteuid().as_raw() =>
            {
                Ok(self.open_excluded(file, held, access).await?)
            }
            opened => opened,
        };
        let handle = handle.map_err(|error| self.failed(what, &error))?;
        Ok(self.opened(file, access, handle))
    }
    /// Opens a file that its mode keeps from its owner, this process. Its time of change becomes
    /// another one: others give up their tokens of it before, and no flush of this client runs.
    async fn open_excluded(
        &self,
        file: FileId,
        held: File,
        access: OpenMode,
    ) -> Result<File, StoreError> {
        let what = "opening";
        let held = Arc::new(held);
        for _ in 0..ATTEMPTS_MAX {
            let excluded = match units::fault!("store-opened-past-others") {
                true => Excluded::Needless,
                false => self.exclude(file, FileKind::Regular).await?,
            };
            let found = self.look_at(what, || held.metadata())?;
            let mut one = (found, excluded);
            let unflushed = self.keep_flushes_away([Some(&mut one.0), None]).await;
            if matches!(one.1, Excluded::Overtaken) || !self.are_excluded(&one) {
                continue;
            }
            let (notes, rights) = (self.notes.clone(), self.rights.clone());
            let to_open = held.clone();
            let open = move || open_as_owner(&to_open, access, &notes, &rights);
            let opened = self.on_thread(what, open);
            let opened = opened.await?;
            self.note_own_change(&one.0);
            match opened {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                opened => return opened.map_err(|error| self.failed(what, &error)),
            }
            // Nobody is kept away while the lease ends.
            drop((one, unflushed));
            self.world.sleep_until(self.world.now().plus(LEASE_POLL)).await;
        }
        Err(self.failed(what, &io::Error::from_raw_os_error(libc::EAGAIN)))
    }

    /// Gives files back the modes that a killed daemon of this host has left changed.
    pub async fn take_rights_back(&self) -> Result<(), StoreError> {
        let left = self.rights.left();
        for lent in left.map_err(|error| self.failed("looking for lent rights", &error))? {
            // What cannot be given back stays noted, for the next mount.
            if self.give_mode_back(lent).await.is_ok() {
                self.rights.forget(lent.file);
            }
        }
        Ok(())
    }
    async fn give_mode_back(&self, lent: LentMode) -> Result<(), StoreError> {
        let what = "giving a mode back";
        let held = match self.searching(|| self.places.hold(lent.file)).await {
            Err(StoreError::Refused(Refusal::Stale)) => return Ok(()),
            held => held?.0,
        };
        // Its time of change becomes another one, as when it was opened.
        let (found, _excluded) = self.exclude_found(what, || held.metadata()).await?;
        if !lent.is_lent(&found) {
            return Ok(());
        }
        let notes = self.notes.clone();
        let give_back = move || {
            notes.keep(std::slice::from_ref(&found))?;
            fs::set_permissions(path_of(&held), Permissions::from_mode(lent.mode))
        };
        self.away(what, give_back).await
    }
}
