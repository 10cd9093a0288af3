//! The FUSE wire protocol, version 7.45 (`linux/fuse.h`): structures as the kernel sends and expects them,
//! in the byte order of the machine. Names are the kernel's without `fuse_`. Nothing here decides anything.

mod answers;
mod flags;
mod requests;
mod uring;

pub use answers::*;
pub use flags::*;
pub use requests::*;
pub use uring::*;

pub const MAJOR: u32 = 7;
/// The newest minor version whose structures stand here.
pub const MINOR: u32 = 45;
/// The oldest kernel we speak to: 7.31 is Linux 5.4.
pub const MINOR_LOWEST: u32 = 31;
pub const ROOT_NODE: u64 = 1;
/// `FUSE_NOTIFY_INVAL_INODE`: the kernel is to forget what it keeps of an inode.
pub const NOTIFY_INVAL_INODE: i32 = 2;
/// Records in a directory listing and in extensions begin at multiples of this.
pub const RECORD_ALIGNMENT: usize = 8;

/// Declares structures of the wire: no padding, any bit pattern valid, size as the kernel has it.
macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident = $size:literal { $($(#[$note:meta])* $field:ident: $type:ty),* $(,)? })*) => { $(
        $(#[$doc])*
        #[repr(C)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)]
        #[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$note])* pub $field: $type),* }
        const _: () = assert!(size_of::<$name>() == $size);
    )* }
}
use wire;

/// Operation codes (`enum fuse_opcode`) of a local file system.
pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const BMAP: u32 = 37;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
}
