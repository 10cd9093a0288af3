//! A set of blocks as bits, so that a search for free ones looks at 64 at a time whatever withholds
//! them.

use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks of a tile: its bits fill a page.
const TILE: u64 = 4096 * 8;
const WORD: u64 = u64::BITS as u64;

/// Set of blocks as tiles, by their number; only tiles that have a block.
#[derive(Default)]
pub(crate) struct BlockSet {
    tiles: BTreeMap<u64, Tile>,
    /// The tile that lost its last block: often the set's only one, which soon has a block again.
    spare: Option<Tile>,
}

struct Tile {
    /// Number of set bits.
    count: u64,
    words: Box<[u64; (TILE / WORD) as usize]>,
}

impl BlockSet {
    /// Adds a range of which no block is in the set.
    pub fn insert(&mut self, range: &Range<u64>) {
        assert!(range.start < range.end);
        for (tile, part) in parts(range) {
            let empty = || Tile { count: 0, words: Box::new([0; (TILE / WORD) as usize]) };
            let spare = &mut self.spare;
            let tile = self.tiles.entry(tile);
            let tile = tile.or_insert_with(|| spare.take().unwrap_or_else(empty));
            tile.count += part.end - part.start;
            for (word, mask) in masks(part) {
                assert!(tile.words[word] & mask == 0, "{range:?} is withheld already");
                tile.words[word] |= mask;
            }
        }
    }
    /// Removes a range of which all blocks are in the set.
    pub fn remove(&mut self, range: &Range<u64>) {
        for (number, part) in parts(range) {
            let tile = self.tiles.get_mut(&number).expect("withheld");
            tile.count -= part.end - part.start;
            for (word, mask) in masks(part) {
                assert!(tile.words[word] & mask == mask, "{range:?} is not withheld");
                tile.words[word] &= !mask;
            }
            if tile.count == 0 {
                self.spare = self.tiles.remove(&number);
            }
        }
    }
    /// The runs of the set within a range, in order. A run ends where a tile does.
    pub fn runs(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let tiles = self.tiles.range(within.start / TILE..within.end.div_ceil(TILE));
        tiles.flat_map(move |(number, tile)| {
            let start = number * TILE;
            let (mut at, end) =
                (within.start.saturating_sub(start), (within.end - start).min(TILE));
            std::iter::from_fn(move || {
                let from = tile.next(at..end, true);
                at = tile.next(from..end, false);
                (from < at).then(|| start + from..start + at)
            })
        })
    }
    /// The set from a block on, as words of bits that begin at that block.
    pub fn words(&self, within: Range<u64>) -> BlockSetWords<'_> {
        let tiles =
            (within.start / TILE..within.end.div_ceil(TILE)).map(|tile| self.tiles.get(&tile));
        BlockSetWords { begin: within.start % TILE, tiles: tiles.collect() }
    }
}

/// A part of a [`BlockSet`].
pub(crate) struct BlockSetWords<'a> {
    /// Bit in the first tile at which the first word begins.
    begin: u64,
    tiles: Vec<Option<&'a Tile>>,
}

impl BlockSetWords<'_> {
    /// The word of 64 blocks whose number is `index`; zeros behind the end.
    pub fn get(&self, index: u32) -> u64 {
        let at = self.begin + u64::from(index) * WORD;
        let whole = |at: u64| match self.tiles.get((at / TILE) as usize) {
            Some(Some(tile)) => tile.words[(at % TILE / WORD) as usize],
            _ => 0,
        };
        match at % WORD {
            0 => whole(at),
            shift => whole(at) >> shift | whole(at + WORD) << (WORD - shift),
        }
    }
}

impl Tile {
    /// The first bit of the range that is `value`, or the range's end.
    fn next(&self, range: Range<u64>, value: bool) -> u64 {
        let mut at = range.start;
        while at < range.end {
            let word = self.words[(at / WORD) as usize];
            let wanted = if value { word } else { !word } >> (at % WORD);
            if wanted != 0 {
                return (at + u64::from(wanted.trailing_zeros())).min(range.end);
            }
            at = (at / WORD + 1) * WORD;
        }
        range.end
    }
}

/// The tiles of a range, each with its part, counted from the tile's start.
fn parts(range: &Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> {
    let Range { start, end } = *range;
    (start / TILE..end.div_ceil(TILE)).map(move |tile| {
        let first = tile * TILE;
        (tile, start.max(first) - first..end.min(first + TILE) - first)
    })
}

/// The words of a part of a tile, each with a mask of the part's bits.
fn masks(part: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    let Range { start, end } = part;
    (start / WORD..end.div_ceil(WORD)).map(move |word| {
        let first = word * WORD;
        let (from, to) = (start.max(first) - first, end.min(first + WORD) - first);
        (word as usize, u64::MAX << from & u64::MAX >> (WORD - to))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Compares with a plain set, across the border of two tiles.
    #[test]
    fn blocks_come_and_go_to_the_bit() {
        let (from, to) = (TILE - 200, TILE + 200);
        let mut held = BlockSet::default();
        let mut plain: BTreeSet<u64> = BTreeSet::new();
        let ranges = [(0, 1), (1, 70), (130, 300), (380, 400), (320, 321)];
        let ranges = ranges.map(|(start, end)| from + start..from + end);
        let check = |held: &BlockSet, plain: &BTreeSet<u64>| {
            let runs: Vec<u64> = held.runs(from..to).flatten().collect();
            assert_eq!(runs, plain.iter().copied().collect::<Vec<_>>());
            for start in [from, from + 1, from + 63, from + 137, TILE - 1, TILE] {
                let words = held.words(start..to);
                for at in start..to {
                    let bit = words.get(((at - start) / WORD) as u32) >> ((at - start) % WORD) & 1;
                    assert_eq!(bit == 1, plain.contains(&at), "{at} from {start}");
                }
                assert!(held.runs(start..to).flatten().eq(plain.range(start..to).copied()));
            }
        };
        // The second time with a tile of the first.
        for _ in 0..2 {
            for range in &ranges {
                held.insert(range);
                plain.extend(range.clone());
                check(&held, &plain);
            }
            for range in &ranges {
                held.remove(range);
                range.clone().for_each(|at| assert!(plain.remove(&at)));
                check(&held, &plain);
            }
            assert!(held.tiles.is_empty() && held.spare.is_some());
        }
    }
}
