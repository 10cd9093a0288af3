//! Structures that the kernel sends.

use super::wire;

wire! {
    InHeader = 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        /// Length of the extensions at the end, in units of 8 bytes.
        total_extlen: u16, padding: u16,
    }
    InitIn = 64 { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32,
        unused: [u32; 11] }
    ForgetIn = 8 { nlookup: u64 }
    ForgetOne = 16 { nodeid: u64, nlookup: u64 }
    BatchForgetIn = 8 { count: u32, dummy: u32 }
    GetattrIn = 16 { getattr_flags: u32, dummy: u32, fh: u64 }
    StatxIn = 24 { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    SetattrIn = 88 {
        /// The fields to change: [`super::fattr`].
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64,
        ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32,
        unused5: u32,
    }
    MknodIn = 16 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn = 8 { mode: u32, umask: u32 }
    RenameIn = 8 { newdir: u64 }
    Rename2In = 16 { newdir: u64, flags: u32, padding: u32 }
    LinkIn = 8 { oldnodeid: u64 }
    /// `flags` as given to open(2); `open_flags`: [`super::open`].
    OpenIn = 8 { flags: u32, open_flags: u32 }
    CreateIn = 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    ReleaseIn = 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn = 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    /// `owner`: a program for locks of ranges, a descriptor for locks of whole files and of open
    /// file descriptions.
    LkIn = 48 { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32 }
    /// `end`: the last byte. `kind`: F_RDLCK, F_WRLCK or F_UNLCK.
    FileLock = 24 { start: u64, end: u64, kind: u32, pid: u32 }
    ReadIn = 40 {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteIn = 40 {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64,
        /// The open flags of the descriptor, and per-write flags: `O_DSYNC` here means durable
        /// before the reply.
        flags: u32, padding: u32,
    }
    FsyncIn = 16 { fh: u64, fsync_flags: u32, padding: u32 }
    SetxattrIn = 16 { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    /// Sent when SETXATTR_EXT was not negotiated.
    SetxattrShortIn = 8 { size: u32, flags: u32 }
    GetxattrIn = 8 { size: u32, padding: u32 }
    InterruptIn = 8 { unique: u64 }
    BmapIn = 16 { block: u64, blocksize: u32, padding: u32 }
    IoctlIn = 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    FallocateIn = 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn = 24 { fh: u64, offset: u64, whence: u32, padding: u32 }
    /// The request's node is the file that is read.
    CopyFileRangeIn = 56 {
        fh_in: u64, offset_in: u64, nodeid_out: u64, fh_out: u64, offset_out: u64, length: u64,
        flags: u64,
    }
}
