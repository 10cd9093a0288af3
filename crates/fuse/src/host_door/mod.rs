//! A shared store with a journal of this host, behind the door: one request, one or two calls of
//! [`host::Host`], one answer.
//!
//! A node is a file's number, but for the root. Others change the store, too: so reads and writes
//! go past the kernel's page cache. It keeps attributes, and names of directories, while
//! [`Host::attributes_to_keep`] and [`Host::keeps_found`] allow.

mod content;
mod locks;
mod names;
#[cfg(test)]
mod tests;

use crate::abi::{InHeader, ROOT_NODE, opcode};
use crate::{Answer, FileSystem, MalformedRequest, Operation, Request};
use host::{Host, HostError};
use locks::WaitingLocks;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use store::{Creator, FileId, Refusal, StoreError};

/// What names of access lists begin with.
const ACCESS_LISTS: &[u8] = b"system.posix_acl_";
/// After so many reports it is clear that something is wrong.
const REPORTS_MAX: u32 = 100;

pub struct HostDoor {
    host: Rc<Host>,
    report: Box<dyn Fn(&str)>,
    reports: Cell<u32>,
    /// How often the kernel has been told of each node.
    known: RefCell<BTreeMap<u64, u64>>,
    last_descriptor: Cell<u64>,
    waiting: WaitingLocks,
    /// How closing went.
    closed: Cell<Option<bool>>,
}

/// An errno for the caller, or a failure that is reported as well.
#[derive(Debug)]
enum Error {
    Refused(i32),
    Host(HostError),
}

impl From<HostError> for Error {
    fn from(error: HostError) -> Error {
        match error {
            HostError::Store(StoreError::Refused(refusal)) => Error::Refused(refusal.errno()),
            error => Error::Host(error),
        }
    }
}

type Result<T = Answer> = std::result::Result<T, Error>;

impl HostDoor {
    /// `report` is told of what is not the caller's fault.
    pub fn new(host: Rc<Host>, report: Box<dyn Fn(&str)>) -> Rc<HostDoor> {
        let (reports, known, closed) = (Cell::new(0), RefCell::default(), Cell::new(None));
        let (last_descriptor, waiting) = (Cell::new(0), WaitingLocks::default());
        Rc::new(HostDoor { host, report, reports, known, last_descriptor, waiting, closed })
    }

    /// Brings everything to the store, and accepts nothing any more. Whether that went well; a
    /// second call says what the first did.
    pub async fn close(&self) -> bool {
        if let Some(clean) = self.closed.get() {
            return clean;
        }
        self.closed.set(Some(false));
        match self.host.close().await {
            Ok(()) => self.closed.set(Some(true)),
            Err(error) => self.tell(&format!("not everything came to the store: {error}")),
        }
        self.closed.get() == Some(true)
    }

    /// How the kernel names a file.
    pub fn node_of(&self, file: FileId) -> Option<u64> {
        self.node(file).ok()
    }

    fn tell(&self, what: &str) {
        let reports = self.reports.get();
        if reports < REPORTS_MAX {
            self.reports.set(reports + 1);
            (self.report)(what);
        }
    }

    async fn respond(&self, request: Request) -> Answer {
        let header = &request.header;
        let result = match request.operation() {
            _ if self.closed.get().is_some() && header.opcode != opcode::DESTROY => {
                Err(Error::Refused(libc::EIO))
            }
            Err(MalformedRequest) => Err(Error::Refused(libc::EINVAL)),
            Ok(operation) => self.perform(header, operation).await,
        };
        match result {
            Ok(answer) => answer,
            Err(Error::Refused(code)) => Answer::error(code.max(1)),
            Err(Error::Host(error)) => {
                self.tell(&format!(
                    "operation {} on file {}: {error}",
                    header.opcode, header.nodeid
                ));
                Answer::error(error.errno().max(1))
            }
        }
    }

    async fn perform(&self, header: &InHeader, operation: Operation<'_>) -> Result {
        match operation {
            Operation::Lookup { name } => self.lookup(header, name).await,
            Operation::Forget { lookups } => {
                self.forget(header.nodeid, lookups);
                Ok(Answer::empty())
            }
            Operation::BatchForget(nodes) => {
                nodes.iter().for_each(|one| self.forget(one.nodeid, one.nlookup));
                Ok(Answer::empty())
            }
            Operation::Getattr => self.getattr(header).await,
            Operation::Setattr(arguments) => self.setattr(header, arguments).await,
            Operation::Readlink => {
                Ok(Answer::bytes(&self.host.read_link(self.file(header.nodeid)?).await?))
            }
            Operation::Symlink { name, target } => self.symlink(header, name, target).await,
            Operation::Mknod { arguments, name } => self.mknod(header, arguments, name).await,
            Operation::Mkdir { arguments, name } => self.mkdir(header, arguments, name).await,
            Operation::Unlink { name } => {
                self.host.unlink(self.file(header.nodeid)?, name).await?;
                Ok(Answer::empty())
            }
            Operation::Rmdir { name } => {
                self.host.remove_directory(self.file(header.nodeid)?, name).await?;
                Ok(Answer::empty())
            }
            Operation::Rename { name, new_parent, new_name, flags } => {
                self.rename(header, name, new_parent, new_name, flags).await
            }
            Operation::Link { node, name } => self.link(header, node, name).await,
            Operation::Open(arguments) => self.open(header, arguments).await,
            Operation::Create { arguments, name } => self.create(header, arguments, name).await,
            Operation::Release(arguments) => {
                let file = self.file(header.nodeid)?;
                // Closed in any case: what is left of its locks goes with the connection.
                let unlocked = self.host.unlock_descriptor(file, arguments.fh).await;
                self.host.close_file(file).await?;
                unlocked?;
                Ok(Answer::empty())
            }
            Operation::Flush(arguments) => self.flush(header, arguments).await,
            Operation::Getlk(arguments) => self.getlk(header, arguments).await,
            Operation::Setlk { arguments, waits } => self.setlk(header, arguments, waits).await,
            Operation::Read(arguments) => self.read(header, arguments).await,
            Operation::Write { arguments, data, .. } => self.write(header, arguments, data).await,
            Operation::Fallocate(arguments) => self.fallocate(header, arguments).await,
            Operation::Fsync(_) => {
                self.host.sync_file(self.file(header.nodeid)?).await?;
                Ok(Answer::empty())
            }
            Operation::Fsyncdir(_) => {
                self.host.sync_directory(self.file(header.nodeid)?).await?;
                Ok(Answer::empty())
            }
            Operation::Syncfs => {
                self.host.sync().await?;
                Ok(Answer::empty())
            }
            Operation::Statfs => self.statfs().await,
            Operation::Opendir | Operation::Releasedir(_) => {
                Ok(Answer::of(&crate::abi::OpenOut::default()))
            }
            Operation::Readdir(arguments) => self.readdir(header, arguments, false).await,
            Operation::Readdirplus(arguments) => self.readdir(header, arguments, true).await,
            Operation::Setxattr { arguments, name, value } => {
                self.setxattr(header, arguments, name, Some(value)).await
            }
            Operation::Removexattr { name } => {
                self.setxattr(header, crate::abi::SetxattrIn::default(), name, None).await
            }
            Operation::Getxattr { size, name } => {
                match self.host.xattr(self.file(header.nodeid)?, name).await {
                    // The kernel asks for access lists before it decides who may do what, and takes
                    // any other error for its answer.
                    Err(HostError::Store(StoreError::Refused(Refusal::Unsupported)))
                        if name.starts_with(ACCESS_LISTS) =>
                    {
                        Err(Error::Refused(libc::ENODATA))
                    }
                    value => in_room(&value?, size),
                }
            }
            Operation::Listxattr { size } => {
                in_room(&self.host.xattr_names(self.file(header.nodeid)?).await?, size)
            }
            Operation::Destroy => match self.close().await {
                true => Ok(Answer::empty()),
                false => Err(Error::Refused(libc::EIO)),
            },
            Operation::Ioctl { .. } => Err(Error::Refused(libc::ENOTTY)),
            Operation::Tmpfile(_) => Err(Error::Refused(libc::EOPNOTSUPP)),
            // ENOSYS: the kernel does without from now on.
            _ => Err(Error::Refused(libc::ENOSYS)),
        }
    }

    fn file(&self, node: u64) -> Result<FileId> {
        match node {
            0 => Err(Error::Refused(libc::ESTALE)),
            ROOT_NODE => Ok(self.host.root()),
            node => Ok(FileId(node)),
        }
    }
    /// A file whose number is the kernel's name for the root cannot be shown.
    fn node(&self, file: FileId) -> Result<u64> {
        match file {
            file if file == self.host.root() => Ok(ROOT_NODE),
            FileId(0 | ROOT_NODE) => Err(Error::Refused(libc::EOVERFLOW)),
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
            if node != ROOT_NODE {
                self.host.store().forget(FileId(node));
            }
        }
    }
}

fn caller(header: &InHeader, umask: u32) -> Creator {
    Creator { uid: header.uid, gid: header.gid, umask }
}

/// A caller that gives no room asks for the length.
fn in_room(value: &[u8], room: u32) -> Result {
    match room as usize {
        0 => Ok(Answer::of(&crate::abi::GetxattrOut { size: value.len() as u32, padding: 0 })),
        room if value.len() <= room => Ok(Answer::bytes(value)),
        _ => Err(Error::Refused(libc::ERANGE)),
    }
}

impl FileSystem for HostDoor {
    const SHARES_LOCKS: bool = true;

    fn begun(&self, over_ring: bool) {
        self.waiting.limit(over_ring);
    }
    fn interrupt(&self, unique: u64) {
        self.waiting.interrupt(unique);
    }
    fn stopping(&self) {
        self.waiting.stop();
    }
    async fn serve(self: Rc<Self>, request: Request) -> Answer {
        self.respond(request).await
    }
    async fn end(self: Rc<Self>) {
        // Reported already; the caller asks again.
        let _ = self.close().await;
    }
}
