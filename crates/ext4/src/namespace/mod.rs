//! Names: what doors call to look up, make, move and remove files.
//!
//! Every function here takes the inode locks it needs (order: [`crate::Inode`]) and starts its own handle. One
//! that changes the volume also returns the transaction that holds the change: `Volume::fsync` of the
//! directory, or a commit of that transaction, makes it durable.

mod types;

pub use types::{DirectoryEntry, FileType, RenameMode, Stamped};

use crate::error::errno;
use crate::{Caller, Error, Inode, Volume};
use std::rc::Rc;

const UNSUPPORTED: Error = Error::Refused(errno::EOPNOTSUPP);

impl Volume {
    /// The inode that `name` in `parent` stands for; `.` and `..` included. ENOENT, ENOTDIR, ENAMETOOLONG.
    pub async fn lookup(self: &Rc<Self>, _parent: &Rc<Inode>, _name: &[u8]) -> Result<Rc<Inode>, Error> {
        Err(UNSUPPORTED)
    }

    /// Makes a regular file, fifo, socket or device: `mode` is final (umask applied) and carries the type;
    /// `rdev` is the device number in the kernel's 32-bit encoding (as FUSE sends it), 0 for all others.
    pub async fn mknod(
        self: &Rc<Self>,
        _parent: &Rc<Inode>,
        _name: &[u8],
        _caller: &Caller,
        _mode: u16,
        _rdev: u32,
    ) -> Result<Stamped<Rc<Inode>>, Error> {
        Err(UNSUPPORTED)
    }

    /// Makes a directory; `mode` holds the permission bits.
    pub async fn mkdir(
        self: &Rc<Self>,
        _parent: &Rc<Inode>,
        _name: &[u8],
        _caller: &Caller,
        _mode: u16,
    ) -> Result<Stamped<Rc<Inode>>, Error> {
        Err(UNSUPPORTED)
    }

    /// Makes a symbolic link that leads to `target` (1 byte up to a block less one).
    pub async fn symlink(
        self: &Rc<Self>,
        _parent: &Rc<Inode>,
        _name: &[u8],
        _caller: &Caller,
        _target: &[u8],
    ) -> Result<Stamped<Rc<Inode>>, Error> {
        Err(UNSUPPORTED)
    }

    /// Where a symbolic link leads.
    pub async fn readlink(self: &Rc<Self>, _inode: &Rc<Inode>) -> Result<Vec<u8>, Error> {
        Err(UNSUPPORTED)
    }

    /// One more name for `inode`, which may be one that [`Volume::tmpfile`] made.
    pub async fn link(
        self: &Rc<Self>,
        _inode: &Rc<Inode>,
        _parent: &Rc<Inode>,
        _name: &[u8],
    ) -> Result<Stamped<()>, Error> {
        Err(UNSUPPORTED)
    }

    /// Removes a name. An inode without names lives on while it is open or the kernel refers to it.
    pub async fn unlink(self: &Rc<Self>, _parent: &Rc<Inode>, _name: &[u8]) -> Result<Stamped<()>, Error> {
        Err(UNSUPPORTED)
    }

    /// Removes an empty directory.
    pub async fn rmdir(self: &Rc<Self>, _parent: &Rc<Inode>, _name: &[u8]) -> Result<Stamped<()>, Error> {
        Err(UNSUPPORTED)
    }

    /// Gives the file `from` the name `to`, at one stroke.
    pub async fn rename(
        self: &Rc<Self>,
        _from: (&Rc<Inode>, &[u8]),
        _to: (&Rc<Inode>, &[u8]),
        _caller: &Caller,
        _mode: RenameMode,
    ) -> Result<Stamped<()>, Error> {
        Err(UNSUPPORTED)
    }

    /// Makes a regular file without a name (O_TMPFILE). It is an orphan until [`Volume::link`] names it.
    pub async fn tmpfile(
        self: &Rc<Self>,
        _parent: &Rc<Inode>,
        _caller: &Caller,
        _mode: u16,
    ) -> Result<Stamped<Rc<Inode>>, Error> {
        Err(UNSUPPORTED)
    }

    /// The entries after `cookie` (0: from the start), at least one unless there are none left, about `count` at
    /// most. An entry that is there all the while is seen exactly once, whatever others do to the directory.
    pub async fn readdir(
        self: &Rc<Self>,
        _directory: &Rc<Inode>,
        _cookie: u64,
        _count: usize,
    ) -> Result<Vec<DirectoryEntry>, Error> {
        Err(UNSUPPORTED)
    }

    /// As [`Volume::readdir`], with the inodes (`None` for `.` and `..`, which FUSE must not count as lookups).
    pub async fn readdirplus(
        self: &Rc<Self>,
        _directory: &Rc<Inode>,
        _cookie: u64,
        _count: usize,
    ) -> Result<Vec<(DirectoryEntry, Option<Rc<Inode>>)>, Error> {
        Err(UNSUPPORTED)
    }
}
