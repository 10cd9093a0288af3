//! Making and freeing inodes: the group, the bitmap, the slot.

use super::ROOT;
use crate::allocate::bitmap_bytes;
use crate::groups::Bits;
use crate::{Error, Inode, Result, Volume};
use engine::{Block, Handle};
use format::ext4::inode::flags;
use format::ext4::{bitmap, feature};
use smallvec::{SmallVec, smallvec};
use std::rc::Rc;
use units::{GroupNumber, InodeNumber};

const DIRECTORY: u16 = 0x4000;
const REGULAR: u16 = 0x8000;
const SET_GROUP_ID: u16 = 0o2000;
/// Inode flags that new inodes inherit (kernel: `EXT4_FL_INHERITED`): secrm, unrm, compr, sync,
/// nodump, noatime, nocompr, journal-data, notail, and those that only directories inherit.
const INHERITED: u32 =
    0x1 | 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x400 | 0x4000 | 0x8000 | INHERITED_BY_DIRECTORIES;
const INHERITED_BY_DIRECTORIES: u32 = flags::DIRECTORY_SYNC | flags::PROJECT_INHERIT;
/// Flags that devices, fifos, sockets and symbolic links inherit: nodump, noatime.
const INHERITED_BY_OTHERS: u32 = 0x40 | 0x80;

/// An inode to be made.
pub struct NewInode<'a> {
    pub parent: &'a Inode,
    /// Type and permissions, as `st_mode`.
    pub mode: u16,
    pub uid: u32,
    /// The parent's group is taken instead when the parent is set-group-id (directories inherit
    /// that bit too).
    pub gid: u32,
    /// Device number as `st_rdev` of Linux (new encoding, 32 bits); 0 unless a device.
    pub rdev: u32,
}

impl Volume {
    /// A new inode, which the caller stores with the same handle: times now, one link, random
    /// generation, flags inherited from the parent. Regular files and directories have an empty
    /// extent root when the volume has extents; symbolic links have none
    /// (`fields.make_extent_root()` gives one to a long link). Credits:
    /// [`Volume::credits_create_inode`].
    pub async fn create_inode(&self, handle: &mut Handle, new: NewInode<'_>) -> Result<Rc<Inode>> {
        let directory = new.mode & 0xf000 == DIRECTORY;
        for group in self.groups_for_inode(new.parent, directory) {
            let state = self.groups.state(group);
            if state.damaged || state.descriptor.free_inodes == 0 {
                continue;
            }
            let bits = match self.inode_bitmap(group).await {
                // A damaged group has no free inodes.
                Err(Error::Corrupt { .. }) => continue,
                bits => bits?,
            };
            let taken = self.take_inode(handle, group, bits, directory).await?;
            let Some((number, block)) = taken else { continue };
            let inode = Rc::new(Inode::new(number, self.new_fields(&new), handle.transaction()));
            let (_, range) = self.inode_place(number);
            // Nothing of a former inode stays in bytes that no field has.
            handle.change_within(&block, range, |bytes| bytes[range.as_usize()].fill(0));
            return Ok(self.inodes.borrow_mut().insert(inode, self.engine.committed()));
        }
        Err(self.no_space())
    }

    /// Frees an inode without links and content. Credits: [`Volume::credits_free_inode`].
    pub async fn free_inode(&self, handle: &mut Handle, inode: &Inode) -> Result<()> {
        let number = inode.number;
        let (group, index) = self.superblock.borrow().group_of_inode(number);
        let (table, range) = self.table_block(inode).await?;
        let bits = self.inode_bitmap(group).await?;
        let is_used = matches!(&bits, Bits::Stored(block) if bitmap::is_set(&block.bytes(), index));
        if !is_used {
            self.groups.mark_damaged(group);
            return Err(self.note_damage(Error::corrupt_inode(
                number,
                "it is to be freed but is free already",
            )));
        }
        let now = self.now();
        let directory = inode.is_directory();
        {
            let mut fields = inode.fields.borrow_mut();
            fields.links = 0;
            fields.size = 0;
            // Only the low 32 bits are kept; never zero, which would mean "not deleted".
            fields.deletion_time = (now.seconds as u32).max(1);
        }
        let flipped = bits.flipped(index..index + 1);
        let block = self.take_inode_bitmap(handle, group, bits);
        handle.change(&block, bitmap_bytes(&(index..index + 1)), |bits| {
            bitmap::clear(bits, index..index + 1)
        });
        self.inode_bitmap_changed(handle, group, &block, flipped, |descriptor| {
            descriptor.free_inodes += 1;
            descriptor.directories = descriptor.directories.saturating_sub(directory.into());
        });
        self.superblock.borrow_mut().free_inodes += 1;
        handle.change_within(&table, range, |bytes| {
            inode.fields.borrow().serialize(&mut bytes[range.as_usize()], number, &self.layout);
        });
        self.drop_preallocation(inode.number);
        self.inodes.borrow_mut().remove(number);
        Ok(())
    }

    /// Takes the group's first free inode: its number, and its table block, held. `None` when other
    /// tasks took the last ones. `bits`: the group's bitmap now.
    async fn take_inode(
        &self,
        handle: &mut Handle,
        group: GroupNumber,
        mut bits: Bits,
        directory: bool,
    ) -> Result<Option<(InodeNumber, Block)>> {
        let mut read: Option<Block> = None;
        loop {
            let Some(index) = self.first_free_inode(group, &bits) else { return Ok(None) };
            let number =
                InodeNumber(group.get() * self.superblock.borrow().inodes_per_group + index + 1);
            let (at, range) = self.inode_place(number);
            if self.is_table_block_unused(group, index) {
                self.check_free_inode(group, number, None)?;
                let block = handle.create(at);
                self.mark_inode(handle, group, index, bits, directory);
                return Ok(Some((number, block)));
            }
            let held = read.take().filter(|block| block.number() == at);
            let Some(block) = held.or_else(|| self.engine.metadata_in_memory(at)) else {
                // The bitmap may change while the table is read: look at it again afterwards.
                read = Some(self.engine.metadata(at).await?);
                bits = self.inode_bitmap(group).await?;
                continue;
            };
            let bytes = block.bytes();
            let slot = (!self.was_never_used(number)).then(|| &bytes[range.as_usize()]);
            self.check_free_inode(group, number, slot)?;
            drop(bytes);
            self.mark_inode(handle, group, index, bits, directory);
            return Ok(Some((number, block)));
        }
    }

    fn first_free_inode(&self, group: GroupNumber, bits: &Bits) -> Option<u32> {
        let superblock = self.superblock.borrow();
        let count = superblock.inodes_per_group;
        // Reserved inodes are never allocated, whatever the bitmap says.
        let first = if group.get() == 0 { superblock.first_inode - 1 } else { 0 };
        let find = |bits: &[u8]| {
            Some(bitmap::next(bits, first..count, false)).filter(|&index| index < count)
        };
        match bits {
            Bits::Stored(block) => find(&block.bytes()),
            Bits::Initial(bits) => find(bits),
        }
    }

    /// Whether all inodes of the table block were never used: then its content is arbitrary, and it
    /// is initialised.
    fn is_table_block_unused(&self, group: GroupNumber, index: u32) -> bool {
        let superblock = self.superblock.borrow();
        let used = superblock.inodes_per_group - self.groups.descriptor(group).unused_inodes;
        self.has_group_checksums()
            && index / superblock.inodes_per_block() * superblock.inodes_per_block() >= used
    }

    fn mark_inode(
        &self,
        handle: &mut Handle,
        group: GroupNumber,
        index: u32,
        bits: Bits,
        directory: bool,
    ) {
        let per_group = self.superblock.borrow().inodes_per_group;
        let flipped = bits.flipped(index..index + 1);
        let block = self.take_inode_bitmap(handle, group, bits);
        handle.change(&block, bitmap_bytes(&(index..index + 1)), |bits| {
            bitmap::set(bits, index..index + 1)
        });
        let checksums = self.has_group_checksums();
        self.inode_bitmap_changed(handle, group, &block, flipped, |descriptor| {
            descriptor.free_inodes -= 1;
            descriptor.directories = descriptor.directories.saturating_add(directory.into());
            if checksums {
                descriptor.unused_inodes = descriptor.unused_inodes.min(per_group - index - 1);
            }
        });
        self.superblock.borrow_mut().free_inodes -= 1;
    }

    fn new_fields(&self, new: &NewInode<'_>) -> format::ext4::RawInode {
        let superblock = self.superblock.borrow();
        let parent = new.parent.fields.borrow();
        let kind = new.mode & 0xf000;
        let (mut mode, mut gid) = (new.mode, new.gid);
        if self.options.group_of_directory {
            gid = parent.gid;
        } else if parent.mode & SET_GROUP_ID != 0 {
            gid = parent.gid;
            mode |= if kind == DIRECTORY { SET_GROUP_ID } else { 0 };
        }
        let inherited = match kind {
            DIRECTORY => INHERITED,
            REGULAR => INHERITED & !INHERITED_BY_DIRECTORIES,
            _ => INHERITED_BY_OTHERS,
        };
        let space = superblock.inode_size - 128;
        let wanted =
            superblock.extra_inode_size_wanted.max(superblock.extra_inode_size_min).max(32);
        let extra_size = if wanted <= space && wanted % 4 == 0 { wanted } else { space.min(32) };
        let now = self.now();
        let mut fields = format::ext4::RawInode {
            mode,
            uid: new.uid,
            gid,
            links: 1,
            accessed: now,
            changed: now,
            modified: now,
            created: now,
            flags: parent.flags & inherited,
            block: SmallVec::from_slice(&device_bytes(new.rdev)),
            generation: self.engine.world().random() as u32,
            extra_size,
            project: if self.inherits_project(new.parent) { parent.project } else { 0 },
            xattr_area: smallvec![0; usize::from(space - extra_size)],
            ..format::ext4::RawInode::default()
        };
        let mapped = kind == DIRECTORY || kind == REGULAR;
        if mapped && superblock.features.has(feature::EXTENTS) {
            fields.make_extent_root();
        }
        fields
    }

    /// Returns all groups, the best first. Files go to their directory's group, else to others
    /// spread by the parent's number. Directories below the root, or below a directory marked as
    /// top, are spread over the groups with free space. Others stay near their parent unless its
    /// group is nearly full (kernel: `ialloc.c`, after Orlov).
    fn groups_for_inode(
        &self,
        parent: &Inode,
        directory: bool,
    ) -> impl Iterator<Item = GroupNumber> + use<> {
        let groups = self.groups.count();
        let home = self.superblock.borrow().group_of_inode(parent.number).0.get();
        let is_top = parent.number == ROOT || parent.has_flag(flags::TOP_DIRECTORY);
        let first = match directory {
            true if is_top => {
                self.emptiest_group((self.engine.world().random() % u64::from(groups)) as u32)
            }
            true => self.first_group_with_space(home),
            false => home,
        };
        // Powers of two first, so that the files of directories in full groups do not all move to
        // the next group.
        let hash = (home + parent.number.get()) % groups;
        let jumps = (0..u32::BITS)
            .map(move |bit| 1u64 << bit)
            .take_while(move |step| *step < u64::from(groups));
        let jumped = jumps.map(move |step| ((u64::from(hash) + step) % u64::from(groups)) as u32);
        let rest = (0..groups)
            .map(move |step| ((u64::from(first) + u64::from(step)) % u64::from(groups)) as u32);
        let jumped = jumped.filter(move |_| !directory);
        std::iter::once(first).chain(jumped).chain(rest).map(GroupNumber)
    }

    /// The group with the fewest directories among those with at least average free inodes and
    /// blocks; `from` decides between equals.
    fn emptiest_group(&self, from: u32) -> u32 {
        let (free_inodes, free_blocks) = self.average_free();
        let states = self.groups.states.borrow();
        let count = states.len() as u32;
        let order =
            (0..count).map(|step| ((u64::from(from) + u64::from(step)) % u64::from(count)) as u32);
        let suitable = order.filter(|&group| {
            let descriptor = states[group as usize].descriptor;
            descriptor.free_inodes > 0
                && descriptor.free_inodes >= free_inodes
                && descriptor.free_blocks >= free_blocks
        });
        suitable.min_by_key(|&group| states[group as usize].descriptor.directories).unwrap_or(from)
    }

    /// The first group from `home` on with at least a quarter of the average free inodes and
    /// blocks.
    fn first_group_with_space(&self, home: u32) -> u32 {
        let (free_inodes, free_blocks) = self.average_free();
        let states = self.groups.states.borrow();
        let count = states.len() as u32;
        let mut order =
            (0..count).map(|step| ((u64::from(home) + u64::from(step)) % u64::from(count)) as u32);
        let suitable = order.find(|&group| {
            let descriptor = states[group as usize].descriptor;
            descriptor.free_inodes > free_inodes / 4 && descriptor.free_blocks > free_blocks / 4
        });
        suitable.unwrap_or(home)
    }

    fn average_free(&self) -> (u32, u32) {
        let superblock = self.superblock.borrow();
        let groups = u64::from(self.groups.count());
        (superblock.free_inodes / groups as u32, (superblock.free_blocks / groups) as u32)
    }
}

/// A device number as the 60 bytes of an inode hold it: 16 bits in the first word, or 32 in the
/// second.
fn device_bytes(rdev: u32) -> [u8; 60] {
    let mut bytes = [0; 60];
    let major = (rdev & 0xfff00) >> 8;
    let minor = (rdev & 0xff) | ((rdev >> 12) & 0xfff00);
    if major < 256 && minor < 256 {
        bytes[..4].copy_from_slice(&(major << 8 | minor).to_le_bytes());
    } else {
        bytes[4..8].copy_from_slice(&rdev.to_le_bytes());
    }
    bytes
}
