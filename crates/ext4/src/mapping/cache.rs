use super::Mapping;
use std::cell::Cell;
use units::{FileBlock, HomeBlock};

/// The last mappings looked up, so that a hot append or overwrite walks no tree. Part of every inode; whoever
/// changes the mapping calls [`MappingCache::clear`] first.
#[derive(Default)]
pub struct MappingCache {
    /// The latest first. Two, for a reader and a writer at different places.
    entries: Cell<[Option<Mapping>; 2]>,
    /// First byte behind the last write, to tell sequential writes from others.
    pub(crate) write_end: Cell<u64>,
    /// Where the file's first block is wanted, if not in its inode's group.
    pub(crate) first_goal: Cell<Option<HomeBlock>>,
}

impl MappingCache {
    pub(super) fn find(&self, at: FileBlock, max: u32) -> Option<Mapping> {
        self.entries.get().iter().flatten().find_map(|mapping| mapping.part(at, max))
    }
    pub(super) fn remember(&self, mapping: Mapping) {
        let [latest, _] = self.entries.get();
        self.entries.set([Some(mapping), latest]);
    }
    /// The runs of blocks that are known to be the file's.
    pub(crate) fn homes(&self) -> impl Iterator<Item = (HomeBlock, u64)> {
        let known = self.entries.get().into_iter().flatten();
        known.filter_map(|mapping| Some((mapping.home()?, u64::from(mapping.count))))
    }
    pub(crate) fn clear(&self) {
        self.entries.set([None; 2]);
    }
}
