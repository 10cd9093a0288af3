//! The orphan list: superblock -> inode -> inode, each naming the next in its deletion time.

use crate::{Error, Inode, Result, Volume};
use engine::{Block, Handle};
use format::ext4::inode::patch_deletion_time;
use std::collections::BTreeMap;
use units::InodeNumber;

/// The neighbours of an inode in the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Neighbours {
    /// Nearer to the superblock.
    before: Option<InodeNumber>,
    behind: Option<InodeNumber>,
}

#[derive(Default)]
pub(super) struct OrphanList {
    first: Option<InodeNumber>,
    links: BTreeMap<InodeNumber, Neighbours>,
}

impl OrphanList {
    pub fn contains(&self, number: InodeNumber) -> bool {
        self.links.contains_key(&number)
    }
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
    fn push_front(&mut self, number: InodeNumber) {
        let behind = self.first.replace(number);
        if let Some(behind) = behind {
            self.links.get_mut(&behind).expect("in the list").before = Some(number);
        }
        self.links.insert(number, Neighbours { before: None, behind });
    }
    fn remove(&mut self, number: InodeNumber) {
        let Neighbours { before, behind } = self.links.remove(&number).expect("in the list");
        match before {
            Some(before) => self.links.get_mut(&before).expect("in the list").behind = behind,
            None => self.first = behind,
        }
        if let Some(behind) = behind {
            self.links.get_mut(&behind).expect("in the list").before = before;
        }
    }
    /// Builds the list as read from the disk, the superblock's end first.
    pub fn from_disk(numbers: &[InodeNumber]) -> OrphanList {
        let mut list = OrphanList::default();
        numbers.iter().rev().for_each(|number| list.push_front(*number));
        list
    }
}

impl Volume {
    /// Adds an orphan, which the caller stores. Credits: superblock + the inode's table block.
    pub(super) fn add_to_orphan_list(&self, handle: &mut Handle, inode: &Inode) {
        let next = self.orphans.borrow().list.first;
        inode.fields.borrow_mut().deletion_time = next.map_or(0, InodeNumber::get);
        self.set_first_orphan(handle, Some(inode.number));
        self.orphans.borrow_mut().list.push_front(inode.number);
    }

    /// Removes an orphan, which the caller stores. Credits: table blocks of the inode and of the
    /// one before it, or the superblock.
    pub(super) async fn remove_from_orphan_list(
        &self,
        handle: &mut Handle,
        inode: &Inode,
    ) -> Result<()> {
        let number = inode.number;
        let neighbours = |volume: &Volume| volume.orphans.borrow().list.links.get(&number).copied();
        loop {
            let Some(found) = neighbours(self) else { return Ok(()) };
            let before = match found.before {
                Some(before) => {
                    Some((before, self.engine.metadata(self.inode_place(before).0).await?))
                }
                None => None,
            };
            // The inode before may have left the list while its block was read.
            if neighbours(self) != Some(found) {
                continue;
            }
            match before {
                Some((before, block)) => {
                    self.set_next_orphan(handle, &block, before, found.behind);
                    if let Some(cached) = self.inodes.borrow().get(before) {
                        cached.fields.borrow_mut().deletion_time =
                            found.behind.map_or(0, InodeNumber::get);
                    }
                }
                None => self.set_first_orphan(handle, found.behind),
            }
            inode.fields.borrow_mut().deletion_time = 0;
            self.orphans.borrow_mut().list.remove(number);
            return Ok(());
        }
    }

    /// Reads the list from the disk. Corrupt when it is a cycle or leaves the volume.
    pub(super) async fn read_orphan_list(&self) -> Result<Vec<InodeNumber>> {
        let mut numbers = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        let mut next = self.superblock.borrow().last_orphan;
        while next != 0 {
            let number = InodeNumber(next);
            let why = "the orphan list is damaged here";
            if next < self.superblock.borrow().first_inode || !seen.insert(number) {
                return Err(self.note_damage(Error::corrupt_inode(number, why)));
            }
            let inode = self.load_inode(number).await.map_err(|error| match error {
                Error::Refused(_) => self.note_damage(Error::corrupt_inode(number, why)),
                error => error,
            })?;
            next = inode.fields.borrow().deletion_time;
            numbers.push(number);
        }
        Ok(numbers)
    }

    pub(super) fn set_first_orphan(&self, handle: &mut Handle, first: Option<InodeNumber>) {
        self.superblock.borrow_mut().last_orphan = first.map_or(0, InodeNumber::get);
        self.change_superblock(handle);
    }

    fn set_next_orphan(
        &self,
        handle: &mut Handle,
        table: &Block,
        number: InodeNumber,
        next: Option<InodeNumber>,
    ) {
        let (_, range) = self.inode_place(number);
        let next = next.map_or(0, InodeNumber::get);
        handle.change_within(table, range, |bytes| {
            patch_deletion_time(
                &mut bytes[range.as_usize()],
                next,
                number,
                self.layout.checksum_seed,
            );
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_keeps_its_order_after_any_removal() {
        let numbers: Vec<_> = (12..16).map(InodeNumber).collect();
        for leaver in &numbers {
            let mut list = OrphanList::from_disk(&numbers);
            list.remove(*leaver);
            let mut left = Vec::new();
            let mut next = list.first;
            while let Some(number) = next {
                left.push(number);
                next = list.links[&number].behind;
            }
            let expected: Vec<_> =
                numbers.iter().copied().filter(|number| number != leaver).collect();
            assert_eq!(left, expected);
        }
    }
}
