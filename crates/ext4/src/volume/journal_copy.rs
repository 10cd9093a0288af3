//! The superblock's copy of the hidden journal's map, as mke2fs and tune2fs leave it there. It
//! locates the log where the inode or its descriptor is damaged. Without a replay even e2fsck could
//! not help: it knows no log that holds bytes.

use format::ext4::VolumeSuperblock;
use format::ext4::extent::{ExtentEntry, ExtentNode};
use units::HomeBlock;

/// Type of the copy: an inode's blocks (`EXT3_JNL_BACKUP_BLOCKS`).
const BLOCKS: u8 = 1;
/// Words of an inode's map. Two words with the size follow.
const MAP_WORDS: usize = 15;

/// The journal's runs; `None` without a copy, or if it cannot be right. A map with nodes of its own
/// is not trusted.
pub(super) fn runs(superblock: &VolumeSuperblock) -> Option<Vec<(HomeBlock, u64)>> {
    let (map, size) = superblock.journal_backup.split_at(MAP_WORDS);
    let bytes: Vec<u8> = map.iter().flat_map(|word| word.to_le_bytes()).collect();
    let node = ExtentNode::parse(&bytes).ok().filter(|node| node.depth() == 0)?;
    let (mut runs, mut count) = (Vec::new(), 0);
    for entry in node.entries() {
        let ExtentEntry::Extent(extent) = entry else { return None };
        let end = extent.home.get().checked_add(extent.count.into())?;
        let inside =
            extent.home.get() > superblock.first_data_block.into() && end <= superblock.blocks;
        if extent.unwritten || u64::from(extent.at.get()) != count || !inside {
            return None;
        }
        count += u64::from(extent.count);
        runs.push((extent.home, u64::from(extent.count)));
    }
    let mut sorted = runs.clone();
    sorted.sort_unstable();
    let apart = sorted.windows(2).all(|pair| pair[0].0.plus(pair[0].1) <= pair[1].0);
    let bytes = u64::from(size[0]) << 32 | u64::from(size[1]);
    let is_right = superblock.journal_backup_type == BLOCKS && apart && count > 0;
    (is_right && bytes >> superblock.block_size.shift() == count).then_some(runs)
}
