//! Bitmaps that contradict memory. One whose checksum and counts agree may still show blocks as
//! free that are in use, as the caches show. Then the volume is marked as damaged, and nothing is
//! allocated in that group until e2fsck has run.
//!
//! Checked at three moments: before something free is taken, when a bitmap is read, and when an
//! owner becomes known.

use crate::{Error, Result, Volume};
use format::ext4::inode::is_in_use;
use format::ext4::{bitmap, group_flags};
use units::Refusal;
use units::{GroupNumber, HomeBlock, InodeNumber};

impl Volume {
    /// Checks, right before free blocks are taken, that none is in memory, as only blocks in use
    /// are.
    pub(crate) fn check_free_blocks(
        &self,
        group: GroupNumber,
        start: HomeBlock,
        count: u32,
    ) -> Result<()> {
        match self.engine.first_in_memory(start, count.into()) {
            _ if units::fault!("free-block-believed") => Ok(()),
            None => Ok(()),
            Some(at) => Err(self.contradiction(group, format!("{at} is marked free, but in use"))),
        }
    }

    /// Checks, right before a free inode is taken, that it is not in memory, and that `slot`, its
    /// place in the table, holds none in use.
    pub(crate) fn check_free_inode(
        &self,
        group: GroupNumber,
        number: InodeNumber,
        slot: Option<&[u8]>,
    ) -> Result<()> {
        let known = self.inodes.borrow().knows(number) || self.is_orphan(number);
        if (known || slot.is_some_and(is_in_use)) && !units::fault!("free-inode-believed") {
            return Err(self.contradiction(group, format!("{number} is marked free, but in use")));
        }
        Ok(())
    }

    /// Notes that a file owns these blocks. If bitmaps in memory show some of them as free, nothing
    /// is allocated there any more; the file itself is unaffected.
    pub(crate) fn note_owned_blocks(&self, start: HomeBlock, count: u64) {
        let (mut at, end) = (start, start.plus(count));
        while at < end {
            let (group, first) = self.superblock.borrow().group_of_block(at);
            let here = u64::from(self.superblock.borrow().blocks_in_group(group) - first);
            let here = here.min(end.get() - at.get()) as u32;
            let state = self.groups.state(group);
            let is_free = |bits: &[u8]| !bitmap::all_set(bits, first..first + here);
            if !state.damaged
                && self.contradicts(
                    group,
                    group_flags::BLOCK_UNINIT,
                    state.descriptor.block_bitmap,
                    is_free,
                )
            {
                self.contradiction(
                    group,
                    format!("some of {here} blocks from {at} on are marked free, but in use"),
                );
            }
            at = at.plus(here.into());
        }
    }

    /// Notes that links refer to an inode, with the same consequence for its bitmap.
    pub(crate) fn note_owned_inode(&self, number: InodeNumber) {
        let (group, index) = self.superblock.borrow().group_of_inode(number);
        let state = self.groups.state(group);
        let is_free = |bits: &[u8]| !bitmap::is_set(bits, index);
        if !state.damaged
            && self.contradicts(
                group,
                group_flags::INODE_UNINIT,
                state.descriptor.inode_bitmap,
                is_free,
            )
        {
            self.contradiction(group, format!("{number} is marked free, but in use"));
        }
    }

    /// Whether a block bitmap just read is wrong: it shows blocks as free that files in memory own.
    pub(super) fn free_but_owned(&self, group: GroupNumber, bits: &[u8]) -> bool {
        let (start, count) = {
            let superblock = self.superblock.borrow();
            (superblock.group_start(group).get(), u64::from(superblock.blocks_in_group(group)))
        };
        let is_free = |home: HomeBlock, length: u64| {
            let from = home.get().max(start);
            let to = home.get().saturating_add(length).min(start + count);
            from < to && !bitmap::all_set(bits, (from - start) as u32..(to - start) as u32)
        };
        self.inodes
            .borrow()
            .any(|inode| inode.mapping_cache.homes().any(|(home, length)| is_free(home, length)))
    }

    /// Whether an inode bitmap just read is wrong: it shows inodes as free that are in memory.
    pub(super) fn free_but_known(&self, group: GroupNumber, bits: &[u8]) -> bool {
        let per_group = self.superblock.borrow().inodes_per_group;
        let first = group.get() * per_group + 1;
        let numbers = InodeNumber(first)..InodeNumber(first.saturating_add(per_group));
        self.inodes
            .borrow()
            .numbers(numbers)
            .any(|number| !bitmap::is_set(bits, number.get() - first))
    }

    /// The error of a search that found nothing: not that the volume is full where damage may be
    /// why.
    pub(crate) fn no_space(&self) -> Error {
        self.release_committed();
        let left_alone = self.groups.first_damaged();
        match left_alone.filter(|_| self.withheld.borrow().last_freed().is_none()) {
            None => Error::Refused(Refusal::NoSpace),
            Some(group) => {
                let why =
                    "nothing is allocated there any more, and no other group has space".into();
                Error::Corrupt { what: format!("a bitmap of {group}"), why }
            }
        }
    }

    fn contradicts(
        &self,
        group: GroupNumber,
        uninitialised: u16,
        at: HomeBlock,
        is_free: impl FnOnce(&[u8]) -> bool,
    ) -> bool {
        // The initial bitmap of such a group knows of no owner.
        if self.has_group_checksums() && self.groups.descriptor(group).is(uninitialised) {
            return true;
        }
        // A block that is not in memory is compared when it is read.
        self.engine
            .metadata_in_memory(at)
            .is_some_and(|block| block.is_verified() && is_free(&block.bytes()))
    }

    fn contradiction(&self, group: GroupNumber, why: String) -> Error {
        self.groups.mark_damaged(group);
        self.note_damage(Error::Corrupt { what: format!("a bitmap of {group}"), why })
    }
}
