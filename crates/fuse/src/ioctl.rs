//! Structures of ioctl(2) calls, as the kernel passes them on: `linux/fs.h`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct fstrim_range`, in bytes. On return `len` is how much was discarded.
#[repr(C)]
#[derive(
    FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Default, Debug, PartialEq, Eq,
)]
pub struct TrimRange {
    pub start: u64,
    pub len: u64,
    pub minlen: u64,
}
const _: () = assert!(size_of::<TrimRange>() == 24);

/// `struct fsxattr`: flags (`FS_XFLAG_...`) and project of a file.
#[repr(C)]
#[derive(
    FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Default, Debug, PartialEq, Eq,
)]
pub struct Fsxattr {
    pub xflags: u32,
    pub extsize: u32,
    pub nextents: u32,
    pub projid: u32,
    pub cowextsize: u32,
    pub padding: [u8; 8],
}
const _: () = assert!(size_of::<Fsxattr>() == 28);
