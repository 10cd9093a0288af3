//! Content of the home blocks of a small world, as its transactions make it.

use std::ops::Range;

/// Bytes of a block.
pub(super) const BLOCK: usize = 1024;
/// Blocks that transactions write.
pub(super) const HOME_BLOCKS: u64 = 16;

/// The block that is freed and used again.
pub(super) const REUSED: u64 = 12;

/// Content of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Content {
    /// Initial content of the disk.
    Stale,
    /// Metadata written by the transaction of this number.
    Version(u32),
    /// File data written by the transaction of this number.
    Data(u32),
    /// Any content: the block is in use by nobody.
    Free,
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
        let version = word(&bytes[4..8]) & !MARK & !DATA;
        let candidates = [Content::Version(version), Content::Data(version)];
        let is_written = |content: &Content| bytes == &page(block, *content)[..];
        candidates.into_iter().find(is_written).unwrap_or(Content::Garbage)
    }

    /// Whether a block may hold `found` where `self` is expected.
    pub fn allows(self, found: Content) -> bool {
        self == Content::Free || self == found
    }
}

/// Whether a disk may hold `found` in the state `expected`.
pub(super) fn allows(expected: &State, found: &State) -> bool {
    expected.iter().zip(found).all(|(expected, found)| expected.allows(*found))
}

/// Mask that makes no byte zero, so that packed records log blocks whole.
const MARK: u32 = 0x8080_8080;
/// Bit of a version that makes it one of file data.
const DATA: u32 = 0x100;
/// Bound of the transaction numbers.
const VERSIONS: u32 = 0x80;

/// Returns a block of written content. Each sector records its place in the block.
///
/// # Panics
/// Nothing writes the other kinds of content.
pub(super) fn page(block: u64, content: Content) -> [u8; BLOCK] {
    let version = match content {
        Content::Version(number) => number,
        Content::Data(number) => number | DATA,
        other => panic!("{other:?} is not written"),
    };
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
    pub fn last(&self) -> &State {
        self.states.last().expect("at least one")
    }
    /// Begins a transaction of these blocks, and of block [`REUSED`] if it changes that. Returns
    /// its number.
    pub fn begin(&mut self, blocks: Range<u64>, reused: Option<Content>) -> u32 {
        let (number, mut state) = (self.next, *self.last());
        assert!(number < VERSIONS, "a script of this length does not fit into a block");
        blocks.for_each(|block| state[block as usize] = Content::Version(number));
        if let Some(content) = reused {
            state[REUSED as usize] = content;
        }
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
        let [old, new] = [7, 8].map(|number| page(3, Content::Version(number)));
        assert_eq!(Content::parse(3, &old, 0xee), Content::Version(7));
        assert_eq!(Content::parse(4, &old, 0xee), Content::Garbage);
        let torn = [&new[..512], &old[512..]].concat();
        assert_eq!(Content::parse(3, &torn, 0xee), Content::Garbage);
        assert_eq!(Content::parse(3, &page(3, Content::Data(7)), 0xee), Content::Data(7));
        assert!(page(15, Content::Version(100)).iter().all(|byte| *byte != 0));
    }
}
