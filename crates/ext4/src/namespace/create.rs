//! Creating files of every kind.

use super::links::add_subdirectory;
use super::{Intent, Stamped, check_name, refused};
use crate::directory::{Directory, NewName};
use crate::{Allocate, Caller, Inode, NewInode, Result, Volume};
use engine::{Credits, Handle};
use format::ext4::directory::entry_type;
use format::ext4::feature;
use smallvec::smallvec;
use std::rc::Rc;
use units::FileBlock;
use units::Refusal;

const TYPE_MASK: u16 = 0xf000;
const DIRECTORY: u16 = 0x4000;
const REGULAR: u16 = 0x8000;
const SYMLINK: u16 = 0xa000;
/// Shorter targets of symbolic links are kept in the inode.
const FAST_LINK_END: usize = 60;

/// An inode and its name, to be created.
#[derive(Clone, Copy)]
struct Making<'a> {
    caller: &'a Caller<'a>,
    mode: u16,
    rdev: u32,
    /// The target of a symbolic link.
    target: &'a [u8],
}

impl Volume {
    /// Makes a regular file, fifo, socket or device. `mode` has the type, and the permissions
    /// before the caller's umask; `rdev` is the device number in the kernel's 32-bit encoding (as
    /// FUSE sends it).
    pub async fn mknod(
        self: &Rc<Self>,
        parent: &Rc<Inode>,
        name: &[u8],
        caller: &Caller<'_>,
        mode: u16,
        rdev: u32,
    ) -> Result<Stamped<Rc<Inode>>> {
        let mode = if mode & TYPE_MASK == 0 { mode | REGULAR } else { mode };
        let rdev = match entry_type::of_mode(mode) {
            entry_type::CHARACTER_DEVICE | entry_type::BLOCK_DEVICE => rdev,
            entry_type::REGULAR | entry_type::FIFO | entry_type::SOCKET => 0,
            entry_type::DIRECTORY => return refused(Refusal::NotPermitted),
            _ => return refused(Refusal::Invalid),
        };
        self.make(parent, name, Making { caller, mode, rdev, target: b"" }).await
    }

    /// Makes a directory; `mode` holds the permission bits before the caller's umask.
    pub async fn mkdir(
        self: &Rc<Self>,
        parent: &Rc<Inode>,
        name: &[u8],
        caller: &Caller<'_>,
        mode: u16,
    ) -> Result<Stamped<Rc<Inode>>> {
        let mode = mode & !TYPE_MASK | DIRECTORY;
        self.make(parent, name, Making { caller, mode, rdev: 0, target: b"" }).await
    }

    /// Makes a symbolic link with target `target` (1 byte up to a block less one).
    pub async fn symlink(
        self: &Rc<Self>,
        parent: &Rc<Inode>,
        name: &[u8],
        caller: &Caller<'_>,
        target: &[u8],
    ) -> Result<Stamped<Rc<Inode>>> {
        if target.is_empty() {
            return refused(Refusal::NotFound);
        }
        if target.contains(&0) {
            return refused(Refusal::Invalid);
        }
        if target.len() >= self.block_size().bytes() {
            return refused(Refusal::NameTooLong);
        }
        self.make(parent, name, Making { caller, mode: SYMLINK | 0o777, rdev: 0, target }).await
    }

    async fn make(
        self: &Rc<Self>,
        parent: &Rc<Inode>,
        name: &[u8],
        making: Making<'_>,
    ) -> Result<Stamped<Rc<Inode>>> {
        check_name(name)?;
        let _lock = parent.lock.write().await;
        let directory = self.changeable(parent, Intent::Add)?;
        let Some(name) = directory.new_name(name).await? else {
            return refused(Refusal::Exists);
        };
        if making.mode & TYPE_MASK == DIRECTORY && !self.takes_subdirectory(parent) {
            return refused(Refusal::TooManyLinks);
        }
        let _tables = self.hold(&[parent]).await?;
        // Not with an open handle, since a commit would wait for it.
        self.read_durability(parent).await;
        let credits = || directory.insert_credits() + self.make_credits(parent);
        self.with_space_or_abandoned(credits, async |handle, abandoned| {
            self.make_within(handle, &directory, parent, &name, making, abandoned).await
        })
        .await
    }

    /// The inode + its lists + its first block and mapping + the parent + an orphan if all fails.
    /// (A new inode's mapping is no deeper than any other's.)
    fn make_credits(&self, parent: &Inode) -> Credits {
        self.credits_create_inode()
            + self.credits_inherit_attributes()
            + Credits(1)
            + self.credits_map(parent)
            + self.credits_inode() * 2
            + self.credits_orphan()
    }

    async fn make_within(
        self: &Rc<Self>,
        handle: &mut Handle,
        directory: &Directory<'_>,
        parent: &Rc<Inode>,
        name: &NewName<'_>,
        making: Making<'_>,
        abandoned: &mut Option<Rc<Inode>>,
    ) -> Result<Rc<Inode>> {
        let slot = directory.make_slot(handle, making.caller, name).await?;
        let inode = self.new_inode(handle, parent, making).await?;
        let filled = match self.fill_new(handle, parent, &inode, making).await {
            Ok(()) => self.store_parent(handle, parent, &inode).await,
            Err(error) => Err(error),
        };
        if let Err(error) = filled {
            self.abandon(handle, &inode).await?;
            *abandoned = Some(inode);
            return Err(error);
        }
        directory.put(handle, slot, inode.number, entry_type::of_mode(making.mode), name.name)?;
        self.learn_durability(parent, name.name, &inode).await;
        Ok(inode)
    }

    async fn new_inode(
        self: &Rc<Self>,
        handle: &mut Handle,
        parent: &Inode,
        making: Making<'_>,
    ) -> Result<Rc<Inode>> {
        let Making { caller, mode, rdev, .. } = making;
        self.create_inode(handle, NewInode { parent, mode, uid: caller.uid, gid: caller.gid, rdev })
            .await
    }

    /// Sets attributes, permissions, and the content of a directory or symbolic link.
    async fn fill_new(
        self: &Rc<Self>,
        handle: &mut Handle,
        parent: &Inode,
        inode: &Rc<Inode>,
        making: Making<'_>,
    ) -> Result<()> {
        self.inherit_attributes(handle, parent, inode, making.caller).await?;
        match making.mode & TYPE_MASK {
            DIRECTORY => {
                inode.fields.borrow_mut().links = 2;
                Directory::of(self, inode)?.initialize(handle, making.caller, parent.number).await
            }
            SYMLINK => self.store_target(handle, inode, making).await,
            _ => Ok(()),
        }
    }

    async fn store_target(
        self: &Rc<Self>,
        handle: &mut Handle,
        inode: &Rc<Inode>,
        making: Making<'_>,
    ) -> Result<()> {
        let Making { caller, target, .. } = making;
        if target.len() < FAST_LINK_END {
            let mut fields = inode.fields.borrow_mut();
            fields.block = smallvec![0; FAST_LINK_END];
            fields.block[..target.len()].copy_from_slice(target);
        } else {
            if self.has(feature::EXTENTS) {
                inode.fields.borrow_mut().make_extent_root();
            }
            // The target is written through the journal as metadata, as the kernel's does.
            let allocated =
                self.map_or_allocate(handle, inode, caller, FileBlock(0), 1, Allocate::Directory);
            let allocated = Box::pin(allocated).await?;
            let home = allocated.mapping.home().expect("an allocated block has a home");
            let block = handle.create(home);
            let range = units::BlockRange::new(0, target.len() as u32);
            handle.change(&block, range, |bytes| bytes[range.as_usize()].copy_from_slice(target));
        }
        inode.fields.borrow_mut().size = target.len() as u64;
        inode.last_data_change.set(handle.transaction());
        self.store(handle, inode).await
    }

    async fn store_parent(&self, handle: &mut Handle, parent: &Inode, inode: &Inode) -> Result<()> {
        if inode.is_directory() {
            add_subdirectory(parent);
        }
        self.note_modification(parent);
        parent.last_data_change.set(handle.transaction());
        self.store(handle, parent).await
    }

    /// Makes an inode an orphan after a failure, to be freed once the handle is stopped.
    async fn abandon(&self, handle: &mut Handle, inode: &Inode) -> Result<()> {
        inode.fields.borrow_mut().links = 0;
        self.orphan_add(handle, inode);
        self.store(handle, inode).await
    }

    /// Makes a regular file without a name (O_TMPFILE). It is an orphan until [`Volume::link`]
    /// names it.
    pub async fn tmpfile(
        self: &Rc<Self>,
        parent: &Rc<Inode>,
        caller: &Caller<'_>,
        mode: u16,
    ) -> Result<Stamped<Rc<Inode>>> {
        let _lock = parent.lock.read().await;
        self.changeable(parent, Intent::Add)?;
        let making = Making { caller, mode: mode & !TYPE_MASK | REGULAR, rdev: 0, target: b"" };
        let credits = || self.make_credits(parent);
        self.with_space_or_abandoned(credits, async |handle, abandoned| {
            self.tmpfile_within(handle, parent, making, abandoned).await
        })
        .await
    }

    async fn tmpfile_within(
        self: &Rc<Self>,
        handle: &mut Handle,
        parent: &Inode,
        making: Making<'_>,
        abandoned: &mut Option<Rc<Inode>>,
    ) -> Result<Rc<Inode>> {
        let inode = self.new_inode(handle, parent, making).await?;
        let filled = self.fill_new(handle, parent, &inode, making).await;
        self.abandon(handle, &inode).await?;
        if let Err(error) = filled {
            *abandoned = Some(inode);
            return Err(error);
        }
        Ok(inode)
    }
}
