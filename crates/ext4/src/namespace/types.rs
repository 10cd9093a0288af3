use units::{InodeNumber, TransactionId};

/// The result of a change, and the transaction that holds it.
#[derive(Clone, Debug)]
pub struct Stamped<T> {
    pub value: T,
    pub transaction: TransactionId,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileType {
    Unknown,
    Regular,
    Directory,
    CharacterDevice,
    BlockDevice,
    Fifo,
    Socket,
    Symlink,
}

/// Behaviour of `renameat2` when the new name exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameMode {
    /// The existing file loses the name.
    Replace,
    /// EEXIST.
    NoReplace,
    /// The two names exchange their inodes.
    Exchange,
    /// `Replace`, and a character device 0:0 takes the old name (overlay file systems).
    Whiteout,
    /// `NoReplace`, with a whiteout.
    NoReplaceWhiteout,
}

impl RenameMode {
    pub(super) fn refuses_target(self) -> bool {
        matches!(self, RenameMode::NoReplace | RenameMode::NoReplaceWhiteout)
    }
    pub(super) fn leaves_whiteout(self) -> bool {
        matches!(self, RenameMode::Whiteout | RenameMode::NoReplaceWhiteout)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryEntry {
    pub inode: InodeNumber,
    pub file_type: FileType,
    /// 1 to 255 bytes, without `/` and NUL.
    pub name: Vec<u8>,
    /// Cookie for the next [`crate::Volume::readdir`], to continue after this entry. Below 2^63.
    pub cookie: u64,
}
