//! The mapping table: home -> place in a log, with the sectors that lie there.
//!
//! An entry takes 16 bytes, and with all around it at most 32 on average ([`CompactMap`]).

use crate::BLOCK;
use units::CompactMap;

/// Place of a block's newest content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Place in blocks of the disk below.
    pub place: u64,
    /// One bit for each sector of 512 bytes that lies there; the others are at home.
    pub mask: u8,
    /// Home has the same content: the next snapshot leaves the entry out.
    pub clean: bool,
}

impl Mapped {
    fn pack(self) -> u64 {
        self.place << 9 | u64::from(self.clean) << 8 | u64::from(self.mask)
    }
    fn unpack(packed: u64) -> Mapped {
        Mapped { place: packed >> 9, mask: packed as u8, clean: packed & 0x100 != 0 }
    }
}

#[derive(Default)]
pub struct MappingTable(CompactMap<u64>);

impl MappingTable {
    pub fn len(&self) -> usize {
        self.0.len()
    }
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub fn get(&self, home: u64) -> Option<Mapped> {
        self.0.get(home).map(Mapped::unpack)
    }
    /// Gives what was there before.
    pub fn insert(&mut self, home: u64, mapped: Mapped) -> Option<Mapped> {
        self.0.insert(home, mapped.pack()).map(Mapped::unpack)
    }
    pub fn remove(&mut self, home: u64) -> Option<Mapped> {
        self.0.remove(home).map(Mapped::unpack)
    }
    /// The entries of `from..until` in ascending order.
    pub fn range(&self, from: u64, until: u64) -> impl Iterator<Item = (u64, Mapped)> + '_ {
        self.0.range(from, until).map(|(home, packed)| (home, Mapped::unpack(packed)))
    }
    pub fn iter(&self) -> impl Iterator<Item = (u64, Mapped)> + '_ {
        self.range(0, u64::MAX)
    }
    /// Returns whether any block of the bytes is mapped.
    pub fn touches(&self, at: u64, length: u64) -> bool {
        let block = BLOCK as u64;
        self.range(at / block, (at + length).div_ceil(block)).next().is_some()
    }
    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.0.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_packed_and_unpacked() {
        let whole = Mapped { place: (1 << 44) - 1, mask: 0xa5, clean: true };
        assert_eq!(Mapped::unpack(whole.pack()), whole);
    }
}
