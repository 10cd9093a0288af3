//! Names and directories.

use super::content::kind_bits;
use super::{HostFrontEnd, Result, caller};
use crate::error::RequestError;
use crate::privilege;
use fuse_session::abi::*;
use fuse_session::{MAX_WRITE, Reply};
use host::HostError;
use store::{Entry, Found, NewNode, Refusal, RenameOver, StoreError};

const PERMISSIONS: u32 = 0o7777;
/// `.` and `..` come first, then the store's cursors.
const OWN_ENTRIES: u64 = 2;

/// Attempts to make a name that other clients make and remove.
const CREATE_ATTEMPTS: u32 = 4;

impl HostFrontEnd {
    pub(super) async fn lookup(&self, header: &InHeader, name: &[u8]) -> Result {
        let parent = self.file(header.nodeid)?;
        if name == b"." {
            let attributes = self.host.attributes(parent).await?;
            return Ok(Reply::of(&self.entry(&attributes)?));
        }
        let found = self.host.lookup(parent, name).await?;
        Ok(Reply::of(&self.entry(&found.attributes)?))
    }

    async fn make(
        &self,
        header: &InHeader,
        name: &[u8],
        node: NewNode,
        umask: u32,
    ) -> Result<Found> {
        Ok(self.host.make(self.file(header.nodeid)?, name, node, caller(header, umask)).await?)
    }
    fn reply_made(&self, made: Found) -> Result {
        Ok(Reply::of(&self.entry(&made.attributes)?))
    }

    pub(super) async fn symlink(&self, header: &InHeader, name: &[u8], target: &[u8]) -> Result {
        let made = self.make(header, name, NewNode::Symlink { target: target.to_vec() }, 0).await?;
        self.reply_made(made)
    }
    pub(super) async fn mkdir(&self, header: &InHeader, arguments: MkdirIn, name: &[u8]) -> Result {
        let mode = arguments.mode & PERMISSIONS;
        let made = self.make(header, name, NewNode::Directory { mode }, arguments.umask).await?;
        self.reply_made(made)
    }
    pub(super) async fn mknod(&self, header: &InHeader, arguments: MknodIn, name: &[u8]) -> Result {
        let mode = self.mode_of_new(header, arguments.mode).await?;
        let node = match arguments.mode & libc::S_IFMT {
            libc::S_IFREG | 0 => NewNode::Regular { mode },
            kind => NewNode::Special { kind, mode, rdev: arguments.rdev },
        };
        let made = self.make(header, name, node, arguments.umask).await?;
        self.reply_made(made)
    }

    /// Returns the permissions of a file that the caller makes in a directory.
    async fn mode_of_new(&self, header: &InHeader, mode: u32) -> Result<u32> {
        let mode = mode & PERMISSIONS;
        if self.kernel_strips_set_group || mode & libc::S_ISGID == 0 {
            return Ok(mode);
        }
        let directory = self.host.attributes(self.file(header.nodeid)?).await?;
        let is_taken = privilege::gives_group_away(header, (directory.mode, directory.gid), mode);
        Ok(if is_taken { mode & !libc::S_ISGID } else { mode })
    }

    pub(super) async fn create(
        &self,
        header: &InHeader,
        arguments: CreateIn,
        name: &[u8],
    ) -> Result {
        let mode = self.mode_of_new(header, arguments.mode).await?;
        let is_exclusive = arguments.flags & libc::O_EXCL as u32 != 0;
        let parent = self.file(header.nodeid)?;
        for _ in 0..CREATE_ATTEMPTS {
            match self.host.create(parent, name, mode, caller(header, arguments.umask)).await {
                // Another client was faster than this kernel's lookup.
                Err(error) if !is_exclusive && is_refused(&error, Refusal::Exists) => {}
                created => {
                    let mut reply = Reply::of(&self.entry(&created?.attributes)?);
                    reply.append(&self.opened());
                    return Ok(reply);
                }
            }
            match self.host.lookup(parent, name).await {
                // And has removed it again.
                Err(error) if is_refused(&error, Refusal::NotFound) => {}
                found => {
                    found?;
                    break;
                }
            }
        }
        // The kernel looks the name up, and opens what it finds or asks once more. It takes a file
        // that CREATE opens for new: it checks no permission and truncates nothing. A caller who
        // wants to have the file made must not learn that there is none.
        Err(RequestError::Refused(libc::ESTALE))
    }

    pub(super) async fn link(&self, header: &InHeader, node: u64, name: &[u8]) -> Result {
        let attributes = self.host.link(self.file(node)?, self.file(header.nodeid)?, name).await?;
        Ok(Reply::of(&self.entry(&attributes)?))
    }

    pub(super) async fn rename(
        &self,
        header: &InHeader,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        flags: u32,
    ) -> Result {
        let mode = match flags {
            0 => RenameOver::Replace,
            libc::RENAME_NOREPLACE => RenameOver::NoReplace,
            libc::RENAME_EXCHANGE => RenameOver::Exchange,
            _ => return Err(RequestError::Refused(libc::EINVAL)),
        };
        let (from, to) = (self.file(header.nodeid)?, self.file(new_parent)?);
        self.host.rename((from, name), (to, new_name), mode).await?;
        Ok(Reply::empty())
    }

    /// Lists a directory. With `plus` the kernel wants attributes with the names, and gets names
    /// alone.
    pub(super) async fn readdir(&self, header: &InHeader, arguments: ReadIn, plus: bool) -> Result {
        let directory = self.file(header.nodeid)?;
        let size_max = arguments.size.min(MAX_WRITE) as usize;
        let mut reply = Reply::with_capacity(size_max);
        let mut append = |name: &[u8], ino: u64, kind: u32, off: u64| {
            let entry = if plus { size_of::<EntryOut>() } else { 0 };
            let length = (size_of::<Dirent>() + name.len()).next_multiple_of(RECORD_ALIGNMENT);
            if reply.payload_length() + entry + length > size_max {
                return false;
            }
            if plus {
                reply.append(&EntryOut::default());
            }
            reply.append(&Dirent { ino, off, namelen: name.len() as u32, kind });
            reply.append_bytes(name);
            reply.pad(RECORD_ALIGNMENT);
            true
        };
        for (name, off) in [(&b"."[..], 1), (&b".."[..], OWN_ENTRIES)] {
            if arguments.offset < off && !append(name, header.nodeid, kind_of(libc::S_IFDIR), off) {
                return Ok(reply);
            }
        }
        let mut cursor = arguments.offset.saturating_sub(OWN_ENTRIES);
        loop {
            let listing = self.host.list(directory, cursor).await?;
            for Entry { name, file, kind, cursor: at } in &listing.entries {
                if !append(name, self.node(*file)?, kind_of(kind_bits(*kind)), at + OWN_ENTRIES) {
                    return Ok(reply);
                }
                cursor = *at;
            }
            if listing.is_end || listing.entries.is_empty() {
                return Ok(reply);
            }
        }
    }
}

/// `d_type` of readdir(3).
fn kind_of(mode: u32) -> u32 {
    mode >> 12
}

fn is_refused(error: &HostError, refusal: Refusal) -> bool {
    matches!(error, HostError::Store(StoreError::Refused(found)) if *found == refusal)
}
