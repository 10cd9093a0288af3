//! Structures that the kernel sends.

use super::wire;

wire! {
    /// Header of every request.
    InHeader = 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        /// Length of the extensions at the end, in units of 8 bytes.
        total_extlen: u16, padding: u16,
    }
    /// An extension of a request: `size` bytes with this header and padding. `kind`: up to
    /// [`super::MAX_LABELS`], that many labels of security modules.
    ExtensionHeader = 8 { size: u32, kind: u32 }
    /// A label of a security module: the name of its attribute with a zero byte, and `size` bytes.
    LabelHeader = 8 { size: u32, padding: u32 }
    /// INIT: the kernel's offer.
    InitIn = 64 { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32,
        unused: [u32; 11] }
    /// FORGET: `nlookup` references of the kernel to the node are gone.
    ForgetIn = 8 { nlookup: u64 }
    /// One node of a BATCH_FORGET.
    ForgetOne = 16 { nodeid: u64, nlookup: u64 }
    /// BATCH_FORGET: `count` times [`ForgetOne`] follow.
    BatchForgetIn = 8 { count: u32, dummy: u32 }
    /// GETATTR.
    GetattrIn = 16 { getattr_flags: u32, dummy: u32, fh: u64 }
    /// STATX: `sx_flags` and `sx_mask` as given to statx(2).
    StatxIn = 24 { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    /// SETATTR: chmod(2), chown(2), truncate(2), utimensat(2).
    SetattrIn = 88 {
        /// The fields to change: [`super::fattr`].
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64,
        ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32,
        unused5: u32,
    }
    /// MKNOD; the name follows.
    MknodIn = 16 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    /// MKDIR; the name follows.
    MkdirIn = 8 { mode: u32, umask: u32 }
    /// RENAME; the old and the new name follow.
    RenameIn = 8 { newdir: u64 }
    /// RENAME2: `flags` as given to renameat2(2); the old and the new name follow.
    Rename2In = 16 { newdir: u64, flags: u32, padding: u32 }
    /// LINK: `oldnodeid` gets the name that follows.
    LinkIn = 8 { oldnodeid: u64 }
    /// OPEN: `flags` as given to open(2); `open_flags`: [`super::open`].
    OpenIn = 8 { flags: u32, open_flags: u32 }
    /// CREATE and TMPFILE: `flags` and `mode` as given to open(2).
    CreateIn = 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    /// RELEASE and RELEASEDIR: the last close of a descriptor.
    ReleaseIn = 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    /// FLUSH: a close(2) of a descriptor that others may share.
    FlushIn = 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    /// GETLK, SETLK and SETLKW. `owner`: a program for locks of ranges, a descriptor for locks of
    /// whole files and of open file descriptions.
    LkIn = 48 { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32 }
    /// A lock of a range of bytes. `end`: the last byte. `kind`: F_RDLCK, F_WRLCK or F_UNLCK.
    FileLock = 24 { start: u64, end: u64, kind: u32, pid: u32 }
    /// READ, READDIR and READDIRPLUS: at most `size` bytes.
    ReadIn = 40 {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    /// WRITE; `size` bytes of data follow.
    WriteIn = 40 {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64,
        /// The open flags of the descriptor, and per-write flags: `O_DSYNC` here means durable
        /// before the reply.
        flags: u32, padding: u32,
    }
    /// FSYNC and FSYNCDIR. `fsync_flags`: [`super::fsync`].
    FsyncIn = 16 { fh: u64, fsync_flags: u32, padding: u32 }
    /// SETXATTR; the name and `size` bytes of the value follow.
    SetxattrIn = 16 { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    /// SETXATTR when `SETXATTR_EXT` was not negotiated.
    SetxattrShortIn = 8 { size: u32, flags: u32 }
    /// GETXATTR, whose name follows, and LISTXATTR. Size zero asks for the length.
    GetxattrIn = 8 { size: u32, padding: u32 }
    /// INTERRUPT: the caller of request `unique` got a signal.
    InterruptIn = 8 { unique: u64 }
    /// BMAP: asks where on the device a block of the file is, in units of `blocksize` bytes.
    BmapIn = 16 { block: u64, blocksize: u32, padding: u32 }
    /// IOCTL; `in_size` bytes follow. `flags`: [`super::ioctl`].
    IoctlIn = 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    /// FALLOCATE: `mode` as given to fallocate(2).
    FallocateIn = 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    /// LSEEK: `SEEK_DATA` and `SEEK_HOLE`; the kernel does the others.
    LseekIn = 24 { fh: u64, offset: u64, whence: u32, padding: u32 }
    /// COPY_FILE_RANGE_64. The request's node is the file that is read.
    CopyFileRangeIn = 56 {
        fh_in: u64, offset_in: u64, nodeid_out: u64, fh_out: u64, offset_out: u64, length: u64,
        flags: u64,
    }
}
