//! What the engine knows of the log: its superblock, its free space, and which home blocks have records in it.

use crate::cache::BlockMap;
use crate::error::EngineError;
use crate::options::{EngineParts, LogArea};
use crate::tail::TailState;
use device::{Buffer, Durability};
use format::jbd2::{JournalSuperblock, RevokeBlock};
use journal::{Checkpoint, CircularLog, FormatOptions, LogSpace};
use std::collections::VecDeque;
use std::rc::Rc;
use units::{BlockSize, HomeBlock, LogBlock, Timestamp, TransactionId};

/// `EIO`, as the journal superblock records it after an abort.
pub(crate) const ERRNO_IO: i32 = -5;

pub(crate) struct LogState {
    /// As on disk: a change is put here only when it has been written, because an abort writes this once more.
    pub superblock: JournalSuperblock,
    pub superblock_at: LogBlock,
    pub space: CircularLog,
    pub checkpoint: Checkpoint,
    pub format: FormatOptions,
    /// The first transaction of the log as the superblock **on disk** has it.
    pub disk_tail: TransactionId,
    pub tail: TailState,
    /// The superblock on disk says where the log begins. Before the first commit it says that the log is empty.
    pub started: bool,
    pub live: LiveRecords,
}

impl LogState {
    /// A clean log, to be written in the format that the options ask for.
    pub fn new(mut superblock: JournalSuperblock, parts: &EngineParts, area: &LogArea) -> LogState {
        let options = &parts.options;
        let whole = options.transaction_checksum && options.journal_checksum;
        let extended = options.data.is_extended() || whole || options.keep_others_out;
        // Block numbers beyond 32 bits need wide tags.
        let wide = superblock.is_wide() || parts.volume_blocks > u64::from(u32::MAX);
        superblock.set_log_format(options.journal_checksum, wide, extended);
        superblock.errno = 0;
        let next = superblock.next_transaction();
        let space = CircularLog::new(superblock.first, superblock.log_end());
        LogState {
            superblock_at: area.superblock,
            checkpoint: Checkpoint::new(next, space.head()),
            format: FormatOptions {
                block_size: parts.block_size,
                checksums: options.journal_checksum,
                wide,
                extended,
                uuid: superblock.uuid,
                commit_time: Timestamp::default(),
            },
            superblock,
            space,
            disk_tail: next,
            tail: TailState::default(),
            started: false,
            live: LiveRecords::default(),
        }
    }

    /// From now on the superblock on disk says where the log begins: with `first`, which is still to come.
    pub fn start(&mut self, first: TransactionId) {
        self.started = true;
        self.superblock.set_tail(first, self.space.head());
    }
    /// Most log blocks that one transaction may take (as JBD2: a quarter, so that the next one and a
    /// checkpoint fit beside it).
    pub fn transaction_limit(&self) -> u32 {
        self.space.capacity() / 4
    }
    /// Log blocks to keep free for revokes, for which handles have no credits: enough to revoke every block that
    /// the log has records of. At most a sixteenth, so that it and the largest transaction stay below what
    /// `is_short` leaves: whoever waits for space then gets it.
    pub fn revoke_reserve(&self) -> u32 {
        let per_block = RevokeBlock::capacity(&self.superblock.layout());
        (self.live.len().div_ceil(per_block) as u32).min(self.space.capacity() / 16)
    }
    /// Time to write the oldest transactions home: between a quarter and a half is left.
    pub fn is_short(&self) -> bool {
        self.space.free() < self.space.capacity() / 8 * 3
    }
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
    pub fn contains(&self, block: HomeBlock) -> bool {
        self.latest.contains_key(&block)
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
    area: &LogArea,
    block_size: BlockSize,
) -> Result<JournalSuperblock, EngineError> {
    let (at, _) = area.locate(area.superblock)?;
    let bytes = area.disk.read(at << block_size.shift(), block_size.bytes()).await?;
    let blocks = area.extents.last().map_or(0, |last| u64::from(last.first.get()) + u64::from(last.count));
    JournalSuperblock::parse(&bytes, block_size, blocks)
        .map_err(|error| EngineError::BadJournal { why: error.to_string() })
}

/// Writes the journal superblock, durably unless barriers are off.
pub(crate) async fn write_superblock(
    area: &LogArea,
    superblock: &JournalSuperblock,
    durability: Durability,
) -> Result<(), EngineError> {
    let (at, _) = area.locate(area.superblock)?;
    let place = at << superblock.block_size.shift();
    Ok(area.disk.write(place, vec![image_of(superblock)], durability).await?)
}
