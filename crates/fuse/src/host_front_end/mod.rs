//! The front end of a shared store with a journal of this host: each request becomes one or two
//! calls of [`host::Host`], and one reply.
//!
//! A node is a file's number, except for the root. Other clients change the store, too, so reads
//! and writes bypass the kernel's page cache; mappings cannot ([`cached_pages`]). The kernel caches
//! attributes, and names of directories, as [`Host::attributes_to_cache`] and
//! [`Host::lookup_timeout`] allow.

mod cached_pages;
mod content;
mod locks;
mod names;
mod set_id;
mod signals;
#[cfg(test)]
mod tests;

use crate::error::{Failure, Reporter, RequestError};
use crate::privilege::{self, Capability};
use cached_pages::CachedPages;
use fuse_session::abi::{InHeader, OpenOut, ROOT_NODE, opcode};
use fuse_session::{FileSystem, MalformedRequest, Operation, Reply, Request};
use host::{DirectoryDescriptor, Host, HostError};
use signals::WaitingRequests;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use store::{Creator, FileId, Refusal, StoreError};

/// Prefix of the names of access lists.
const ACCESS_LISTS: &[u8] = b"system.posix_acl_";
/// Prefix of the names that only CAP_SYS_ADMIN shows.
const TRUSTED: &[u8] = b"trusted.";

pub struct HostFrontEnd {
    host: Rc<Host>,
    /// Whether the kernel takes set-group-id from new files where it must:
    /// [`crate::strips_set_group`].
    kernel_strips_set_group: bool,
    reporter: Reporter,
    /// Number of references that the kernel holds to each node.
    known: RefCell<BTreeMap<u64, u64>>,
    pages: CachedPages,
    last_descriptor: Cell<u64>,
    /// Open directories, by their descriptors.
    directories: RefCell<BTreeMap<u64, Rc<DirectoryDescriptor>>>,
    waiting: WaitingRequests,
    /// Whether closing succeeded.
    closed: Cell<Option<bool>>,
}

impl Failure for HostError {
    fn refusal(&self) -> Option<Refusal> {
        match self {
            HostError::Store(StoreError::Refused(refusal)) => Some(*refusal),
            // The file that the store does not take was reported.
            HostError::NoRoom(_) => Some(Refusal::NoSpace),
            _ => None,
        }
    }
    fn errno(&self) -> i32 {
        HostError::errno(self)
    }
}

type Result<T = Reply> = std::result::Result<T, RequestError<HostError>>;

impl HostFrontEnd {
    /// Creates a front end; `report` gets failures that are not the caller's fault.
    pub fn new(
        host: Rc<Host>,
        kernel_strips_set_group: bool,
        report: Box<dyn Fn(&str)>,
    ) -> Rc<HostFrontEnd> {
        let (known, closed) = (RefCell::default(), Cell::new(None));
        let reporter = Reporter::new(report);
        let (last_descriptor, waiting) = (Cell::new(0), WaitingRequests::default());
        let directories = RefCell::default();
        Rc::new(HostFrontEnd {
            host,
            kernel_strips_set_group,
            reporter,
            known,
            pages: CachedPages::default(),
            last_descriptor,
            directories,
            waiting,
            closed,
        })
    }

    /// Destages everything and accepts nothing any more. Returns whether that succeeded; a second
    /// call returns the result of the first.
    pub async fn close(&self) -> bool {
        if let Some(clean) = self.closed.get() {
            return clean;
        }
        self.closed.set(Some(false));
        match self.host.close().await {
            Ok(()) => self.closed.set(Some(true)),
            Err(error) => {
                self.reporter.report(&format!("not everything came to the store: {error}"))
            }
        }
        self.closed.get() == Some(true)
    }

    /// Returns the kernel's number of a file.
    pub fn node_of(&self, file: FileId) -> Option<u64> {
        self.node(file).ok()
    }

    async fn respond(&self, request: Request) -> Reply {
        let header = &request.header;
        let result = match request.operation() {
            _ if self.closed.get().is_some() && header.opcode != opcode::DESTROY => {
                Err(RequestError::Refused(libc::EIO))
            }
            Err(MalformedRequest) => Err(RequestError::Refused(libc::EINVAL)),
            Ok(operation) => self.perform(&request, operation).await,
        };
        self.reporter.reply(header, result)
    }

    async fn perform(&self, request: &Request, operation: Operation<'_>) -> Result {
        let header = &request.header;
        match operation {
            Operation::Lookup { name } => self.lookup(header, name).await,
            Operation::Forget { lookups } => {
                self.forget(header.nodeid, lookups);
                Ok(Reply::empty())
            }
            Operation::BatchForget(nodes) => {
                nodes.iter().for_each(|one| self.forget(one.nodeid, one.nlookup));
                Ok(Reply::empty())
            }
            Operation::Getattr => self.getattr(header).await,
            Operation::Setattr(arguments) => self.setattr(header, arguments).await,
            Operation::Readlink => {
                Ok(Reply::bytes(&self.host.read_link(self.file(header.nodeid)?).await?))
            }
            Operation::Symlink { name, target, .. } => self.symlink(header, name, target).await,
            Operation::Mknod { arguments, name, .. } => self.mknod(header, arguments, name).await,
            Operation::Mkdir { arguments, name, .. } => self.mkdir(header, arguments, name).await,
            Operation::Unlink { name } => {
                self.host.unlink(self.file(header.nodeid)?, name).await?;
                Ok(Reply::empty())
            }
            Operation::Rmdir { name } => {
                self.host.remove_directory(self.file(header.nodeid)?, name).await?;
                Ok(Reply::empty())
            }
            Operation::Rename { name, new_parent, new_name, flags } => {
                self.rename(header, name, new_parent, new_name, flags).await
            }
            Operation::Link { node, name } => self.link(header, node, name).await,
            Operation::Open(arguments) => self.open(header, arguments).await,
            Operation::Create { arguments, name, .. } => self.create(header, arguments, name).await,
            Operation::Release(arguments) => {
                let file = self.file(header.nodeid)?;
                // Closed in any case: the rest of its locks are dropped with the connection.
                let unlocked = self.host.unlock_descriptor(file, arguments.fh).await;
                self.host.close_file(file).await?;
                unlocked?;
                Ok(Reply::empty())
            }
            Operation::Flush(arguments) => self.flush(header, arguments).await,
            Operation::Getlk(arguments) => self.getlk(header, arguments).await,
            Operation::Setlk { arguments, waits } => self.setlk(request, arguments, waits).await,
            Operation::Read(arguments) => self.read(header, arguments).await,
            Operation::Write { arguments, data, .. } => self.write(header, arguments, data).await,
            Operation::Fallocate(arguments) => self.fallocate(header, arguments).await,
            Operation::Fsync(_) => {
                self.host.sync_file(self.file(header.nodeid)?).await?;
                Ok(Reply::empty())
            }
            Operation::Fsyncdir(arguments) => {
                let opened = self.directories.borrow().get(&arguments.fh).cloned();
                let opened = opened.ok_or(RequestError::Refused(libc::EBADF))?;
                self.host.sync_directory(&opened).await?;
                Ok(Reply::empty())
            }
            Operation::Syncfs => {
                self.host.sync().await?;
                Ok(Reply::empty())
            }
            Operation::Statfs => self.statfs().await,
            Operation::Opendir => {
                let opened = self.host.open_directory(self.file(header.nodeid)?);
                let fh = self.next_descriptor();
                self.directories.borrow_mut().insert(fh, Rc::new(opened));
                Ok(Reply::of(&OpenOut { fh, ..OpenOut::default() }))
            }
            Operation::Releasedir(arguments) => {
                self.directories.borrow_mut().remove(&arguments.fh);
                Ok(Reply::empty())
            }
            Operation::Readdir(arguments) => self.readdir(header, arguments, false).await,
            Operation::Readdirplus(arguments) => self.readdir(header, arguments, true).await,
            Operation::Setxattr { arguments, name, value } => {
                self.setxattr(header, arguments, name, Some(value)).await
            }
            Operation::Removexattr { name } => {
                self.setxattr(header, fuse_session::abi::SetxattrIn::default(), name, None).await
            }
            Operation::Getxattr { size, name } => {
                match self.host.xattr(self.file(header.nodeid)?, name).await {
                    // The kernel asks for access lists before it decides about permissions, and
                    // takes any other error for a refusal.
                    Err(HostError::Store(StoreError::Refused(Refusal::Unsupported)))
                        if name.starts_with(ACCESS_LISTS) =>
                    {
                        Err(RequestError::Refused(libc::ENODATA))
                    }
                    value => reply_within(&value?, size),
                }
            }
            Operation::Listxattr { size } => self.listxattr(header, size).await,
            Operation::Destroy => match self.close().await {
                true => Ok(Reply::empty()),
                false => Err(RequestError::Refused(libc::EIO)),
            },
            Operation::Ioctl { .. } => Err(RequestError::Refused(libc::ENOTTY)),
            Operation::Tmpfile { .. } => Err(RequestError::Refused(libc::EOPNOTSUPP)),
            // ENOSYS: the kernel does without from now on.
            _ => Err(RequestError::Refused(libc::ENOSYS)),
        }
    }

    async fn listxattr(&self, header: &InHeader, size_max: u32) -> Result {
        let mut names = self.host.xattr_names(self.file(header.nodeid)?).await?;
        let is_shown = |name: &&[u8]| !name.starts_with(TRUSTED);
        if !names.split_inclusive(|byte| *byte == 0).all(|name| is_shown(&name))
            && !privilege::holds(header.pid, Capability::SystemAdministration)
        {
            let shown = names.split_inclusive(|byte| *byte == 0).filter(is_shown);
            names = shown.flatten().copied().collect();
        }
        reply_within(&names, size_max)
    }

    fn file(&self, node: u64) -> Result<FileId> {
        match node {
            0 => Err(RequestError::Refused(libc::ESTALE)),
            ROOT_NODE => Ok(self.host.root()),
            node => Ok(FileId(node)),
        }
    }
    /// Returns the node of a file. A file with the kernel's number of the root cannot be shown.
    fn node(&self, file: FileId) -> Result<u64> {
        match file {
            file if file == self.host.root() => Ok(ROOT_NODE),
            FileId(0 | ROOT_NODE) => Err(RequestError::Refused(libc::EOVERFLOW)),
            FileId(node) => Ok(node),
        }
    }
    fn next_descriptor(&self) -> u64 {
        self.last_descriptor.set(self.last_descriptor.get() + 1);
        self.last_descriptor.get()
    }
    fn remember(&self, node: u64) {
        *self.known.borrow_mut().entry(node).or_default() += 1;
    }
    fn forget(&self, node: u64, lookups: u64) {
        let mut known = self.known.borrow_mut();
        let Some(count) = known.get_mut(&node) else { return };
        *count = count.saturating_sub(lookups);
        if *count == 0 {
            known.remove(&node);
            self.pages.forget(node);
            if node != ROOT_NODE {
                self.host.store().forget(FileId(node));
            }
        }
    }
}

fn caller(header: &InHeader, umask: u32) -> Creator {
    Creator { uid: header.uid, gid: header.gid, umask }
}

/// Replies with a value; a caller that passes size zero asks for the length.
fn reply_within(value: &[u8], size_max: u32) -> Result {
    match size_max as usize {
        0 => {
            Ok(Reply::of(&fuse_session::abi::GetxattrOut { size: value.len() as u32, padding: 0 }))
        }
        size_max if value.len() <= size_max => Ok(Reply::bytes(value)),
        _ => Err(RequestError::Refused(libc::ERANGE)),
    }
}

impl FileSystem for HostFrontEnd {
    const REMOTE_LOCKS: bool = true;

    fn interrupt(&self, unique: u64) {
        self.waiting.interrupt(unique);
    }
    fn stopping(&self) {
        self.waiting.stop_locks();
    }
    async fn serve(self: Rc<Self>, request: Request) -> Reply {
        self.respond(request).await
    }
    async fn end(self: Rc<Self>) {
        // Reported already; the caller closes again.
        let _ = self.close().await;
    }
}
