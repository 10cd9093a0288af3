//! Blocks of directory entries (kernel: `Documentation/filesystems/ext4/directory.rst`).
//!
//! A block is a chain of entries without gaps, each `record_length` bytes long:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | inode, 0 for an entry that holds no name |
//! | 4 | 2 | record length, a multiple of 4; a further entry fits into the bytes behind the name |
//! | 6 | 1 | name length |
//! | 7 | 1 | file type, with the feature `filetype` (without it, the high byte of the name length: 0) |
//! | 8 | 1..=255 | name |
//!
//! With metadata_csum the last 12 bytes are the *tail*: an entry without a name, of type 0xde, and
//! the checksum of all before it. Nothing read here is trusted: [`DirectoryFormat::entries`] ends
//! at the first contradiction.

use super::checksum::{crc32c, crc32c_difference};
use smallvec::SmallVec;
use units::{BlockRange, InodeNumber};

pub const NAME_LENGTH_MAX: usize = 255;
/// Bytes before the name.
pub const HEADER_LENGTH: usize = 8;
/// Record length of the shortest name.
pub const RECORD_LENGTH_MIN: usize = 12;
/// Bytes of the tail.
pub const TAIL_LENGTH: usize = 12;
const TAIL_TYPE: u8 = 0xde;

/// Reason for which a block is no directory block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("byte {at}: {why}")]
pub struct DirectoryError {
    pub at: usize,
    pub why: &'static str,
}

/// File types in entries (`EXT4_FT_*`).
pub mod entry_type {
    pub const UNKNOWN: u8 = 0;
    pub const REGULAR: u8 = 1;
    pub const DIRECTORY: u8 = 2;
    pub const CHARACTER_DEVICE: u8 = 3;
    pub const BLOCK_DEVICE: u8 = 4;
    pub const FIFO: u8 = 5;
    pub const SOCKET: u8 = 6;
    pub const SYMLINK: u8 = 7;

    /// The type for an `st_mode`.
    pub const fn of_mode(mode: u16) -> u8 {
        match mode >> 12 {
            0x8 => REGULAR,
            0x4 => DIRECTORY,
            0x2 => CHARACTER_DEVICE,
            0x6 => BLOCK_DEVICE,
            0x1 => FIFO,
            0xc => SOCKET,
            0xa => SYMLINK,
            _ => UNKNOWN,
        }
    }
}

/// An entry, in use or not, that fits into its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawEntry<'a> {
    /// Offset in the block, bytes.
    pub at: usize,
    pub record_length: usize,
    /// Inode of the entry; `None` when it holds no name.
    pub inode: Option<InodeNumber>,
    /// See [`entry_type`].
    pub file_type: u8,
    pub name: &'a [u8],
}

impl RawEntry<'_> {
    /// Bytes that the entry itself needs in its record.
    pub fn used(&self) -> usize {
        if self.inode.is_some() { record_length(self.name.len()) } else { 0 }
    }
    pub fn end(&self) -> usize {
        self.at + self.record_length
    }
    /// The position behind its name, if `needed` bytes are free there.
    fn slot(&self, needed: usize) -> Option<EntrySlot> {
        let (at, used, record_length) = (self.at, self.used(), self.record_length);
        (record_length - used >= needed).then_some(EntrySlot { at, used, record_length })
    }
}

/// Record length of an entry whose name has `name_length` bytes.
pub const fn record_length(name_length: usize) -> usize {
    (HEADER_LENGTH + name_length).next_multiple_of(4)
}

/// Layout of a volume's directory blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectoryFormat {
    /// The feature `filetype`.
    pub file_types: bool,
    /// Seed of the directory's checksums, with metadata_csum.
    pub seed: Option<u32>,
    /// Inodes of the volume: entries with a higher number are damaged.
    pub inodes: u32,
}

/// Position for a new entry: after the `used` bytes of the entry at `at`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntrySlot {
    at: usize,
    used: usize,
    record_length: usize,
}

/// Result of a search for a name in a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Search {
    Found(NamedEntry),
    /// The first position for an entry of that name.
    Missing(Option<EntrySlot>),
}

/// An entry with the name that was searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedEntry {
    pub inode: InodeNumber,
    /// Offset in the block, bytes.
    pub at: usize,
    pub record_length: usize,
    /// Offset of the entry before it.
    pub previous: Option<usize>,
}

impl DirectoryFormat {
    /// End of the entries in a block of `length` bytes.
    pub fn end(&self, length: usize) -> usize {
        if self.seed.is_some() { length - TAIL_LENGTH } else { length }
    }

    /// The entries of a block, in order. After an error it yields nothing more.
    pub fn entries<'a>(&self, block: &'a [u8]) -> Entries<'a> {
        self.entries_until(block, self.end(block.len()))
    }
    fn entries_until<'a>(&self, block: &'a [u8], end: usize) -> Entries<'a> {
        Entries { rest: &block[..end], at: 0, block_length: block.len(), inodes: self.inodes }
    }

    /// The entries `.` and `..`, which every directory's first block begins with, indexed or not.
    pub fn dots<'a>(&self, block: &'a [u8]) -> Result<[RawEntry<'a>; 2], DirectoryError> {
        let mut entries = self.entries_until(block, block.len());
        let mut dots = || {
            entries.next().unwrap_or(Err(DirectoryError { at: 0, why: "the block is too short" }))
        };
        let (dot, dotdot) = (dots()?, dots()?);
        match (dot.inode, dot.name, dotdot.inode, dotdot.name) {
            (Some(_), b".", Some(_), b"..") => Ok([dot, dotdot]),
            _ => {
                Err(DirectoryError { at: 0, why: "the entries . and .. are not where they belong" })
            }
        }
    }

    /// The entry of that name.
    pub fn find(&self, block: &[u8], name: &[u8]) -> Result<Option<NamedEntry>, DirectoryError> {
        Ok(match self.search(block, name)? {
            Search::Found(entry) => Some(entry),
            Search::Missing(_) => None,
        })
    }

    /// Looks for the entry of that name, and on the way for a position to put it.
    pub fn search(&self, block: &[u8], name: &[u8]) -> Result<Search, DirectoryError> {
        let needed = record_length(name.len());
        let (mut previous, mut slot) = (None, None);
        for entry in self.entries(block) {
            let entry = entry?;
            let RawEntry { at, record_length, .. } = entry;
            if let Some(inode) = entry.inode.filter(|_| is_same(entry.name, name)) {
                return Ok(Search::Found(NamedEntry { inode, at, record_length, previous }));
            }
            if slot.is_none() {
                slot = entry.slot(needed);
            }
            previous = Some(at);
        }
        Ok(Search::Missing(slot))
    }

    /// The first position for a name of that length.
    pub fn slot(
        &self,
        block: &[u8],
        name_length: usize,
    ) -> Result<Option<EntrySlot>, DirectoryError> {
        let needed = record_length(name_length);
        for entry in self.entries(block) {
            if let Some(slot) = entry?.slot(needed) {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    /// The bytes that [`DirectoryFormat::put`] writes: the entry, and the length of the one before
    /// it.
    pub fn put_ranges(&self, slot: EntrySlot, name_length: usize) -> SmallVec<[BlockRange; 2]> {
        let at = slot.at + slot.used;
        let entry = BlockRange::new(at as u32, (at + HEADER_LENGTH + name_length) as u32);
        let before = (slot.used > 0).then(|| record_length_range(slot.at));
        before.into_iter().chain([entry]).collect()
    }

    /// Writes an entry at a free position.
    pub fn put(
        &self,
        block: &mut [u8],
        slot: EntrySlot,
        inode: InodeNumber,
        file_type: u8,
        name: &[u8],
    ) {
        if slot.used > 0 {
            set_record_length(block, slot.at, slot.used);
        }
        self.write(
            block,
            slot.at + slot.used,
            slot.record_length - slot.used,
            inode,
            file_type,
            name,
        );
    }

    /// Writes an entry at `at`, over the old content.
    pub fn write(
        &self,
        block: &mut [u8],
        at: usize,
        length: usize,
        inode: InodeNumber,
        file_type: u8,
        name: &[u8],
    ) {
        assert!(name.len() <= NAME_LENGTH_MAX && record_length(name.len()) <= length);
        set_inode(block, at, inode.get());
        set_record_length(block, at, length);
        block[at + 6] = name.len() as u8;
        block[at + 7] = if self.file_types { file_type } else { entry_type::UNKNOWN };
        block[at + HEADER_LENGTH..][..name.len()].copy_from_slice(name);
    }

    /// Fills an empty block: one entry without a name, and the tail without its checksum.
    pub fn clear(&self, block: &mut [u8]) {
        block.fill(0);
        let end = self.end(block.len());
        set_record_length(block, 0, end);
        if self.seed.is_some() {
            set_record_length(block, end, TAIL_LENGTH);
            block[end + 7] = TAIL_TYPE;
        }
    }

    /// Writes `entries` (inode, type, name) one after the other into an empty block; the last one's
    /// record takes the rest. They must fit.
    pub fn fill<'a>(
        &self,
        block: &mut [u8],
        entries: impl Iterator<Item = (InodeNumber, u8, &'a [u8])>,
    ) {
        self.clear(block);
        let end = self.end(block.len());
        let (mut at, mut last) = (0, 0);
        for (inode, file_type, name) in entries {
            let length = record_length(name.len());
            assert!(at + length <= end);
            self.write(block, at, length, inode, file_type, name);
            (last, at) = (at, at + length);
        }
        set_record_length(block, last, end - last);
    }

    /// Whether the tail exists and its checksum is right; always true without checksums.
    pub fn checksum_is_right(&self, block: &[u8]) -> bool {
        let Some(seed) = self.seed else { return true };
        let (body, tail) = block.split_at(self.end(block.len()));
        tail[..4] == [0; 4]
            && tail[4..8] == [TAIL_LENGTH as u8, 0, 0, TAIL_TYPE]
            && tail[8..] == crc32c(seed, body).to_le_bytes()
    }

    /// The bytes that [`DirectoryFormat::set_checksum`] writes, if any.
    pub fn checksum_range(&self, length: usize) -> Option<BlockRange> {
        self.seed.map(|_| BlockRange::new(length as u32 - 4, length as u32))
    }

    /// Makes a change that writes only within `ranges` to a block whose checksum is right, and
    /// adapts the checksum.
    pub fn change(&self, block: &mut [u8], ranges: &[BlockRange], change: impl FnOnce(&mut [u8])) {
        let join = |one: BlockRange, other: BlockRange| {
            BlockRange::new(one.start.min(other.start), one.end.max(other.end))
        };
        // A damaged block may have an entry where its tail should be.
        let is_before_tail = |whole: &BlockRange| whole.end as usize <= self.end(block.len());
        let whole = ranges.iter().copied().reduce(join).filter(is_before_tail);
        let Some(whole) = whole.filter(|_| self.seed.is_some()) else {
            change(block);
            return self.set_checksum(block);
        };
        let mut difference = SmallVec::<[u8; 64]>::from_slice(&block[whole.as_usize()]);
        change(block);
        let (body, tail) = block.split_at_mut(block.len() - TAIL_LENGTH);
        difference.iter_mut().zip(&body[whole.as_usize()]).for_each(|(byte, now)| *byte ^= now);
        let before = u32::from_le_bytes([tail[8], tail[9], tail[10], tail[11]]);
        let checksum = before ^ crc32c_difference(&difference, body.len() - whole.end as usize);
        tail[8..].copy_from_slice(&checksum.to_le_bytes());
    }

    pub fn set_checksum(&self, block: &mut [u8]) {
        let Some(seed) = self.seed else { return };
        let (body, tail) = block.split_at_mut(block.len() - TAIL_LENGTH);
        tail[8..].copy_from_slice(&crc32c(seed, body).to_le_bytes());
    }
}

/// Removes an entry from the chain: the record of the one before it grows over it. The first of a
/// block only loses its name.
pub fn erase(block: &mut [u8], entry_at: usize, entry_length: usize, previous: Option<usize>) {
    match previous {
        Some(previous) => set_record_length(block, previous, entry_at + entry_length - previous),
        None => set_inode(block, entry_at, 0),
    }
}

/// The bytes that [`erase`] writes.
pub fn erase_range(entry_at: usize, previous: Option<usize>) -> BlockRange {
    match previous {
        Some(previous) => record_length_range(previous),
        None => BlockRange::new(entry_at as u32, entry_at as u32 + 4),
    }
}

fn record_length_range(at: usize) -> BlockRange {
    BlockRange::new(at as u32 + 4, at as u32 + 6)
}

/// The bytes that [`retarget`] writes: inode and type.
pub fn retarget_ranges(at: usize) -> [BlockRange; 2] {
    [(0, 4), (7, 8)].map(|(from, to)| BlockRange::new(at as u32 + from, at as u32 + to))
}

/// Makes the entry at `at` refer to another inode.
pub fn retarget(
    format: &DirectoryFormat,
    block: &mut [u8],
    at: usize,
    inode: InodeNumber,
    file_type: u8,
) {
    set_inode(block, at, inode.get());
    if format.file_types {
        block[at + 7] = file_type;
    }
}

/// Iterator of [`DirectoryFormat::entries`].
pub struct Entries<'a> {
    /// Bytes from the next entry on; empty behind an error.
    rest: &'a [u8],
    /// Offset of the next entry.
    at: usize,
    /// Bytes of the whole block.
    block_length: usize,
    inodes: u32,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<RawEntry<'a>, DirectoryError>;
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.parse();
        let length = entry.as_ref().map_or(self.rest.len(), |entry| entry.record_length);
        (self.rest, self.at) = (&self.rest[length..], self.at + length);
        Some(entry)
    }
}

impl<'a> Entries<'a> {
    // Every request by name comes through here for each entry of a block.
    #[inline(always)]
    fn parse(&self) -> Result<RawEntry<'a>, DirectoryError> {
        let at = self.at;
        let wrong = |why| Err(DirectoryError { at, why });
        let Some((header, behind)) = self.rest.split_first_chunk::<HEADER_LENGTH>() else {
            return wrong("too few bytes for an entry");
        };
        let [inode @ .., low, high, name_length, file_type] = *header;
        let record_length = decode_length([low, high], self.block_length);
        if record_length < HEADER_LENGTH || record_length % 4 != 0 {
            return wrong("the record length is no multiple of 4 from 8 on");
        }
        let Some(record) = behind.get(..record_length - HEADER_LENGTH) else {
            return wrong("the record reaches beyond the block");
        };
        let entry = |inode, name| Ok(RawEntry { at, record_length, inode, file_type, name });
        let inode = u32::from_le_bytes(inode);
        if inode == 0 {
            return entry(None, &[]);
        }
        let Some(name) = record.get(..name_length.into()) else {
            return wrong("the name reaches beyond its record");
        };
        if name.is_empty() || has_slash_or_nul(name) {
            return wrong("the name is empty or has a slash or a NUL");
        }
        if inode > self.inodes {
            return wrong("the inode number is too high");
        }
        entry(Some(InodeNumber(inode)), name)
    }
}

/// Whether two names are the same. Those of a directory differ more often at their ends.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.last_chunk::<8>() == other.last_chunk::<8>() && one == other
}

/// Whether one of the bytes is a slash or a NUL.
fn has_slash_or_nul(name: &[u8]) -> bool {
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    // Subtraction sets the high bit of a byte that is zero; it borrows beyond it only if one is.
    let has_zero = |word: u64| word.wrapping_sub(EACH) & !word & EACH << 7 != 0;
    let in_word = |bytes: &[u8; 8]| {
        let word = u64::from_ne_bytes(*bytes);
        has_zero(word) || has_zero(word ^ (EACH * u64::from(b'/')))
    };
    match name.last_chunk() {
        // The last eight bytes may overlap those before.
        Some(last) => {
            let mut rest = name;
            while let Some((word, behind)) = rest.split_first_chunk() {
                if in_word(word) {
                    return true;
                }
                rest = behind;
            }
            in_word(last)
        }
        None => name.iter().any(|&byte| byte == b'/' || byte == 0),
    }
}

fn set_inode(block: &mut [u8], at: usize, inode: u32) {
    block[at..at + 4].copy_from_slice(&inode.to_le_bytes());
}

/// Value for the record that fills a block of 64 KiB, whose length 16 bits cannot hold.
const LONGEST: u16 = 65535;

/// The record length of the entry at `at`.
pub(super) fn stored_length(block: &[u8], at: usize) -> usize {
    decode_length([block[at + 4], block[at + 5]], block.len())
}

fn decode_length(stored: [u8; 2], block_length: usize) -> usize {
    match u16::from_le_bytes(stored) {
        LONGEST | 0 if block_length == 1 << 16 => block_length,
        length => length.into(),
    }
}

pub(super) fn set_record_length(block: &mut [u8], at: usize, length: usize) {
    assert!(length <= 1 << 16 && length % 4 == 0);
    block[at + 4..at + 6].copy_from_slice(&u16::try_from(length).unwrap_or(LONGEST).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_fills_64_kib_is_read_back() {
        let format = DirectoryFormat { seed: None, ..FORMAT };
        let mut block = vec![0; 1 << 16];
        format.clear(&mut block);
        assert_eq!(block[4..6], [0xff, 0xff]);
        let entries: Vec<_> =
            format.entries(&block).map(|entry| entry.unwrap().record_length).collect();
        assert_eq!(entries, [1 << 16]);
        format.fill(&mut block, [(InodeNumber(9), 1, b"name".as_slice())].into_iter());
        assert_eq!(names(&format, &block), [(9, b"name".to_vec())]);
    }

    const FORMAT: DirectoryFormat =
        DirectoryFormat { file_types: true, seed: Some(7), inodes: 100 };

    fn names(format: &DirectoryFormat, block: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let used = format
            .entries(block)
            .map(Result::unwrap)
            .filter_map(|entry| Some((entry.inode?, entry.name)));
        used.map(|(inode, name)| (inode.get(), name.to_vec())).collect()
    }

    #[test]
    fn a_change_where_the_tail_should_be_has_its_checksum() {
        let mut block = vec![0; 1024];
        FORMAT.clear(&mut block);
        FORMAT.change(&mut block, &[BlockRange::new(1010, 1016)], |block| block[1015] = 9);
        let (body, tail) = block.split_at(1012);
        assert_eq!(tail[8..], crc32c(7, body).to_le_bytes());
    }

    #[test]
    fn entries_go_in_and_out_until_the_block_is_full() {
        for format in [FORMAT, DirectoryFormat { seed: None, file_types: false, ..FORMAT }] {
            let mut block = vec![0xaa; 1024];
            format.clear(&mut block);
            let mut expected = Vec::new();
            while let Some(slot) = format.slot(&block, 3 + expected.len()).unwrap() {
                let name = vec![b'a' + expected.len() as u8; 3 + expected.len()];
                let before = block.clone();
                format.put(&mut block, slot, InodeNumber(11), entry_type::REGULAR, &name);
                let ranges = format.put_ranges(slot, name.len());
                let differs = |at: &usize| before[*at] != block[*at];
                let is_said = |at: usize| ranges.iter().any(|range| range.as_usize().contains(&at));
                assert!((0..block.len()).filter(differs).all(is_said));
                expected.push((11, name));
            }
            assert!(expected.len() > 20);
            assert_eq!(names(&format, &block), expected);
            format.set_checksum(&mut block);
            assert!(format.checksum_is_right(&block));
            while let Some((_, name)) = expected.pop() {
                let found = format.find(&block, &name).unwrap().expect("it is there");
                let NamedEntry { at, record_length: length, previous, .. } = found;
                let ranges = [erase_range(at, previous)];
                format.change(&mut block, &ranges, |block| erase(block, at, length, previous));
                assert!(format.checksum_is_right(&block));
                assert_eq!(names(&format, &block), expected);
            }
        }
    }

    #[test]
    fn a_block_with_any_byte_changed_is_read_without_harm() {
        let mut block = vec![0; 1024];
        FORMAT.fill(&mut block, (1..40).map(|inode| (InodeNumber(inode), 1, &b"some name"[..])));
        FORMAT.set_checksum(&mut block);
        for at in 0..block.len() {
            for value in [0, 1, 3, 4, 8, b'/', 0x7f, 0xff] {
                let mut damaged = block.clone();
                damaged[at] = value;
                assert_eq!(
                    FORMAT.checksum_is_right(&damaged),
                    damaged == block,
                    "byte {at} made {value}"
                );
                assert!(FORMAT.entries(&damaged).count() <= 1024 / HEADER_LENGTH);
                let _ = (
                    FORMAT.slot(&damaged, 200),
                    FORMAT.find(&damaged, b"other"),
                    FORMAT.dots(&damaged),
                );
            }
        }
    }

    #[test]
    fn a_slash_or_nul_is_found_at_every_place() {
        for length in 0..30 {
            for other in [1, b'.', b'0', 0x7f, 0x80, 0xaf, 0xff] {
                let mut name = vec![other; length];
                assert!(!has_slash_or_nul(&name), "{name:?}");
                for at in 0..length {
                    for byte in [0, b'/'] {
                        name[at] = byte;
                        assert!(has_slash_or_nul(&name), "{name:?}");
                    }
                    name[at] = other;
                }
            }
        }
    }

    #[test]
    fn contradictions_are_errors() {
        let damage: [(usize, &[u8], &str); 6] = [
            (4, &[0, 0], "multiple"),
            (4, &[13, 0], "multiple"),
            (4, &[0, 8], "beyond the block"),
            (6, &[250], "beyond its record"),
            (9, b"/", "slash"),
            (0, &[101, 0, 0, 0], "too high"),
        ];
        for (at, bytes, why) in damage {
            let mut block = vec![0; 1024];
            FORMAT.fill(
                &mut block,
                [(InodeNumber(5), 1, &b"name"[..]), (InodeNumber(6), 1, b"more")].into_iter(),
            );
            block[at..at + bytes.len()].copy_from_slice(bytes);
            let error = FORMAT.find(&block, b"more").expect_err(why);
            assert!(error.why.contains(why), "{error}");
        }
    }
}
