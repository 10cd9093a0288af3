//! Places of the exported disk's blocks.
//!
//! Invariants: a layout exists only for a superblock that was checked, so its arithmetic cannot
//! overflow. Each exported block has one home, in the data and in no scattered log. Neighbours are
//! neighbours at home, except where a log lies between two groups.

use engine::{LogExtent, ScatteredLogMap};
use format::blocks::{BlocksRole, BlocksSuperblock};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use units::{BlockSize, HomeBlock, LogBlock};

/// The places of a volume whose superblock was read.
#[derive(Clone, Debug)]
pub struct BlocksLayout {
    superblock: BlocksSuperblock,
}

/// The layout of an open volume, which growing replaces. Clones are the same.
#[derive(Clone)]
pub(crate) struct CurrentLayout(Rc<RefCell<Rc<BlocksLayout>>>);

impl CurrentLayout {
    pub fn new(layout: BlocksLayout) -> CurrentLayout {
        CurrentLayout(Rc::new(RefCell::new(Rc::new(layout))))
    }
    pub fn get(&self) -> Rc<BlocksLayout> {
        self.0.borrow().clone()
    }
    pub fn set(&self, layout: BlocksLayout) {
        *self.0.borrow_mut() = Rc::new(layout);
    }
}

/// Exported blocks that lie side by side at home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockRun {
    /// The first block, on the exported disk.
    pub block: u64,
    pub home: HomeBlock,
    pub count: u64,
}

impl BlocksLayout {
    /// Creates a layout; `None` for the superblock of a journal device, or one that does not parse.
    pub fn new(superblock: BlocksSuperblock) -> Option<BlocksLayout> {
        let is_volume = superblock.role == BlocksRole::Volume && superblock.check().is_ok();
        is_volume.then_some(BlocksLayout { superblock })
    }
    pub fn superblock(&self) -> &BlocksSuperblock {
        &self.superblock
    }
    pub fn block_size(&self) -> BlockSize {
        self.superblock.block_size
    }
    /// The number of exported blocks.
    pub fn blocks(&self) -> u64 {
        self.superblock.exported_blocks()
    }
    /// Returns the byte of the disk at which the exported disk begins. Without scattered logs a
    /// file system on a drained volume can be read there.
    pub fn data_offset(&self) -> u64 {
        self.superblock.data_at << self.block_size().shift()
    }

    /// Returns the home of an exported block, and how many follow it there, itself included.
    fn place(&self, block: u64) -> (HomeBlock, u64) {
        let data_at = self.superblock.data_at;
        let Some(groups) = self.superblock.groups else {
            return (HomeBlock(data_at + block), self.blocks() - block);
        };
        let data_a_group = u64::from(groups.group_blocks - groups.log_blocks);
        let last = match units::fault!("blocks-end-without-place") {
            true => u64::MAX,
            false => groups.logs.into(),
        };
        let group = (block / data_a_group).min(last);
        let home = HomeBlock(data_at + block + group * u64::from(groups.log_blocks));
        let end = match group < groups.logs.into() {
            true => (group + 1) * data_a_group,
            false => self.blocks(),
        };
        (home, end - block)
    }

    /// Splits exported blocks, which must exist, into runs at home.
    pub(crate) fn runs(&self, blocks: Range<u64>) -> impl Iterator<Item = BlockRun> + '_ {
        assert!(blocks.end <= self.blocks(), "{blocks:?} is checked before");
        let mut next = blocks.start;
        std::iter::from_fn(move || {
            let left = blocks.end.checked_sub(next).filter(|left| *left > 0)?;
            let (home, together) = self.place(next);
            let run = BlockRun { block: next, home, count: left.min(together) };
            next += run.count;
            Some(run)
        })
    }

    /// Returns the byte of the exported disk at which a block lies whose home this is; `None`: the
    /// block is no data.
    pub fn exported_byte(&self, home: HomeBlock) -> Option<u64> {
        self.is_data(home, 1).then(|| {
            let at = home.get() - self.superblock.data_at;
            let logs = self.superblock.groups.map_or(0, |groups| {
                let before = (at / u64::from(groups.group_blocks)).min(groups.logs.into());
                before * u64::from(groups.log_blocks)
            });
            (at - logs) << self.block_size().shift()
        })
    }

    /// Returns whether these blocks of the disk are all homes of exported ones.
    pub(crate) fn is_data(&self, at: HomeBlock, count: u64) -> bool {
        let data = self.superblock.data_at..self.superblock.data_at + self.superblock.data_blocks;
        let Some(end) = at.get().checked_add(count) else { return false };
        if at.get() < data.start || end > data.end {
            return false;
        }
        let Some(groups) = self.superblock.groups else { return true };
        let (from, to) = (at.get() - data.start, end - data.start);
        let group_blocks = u64::from(groups.group_blocks);
        let group = from / group_blocks;
        let log_at = (group + 1) * group_blocks - u64::from(groups.log_blocks);
        group >= groups.logs.into() || to <= log_at
    }

    /// Returns the blocks of the disk that data or logs may take.
    pub(crate) fn used(&self) -> Range<u64> {
        let superblock = &self.superblock;
        let start = match superblock.journal_blocks {
            0 => superblock.data_at,
            _ => superblock.journal_at,
        };
        start..superblock.data_at + superblock.data_blocks
    }

    /// Returns the scattered logs, whose log blocks are numbered from `first` on.
    pub(crate) fn logs(&self, first: LogBlock) -> Option<ScatteredLogMap> {
        let groups = self.superblock.groups?;
        let (group_blocks, blocks) = (u64::from(groups.group_blocks), groups.log_blocks);
        let home = |group: u64| {
            HomeBlock(self.superblock.data_at + (group + 1) * group_blocks - u64::from(blocks))
        };
        let homes = (0..u64::from(groups.logs)).map(home).collect();
        Some(ScatteredLogMap { first, blocks, homes })
    }

    /// Returns the journal on the volume's own disk, and its scattered logs after it.
    pub(crate) fn extents(&self) -> (Vec<LogExtent>, Option<ScatteredLogMap>) {
        let superblock = &self.superblock;
        let count = superblock.journal_blocks;
        let own = LogExtent { first: LogBlock(0), count, disk_block: superblock.journal_at };
        let logs = self.logs(LogBlock(count));
        let scattered = logs.iter().flat_map(|logs| {
            logs.homes.iter().zip(0..).map(|(home, log)| {
                let first = logs.first.plus(log * logs.blocks);
                LogExtent { first, count: logs.blocks, disk_block: home.get() }
            })
        });
        (std::iter::once(own).chain(scattered).collect(), logs)
    }
}
