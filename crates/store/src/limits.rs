//! Bounds of what one call carries. Who answers through a socket may rely on them.

/// Of a read and of a write. The caller splits what is longer.
pub const TRANSFER_BYTES_MAX: usize = 1 << 20;
pub const NAME_BYTES_MAX: usize = 255;
/// Of a symbolic link.
pub const TARGET_BYTES_MAX: usize = 4095;
/// Of the value of one extended attribute, and of the list of all names.
pub const XATTR_BYTES_MAX: usize = 64 << 10;
/// Entries in one answer of [`crate::Store::list`].
pub const LISTING_ENTRIES_MAX: usize = 1024;
