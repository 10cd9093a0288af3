//! Bounds of what one call carries. Code that answers through a socket may rely on them.

/// Length of a read or a write. The caller splits longer ones.
pub const TRANSFER_BYTES_MAX: usize = 1 << 20;
pub const NAME_BYTES_MAX: usize = 255;
/// Length of the target of a symbolic link.
pub const TARGET_BYTES_MAX: usize = 4095;
/// Length of the value of one extended attribute, and of the list of all names.
pub const XATTR_BYTES_MAX: usize = 64 << 10;
/// Clients of Ceph may write to a file up to some size. They report to the servers unasked when
/// half of the size granted last is used. The servers grant twice the size at least, no less than
/// one object, and at most this much more.
const GRANT_BYTES_MAX: u64 = 4 << 30;

/// Returns the size below which a client keeps the attributes of a file to itself, if the file had
/// `size` bytes when the servers learned of it.
pub fn size_report_threshold(size: u64, object_bytes: u64) -> u64 {
    let grant = size.saturating_add(1).saturating_mul(2).max(object_bytes);
    let end = grant.min(size.saturating_add(GRANT_BYTES_MAX));
    size.midpoint(end)
}

/// Number of entries in one answer of [`crate::Store::list`].
pub const LISTING_ENTRIES_MAX: usize = 1024;
