//! Bitmaps of blocks and inodes: bit n of byte n / 8, lowest first; a set bit is in use.

use super::checksum::{crc32c, crc32c_difference};
use super::feature;
use super::superblock::VolumeSuperblock;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// A set bit is in use.
pub fn is_set(bits: &[u8], index: u32) -> bool {
    bits[index as usize / 8] & 1 << (index % 8) != 0
}

pub fn set(bits: &mut [u8], range: Range<u32>) {
    for_bytes(bits, range, |byte, mask| *byte |= mask);
}

pub fn clear(bits: &mut [u8], range: Range<u32>) {
    for_bytes(bits, range, |byte, mask| *byte &= !mask);
}

/// Whether all bits of the range are set.
pub fn all_set(bits: &[u8], range: Range<u32>) -> bool {
    next(bits, range.clone(), false) == range.end
}

/// Whether all bits of the range are clear.
pub fn all_clear(bits: &[u8], range: Range<u32>) -> bool {
    next(bits, range.clone(), true) == range.end
}

/// Clear bits among the first `count`.
pub fn count_clear(bits: &[u8], count: u32) -> u32 {
    let whole = count as usize / 8;
    let mut set: u32 = bits[..whole].iter().map(|byte| byte.count_ones()).sum();
    if count % 8 != 0 {
        set += (bits[whole] & ((1 << (count % 8)) - 1)).count_ones();
    }
    count - set
}

/// The first bit of the range that is `value`, or the range's end.
pub fn next(bits: &[u8], range: Range<u32>, value: bool) -> u32 {
    let skip = if value { 0u8 } else { 0xff };
    let mut at = range.start;
    while at < range.end {
        let byte = bits[at as usize / 8];
        // Bits that are `value` become ones; those before `at` are masked out.
        let wanted = (byte ^ skip) & (0xffu8 << (at % 8));
        if wanted != 0 {
            return (at / 8 * 8 + wanted.trailing_zeros()).min(range.end);
        }
        at = at / 8 * 8 + 8;
        // Whole words at once: most of a bitmap is all set or all clear.
        while at + 64 <= range.end && bits[at as usize / 8..at as usize / 8 + 8] == [skip; 8] {
            at += 64;
        }
    }
    range.end
}

/// The next run of clear bits at or after `range.start`, cut at `range.end`. `None` when there is
/// none.
pub fn next_clear_run(bits: &[u8], range: Range<u32>) -> Option<Range<u32>> {
    let start = next(bits, range.clone(), false);
    (start < range.end).then(|| start..next(bits, start..range.end, true))
}

fn for_bytes(bits: &mut [u8], range: Range<u32>, mut apply: impl FnMut(&mut u8, u8)) {
    let mut at = range.start;
    while at < range.end {
        let end = (at / 8 * 8 + 8).min(range.end);
        let mask = (0xffu16 << (at % 8)) as u8 & (0xffu16 >> (8 - (end - at / 8 * 8))) as u8;
        apply(&mut bits[at as usize / 8], mask);
        at = end;
    }
}

/// The checksum of a block bitmap for the group descriptor: 32 bits, or 16 in descriptors of 32
/// bytes. `None` without metadata_csum.
pub fn block_bitmap_checksum(bits: &[u8], superblock: &VolumeSuperblock) -> Option<u32> {
    checksum(&bits[..superblock.blocks_per_group as usize / 8], superblock)
}

/// The checksum of an inode bitmap; see [`block_bitmap_checksum`].
pub fn inode_bitmap_checksum(bits: &[u8], superblock: &VolumeSuperblock) -> Option<u32> {
    checksum(&bits[..superblock.inodes_per_group as usize / 8], superblock)
}

/// The checksum of a block bitmap that had the checksum `before`, and of which each bit of
/// `flipped` has changed since.
pub fn block_bitmap_checksum_after(
    before: u32,
    flipped: Range<u32>,
    superblock: &VolumeSuperblock,
) -> Option<u32> {
    checksum_after(before, flipped, superblock.blocks_per_group as usize / 8, superblock)
}

/// The checksum of an inode bitmap; see [`block_bitmap_checksum_after`].
pub fn inode_bitmap_checksum_after(
    before: u32,
    flipped: Range<u32>,
    superblock: &VolumeSuperblock,
) -> Option<u32> {
    checksum_after(before, flipped, superblock.inodes_per_group as usize / 8, superblock)
}

fn checksum_after(
    before: u32,
    flipped: Range<u32>,
    length: usize,
    superblock: &VolumeSuperblock,
) -> Option<u32> {
    superblock.features.has(feature::METADATA_CSUM).then(|| {
        // Bits behind those of the group are in no checksum.
        let within = |bit: u32| bit.min(8 * length as u32);
        let flipped = within(flipped.start)..within(flipped.end);
        let (first, end) = (flipped.start / 8, flipped.end.div_ceil(8));
        let mut difference: SmallVec<[u8; 64]> = smallvec![0; (end - first) as usize];
        set(&mut difference, flipped.start - 8 * first..flipped.end - 8 * first);
        let change = crc32c_difference(&difference, length - end as usize);
        before ^ change & checksum_bits(superblock)
    })
}

fn checksum(bits: &[u8], superblock: &VolumeSuperblock) -> Option<u32> {
    let has = superblock.features.has(feature::METADATA_CSUM);
    has.then(|| crc32c(superblock.checksum_seed, bits) & checksum_bits(superblock))
}

/// The bits of a bitmap's checksum for which a descriptor has space.
fn checksum_bits(superblock: &VolumeSuperblock) -> u32 {
    if superblock.descriptor_size() >= 64 { u32::MAX } else { 0xffff }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares every range of a small bitmap with a plain array of truth values.
    #[test]
    fn ranges_are_changed_and_found_to_the_bit() {
        const BITS: u32 = 200;
        for start in 0..BITS {
            for end in start..=BITS {
                let mut bits = [0u8; 25];
                set(&mut bits, start..end);
                assert!(
                    (0..BITS).all(|bit| is_set(&bits, bit) == (start..end).contains(&bit)),
                    "{start}..{end}"
                );
                assert_eq!(count_clear(&bits, BITS), BITS - (end - start));
                assert!(all_set(&bits, start..end));
                assert_eq!(next(&bits, 0..BITS, true), if start == end { BITS } else { start });
                if start > 0 || end < BITS {
                    let first = if start > 0 {
                        0..if start == end { BITS } else { start }
                    } else {
                        end..BITS
                    };
                    assert_eq!(next_clear_run(&bits, 0..BITS), Some(first));
                }
                clear(&mut bits, start..end);
                assert!(all_clear(&bits, 0..BITS));
            }
        }
    }
}
