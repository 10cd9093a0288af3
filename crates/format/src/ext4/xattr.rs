//! Extended attributes: the area behind an inode's fields, and the block in `i_file_acl`.
//!
//! Both hold entries from the front (16 bytes, then the name, padded to 4) up to four zero bytes.
//! Values come from the back (padded to 4). Value offsets count from the first entry in the area,
//! and from the block's start in a block. In a block the entries are sorted and carry hashes.
//! (Kernel: `attributes.rst`, `fs/ext4/xattr.c`.)

use super::checksum::crc32c;
use units::{HomeBlock, InodeNumber};

/// Magic number at the start of both the area and the block.
pub const MAGIC: u32 = 0xea02_0000;
/// Maximum number of inodes that may share one block.
pub const SHARERS_MAX: u32 = 1024;
/// The longest name, in bytes, without its prefix.
pub const NAME_LENGTH_MAX: usize = 255;

const ENTRY_SIZE: usize = 16;
const AREA_HEADER: usize = 4;
const BLOCK_HEADER: usize = 32;
const PAD: usize = 4;
const REFERENCES_AT: usize = 4;
const HASH_AT: usize = 12;
const CHECKSUM_AT: usize = 16;

/// One attribute. Its full name is the prefix of number `index` and then `name`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Attribute {
    pub index: u8,
    pub name: Vec<u8>,
    /// Empty if the value lies outside.
    pub value: Vec<u8>,
    /// Location of a value in an inode of its own (feature ea_inode).
    pub outside: Option<Outside>,
}

/// A value in an inode of its own, which others may refer to as well.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Outside {
    pub inode: InodeNumber,
    /// Bytes of the value.
    pub length: u32,
    /// The entry's hash, which covers name and value.
    pub hash: u32,
}

impl Attribute {
    pub fn new(index: u8, name: &[u8], value: &[u8]) -> Attribute {
        Attribute { index, name: name.to_vec(), value: value.to_vec(), outside: None }
    }
    /// An attribute whose value, of the given checksum, lies in `inode`.
    pub fn outside(
        index: u8,
        name: &[u8],
        inode: InodeNumber,
        length: u32,
        value_checksum: u32,
    ) -> Attribute {
        let attribute = Attribute::new(index, name, &[]);
        let hash = attribute.hash_outside(value_checksum, u32::from);
        Attribute { outside: Some(Outside { inode, length, hash }), ..attribute }
    }
    /// Whether the value outside, whose checksum is given, is the entry's. Kernels before 6.2 took
    /// the bytes of names for signed numbers.
    pub fn means(&self, value_checksum: u32) -> bool {
        let signed = |byte| byte as i8 as u32;
        let hashes = [
            self.hash_outside(value_checksum, u32::from),
            self.hash_outside(value_checksum, signed),
        ];
        self.outside.is_some_and(|outside| hashes.contains(&outside.hash))
    }
    fn hash_outside(&self, value_checksum: u32, byte: fn(u8) -> u32) -> u32 {
        let of_name = self.name.iter().fold(0u32, |hash, next| hash.rotate_left(5) ^ byte(*next));
        of_name.rotate_left(16) ^ value_checksum
    }
}

/// A block of attributes, parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XattrBlock {
    /// Number of inodes that share the block, at least 1.
    pub references: u32,
    pub attributes: Vec<Attribute>,
}

/// Reason for which an area or a block is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct XattrError(pub &'static str);

/// The attributes in the area behind an inode's fields; none when it does not begin with the magic
/// number.
pub fn parse_area(area: &[u8]) -> Result<Vec<Attribute>, XattrError> {
    if area.len() < AREA_HEADER || u32_at(area, 0) != MAGIC {
        return Ok(Vec::new());
    }
    let entries = &area[AREA_HEADER..];
    parse_entries(entries, 0, entries)
}

/// An area of `length` bytes that holds the attributes, or `None` when they do not fit.
pub fn serialize_area(attributes: &[Attribute], length: usize) -> Option<Vec<u8>> {
    let mut area = vec![0; length];
    if attributes.is_empty() {
        return Some(area);
    }
    let space = length.checked_sub(AREA_HEADER)?;
    if !fits(attributes, space) {
        return None;
    }
    put_u32(&mut area, 0, MAGIC);
    // The kernel leaves the hashes of the area zero.
    write_entries(&mut area[AREA_HEADER..], 0, attributes.iter(), |_| 0);
    Some(area)
}

/// Checks everything but the checksum.
pub fn parse_block(bytes: &[u8]) -> Result<XattrBlock, XattrError> {
    if bytes.len() < BLOCK_HEADER || u32_at(bytes, 0) != MAGIC {
        return Err(XattrError("the magic number is missing"));
    }
    if u32_at(bytes, 8) != 1 {
        return Err(XattrError("it claims to span several blocks"));
    }
    let references = u32_at(bytes, REFERENCES_AT);
    if references == 0 || references > SHARERS_MAX {
        return Err(XattrError("its reference count is impossible"));
    }
    Ok(XattrBlock { references, attributes: parse_entries(bytes, BLOCK_HEADER, bytes)? })
}

/// A whole block that holds the attributes, or `None` when they do not fit. The checksum is not set
/// yet.
pub fn serialize_block(block: &XattrBlock, length: usize) -> Option<Vec<u8>> {
    if !fits(&block.attributes, length.checked_sub(BLOCK_HEADER)?) {
        return None;
    }
    let mut bytes = vec![0; length];
    put_u32(&mut bytes, 0, MAGIC);
    put_u32(&mut bytes, REFERENCES_AT, block.references);
    put_u32(&mut bytes, 8, 1);
    let mut sorted: Vec<&Attribute> = block.attributes.iter().collect();
    sorted.sort_by_key(|attribute| (attribute.index, attribute.name.len(), &attribute.name));
    let mut block_hash = Some(0u32);
    write_entries(&mut bytes, BLOCK_HEADER, sorted.into_iter(), |attribute| {
        let hash = attribute.outside.map_or_else(|| entry_hash(attribute), |outside| outside.hash);
        // An entry without hash says that the block must not be shared.
        block_hash = block_hash.filter(|_| hash != 0).map(|sum| sum.rotate_left(16) ^ hash);
        hash
    });
    put_u32(&mut bytes, HASH_AT, block_hash.unwrap_or(0));
    Some(bytes)
}

/// Changes the number of inodes that share a block; the checksum must be set afterwards.
pub fn set_references(bytes: &mut [u8], references: u32) {
    put_u32(bytes, REFERENCES_AT, references);
}

/// The CRC-32C over the block's number and content, with the checksum itself as zero.
pub fn block_checksum(volume_seed: u32, at: HomeBlock, bytes: &[u8]) -> u32 {
    let sum = crc32c(volume_seed, &at.get().to_le_bytes());
    let sum = crc32c(crc32c(sum, &bytes[..CHECKSUM_AT]), &[0; 4]);
    crc32c(sum, &bytes[CHECKSUM_AT + 4..])
}
pub fn set_block_checksum(volume_seed: u32, at: HomeBlock, bytes: &mut [u8]) {
    let sum = block_checksum(volume_seed, at, bytes);
    put_u32(bytes, CHECKSUM_AT, sum);
}
pub fn block_checksum_is_right(volume_seed: u32, at: HomeBlock, bytes: &[u8]) -> bool {
    bytes.len() >= BLOCK_HEADER
        && u32_at(bytes, CHECKSUM_AT) == block_checksum(volume_seed, at, bytes)
}

/// The hash of an entry of a block: over the name's bytes and the value's little-endian words.
pub fn entry_hash(attribute: &Attribute) -> u32 {
    let of_name =
        attribute.name.iter().fold(0u32, |hash, byte| hash.rotate_left(5) ^ u32::from(*byte));
    attribute.value.chunks(PAD).fold(of_name, |hash, chunk| {
        let mut word = [0; PAD];
        word[..chunk.len()].copy_from_slice(chunk);
        hash.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

/// Whether entries, values and the end mark fit into `space` bytes.
fn fits(attributes: &[Attribute], space: usize) -> bool {
    let sizes = attributes.iter().map(|attribute| {
        ENTRY_SIZE
            + attribute.name.len().next_multiple_of(PAD)
            + attribute.value.len().next_multiple_of(PAD)
    });
    sizes.sum::<usize>() + PAD <= space
}

/// Entries from `first` on in `bytes`, whose value offsets count from the start of `base`.
fn parse_entries(bytes: &[u8], first: usize, base: &[u8]) -> Result<Vec<Attribute>, XattrError> {
    let mut attributes = Vec::new();
    let mut at = first;
    let mut values = Vec::new();
    loop {
        let mark = bytes.get(at..at + PAD).ok_or(XattrError("the entries have no end"))?;
        if mark == [0; PAD] {
            break;
        }
        let entry =
            bytes.get(at..at + ENTRY_SIZE).ok_or(XattrError("an entry reaches beyond the end"))?;
        let name_end = at + ENTRY_SIZE + usize::from(entry[0]);
        let name = bytes
            .get(at + ENTRY_SIZE..name_end)
            .ok_or(XattrError("a name reaches beyond the end"))?;
        // A list of names would show two names.
        if name.contains(&0) {
            return Err(XattrError("a name contains a zero byte"));
        }
        let start = usize::from(u16::from_le_bytes([entry[2], entry[3]]));
        let (elsewhere, length) = (u32_at(entry, 4), u32_at(entry, 8));
        let outside = (elsewhere != 0).then(|| Outside {
            inode: InodeNumber(elsewhere),
            length,
            hash: u32_at(entry, 12),
        });
        let size = if outside.is_some() { 0 } else { length as usize };
        let value = match size {
            0 => &[],
            _ => base
                .get(start..start.saturating_add(size))
                .ok_or(XattrError("a value reaches beyond the end"))?,
        };
        if size > 0 {
            values.push(start..start + size);
        }
        attributes.push(Attribute { outside, ..Attribute::new(entry[1], name, value) });
        at += (ENTRY_SIZE + name.len()).next_multiple_of(PAD);
    }
    check_values(&mut values, at + PAD)?;
    check_names(&attributes)?;
    Ok(attributes)
}

/// Checks that values lie behind the end mark and do not overlap: otherwise a block could claim
/// more than it holds.
fn check_values(
    values: &mut [std::ops::Range<usize>],
    entries_end: usize,
) -> Result<(), XattrError> {
    values.sort_by_key(|range| range.start);
    if values.first().is_some_and(|range| range.start < entries_end) {
        return Err(XattrError("a value lies among the entries"));
    }
    if values.windows(2).any(|pair| pair[0].end > pair[1].start) {
        return Err(XattrError("two values overlap"));
    }
    Ok(())
}

fn check_names(attributes: &[Attribute]) -> Result<(), XattrError> {
    let mut names: Vec<_> =
        attributes.iter().map(|attribute| (attribute.index, &attribute.name)).collect();
    names.sort();
    match names.windows(2).any(|pair| pair[0] == pair[1]) {
        true => Err(XattrError("a name stands there twice")),
        false => Ok(()),
    }
}

/// Writes entries from `first` on and values from the back; they must fit.
fn write_entries<'a>(
    bytes: &mut [u8],
    first: usize,
    attributes: impl Iterator<Item = &'a Attribute>,
    mut hash: impl FnMut(&Attribute) -> u32,
) {
    let mut at = first;
    let mut values = bytes.len() / PAD * PAD;
    for attribute in attributes {
        let (name, value) = (&attribute.name, &attribute.value);
        let mut start = 0;
        if !value.is_empty() {
            values -= value.len().next_multiple_of(PAD);
            start = values;
            bytes[start..start + value.len()].copy_from_slice(value);
        }
        bytes[at] = u8::try_from(name.len()).expect("names are at most 255 bytes long");
        bytes[at + 1] = attribute.index;
        bytes[at + 2..at + 4].copy_from_slice(&(start as u16).to_le_bytes());
        match attribute.outside {
            Some(outside) => {
                put_u32(bytes, at + 4, outside.inode.get());
                put_u32(bytes, at + 8, outside.length);
                put_u32(bytes, at + 12, outside.hash);
            }
            None => {
                put_u32(bytes, at + 8, value.len() as u32);
                put_u32(bytes, at + 12, hash(attribute));
            }
        }
        bytes[at + ENTRY_SIZE..at + ENTRY_SIZE + name.len()].copy_from_slice(name);
        at += (ENTRY_SIZE + name.len()).next_multiple_of(PAD);
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(index: u8, name: &str, value: &[u8]) -> Attribute {
        Attribute::new(index, name.as_bytes(), value)
    }
    fn some() -> Vec<Attribute> {
        vec![
            attribute(1, "b", b"12345"),
            attribute(1, "aa", b""),
            attribute(6, "selinux", &[7; 40]),
        ]
    }

    #[test]
    fn an_area_holds_what_was_put_in() {
        let area = serialize_area(&some(), 128).unwrap();
        assert_eq!(parse_area(&area).unwrap(), some());
        assert_eq!(parse_area(&serialize_area(&[], 128).unwrap()).unwrap(), []);
        assert_eq!(parse_area(&[]).unwrap(), []);
        // 3 entries of 16, names 4 + 4 + 8, values 8 + 0 + 40, header and end mark 4 + 4.
        assert!(serialize_area(&some(), 120).is_some());
        assert!(serialize_area(&some(), 119).is_none());
    }

    #[test]
    fn a_block_holds_what_was_put_in_sorted_and_hashed() {
        let block = XattrBlock { references: 3, attributes: some() };
        let bytes = serialize_block(&block, 1024).unwrap();
        let back = parse_block(&bytes).unwrap();
        assert_eq!(back.references, 3);
        let mut sorted = some();
        sorted.sort_by_key(|a| (a.index, a.name.len(), a.name.clone()));
        assert_eq!(back.attributes, sorted);
        assert_ne!(u32_at(&bytes, HASH_AT), 0);
        assert!(
            serialize_block(
                &XattrBlock { references: 1, attributes: vec![attribute(1, "x", &[0; 1024])] },
                1024
            )
            .is_none()
        );
    }

    /// `setfattr -n user.long -v (a block's fill)` of the kernel, seen with debugfs: name "n",
    /// value "v".
    #[test]
    fn hashes_are_the_kernels() {
        // hash("n") = 0x6e; then rotate 16 and xor with the word "v\0\0\0".
        assert_eq!(entry_hash(&attribute(1, "n", b"v")), 0x006e_0000 ^ 0x76);
        assert_eq!(entry_hash(&attribute(1, "ab", b"")), (0x61 << 5) ^ 0x62);
    }

    #[test]
    fn a_value_outside_is_named_and_kept() {
        // As the kernel stored `user.big` of 10,000 bytes whose checksum is 0xad8703db.
        let outside = Outside { inode: InodeNumber(15), length: 10_000, hash: 0x28c0_03da };
        let big = Attribute { outside: Some(outside), ..attribute(1, "big", b"") };
        assert!(big.means(0xad87_03db) && !big.means(0xad87_03da));
        let all = vec![big.clone(), attribute(1, "small", b"1")];
        assert_eq!(parse_area(&serialize_area(&all, 96).unwrap()).unwrap(), all);
        let block = XattrBlock { references: 2, attributes: all };
        assert_eq!(parse_block(&serialize_block(&block, 1024).unwrap()).unwrap(), block);
    }

    #[test]
    fn a_checksum_notices_every_changed_byte_and_the_place() {
        let mut bytes =
            serialize_block(&XattrBlock { references: 1, attributes: some() }, 1024).unwrap();
        set_block_checksum(17, HomeBlock(99), &mut bytes);
        assert!(block_checksum_is_right(17, HomeBlock(99), &bytes));
        assert!(!block_checksum_is_right(17, HomeBlock(98), &bytes));
        for at in 0..bytes.len() {
            bytes[at] ^= 0x10;
            assert!(!block_checksum_is_right(17, HomeBlock(99), &bytes), "byte {at}");
            bytes[at] ^= 0x10;
        }
    }

    #[test]
    fn no_bytes_panic() {
        let block =
            serialize_block(&XattrBlock { references: 1, attributes: some() }, 1024).unwrap();
        let area = serialize_area(&some(), 124).unwrap();
        for at in 0..1024 {
            for value in [0, 1, 3, 0x7f, 0x80, 0xff] {
                let mut damaged = block.clone();
                damaged[at] = value;
                let _ = parse_block(&damaged);
                let mut damaged = area.clone();
                damaged[at % 124] = value;
                let _ = parse_area(&damaged);
            }
        }
        for length in 0..area.len() {
            let _ = parse_area(&area[..length]);
            let _ = parse_block(&block[..length]);
        }
    }

    #[test]
    fn overlapping_values_and_double_names_are_refused() {
        let twice = vec![attribute(1, "a", b"1"), attribute(1, "a", b"2")];
        assert!(parse_area(&serialize_area(&twice, 128).unwrap()).is_err());
        let mut area =
            serialize_area(&[attribute(1, "a", b"1111"), attribute(1, "b", b"2222")], 128).unwrap();
        let first_value = [area[4 + 2], area[4 + 3]];
        area[4 + 20 + 2..4 + 20 + 4].copy_from_slice(&first_value);
        assert_eq!(parse_area(&area), Err(XattrError("two values overlap")));
    }
}
