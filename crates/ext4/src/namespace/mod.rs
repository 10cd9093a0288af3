//! Names: the calls of front ends that look up, make, move and remove files.
//!
//! Every function here takes the inode locks it needs (order: [`crate::Inode`]) and starts its own
//! handle. One that changes the volume also returns the transaction that holds the change.
//! `Volume::sync_file` of the directory, or a commit of that transaction, makes it durable.
//!
//! Within a handle every step that can fail for lack of space comes first; then the names change
//! without a step that can fail. So ENOSPC leaves at most a directory with space to spare, and an
//! inode that is an orphan at once.

mod create;
mod link;
mod links;
mod read;
mod rename;
mod types;

pub use types::{DirectoryEntry, FileType, RenameMode, Stamped};

use crate::directory::{Directory, Found};
use crate::{Error, Inode, Result, Volume};
use engine::{Credits, Handle};
use format::ext4::directory::NAME_LENGTH_MAX;
use format::ext4::inode::flags;
use std::rc::Rc;
use units::InodeNumber;
use units::Refusal;

fn refused<T>(refusal: Refusal) -> Result<T> {
    Err(Error::Refused(refusal))
}

/// Checks that a name may be added or removed: neither `.` nor `..`.
fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_LENGTH_MAX {
        return refused(Refusal::NameTooLong);
    }
    let impossible = name.is_empty() || name == b"." || name == b"..";
    if impossible || name.iter().any(|&byte| byte == b'/' || byte == 0) {
        return refused(Refusal::Invalid);
    }
    Ok(())
}

/// Change of a directory's names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Intent {
    Add,
    Remove,
}

impl Volume {
    /// Opens a directory whose names the caller may change. ENOENT when it was removed, EPERM by
    /// its flags.
    fn changeable<'a>(
        self: &'a Rc<Self>,
        inode: &'a Inode,
        intent: Intent,
    ) -> Result<Directory<'a>> {
        let directory = Directory::of(self, inode)?;
        if inode.fields.borrow().links == 0 {
            return refused(Refusal::NotFound);
        }
        let append = if intent == Intent::Remove { flags::APPEND } else { 0 };
        if inode.has_flag(flags::IMMUTABLE | append) {
            return refused(Refusal::NotPermitted);
        }
        Ok(directory)
    }

    /// The inode of an entry. The directory's lock is held, so it cannot be freed.
    async fn entry_inode(&self, directory: &Inode, number: InodeNumber) -> Result<Rc<Inode>> {
        let wrong = |why: &str| {
            self.note_damage(Error::corrupt_inode(
                directory.number,
                format!("it names {number}, {why}"),
            ))
        };
        if number == directory.number {
            return Err(wrong("which is itself"));
        }
        let inode = self.inode(number).await.map_err(|error| match error {
            Error::Refused(Refusal::Stale) => wrong("which is free"),
            error => error,
        })?;
        if inode.fields.borrow().links == 0 {
            return Err(wrong("which has no links"));
        }
        if inode.has_flag(flags::EA_INODE) {
            return Err(wrong("which holds an attribute's value"));
        }
        Ok(inode)
    }

    /// The entry `name` and its inode, or ENOENT.
    async fn existing(
        &self,
        directory: &Directory<'_>,
        of: &Inode,
        name: &[u8],
    ) -> Result<(Found, Rc<Inode>)> {
        let Some(found) = directory.find(name).await? else { return refused(Refusal::NotFound) };
        let inode = self.entry_inode(of, found.inode).await?;
        self.learn_durability(of, name, &inode).await;
        Ok((found, inode))
    }

    /// Removes a link of an inode; with its last it becomes an orphan. Credits:
    /// [`Volume::credits_unlink`].
    async fn drop_link(&self, handle: &mut Handle, inode: &Inode) -> Result<()> {
        {
            let mut fields = inode.fields.borrow_mut();
            // A directory's other link is its own `.`.
            fields.links =
                if inode_is_directory(fields.mode) { 0 } else { fields.links.saturating_sub(1) };
        }
        self.note_change(inode);
        if inode.fields.borrow().links == 0 {
            self.orphan_add(handle, inode);
        }
        self.store(handle, inode).await
    }
    /// The inode and its place among the orphans.
    fn credits_unlink(&self) -> Credits {
        self.credits_inode() + self.credits_orphan()
    }
}

fn inode_is_directory(mode: u16) -> bool {
    mode & 0xf000 == 0x4000
}
