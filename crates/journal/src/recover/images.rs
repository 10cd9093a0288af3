use super::ReplayAction;
use crate::ranges::RangeSet;
use device::Buffer;
use std::collections::BTreeMap;
use units::{BlockRange, BlockSize, HomeBlock};

/// Merges records block by block in memory, so that a block updated a hundred times is written
/// once.
pub struct ReplayImages {
    block_size: BlockSize,
    /// Content, and its bytes that records gave.
    images: BTreeMap<HomeBlock, (Buffer, RangeSet)>,
}

/// The merged outcome of all records of one block so far.
#[derive(Clone, Debug)]
pub struct ReplayImage {
    pub home: HomeBlock,
    pub content: Buffer,
    /// Bytes that no record gave: to be read from home first. Empty if the block is whole.
    pub missing: Vec<BlockRange>,
}

impl ReplayImages {
    pub fn new(block_size: BlockSize) -> ReplayImages {
        ReplayImages { block_size, images: BTreeMap::new() }
    }

    /// Applies an action. Actions come in log order.
    pub fn apply(&mut self, action: ReplayAction) {
        let (home, range, bytes, base_zero) = match action {
            ReplayAction::WriteWhole { home, bytes } => {
                (home, self.block_size.whole(), bytes, false)
            }
            ReplayAction::Merge { home, range, bytes, base_zero } => {
                (home, range, bytes, base_zero)
            }
        };
        let fresh = || (Buffer::zeroed(self.block_size.bytes()), RangeSet::new());
        let (content, given) = self.images.entry(home).or_insert_with(fresh);
        if base_zero && !units::fault!("base-zero-ignored") {
            content.fill(0);
            given.insert(self.block_size.whole());
        }
        content[range.as_usize()].copy_from_slice(&bytes);
        given.insert(range);
    }

    /// Drops what was merged of the block.
    pub fn forget(&mut self, home: HomeBlock) {
        self.images.remove(&home);
    }

    /// Returns the number of blocks held in memory: when there are too many, write what `take`
    /// returns and go on.
    pub fn len(&self) -> usize {
        self.images.len()
    }
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    /// Returns all images, sorted by home address; the set is empty afterwards.
    pub fn take(&mut self) -> Vec<ReplayImage> {
        let whole = self.block_size.whole();
        let image = |(home, (content, given)): (HomeBlock, (Buffer, RangeSet))| {
            let missing = given.missing(whole).as_slice().to_vec();
            ReplayImage { home, content, missing }
        };
        std::mem::take(&mut self.images).into_iter().map(image).collect()
    }
}

impl ReplayImage {
    /// Fills the missing bytes from the home block; the image is then whole.
    pub fn fill_from(&mut self, home: &[u8]) {
        if units::fault!("packed-base-unread") {
            self.missing.clear();
        }
        for range in self.missing.drain(..) {
            self.content[range.as_usize()].copy_from_slice(&home[range.as_usize()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_a_block_merge_in_log_order_over_the_right_base() {
        let mut images = ReplayImages::new(BlockSize::new(1024).unwrap());
        let merge = |home, start: u32, byte: u8, base_zero| ReplayAction::Merge {
            home: HomeBlock(home),
            range: BlockRange::new(start, start + 4),
            bytes: vec![byte; 4],
            base_zero,
        };
        images.apply(merge(7, 0, 1, false));
        images.apply(merge(7, 2, 2, false));
        images.apply(merge(3, 8, 3, false));
        images.apply(merge(3, 4, 4, true));
        images.apply(ReplayAction::WriteWhole { home: HomeBlock(5), bytes: vec![9; 1024] });
        images.apply(merge(5, 1020, 5, false));
        let mut taken = images.take();
        assert!(images.is_empty());
        taken.iter_mut().for_each(|image| image.fill_from(&[8; 1024]));
        let [three, five, seven] = &taken[..] else { panic!("{taken:?}") };
        assert_eq!(
            (three.home, &three.content[..12]),
            (HomeBlock(3), &[0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0][..])
        );
        assert_eq!((five.home, &five.content[1018..]), (HomeBlock(5), &[9, 9, 5, 5, 5, 5][..]));
        assert_eq!(
            (seven.home, &seven.content[..8]),
            (HomeBlock(7), &[1, 1, 2, 2, 2, 2, 8, 8][..])
        );
    }
}
