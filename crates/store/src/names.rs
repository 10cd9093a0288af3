//! Arguments and results of operations on names.

use crate::attributes::{FileAttributes, FileId, FileKind};
use crate::open_file::OpenFile;

/// The user on whose behalf a file is created. The caller of the store has checked permissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Creator {
    pub uid: u32,
    pub gid: u32,
    /// Cleared from the mode, unless the directory has default access lists.
    pub umask: u32,
}

/// A name's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    pub file: FileId,
    pub attributes: FileAttributes,
}

/// A file that [`crate::Store::create`] has made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Created {
    pub found: Found,
    /// Open for reading and writing, if the store opened it with the same request.
    pub open: Option<OpenFile>,
    /// Whether this client has the exclusive token. The attributes are as of then.
    pub is_held: bool,
}

/// The kind of file that [`crate::Store::make`] creates. `mode`: permission bits. In a set-group-id
/// directory the group is the directory's, and directories get the bit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NewNode {
    Regular {
        mode: u32,
    },
    Directory {
        mode: u32,
    },
    Symlink {
        target: Vec<u8>,
    },
    /// `kind`: the bits of `S_IFMT`.
    Special {
        kind: u32,
        mode: u32,
        rdev: u32,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameOver {
    Replace,
    /// Fails with [`crate::Refusal::Exists`] when the new name exists. A store may refuse it as
    /// unsupported.
    NoReplace,
    /// Exchanges both files. A store may refuse it as unsupported.
    Exchange,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrMode {
    Set,
    Create,
    Replace,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub name: Vec<u8>,
    pub file: FileId,
    pub kind: FileKind,
    /// Continues after this entry: for the next [`crate::Store::list`]. Never zero.
    pub cursor: u64,
}

/// Part of a directory, without `.` and `..`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Listing {
    pub entries: Vec<Entry>,
    /// Whether nothing follows.
    pub is_end: bool,
}

/// Sizes in units of `block_bytes`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Space {
    pub block_bytes: u32,
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
}
