//! Reading bitmaps, checked; and building those that mke2fs left uninitialised.

use crate::{Error, Result, Volume};
use engine::{Block, Handle};
use format::ext4::{GroupDescriptor, VolumeSuperblock, bitmap, group_flags};
use std::ops::Range;
use units::GroupNumber;

/// A bitmap to look at. To change it: [`Volume::take_block_bitmap`], with no await between.
pub(crate) enum Bits {
    Stored(Block),
    /// The group is not initialised; this would be its bitmap.
    Initial(Vec<u8>),
}

impl Bits {
    /// Whether none of the bits is in use.
    pub fn all_clear(&self, range: Range<u32>) -> bool {
        self.look(|bits| bitmap::all_clear(bits, range))
    }
    /// Passes the bits to `look`; a borrow that ends here costs no copy when the block changes.
    pub fn look<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Bits::Stored(block) => look(&block.bytes()),
            Bits::Initial(bits) => look(bits),
        }
    }
    /// The bits that a change of each bit of `range` flips, for the checksum in the descriptor. An
    /// uninitialised bitmap has none yet.
    pub fn flipped(&self, range: Range<u32>) -> Option<Range<u32>> {
        matches!(self, Bits::Stored(_)).then_some(range)
    }
    /// A copy to mark further bits in.
    pub fn to_vec(&self) -> Vec<u8> {
        match self {
            Bits::Stored(block) => block.bytes().to_vec(),
            Bits::Initial(bits) => bits.clone(),
        }
    }
}

impl Volume {
    /// The block bitmap of a group. A damaged one is noted: nothing is allocated in the group from
    /// then on.
    pub(crate) async fn block_bitmap(&self, group: GroupNumber) -> Result<Bits> {
        if self.uninitialised(group, group_flags::BLOCK_UNINIT) {
            let bits = self.initial_block_bitmap(group);
            let count = self.superblock.borrow().blocks_in_group(group);
            let free = bitmap::count_clear(&bits, count);
            return self.initial(group, bits, free == self.groups.descriptor(group).free_blocks);
        }
        let at = self.groups.descriptor(group).block_bitmap;
        let block = self.engine.metadata(at).await?;
        if !block.is_verified() {
            let checked = self.check_block_bitmap(group, &block.bytes());
            self.verify_bitmap(group, &block, checked)?;
        }
        Ok(Bits::Stored(block))
    }

    /// The inode bitmap of a group.
    pub(crate) async fn inode_bitmap(&self, group: GroupNumber) -> Result<Bits> {
        if self.uninitialised(group, group_flags::INODE_UNINIT) {
            let free = self.superblock.borrow().inodes_per_group;
            let agrees = free == self.groups.descriptor(group).free_inodes;
            return self.initial(group, self.initial_inode_bitmap(), agrees);
        }
        let at = self.groups.descriptor(group).inode_bitmap;
        let block = self.engine.metadata(at).await?;
        if !block.is_verified() {
            let checked = self.check_inode_bitmap(group, &block.bytes());
            self.verify_bitmap(group, &block, checked)?;
        }
        Ok(Bits::Stored(block))
    }

    fn initial(&self, group: GroupNumber, bits: Vec<u8>, count_agrees: bool) -> Result<Bits> {
        if count_agrees {
            return Ok(Bits::Initial(bits));
        }
        self.groups.mark_damaged(group);
        let what = format!("the descriptor of {group}");
        let why =
            "it is uninitialised but states a free count that an empty group does not have".into();
        Err(self.note_damage(Error::Corrupt { what, why }))
    }

    fn verify_bitmap(
        &self,
        group: GroupNumber,
        block: &Block,
        checked: std::result::Result<(), &'static str>,
    ) -> Result<()> {
        match checked {
            Ok(()) => {
                block.set_verified();
                Ok(())
            }
            Err(why) => {
                self.groups.mark_damaged(group);
                let what = format!("a bitmap of {group}");
                Err(self.note_damage(Error::corrupt_block(&what, block.number(), why)))
            }
        }
    }

    /// The bitmap's block, to be changed at once. An uninitialised one is made here. Credits: 1.
    pub(crate) fn take_block_bitmap(
        &self,
        handle: &mut Handle,
        group: GroupNumber,
        bits: Bits,
    ) -> Block {
        let at = self.groups.descriptor(group).block_bitmap;
        take(handle, at, bits)
    }
    pub(crate) fn take_inode_bitmap(
        &self,
        handle: &mut Handle,
        group: GroupNumber,
        bits: Bits,
    ) -> Block {
        let at = self.groups.descriptor(group).inode_bitmap;
        take(handle, at, bits)
    }

    /// Updates counts, flag and checksum in the descriptor after a change of a block bitmap, each
    /// bit of `flipped` or unknown bits. Credits: 1.
    pub(crate) fn block_bitmap_changed(
        &self,
        handle: &mut Handle,
        group: GroupNumber,
        block: &Block,
        flipped: Option<Range<u32>>,
        free_blocks: u32,
    ) {
        let (superblock, state) = (self.superblock.borrow(), self.groups.state(group));
        let checksum = match flipped {
            None => bitmap::block_bitmap_checksum(&block.bytes(), &superblock),
            Some(bits) => {
                let before = state.descriptor.block_bitmap_checksum;
                bitmap::block_bitmap_checksum_after(before, bits, &superblock)
            }
        };
        drop(superblock);
        self.change_descriptor(handle, group, |descriptor| {
            descriptor.free_blocks = free_blocks;
            descriptor.flags &= !group_flags::BLOCK_UNINIT;
            descriptor.block_bitmap_checksum = checksum.unwrap_or(descriptor.block_bitmap_checksum);
        });
    }

    /// Updates flag and checksum after a change of an inode bitmap; `change` sets the counts.
    pub(crate) fn inode_bitmap_changed(
        &self,
        handle: &mut Handle,
        group: GroupNumber,
        block: &Block,
        flipped: Option<Range<u32>>,
        change: impl FnOnce(&mut GroupDescriptor),
    ) {
        let (superblock, state) = (self.superblock.borrow(), self.groups.state(group));
        let checksum = match flipped {
            None => bitmap::inode_bitmap_checksum(&block.bytes(), &superblock),
            Some(bits) => {
                let before = state.descriptor.inode_bitmap_checksum;
                bitmap::inode_bitmap_checksum_after(before, bits, &superblock)
            }
        };
        drop(superblock);
        self.change_descriptor(handle, group, |descriptor| {
            change(descriptor);
            descriptor.flags &= !group_flags::INODE_UNINIT;
            descriptor.inode_bitmap_checksum = checksum.unwrap_or(descriptor.inode_bitmap_checksum);
        });
    }

    fn uninitialised(&self, group: GroupNumber, flag: u16) -> bool {
        self.has_group_checksums() && self.groups.descriptor(group).is(flag)
    }

    /// The bits in use: blocks of the file system itself, and those behind the volume's end.
    pub(crate) fn initial_block_bitmap(&self, group: GroupNumber) -> Vec<u8> {
        let superblock = self.superblock.borrow();
        let mut bits = vec![0; superblock.block_size.bytes()];
        let start = superblock.group_start(group).get();
        let count = superblock.blocks_in_group(group);
        for zone in self.zone.within(start..start + u64::from(count)) {
            bitmap::set(&mut bits, (zone.start - start) as u32..(zone.end - start) as u32);
        }
        bitmap::set(&mut bits, count..8 * superblock.block_size.bytes() as u32);
        bits
    }

    fn initial_inode_bitmap(&self) -> Vec<u8> {
        let superblock = self.superblock.borrow();
        let mut bits = vec![0; superblock.block_size.bytes()];
        bitmap::set(
            &mut bits,
            superblock.inodes_per_group..8 * superblock.block_size.bytes() as u32,
        );
        bits
    }

    fn check_block_bitmap(
        &self,
        group: GroupNumber,
        bits: &[u8],
    ) -> std::result::Result<(), &'static str> {
        let superblock = self.superblock.borrow();
        let descriptor = self.groups.descriptor(group);
        if !descriptor.block_bitmap_matches(bits, &superblock) {
            return Err("wrong checksum");
        }
        if !self.own_blocks_are_set(group, bits, &superblock) {
            return Err("blocks of the file system itself are marked free");
        }
        if bitmap::count_clear(bits, superblock.blocks_in_group(group)) != descriptor.free_blocks {
            return Err("the descriptor states another number of free blocks");
        }
        if self.free_but_owned(group, bits) {
            return Err("blocks of a file in memory are marked free");
        }
        Ok(())
    }

    fn own_blocks_are_set(
        &self,
        group: GroupNumber,
        bits: &[u8],
        superblock: &VolumeSuperblock,
    ) -> bool {
        let start = superblock.group_start(group).get();
        let count = superblock.blocks_in_group(group);
        let mut own = self.zone.within(start..start + u64::from(count));
        own.all(|zone| {
            bitmap::all_set(bits, (zone.start - start) as u32..(zone.end - start) as u32)
        })
    }

    fn check_inode_bitmap(
        &self,
        group: GroupNumber,
        bits: &[u8],
    ) -> std::result::Result<(), &'static str> {
        let superblock = self.superblock.borrow();
        let descriptor = self.groups.descriptor(group);
        if !descriptor.inode_bitmap_matches(bits, &superblock) {
            return Err("wrong checksum");
        }
        if bitmap::count_clear(bits, superblock.inodes_per_group) != descriptor.free_inodes {
            return Err("the descriptor states another number of free inodes");
        }
        if self.free_but_known(group, bits) {
            return Err("inodes in memory are marked free");
        }
        Ok(())
    }
}

fn take(handle: &mut Handle, at: units::HomeBlock, bits: Bits) -> Block {
    match bits {
        Bits::Stored(block) => block,
        Bits::Initial(bits) => {
            let block = handle.create(at);
            let whole = handle.engine().block_size().whole();
            handle.change_within(&block, whole, |bytes| bytes.copy_from_slice(&bits));
            block
        }
    }
}
