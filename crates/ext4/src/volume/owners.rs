//! Files that own given blocks: for a recovery that had to leave some out.

use crate::inode_table::ROOT;
use crate::{Inode, Result, Volume};
use std::collections::BTreeSet;
use std::rc::Rc;
use units::{FileBlock, HomeBlock, InodeNumber};

/// Entries of a directory that are read together.
const LISTED: usize = 256;

/// A file that owns a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockOwner {
    pub block: HomeBlock,
    pub inode: InodeNumber,
    /// Path from the root, by the first of its names that was met.
    pub path: Vec<u8>,
}

impl Volume {
    /// The files and directories that own some of `blocks` (sorted). Walks all names. A block
    /// without an owner is the volume's own, of a file without a name, or beneath a directory that
    /// cannot be read.
    ///
    /// # Errors
    /// The root directory cannot be read.
    pub async fn owners_of(self: &Rc<Self>, blocks: &[HomeBlock]) -> Result<Vec<BlockOwner>> {
        let root = self.inode(ROOT).await?;
        let (mut owners, mut seen) = (Vec::new(), BTreeSet::from([ROOT]));
        self.add_owned(&root, b"/", blocks, &mut owners).await;
        let mut directories = vec![(root, Vec::new())];
        while let Some((directory, path)) = directories.pop() {
            let mut cookie = 0;
            while let Ok(listed) = self.readdirplus(&directory, cookie, LISTED).await {
                let Some((last, _)) = listed.last() else { break };
                cookie = last.cookie;
                for (entry, inode) in listed {
                    let Some(inode) = inode.filter(|inode| seen.insert(inode.number)) else {
                        continue;
                    };
                    let path = [&path[..], b"/", &entry.name].concat();
                    self.add_owned(&inode, &path, blocks, &mut owners).await;
                    if inode.is_directory() {
                        directories.push((inode, path));
                    }
                }
            }
        }
        owners.sort_by_key(|owner| owner.block);
        Ok(owners)
    }

    /// Adds the owner of blocks, if they can be mapped.
    async fn add_owned(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        path: &[u8],
        blocks: &[HomeBlock],
        owners: &mut Vec<BlockOwner>,
    ) {
        if !inode.is_regular() && !inode.is_directory() {
            return;
        }
        let whole = (FileBlock(0), FileBlock(u32::MAX));
        let extents = self.extents(inode, whole.0, whole.1, usize::MAX).await.unwrap_or_default();
        for extent in extents {
            let Some(start) = extent.home() else { continue };
            let end = start.plus(extent.count.into());
            let first = blocks.partition_point(|block| *block < start);
            owners.extend(blocks[first..].iter().take_while(|block| **block < end).map(|block| {
                BlockOwner { block: *block, inode: inode.number, path: path.to_vec() }
            }));
        }
    }
}
