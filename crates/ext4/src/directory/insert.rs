//! Space for a new name: in a block that has some, or made by growing the directory.
//!
//! The directory grows in steps, each of which leaves it consistent: one block is allocated, then
//! filled and linked without any operation that can fail. ENOSPC between steps harms nothing.

use super::path::{IndexLevel, IndexPath};
use super::read::yield_behind;
use super::{Directory, Kind, SeenBlock};
use crate::{Caller, Result};
use engine::{Block, Credits, Handle};
use format::ext4::directory::{EntrySlot, RawEntry};
use format::ext4::hash::NameHasher;
use format::ext4::htree;
use format::ext4::inode::flags;
use units::Refusal;
use units::{FileBlock, InodeNumber};

/// Position for a new name. Valid until its block is changed otherwise.
#[derive(Clone)]
pub(crate) struct NameSlot {
    pub(super) seen: SeenBlock,
    pub(super) slot: EntrySlot,
}

/// A name to be added, with the position for it that the search for the name has come across.
pub(crate) struct NewName<'n> {
    pub name: &'n [u8],
    pub(super) space: Option<NameSlot>,
}

impl<'n> From<&'n [u8]> for NewName<'n> {
    fn from(name: &'n [u8]) -> NewName<'n> {
        NewName { name, space: None }
    }
}

/// The most steps of growth that one name needs: an index or a further level or a node, then a
/// leaf.
const STEPS_MAX: u32 = 2;

impl Directory<'_> {
    /// Finds or makes space for a name that does not exist yet. Credits:
    /// [`Directory::insert_credits`].
    pub async fn make_slot(
        &self,
        handle: &mut Handle,
        caller: &Caller<'_>,
        name: &NewName<'_>,
    ) -> Result<NameSlot> {
        if let Some(slot) = name.space.as_ref().filter(|slot| slot.seen.is_unchanged()) {
            if !self.is_indexed() {
                self.forget_index();
            }
            return Ok(slot.clone());
        }
        let (name, steps) = (name.name, self.steps_max());
        for _ in 0..=steps {
            let slot = match self.is_indexed() {
                _ if self.is_inline() => self.leave_inline(handle, caller).await.map(|()| None)?,
                true => self.indexed_slot(handle, caller, name).await?,
                false => self.linear_slot(handle, caller, name).await?,
            };
            if let Some(slot) = slot {
                return Ok(slot);
            }
        }
        Err(self.corrupt("splitting its blocks makes no space"))
    }

    /// [`Directory::make_slot`] and [`Directory::put`]: root + nodes + leaf + per step a new block,
    /// its mapping and the inode.
    pub fn insert_credits(&self) -> Credits {
        Credits(1 + u32::from(self.levels_max()) + 1) + self.append_credits() * self.steps_max()
    }

    /// Steps of growth: an inline directory gets its first block besides; with large_dir there is
    /// one more level of nodes to split.
    fn steps_max(&self) -> u32 {
        STEPS_MAX + u32::from(self.is_inline()) + u32::from(self.is_large())
    }

    /// Writes the name into the position found. The caller stores the directory's inode.
    pub fn put(
        &self,
        handle: &mut Handle,
        position: NameSlot,
        inode: InodeNumber,
        file_type: u8,
        name: &[u8],
    ) -> Result<()> {
        let ranges = self.format.put_ranges(position.slot, name.len());
        self.inode.listing.name_came();
        self.change(handle, &position.seen.block, Kind::Leaf, &ranges, |bytes| {
            self.format.put(bytes, position.slot, inode, file_type, name)
        })
    }

    fn slot_in(&self, block: &Block, name: &[u8]) -> Result<Option<NameSlot>> {
        let slot = self.format.slot(&block.bytes(), name.len());
        let slot = slot.map_err(|error| self.damaged(block, error))?;
        Ok(slot.map(|slot| NameSlot { seen: SeenBlock::of(block), slot }))
    }

    /// Looks for a position in a linear directory; `None` after a step that may have made space.
    async fn linear_slot(
        &self,
        handle: &mut Handle,
        caller: &Caller<'_>,
        name: &[u8],
    ) -> Result<Option<NameSlot>> {
        let blocks = self.blocks()?;
        for at in 0..blocks {
            let block = self.block(FileBlock(at), Kind::Leaf).await?;
            if let Some(slot) = self.slot_in(&block, name)? {
                self.forget_index();
                return Ok(Some(slot));
            }
            yield_behind(at).await;
        }
        if let (1, Some(hasher)) = (blocks, self.default_hasher()) {
            self.make_index(handle, caller, hasher).await?;
            return Ok(None);
        }
        self.forget_index();
        let (_, block) = self.append(handle, caller).await?;
        self.rewrite(handle, &block, Kind::Leaf, self.whole(), |bytes| self.format.clear(bytes))?;
        self.slot_in(&block, name)
    }

    /// Makes an index stale: a volume without dir_index may hold directories that were indexed
    /// before, and a name that is put where there is space is not where its hash leads.
    fn forget_index(&self) {
        self.inode.fields.borrow_mut().flags &= !flags::INDEX;
    }

    /// Moves the names of a directory's only block to a new leaf, and makes the block the root of
    /// an index.
    async fn make_index(
        &self,
        handle: &mut Handle,
        caller: &Caller<'_>,
        hasher: NameHasher,
    ) -> Result<()> {
        let first = self.block(FileBlock(0), Kind::Leaf).await?;
        let old = first.bytes();
        let entries = self.names_of(&first, &old)?;
        let [dot, dotdot] = self.format.dots(&old).map_err(|error| self.damaged(&first, error))?;
        let Some(parent) = dotdot.inode.filter(|_| dot.record_length == 12) else {
            return Err(self.corrupt("the entries . and .. are not where they belong"));
        };
        let (leaf_at, leaf) = self.append(handle, caller).await?;
        self.rewrite(handle, &leaf, Kind::Leaf, self.whole(), |bytes| {
            self.format.fill(bytes, entries.iter().skip(2).map(stored))
        })?;
        let (file_type, version) = (dotdot.file_type, hasher.version);
        self.rewrite(handle, &first, Kind::Root, self.whole(), |bytes| {
            htree::make_root(&self.format, bytes, parent, file_type, version, leaf_at);
        })?;
        self.inode.fields.borrow_mut().flags |= flags::INDEX;
        self.volume.store(handle, self.inode).await
    }

    /// Looks for a position in an indexed directory; `None` after a step that made space in a leaf
    /// or above.
    async fn indexed_slot(
        &self,
        handle: &mut Handle,
        caller: &Caller<'_>,
        name: &[u8],
    ) -> Result<Option<NameSlot>> {
        let mut path = self.probe(name).await?;
        let (_, leaf) = self.leaf(&path).await?;
        if let Some(slot) = self.slot_in(&leaf, name)? {
            return Ok(Some(slot));
        }
        let lowest = path.levels.len() - 1;
        match path.levels.iter().rposition(|level| !level.table.is_full()) {
            Some(not_full) if not_full == lowest => {
                self.split_leaf(handle, caller, path, &leaf).await?
            }
            Some(not_full) => {
                // The highest of the full nodes is split first.
                path.levels.truncate(not_full + 2);
                self.split_node(handle, caller, path).await?;
            }
            None if lowest < usize::from(self.levels_max()) => {
                self.grow_root(handle, caller, path).await?
            }
            None => return Err(Refusal::NoSpace.into()),
        }
        Ok(None)
    }

    /// Moves all entries of the root to a new node below it.
    async fn grow_root(
        &self,
        handle: &mut Handle,
        caller: &Caller<'_>,
        mut path: IndexPath,
    ) -> Result<()> {
        let (node_at, node) = self.append(handle, caller).await?;
        let IndexLevel { block: root, table, .. } = &mut path.levels[0];
        let old = root.bytes();
        self.rewrite(handle, &node, Kind::Node, self.whole(), |bytes| {
            table.copy_to_node(&old, 0, &self.format, bytes);
        })?;
        self.rewrite(handle, root, Kind::Root, self.whole(), |bytes| {
            table.grow_root(bytes, node_at)
        })
    }

    /// Moves the upper half of a node's entries to a new node beside it.
    async fn split_node(
        &self,
        handle: &mut Handle,
        caller: &Caller<'_>,
        mut path: IndexPath,
    ) -> Result<()> {
        let (new_at, new) = self.append(handle, caller).await?;
        let IndexLevel { block: node, mut table, .. } = path.levels.pop().expect("a node");
        let old = node.bytes();
        let half = table.count() / 2;
        let lowest = table.hash(&old, half);
        self.rewrite(handle, &new, Kind::Node, self.whole(), |bytes| {
            table.copy_to_node(&old, half, &self.format, bytes);
        })?;
        self.rewrite(handle, &node, Kind::Node, table.range(), |bytes| table.shorten(bytes, half))?;
        self.tie_in(handle, path, lowest, new_at)
    }

    /// Moves the names with the higher hashes to a new leaf.
    async fn split_leaf(
        &self,
        handle: &mut Handle,
        caller: &Caller<'_>,
        path: IndexPath,
        leaf: &Block,
    ) -> Result<()> {
        let old = leaf.bytes();
        let mut entries: Vec<(u32, RawEntry<'_>)> = self
            .names_of(leaf, &old)?
            .into_iter()
            .map(|entry| (path.hasher.hash(entry.name).major, entry))
            .collect();
        entries.sort_by_key(|(hash, _)| *hash);
        let split = half_by_size(&entries, old.len());
        let (Some(upper), Some(lower)) =
            (entries.get(split), split.checked_sub(1).map(|last| entries[last]))
        else {
            // Two names of at most 264 bytes leave space for a third in a block of 1024.
            return Err(self.corrupt("a leaf with fewer than two names has no free entry"));
        };
        // Bit 0 records that the hash continues from the leaf before.
        let lowest = upper.0 | u32::from(upper.0 == lower.0);
        let (new_at, new) = self.append(handle, caller).await?;
        for (block, part) in [(&new, &entries[split..]), (leaf, &entries[..split])] {
            self.rewrite(handle, block, Kind::Leaf, self.whole(), |bytes| {
                self.format.fill(bytes, part.iter().map(|(_, entry)| stored(entry)))
            })?;
        }
        self.tie_in(handle, path, lowest, new_at)
    }

    /// Enters a new child in the lowest table of the path, behind the entry that the path follows.
    fn tie_in(
        &self,
        handle: &mut Handle,
        mut path: IndexPath,
        lowest: u32,
        child: FileBlock,
    ) -> Result<()> {
        let IndexLevel { block, kind, mut table, index } =
            path.levels.pop().expect("a path has a root");
        self.rewrite(handle, &block, kind, table.range(), |bytes| {
            table.insert(bytes, index, lowest, child)
        })
    }

    /// The entries in use, `.` and `..` included where the block has them.
    fn names_of<'b>(&self, block: &Block, bytes: &'b [u8]) -> Result<Vec<RawEntry<'b>>> {
        let mut names = Vec::new();
        for entry in self.format.entries(bytes) {
            let entry = entry.map_err(|error| self.damaged(block, error))?;
            if entry.inode.is_some() {
                names.push(entry);
            }
        }
        Ok(names)
    }
}

fn stored<'a>(entry: &RawEntry<'a>) -> (InodeNumber, u8, &'a [u8]) {
    (entry.inode.expect("an entry in use"), entry.file_type, entry.name)
}

/// The first entry of the upper half, so that neither half fills much more than half a block.
fn half_by_size(entries: &[(u32, RawEntry<'_>)], block_size: usize) -> usize {
    let mut size = 0;
    for (index, (_, entry)) in entries.iter().enumerate().rev() {
        if size + entry.used() / 2 > block_size / 2 {
            return index + 1;
        }
        size += entry.used();
    }
    entries.len() / 2
}
