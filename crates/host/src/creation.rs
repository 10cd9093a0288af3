//! Creates, opens and takes the token of a new file with one request to the store: no other client
//! can have it yet.
//!
//! 1. Another client may want the file before the store's answer arrives. Then the recall comes
//!    first and the token of the answer is void: it is returned, and taken again like any other.
//! 2. Recalls are remembered while any file is being created, even if their file has been forgotten
//!    since.

use crate::error::HostError;
use crate::files::File;
use crate::host::Host;
use std::cell::Cell;
use store::{Created, Creator, FileId, Found, OpenFile, Token};

impl Host {
    /// Creates a regular file that the same operation opens for an application.
    pub async fn create(
        &self,
        parent: FileId,
        name: &[u8],
        mode: u32,
        caller: Creator,
    ) -> Result<Found, HostError> {
        self.once("a creation", async |is_sent| {
            self.try_create(parent, name, (mode, caller), is_sent).await
        })
        .await
    }

    async fn try_create(
        &self,
        parent: FileId,
        name: &[u8],
        (mode, caller): (u32, Creator),
        is_sent: &Cell<bool>,
    ) -> Result<Found, HostError> {
        let creation = self.creations.begin();
        self.begin_sending(is_sent)?;
        let created = self.store.create(parent, name, mode, caller).await;
        self.unsynced_names.changed(&[parent]);
        let created = self.noted(created)?;
        let Created { found, open, is_held } = created;
        let is_recalled = creation.is_recalled(found.file);
        let is_known = self.files.get(found.file).is_some();
        drop(creation);
        let file = self.files.get_or_new(found.file);
        if (!is_known && !is_recalled) || units::fault!("host-new-file-recalled") {
            file.opens.set(file.opens.get() + 1);
            file.open.set(open);
            if is_held {
                self.begin_token(&file, Token::ExclusiveWrite, &found.attributes);
                file.without_capabilities.set(file.grant.get());
            }
            return Ok(found);
        }
        let guard = file.lock.write().await;
        if let Err(error) = self.settle_created(&file, open, is_held).await {
            drop(guard);
            self.files.forget(&file);
            return Err(error);
        }
        // Counted last: a caller that gets an error closes nothing.
        file.opens.set(file.opens.get() + 1);
        Ok(found)
    }

    /// Ends the void token of an answer, and keeps one open file. The caller holds the file's lock.
    async fn settle_created(
        &self,
        file: &File,
        open: Option<OpenFile>,
        is_held: bool,
    ) -> Result<(), HostError> {
        // Only a token that was taken since the answer counts.
        if is_held && file.token.get().is_none() {
            if let Err(error) = self.noted(self.store.return_token(file.id).await) {
                if let (Some(open), Ok(())) = (open, self.check()) {
                    let _ = self.noted(self.store.close(open).await);
                }
                return Err(error);
            }
        }
        match (open, file.open.get()) {
            (Some(open), None) => file.open.set(Some(open)),
            (Some(open), Some(_)) => self.noted(self.store.close(open).await)?,
            (None, _) => {}
        }
        Ok(())
    }
}
