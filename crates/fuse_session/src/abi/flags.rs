//! Bits of the protocol, one module for each field.

/// `init_in.flags` and `init_out.flags`; bits from 32 on travel in `flags2`.
pub mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    /// Locks of ranges (fcntl(2)) are sent as requests.
    pub const POSIX_LOCKS: u64 = 1 << 1;
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    /// Locks of whole files (flock(2)) are sent as requests.
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    /// Without it the kernel does not look at `flags2`.
    pub const INIT_EXT: u64 = 1 << 30;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// `open_out.open_flags`.
pub mod fopen {
    pub const DIRECT_IO: u32 = 1 << 0;
    pub const KEEP_CACHE: u32 = 1 << 1;
    pub const CACHE_DIR: u32 = 1 << 3;
    /// No FLUSH on close.
    pub const NOFLUSH: u32 = 1 << 5;
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
    pub const DATA_ONLY: u32 = 1 << 0;
}

/// `ioctl_in.flags`.
pub mod ioctl {
    pub const COMPAT: u32 = 1 << 0;
    pub const DIRECTORY: u32 = 1 << 4;
}
