//! Copies of a volume's superblock, for the remedy where the first is damaged.

use crate::look::open_to_look;
use format::ext4::VolumeSuperblock;
use format::ext4::superblock::SUPERBLOCK_SIZE;
use std::os::unix::fs::FileExt;
use std::path::Path;
use units::{BlockSize, GroupNumber};

/// Groups that have a copy if any but the first do. Volumes with `sparse_super2` may have others.
const GROUPS: [u32; 3] = [1, 3, 5];
/// Offset of `s_block_group_nr`, the group that a copy lies in.
const GROUP_AT: usize = 0x5a;

/// Returns the byte at which a usable copy of the superblock begins, if there is exactly one volume
/// that has copies there: another block size may have those of a former volume.
pub fn copy_of_superblock(path: &Path) -> Option<u64> {
    let mut copies = (10..=16).filter_map(|shift| {
        let block_size = BlockSize::new(1 << shift)?;
        GROUPS.into_iter().find_map(|group| copy_in_group(path, block_size, group))
    });
    let found = copies.next();
    found.filter(|_| copies.next().is_none())
}

/// Returns the byte at which the copy of this group begins, with groups of the usual size.
fn copy_in_group(path: &Path, block_size: BlockSize, group: u32) -> Option<u64> {
    let file = open_to_look(path).ok()?;
    let bytes = block_size.bytes() as u64;
    let first = u64::from(bytes == 1024);
    let at = (first + u64::from(group) * 8 * bytes) << block_size.shift();
    let mut raw = [0; SUPERBLOCK_SIZE];
    file.read_exact_at(&mut raw, at).ok()?;
    let found = VolumeSuperblock::parse(&raw).ok()?;
    let lies_here = found.group_start(GroupNumber(group)).get() << found.block_size.shift() == at;
    let names_group = raw[GROUP_AT..][..2] == (group as u16).to_le_bytes();
    (found.block_size == block_size && lies_here && names_group).then_some(at)
}
