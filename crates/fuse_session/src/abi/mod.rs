//! The FUSE wire protocol, version 7.45 (`linux/fuse.h`): structures as the kernel sends and
//! expects them, in the byte order of the machine. Names are the kernel's without `fuse_`, and
//! fields mean what they mean there. Nothing here decides anything.
#![allow(missing_docs, reason = "fields and flags are named, and explained, in linux/fuse.h")]

mod flags;
mod replies;
mod requests;
mod uring;

pub use flags::*;
pub use replies::*;
pub use requests::*;
pub use uring::*;

/// The protocol's major version.
pub const MAJOR: u32 = 7;
/// The newest minor version whose structures are declared here.
pub const MINOR: u32 = 45;
/// The oldest supported kernel: 7.31 is Linux 5.4.
pub const MINOR_LOWEST: u32 = 31;
/// The node of the root directory, which the kernel knows without a LOOKUP.
pub const ROOT_NODE: u64 = 1;
/// The most labels of one extension (`FUSE_MAX_NR_SECCTX`).
pub const MAX_LABELS: u32 = 31;
/// User and group of a request on a mount that may map them, unless it makes a file
/// (`FUSE_INVALID_UIDGID`).
pub const NO_ID: u32 = u32::MAX;
/// `FUSE_NOTIFY_INVAL_INODE`: the kernel is to forget what it caches of an inode.
pub const NOTIFY_INVAL_INODE: i32 = 2;
/// Records in a directory listing and in extensions begin at multiples of this.
pub const RECORD_ALIGNMENT: usize = 8;

/// Declares structures of the wire: no padding, any bit pattern valid, size as the kernel has it.
macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident = $size:literal { $($(#[$note:meta])* $field:ident: $type:ty),* $(,)? })*) => { $(
        $(#[$doc])*
        #[repr(C)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
            zerocopy::KnownLayout)]
        #[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$note])* pub $field: $type),* }
        const _: () = assert!(size_of::<$name>() == $size);
    )* }
}
use wire;

/// Declares operation codes, and their names for statistics.
macro_rules! opcodes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        $(pub const $name: u32 = $number;)*

        /// Returns the kernel's name of an operation in small letters, or [`OTHER`].
        pub fn name(opcode: u32) -> &'static str {
            match opcode {
                $($name => $text,)*
                _ => OTHER,
            }
        }
    };
}

/// Operation codes (`enum fuse_opcode`) of a local file system.
pub mod opcode {
    /// The name of all operations that have none.
    pub const OTHER: &str = "other";

    opcodes! {
        LOOKUP = 1, "lookup";
        FORGET = 2, "forget";
        GETATTR = 3, "getattr";
        SETATTR = 4, "setattr";
        READLINK = 5, "readlink";
        SYMLINK = 6, "symlink";
        MKNOD = 8, "mknod";
        MKDIR = 9, "mkdir";
        UNLINK = 10, "unlink";
        RMDIR = 11, "rmdir";
        RENAME = 12, "rename";
        LINK = 13, "link";
        OPEN = 14, "open";
        READ = 15, "read";
        WRITE = 16, "write";
        STATFS = 17, "statfs";
        RELEASE = 18, "release";
        FSYNC = 20, "fsync";
        SETXATTR = 21, "setxattr";
        GETXATTR = 22, "getxattr";
        LISTXATTR = 23, "listxattr";
        REMOVEXATTR = 24, "removexattr";
        FLUSH = 25, "flush";
        INIT = 26, "init";
        OPENDIR = 27, "opendir";
        READDIR = 28, "readdir";
        RELEASEDIR = 29, "releasedir";
        FSYNCDIR = 30, "fsyncdir";
        GETLK = 31, "getlk";
        SETLK = 32, "setlk";
        SETLKW = 33, "setlkw";
        ACCESS = 34, "access";
        CREATE = 35, "create";
        INTERRUPT = 36, "interrupt";
        BMAP = 37, "bmap";
        DESTROY = 38, "destroy";
        IOCTL = 39, "ioctl";
        BATCH_FORGET = 42, "batch_forget";
        FALLOCATE = 43, "fallocate";
        READDIRPLUS = 44, "readdirplus";
        RENAME2 = 45, "rename2";
        LSEEK = 46, "lseek";
        COPY_FILE_RANGE = 47, "copy_file_range";
        SYNCFS = 50, "syncfs";
        TMPFILE = 51, "tmpfile";
        STATX = 52, "statx";
        COPY_FILE_RANGE_64 = 53, "copy_file_range_64";
    }
}
