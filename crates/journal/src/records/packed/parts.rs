//! Selection of the parts of a block that are logged.

use crate::ranges::RangeSet;
use format::packed::{RunWriter, varint_length};
use units::{BlockRange, BlockSize};

/// A sequence of zeros shorter than this, in bytes, is no gap between two parts.
const ZEROS_MIN: usize = 8;

/// Returns what is logged of a metadata block of which `ranges` changed; `None`: all of it.
pub(super) fn of_metadata(ranges: &RangeSet, block_size: BlockSize) -> Option<Vec<BlockRange>> {
    let mut parts = Vec::with_capacity(ranges.as_slice().len());
    parts.extend(joined(ranges));
    is_worth_it(parts.iter().copied(), block_size).then_some(parts)
}

/// Whether parts of a metadata block are logged, and not all of it.
pub(super) fn logs_parts(ranges: &RangeSet, block_size: BlockSize) -> bool {
    is_worth_it(joined(ranges), block_size)
}

/// Returns the parts of a whole image that are not zeros, if leaving out the zeros is worth it.
pub(super) fn of_image(image: &[u8], block_size: BlockSize) -> Option<Vec<BlockRange>> {
    let parts = nonzero(image);
    is_worth_it(parts.iter().copied(), block_size).then_some(parts)
}

/// Whether logging parts gains enough: not at or above half a block, tags included. A whole block
/// needs no base, and supersedes what was logged of it before.
fn is_worth_it(parts: impl Iterator<Item = BlockRange>, block_size: BlockSize) -> bool {
    const HEAD_MIN: usize = 2;
    let is_worth_it = HEAD_MIN + RunWriter::parts_length(parts) < block_size.bytes() / 2;
    is_worth_it || units::fault!("packed-never-whole")
}

/// Joins ranges between which fewer bytes lie than a part of its own takes.
fn joined(ranges: &RangeSet) -> impl Iterator<Item = BlockRange> {
    let mut ranges = ranges.as_slice().iter().copied().peekable();
    std::iter::from_fn(move || {
        let mut part = ranges.next()?;
        while let Some(next) = ranges.next_if(|next| is_shorter_as_one(part, *next)) {
            part.end = next.end - u32::from(units::fault!("packed-range"));
        }
        Some(part)
    })
}

fn is_shorter_as_one(left: BlockRange, right: BlockRange) -> bool {
    // A gap and two lengths take no more than this.
    if right.start - left.end > 3 * varint_length(u64::from(u32::MAX)) as u32 {
        return false;
    }
    let length = |part: BlockRange| varint_length(part.len() as u64);
    let gap = (right.start - left.end) as usize;
    let one = length(BlockRange::new(left.start, right.end)) + gap;
    one <= length(left) + varint_length(gap as u64) + length(right)
}

fn nonzero(image: &[u8]) -> Vec<BlockRange> {
    let mut parts: Vec<BlockRange> = Vec::new();
    for (number, word) in image.chunks(8).enumerate() {
        if word.iter().all(|byte| *byte == 0) {
            continue;
        }
        let at = |index: usize| (8 * number + index) as u32;
        let first = word.iter().position(|byte| *byte != 0).unwrap_or(0);
        let end = word.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        match parts.last_mut() {
            Some(part) if (at(first) - part.end) < ZEROS_MIN as u32 => part.end = at(end),
            _ => parts.push(BlockRange::new(at(first), at(end))),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(u32, u32)]) -> RangeSet {
        let mut set = RangeSet::new();
        ranges.iter().for_each(|(start, end)| set.insert(BlockRange::new(*start, *end)));
        set
    }
    fn size() -> BlockSize {
        BlockSize::new(1024).unwrap()
    }

    /// Every changed byte is in a part, and joining never makes a record longer.
    #[test]
    fn parts_cover_what_changed_and_are_not_longer() {
        for seed in 0..2000u64 {
            let rng = units::SplitMix::new(seed);
            let roll = |sides| rng.below(sides);
            let mut ranges = RangeSet::new();
            for _ in 0..1 + roll(8) {
                let start = roll(1000) as u32;
                ranges.insert(BlockRange::new(start, (start + 1 + roll(30) as u32).min(1024)));
            }
            let parts: Vec<BlockRange> = joined(&ranges).collect();
            let all = parts.iter().fold(RangeSet::new(), |mut all, part| {
                all.insert(*part);
                all
            });
            assert!(
                ranges.as_slice().iter().all(|range| all.covers(*range)),
                "seed {seed}: {parts:?}"
            );
            let apart = RunWriter::parts_length(ranges.as_slice().iter().copied());
            assert!(
                RunWriter::parts_length(parts.iter().copied()) <= apart,
                "seed {seed}: {parts:?}"
            );
        }
    }

    #[test]
    fn near_ranges_are_one_and_far_ones_are_not() {
        let near = of_metadata(&set(&[(10, 12), (14, 20)]), size()).unwrap();
        assert_eq!(near, [BlockRange::new(10, 20)]);
        assert_eq!(of_metadata(&set(&[(10, 12), (15, 20)]), size()).unwrap().len(), 2);
    }

    #[test]
    fn half_a_block_is_logged_whole_tags_included() {
        // Two bytes of head, one of gap, two of length.
        assert!(of_metadata(&set(&[(0, 506)]), size()).is_some());
        assert!(of_metadata(&set(&[(0, 507)]), size()).is_none());
        assert!(of_metadata(&set(&[(0, 1024)]), size()).is_none());
    }

    #[test]
    fn what_is_not_zero_is_found_to_the_byte() {
        for seed in 0..2000u64 {
            let mut image = [0; 1024];
            for step in 0..seed % 12 {
                image[(seed as usize * 389 + step as usize * 61) % 1024] = 1 + step as u8;
            }
            let mut rebuilt = [0; 1024];
            let parts = nonzero(&image);
            parts
                .iter()
                .for_each(|part| rebuilt[part.as_usize()].copy_from_slice(&image[part.as_usize()]));
            assert_eq!(rebuilt, image, "seed {seed}: {parts:?}");
            assert!(parts.windows(2).all(|pair| pair[1].start - pair[0].end >= ZEROS_MIN as u32));
        }
        assert_eq!(of_image(&[0; 1024], size()), Some(vec![]));
        assert_eq!(of_image(&[1; 1024], size()), None);
    }
}
