//! The front end of an ext4 volume: each request becomes one or two calls of [`ext4::Volume`], and
//! one reply.
//!
//! A node is an inode number, except for the root: node 1 is inode 2. Only this kernel changes the
//! volume, so it may cache names (also missing ones) and attributes for an hour.

mod attributes;
mod control;
mod directories;
mod error;
mod extended_attributes;
mod files;
mod names;
mod set_id;
mod whole_volume;

use crate::error::{Reporter, RequestError};
use ext4::{Caller, Inode, SyncWhat, Volume, WriteData, Written, flags};
use fuse_session::abi::{InHeader, ROOT_NODE, opcode};
use fuse_session::{FileSystem, MalformedRequest, Operation, Reply, Request, SecurityLabel};
use std::cell::Cell;
use std::rc::Rc;
use units::{InodeNumber, TransactionId};

/// Root directory of every ext4 volume.
const ROOT_INODE: InodeNumber = InodeNumber(2);
/// Seconds for which the kernel may cache a reply.
const VALID_SECONDS: u64 = 3600;

/// Options of the front end.
pub struct FrontEndOptions {
    /// Whether each change is durable before its reply (mount option `sync`). The kernel passes
    /// writes of such a mount with O_DSYNC.
    pub synchronous: bool,
    /// Whether each change of a directory is durable before its reply (mount options `sync` and
    /// `dirsync`).
    pub synchronous_directories: bool,
    /// Whether the kernel checks who may change flags and projects, and passes no such call on
    /// unchecked: [`crate::checks_flags`].
    pub kernel_checks_flags: bool,
    /// Whether the kernel takes set-group-id from new files where it must:
    /// [`crate::strips_set_group`].
    pub kernel_strips_set_group: bool,
    /// Whether the kernel drops the pages of a write past its cache before that returns:
    /// [`crate::drops_written_pages`]. Otherwise descriptors past the cache and through it are kept
    /// apart.
    pub kernel_drops_written_pages: bool,
    /// Whether files are opened and closed without a request (mount option `noopen`).
    pub without_open: bool,
    pub attributes: AttributeOptions,
}

/// Extended attributes that are not served. Those on the disk stay as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AttributeOptions {
    /// Whether none with the prefix `user.` is served (mount option `nouser_xattr`).
    pub without_user: bool,
    /// Whether no access control list is served (`noacl`). The volume ignores them as well, and the
    /// session does not negotiate them.
    pub without_access_lists: bool,
    /// Whether none at all is served, and the kernel stops asking for them (`noxattr`).
    pub without_any: bool,
}

pub struct VolumeFrontEnd {
    volume: Rc<Volume>,
    options: FrontEndOptions,
    reporter: Reporter,
    state: Cell<State>,
    /// Node and thread of the last removal of file capabilities. Before a write the kernel removes
    /// them by a REMOVEXATTR and a SETATTR without a field (`setattr_prepare` within
    /// `fuse_do_setattr`). For chown(-1, -1) it sends the same: FATTR_KILL_SUIDGID comes only with
    /// a new owner or size, and no bit gives the reason. A caller that may not keep set-id bits
    /// loses them either way. For others the call in which the thread waits decides; where that is
    /// not visible, a write is assumed, as it is the usual case.
    capabilities_taken: Cell<Option<(u64, u32)>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Closed,
    /// Closing failed: something is not written back.
    ClosedBadly,
}

type Result<T = Reply> = std::result::Result<T, RequestError<ext4::Error>>;

impl VolumeFrontEnd {
    /// Creates a front end; `report` gets failures that are the volume's or the disk's fault.
    pub fn new(
        volume: Rc<Volume>,
        options: FrontEndOptions,
        report: Box<dyn Fn(&str)>,
    ) -> Rc<VolumeFrontEnd> {
        let (state, capabilities_taken) = (Cell::new(State::Open), Cell::default());
        let reporter = Reporter::new(report);
        volume.set_kernel_page(u64::from(fuse_session::page_bytes()));
        Rc::new(VolumeFrontEnd { volume, options, reporter, state, capabilities_taken })
    }

    /// Closes the volume: writes everything back, and accepts nothing any more. A second call
    /// returns the result of the first.
    pub async fn close(&self) -> std::result::Result<(), ClosedBadly> {
        if self.state.get() == State::Open {
            self.state.set(State::Closed);
            if let Err(error) = self.volume.close().await {
                self.state.set(State::ClosedBadly);
                self.reporter.report(&format!("closing the volume failed: {error}"));
            }
        }
        if self.state.get() == State::Closed { Ok(()) } else { Err(ClosedBadly) }
    }

    /// Performs any request except writes, syncs and changes of attributes.
    async fn perform(&self, header: &InHeader, operation: Operation<'_>) -> Result {
        match operation {
            Operation::Write { .. }
            | Operation::Fsync(_)
            | Operation::Fsyncdir(_)
            | Operation::Setattr(_) => unreachable!("`serve` does them itself"),
            Operation::Lookup { name } => self.lookup(header, name).await,
            Operation::Forget { lookups } => self.forget(header.nodeid, lookups).await,
            Operation::BatchForget(nodes) => self.forget_all(nodes).await,
            Operation::Getattr => self.getattr(header).await,
            Operation::Statx(_) => self.statx(header).await,
            Operation::Readlink => self.readlink(header).await,
            Operation::Symlink { .. }
            | Operation::Mknod { .. }
            | Operation::Mkdir { .. }
            | Operation::Create { .. }
            | Operation::Tmpfile { .. } => self.make(header, operation).await,
            Operation::Unlink { name } => self.unlink(header, name).await,
            Operation::Rmdir { name } => self.rmdir(header, name).await,
            // In a box: it is the longest, and others are to fit into a page.
            Operation::Rename { name, new_parent, new_name, flags } => {
                Box::pin(self.rename(header, name, new_parent, new_name, flags)).await
            }
            Operation::Link { node, name } => self.link(header, node, name).await,
            // ENOSYS: the kernel opens files without asking from now on, and keeps their pages.
            Operation::Open(_) if self.options.without_open => {
                Err(RequestError::Refused(libc::ENOSYS))
            }
            Operation::Open(arguments) => self.open(header, arguments).await,
            Operation::Read(arguments) => self.read(header, arguments).await,
            Operation::Statfs => self.statfs().await,
            Operation::Release(arguments) => self.release(header, arguments).await,
            Operation::Setxattr { arguments, name, value } => {
                self.setxattr(header, arguments, name, value).await
            }
            Operation::Getxattr { size, name } => self.getxattr(header, size, name).await,
            Operation::Listxattr { size } => self.listxattr(header, size).await,
            Operation::Removexattr { name } => self.removexattr(header, name).await,
            Operation::Readdir(arguments) => self.readdir(header, arguments).await,
            Operation::Readdirplus(arguments) => self.readdirplus(header, arguments).await,
            Operation::Bmap(arguments) => self.bmap(header, arguments).await,
            Operation::Destroy => match self.close().await {
                Ok(()) => Ok(Reply::empty()),
                Err(ClosedBadly) => Err(RequestError::Refused(libc::EIO)),
            },
            Operation::Syncfs => Ok(self.volume.sync().await.map(|()| Reply::empty())?),
            Operation::Ioctl { arguments, input } => self.ioctl(header, arguments, input).await,
            Operation::Fallocate(arguments) => self.fallocate(header, arguments).await,
            Operation::Lseek(arguments) => self.lseek(header, arguments).await,
            Operation::CopyFileRange(arguments) => self.copy_file_range(header, arguments).await,
            // ENOSYS: the kernel does without from now on. It opens a directory by itself, and then
            // caches its listing. Each READDIR carries its position, and an open directory is a
            // reference that the kernel has not returned. Only this kernel changes the directory,
            // and it drops the listing with each change. It does not see that `..` names a new
            // parent: `rename` reports that.
            Operation::Opendir | Operation::Releasedir(_) => {
                Err(RequestError::Refused(libc::ENOSYS))
            }
            // No caller waits for a close: fsync reports errors.
            Operation::Flush(_)
            | Operation::Getlk(_)
            | Operation::Setlk { .. }
            | Operation::Other
            | Operation::Init(_)
            | Operation::Interrupt { .. } => Err(RequestError::Refused(libc::ENOSYS)),
        }
    }

    /// Performs an operation that makes a file.
    async fn make(&self, header: &InHeader, operation: Operation<'_>) -> Result {
        match operation {
            Operation::Symlink { name, target, labels } => {
                self.symlink(header, name, target, &labels).await
            }
            Operation::Mknod { arguments, name, labels } => {
                self.mknod(header, arguments, name, &labels).await
            }
            Operation::Mkdir { arguments, name, labels } => {
                self.mkdir(header, arguments, name, &labels).await
            }
            Operation::Create { arguments, name, labels } => {
                self.create(header, arguments, name, &labels).await
            }
            Operation::Tmpfile { arguments, labels } => {
                self.tmpfile(header, arguments, &labels).await
            }
            _ => Err(RequestError::Refused(libc::ENOSYS)),
        }
    }

    async fn inode(&self, node: u64) -> Result<Rc<Inode>> {
        let inode = match node {
            ROOT_NODE => self.volume.inode(ROOT_INODE).await?,
            _ => self.volume.inode(number_of(node)?).await?,
        };
        if self.options.without_open {
            inode.pages.opened_unobserved();
        }
        Ok(inode)
    }

    /// Waits for a change of a directory to be durable, on mounts and in directories that promise
    /// it. An inode in the reply is remembered before: during the wait another request may remove
    /// its name.
    async fn settle(&self, directory: &Inode, transaction: TransactionId) -> Result<()> {
        let asked = self.options.synchronous_directories;
        Ok(self.volume.settle_directory(directory, transaction, asked).await?)
    }

    /// Waits for a change of a file's size, blocks or attributes, and of a directory's attributes,
    /// to be durable: if the descriptor has `asked` for it (O_SYNC, O_DSYNC), the mount does, or
    /// the inode promises it. Each such operation but a write calls it before it replies. ext4
    /// waits for fewer of them: not for chmod, and for ftruncate only with `+S`.
    async fn settle_change(
        &self,
        inode: &Inode,
        transaction: TransactionId,
        asked: Option<SyncWhat>,
    ) -> Result<()> {
        if units::fault!("synchronous-change-answered") {
            return Ok(());
        }
        let promised = self.options.synchronous
            || inode.is_directory()
                && (self.options.synchronous_directories || inode.has_flag(flags::DIRECTORY_SYNC));
        let asked = if promised { Some(SyncWhat::All) } else { asked };
        if asked.is_none() && !inode.has_flag(flags::SYNC) {
            return Ok(());
        }
        let change = Written { count: 0, transaction };
        Ok(Box::pin(self.volume.settle_write(inode, &change, asked)).await?)
    }
}

/// The volume could not be closed cleanly; the report has the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedBadly;

impl FileSystem for VolumeFrontEnd {
    const SECURITY_LABELS: bool = true;

    async fn serve(self: Rc<Self>, request: Request) -> Reply {
        let header = &request.header;
        let result = match request.operation() {
            // Only the end may come when the volume is closed.
            _ if self.state.get() != State::Open && header.opcode != opcode::DESTROY => {
                Err(RequestError::Refused(libc::EIO))
            }
            Err(MalformedRequest) => Err(RequestError::Refused(libc::EINVAL)),
            Ok(Operation::Write { arguments, data, memory }) => {
                self.write(header, arguments, &WriteData { bytes: data, memory }).await
            }
            Ok(Operation::Fsync(arguments) | Operation::Fsyncdir(arguments)) => {
                self.fsync(header, arguments).await
            }
            // In a box of its own, which is half as long as that for all others.
            Ok(Operation::Setattr(arguments)) => Box::pin(self.setattr(header, arguments)).await,
            // Thousands of writes and syncs may wait for one commit, and a future is as long as its
            // longest branch.
            Ok(operation) => Box::pin(self.perform(header, operation)).await,
        };
        self.reporter.reply(header, result)
    }
    async fn end(self: Rc<Self>) {
        // Reported already; the caller calls `close` again.
        let _ = self.close().await;
    }
}

/// Returns the caller of a request that makes no file.
fn caller(header: &InHeader) -> Caller<'static> {
    Caller { uid: header.uid, gid: header.gid, umask: 0, labels: &[] }
}

/// Returns the caller of a request that makes a file, with what the file gets from it.
fn creator<'a>(header: &InHeader, umask: u32, labels: &'a [SecurityLabel<'a>]) -> Caller<'a> {
    Caller { uid: header.uid, gid: header.gid, umask: umask as u16 & 0o777, labels }
}

fn number_of(node: u64) -> Result<InodeNumber> {
    match (node, u32::try_from(node)) {
        (ROOT_NODE, _) => Ok(ROOT_INODE),
        (_, Ok(number)) if number > ROOT_INODE.get() => Ok(InodeNumber(number)),
        _ => Err(RequestError::Refused(libc::ESTALE)),
    }
}

fn node_of(inode: InodeNumber) -> u64 {
    if inode == ROOT_INODE { ROOT_NODE } else { u64::from(inode.get()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_inodes_translate_both_ways() {
        assert_eq!(number_of(1).unwrap(), InodeNumber(2));
        assert_eq!(node_of(InodeNumber(2)), 1);
        assert_eq!(number_of(node_of(InodeNumber(12))).unwrap(), InodeNumber(12));
        for impossible in [0, 2, 1 << 32, u64::MAX] {
            assert!(number_of(impossible).is_err(), "{impossible}");
        }
    }
}
