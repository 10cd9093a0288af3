//! The path through an index from its root to a leaf.

use super::{Directory, Kind};
use crate::Result;
use engine::Block;
use format::ext4::hash::NameHasher;
use format::ext4::htree::IndexTable;
use units::FileBlock;

/// An index block, and the entry in its table that the path follows.
pub(super) struct IndexLevel {
    pub block: Block,
    pub kind: Kind,
    pub table: IndexTable,
    pub index: usize,
}

impl IndexLevel {
    fn child(&self) -> FileBlock {
        self.table.block(&self.block.bytes(), self.index)
    }
}

/// The path to a leaf; never empty.
pub(super) struct IndexPath {
    pub hasher: NameHasher,
    /// The major hash of the search.
    pub hash: u32,
    /// Root first.
    pub levels: Vec<IndexLevel>,
    /// Leaves that the path has led to.
    pub leaves: u32,
}

impl Directory<'_> {
    /// The path to the first leaf that may hold the name.
    pub(super) async fn probe(&self, name: &[u8]) -> Result<IndexPath> {
        self.probe_by(|hasher| hasher.hash(name).major).await
    }

    /// The path to the first leaf that may hold names of a hash.
    pub(super) async fn probe_by(
        &self,
        hash: impl FnOnce(&NameHasher) -> u32,
    ) -> Result<IndexPath> {
        let root = self.block(FileBlock(0), Kind::Root).await?;
        let parsed = IndexTable::of_root(&self.format, &root.bytes());
        let (table, information) = parsed.map_err(|error| self.damaged(&root, error))?;
        if information.levels > self.levels_max() {
            return Err(self.corrupt("its index has too many levels"));
        }
        let hasher = self.hasher(information.hash_version);
        let hash = hash(&hasher);
        let index = table.find(&root.bytes(), hash);
        let root = IndexLevel { block: root, kind: Kind::Root, table, index };
        let mut levels = Vec::with_capacity(1 + usize::from(information.levels));
        levels.push(root);
        for level in 0..usize::from(information.levels) {
            let next =
                self.node(levels[level].child(), |table, bytes| table.find(bytes, hash)).await?;
            levels.push(next);
        }
        Ok(IndexPath { hasher, hash, levels, leaves: 1 })
    }

    async fn node(
        &self,
        at: FileBlock,
        index: impl FnOnce(&IndexTable, &[u8]) -> usize,
    ) -> Result<IndexLevel> {
        let block = self.block(at, Kind::Node).await?;
        let table = self.table(&block, Kind::Node)?;
        let index = index(&table, &block.bytes());
        Ok(IndexLevel { block, kind: Kind::Node, table, index })
    }

    pub(super) async fn leaf(&self, path: &IndexPath) -> Result<(FileBlock, Block)> {
        let at = path.levels.last().expect("a path has a root").child();
        if at == FileBlock(0) {
            return Err(self.corrupt("its index leads from the root to the root"));
        }
        Ok((at, self.block(at, Kind::Leaf).await?))
    }

    /// Advances to the next leaf. Returns its lowest hash (bit 0: names of that hash are also in
    /// the leaf before), `None` behind the last one. Each entry of each table is passed once, and
    /// there are no more leaves than the directory has blocks behind the root: entries that lead to
    /// one block again would make a small directory a walk of millions of steps.
    pub(super) async fn advance(&self, path: &mut IndexPath) -> Result<Option<u32>> {
        let more = |level: &IndexLevel| level.index + 1 < level.table.count();
        let Some(turn) = path.levels.iter().rposition(more) else { return Ok(None) };
        path.leaves += 1;
        if path.leaves >= self.blocks()? && !units::fault!("leaves-uncounted") {
            return Err(self.corrupt("its index leads to one block more than once"));
        }
        path.levels[turn].index += 1;
        let lowest =
            path.levels[turn].table.hash(&path.levels[turn].block.bytes(), path.levels[turn].index);
        for below in turn + 1..path.levels.len() {
            path.levels[below] = self.node(path.levels[below - 1].child(), |_, _| 0).await?;
        }
        Ok(Some(lowest))
    }
}
