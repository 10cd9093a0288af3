//! Names and attributes. Operations on names are the store's, and there when they answer: a name that is delayed here would need a
//! token of its directory, which the store does not give.

use crate::error::HostError;
use crate::files::File;
use crate::host::Host;
use runtime::sync::WriteGuard;
use std::rc::Rc;
use store::{
    Access, AttributeChange, Attributes, Caller, FileId, FileKind, Found, Listing, NewNode, RenameMode,
    Space, Token, XattrMode,
};

impl Host {
    pub fn root(&self) -> FileId {
        self.store.root()
    }
    pub async fn lookup(&self, parent: FileId, name: &[u8]) -> Result<Found, HostError> {
        self.check()?;
        self.noted(self.store.lookup(parent, name).await)
    }
    pub async fn make(
        &self,
        parent: FileId,
        name: &[u8],
        node: NewNode,
        caller: Caller,
    ) -> Result<Found, HostError> {
        self.check()?;
        self.noted(self.store.make(parent, name, node, caller).await)
    }
    pub async fn link(&self, id: FileId, parent: FileId, name: &[u8]) -> Result<Attributes, HostError> {
        self.check()?;
        let file = self.files.get(id);
        let _settled = self.settled(file.as_deref()).await?;
        let attributes = self.noted(self.store.link(id, parent, name).await)?;
        self.learn(file.as_deref()).await?;
        Ok(attributes)
    }

    /// Before a change of a file's names, which changes its state as well, and no journal has that state: what was journaled
    /// of the file goes home first. Else a recovery would take the new state for others' work. While the guard is there
    /// nobody writes to the file.
    async fn settled(&self, file: Option<&File>) -> Result<Option<WriteGuard>, HostError> {
        let Some(file) = file else { return Ok(None) };
        let guard = file.lock.write().await;
        self.bring_home(file).await?;
        self.log.commit_all().await?;
        Ok(Some(guard))
    }
    /// The state that the store has of the file now is the base of what comes next.
    async fn learn(&self, file: Option<&File>) -> Result<(), HostError> {
        if let Some(file) = file.filter(|file| file.token.get().is_some()) {
            file.told.set(self.noted(self.store.attributes(file.id).await)?.version);
        }
        Ok(())
    }
    /// A file whose last name goes is reached by what is open alone.
    async fn kept_open(&self, file: Option<&File>) -> Result<(), HostError> {
        let Some(file) = file.filter(|file| file.opens.get() > 0 && file.open.get().is_none()) else {
            return Ok(());
        };
        let _guard = file.lock.write().await;
        if file.open.get().is_none() {
            // Who may not write to it will be told so when he does.
            file.open.set(self.store.open(file.id, Access::ReadWrite).await.ok());
        }
        Ok(())
    }

    /// Records of a file whose last name went are of no use to anybody.
    pub async fn unlink(&self, parent: FileId, name: &[u8]) -> Result<(), HostError> {
        self.check()?;
        let found = self.noted(self.store.lookup(parent, name).await)?;
        let file = self.files.get(found.file);
        self.kept_open(file.as_deref()).await?;
        let others = file.as_deref().filter(|_| found.attributes.links > 1);
        let settled = self.settled(others).await?;
        self.noted(self.store.unlink(parent, name).await)?;
        self.learn(others).await?;
        drop(settled);
        self.drop_nameless(found).await
    }
    async fn drop_nameless(&self, found: Found) -> Result<(), HostError> {
        let is_last = found.attributes.links <= 1 && found.attributes.kind != FileKind::Directory;
        let Some(file) = self.files.get(found.file).filter(|_| is_last) else { return Ok(()) };
        let guard = file.lock.write().await;
        if file.opens.get() == 0
            && let Some(dirty) = file.dirty.get()
        {
            self.log.commit(dirty.last).await?;
            self.log.free(dirty.slot);
            file.dirty.set(None);
        }
        drop(guard);
        self.let_go(&file).await
    }

    pub async fn remove_directory(&self, parent: FileId, name: &[u8]) -> Result<(), HostError> {
        self.check()?;
        self.noted(self.store.remove_directory(parent, name).await)
    }
    pub async fn rename(
        &self,
        (parent, name): (FileId, &[u8]),
        (new_parent, new_name): (FileId, &[u8]),
        mode: RenameMode,
    ) -> Result<(), HostError> {
        self.check()?;
        let replaced = self.store.lookup(new_parent, new_name).await.ok();
        let moved = self.noted(self.store.lookup(parent, name).await)?;
        if let Some(replaced) = &replaced {
            self.kept_open(self.files.get(replaced.file).as_deref()).await?;
        }
        let file = self.files.get(moved.file);
        let settled = self.settled(file.as_deref()).await?;
        self.noted(self.store.rename(parent, name, new_parent, new_name, mode).await)?;
        self.learn(file.as_deref()).await?;
        drop(settled);
        match replaced.filter(|replaced| replaced.file != moved.file) {
            Some(replaced) => self.drop_nameless(replaced).await,
            None => Ok(()),
        }
    }
    pub async fn read_link(&self, file: FileId) -> Result<Vec<u8>, HostError> {
        self.check()?;
        self.noted(self.store.read_link(file).await)
    }
    pub async fn list(&self, directory: FileId, cursor: u64) -> Result<Listing, HostError> {
        self.check()?;
        self.noted(self.store.list(directory, cursor).await)
    }
    pub async fn sync_directory(&self, directory: FileId) -> Result<(), HostError> {
        self.check()?;
        self.noted(self.store.sync_directory(directory).await)
    }
    pub async fn space(&self) -> Result<Space, HostError> {
        self.check()?;
        self.noted(self.store.space().await)
    }

    pub async fn attributes(&self, file: FileId) -> Result<Attributes, HostError> {
        self.check()?;
        self.noted(self.store.attributes(file).await)
    }

    /// A smaller size is the store's at once: what was journaled of the file goes there first, so that no replay brings cut-off bytes
    /// back. Other changes of a file that is held exclusively are journaled like writes.
    pub async fn set_attributes(
        self: &Rc<Self>,
        id: FileId,
        change: AttributeChange,
    ) -> Result<Attributes, HostError> {
        self.check()?;
        let Some(file) = self.files.get(id) else {
            return self.noted(self.store.set_attributes(id, change).await);
        };
        loop {
            self.check_file(&file)?;
            let room = self.log.room(0).await?;
            let guard = file.lock.write().await;
            if file.recalled.get() {
                drop((guard, room));
                file.until_returned().await;
                self.check()?;
                continue;
            }
            let is_held = file.token.get() == Some(Token::ExclusiveWrite);
            if !is_held || change.size.is_some_and(|size| size < file.told.get().size) {
                self.bring_home(&file).await?;
                // A crash must not find records of a file that is about to be cut.
                self.log.commit_all().await?;
                if file.recalled.get() {
                    continue;
                }
                let attributes = self.noted(self.store.set_attributes(id, change).await)?;
                file.told.set(attributes.version);
                return Ok(attributes);
            }
            let attributes = self.noted(self.store.set_attributes(id, change).await)?;
            if file.recalled.get() {
                // As with a write.
                self.settle_untold(&file).await?;
                self.log.commit_all().await?;
            } else {
                self.note_change(&file, &room, &attributes, (0, &[]));
            }
            return Ok(attributes);
        }
    }

    pub async fn xattr(&self, file: FileId, name: &[u8]) -> Result<Vec<u8>, HostError> {
        self.check()?;
        self.noted(self.store.xattr(file, name).await)
    }
    pub async fn xattr_names(&self, file: FileId) -> Result<Vec<u8>, HostError> {
        self.check()?;
        self.noted(self.store.xattr_names(file).await)
    }

    /// The store may count it as a change of the file: what was journaled goes there first.
    pub async fn set_xattr(
        &self,
        id: FileId,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<(), HostError> {
        self.check()?;
        let file = self.files.get(id);
        let _settled = self.settled(file.as_deref()).await?;
        let result = match value {
            Some(value) => self.store.set_xattr(id, name, value, mode).await,
            None => self.store.remove_xattr(id, name).await,
        };
        self.noted(result)?;
        self.learn(file.as_deref()).await
    }
}
