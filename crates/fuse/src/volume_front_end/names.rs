//! Names: lookup, creation, rename, removal.

use super::{Result, VALID_SECONDS, VolumeFrontEnd, caller, creator, node_of, number_of};
use crate::error::RequestError;
use ext4::{Inode, RenameMode, Stamped, flags};
use fuse_session::abi::*;
use fuse_session::{Reply, SecurityLabel};
use std::rc::Rc;
use units::Refusal;

const PERMISSIONS: u32 = 0o7777;
/// Nodes that are forgotten before other tasks run.
const FORGETS_AT_ONCE: usize = 256;

impl VolumeFrontEnd {
    pub(super) async fn lookup(&self, header: &InHeader, name: &[u8]) -> Result {
        // A file handle whose inode the kernel does not remember; it compares the generation.
        if name == b"." {
            let inode = self.volume.inode_by_handle(number_of(header.nodeid)?).await?;
            return Ok(Reply::of(&self.entry(&inode)));
        }
        let parent = self.inode(header.nodeid).await?;
        match self.volume.lookup(&parent, name).await {
            Ok(inode) => Ok(Reply::of(&self.entry(&inode))),
            // Node 0: the kernel may cache that there is no such name.
            Err(ext4::Error::Refused(Refusal::NotFound)) => {
                Ok(Reply::of(&EntryOut { entry_valid: VALID_SECONDS, ..Default::default() }))
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn forget(&self, node: u64, lookups: u64) -> Result {
        self.volume.forget(number_of(node)?, lookups).await?;
        Ok(Reply::empty())
    }

    pub(super) async fn forget_all(&self, nodes: Vec<ForgetOne>) -> Result {
        let mut result = Ok(Reply::empty());
        for (at, ForgetOne { nodeid, nlookup }) in nodes.into_iter().enumerate() {
            // The kernel forgets all of them, whatever becomes of one.
            result = result.and(self.forget(nodeid, nlookup).await);
            if at % FORGETS_AT_ONCE == FORGETS_AT_ONCE - 1 {
                runtime::yield_now().await;
            }
        }
        result
    }

    pub(super) async fn symlink(
        &self,
        header: &InHeader,
        name: &[u8],
        target: &[u8],
        labels: &[SecurityLabel<'_>],
    ) -> Result {
        let parent = self.inode(header.nodeid).await?;
        let caller = creator(header, 0, labels);
        let made = self.volume.symlink(&parent, name, &caller, target).await?;
        self.reply_made(&parent, made).await
    }

    pub(super) async fn mknod(
        &self,
        header: &InHeader,
        arguments: MknodIn,
        name: &[u8],
        labels: &[SecurityLabel<'_>],
    ) -> Result {
        let parent = self.inode(header.nodeid).await?;
        let caller = creator(header, arguments.umask, labels);
        let mode = self.mode_of_new(header, &parent, arguments.mode as u16);
        let made = self.volume.mknod(&parent, name, &caller, mode, arguments.rdev).await?;
        self.reply_made(&parent, made).await
    }

    pub(super) async fn mkdir(
        &self,
        header: &InHeader,
        arguments: MkdirIn,
        name: &[u8],
        labels: &[SecurityLabel<'_>],
    ) -> Result {
        let parent = self.inode(header.nodeid).await?;
        let mode = (arguments.mode & PERMISSIONS) as u16;
        let caller = creator(header, arguments.umask, labels);
        let made = self.volume.mkdir(&parent, name, &caller, mode).await?;
        self.reply_made(&parent, made).await
    }

    async fn reply_made(&self, parent: &Inode, made: Stamped<Rc<Inode>>) -> Result {
        let entry = self.entry(&made.value);
        self.settle(parent, made.transaction).await?;
        Ok(Reply::of(&entry))
    }

    pub(super) async fn link(&self, header: &InHeader, node: u64, name: &[u8]) -> Result {
        let (inode, parent) = (self.inode(node).await?, self.inode(header.nodeid).await?);
        let made = self.volume.link(&inode, &parent, name, &caller(header)).await?;
        let entry = self.entry(&inode);
        self.settle(&parent, made.transaction).await?;
        Ok(Reply::of(&entry))
    }

    pub(super) async fn unlink(&self, header: &InHeader, name: &[u8]) -> Result {
        let parent = self.inode(header.nodeid).await?;
        let removed = self.volume.unlink(&parent, name).await?;
        self.settle(&parent, removed.transaction).await?;
        Ok(Reply::empty())
    }

    pub(super) async fn rmdir(&self, header: &InHeader, name: &[u8]) -> Result {
        let parent = self.inode(header.nodeid).await?;
        let removed = self.volume.rmdir(&parent, name).await?;
        self.settle(&parent, removed.transaction).await?;
        Ok(Reply::empty())
    }

    pub(super) async fn rename(
        &self,
        header: &InHeader,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        flags: u32,
    ) -> Result {
        const NO_REPLACE_WHITEOUT: u32 = libc::RENAME_NOREPLACE | libc::RENAME_WHITEOUT;
        let mode = match flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            libc::RENAME_WHITEOUT => RenameMode::Whiteout,
            NO_REPLACE_WHITEOUT => RenameMode::NoReplaceWhiteout,
            _ => return Err(RequestError::Refused(libc::EINVAL)),
        };
        let (from, to) = (self.inode(header.nodeid).await?, self.inode(new_parent).await?);
        let moved =
            self.volume.rename((&from, name), (&to, new_name), &caller(header), mode).await?;
        // One transaction holds both directories.
        let strict = if to.has_flag(flags::SYNC | flags::DIRECTORY_SYNC) { &to } else { &from };
        self.settle(strict, moved.transaction).await?;
        // The kernel holds the lock of a directory that gets another parent: no page of its listing
        // is in flight.
        let moved = moved.value.into_iter().map(node_of);
        Ok(moved.fold(Reply::empty(), Reply::with_stale_listing))
    }

    pub(super) async fn readlink(&self, header: &InHeader) -> Result {
        let inode = self.inode(header.nodeid).await?;
        Ok(Reply::bytes(&self.volume.readlink(&inode).await?))
    }
}
