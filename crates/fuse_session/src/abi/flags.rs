//! Bits of the protocol, one module for each field.

/// INIT, `init_in.flags` and `init_out.flags`: what each means where accepted. Bits from 32 on
/// travel in `flags2`.
pub mod init {
    /// Several reads of one file may be in flight.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// Locks of ranges (fcntl(2)) are sent as requests.
    pub const POSIX_LOCKS: u64 = 1 << 1;
    /// `O_TRUNC` comes with OPEN, and not as a SETATTR.
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    /// LOOKUP of `.` and `..` finds nodes by number, as NFS needs.
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    /// Writes may be longer than a page.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// The file system applies the umask.
    pub const DONT_MASK: u64 = 1 << 6;
    /// Locks of whole files (flock(2)) are sent as requests.
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    /// Directories get IOCTL, too.
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    /// A new size or modification time drops the cached pages of a file.
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    /// READDIRPLUS is sent.
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    /// READDIRPLUS is sent where attributes are likely to be wanted, else READDIR.
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    /// One direct read or write may be several concurrent requests.
    pub const ASYNC_DIO: u64 = 1 << 15;
    /// LOOKUP and READDIR of one directory may be concurrent.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// The kernel reads access control lists as extended attributes, and checks them.
    pub const POSIX_ACL: u64 = 1 << 20;
    /// `init_out.max_pages` counts.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// The kernel caches the targets of symbolic links.
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    /// Only the file system drops cached pages of a file.
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    /// The file system clears set-id bits and file capabilities.
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// SETXATTR has [`crate::abi::SetxattrIn`].
    pub const SETXATTR_EXT: u64 = 1 << 29;
    /// Makes the kernel read `flags2`.
    pub const INIT_EXT: u64 = 1 << 30;
    /// Requests that make a file carry the label that a security module gives it (Linux 5.17; as an
    /// extension of the request since 6.3).
    pub const SECURITY_CTX: u64 = 1 << 32;
    /// Files opened with [`super::fopen::DIRECT_IO`] may be mapped shared.
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    /// Mounts may map users and groups (mount_setattr(2)). Requests that make a file carry the
    /// mapped caller, all others [`crate::abi::NO_ID`].
    pub const ALLOW_IDMAP: u64 = 1 << 40;
    /// Requests come over io_uring.
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// `open_out.open_flags`.
pub mod fopen {
    /// Reads and writes bypass the page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Pages of the file that the kernel has cached stay valid.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// The kernel may cache the listing of the directory.
    pub const CACHE_DIR: u32 = 1 << 3;
    /// No FLUSH on close.
    pub const NOFLUSH: u32 = 1 << 5;
    /// Direct writes to the file may be concurrent.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// `setattr_in.valid`.
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    /// `fh` is the handle of the descriptor: ftruncate(2).
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// `write_in.write_flags`.
pub mod write {
    /// Write-back of the page cache (mmap): no caller waits for durability.
    pub const CACHE: u32 = 1 << 0;
    /// Set with every write that bypasses the page cache, and with no other.
    pub const LOCK_OWNER: u32 = 1 << 1;
    pub const KILL_SUIDGID: u32 = 1 << 2;
}

/// `read_in.read_flags`.
pub mod read {
    /// Set with every read that bypasses the page cache, and with no other.
    pub const LOCK_OWNER: u32 = 1 << 1;
}

/// `open_in.open_flags` and `create_in.open_flags`.
pub mod open {
    pub const KILL_SUIDGID: u32 = 1 << 0;
}

/// `lk_in.lk_flags`.
pub mod lk {
    /// flock(2); otherwise fcntl(2).
    pub const FLOCK: u32 = 1 << 0;
}

/// `setxattr_in.setxattr_flags`.
pub mod setxattr {
    pub const ACL_KILL_SGID: u32 = 1 << 0;
}

/// `fsync_in.fsync_flags`.
pub mod fsync {
    /// fdatasync(2).
    pub const DATA_ONLY: u32 = 1 << 0;
}

/// `ioctl_in.flags`.
pub mod ioctl {
    /// The caller is a 32-bit program.
    pub const COMPAT: u32 = 1 << 0;
    /// The file is a directory.
    pub const DIRECTORY: u32 = 1 << 4;
}
