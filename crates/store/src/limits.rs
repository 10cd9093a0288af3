//! Bounds of what one call carries. Who answers through a socket may rely on them.

/// Of a read and of a write. The caller splits what is longer.
pub const TRANSFER_BYTES_MAX: usize = 1 << 20;
pub const NAME_BYTES_MAX: usize = 255;
/// Of a symbolic link.
pub const TARGET_BYTES_MAX: usize = 4095;
/// Of the value of one extended attribute, and of the list of all names.
pub const XATTR_BYTES_MAX: usize = 64 << 10;
/// Clients of Ceph may write to a file up to some size. They tell the servers by themselves when
/// half of the room that they got last is used. The servers give twice the size at least, no less
/// than one object, and at most this much more.
const ROOM_BYTES_MAX: u64 = 4 << 30;

/// Below which size a client keeps the attributes to itself of a file that had `size` bytes when
/// the servers learned of it.
pub fn half_of_room(size: u64, object_bytes: u64) -> u64 {
    let room = size.saturating_add(1).saturating_mul(2).max(object_bytes);
    let end = room.min(size.saturating_add(ROOM_BYTES_MAX));
    size.midpoint(end)
}

/// Entries in one answer of [`crate::Store::list`].
pub const LISTING_ENTRIES_MAX: usize = 1024;
