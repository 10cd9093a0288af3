//! The orphan file: slots for inode numbers, in blocks that stay pinned in the cache.

use crate::{Error, Result, Volume};
use engine::{Block, Handle};
use format::ext4::orphan as format;
use units::{BlockRange, FileBlock, InodeNumber};

/// The most blocks that the file may have: mke2fs makes at most 512.
const BLOCKS_MAX: u64 = 4096;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Slot {
    block: usize,
    entry: usize,
}

pub(super) struct OrphanFile {
    blocks: Vec<Block>,
    /// Released slots. Slots from `unused` on were never taken since the volume was opened.
    free: Vec<Slot>,
    unused: Slot,
    entries: usize,
    /// Seed of the checksums of the file's blocks.
    checksum_seed: Option<u32>,
}

impl OrphanFile {
    /// Takes a free slot, if there is one.
    fn take(&mut self) -> Option<Slot> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        while let Some(block) = self.blocks.get(self.unused.block) {
            let slot = self.unused;
            self.unused = match slot.entry + 1 == self.entries {
                true => Slot { block: slot.block + 1, entry: 0 },
                false => Slot { entry: slot.entry + 1, ..slot },
            };
            // Orphans that were there at opening and could not be cleaned up keep their slots.
            if format::entry(&block.bytes(), slot.entry).is_none() {
                return Some(slot);
            }
        }
        None
    }

    fn give_back(&mut self, slot: Slot) {
        if slot < self.unused {
            self.free.push(slot);
        }
    }

    fn set(&self, handle: &mut Handle, slot: Slot, number: Option<InodeNumber>) {
        let block = &self.blocks[slot.block];
        let (at, end) = (4 * slot.entry as u32, handle.engine().block_size().bytes() as u32);
        // The slot, and the checksum at the end of the tail.
        let ranges = [BlockRange::new(at, at + 4), BlockRange::new(end - 4, end)];
        handle.change_ranges(block, &ranges, |bytes| {
            format::set_entry(bytes, slot.entry, number);
            format::store_checksum(bytes, block.number(), self.checksum_seed);
        });
    }
}

impl Volume {
    /// Adds an orphan; false when the file is full. Credits: one block of the file.
    pub(super) fn add_to_orphan_file(&self, handle: &mut Handle, number: InodeNumber) -> bool {
        let mut orphans = self.orphans.borrow_mut();
        let Some(file) = &mut orphans.file else { return false };
        let Some(slot) = file.take() else { return false };
        file.set(handle, slot, Some(number));
        orphans.in_file.insert(number, slot);
        true
    }

    /// Removes an orphan; false when it is not in the file. Credits: one block of the file.
    pub(super) fn remove_from_orphan_file(&self, handle: &mut Handle, number: InodeNumber) -> bool {
        let mut orphans = self.orphans.borrow_mut();
        let Some(slot) = orphans.in_file.remove(&number) else { return false };
        let file = orphans.file.as_mut().expect("it has slots");
        file.set(handle, slot, None);
        file.give_back(slot);
        true
    }

    /// Reads the orphan file and the orphans in it; `None` without the feature.
    pub(super) async fn read_orphan_file(
        &self,
    ) -> Result<Option<(OrphanFile, Vec<(InodeNumber, Slot)>)>> {
        if !self.has(::format::ext4::feature::ORPHAN_FILE) {
            return Ok(None);
        }
        let number = InodeNumber(self.superblock.borrow().orphan_file_inode);
        let inode = self.load_inode(number).await?;
        let (size, generation) = (inode.fields.borrow().size, inode.fields.borrow().generation);
        let count = size >> self.block_size().shift();
        if count == 0 || count > BLOCKS_MAX {
            let why = format!("the orphan file has {size} bytes");
            return Err(self.note_damage(Error::corrupt_inode(number, why)));
        }
        let checksum_seed = self.inode_checksum_seed(number, generation);
        let entries = format::entries(self.block_size().bytes());
        let (mut blocks, mut found) = (Vec::new(), Vec::new());
        for index in 0..count as u32 {
            let Some(at) = self.map(&inode, FileBlock(index), 1).await?.home() else {
                return Err(
                    self.note_damage(Error::corrupt_inode(number, "the orphan file has a hole"))
                );
            };
            let block = self.engine.metadata(at).await?;
            let bytes = block.bytes();
            format::check(&bytes, at, checksum_seed).map_err(|why| {
                self.note_damage(Error::corrupt_block("the orphan file", at, why.to_string()))
            })?;
            for entry in 0..entries {
                if let Some(number) = format::entry(&bytes, entry) {
                    found.push((number, Slot { block: index as usize, entry }));
                }
            }
            blocks.push(block);
        }
        let unused = Slot { block: 0, entry: 0 };
        let file = OrphanFile { blocks, free: Vec::new(), unused, entries, checksum_seed };
        Ok(Some((file, found)))
    }
}
