//! Roles of the metadata blocks of a healthy image, so that damage hits structures and checksums
//! can be corrected.

use crate::patches::Input;
use crate::seal;
use crate::volume::bitmaps::vouch_for_bitmaps;
use crate::volume::read::{
    descriptor_at, read_block, read_descriptor, read_inode, read_superblock,
};
use disks::Image;
use format::ext4::checksum::inode_seed;
use format::ext4::extent::{ExtentEntry, ExtentNode};
use format::ext4::inode::flags;
use format::ext4::{RawInode, SUPERBLOCK_OFFSET, VolumeSuperblock, bitmap, feature, indirect};
use std::collections::{BTreeMap, BTreeSet};
use units::{GroupNumber, HomeBlock, InodeNumber};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    /// An inode in use, at this byte of the block.
    Inode {
        number: InodeNumber,
        at: usize,
    },
    ExtentNode {
        of: InodeNumber,
    },
    Pointers,
    Leaf {
        of: InodeNumber,
    },
    Index {
        of: InodeNumber,
        table: usize,
    },
    Xattrs,
    Orphans {
        of: InodeNumber,
    },
    BlockBitmap(GroupNumber),
    InodeBitmap(GroupNumber),
    Descriptors {
        first: u32,
    },
    Log,
    /// Sealed last: its checksum covers nothing else, but all others need its fields.
    Superblock,
}

/// Bytes of magic and block type.
pub const SUPERBLOCK_OF_JOURNAL: [u8; 8] = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];

pub struct Roles {
    superblock: VolumeSuperblock,
    /// Sorted, so that a patch always hits the same place.
    places: Vec<(Role, u64)>,
    /// Offset of each inode's slot, in bytes.
    slots: BTreeMap<InodeNumber, u64>,
}

impl Roles {
    pub fn of(image: &Image) -> Roles {
        let superblock = read_superblock(image);
        let mut roles = Roles { superblock, places: Vec::new(), slots: BTreeMap::new() };
        roles.gather(image);
        roles.places.sort();
        roles
    }

    fn gather(&mut self, image: &Image) {
        let superblock = self.superblock.clone();
        let shift = superblock.block_size.shift();
        // A superblock is four times as likely as any one inode.
        let home = SUPERBLOCK_OFFSET >> shift;
        self.places.extend([(Role::Superblock, home); 4]);
        for index in 0..superblock.descriptor_blocks() {
            let first = index * superblock.descriptors_per_block();
            self.places
                .push((Role::Descriptors { first }, superblock.descriptor_block(index).get()));
        }
        for group in (0..superblock.groups()).map(GroupNumber) {
            let descriptor = read_descriptor(image, &superblock, group);
            self.places.push((Role::BlockBitmap(group), descriptor.block_bitmap.get()));
            self.places.push((Role::InodeBitmap(group), descriptor.inode_bitmap.get()));
            let bits = read_block(image, &superblock, descriptor.inode_bitmap.get());
            for index in
                (0..superblock.inodes_per_group).filter(|index| bitmap::is_set(&bits, *index))
            {
                let number = InodeNumber(group.get() * superblock.inodes_per_group + index + 1);
                self.gather_inode(image, number);
            }
        }
    }

    fn gather_inode(&mut self, image: &Image, number: InodeNumber) {
        let shift = self.superblock.block_size.shift();
        let (slot, inode) = read_inode(image, &self.superblock, number);
        self.slots.insert(number, slot);
        let at = (slot & ((1 << shift) - 1)) as usize;
        self.places.push((Role::Inode { number, at }, slot >> shift));
        if inode.xattr_block != HomeBlock(0) {
            self.places.push((Role::Xattrs, inode.xattr_block.get()));
        }
        let mut tree = Tree::default();
        tree.gather(image, &self.superblock, &inode);
        let node = if inode.flags & flags::EXTENTS != 0 {
            Role::ExtentNode { of: number }
        } else {
            Role::Pointers
        };
        self.places.extend(tree.nodes.iter().map(|block| (node, *block)));
        if number.get() == self.superblock.journal_inode {
            let first = tree.data.iter().take(40);
            self.places.extend(first.map(|block| (Role::Log, *block)));
        } else if number.get() == self.superblock.orphan_file_inode
            && self.superblock.features.has(feature::ORPHAN_FILE)
        {
            self.places
                .extend(tree.data.iter().map(|block| (Role::Orphans { of: number }, *block)));
        } else if inode.mode & 0o170_000 == 0o040_000 {
            for (index, block) in tree.data.iter().enumerate() {
                let bytes = read_block(image, &self.superblock, *block);
                let indexed = inode.flags & flags::INDEX != 0;
                let role = if indexed && index == 0 {
                    Role::Index { of: number, table: 32 }
                } else if indexed
                    && bytes[..4] == [0; 4]
                    && usize::from(bytes[4]) + usize::from(bytes[5]) * 256 == bytes.len()
                {
                    Role::Index { of: number, table: 8 }
                } else {
                    Role::Leaf { of: number }
                };
                self.places.push((role, *block));
            }
        }
    }

    /// Applies the patches; returns the places hit.
    pub fn damage(&self, image: &mut Image, input: &Input<'_>) -> BTreeSet<usize> {
        let size = self.superblock.block_size.bytes();
        let mut touched = BTreeSet::new();
        for patch in input.patches() {
            let index = usize::from(patch.place) % self.places.len();
            let (role, block) = self.places[index];
            let start = block << self.superblock.block_size.shift();
            let (begin, length) = match role {
                Role::Superblock => (SUPERBLOCK_OFFSET, 1024),
                Role::Inode { at, .. } => (start + at as u64, self.superblock.inode_size.into()),
                _ => (start, size),
            };
            let offset = usize::from(patch.offset) % length;
            let length = patch.bytes.len().min(length - offset);
            image.write(begin + offset as u64, &patch.bytes[..length]);
            touched.insert(index);
        }
        touched
    }

    /// Corrects the checksums of the places hit, and of those that cover them.
    pub fn seal(&self, image: &mut Image, touched: &BTreeSet<usize>) {
        let superblock = &self.superblock;
        let Some(seed) =
            superblock.features.has(feature::METADATA_CSUM).then_some(superblock.checksum_seed)
        else {
            return;
        };
        let of_inode = |image: &Image, number: InodeNumber| {
            let mut generation = [0; 4];
            image.read(self.slots[&number] + 0x64, &mut generation);
            inode_seed(seed, number, u32::from_le_bytes(generation))
        };
        for index in touched {
            let (role, block) = self.places[*index];
            let mut bytes = read_block(image, superblock, block);
            match role {
                Role::Inode { number, at } => {
                    let raw = &mut bytes[at..at + usize::from(superblock.inode_size)];
                    seal::inode(raw, number, Some(seed));
                }
                Role::ExtentNode { of } => seal::extent_node(&mut bytes, of_inode(image, of)),
                Role::Leaf { of } => seal::directory_leaf(&mut bytes, of_inode(image, of)),
                Role::Index { of, table } => {
                    seal::directory_index(&mut bytes, table, of_inode(image, of));
                }
                Role::Xattrs => {
                    format::ext4::xattr::set_block_checksum(seed, HomeBlock(block), &mut bytes);
                }
                Role::Orphans { of } => {
                    let seed = of_inode(image, of);
                    format::ext4::orphan::store_checksum(&mut bytes, HomeBlock(block), Some(seed));
                }
                Role::Superblock => {
                    let within =
                        (SUPERBLOCK_OFFSET - (block << superblock.block_size.shift())) as usize;
                    seal::superblock(&mut bytes[within..within + 1024]);
                }
                Role::Log if bytes.starts_with(&SUPERBLOCK_OF_JOURNAL) => {
                    seal::journal_superblock(&mut bytes[..1024]);
                }
                Role::Descriptors { .. } | Role::Pointers | Role::Log => {}
                Role::BlockBitmap(_) | Role::InodeBitmap(_) => {}
            }
            image.write(block << superblock.block_size.shift(), &bytes);
        }
        let roles = touched.iter().map(|index| self.places[*index].0);
        let mut vouched = BTreeSet::new();
        for role in roles {
            match role {
                Role::BlockBitmap(group) | Role::InodeBitmap(group) => {
                    self.seal_group(image, group, true);
                    vouched.insert(group);
                }
                Role::Descriptors { first } => {
                    let end = (first + superblock.descriptors_per_block()).min(superblock.groups());
                    vouched.extend((first..end).map(GroupNumber));
                }
                _ => {}
            }
        }
        vouched.into_iter().for_each(|group| self.seal_group(image, group, false));
    }

    /// The descriptor's checksum; with `bitmaps`, first their checksums and counts.
    fn seal_group(&self, image: &mut Image, group: GroupNumber, bitmaps: bool) {
        let superblock = &self.superblock;
        if bitmaps {
            vouch_for_bitmaps(image, superblock, group);
            return;
        }
        let descriptor = read_descriptor(image, superblock, group);
        let at = descriptor_at(superblock, group);
        let mut raw = vec![0; superblock.descriptor_size().into()];
        image.read(at, &mut raw);
        descriptor.serialize(&mut raw, group, superblock);
        image.write(at, &raw);
    }
}

/// The blocks of a file of a healthy volume, in order, without those of its mapping.
pub fn places_of_file(image: &Image, superblock: &VolumeSuperblock, number: u32) -> Vec<u64> {
    let (_, inode) = read_inode(image, superblock, InodeNumber(number));
    let mut tree = Tree::default();
    tree.gather(image, superblock, &inode);
    tree.data
}

/// The blocks in a file's mapping.
#[derive(Default)]
struct Tree {
    nodes: Vec<u64>,
    data: Vec<u64>,
}

impl Tree {
    fn gather(&mut self, image: &Image, superblock: &VolumeSuperblock, inode: &RawInode) {
        if inode.flags & flags::INLINE_DATA != 0 {
            return;
        }
        if inode.flags & flags::EXTENTS != 0 {
            self.extents(image, superblock, &inode.block);
        } else if matches!(inode.mode & 0o170_000, 0o100_000 | 0o040_000) {
            for index in 0..15 {
                if let Some(block) = indirect::pointer(&inode.block, index) {
                    self.pointers(image, superblock, block.get(), index.saturating_sub(11));
                }
            }
        }
    }
    fn extents(&mut self, image: &Image, superblock: &VolumeSuperblock, node: &[u8]) {
        for entry in ExtentNode::parse(node).expect("a healthy node").entries() {
            match entry {
                ExtentEntry::Extent(extent) => {
                    self.data
                        .extend((0..u64::from(extent.count)).map(|more| extent.home.get() + more));
                }
                ExtentEntry::Index(index) => {
                    self.nodes.push(index.child.get());
                    let child = read_block(image, superblock, index.child.get());
                    self.extents(image, superblock, &child);
                }
            }
        }
    }
    fn pointers(&mut self, image: &Image, superblock: &VolumeSuperblock, block: u64, levels: u32) {
        if levels == 0 {
            self.data.push(block);
            return;
        }
        self.nodes.push(block);
        let bytes = read_block(image, superblock, block);
        for index in 0..bytes.len() as u32 / 4 {
            if let Some(child) = indirect::pointer(&bytes, index) {
                self.pointers(image, superblock, child.get(), levels - 1);
            }
        }
    }
}
