//! Adding and removing names.

use super::links::{LINKS_MAX, remove_subdirectory};
use super::{Intent, Stamped, check_name, refused};
use crate::directory::{Directory, Found, NewName};
use crate::{Caller, Inode, Result, Volume};
use engine::{Credits, Handle};
use format::ext4::directory::entry_type;
use format::ext4::inode::flags;
use std::rc::Rc;
use units::Refusal;

impl Volume {
    /// Adds a name for `inode`, which may be one that [`Volume::tmpfile`] made.
    pub async fn link(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        parent: &Rc<Inode>,
        name: &[u8],
        caller: &Caller<'_>,
    ) -> Result<Stamped<()>> {
        check_name(name)?;
        if inode.is_directory() {
            return refused(Refusal::NotPermitted);
        }
        // Checked before the locks: a file that is named as its own directory would be locked
        // twice.
        if !parent.is_directory() {
            return refused(Refusal::NotDirectory);
        }
        let _parent_lock = parent.lock.write().await;
        let _lock = inode.lock.write().await;
        let directory = self.changeable(parent, Intent::Add)?;
        if inode.has_flag(flags::IMMUTABLE | flags::APPEND) {
            return refused(Refusal::NotPermitted);
        }
        self.check_project(parent, inode)?;
        let Some(name) = directory.new_name(name).await? else {
            return refused(Refusal::Exists);
        };
        match inode.fields.borrow().links {
            // A nameless file that may be given a name is open; any other has been removed.
            0 if inode.opens.get() == 0 && inode.lookups.get() == 0 => {
                return refused(Refusal::NotFound);
            }
            LINKS_MAX.. => return refused(Refusal::TooManyLinks),
            _ => {}
        }
        let _tables = self.hold(&[parent, inode]).await?;
        // Directory + both inodes + the orphans.
        let credits =
            || directory.insert_credits() + self.credits_inode() * 2 + self.credits_orphan();
        self.with_space(credits, async |handle| {
            self.link_within(handle, &directory, parent, inode, &name, caller).await
        })
        .await
    }

    async fn link_within(
        &self,
        handle: &mut Handle,
        directory: &Directory<'_>,
        parent: &Inode,
        inode: &Inode,
        name: &NewName<'_>,
        caller: &Caller<'_>,
    ) -> Result<()> {
        let slot = directory.make_slot(handle, caller, name).await?;
        if inode.fields.borrow().links == 0 && !inode.cut_unfinished.get() {
            self.orphan_remove(handle, inode).await?;
        }
        inode.fields.borrow_mut().links += 1;
        let file_type = entry_type::of_mode(inode.fields.borrow().mode);
        directory.put(handle, slot, inode.number, file_type, name.name)?;
        self.note_change(inode);
        self.store(handle, inode).await?;
        self.store_names_changed(handle, parent).await
    }

    /// Removes a name. An inode without names lives on while it is open or the kernel refers to it.
    pub async fn unlink(self: &Rc<Self>, parent: &Rc<Inode>, name: &[u8]) -> Result<Stamped<()>> {
        self.remove(parent, name, Removal::File).await
    }

    /// Removes an empty directory.
    pub async fn rmdir(self: &Rc<Self>, parent: &Rc<Inode>, name: &[u8]) -> Result<Stamped<()>> {
        match name {
            b"." => refused(Refusal::Invalid),
            b".." => refused(Refusal::NotEmpty),
            _ => self.remove(parent, name, Removal::Directory).await,
        }
    }

    async fn remove(
        self: &Rc<Self>,
        parent: &Rc<Inode>,
        name: &[u8],
        removal: Removal,
    ) -> Result<Stamped<()>> {
        check_name(name)?;
        let parent_lock = parent.lock.write().await;
        let directory = self.changeable(parent, Intent::Remove)?;
        let (found, victim) = self.existing(&directory, parent, name).await?;
        let lock = victim.lock.write().await;
        self.check_victim(&victim, removal).await?;
        let _tables = self.hold(&[parent, &victim]).await?;
        // The name's block + the parent + the victim.
        let credits = Credits(1) + self.credits_inode() + self.credits_unlink();
        let mut handle = self.engine().start(credits).await?;
        let removed =
            self.remove_within(&mut handle, &directory, parent, &found, name, &victim).await;
        let transaction = handle.stop();
        drop((lock, parent_lock));
        removed?;
        self.free_or_leave(&victim).await?;
        Ok(Stamped { value: (), transaction })
    }

    /// Checks that the inode may lose a name: its directory is empty, if it is one.
    pub(super) async fn check_victim(
        self: &Rc<Self>,
        victim: &Inode,
        removal: Removal,
    ) -> Result<()> {
        if victim.has_flag(flags::IMMUTABLE | flags::APPEND) {
            return refused(Refusal::NotPermitted);
        }
        match (removal, victim.is_directory()) {
            (Removal::File, true) => refused(Refusal::IsDirectory),
            (Removal::Directory, false) => refused(Refusal::NotDirectory),
            (Removal::Directory, true) if !Directory::of(self, victim)?.is_empty().await? => {
                refused(Refusal::NotEmpty)
            }
            _ => Ok(()),
        }
    }

    async fn remove_within(
        &self,
        handle: &mut Handle,
        directory: &Directory<'_>,
        parent: &Inode,
        found: &Found,
        name: &[u8],
        victim: &Inode,
    ) -> Result<()> {
        directory.remove(handle, found, name)?;
        if victim.is_directory() {
            remove_subdirectory(parent);
            // Tasks that have the directory open still see that it is empty.
            victim.fields.borrow_mut().size = 0;
        }
        self.store_names_changed(handle, parent).await?;
        self.drop_link(handle, victim).await
    }

    /// Stores the directory after a change of its names.
    pub(super) async fn store_names_changed(
        &self,
        handle: &mut Handle,
        directory: &Inode,
    ) -> Result<()> {
        self.note_modification(directory);
        directory.last_data_change.set(handle.transaction());
        self.store(handle, directory).await
    }
}

/// Kind of file from which a name is removed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Removal {
    File,
    Directory,
}
