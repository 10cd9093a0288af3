//! Content of the home blocks of a small world, as its transactions make it.

use std::ops::Range;

/// Bytes of a block.
pub(super) const BLOCK: usize = 1024;
/// Blocks that transactions write.
pub(super) const HOME_BLOCKS: u64 = 16;

/// Content of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Content {
    /// Initial content of the disk.
    Stale,
    /// Content written by the transaction of this number.
    Version(u32),
    /// Content that was never written there.
    Garbage,
}

/// Content of all home blocks.
pub(super) type State = [Content; HOME_BLOCKS as usize];

impl Content {
    pub fn parse(block: u64, bytes: &[u8], stale: u8) -> Content {
        if bytes.iter().all(|byte| *byte == stale) {
            return Content::Stale;
        }
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        let version = word(&bytes[4..8]) & !MARK;
        match bytes == &page(block, version)[..] {
            true => Content::Version(version),
            false => Content::Garbage,
        }
    }
}

/// Mask that makes no byte zero, so that packed records log blocks whole.
const MARK: u32 = 0x8080_8080;
/// Bound of the transaction numbers.
const VERSIONS: u32 = 0x80;

/// Returns the block that a transaction writes. Each sector records its place in the block.
pub(super) fn page(block: u64, version: u32) -> [u8; BLOCK] {
    let mut page = [0; BLOCK];
    for (number, words) in page.chunks_exact_mut(16).enumerate() {
        let number = (number as u32 + 1).wrapping_mul(0x9e37) ^ version << 16;
        let parts = [block as u32 | MARK, version | MARK, number | MARK, !number | MARK];
        for (word, part) in words.chunks_exact_mut(4).zip(parts) {
            word.copy_from_slice(&part.to_le_bytes());
        }
    }
    page
}

/// History as a list of states: the initial one, and that behind each transaction.
#[derive(Clone, Debug)]
pub(super) struct StateHistory {
    pub states: Vec<State>,
    /// The number of the next transaction, in all lives.
    pub next: u32,
}

impl StateHistory {
    pub fn of(state: State, next: u32) -> StateHistory {
        StateHistory { states: vec![state], next }
    }
    /// Begins a transaction of these blocks. Returns its number.
    pub fn begin(&mut self, blocks: Range<u64>) -> u32 {
        let (number, mut state) = (self.next, *self.states.last().expect("at least one"));
        assert!(number < VERSIONS, "so long a script has no room in a block");
        blocks.for_each(|block| state[block as usize] = Content::Version(number));
        self.states.push(state);
        self.next += 1;
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_two_versions_is_garbage() {
        let [old, new] = [page(3, 7), page(3, 8)];
        assert_eq!(Content::parse(3, &old, 0xee), Content::Version(7));
        assert_eq!(Content::parse(4, &old, 0xee), Content::Garbage);
        let torn = [&new[..512], &old[512..]].concat();
        assert_eq!(Content::parse(3, &torn, 0xee), Content::Garbage);
        assert!(page(15, 100).iter().all(|byte| *byte != 0));
    }
}
