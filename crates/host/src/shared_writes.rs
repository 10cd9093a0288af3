//! Writes under a token for shared writing, past the journal: another client keeps the file, and
//! may also write.
//!
//! An append is two requests: it asks for the end, and writes there. In between it has a lock of
//! the store, which every host takes for its appends of that file, and no program. A host that
//! waits for it holds nothing of its own, neither the file nor space: it asks again after a pause.
//! The one that has it needs no other host for its two requests, as it has its token already. So no
//! two wait for each other, nor a recall for an append. A host that dies with the lock keeps it
//! until the store has ended its connection; others wait for a minute, and then fail with EAGAIN,
//! with nothing written.

use crate::error::HostError;
use crate::files::File;
use crate::host::{Durable, Host, HostWrite, Position, end_of};
use crate::lock_owners::LockPauses;
use store::{FileAttributes, OpenFile, StoreError};
use units::Instant;

impl Host {
    /// Writes; `sends` is called before the servers may have the bytes. `None`: another host
    /// appends. The caller holds the file's lock.
    pub(crate) async fn write_shared(
        &self,
        file: &File,
        open: OpenFile,
        write: &HostWrite<'_>,
        sends: impl Fn(),
    ) -> Result<Option<FileAttributes>, HostError> {
        let attributes = match write.position {
            Position::At(at) => self.write_past(file, open, (at, write.bytes), sends).await?,
            Position::End if units::fault!("host-appends-at-once") => {
                self.append_past(file, open, write.bytes, sends).await?
            }
            Position::End => {
                if !self.noted(self.store.lock_appends(file.id).await)? {
                    return Ok(None);
                }
                let appended = self.append_past(file, open, write.bytes, sends).await;
                // It ends with the connection at the latest, and an append that was made has not
                // failed.
                let _ = self.noted(self.store.unlock_appends(file.id).await);
                appended?
            }
        };
        if write.durable == Durable::Now {
            self.sync_shared(file, open).await?;
        }
        Ok(Some(attributes))
    }

    /// Pauses before the next attempt to append.
    ///
    /// # Errors
    /// EAGAIN: another host has had the lock for too long.
    pub(crate) async fn pause_appends(
        &self,
        pauses: &mut LockPauses,
        until: Instant,
    ) -> Result<(), HostError> {
        let now = self.world.now();
        if now >= until {
            return Err(StoreError::TokenHeld.into());
        }
        self.world.sleep_until(now.plus(pauses.next())).await;
        Ok(())
    }

    async fn append_past(
        &self,
        file: &File,
        open: OpenFile,
        bytes: &[u8],
        sends: impl Fn(),
    ) -> Result<FileAttributes, HostError> {
        let at = self.noted(self.store.attributes(file.id).await)?.version.size;
        end_of(at, bytes.len() as u64)?;
        self.write_past(file, open, (at, bytes), sends).await
    }

    async fn write_past(
        &self,
        file: &File,
        open: OpenFile,
        (at, bytes): (u64, &[u8]),
        sends: impl Fn(),
    ) -> Result<FileAttributes, HostError> {
        sends();
        file.shared_writes.set(file.shared_writes.get() + 1);
        let written = self.store.write(open, at, bytes).await;
        self.count(|counters| counters.shared_bytes += bytes.len() as u64);
        self.noted(written)
    }
}
