//! Input of a target that damages a golden image: two parameter bytes, then patches.

use runtime::SplitMix;

/// The parameters and patches of an input.
pub struct Input<'a> {
    pub base: u8,
    pub choice: u8,
    rest: &'a [u8],
}

/// Bytes to overwrite.
pub struct Patch<'a> {
    /// Index of the place in use, taken modulo their number.
    pub place: u16,
    pub offset: u16,
    pub bytes: &'a [u8],
}

/// Maximum number of patches; further ones are ignored.
const PATCHES_MAX: usize = 32;

impl<'a> Input<'a> {
    pub fn parse(bytes: &'a [u8]) -> Option<Input<'a>> {
        let [base, choice, rest @ ..] = bytes else { return None };
        Some(Input { base: *base, choice: *choice, rest })
    }

    /// The patches: place and offset (two bytes each), length - 1 (its low four bits), bytes.
    pub fn patches(&self) -> impl Iterator<Item = Patch<'a>> {
        let mut rest = self.rest;
        std::iter::from_fn(move || {
            let (head, behind) = rest.split_at_checked(5)?;
            let length = usize::from(head[4] & 15) + 1;
            let (bytes, next) = behind.split_at_checked(length)?;
            rest = next;
            let number = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
            Some(Patch { place: number(0), offset: number(2), bytes })
        })
        .take(PATCHES_MAX)
    }
}

/// A fresh input with one to six patches.
pub fn random_input(random: &SplitMix) -> Vec<u8> {
    let mut input = vec![random.next() as u8, random.next() as u8];
    for _ in 0..1 + random.next() % 6 {
        input.extend((random.next() as u16).to_le_bytes());
        // Half of all damage is near the beginning of a block or inode, where the structures are.
        let offset = if random.next() % 2 == 0 { random.next() % 64 } else { random.next() };
        input.extend((offset as u16).to_le_bytes());
        let width = 1 << (random.next() % 4);
        input.push(width as u8 - 1);
        let value = match random.next() % 4 {
            0 => 0,
            1 => u64::MAX,
            2 => random.next() % 4096,
            _ => random.next(),
        };
        input.extend(&value.to_le_bytes()[..width]);
    }
    input
}
