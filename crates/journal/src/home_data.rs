//! Data that must be home before the running transaction commits.

use units::{BlockMap, HomeBlock, Owner};

/// Indexed by block, so that freeing one does not visit every file: only `of` and `sorted` look at
/// more than one entry.
#[derive(Debug, Default)]
pub(crate) struct HomeData {
    owners: BlockMap<Owner>,
    /// Number of entries that calls have looked at.
    #[cfg(test)]
    visits: std::cell::Cell<usize>,
}

impl HomeData {
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }
    pub fn insert(&mut self, block: HomeBlock, owner: Owner) {
        self.visit(1);
        self.owners.insert(block, owner);
    }
    pub fn owner_of(&self, block: HomeBlock) -> Option<Owner> {
        self.visit(1);
        self.owners.get(&block).copied()
    }
    pub fn remove(&mut self, block: HomeBlock) {
        self.visit(1);
        self.owners.remove(&block);
    }
    /// Returns the blocks of `owner`, sorted; `None` if all owners together have more than `most`
    /// to look through.
    pub fn of(&self, owner: Owner, most: usize) -> Option<Vec<HomeBlock>> {
        if self.owners.len() > most {
            return None;
        }
        self.visit(self.owners.len());
        let mut blocks: Vec<_> =
            self.owners.iter().filter(|(_, of)| **of == owner).map(|(block, _)| *block).collect();
        blocks.sort_unstable();
        Some(blocks)
    }
    pub fn sorted(self) -> Vec<HomeBlock> {
        self.visit(self.owners.len());
        let mut blocks: Vec<_> = self.owners.into_keys().collect();
        blocks.sort_unstable();
        blocks
    }

    #[cfg(not(test))]
    fn visit(&self, _entries: usize) {}
    #[cfg(test)]
    fn visit(&self, entries: usize) {
        self.visits.set(self.visits.get() + entries);
    }
    #[cfg(test)]
    pub fn visits(&self) -> usize {
        self.visits.get()
    }
}
