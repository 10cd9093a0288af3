//! The blocks that a write will touch, computed before the write's handle starts so that the handle
//! reserves all it needs at once. Nothing ends the handle half-way, and after a crash the write is
//! applied whole or not at all.

use crate::{Inode, Mapping, MappingState, Result, Volume};
use engine::Credits;
use format::ext4::{extent, inode::flags};
use smallvec::SmallVec;
use units::FileBlock;

/// The longest write of one handle, in bytes, where the log allows it. The front ends' requests are
/// no longer.
const WRITE_PER_HANDLE: usize = 1 << 20;

/// Bytes of the header of an extent node and of the checksum behind it, and of an entry.
const NODE_OVERHEAD: u32 = 12 + 4;
const NODE_ENTRY: u32 = 12;

/// The blocks of a write that one handle takes.
pub(super) struct WritePlan {
    /// Mapping of the blocks, in order and without gaps.
    pub mappings: SmallVec<[Mapping; 1]>,
    pub touched: Touched,
    pub credits: Credits,
    /// The block behind these cannot be looked up: the write ends before it.
    pub ends: bool,
}

/// Sums over the blocks of a write.
#[derive(Clone, Copy, Default)]
pub(super) struct Touched {
    pub blocks: u32,
    /// Blocks in holes. Each may become a run of its own.
    pub holes: u32,
    /// Runs of holes and of unwritten blocks: for each the tree changes at one place.
    places: u32,
    /// Entries that the tree may gain.
    entries: u32,
}

impl Touched {
    fn with(self, state: MappingState, count: u32) -> Touched {
        let blocks = self.blocks + count;
        let (holes, places, entries) = match state {
            MappingState::Written(_) => (0, 0, 0),
            MappingState::Hole => (count, 1, count),
            // An extent whose middle is written becomes three.
            MappingState::Unwritten(_) => (0, 1, 2),
        };
        Touched {
            blocks,
            holes: self.holes + holes,
            places: self.places + places,
            entries: self.entries + entries,
        }
    }
}

impl Volume {
    /// Plans as many of the `wanted` blocks from `first` on as one handle can write, at least one;
    /// `besides` counts its other changes. An error if the first one cannot be looked up.
    pub(super) async fn plan_write(
        &self,
        inode: &Inode,
        first: FileBlock,
        wanted: u32,
        besides: Credits,
    ) -> Result<WritePlan> {
        // One block more, for a write that begins and ends within blocks.
        let wanted = wanted.min((WRITE_PER_HANDLE >> self.block_size().shift()) as u32 + 1);
        let wanted = if units::fault!("write-split") { wanted.min(2) } else { wanted };
        let credits = |touched: &Touched| self.credits_write(inode, touched) + besides;
        // And one for the zeros behind the old end.
        let fits =
            |touched: &Touched| self.engine().fits_handle(credits(touched), touched.blocks + 1);
        let (mut mappings, mut touched, mut ends) =
            (SmallVec::<[Mapping; 1]>::new(), Touched::default(), false);
        while touched.blocks < wanted {
            let at = FileBlock(first.get() + touched.blocks);
            let mut mapping = match self.map(inode, at, wanted - touched.blocks).await {
                Ok(mapping) => mapping,
                Err(error) if mappings.is_empty() => return Err(error),
                Err(_) => {
                    ends = true;
                    break;
                }
            };
            let all = mapping.count;
            while mapping.count > 0 && !fits(&touched.with(mapping.state, mapping.count)) {
                mapping.count -= 1;
            }
            if mapping.count == 0 && mappings.is_empty() {
                // A log too short even for this fails when the handle starts.
                mapping.count = 1;
            }
            if mapping.count > 0 {
                touched = touched.with(mapping.state, mapping.count);
                mappings.push(mapping);
            }
            if mapping.count < all {
                break;
            }
        }
        Ok(WritePlan { mappings, touched, credits: credits(&touched), ends })
    }

    /// The metadata blocks of a write are the inode and the blocks of the mapping's tree. Every run
    /// that is allocated adds a bitmap and a descriptor block. Bitmaps and descriptor blocks count
    /// once, however many runs lie in them.
    fn credits_write(&self, inode: &Inode, touched: &Touched) -> Credits {
        if touched.places == 0 {
            return self.credits_inode();
        }
        let (tree, made) = match inode.has_flag(flags::EXTENTS) {
            true => self.extent_blocks(inode, touched),
            false => self.pointer_blocks(touched),
        };
        let bitmaps = (touched.holes + made).min(self.groups.count());
        let descriptors = bitmaps.min(self.superblock.borrow().descriptor_blocks());
        self.credits_inode() + Credits(tree) + Credits(bitmaps + descriptors)
    }

    /// Returns the number of blocks of the extent tree that change, and of new ones among them.
    fn extent_blocks(&self, inode: &Inode, touched: &Touched) -> (u32, u32) {
        let depth = crate::mapping::tree_depth(inode);
        // The fewest entries that a node accepts after a split before it is split again.
        let spare = (self.block_size().bytes() as u32 - NODE_OVERHEAD) / NODE_ENTRY / 2 - 1;
        let (mut changed, mut made, mut entries) = (0, 0, touched.entries);
        for level in 0..=u32::from(extent::DEPTH_MAX) {
            // Each place has a node of its own, and each such node may be full. The root, in the
            // inode, makes one.
            let nodes = if level < depth { touched.places } else { 1 };
            if level > depth && entries < spare {
                break;
            }
            let split = nodes + entries / spare;
            changed += split + if level < depth { nodes } else { 0 };
            made += split;
            entries = split;
        }
        (changed, made)
    }

    /// Number of pointer blocks that change, any of which may be new. The write's blocks are
    /// consecutive.
    fn pointer_blocks(&self, touched: &Touched) -> (u32, u32) {
        let pointers = self.block_size().bytes() as u32 / 4;
        let spanned = |blocks: u32| (touched.blocks + blocks - 2) / blocks + 1;
        let all = spanned(pointers) + spanned(pointers * pointers) + 1;
        (all, all)
    }
}
