//! The journal's record of a file, besides the bytes that changed.
//!
//! A *slot* covers one file from its first change until the store has everything. No other slot
//! that is not freed has its number. An address is a slot's number (32 bits) and a block in it (32
//! bits). Block 0 is the [`FileRecord`], block n + 1 is the file's block n. A slot is freed by a
//! revoke of its block 0. Numbers are little-endian; a record is repeated whole in each transaction
//! that has anything of the slot.

use store::{FileAttributes, FileId, Version};
use units::{BlockSize, HomeBlock, Timestamp};

pub const BLOCK: BlockSize = BlockSize::new(4096).expect("a power of two");
const MAGIC: &[u8; 8] = b"OKHFILE1";
/// States in one record; more in one transaction end it.
pub const STATES_MAX: usize = 128;
/// A bit of the mode, of which files use twelve: [`FileRecord::is_removed`].
const REMOVED: u32 = 1 << 31;
const VERSION_BYTES: usize = 24;
const HEAD: usize = 8 + 8 + VERSION_BYTES + 4 * 4 + 8 + 3 * 12;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

impl Slot {
    pub fn record_at(self) -> HomeBlock {
        HomeBlock(u64::from(self.0) << 32)
    }
    /// Returns the address of a block; `None` if the file is too long for the journal there.
    pub fn block_at(self, block: u64) -> Option<HomeBlock> {
        let inside = block.checked_add(1).filter(|block| *block <= u64::from(u32::MAX))?;
        Some(HomeBlock(self.record_at().get() + inside))
    }
    /// Returns the slot of an address, and the file's block; `None` for the record.
    pub fn of(at: HomeBlock) -> (Slot, Option<u64>) {
        (Slot((at.get() >> 32) as u32), (at.get() & u64::from(u32::MAX)).checked_sub(1))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileRecord {
    pub file: FileId,
    /// The state that the slot builds on: the store had it, or the slot before leads to it.
    pub base: Version,
    /// States that the store reported in this transaction, oldest first; the last is the one
    /// of the attributes.
    pub states: Vec<Version>,
    /// Whether its last name was removed on this host, or is about to be.
    pub is_removed: bool,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub blocks: u64,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub changed: Timestamp,
}

impl FileRecord {
    pub fn new(base: Version, attributes: &FileAttributes) -> FileRecord {
        FileRecord {
            file: attributes.file,
            base,
            states: Vec::new(),
            is_removed: false,
            mode: attributes.mode,
            uid: attributes.uid,
            gid: attributes.gid,
            blocks: attributes.blocks,
            accessed: attributes.accessed,
            modified: attributes.modified,
            changed: attributes.changed,
        }
    }

    /// Adds a state that the store reported.
    pub fn add(&mut self, attributes: &FileAttributes) {
        assert!(self.states.len() < STATES_MAX, "a transaction ends before it has more states");
        let (base, mut states) = (self.base, std::mem::take(&mut self.states));
        // Relogged bytes come in pieces of one state.
        if states.last() != Some(&attributes.version) {
            states.push(attributes.version);
        }
        *self = FileRecord { states, ..FileRecord::new(base, attributes) };
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        assert!(self.states.len() <= STATES_MAX);
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.file.0.to_le_bytes());
        put_version(&mut bytes, self.base);
        let mode = self.mode | if self.is_removed { REMOVED } else { 0 };
        for number in [self.states.len() as u32, mode, self.uid, self.gid] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.blocks.to_le_bytes());
        for time in [self.accessed, self.modified, self.changed] {
            bytes.extend(time.seconds.to_le_bytes());
            bytes.extend(time.nanoseconds.to_le_bytes());
        }
        debug_assert_eq!(bytes.len(), HEAD);
        self.states.iter().for_each(|state| put_version(&mut bytes, *state));
        bytes
    }

    /// Parses a record; `None` if it is none. Bytes after it do not matter.
    pub fn parse(bytes: &[u8]) -> Option<FileRecord> {
        let mut rest = Fields(bytes);
        (rest.take::<8>()? == *MAGIC).then_some(())?;
        let (file, base) = (FileId(rest.u64()?), rest.version()?);
        let count = rest.u32()? as usize;
        (count <= STATES_MAX).then_some(())?;
        let (mode, uid, gid, blocks) = (rest.u32()?, rest.u32()?, rest.u32()?, rest.u64()?);
        let (accessed, modified, changed) = (rest.time()?, rest.time()?, rest.time()?);
        let states = (0..count).map(|_| rest.version()).collect::<Option<Vec<_>>>()?;
        let (is_removed, mode) = (mode & REMOVED != 0, mode & !REMOVED);
        Some(FileRecord {
            file,
            base,
            states,
            is_removed,
            mode,
            uid,
            gid,
            blocks,
            accessed,
            modified,
            changed,
        })
    }
}

pub(crate) fn put_version(bytes: &mut Vec<u8>, version: Version) {
    for number in [version.number, version.ctime_ns, version.size] {
        bytes.extend(number.to_le_bytes());
    }
}

pub(crate) struct Fields<'a>(pub &'a [u8]);
impl Fields<'_> {
    pub fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }
    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    pub fn version(&mut self) -> Option<Version> {
        Some(Version { number: self.u64()?, ctime_ns: self.u64()?, size: self.u64()? })
    }
    fn time(&mut self) -> Option<Timestamp> {
        let (seconds, nanoseconds) = (self.take().map(i64::from_le_bytes)?, self.u32()?);
        (nanoseconds < 1_000_000_000).then_some(Timestamp { seconds, nanoseconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> FileRecord {
        let version = |number| Version { number, ctime_ns: number + 1, size: number + 2 };
        let time = |seconds| Timestamp { seconds, nanoseconds: 999_999_999 };
        FileRecord {
            file: FileId(u64::MAX),
            base: version(1),
            states: (0..STATES_MAX as u64).map(version).collect(),
            is_removed: true,
            mode: 0o640,
            uid: 1,
            gid: 2,
            blocks: 3,
            accessed: time(-1),
            modified: time(0),
            changed: time(1),
        }
    }

    #[test]
    fn records_come_back_and_fit_a_block() {
        let bytes = record().to_bytes();
        assert!(bytes.len() <= BLOCK.bytes());
        assert_eq!(FileRecord::parse(&bytes), Some(record()));
        let padded = [bytes, vec![7; 9]].concat();
        assert_eq!(FileRecord::parse(&padded), Some(record()));
    }

    #[test]
    fn cut_and_changed_bytes_make_no_panic() {
        let bytes = record().to_bytes();
        for length in 0..bytes.len() {
            assert_eq!(FileRecord::parse(&bytes[..length]), None);
        }
        for at in 0..HEAD {
            let mut changed = bytes.clone();
            changed[at] ^= 0xff;
            let _ = FileRecord::parse(&changed);
        }
    }

    #[test]
    fn addresses_translate_both_ways() {
        assert_eq!(Slot::of(Slot(7).record_at()), (Slot(7), None));
        for block in [0, 1, u64::from(u32::MAX) - 1] {
            assert_eq!(Slot(7).block_at(block).map(Slot::of), Some((Slot(7), Some(block))));
        }
        assert_eq!(Slot(7).block_at(u32::MAX.into()), None);
        assert_eq!(Slot(7).block_at(u64::MAX), None);
    }
}
