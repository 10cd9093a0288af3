//! From a locked transaction to everything that must be written for it, in order and with reasons.
//!
//! Plain: home data and log blocks; `DataBeforeCommit`, `LogBeforeCommit`; commit block; `CommitBeforeReply`.
//! Extended with checksums: home data; `DataBeforeCommit`; log blocks and commit block in one;
//! `CommitBeforeReply`: the commit block carries a checksum of all, so a torn write commits nothing.
//!
//! In the log: revoke blocks, then descriptors with their blocks, fragments before regular blocks, then the commit
//! block. Source: kernel `journal.rst`; paper, section 3.2.

use crate::log_space::{LogFull, LogRuns, LogSlot, LogSpace};
use crate::plan::{Address, Barrier, BlockKind, Plan};
use crate::transaction::{LockedTransaction, Record};
use device::Buffer;
use format::jbd2::{
    BlockTag, CommitBlock, DescriptorBlock, Fragment, JournalSuperblock, LogLayout, Packing, RevokeBlock,
    Seed, TagFormat, WholeTransaction, escape,
};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use units::{BlockRange, BlockSize, HomeBlock, Timestamp, TransactionId};

/// Longest write of home data, in bytes: long enough for any disk to stream, short enough to let others in.
const HOME_RUN_BYTES: usize = 1 << 20;

/// How the log of this mount is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FormatOptions {
    pub block_size: BlockSize,
    /// Checksums v3 in tags, descriptors, revokes and commit blocks (`journal_checksum`).
    pub checksums: bool,
    /// 64-bit block numbers in tags and revokes (the journal's 64BIT feature).
    pub wide: bool,
    /// Multiwrite blocks are allowed; with `checksums`, commit blocks carry a checksum of the whole transaction.
    pub extended: bool,
    /// The journal's UUID: seeds every checksum and stands beside the first tag.
    pub uuid: [u8; 16],
    pub commit_time: Timestamp,
}

impl FormatOptions {
    /// As the superblock says (`JournalSuperblock::set_log_format`).
    pub fn of(superblock: &JournalSuperblock, commit_time: Timestamp) -> FormatOptions {
        let layout = superblock.layout();
        FormatOptions {
            block_size: layout.block_size,
            checksums: layout.tags == TagFormat::ChecksumV3,
            wide: layout.wide,
            extended: layout.multiwrite,
            uuid: layout.uuid,
            commit_time,
        }
    }
    fn layout(&self) -> LogLayout {
        let tags = if self.checksums { TagFormat::ChecksumV3 } else { TagFormat::Plain };
        let seed = Seed::of_journal(&self.uuid);
        LogLayout {
            block_size: self.block_size,
            tags,
            wide: self.wide,
            multiwrite: self.extended,
            uuid: self.uuid,
            seed,
        }
    }
    /// Whether a torn commit is told by its checksum, so that no barrier is needed before the commit block.
    fn is_one_write(&self) -> bool {
        self.extended && self.checksums
    }
}

#[derive(Debug)]
pub struct CommitPlan {
    pub transaction: TransactionId,
    /// Its log blocks are slots until [`CommitPlan::issue`].
    pub plan: Plan,
    /// How many log blocks it takes. None if the transaction was empty.
    pub log_blocks: u32,
    /// Blocks written, by kind.
    pub counts: BTreeMap<BlockKind, u64>,
    /// Bytes of file data that callers wrote, logged or home.
    pub payload: u64,
}

impl CommitPlan {
    /// The plan is about to be carried out: the log says where its blocks lie.
    pub fn issue(&mut self, log: &mut dyn LogSpace) -> LogRuns {
        if self.log_blocks == 0 {
            return LogRuns::default();
        }
        let runs = log.bind(self.transaction);
        self.plan.bind(&runs);
        runs
    }
}

type LogBlocks = Vec<(BlockKind, Rc<Buffer>)>;

/// `images` gives the content of a block as of the locking of the transaction; for a block recorded as bytes,
/// only those bytes need be right. Reserves log blocks of `log`.
///
/// An empty transaction gives an empty plan: do not commit it but let it run on, because the log has no gaps
/// in its sequence numbers.
pub fn plan_commit(
    transaction: &LockedTransaction,
    images: &dyn Fn(HomeBlock) -> Rc<Buffer>,
    log: &mut dyn LogSpace,
    options: &FormatOptions,
) -> Result<CommitPlan, LogFull> {
    let mut plan = Plan::default();
    if transaction.is_empty() {
        let (transaction, counts) = (transaction.id, BTreeMap::new());
        return Ok(CommitPlan { transaction, plan, log_blocks: 0, counts, payload: 0 });
    }
    let body = log_body(transaction, images, options);
    let log_blocks = body.len() as u32 + 1;
    log.reserve(transaction.id, log_blocks)?;
    let commit = (BlockKind::Commit, commit_block(transaction.id, &body, options));

    let has_home_data =
        plan_home_data(transaction, images, options, &mut plan) || transaction.home_written_early;
    let slot = |index| Address::Slot(LogSlot { transaction: transaction.id, index });
    if options.is_one_write() {
        if has_home_data {
            plan.barrier(Barrier::DataBeforeCommit);
        }
        plan.write(slot(0), body.into_iter().chain([commit]).collect());
    } else {
        let has_body = !body.is_empty();
        if has_body {
            plan.write(slot(0), body);
        }
        if has_home_data {
            plan.barrier(Barrier::DataBeforeCommit);
        }
        if has_body {
            plan.barrier(Barrier::LogBeforeCommit);
        }
        plan.write(slot(log_blocks - 1), vec![commit]);
    }
    plan.barrier(Barrier::CommitBeforeReply);
    let counts = plan.counts();
    Ok(CommitPlan { transaction: transaction.id, plan, log_blocks, counts, payload: transaction.payload })
}

/// Without a journal, being home is all that a commit is: nothing is atomic.
pub fn plan_commit_home(
    transaction: &LockedTransaction,
    images: &dyn Fn(HomeBlock) -> Rc<Buffer>,
) -> CommitPlan {
    let mut plan = Plan::default();
    let mut write = |kind, at| plan.write(Address::Home(at), vec![(kind, images(at))]);
    transaction.metadata().for_each(|at| write(BlockKind::HomeMetadata, at));
    transaction.home_data().for_each(|(_, at)| write(BlockKind::HomeData, at));
    // Due even if nothing is left to write: write-back may have sent some of it.
    plan.barrier(Barrier::DataBeforeCommit);
    let counts = plan.counts();
    CommitPlan { transaction: transaction.id, plan, log_blocks: 0, counts, payload: transaction.payload }
}

/// Home data in runs of neighbours, sorted by address. True if there is any.
fn plan_home_data(
    transaction: &LockedTransaction,
    images: &dyn Fn(HomeBlock) -> Rc<Buffer>,
    options: &FormatOptions,
    plan: &mut Plan,
) -> bool {
    let blocks: BTreeSet<HomeBlock> = transaction.home_data().map(|(_, block)| block).collect();
    let longest = (HOME_RUN_BYTES / options.block_size.bytes()).max(1);
    let mut run: Vec<(HomeBlock, Rc<Buffer>)> = Vec::new();
    let mut flush = |run: &mut Vec<(HomeBlock, Rc<Buffer>)>| {
        if let Some((start, _)) = run.first() {
            let at = Address::Home(*start);
            plan.write(at, run.drain(..).map(|(_, image)| (BlockKind::HomeData, image)).collect());
        }
    };
    for block in &blocks {
        if run.len() == longest || run.last().is_some_and(|(last, _)| last.plus(1) != *block) {
            flush(&mut run);
        }
        run.push((*block, images(*block)));
    }
    flush(&mut run);
    !blocks.is_empty()
}

/// All log blocks of the transaction but the commit block.
fn log_body(
    transaction: &LockedTransaction,
    images: &dyn Fn(HomeBlock) -> Rc<Buffer>,
    options: &FormatOptions,
) -> LogBlocks {
    let mut body = Body::new(transaction.id, options.layout());
    body.revokes(transaction.revoked.iter().copied());
    for (block, record) in &transaction.data {
        if let Record::Bytes { ranges, base_zero } = record {
            let image = images(*block);
            for (index, range) in ranges.as_slice().iter().enumerate() {
                // Only the first fragment starts from zeros; it would wipe out those before it.
                body.fragment(*block, *range, *base_zero && index == 0, &image);
            }
        }
    }
    let whole_data =
        transaction.data.iter().filter(|(_, record)| **record == Record::Whole).map(|(block, _)| block);
    for block in transaction.metadata.keys().chain(whole_data) {
        body.regular(*block, images(*block));
    }
    body.close_descriptor();
    body.blocks
}

fn commit_block(transaction: TransactionId, body: &LogBlocks, options: &FormatOptions) -> Rc<Buffer> {
    let layout = options.layout();
    let whole = options.is_one_write().then(|| {
        let mut whole = WholeTransaction::new(layout.seed, transaction);
        body.iter().for_each(|(_, block)| whole.add(block));
        whole.sum()
    });
    let mut block = Buffer::zeroed(options.block_size.bytes());
    CommitBlock { transaction, time: options.commit_time, whole }.serialize(&layout, &mut block);
    Rc::new(block)
}

/// Collects log blocks; the tags of the open descriptor wait until it is full.
struct Body {
    transaction: TransactionId,
    layout: LogLayout,
    blocks: LogBlocks,
    /// Of the open descriptor: its tags, the log block (counted behind it) of each, and these log blocks.
    tags: Vec<(BlockTag, u32)>,
    logged: LogBlocks,
    packing: Packing,
    /// Bytes left for tags.
    room: usize,
}

impl Body {
    fn new(transaction: TransactionId, layout: LogLayout) -> Body {
        Body {
            transaction,
            layout,
            blocks: Vec::new(),
            tags: Vec::new(),
            logged: Vec::new(),
            packing: Packing::new(layout.block_size),
            room: DescriptorBlock::room(&layout),
        }
    }

    fn revokes(&mut self, revoked: impl Iterator<Item = HomeBlock>) {
        let revoked: Vec<HomeBlock> = revoked.collect();
        for blocks in revoked.chunks(RevokeBlock::capacity(&self.layout)) {
            let mut block = Buffer::zeroed(self.layout.block_size.bytes());
            let revoke = RevokeBlock { transaction: self.transaction, blocks: blocks.to_vec() };
            revoke.serialize(&self.layout, &mut block);
            self.blocks.push((BlockKind::Revoke, Rc::new(block)));
        }
    }

    fn fragment(&mut self, home: HomeBlock, range: BlockRange, base_zero: bool, image: &Buffer) {
        let place = self.tag(home, Some(Fragment { range, base_zero }));
        if place.begins_block() {
            let empty = Rc::new(Buffer::zeroed(self.layout.block_size.bytes()));
            self.logged.push((BlockKind::Multiwrite, empty));
        }
        let (_, block) = self.logged.last_mut().expect("the block that was begun");
        let block = Rc::get_mut(block).expect("a multiwrite block has one owner until it is planned");
        block[place.offset..][..place.length].copy_from_slice(&image[range.as_usize()]);
    }

    fn regular(&mut self, home: HomeBlock, image: Rc<Buffer>) {
        assert_eq!(image.len(), self.layout.block_size.bytes(), "the image of {home}");
        self.tag(home, None);
        self.logged.push((BlockKind::Regular, image));
    }

    fn tag(&mut self, home: HomeBlock, fragment: Option<Fragment>) -> format::jbd2::Place {
        let tag = BlockTag { home, escaped: false, deleted: false, checksum: 0, fragment };
        let length = tag.encoded_length(&self.layout);
        if length > self.room {
            self.close_descriptor();
        }
        self.room -= length;
        let place = self.packing.place(&tag);
        self.tags.push((tag, place.block));
        place
    }

    /// Writes the descriptor of the tags so far, and the blocks they name.
    fn close_descriptor(&mut self) {
        if self.tags.is_empty() {
            return;
        }
        let mut logged = std::mem::take(&mut self.logged);
        let sums: Vec<(bool, u32)> = logged.iter_mut().map(|(_, block)| self.escape_and_sum(block)).collect();
        let mut tags = Vec::with_capacity(self.tags.len());
        let mut previous = None;
        for (mut tag, block) in self.tags.drain(..) {
            let (escaped, sum) = sums[block as usize];
            tag.escaped = escaped && previous != Some(block);
            tag.checksum = sum;
            previous = Some(block);
            tags.push(tag);
        }
        let mut block = Buffer::zeroed(self.layout.block_size.bytes());
        DescriptorBlock { transaction: self.transaction, tags }.serialize(&self.layout, &mut block);
        self.blocks.push((BlockKind::Descriptor, Rc::new(block)));
        self.blocks.append(&mut logged);
        self.packing = Packing::new(self.layout.block_size);
        self.room = DescriptorBlock::room(&self.layout);
    }

    /// Escapes a logged block if it begins with the magic (a copy of it: the cache shares the image). Returns
    /// whether it did, and the tag's checksum.
    fn escape_and_sum(&self, block: &mut Rc<Buffer>) -> (bool, u32) {
        let escaped =
            block[..4] == format::jbd2::MAGIC.to_be_bytes() && escape(Rc::<Buffer>::make_mut(block));
        let sums = self.layout.has_checksums();
        (escaped, if sums { self.layout.seed.of_logged_block(self.transaction, block) } else { 0 })
    }
}
