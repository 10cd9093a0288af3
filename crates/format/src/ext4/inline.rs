//! Content within the inode (feature `inline_data`, kernel: `fs/ext4/inline.c`). The content lies
//! in the 60 bytes that otherwise map blocks, then in the value of the attribute `system.data` in
//! the area behind the inode's fields.
//!
//! A directory's content is the number of its parent in 4 bytes, and two chains of entries. One
//! goes to the end of the 60 bytes, the other is in the attribute. It has no `.`, no `..` and no
//! checksum of its own. [`directory_block`] converts it to the block that it becomes when it
//! outgrows the inode: each entry stands there 20 bytes further.

use super::directory::{DirectoryError, DirectoryFormat, TAIL_LENGTH, entry_type};
use super::inode::{RawInode, flags};
use super::xattr::{self, Attribute, XattrError};
use units::InodeNumber;

/// Bytes of the content that lie where blocks are mapped otherwise.
pub const HEAD_LENGTH: usize = 60;
/// Distance in bytes between an entry's places in the inode and in a directory's block: `.` and
/// `..` instead of the parent.
const SHIFT: usize = 12 + 12 - PARENT_LENGTH;

const PARENT_LENGTH: usize = 4;
/// Prefix and name of `system.data`.
const INDEX: u8 = 7;
const NAME: &[u8] = b"data";

/// Reason for which the content cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InlineError {
    #[error("its extended attributes: {0}")]
    Attributes(#[from] XattrError),
    #[error("its extended attributes lack the required padding")]
    Packed,
    #[error("its content should lie within it, but the attribute system.data is missing")]
    Missing,
}

/// Whether the attribute is content of the inode.
pub fn is_content(attribute: &Attribute) -> bool {
    attribute.index == INDEX && attribute.name == NAME && attribute.outside.is_none()
}

/// The content as far as it is stored; a file may be shorter, or longer by zeros.
pub fn content(inode: &RawInode) -> Result<Vec<u8>, InlineError> {
    let attributes = xattr::parse_area(&inode.xattr_area)?;
    let rest =
        attributes.iter().find(|attribute| is_content(attribute)).ok_or(InlineError::Missing)?;
    Ok([&inode.block[..HEAD_LENGTH], &rest.value].concat())
}

/// Makes the entry that stands at `at` in [`directory_block`] refer to another inode.
pub fn retarget(
    format: &DirectoryFormat,
    content: &mut [u8],
    at: usize,
    inode: InodeNumber,
    file_type: u8,
) {
    super::directory::retarget(format, content, at - SHIFT, inode, file_type);
}

/// Stores changed content of the same length.
pub fn set_content(inode: &mut RawInode, content: &[u8]) -> Result<(), InlineError> {
    let mut attributes = xattr::parse_area(&inode.xattr_area)?;
    let rest = attributes
        .iter_mut()
        .find(|attribute| is_content(attribute))
        .ok_or(InlineError::Missing)?;
    assert_eq!(content.len(), HEAD_LENGTH + rest.value.len());
    rest.value.copy_from_slice(&content[HEAD_LENGTH..]);
    inode.xattr_area = serialize(&attributes, inode)?.into();
    inode.block.copy_from_slice(&content[..HEAD_LENGTH]);
    Ok(())
}

/// Removes the content: from now on the inode maps blocks, of which it has none yet.
pub fn leave(inode: &mut RawInode, extents: bool) -> Result<(), InlineError> {
    let mut attributes = xattr::parse_area(&inode.xattr_area)?;
    attributes.retain(|attribute| !is_content(attribute));
    inode.xattr_area = serialize(&attributes, inode)?.into();
    inode.flags &= !flags::INLINE_DATA;
    inode.block = smallvec::smallvec![0; HEAD_LENGTH];
    if extents {
        inode.make_extent_root();
    }
    Ok(())
}

/// Serializes attributes that were stored before; values without padding may not fit once padded.
fn serialize(attributes: &[Attribute], inode: &RawInode) -> Result<Vec<u8>, InlineError> {
    xattr::serialize_area(attributes, inode.xattr_area.len()).ok_or(InlineError::Packed)
}

/// The parent of a directory with that content.
pub fn parent(content: &[u8]) -> InodeNumber {
    InodeNumber(u32::from_le_bytes([content[0], content[1], content[2], content[3]]))
}
pub fn set_parent(content: &mut [u8], parent: InodeNumber) {
    content[..PARENT_LENGTH].copy_from_slice(&parent.get().to_le_bytes());
}

/// The block that the directory `own` with that content becomes. Its checksum is not set yet.
pub fn directory_block(
    format: &DirectoryFormat,
    own: InodeNumber,
    content: &[u8],
    length: usize,
) -> Result<Vec<u8>, DirectoryError> {
    let wrong = |at, why| DirectoryError { at, why };
    let mut block = vec![0; length];
    format.clear(&mut block);
    let end = if format.seed.is_some() { length - TAIL_LENGTH } else { length };
    if !(1..=format.inodes).contains(&parent(content).get()) {
        return Err(wrong(0, "its parent is no inode"));
    }
    if content.len() + SHIFT > end {
        return Err(wrong(0, "it is longer than a block"));
    }
    format.write(&mut block, 0, 12, own, entry_type::DIRECTORY, b".");
    format.write(&mut block, 12, 12, parent(content), entry_type::DIRECTORY, b"..");
    block[PARENT_LENGTH + SHIFT..content.len() + SHIFT].copy_from_slice(&content[PARENT_LENGTH..]);
    // Chains without checksums: they end at their last valid entry.
    let chain = DirectoryFormat { seed: None, ..*format };
    let mut last = 0;
    for (start, part) in [(PARENT_LENGTH, &content[..HEAD_LENGTH]), (HEAD_LENGTH, content)] {
        for entry in chain.entries(&part[start..]) {
            let entry = entry.map_err(|error| wrong(start + error.at, error.why))?;
            last = start + entry.at + SHIFT;
        }
    }
    let rest = (end - last) as u16;
    block[last + 4..last + 6].copy_from_slice(&rest.to_le_bytes());
    Ok(block)
}

/// Removes the entry that stands at `at` in [`directory_block`], with `previous` before it, from
/// its chain.
pub fn erase(content: &mut [u8], at: usize, previous: Option<usize>) {
    let (at, previous) = (at - SHIFT, previous.and_then(|previous| previous.checked_sub(SHIFT)));
    let length = usize::from(u16::from_le_bytes([content[at + 4], content[at + 5]]));
    let starts_chain = at == PARENT_LENGTH || at == HEAD_LENGTH;
    super::directory::erase(content, at, length, previous.filter(|_| !starts_chain));
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: DirectoryFormat =
        DirectoryFormat { file_types: true, seed: Some(7), inodes: 100 };

    /// `a` and `b` in the inode, `c` in the attribute.
    fn directory() -> RawInode {
        let chain = DirectoryFormat { seed: None, ..FORMAT };
        let (mut head, mut rest) = (vec![0; 56], vec![0; 40]);
        chain.fill(
            &mut head,
            [(InodeNumber(12), 1, &b"a"[..]), (InodeNumber(13), 1, b"b")].into_iter(),
        );
        chain.fill(&mut rest, [(InodeNumber(14), 2, &b"c"[..])].into_iter());
        let attributes =
            [Attribute::new(1, b"other", b"value"), Attribute::new(INDEX, NAME, &rest)];
        RawInode {
            flags: flags::INLINE_DATA,
            block: [&[2, 0, 0, 0], &head[..]].concat().into(),
            xattr_area: xattr::serialize_area(&attributes, 200).unwrap().into(),
            ..RawInode::default()
        }
    }

    fn names(block: &[u8]) -> Vec<Vec<u8>> {
        let entries =
            FORMAT.entries(block).map(Result::unwrap).filter(|entry| entry.inode.is_some());
        entries.map(|entry| entry.name.to_vec()).collect()
    }

    #[test]
    fn a_directory_is_shown_as_the_block_that_it_becomes() {
        let mut inode = directory();
        let show = |inode: &RawInode| {
            let content = content(inode).unwrap();
            directory_block(&FORMAT, InodeNumber(11), &content, 1024).unwrap()
        };
        assert_eq!(names(&show(&inode)), [&b"."[..], b"..", b"a", b"b", b"c"]);
        for (name, left) in
            [(b"c", &[&b"."[..], b"..", b"a", b"b"][..]), (b"b", &[b".", b"..", b"a"])]
        {
            let block = show(&inode);
            let entry = FORMAT.find(&block, name).unwrap().unwrap();
            let mut changed = content(&inode).unwrap();
            erase(&mut changed, entry.at, entry.previous);
            set_content(&mut inode, &changed).unwrap();
            assert_eq!(names(&show(&inode)), left);
        }
        assert_eq!(parent(&content(&inode).unwrap()), InodeNumber(2));
        leave(&mut inode, true).unwrap();
        assert_eq!((content(&inode), inode.flags), (Err(InlineError::Missing), flags::EXTENTS));
        assert_eq!(xattr::parse_area(&inode.xattr_area).unwrap().len(), 1);
    }

    #[test]
    fn content_beside_values_without_padding_is_read_and_stays() {
        // `system.data` without a value, `a` and `b` of one byte each, side by side, in as few
        // bytes as hold them.
        let entry = |index: u8, name: &[u8], start: u16, size: u32| {
            let mut bytes = vec![name.len() as u8, index];
            bytes.extend(start.to_le_bytes());
            bytes.extend([[0; 4], size.to_le_bytes(), [0; 4]].concat());
            bytes.extend(name);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let entries =
            [entry(INDEX, NAME, 0, 0), entry(1, b"a", 64, 1), entry(1, b"b", 65, 1)].concat();
        let xattr_area = [&xattr::MAGIC.to_le_bytes()[..], &entries, &[0; 4], b"xy\0\0"].concat();
        let mut inode = RawInode {
            flags: flags::INLINE_DATA,
            block: smallvec::smallvec![1; 60],
            xattr_area: xattr_area.into(),
            ..RawInode::default()
        };
        let before = inode.clone();
        assert_eq!(content(&inode), Ok(vec![1; 60]));
        assert_eq!(set_content(&mut inode, &[2; 60]), Err(InlineError::Packed));
        assert_eq!(inode, before);
    }

    #[test]
    fn a_directory_with_any_byte_changed_is_read_without_harm() {
        let good = content(&directory()).unwrap();
        for at in 0..good.len() {
            for value in [0, 1, 3, 8, b'/', 0x7f, 0xff] {
                let mut damaged = good.clone();
                damaged[at] = value;
                if let Ok(block) = directory_block(&FORMAT, InodeNumber(11), &damaged, 1024) {
                    for entry in FORMAT.entries(&block) {
                        let entry = entry.expect("what was checked is a chain");
                        if entry.at >= PARENT_LENGTH + SHIFT {
                            erase(&mut damaged.clone(), entry.at, None);
                        }
                    }
                }
            }
        }
    }
}
