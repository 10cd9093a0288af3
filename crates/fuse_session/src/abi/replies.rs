//! Structures that the kernel expects.

use super::wire;

wire! {
    /// Header of every reply. `error` is zero or a negative errno.
    OutHeader = 16 { len: u32, error: i32, unique: u64 }
    /// Reply to INIT.
    InitOut = 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16,
        map_alignment: u16,
        flags2: u32, max_stack_depth: u32, request_timeout: u16, unused: [u16; 11],
    }
    /// Attributes of a node. `mode` has the type, too (`S_IFREG`, ...).
    Attr = 88 {
        ino: u64, size: u64,
        /// Units of 512 bytes.
        blocks: u64,
        atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32,
        nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    /// Reply to LOOKUP and to what makes a node. It gives the kernel a reference to the node.
    EntryOut = 128 {
        /// Zero: the name does not exist, and the kernel may cache that.
        nodeid: u64,
        generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: Attr,
    }
    /// Reply to GETATTR and SETATTR: valid for `attr_valid` s and `attr_valid_nsec` ns.
    AttrOut = 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    /// A time of [`Statx`].
    StatxTime = 16 { seconds: i64, nanoseconds: u32, reserved: i32 }
    /// Attributes as statx(2) reports them.
    Statx = 256 {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16,
        spare0: u16,
        ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: StatxTime, btime: StatxTime,
        ctime: StatxTime, mtime: StatxTime, rdev_major: u32, rdev_minor: u32, dev_major: u32,
        dev_minor: u32,
        spare2: [u64; 14],
    }
    /// Reply to STATX.
    StatxOut = 288 { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2],
        stat: Statx }
    /// Reply to OPEN and OPENDIR, and behind [`EntryOut`] to CREATE. `open_flags`:
    /// [`super::fopen`].
    OpenOut = 16 { fh: u64, open_flags: u32, backing_id: i32 }
    /// Reply to WRITE: bytes written.
    WriteOut = 8 { size: u32, padding: u32 }
    /// Reply to STATFS; blocks are in units of `frsize` bytes.
    StatfsOut = 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32,
        padding: u32, spare: [u32; 6],
    }
    /// Reply to GETXATTR and LISTXATTR of size zero: the length in bytes.
    GetxattrOut = 8 { size: u32, padding: u32 }
    /// Reply to BMAP; zero: a hole.
    BmapOut = 8 { block: u64 }
    /// Reply to IOCTL; bytes for the caller follow.
    IoctlOut = 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    /// Reply to COPY_FILE_RANGE_64; the caller asks again for the rest.
    CopyFileRangeOut = 8 { bytes_copied: u64 }
    /// Reply to GETLK: a lock in the way, or kind `F_UNLCK`.
    LkOut = 24 { lk: super::FileLock }
    /// Reply to LSEEK.
    LseekOut = 8 { offset: u64 }
    /// Notification that drops cached data. Follows a header with `unique` zero and the
    /// notification's number as `error`. A negative `off`: only the attributes.
    NotifyInvalInode = 24 { ino: u64, off: i64, len: i64 }
    /// Head of an entry of a directory listing; the name follows, padded to 8 bytes.
    Dirent = 24 {
        ino: u64,
        /// Offset with which READDIR continues after this entry.
        off: u64,
        namelen: u32, kind: u32,
    }
}
