//! Operations that change nothing.

use super::refused;
use crate::directory::Directory;
use crate::inode_table::ROOT;
use crate::mapping::MappingState;
use crate::{DirectoryEntry, Error, Inode, Result, Volume};
use format::ext4::directory::NAME_LENGTH_MAX;
use std::rc::Rc;
use units::FileBlock;
use units::Refusal;

impl Volume {
    /// The inode that `name` in `parent` refers to; `.` and `..` included. ENOENT, ENOTDIR,
    /// ENAMETOOLONG.
    pub async fn lookup(self: &Rc<Self>, parent: &Rc<Inode>, name: &[u8]) -> Result<Rc<Inode>> {
        if name.len() > NAME_LENGTH_MAX {
            return refused(Refusal::NameTooLong);
        }
        let directory = Directory::of(self, parent)?;
        let _lock = parent.lock.read().await;
        match name {
            _ if parent.fields.borrow().links == 0 => refused(Refusal::NotFound),
            b"." => Ok(parent.clone()),
            b".." if parent.number == ROOT => Ok(parent.clone()),
            b".." => self.entry_inode(parent, directory.parent().await?).await,
            _ => Ok(self.existing(&directory, parent, name).await?.1),
        }
    }

    /// The entries after `cookie` (0: from the start), at least one unless there are none left,
    /// about `count` at most. An entry that exists throughout the listing is returned exactly once,
    /// whatever other tasks do to the directory.
    pub async fn readdir(
        self: &Rc<Self>,
        directory: &Rc<Inode>,
        cookie: u64,
        count: usize,
    ) -> Result<Vec<DirectoryEntry>> {
        let _lock = directory.lock.read().await;
        self.list(directory, cookie, count).await
    }

    /// Lists as [`Volume::readdir`] does, with the inodes. `None` for `.` and `..`, which FUSE must
    /// not count as lookups. `None` also for those that cannot be read, so that one damaged inode
    /// does not hide the others.
    pub async fn readdirplus(
        self: &Rc<Self>,
        directory: &Rc<Inode>,
        cookie: u64,
        count: usize,
    ) -> Result<Vec<(DirectoryEntry, Option<Rc<Inode>>)>> {
        let _lock = directory.lock.read().await;
        let mut listed = Vec::new();
        for entry in self.list(directory, cookie, count).await? {
            let inode = match &entry.name[..] {
                b"." | b".." => None,
                _ => self.entry_inode(directory, entry.inode).await.ok(),
            };
            if let Some(inode) = &inode {
                self.learn_durability(directory, &entry.name, inode).await;
            }
            listed.push((entry, inode));
        }
        Ok(listed)
    }

    async fn list(
        self: &Rc<Self>,
        directory: &Rc<Inode>,
        cookie: u64,
        count: usize,
    ) -> Result<Vec<DirectoryEntry>> {
        let names = Directory::of(self, directory)?;
        if directory.fields.borrow().links == 0 {
            return Ok(Vec::new());
        }
        self.note_access(directory);
        names.read(cookie, count).await
    }

    /// The target of a symbolic link. EINVAL for other files.
    pub async fn readlink(self: &Rc<Self>, inode: &Rc<Inode>) -> Result<Vec<u8>> {
        let _lock = inode.lock.read().await;
        if !inode.is_symlink() {
            return refused(Refusal::Invalid);
        }
        self.note_access(inode);
        let is_inline = self.is_inline(inode);
        let (size, is_fast) = (inode.fields.borrow().size, self.is_fast_symlink(inode));
        let limit = if is_fast && !is_inline {
            inode.fields.borrow().block.len()
        } else {
            self.block_size().bytes()
        };
        if size == 0 || size >= limit as u64 {
            return Err(Error::corrupt_inode(
                inode.number,
                format!("a symbolic link of {size} bytes"),
            ));
        }
        let mut target = if is_inline {
            self.read_locked(inode, 0, size as usize).await?.to_vec()
        } else if is_fast {
            inode.fields.borrow().block[..size as usize].to_vec()
        } else {
            let MappingState::Written(home) = self.map(inode, FileBlock(0), 1).await?.state else {
                return Err(Error::corrupt_inode(
                    inode.number,
                    "a symbolic link without its block",
                ));
            };
            self.engine().metadata(home).await?.bytes()[..size as usize].to_vec()
        };
        target.truncate(target.iter().position(|&byte| byte == 0).unwrap_or(target.len()));
        Ok(target)
    }
}
