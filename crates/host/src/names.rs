//! Names and attributes. Operations on names are the store's, and done when they are answered.
//! Delaying one here would need a token of its directory, which the store does not have.

use crate::error::HostError;
use crate::files::{Dirty, Failure, File};
use crate::host::Host;
use crate::unsynced_names::DirectoryDescriptor;
use runtime::sync::WriteGuard;
use std::cell::Cell;
use std::rc::Rc;
use store::{
    AttributeChange, Creator, FileAttributes, FileId, FileKind, Found, Listing, NewNode, Refusal,
    RenameOver, Space, StoreError, TimeChange, Token, XattrMode, registers_host,
};

/// The extended attribute that holds file capabilities.
const CAPABILITIES: &[u8] = b"security.capability";

impl Host {
    pub fn root(&self) -> FileId {
        self.store.root()
    }
    pub async fn lookup(&self, parent: FileId, name: &[u8]) -> Result<Found, HostError> {
        let at = || (parent, name.to_vec());
        self.query(|| self.names_asked.lookup(at(), || self.store.lookup(parent, name))).await
    }
    /// Runs a read-only request, again if the connection was lost.
    async fn query<T>(&self, ask: impl AsyncFn() -> Result<T, StoreError>) -> Result<T, HostError> {
        loop {
            let _busy = self.enter().await?;
            match self.noted(ask().await) {
                Err(error) if self.is_again(&error) => {}
                result => return result,
            }
        }
    }

    // Changes of names are not repeated once they were sent: whether one was carried out when the
    // connection was lost is unknown

    pub async fn make(
        &self,
        parent: FileId,
        name: &[u8],
        node: NewNode,
        caller: Creator,
    ) -> Result<Found, HostError> {
        self.once("a creation", async |is_sent| {
            self.begin_sending(is_sent)?;
            let made = self.store.make(parent, name, node.clone(), caller).await;
            self.unsynced_names.changed(&[parent]);
            self.noted(made)
        })
        .await
    }
    pub async fn link(
        &self,
        id: FileId,
        parent: FileId,
        name: &[u8],
    ) -> Result<FileAttributes, HostError> {
        self.once("a link", async |is_sent| {
            let change = async || {
                self.begin_sending(is_sent)?;
                let linked = self.store.link(id, parent, name).await;
                self.unsynced_names.changed(&[parent]);
                self.noted(linked)
            };
            self.change_settled(&self.files.known(id), change).await
        })
        .await
    }

    /// Has the store change a file that is settled and locked.
    ///
    /// A file that nobody has open is locked, too: while the store waits for another client's
    /// token, a program here may open the file, get the token, and have a write acknowledged that
    /// the change does not know of.
    async fn change_settled<T>(
        &self,
        file: &File,
        change: impl AsyncFnOnce() -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        let guard = file.lock.write().await;
        let changed = match self.settle(file).await {
            Ok(()) => change().await,
            Err(error) => Err(error),
        };
        self.leave(file, guard).await;
        changed
    }
    /// Destages a file and returns its token before a change of its names. That change alters the
    /// file's state, which no journal has: a recovery would take the new state for another
    /// client's. Another client may have the file before the store has done its part. The caller
    /// holds the file's lock: no task writes to the file.
    async fn settle(&self, file: &File) -> Result<(), HostError> {
        self.destage_locked(file).await?;
        self.give_up_token(file).await
    }
    /// Ends a change of a file by its path: one that is closed and clean is closed at the store,
    /// too, before those who wait for the file have it.
    async fn leave(&self, file: &File, guard: WriteGuard) {
        // Errors are recorded with the file or the connection.
        let _ = self.close_idle(file).await;
        drop(guard);
    }
    pub(crate) async fn give_up_token(&self, file: &File) -> Result<(), HostError> {
        match self.end_token(file) {
            Some(_) => self.hand_back(file).await,
            None => Ok(()),
        }
    }
    /// Settles a file before a name is removed that may be the last one: then its dirty bytes are
    /// of no use. The caller holds the file's lock.
    async fn settle_unless_last(&self, file: &Rc<File>, links: u32) -> Result<(), HostError> {
        if links > 1 && !units::fault!("host-name-before-content") {
            return self.settle(file).await;
        }
        self.invalidate_attributes(file);
        if file.opens.get() > 0 {
            // Without a name it is reached by the open file alone. A program that may not write to
            // it gets that error when it writes.
            let _ = self.opened(file).await;
        }
        self.note_removal(file, true).await.map(drop)
    }
    /// Records in the journal that the file is removed here, for a recovery that does not find it.
    /// Returns false if the journal has no space for that. The caller holds the file's lock; the
    /// commit runs beside the removal.
    async fn note_removal(&self, file: &Rc<File>, is_removed: bool) -> Result<bool, HostError> {
        file.is_removed.set(is_removed);
        // Without the token the state may be another client's, which no recovery may take for ours.
        let is_ours = file.dirty.get().is_some() && !file.recalled.get() && !file.is_given_up.get();
        if !is_ours || units::fault!("host-removal-not-noted") {
            return Ok(true);
        }
        let attributes = self.noted(self.store.attributes(file.id).await);
        let known = attributes.ok().filter(|known| known.version == file.reported.get());
        // Without space, or in a state that was not reported, a crash sets the file aside.
        if let Some(attributes) = known {
            if let Some(reservation) = self.log().try_reserve(0).await? {
                if file.dirty.get().is_some() {
                    self.note_change(file, &reservation, &attributes, (0, &[]));
                    self.log().begin_commit();
                }
                return Ok(true);
            }
        }
        Ok(false)
    }
    /// Waits until the journal has the removal, before the removal is answered.
    async fn removal_noted(&self, file: &File) -> Result<(), HostError> {
        match file.dirty.get().filter(|_| file.is_removed.get()) {
            Some(dirty) => self.log().commit(dirty.last).await,
            None => Ok(()),
        }
    }
    /// Withdraws the removal: it was not asked for, or the store has refused it. If the connection
    /// was lost, whether the name is there is unknown.
    async fn not_removed(&self, file: &Rc<File>, error: &HostError) -> Result<(), HostError> {
        if error.is_lost() || !file.is_removed.get() {
            return Ok(());
        }
        if !self.note_removal(file, false).await? && !units::fault!("host-withdrawal-without-space")
        {
            // Without records the file is not taken for removed, should another client remove it.
            return self.destage_locked(file).await;
        }
        if file.dirty.get().is_some() { self.log().commit_all().await } else { Ok(()) }
    }
    /// Follows the removal of one of `links` names. The caller does not wait for a file that nobody
    /// has open.
    async fn name_removed(
        &self,
        file: Rc<File>,
        (parent, links): (FileId, u32),
        settled: WriteGuard,
    ) -> Result<(), HostError> {
        let is_last = links <= 1 || units::fault!("host-first-removal-is-last");
        if !is_last {
            // Of one that has another name, the next token says whether that is gone, too. Then
            // this removal must be durable as well: it may bring the file back.
            self.note_lost_name(parent);
        } else if file.dirty.get().is_some() || file.opens.get() > 0 {
            // Others have no records that are to stay.
            file.last_removal.set(self.removals.add(parent));
        }
        if file.dirty.get().is_some() && file.opens.get() == 0 {
            self.add_departure(file, settled).await;
            return Ok(());
        }
        self.follow_name(file, settled).await
    }
    /// Records that a directory has lost a name of a file that has another one.
    fn note_lost_name(&self, directory: FileId) {
        if !units::fault!("host-earlier-removal-forgotten") {
            self.removals.add(directory);
        }
    }
    /// Asks the store how many names are left, as another client may have added one at the same
    /// time. The lock is held until the answer.
    pub(crate) async fn follow_name(
        &self,
        file: Rc<File>,
        settled: WriteGuard,
    ) -> Result<(), HostError> {
        if let Some(dirty) = file.dirty.get() {
            let links = match file.nameless.get() {
                // It was asked when the name was removed.
                true => 0,
                false => self.links_left(&file).await?,
            };
            let links = if units::fault!("host-names-not-counted") { 0 } else { links };
            file.nameless.set(links == 0);
            if links > 0 {
                file.is_removed.set(false);
            }
            match links {
                0 if file.opens.get() == 0 => {
                    self.drop_dirty(&file, dirty).await?;
                    // A file that gets its number has not been removed.
                    file.nameless.set(false);
                    file.forgive();
                }
                0 => {}
                _ => self.destage_locked(&file).await?,
            }
        }
        if file.dirty.get().is_none() {
            // Later writes belong to a file without a name only if the next token says so.
            file.is_removed.set(false);
            self.give_up_token(&file).await?;
        }
        let closed = self.close_idle(&file).await;
        drop(settled);
        self.files.forget(&file);
        closed
    }

    async fn links_left(&self, file: &File) -> Result<u32, HostError> {
        match self.store.attributes(file.id).await {
            Err(StoreError::Refused(Refusal::Stale | Refusal::NotFound)) => Ok(0),
            answer => Ok(self.noted(answer)?.links),
        }
    }

    /// Drops the dirty bytes of a file that nobody can read any more, without destaging it, once
    /// the removal of its names is durable: until then a crash of the store may bring one back. If
    /// programs of other clients may still read it, the store gets them first: what it refuses
    /// stays in the journal, and is tried again. The caller holds the file's lock for writing.
    async fn drop_dirty(&self, file: &File, dirty: Dirty) -> Result<(), HostError> {
        if self.store.others_read_removed() && !units::fault!("host-removed-dropped-first") {
            return self.destage_locked(file).await;
        }
        self.log().commit(dirty.last).await?;
        self.noted(self.removals.make_durable(&*self.store, file.last_removal.get()).await)?;
        self.log().free(dirty.slot);
        self.files.set_dirty(file, None);
        self.drained.notify();
        // First, so that the store need not keep its buffer.
        match file.open.take() {
            Some(open) => self.noted(self.store.close(open).await),
            None => Ok(()),
        }
    }
    /// Drops a file without a name, behind the answer, after its last descriptor was closed.
    pub(crate) async fn drop_nameless(&self, file: &Rc<File>) {
        // A file that the store refuses is of no use either.
        if !file.nameless.get() || file.failure.borrow().as_ref().is_some_and(Failure::lasts) {
            return;
        }
        let guard = file.lock.write().await;
        if file.dirty.get().is_some() && file.opens.get() == 0 {
            self.add_departure(file.clone(), guard).await;
        }
    }

    pub async fn unlink(&self, parent: FileId, name: &[u8]) -> Result<(), HostError> {
        self.once("a removal", async |is_sent| self.try_unlink(parent, name, is_sent).await).await
    }
    async fn try_unlink(
        &self,
        parent: FileId,
        name: &[u8],
        is_sent: &Cell<bool>,
    ) -> Result<(), HostError> {
        let found = self.noted(self.store.lookup(parent, name).await)?;
        let file = self.files.known(found.file);
        let links = found.attributes.links;
        let guard = file.lock.write().await;
        let removal = async {
            self.settle_unless_last(&file, links).await?;
            self.begin_sending(is_sent)?;
            let unlinked = self.store.unlink(parent, name).await;
            self.unsynced_names.changed(&[parent]);
            self.noted(unlinked)
        };
        if let Err(error) = removal.await {
            let withdrawn = self.not_removed(&file, &error).await;
            self.leave(&file, guard).await;
            return withdrawn.and(Err(error));
        }
        self.removal_noted(&file).await?;
        made(self.name_removed(file.clone(), (parent, links), guard).await)
    }

    pub async fn remove_directory(&self, parent: FileId, name: &[u8]) -> Result<(), HostError> {
        self.once("a removal", async |is_sent| {
            let removed = match self.removals.is_empty() {
                true => None,
                false => Some(self.noted(self.store.lookup(parent, name).await)?.file),
            };
            self.begin_sending(is_sent)?;
            let removal = self.store.remove_directory(parent, name).await;
            self.unsynced_names.changed(&[parent]);
            self.noted(removal)?;
            removed.iter().for_each(|removed| self.removals.directory_removed(*removed, parent));
            Ok(())
        })
        .await
    }
    pub async fn rename(
        &self,
        from: (FileId, &[u8]),
        to: (FileId, &[u8]),
        mode: RenameOver,
    ) -> Result<(), HostError> {
        self.once("a rename", async |is_sent| self.try_rename(from, to, mode, is_sent).await).await
    }
    async fn try_rename(
        &self,
        (parent, name): (FileId, &[u8]),
        (new_parent, new_name): (FileId, &[u8]),
        mode: RenameOver,
        is_sent: &Cell<bool>,
    ) -> Result<(), HostError> {
        let replaced = match self.noted(self.store.lookup(new_parent, new_name).await) {
            Err(error) if error.is_lost() => return Err(error),
            found => found.ok(),
        };
        let moved = self.noted(self.store.lookup(parent, name).await)?;
        let replaced = replaced.filter(|replaced| replaced.file != moved.file);
        let links = match mode {
            // An exchange removes no name.
            RenameOver::Exchange => u32::MAX,
            _ => replaced.map_or(0, |replaced| replaced.attributes.links),
        };
        let victim = replaced.map(|replaced| self.files.known(replaced.file));
        let file = self.files.known(moved.file);
        let (of_file, of_victim) = lock_both(&file, victim.as_deref()).await;
        let rename = async {
            self.settle(&file).await?;
            if let Some(victim) = &victim {
                self.settle_unless_last(victim, links).await?;
            }
            self.begin_sending(is_sent)?;
            let renamed = self.store.rename(parent, name, new_parent, new_name, mode).await;
            self.unsynced_names.changed(&[parent, new_parent]);
            self.noted(renamed)
        };
        let renamed = rename.await;
        if renamed.is_ok() && moved.attributes.kind == FileKind::Regular {
            self.note_lost_name(parent);
            if mode == RenameOver::Exchange {
                self.note_lost_name(new_parent);
            }
        }
        self.leave(&file, of_file).await;
        let (Some(victim), Some(of_victim)) = (victim, of_victim) else { return renamed };
        if let Err(error) = renamed {
            let withdrawn = self.not_removed(&victim, &error).await;
            self.leave(&victim, of_victim).await;
            return withdrawn.and(Err(error));
        }
        self.removal_noted(&victim).await?;
        made(self.name_removed(victim.clone(), (new_parent, links), of_victim).await)
    }
    pub async fn read_link(&self, file: FileId) -> Result<Vec<u8>, HostError> {
        self.query(|| self.store.read_link(file)).await
    }
    pub async fn list(&self, directory: FileId, cursor: u64) -> Result<Listing, HostError> {
        self.query(|| self.store.list(directory, cursor)).await
    }
    /// Opens a directory for an application: it may have changes that are not synced.
    pub fn open_directory(&self, directory: FileId) -> DirectoryDescriptor {
        self.unsynced_names.open(directory)
    }
    /// Makes the names of a directory durable, or reports that some may be lost with a connection.
    pub async fn sync_directory(&self, opened: &DirectoryDescriptor) -> Result<(), HostError> {
        let directory = opened.directory;
        let synced = self.query(async || {
            let covered = self.unsynced_names.begin_sync();
            self.store.sync_directory(directory).await?;
            self.unsynced_names.synced(directory, covered);
            Ok(())
        });
        synced.await?;
        match self.unsynced_names.report_loss(opened) && !units::fault!("host-lost-names-synced") {
            true => Err(HostError::NamesLost),
            false => Ok(()),
        }
    }
    pub async fn space(&self) -> Result<Space, HostError> {
        self.query(|| self.store.space()).await
    }

    pub async fn attributes(&self, file: FileId) -> Result<FileAttributes, HostError> {
        self.query(|| self.attributes_asked.lookup(file, || self.store.attributes(file))).await
    }

    /// Changes attributes. A new size is set at the store at once: the file is destaged first, so
    /// that no replay brings cut-off bytes back. Other changes of a file that is held exclusively
    /// are journaled like writes. A change of nothing, as chown(2) with -1 for both, needs no token
    /// and no right.
    pub async fn set_attributes(
        self: &Rc<Self>,
        id: FileId,
        change: AttributeChange,
    ) -> Result<FileAttributes, HostError> {
        if change == AttributeChange::default() && !units::fault!("host-nothing-is-a-change") {
            return self.attributes(id).await;
        }
        let is_valid = |time| match time {
            Some(TimeChange::To(time)) => time.nanoseconds < 1_000_000_000,
            _ => true,
        };
        if !is_valid(change.accessed) || !is_valid(change.modified) {
            // A journal with such a time would be refused as damaged.
            return Err(StoreError::from(Refusal::Invalid).into());
        }
        self.once("a change of attributes", async |is_sent| {
            self.try_set_attributes(id, change, is_sent).await
        })
        .await
    }
    async fn try_set_attributes(
        self: &Rc<Self>,
        id: FileId,
        change: AttributeChange,
        is_sent: &Cell<bool>,
    ) -> Result<FileAttributes, HostError> {
        let file = self.files.known(id);
        loop {
            self.check_file(&file)?;
            let guard = file.lock.write().await;
            if file.recalled.get() {
                drop(guard);
                file.until_returned().await;
                self.check()?;
                continue;
            }
            let changed = self.set_attributes_locked(&file, change, is_sent).await;
            self.leave(&file, guard).await;
            if let Some(changed) = changed.transpose() {
                return changed;
            }
            if !file.recalled.get() {
                // As for a write: no space is held while it waits for the file.
                self.log().until_space(0).await?;
            }
            self.check()?;
        }
    }
    /// Changes attributes; the caller holds the file's lock. `None`: another client wants the file,
    /// or the log has no space.
    async fn set_attributes_locked(
        self: &Rc<Self>,
        file: &File,
        change: AttributeChange,
        is_sent: &Cell<bool>,
    ) -> Result<Option<FileAttributes>, HostError> {
        // As for a write.
        self.check_file(file)?;
        let is_held = file.token.get() == Some(Token::ExclusiveWrite);
        if !is_held || change.size.is_some_and(|size| size != file.reported.get().size) {
            // A crash must not find records of a file that is about to be truncated.
            self.destage_locked(file).await?;
            if file.recalled.get() {
                return Ok(None);
            }
            self.begin_sending(is_sent)?;
            let changed = self.store.set_attributes(file.id, change).await;
            if changed.as_ref().is_ok_and(|changed| changed.kind == FileKind::Directory) {
                self.unsynced_names.changed(&[file.id]);
            }
            let changed = self.noted_change(file, changed);
            match &changed {
                Ok(attributes) => file.reported.set(attributes.version),
                Err(_) => self.settle_failed_change(file).await?,
            }
            return changed.map(Some);
        }
        let Some(reservation) = self.log().reserve_at_once(0)? else { return Ok(None) };
        self.check_closing()?;
        let recalls = file.recalls.get();
        let attributes = self.noted(self.store.set_attributes(file.id, change).await)?;
        if file.met_recall(recalls) {
            // As for a write.
            self.settle_unreported(file).await?;
        } else {
            self.note_change(file, &reservation, &attributes, (0, &[]));
        }
        Ok(Some(attributes))
    }

    /// Settles a file of which a change has failed at the store, which may have carried out a part
    /// of it: what is written under its token builds on the state that it has now.
    async fn settle_failed_change(&self, file: &File) -> Result<(), HostError> {
        match file.token.get() {
            Some(Token::ExclusiveWrite) => self.settle_unreported(file).await,
            _ => Ok(()),
        }
    }

    /// Removes file capabilities before a write, as the kernel does for its own file systems: a
    /// program loses its privileges when its file is written. The caller holds the file's lock for
    /// writing, with a token.
    pub(crate) async fn drop_capabilities(&self, file: &File) -> Result<(), HostError> {
        let grant = file.grant.get();
        if file.without_capabilities.get() == grant || units::fault!("host-capabilities-stay") {
            return Ok(());
        }
        if self.has_capabilities(file.id).await? {
            self.destage_locked(file).await?;
            let removed = self.noted(self.store.remove_xattr(file.id, CAPABILITIES).await);
            if removed.is_err() {
                self.settle_failed_change(file).await?;
            }
            removed?;
            file.reported.set(self.noted(self.store.attributes(file.id).await)?.version);
        }
        file.without_capabilities.set(grant);
        Ok(())
    }
    async fn has_capabilities(&self, id: FileId) -> Result<bool, HostError> {
        match self.store.xattr(id, CAPABILITIES).await {
            Err(StoreError::Refused(_)) => Ok(false),
            found => self.noted(found).map(|_| true),
        }
    }
    /// Removes file capabilities before a change of size or owner.
    pub async fn forget_capabilities(&self, id: FileId) -> Result<(), HostError> {
        if self.query(|| self.store.xattr(id, CAPABILITIES)).await.is_ok() {
            self.set_xattr(id, CAPABILITIES, None, XattrMode::Set).await?;
        }
        Ok(())
    }

    pub async fn xattr(&self, file: FileId, name: &[u8]) -> Result<Vec<u8>, HostError> {
        if registers_host(name) {
            return Err(StoreError::from(Refusal::NoAttribute).into());
        }
        self.query(|| self.store.xattr(file, name)).await
    }
    /// Returns the names of the extended attributes, each with a zero behind it.
    pub async fn xattr_names(&self, file: FileId) -> Result<Vec<u8>, HostError> {
        let names = self.query(|| self.store.xattr_names(file)).await?;
        let shown = names.split_inclusive(|byte| *byte == 0).filter(|name| !registers_host(name));
        Ok(shown.flatten().copied().collect())
    }

    /// Sets an extended attribute. The store may count it as a change of the file, which is
    /// destaged first.
    pub async fn set_xattr(
        &self,
        id: FileId,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<(), HostError> {
        if registers_host(name) {
            return Err(StoreError::from(Refusal::NotPermitted).into());
        }
        self.once("a change of an extended attribute", async |is_sent| {
            let change = async || {
                self.begin_sending(is_sent)?;
                let changed = match value {
                    Some(value) => self.store.set_xattr(id, name, value, mode).await,
                    None => self.store.remove_xattr(id, name).await,
                };
                self.noted(changed)
            };
            self.change_settled(&self.files.known(id), change).await
        })
        .await
    }
}

/// Locks two files in the order of their numbers.
async fn lock_both(file: &File, other: Option<&Rc<File>>) -> (WriteGuard, Option<WriteGuard>) {
    match other {
        Some(other) if other.id < file.id => {
            let of_other = other.lock.write().await;
            (file.lock.write().await, Some(of_other))
        }
        Some(other) => {
            let of_file = file.lock.write().await;
            (of_file, Some(other.lock.write().await))
        }
        None => (file.lock.write().await, None),
    }
}

/// Returns what a caller learns of a removal that the store has answered: it was made. Errors of
/// what follows are recorded with the file, the connection or the journal.
fn made(followed: Result<(), HostError>) -> Result<(), HostError> {
    match units::fault!("host-made-removal-refused") {
        true => followed.or_else(|error| if error.is_lost() { Ok(()) } else { Err(error) }),
        false => Ok(()),
    }
}
