//! HOW a transaction is written. A record format makes the bytes of the log from a locked
//! transaction. In the bytes of a log it finds transactions and their records again.
//!
//! Planner (`commit`) and recovery (`recover`) know records, not formats. A format knows neither
//! the order of writes, nor where the log lies, nor what is home. Invariants of every format:
//! 1. A transaction is a sequence of log blocks of [`Records::block_bytes`] each, without gaps in
//!    the log's own order. Each transaction follows the one before it, or a gap that the log has
//!    left: then [`Scanner::begins`] finds it. The last block completes it.
//! 2. [`LogContent::Sealed`] promises that a checksum over the whole transaction distinguishes a
//!    torn one from a whole one. A format that cannot promise this returns [`LogContent::InTwo`],
//!    and gets a barrier before the block that commits.
//! 3. A scan returns what was written: the same home blocks, bytes and revokes, in the same order.
//!    Records of one block in one transaction replay in the order in which they come.
//! 4. [`Records::log_blocks_bound`] is never less than what the writer makes. Handles reserve by
//!    it, so a commit never finds the log too short.
//! 5. Remains in the log of earlier wraps, or of another journal, are never taken for a
//!    transaction. Blocks carry the transaction's id, and checksums the journal's identity.
//! 6. [`Scanner::ahead`] returns *proves* only for blocks that could not exist had the open
//!    transaction not been durable. With one commit at a time any later transaction proves that. A
//!    format for overlapping commits records up to which transaction everything was durable when it
//!    was issued ([`CommitStamp::durable`]), and proves just that.
//! 7. No input is trusted: no block makes a reader panic, loop, or hold more than the length of the
//!    log.

pub mod blocks;
mod choose;
pub mod packed;

pub use choose::{RecordFormat, RecordsWanted, begin, clear, is_written_so, of};

use crate::pass_outcome::{PassCounts, RecoverError};
use crate::plan::{BlockKind, blocks_in};
use crate::ranges::RangeSet;
use crate::transaction::{Coverage, Holdings, LockedTransaction};
use device::Buffer;
use std::fmt;
use std::rc::Rc;
use units::{BlockRange, HomeBlock, LogBlock, Timestamp, TransactionId};

/// Log blocks in log order, each with its kind. A buffer holds one, or several of a kind.
pub type LogBlocks = Vec<(BlockKind, Rc<Buffer>)>;

/// Returns the content of a block as of the locking of the transaction; for a block recorded as
/// bytes, only those need be right.
pub type Images<'a> = &'a dyn Fn(HomeBlock) -> Rc<Buffer>;

/// Blocks that a transaction logs whole, so that they can be read there again
/// ([`Records::read_whole`]): at which byte of its log blocks each begins. Not all need be listed.
pub type WholeBlocks = Vec<(HomeBlock, u64)>;

/// Position of a whole block in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WholeBlockLocation {
    /// The log block in which the block begins, and the byte in that. No log block is longer than
    /// 64 KiB.
    pub at: LogBlock,
    pub offset: u16,
}

/// State at the moment when a transaction's records were made, which they record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommitStamp {
    pub time: Timestamp,
    /// Last transaction that, with all before it, is durable in the log or home.
    pub durable: TransactionId,
}

/// The log blocks of one transaction.
#[derive(Debug)]
pub enum LogContent {
    /// A single write: if torn, it commits nothing.
    Sealed(LogBlocks),
    /// The body must be durable before `commit` is written.
    InTwo { body: LogBlocks, commit: LogBlocks },
}

impl LogContent {
    /// Returns the number of log blocks of `unit` bytes.
    pub fn count(&self, unit: usize) -> u32 {
        match self {
            LogContent::Sealed(blocks) => blocks_in(blocks, unit),
            LogContent::InTwo { body, commit } => blocks_in(body, unit) + blocks_in(commit, unit),
        }
    }
}

/// Makes the log blocks of a transaction, which may be many: then others run in between.
pub trait RecordWriter {
    /// Writes what about `blocks` more blocks need. Returns whether anything is left.
    fn write_some(&mut self, images: Images, blocks: usize) -> bool;
    /// Writes what is left. Returns all log blocks, and where they hold blocks whole, in any order.
    fn finish(self: Box<Self>, images: Images) -> (LogContent, WholeBlocks);
}

pub trait Records: fmt::Debug {
    /// Returns the bytes of a log block.
    fn block_bytes(&self) -> usize;
    /// Returns the bytes of memory that the writer takes for each log block that it makes.
    fn block_memory(&self) -> usize {
        self.block_bytes()
    }
    /// Whether parts of blocks can be recorded; otherwise a policy must not log any
    /// ([`crate::Policy::logs_bytes`]).
    fn holds_parts(&self) -> bool;
    /// Whether a block that is logged whole enters the log as its image, which needs no memory of
    /// its own.
    fn logs_images(&self) -> bool {
        false
    }
    /// Returns what makes the log blocks of a transaction that is not empty.
    fn writer<'a>(
        &self,
        transaction: &'a LockedTransaction,
        stamp: &CommitStamp,
    ) -> Box<dyn RecordWriter + 'a>;
    /// Returns how many log blocks hold `bytes` bytes of a block that begins at byte `offset` of
    /// the first of them.
    fn blocks_of_whole(&self, offset: usize, bytes: usize) -> u32 {
        (offset + bytes).div_ceil(self.block_bytes()) as u32
    }
    /// Reads a block again that is whole in `log`, these log blocks, from byte `offset` on. If
    /// there is no such block it gives other bytes: the caller knows a checksum.
    fn read_whole(&self, log: &[u8], offset: usize, block: &mut [u8]) {
        block.copy_from_slice(&log[offset..offset + block.len()]);
    }
    /// Returns what replay of the record of a metadata block needs, of which `ranges` changed.
    fn metadata_coverage(&self, ranges: &RangeSet) -> Coverage;
    /// Returns an upper bound of the log blocks that the writer makes.
    fn log_blocks_bound(&self, holdings: &Holdings) -> u32;
    /// Returns an upper bound of the log blocks that `revokes` revokes add to any transaction.
    fn revoke_blocks_bound(&self, revokes: u64) -> u32;

    /// Returns a scanner of the log of a crashed volume, from the first block of `first` on.
    fn scanner(&self, first: TransactionId) -> Box<dyn Scanner>;
    /// Returns a decoder, which reads again what a scan has found.
    fn decoder(&self) -> Box<dyn Decoder>;
    /// Whether anything ahead of the seeming end of the log can prove that the log is damaged.
    fn proves_commits(&self) -> bool;
    /// Returns a block to be read once the end of the log is known: for what other implementations
    /// keep beside the log.
    fn epilogue(&self) -> Option<LogBlock> {
        None
    }
    /// Checks that block, `block`. `end`: the first transaction that is not committed.
    fn check_epilogue(&self, _end: TransactionId, _block: &[u8]) -> Result<(), RecoverError> {
        Ok(())
    }
}

/// A block of the log, [`Records::block_bytes`] long.
#[derive(Clone, Copy, Debug)]
pub struct LogPiece<'a> {
    pub at: LogBlock,
    pub bytes: &'a [u8],
}

/// State of the log, as far as it has been read.
#[derive(Debug)]
pub enum ScanVerdict {
    /// The block is part of the open transaction, whose end is not known yet.
    GoOn,
    /// The block completes the open transaction; the next one is open.
    Committed(FoundTransaction),
    /// The log ends before the open transaction, unless something ahead proves that this is damage.
    End(RecordFault),
    /// The open transaction was committed, and is no longer what it was.
    Damaged(RecordFault),
}

/// The first fault that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordFault {
    pub at: LogBlock,
    pub what: String,
}

/// Consecutive blocks in the order of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSpan {
    pub at: LogBlock,
    pub blocks: u32,
}

/// A committed transaction: spans to be read again for its revokes, and for its records.
#[derive(Clone, Default, Debug)]
pub struct FoundTransaction {
    pub revokes: Vec<LogSpan>,
    pub records: Vec<LogSpan>,
    pub counts: PassCounts,
}

/// A block that may belong to a later transaction than the open one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockAhead {
    pub transaction: TransactionId,
    /// The open transaction was durable before this block was written.
    pub proves: bool,
}

/// Finds transactions, block by block in log order. Verifies every checksum there is.
pub trait Scanner {
    /// Takes the next block. After [`ScanVerdict::End`] and [`ScanVerdict::Damaged`] only `ahead`
    /// is called.
    fn give(&mut self, piece: LogPiece) -> Result<ScanVerdict, RecoverError>;
    /// Whether the open transaction begins with this block, which need not be where it should.
    fn begins(&self, _block: &[u8]) -> bool {
        false
    }
    /// Examines a block behind the seeming end of the log, or the one that seemed to end it.
    fn ahead(&self, block: &[u8]) -> Option<BlockAhead>;
}

/// Content of a span of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decoded<'a> {
    /// `place`: where the log holds just these bytes, in consecutive log blocks, if known.
    /// `durable_only`: durability is enough for the block's file.
    Whole {
        home: HomeBlock,
        durable_only: bool,
        bytes: &'a [u8],
        place: Option<WholeBlockLocation>,
    },
    /// `base_zero`: all other bytes of the block are zeros, whatever home and older records hold.
    Part {
        home: HomeBlock,
        range: BlockRange,
        bytes: &'a [u8],
        base_zero: bool,
    },
    Revoke(HomeBlock),
}

/// Receives what a decoder finds.
pub type Sink<'a> = &'a mut dyn FnMut(Decoded) -> Result<(), RecoverError>;

/// Reads the spans of a [`FoundTransaction`] again, which may have changed.
pub trait Decoder {
    /// Begins a span of `transaction` with the next block.
    fn begin(&mut self, transaction: TransactionId);
    /// Takes the next block of the span. Records that do not concern the pass may be left out or
    /// passed on.
    fn give(&mut self, piece: LogPiece, sink: Sink) -> Result<(), RecoverError>;
    /// Returns the log blocks seen, by kind.
    fn counts(&self) -> PassCounts;
}
