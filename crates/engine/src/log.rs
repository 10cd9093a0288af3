//! What the engine knows of the log: its superblock, its free space, and which home blocks have records in it.
//!
//! It puts parts together that keep their own state: [`LogSpace`], [`Checkpoint`], [`Tail`], [`LiveRecords`] and
//! [`Mapping`]. So its fields are open to the files that move them on.
//!
//! Invariants
//! 1. `superblock` is what the disk has. A change is put here when it has been written.
//! 2. Records are live from when their transaction is planned until the tail on disk has passed it, or they are
//!    revoked durably.
//! 3. The space of a transaction is taken back only when the tail on disk has passed it.

use crate::error::EngineError;
use crate::kept::KeptLog;
use crate::mapping::Mapping;
use crate::options::{EngineParts, LogArea};
use crate::tail::Tail;
use device::Buffer;
use format::jbd2::JournalSuperblock;
use journal::records::{self, Records, RecordsWanted};
use journal::{
    Checkpoint, CircularLog, CommittedTransaction, Coverage, Holdings, LogKind, LogSpace, ScatteredLog,
    SuperblockImage,
};
use runtime::sync::Event;
use std::collections::VecDeque;
use std::rc::Rc;
use units::{BlockMap, HomeBlock, LogBlock, TransactionId, is_within};

/// `EIO`, as the journal superblock records it after an abort.
pub(crate) const ERRNO_IO: i32 = -5;

pub(crate) struct LogState {
    /// As on disk: a change is put here only when it has been written, because an abort writes this once more.
    pub superblock: JournalSuperblock,
    /// In log blocks.
    pub superblock_at: LogBlock,
    pub space: Box<dyn LogSpace>,
    pub checkpoint: Checkpoint,
    pub records: Rc<dyn Records>,
    pub tail: Tail,
    /// The superblock is no longer on its way to the disk.
    pub superblock_arrived: Rc<Event>,
    /// The superblock on disk says where the log begins. Before the first commit it says that the log is empty.
    pub started: bool,
    pub live: LiveRecords,
    /// Whether memory may let go of what the log holds.
    pub redirects: bool,
    pub mapping: Mapping,
}

impl LogState {
    /// A clean log, to be written in the format that the options ask for.
    pub fn new(
        mut superblock: JournalSuperblock,
        parts: &EngineParts,
        area: &LogArea,
    ) -> Result<LogState, EngineError> {
        let is_scattered = parts.options.log == LogKind::Scattered;
        let records = records::begin(&mut superblock, wanted(parts, area), || parts.world.random());
        superblock.errno = 0;
        let next = superblock.next_transaction();
        let each = superblock.log_blocks_per_block();
        let space: Box<dyn LogSpace> = match parts.options.log {
            LogKind::Circular => Box::new(CircularLog::of(&superblock)),
            LogKind::Scattered => {
                superblock.set_scattered(parts.world.random());
                Box::new(ScatteredLog::new(&superblock, area.logs(each)?))
            }
        };
        Ok(LogState {
            superblock_at: LogBlock(area.superblock.get() * each),
            checkpoint: Checkpoint::new(next),
            records,
            superblock,
            space,
            tail: Tail::new(next),
            superblock_arrived: Rc::default(),
            started: false,
            live: LiveRecords::default(),
            redirects: is_scattered,
            mapping: Mapping::default(),
        })
    }

    /// A log that goes on where a restart found it.
    pub fn keeping(kept: KeptLog, parts: &EngineParts, area: &LogArea) -> Result<LogState, EngineError> {
        let (first, last) = (kept.superblock.sequence, kept.next().previous());
        let each = kept.superblock.log_blocks_per_block();
        let KeptLog { superblock, runs, transactions, copies, at_home } = kept;
        let mut log = LogState {
            superblock_at: LogBlock(area.superblock.get() * each),
            checkpoint: Checkpoint::new(first),
            records: records::of(&superblock),
            space: Box::new(ScatteredLog::new(&superblock, area.logs(each)?).holding(first, &runs)),
            superblock,
            tail: Tail::new(first),
            superblock_arrived: Rc::default(),
            started: true,
            live: LiveRecords::default(),
            redirects: true,
            mapping: Mapping::default(),
        };
        for transaction in &transactions {
            let blocks = transaction.records.iter().map(|(block, _)| *block).collect();
            log.live.add(transaction.id, blocks);
            log.committed(transaction);
        }
        at_home.into_iter().for_each(|block| log.home_written(block, last));
        let now = parts.world.now();
        copies.into_iter().for_each(|(block, copy)| log.mapping.insert(block, copy, now));
        Ok(log)
    }

    pub fn image_of(&self, superblock: &JournalSuperblock) -> SuperblockImage {
        SuperblockImage { at: self.superblock_at, image: image_of(superblock) }
    }

    /// From now on the superblock on disk says where the log begins: with `first`, which is still to come.
    pub fn start(&mut self, first: TransactionId) {
        self.started = true;
        let at = self.space.start_of(first).expect("the transaction that comes next");
        self.superblock.set_tail(first, at);
    }
    /// Everything up to `last` is home, and the superblock on disk says that the log is empty.
    pub fn emptied(&mut self, last: TransactionId) {
        let next = last.next();
        self.started = false;
        // On a damaged volume, where a block has two owners, it may still wait for one that is gone.
        self.checkpoint = Checkpoint::new(next);
        self.superblock.set_tail(last, LogBlock(0));
        self.tail = Tail::new(next);
        self.space.release_before(next);
        self.live.release_before(next);
        self.mapping.forget_all();
    }
    /// A transaction is durable in the log.
    pub fn committed(&mut self, transaction: &CommittedTransaction) {
        self.checkpoint.committed(transaction);
        self.live.revoked(transaction.id, &transaction.revoked);
        if !self.mapping.is_empty() {
            let whole = transaction.records.iter().filter(|(_, coverage)| *coverage == Coverage::Whole);
            let superseded = whole.map(|(block, _)| block).chain(&transaction.revoked);
            superseded.for_each(|block| self.mapping.forget(*block, transaction.id));
        }
    }
    /// Home has `block` with all updates up to `as_of`, if perhaps not durably.
    pub fn home_written(&mut self, block: HomeBlock, as_of: TransactionId) {
        self.checkpoint.home_written(block, as_of);
        self.mapping.forget(block, as_of);
    }
    /// Most log blocks that one transaction may take.
    pub fn transaction_limit(&self) -> u32 {
        self.space.transaction_max()
    }
    /// As many blocks of home as `log_blocks` are long.
    pub fn home_blocks(&self, log_blocks: u32) -> u32 {
        log_blocks.div_ceil(self.superblock.log_blocks_per_block())
    }
    /// Log blocks to keep free for revokes, which any handle may make without credits. There is one for each block
    /// that the log has records of. Revokes of the transaction itself take less than the records that they replace,
    /// but may begin a block. While a transaction runs the log gets no records, so what fits when a handle starts fits
    /// for good.
    pub fn revoke_reserve(&self) -> u32 {
        self.records.revoke_blocks_bound(self.live.len() as u64) + 1
    }
    /// Most log blocks that a transaction takes which holds so much.
    pub fn bound(&self, holdings: &Holdings) -> u32 {
        self.records.log_blocks_bound(holdings)
    }
    /// The memory that is made for the log in the `bound` log blocks of a transaction that holds so much, in blocks of home.
    pub fn made_of(&self, bound: u32, holdings: &Holdings) -> usize {
        let shared = if self.records.logs_images() { holdings.blocks } else { 0 };
        let made = u64::from(bound).saturating_sub(shared) * self.records.block_memory() as u64;
        made.div_ceil(self.superblock.block_size.bytes() as u64) as usize
    }
    /// Whether a transaction of `bound` log blocks could commit now, whatever revokes are to come.
    pub fn has_room(&self, bound: u32) -> bool {
        bound <= self.transaction_limit() && bound + self.revoke_reserve() <= self.space.room()
    }
    /// Time to write the oldest transactions home: less than three eighths are free, or less than the largest
    /// transaction takes with its revokes. It ends when half is free.
    pub fn is_short(&self) -> bool {
        self.space.room() < self.largest() || self.space.free() < self.space.capacity() / 8 * 3
    }
    /// Log blocks that the largest transaction takes with its revokes.
    pub fn largest(&self) -> u32 {
        self.transaction_limit() + self.revoke_reserve()
    }
}

/// The records that a mount writes.
fn wanted(parts: &EngineParts, area: &LogArea) -> RecordsWanted {
    let options = &parts.options;
    let is_scattered = options.log == LogKind::Scattered;
    RecordsWanted {
        format: options.record_format(),
        unit: options.log_unit.unwrap_or_else(|| area.physical_sector(&*parts.home)),
        // Others refuse a log that may hold parts of blocks, whether it does or not.
        bytes: options.data.policy(options.threshold).logs_bytes() || options.keep_others_out,
        // Nobody else reads scattered logs anyway.
        transaction_checksum: options.transaction_checksum || is_scattered,
        checksums: options.journal_checksum || is_scattered,
        wide: parts.home.end() > u64::from(u32::MAX),
    }
}

/// Whether a mount would write scattered logs in the format of those that `superblock` tells of.
pub(crate) fn is_written_so(superblock: &JournalSuperblock, parts: &EngineParts, area: &LogArea) -> bool {
    superblock.scattered.is_some() && records::is_written_so(superblock, wanted(parts, area))
}

/// The block that holds `superblock`.
pub(crate) fn image_of(superblock: &JournalSuperblock) -> Rc<Buffer> {
    Rc::new(Buffer::copy_of(&superblock.serialize()))
}

/// Blocks of which the log on disk holds records that a replay would carry out: freeing one needs a revoke.
#[derive(Default)]
pub(crate) struct LiveRecords {
    latest: BlockMap<TransactionId>,
    transactions: VecDeque<(TransactionId, Vec<HomeBlock>)>,
}

impl LiveRecords {
    pub fn len(&self) -> usize {
        self.latest.len()
    }
    /// Those that `transaction` has records of.
    pub fn blocks_of(&self, transaction: TransactionId) -> &[HomeBlock] {
        let Some((oldest, _)) = self.transactions.front() else { return &[] };
        let index = transaction.0.wrapping_sub(oldest.0) as usize;
        let found = self.transactions.get(index).filter(|(id, _)| *id == transaction);
        found.map_or(&[], |(_, blocks)| blocks)
    }
    pub fn contains(&self, block: HomeBlock) -> bool {
        self.latest.contains_key(&block)
    }
    /// The blocks with records within `runs` (first block and count, in order and apart), sorted.
    pub fn within(&self, runs: &[(HomeBlock, u64)]) -> Vec<HomeBlock> {
        let count: u64 = runs.iter().map(|(_, count)| count).sum();
        if count < self.latest.len() as u64 {
            let blocks = runs.iter().flat_map(|(start, count)| (0..*count).map(|index| start.plus(index)));
            return blocks.filter(|block| self.contains(*block)).collect();
        }
        let mut found: Vec<_> = self.latest.keys().copied().filter(|at| is_within(runs, *at)).collect();
        found.sort_unstable();
        found
    }
    /// `by` is committed, and revokes these: no replay carries out what older transactions hold of them.
    pub fn revoked(&mut self, by: TransactionId, blocks: &[HomeBlock]) {
        for block in blocks {
            if self.latest.get(block).is_some_and(|transaction| by.is_after(*transaction)) {
                self.latest.remove(block);
            }
        }
    }
    /// `transaction` is about to be written to the log.
    pub fn add(&mut self, transaction: TransactionId, blocks: Vec<HomeBlock>) {
        for block in &blocks {
            self.latest.insert(*block, transaction);
        }
        self.transactions.push_back((transaction, blocks));
    }
    /// The log on disk now begins with `tail`.
    pub fn release_before(&mut self, tail: TransactionId) {
        while let Some((transaction, _)) = self.transactions.front()
            && tail.is_after(*transaction)
        {
            let (transaction, blocks) = self.transactions.pop_front().expect("a front");
            for block in blocks {
                if self.latest.get(&block) == Some(&transaction) {
                    self.latest.remove(&block);
                }
            }
        }
    }
}

/// Reads and checks the journal superblock.
pub(crate) async fn read_superblock(
    parts: &EngineParts,
    area: &LogArea,
) -> Result<JournalSuperblock, EngineError> {
    let (at, _) = area.locate(area.superblock)?;
    let bytes = parts.read_log(area, at, 1).await?;
    let blocks = area.journal_blocks();
    JournalSuperblock::parse(&bytes, parts.block_size, blocks)
        .map_err(|error| EngineError::BadJournal { why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_live_records_until_its_last_transaction_leaves_the_log() {
        let mut live = LiveRecords::default();
        let [first, second] = [TransactionId(u32::MAX), TransactionId(0)];
        live.add(first, vec![HomeBlock(1), HomeBlock(2)]);
        live.add(second, vec![HomeBlock(2)]);
        live.release_before(second);
        assert_eq!((live.contains(HomeBlock(1)), live.contains(HomeBlock(2)), live.len()), (false, true, 1));
        live.release_before(second.next());
        assert_eq!(live.len(), 0);
    }

    /// What `docs/MOUNT_OPTIONS.md` says that a record takes of memory.
    const BYTES_A_RECORD: usize = 64;

    impl LiveRecords {
        /// Of the table: a pair and a byte for each place, of which an eighth stays empty.
        fn bytes(&self) -> usize {
            let places = self.latest.capacity().div_ceil(7) * 8;
            let lists =
                self.transactions.iter().map(|(_, blocks)| blocks.capacity() * size_of::<HomeBlock>());
            let entries = self.transactions.capacity() * size_of::<(TransactionId, Vec<HomeBlock>)>();
            places * (size_of::<(HomeBlock, TransactionId)>() + 1) + lists.sum::<usize>() + entries
        }
    }

    #[test]
    fn a_record_in_the_log_takes_no_more_memory_than_the_manual_says() {
        let mut live = LiveRecords::default();
        let mut records = 0;
        // Tables have just grown where they are dearest.
        for (transaction, count) in
            (1..).zip([7, 1, 57, 1000, 15_000, 40_000, 58_000].into_iter().cycle().take(40))
        {
            live.add(TransactionId(transaction), (records..records + count).map(HomeBlock).collect());
            records += count;
            if records > 100 {
                let (bytes, most) = (live.bytes(), records as usize * BYTES_A_RECORD);
                assert!(bytes <= most, "{records} records: {bytes} bytes");
            }
        }
        assert!(live.bytes() > records as usize * BYTES_A_RECORD / 4, "the count misses most of it");
        live.release_before(TransactionId(41));
        assert_eq!(live.len(), 0);
    }
}
