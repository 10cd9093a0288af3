//! A destage that finds its file changed by a program that is no client of the store.
//!
//! 1. Nothing is written over that change. What the host has of the file is set aside, as recovery
//!    does, and is durable there before the journal frees its records.
//! 2. Each later sync and change of the file fails until every descriptor of it is closed.
//! 3. If the bytes cannot be set aside, they stay in the journal, as those that the store refuses.

use crate::conflict::{SetAsideFile, set_aside};
use crate::error::HostError;
use crate::files::{Dirty, Failure, File};
use crate::host::Host;
use store::{OpenFile, StoreError, TRANSFER_BYTES_MAX};

impl Host {
    /// Has the store make a dirty file durable, or sets its dirty bytes aside and returns that. The
    /// journal has all states of the file, and the caller holds its lock for writing.
    pub(crate) async fn flush_or_set_aside(
        &self,
        file: &File,
        open: OpenFile,
        dirty: Dirty,
    ) -> Result<(), HostError> {
        match self.store.make_durable(open).await {
            Err(error @ StoreError::ChangedPast { .. }) => {
                Err(self.set_dirty_aside(file, open, dirty, error.to_string()).await?)
            }
            made => self.noted_with(file, made),
        }
    }

    /// Sets aside what the journal has of a file. Returns the error for its programs.
    async fn set_dirty_aside(
        &self,
        file: &File,
        open: OpenFile,
        dirty: Dirty,
        why: String,
    ) -> Result<HostError, HostError> {
        let number = file.id.0;
        let name = match self.write_aside(file, open, dirty, &why).await {
            Err(HostError::Store(error)) => {
                self.noted_with(file, Err(error))?;
                return Ok(HostError::SetAside(why));
            }
            written => written?,
        };
        file.succeed();
        file.was_taken_over.set(false);
        let bytes = file.ranges.borrow().bytes();
        self.report_trouble(&format!(
            "file {number} was changed by another program past this host, and keeps that change; \
             {bytes} bytes that were written here are in okeanos-conflicts/{name} (find -inum \
             {number} prints its name)"
        ));
        if file.opens.get() > 0 {
            *file.failure.borrow_mut() = Some(Failure::SetAside(why.clone()));
        }
        self.log().free(dirty.slot);
        self.files.set_dirty(file, None);
        self.drained.notify();
        self.log().refuse(None);
        self.count(|counters| counters.set_aside_files += 1);
        self.end_token(file);
        self.noted(self.store.discard(file.id).await)?;
        if file.opens.get() == 0 {
            if let Some(open) = file.open.take() {
                self.noted(self.store.close(open).await)?;
            }
        }
        self.log().commit_all().await?;
        Ok(HostError::SetAside(why))
    }

    /// Writes the conflict file. The store's buffer still has the bytes.
    async fn write_aside(
        &self,
        file: &File,
        open: OpenFile,
        dirty: Dirty,
        why: &str,
    ) -> Result<String, HostError> {
        let attributes = self.store.attributes(file.id).await?;
        let ranges = file.ranges.borrow().pieces(TRANSFER_BYTES_MAX as u64);
        let of = SetAsideFile {
            file: file.id,
            uid: attributes.uid,
            gid: attributes.gid,
            host: &self.journal.head.identity,
            log: dirty.last.0.to_string(),
            last: file.reported.get(),
            ranges,
        };
        let content = async |index: usize| {
            let range = &of.ranges[index];
            self.store.read(open, range.start, (range.end - range.start) as usize).await
        };
        let _one_at_a_time = self.setting_aside.write().await;
        set_aside(&*self.store, &of, content, why).await
    }
}
