//! A transaction and its four states, each its own type, so that a wrong state cannot be written down.
//!
//! Only addresses and ranges are kept here: the bytes stay in the cache (`Rc<Buffer>`, copied on write), and
//! `plan_commit` asks for them once, at the moment of locking.

use crate::log_space::LogRuns;
use crate::ranges::RangeSet;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use units::{BlockRange, BlockSize, HomeBlock, InodeNumber, Instant, TransactionId};

/// How a block is recorded in the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// The whole block, as a regular block.
    Whole,
    /// These bytes, in multiwrite blocks. `base_zero`: all others are zeros, whatever home holds.
    Bytes { ranges: RangeSet, base_zero: bool },
}

/// The one transaction that handles may join.
#[derive(Debug)]
pub struct RunningTransaction {
    id: TransactionId,
    started: Instant,
    block_size: BlockSize,
    open_handles: u32,
    /// Sum of the credits of open handles: metadata blocks they may still add.
    credits: u32,
    handles: u64,
    metadata: HashMap<HomeBlock, RangeSet>,
    data: HashMap<HomeBlock, Record>,
    home_data: BTreeMap<InodeNumber, BTreeSet<HomeBlock>>,
    revoked: HashSet<HomeBlock>,
    /// Upper bound of the fragments of all `Record::Bytes`, and of their bytes.
    fragments: u64,
    fragment_bytes: u64,
    /// Data blocks that are `Record::Whole`.
    whole_data: u64,
    payload: u64,
}

/// No handle can join any more; nothing changes any more.
#[derive(Debug)]
pub struct LockedTransaction {
    pub(crate) id: TransactionId,
    pub(crate) started: Instant,
    pub(crate) handles: u64,
    pub(crate) metadata: BTreeMap<HomeBlock, RangeSet>,
    pub(crate) data: BTreeMap<HomeBlock, Record>,
    pub(crate) home_data: BTreeMap<InodeNumber, BTreeSet<HomeBlock>>,
    pub(crate) revoked: BTreeSet<HomeBlock>,
    pub(crate) payload: u64,
}

/// Its commit plan is being carried out.
#[derive(Debug)]
pub struct CommittingTransaction {
    id: TransactionId,
    runs: LogRuns,
    records: Vec<(HomeBlock, Coverage)>,
    revoked: Vec<HomeBlock>,
}

/// Its commit block is durable.
#[derive(Clone, Debug)]
pub struct CommittedTransaction {
    pub id: TransactionId,
    /// The log blocks it takes; `None` if it had nothing to log.
    pub runs: LogRuns,
    /// What it logged, sorted by block.
    pub records: Vec<(HomeBlock, Coverage)>,
    pub revoked: Vec<HomeBlock>,
}

/// Whether replaying a record needs any older one of the same block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coverage {
    /// A whole block, or bytes on a base of zeros: older records no longer matter.
    Whole,
    Fragment,
}

impl RunningTransaction {
    pub fn new(id: TransactionId, started: Instant, block_size: BlockSize) -> RunningTransaction {
        RunningTransaction {
            id,
            started,
            block_size,
            open_handles: 0,
            credits: 0,
            handles: 0,
            metadata: HashMap::new(),
            data: HashMap::new(),
            home_data: BTreeMap::new(),
            revoked: HashSet::new(),
            fragments: 0,
            fragment_bytes: 0,
            whole_data: 0,
            payload: 0,
        }
    }
    pub fn id(&self) -> TransactionId {
        self.id
    }
    pub fn started(&self) -> Instant {
        self.started
    }
    pub fn open_handles(&self) -> u32 {
        self.open_handles
    }
    /// Handles that have joined, open or stopped.
    pub fn handles(&self) -> u64 {
        self.handles
    }
    /// Nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.metadata.is_empty()
            && self.data.is_empty()
            && self.home_data.is_empty()
            && self.revoked.is_empty()
    }

    /// A handle joins and reserves `credits` metadata blocks.
    pub fn open_handle(&mut self, credits: u32) {
        self.open_handles += 1;
        self.handles += 1;
        self.credits += credits;
    }
    /// An open handle reserves `credits` more.
    pub fn extend_handle(&mut self, credits: u32) {
        self.credits += credits;
    }
    /// A handle stops and gives back the `credits` it reserved and has not used.
    pub fn close_handle(&mut self, credits: u32) {
        self.open_handles = self.open_handles.checked_sub(1).expect("an open handle");
        self.credits = self.credits.checked_sub(credits).expect("credits reserved by this handle");
    }
    /// An open handle has used `credits` of its reservation (a metadata block is now counted by itself).
    pub fn use_credits(&mut self, credits: u32) {
        self.credits = self.credits.checked_sub(credits).expect("credits reserved by this handle");
    }

    /// `range` of a metadata block changed. True if the block was not yet part of this transaction.
    pub fn add_metadata(&mut self, block: HomeBlock, range: BlockRange) -> bool {
        self.drop_data(block);
        // Allocated again after all: its copy in this transaction counts, older ones stay hidden by the
        // revoke only if it is written, so it must be logged whole, which metadata is.
        self.revoked.remove(&block);
        match self.metadata.entry(block) {
            std::collections::hash_map::Entry::Occupied(mut found) => {
                found.get_mut().insert(range);
                false
            }
            std::collections::hash_map::Entry::Vacant(empty) => {
                empty.insert(RangeSet::of(range));
                true
            }
        }
    }

    /// `range` of a data block changed and is to be logged as bytes. `base_zero`: every other byte of the
    /// block became zero by this very change.
    pub fn add_data_bytes(&mut self, block: HomeBlock, range: BlockRange, base_zero: bool) {
        todo!()
    }
    /// A data block changed (`bytes` of it) and is to be logged as it will be when the transaction is locked.
    pub fn add_data_block(&mut self, block: HomeBlock, bytes: u64) {
        todo!()
    }
    /// A data block of `inode` must be home before this transaction commits.
    pub fn add_home_data(&mut self, inode: InodeNumber, block: HomeBlock, bytes: u64) {
        todo!()
    }
    /// A block that was to go home before the commit is there already (write-back was faster), as far as
    /// updates up to now go.
    pub fn home_data_written(&mut self, inode: InodeNumber, block: HomeBlock) {
        todo!()
    }
    /// The block is free from this transaction on. Drops what the transaction had to write of it; `logged`
    /// (older records of it may be in the log; if unknown, true) revokes them.
    pub fn free(&mut self, block: HomeBlock, logged: bool) {
        todo!()
    }

    /// Upper bound of the log blocks that committing now would take, with all credits of open handles used.
    pub fn log_blocks_bound(&self) -> u32 {
        todo!()
    }
    /// The bound if `credits` metadata blocks, and `fragments` fragments of `bytes` in all, were added.
    pub fn log_blocks_bound_with(&self, credits: u32, fragments: u64, bytes: u64) -> u32 {
        todo!()
    }

    /// No handle may be open. What was hashed is now sorted.
    pub fn lock(self) -> LockedTransaction {
        assert_eq!(self.open_handles, 0, "a transaction is locked only when its handles have stopped");
        todo!()
    }
    fn drop_data(&mut self, block: HomeBlock) {
        todo!()
    }
}

impl LockedTransaction {
    pub fn id(&self) -> TransactionId {
        self.id
    }
    pub fn started(&self) -> Instant {
        self.started
    }
    pub fn handles(&self) -> u64 {
        self.handles
    }
    /// Every block whose image the commit needs, sorted within each kind.
    pub fn metadata(&self) -> impl Iterator<Item = HomeBlock> + '_ {
        self.metadata.keys().copied()
    }
    pub fn data(&self) -> impl Iterator<Item = (HomeBlock, &Record)> + '_ {
        self.data.iter().map(|(block, record)| (*block, record))
    }
    pub fn home_data(&self) -> impl Iterator<Item = (InodeNumber, HomeBlock)> + '_ {
        self.home_data.iter().flat_map(|(inode, blocks)| blocks.iter().map(|block| (*inode, *block)))
    }
    pub fn revoked(&self) -> impl Iterator<Item = HomeBlock> + '_ {
        self.revoked.iter().copied()
    }
    /// Bytes of file data that callers wrote in this transaction.
    pub fn payload(&self) -> u64 {
        self.payload
    }
    /// Nothing to write: it is committed as it stands.
    pub fn is_empty(&self) -> bool {
        self.metadata.is_empty()
            && self.data.is_empty()
            && self.home_data.is_empty()
            && self.revoked.is_empty()
    }
    /// The plan has been made and is being carried out; the plan's `runs` are the log blocks it takes.
    pub fn start_commit(self, runs: LogRuns) -> CommittingTransaction {
        todo!()
    }
}

impl CommittingTransaction {
    pub fn id(&self) -> TransactionId {
        self.id
    }
    /// The plan has been carried out to its last barrier.
    pub fn committed(self) -> CommittedTransaction {
        CommittedTransaction { id: self.id, runs: self.runs, records: self.records, revoked: self.revoked }
    }
}
