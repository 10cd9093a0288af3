//! Front end for one disk as the only file of a directory: the file's reads, writes and syncs are
//! the disk's.
//!
//! The file is always opened for direct I/O, so no page cache stands between. Each request is one
//! of the disk's, a sync is its flush, and a write with O_DSYNC is a forced one (FUA). The disk
//! sees as many at once as the kernel sends.

use device::{Buffer, DeviceError, Disk, Durability};
use fuse_session::abi::{
    Attr, AttrOut, Dirent, EntryOut, OpenOut, RECORD_ALIGNMENT, ROOT_NODE, ReadIn, SetattrIn,
    StatfsOut, WriteIn, WriteOut, fattr, fopen,
};
use fuse_session::{FileSystem, Operation, Reply, Request};
use runtime::Slice;
use std::rc::Rc;

/// The file's name.
pub const NAME: &str = "disk";
const DISK_NODE: u64 = 2;
/// Seconds: only this process changes anything.
const FOREVER: u64 = 1 << 30;

pub struct DiskFrontEnd {
    disk: Rc<dyn Disk>,
    owner: (u32, u32),
}

impl DiskFrontEnd {
    /// Makes the file of `owner`: user and group.
    pub fn new(disk: Rc<dyn Disk>, owner: (u32, u32)) -> Rc<DiskFrontEnd> {
        Rc::new(DiskFrontEnd { disk, owner })
    }
}

impl FileSystem for DiskFrontEnd {
    async fn serve(self: Rc<Self>, request: Request) -> Reply {
        let result = match request.operation() {
            Ok(operation) => self.reply(request.header.nodeid, operation).await,
            Err(_) => Err(libc::EINVAL),
        };
        result.unwrap_or_else(Reply::error)
    }
    async fn end(self: Rc<Self>) {}
}

impl DiskFrontEnd {
    /// Replies, or returns a positive errno.
    async fn reply(&self, node: u64, operation: Operation<'_>) -> Result<Reply, i32> {
        match operation {
            Operation::Lookup { name } if node == ROOT_NODE && name == NAME.as_bytes() => {
                Ok(Reply::of(&self.entry(DISK_NODE)))
            }
            Operation::Lookup { .. } => Err(libc::ENOENT),
            Operation::Getattr => Ok(self.attributes_reply(node)),
            Operation::Setattr(SetattrIn { valid, size, .. }) => {
                if valid & fattr::SIZE != 0 && size != self.size() {
                    return Err(libc::EPERM);
                }
                // Times and owners of a disk mean nothing, and nothing is stored.
                Ok(self.attributes_reply(node))
            }
            Operation::Open(_) => {
                let open_flags = fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES | fopen::NOFLUSH;
                Ok(Reply::of(&OpenOut { open_flags, ..Default::default() }))
            }
            Operation::Read(arguments) => self.read(arguments).await,
            Operation::Write { arguments, data, .. } => self.write(arguments, data).await,
            Operation::Fsync(_) => {
                self.disk.flush().await.map_err(|error| errno(&error))?;
                Ok(Reply::empty())
            }
            Operation::Opendir => Ok(Reply::of(&OpenOut::default())),
            Operation::Readdir(arguments) => Ok(self.list(arguments.offset, false)),
            Operation::Readdirplus(arguments) => Ok(self.list(arguments.offset, true)),
            Operation::Statfs => {
                let (blocks, bsize) = (self.size() / 4096, 4096);
                Ok(Reply::of(&StatfsOut {
                    blocks,
                    files: 1,
                    bsize,
                    frsize: bsize,
                    namelen: 255,
                    ..Default::default()
                }))
            }
            Operation::Forget { .. }
            | Operation::BatchForget(_)
            | Operation::Release(_)
            | Operation::Releasedir(_)
            | Operation::Fsyncdir(_)
            | Operation::Flush(_)
            | Operation::Syncfs
            | Operation::Destroy => Ok(Reply::empty()),
            Operation::Create { .. } | Operation::Unlink { .. } | Operation::Rename { .. } => {
                Err(libc::EPERM)
            }
            // Above all FALLOCATE: a range that a loop device zeroes by it must read as zeros, a
            // disk's discarded range need not.
            _ => Err(libc::ENOSYS),
        }
    }

    /// Reads any range: whole sectors are read, and the range cut out.
    async fn read(&self, arguments: ReadIn) -> Result<Reply, i32> {
        let end = arguments.offset.saturating_add(arguments.size.into()).min(self.size());
        if arguments.offset >= end {
            return Ok(Reply::empty());
        }
        let sector = self.sector();
        let first = arguments.offset - arguments.offset % sector;
        let length = (end.next_multiple_of(sector) - first) as usize;
        let buffer = Rc::new(self.disk.read(first, length).await.map_err(|error| errno(&error))?);
        let range = (arguments.offset - first) as usize..(end - first) as usize;
        Ok(Reply::slices(vec![Slice { buffer, range }]))
    }

    /// Writes whole sectors only, as a drive does.
    async fn write(&self, arguments: WriteIn, data: &[u8]) -> Result<Reply, i32> {
        let (offset, length, sector) = (arguments.offset, data.len() as u64, self.sector());
        if offset.checked_add(length).is_none_or(|end| end > self.size()) {
            return Err(libc::ENOSPC);
        }
        if offset % sector != 0 || length % sector != 0 {
            return Err(libc::EINVAL);
        }
        let durable = arguments.flags & libc::O_DSYNC as u32 != 0;
        let durability = if durable { Durability::Durable } else { Durability::Cached };
        let parts = vec![Rc::new(Buffer::copy_of(data))];
        self.disk.write(offset, parts, durability).await.map_err(|error| errno(&error))?;
        Ok(Reply::of(&WriteOut { size: data.len() as u32, padding: 0 }))
    }

    /// Lists the directory from an entry on; `plus`: with the attributes of each.
    fn list(&self, offset: u64, plus: bool) -> Reply {
        let entries = [
            (ROOT_NODE, ".", libc::DT_DIR),
            (ROOT_NODE, "..", libc::DT_DIR),
            (DISK_NODE, NAME, libc::DT_REG),
        ];
        let mut reply = Reply::empty();
        for (index, (ino, name, kind)) in entries.into_iter().enumerate().skip(offset as usize) {
            if plus {
                reply.append(&self.entry(ino));
            }
            let off = index as u64 + 1;
            reply.append(&Dirent { ino, off, namelen: name.len() as u32, kind: kind.into() });
            reply.append_bytes(name.as_bytes());
            reply.pad(RECORD_ALIGNMENT);
        }
        reply
    }

    fn size(&self) -> u64 {
        self.disk.geometry().size
    }
    fn sector(&self) -> u64 {
        self.disk.geometry().logical_sector.into()
    }
    fn entry(&self, node: u64) -> EntryOut {
        let attr = self.attributes(node);
        let valid = FOREVER;
        EntryOut { nodeid: node, entry_valid: valid, attr_valid: valid, attr, ..Default::default() }
    }
    fn attributes_reply(&self, node: u64) -> Reply {
        Reply::of(&AttrOut {
            attr_valid: FOREVER,
            attr: self.attributes(node),
            ..Default::default()
        })
    }
    fn attributes(&self, node: u64) -> Attr {
        let (mode, size, nlink) = match node {
            DISK_NODE => (libc::S_IFREG | 0o600, self.size(), 1),
            _ => (libc::S_IFDIR | 0o700, 0, 2),
        };
        let (uid, gid) = self.owner;
        let blocks = size / 512;
        Attr { ino: node, size, blocks, mode, nlink, uid, gid, blksize: 4096, ..Default::default() }
    }
}

fn errno(error: &DeviceError) -> i32 {
    match error {
        DeviceError::Failed { code, .. } => *code,
        DeviceError::OutOfRange { .. } | DeviceError::Unaligned { .. } => libc::EINVAL,
    }
}
