//! Block groups: descriptors, bitmaps, and the blocks of the file system itself.
//!
//! Descriptor blocks stay pinned in the cache, so that a bitmap, its descriptor (with both
//! checksums) and the counts in memory change without an await between them.

mod bitmaps;
mod contradiction;
mod zone;

pub(crate) use bitmaps::Bits;
pub(crate) use zone::SystemZone;

use crate::{Error, Result, Volume};
use engine::{Block, Engine, Handle};
use format::ext4::{GroupDescriptor, VolumeSuperblock};
use runtime::WalkPace;
use std::cell::RefCell;
use units::{BlockRange, GroupNumber};

/// Bytes of one read of descriptors at most.
const RUN_BYTES: u32 = 1 << 20;
/// Groups that are visited before other tasks run.
const GROUPS_AT_ONCE: usize = 1024;

/// A group in memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupState {
    pub descriptor: GroupDescriptor,
    /// Blocks that are free on the disk but not available: preallocated for some file, or freed by
    /// a transaction that is not committed yet.
    pub withheld: u32,
    /// A bitmap is damaged: nothing is allocated here any more.
    pub damaged: bool,
}

pub(crate) struct Groups {
    pub states: RefCell<Vec<GroupState>>,
    descriptor_blocks: Vec<Block>,
}

impl Groups {
    /// Reads all descriptors. `Trust::Places` checks only the places of bitmaps and tables: before
    /// recovery, counts and checksums may be torn.
    pub async fn load(
        engine: &Engine,
        superblock: &VolumeSuperblock,
        trust: Trust,
    ) -> Result<Groups> {
        let descriptor_blocks = read_descriptor_blocks(engine, superblock).await?;
        let mut states = Vec::with_capacity(superblock.groups() as usize);
        let mut pace = WalkPace::new(GROUPS_AT_ONCE);
        for block in &descriptor_blocks {
            pace.visited(superblock.block_size.bytes() / usize::from(superblock.descriptor_size()))
                .await;
            let bytes = block.bytes();
            let size = usize::from(superblock.descriptor_size());
            for raw in bytes.chunks_exact(size).take(superblock.groups() as usize - states.len()) {
                let group = GroupNumber(states.len() as u32);
                let descriptor = GroupDescriptor::parse(raw);
                let checked = match trust {
                    Trust::Places => descriptor.check_places(group, superblock),
                    Trust::All => descriptor.check(raw, group, superblock),
                };
                checked.map_err(|why| Error::Corrupt {
                    what: format!("the descriptor of {group}"),
                    why: why.to_string(),
                })?;
                states.push(GroupState { descriptor, ..GroupState::default() });
            }
        }
        Ok(Groups { states: RefCell::new(states), descriptor_blocks })
    }

    pub fn count(&self) -> u32 {
        self.states.borrow().len() as u32
    }
    pub fn state(&self, group: GroupNumber) -> GroupState {
        self.states.borrow()[group.get() as usize]
    }
    pub fn descriptor(&self, group: GroupNumber) -> GroupDescriptor {
        self.state(group).descriptor
    }
    pub fn mark_damaged(&self, group: GroupNumber) {
        self.states.borrow_mut()[group.get() as usize].damaged = true;
    }
    pub fn first_damaged(&self) -> Option<GroupNumber> {
        let found = self.states.borrow().iter().position(|state| state.damaged);
        found.map(|index| GroupNumber(index as u32))
    }
    /// Withholds `count` blocks of a group, or releases them.
    pub fn withhold(&self, group: GroupNumber, count: u32) {
        self.states.borrow_mut()[group.get() as usize].withheld += count;
    }
    pub fn give_back(&self, group: GroupNumber, count: u32) {
        self.states.borrow_mut()[group.get() as usize].withheld -= count;
    }
}

/// Reads all blocks of the descriptor table, adjacent ones with one request.
async fn read_descriptor_blocks(
    engine: &Engine,
    superblock: &VolumeSuperblock,
) -> Result<Vec<Block>> {
    let count = superblock.descriptor_blocks();
    let most = RUN_BYTES >> superblock.block_size.shift();
    let mut blocks = Vec::new();
    let mut index = 0;
    while index < count {
        let at = superblock.descriptor_block(index);
        let is_next =
            |step: &u32| superblock.descriptor_block(index + step) == at.plus(u64::from(*step));
        let together = 1 + (1..most.min(count - index)).take_while(is_next).count() as u32;
        if at.get() + u64::from(together) > superblock.blocks {
            return Err(Error::corrupt_block(
                "the group descriptor table",
                at,
                "beyond the volume's end",
            ));
        }
        blocks.extend(engine.metadata_run(at, together).await?);
        index += together;
    }
    Ok(blocks)
}

/// Trust in descriptors when they are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trust {
    Places,
    All,
}

impl Volume {
    /// Changes a descriptor in memory and in its block. Credits: 1.
    pub(crate) fn change_descriptor(
        &self,
        handle: &mut Handle,
        group: GroupNumber,
        change: impl FnOnce(&mut GroupDescriptor),
    ) {
        let mut states = self.groups.states.borrow_mut();
        let descriptor = &mut states[group.get() as usize].descriptor;
        change(descriptor);
        let superblock = self.superblock.borrow();
        let size = u32::from(superblock.descriptor_size());
        let start = group.get() % superblock.descriptors_per_block() * size;
        let block = &self.groups.descriptor_blocks
            [(group.get() / superblock.descriptors_per_block()) as usize];
        let range = BlockRange::new(start, start + size);
        handle.change_within(block, range, |bytes| {
            descriptor.serialize(&mut bytes[range.as_usize()], group, &superblock);
        });
    }
}
