use super::decide::{Decision, Facts, decide};
use super::{Pass, PassCounts, RecoverError};
use crate::log_space::{LogWalk, Ring};
use format::jbd2::{
    BlockHeader, BlockType, CommitBlock, DescriptorBlock, FormatError, JournalSuperblock, LogLayout, Packing,
    Seed, WholeTransaction, ancient_checksum, live_fast_commit,
};
use std::collections::VecDeque;
use std::rc::Rc;
use units::{LogBlock, Timestamp, TransactionId};

/// Ids left out after recovery: no later scan may take what lies behind the end of this log for its own.
const IDS_SKIPPED: u32 = 16;
/// No transaction takes more than a quarter of the log, and a sixteenth for its revokes.
const TRANSACTION_SHARE_MAX: u32 = 2;

/// First pass: finds the last committed transaction. Verifies every checksum there is.
///
/// Where the log seems to end it looks ahead, as far as one transaction may reach: a commit begins when the one
/// before it is durable, so whatever belongs to a later transaction proves that this one was committed, and that what
/// ended the log is damage. Blocks of earlier rounds of the log have smaller ids, and logged blocks never begin like
/// a journal block. Without checksums a block proves nothing, and the log ends.
pub struct ScanPass {
    log: Rc<dyn LogWalk>,
    layout: LogLayout,
    has_ancient_checksum: bool,
    fast_commits: Option<LogBlock>,
    state: State,
    until_damage: bool,
    at: LogBlock,
    /// Blocks of the log not yet read: at most one turn round it.
    unread: u32,
    /// The latest transaction of which there is anything.
    latest: TransactionId,
    open: OpenTransaction,
    last_commit_time: Option<Timestamp>,
    scanned: Scanned,
    counts: PassCounts,
}

/// What the scan found. Bounded by the log.
#[derive(Clone, Debug)]
pub struct Scanned {
    /// The first transaction of the log and the first that is not committed.
    pub first: TransactionId,
    pub end: TransactionId,
    /// The id that the next new transaction must have.
    pub next: TransactionId,
    pub(super) log: Rc<dyn LogWalk>,
    pub(super) layout: LogLayout,
    pub(super) transactions: Vec<ScannedTransaction>,
}

#[derive(Clone, Debug)]
pub(super) struct ScannedTransaction {
    pub id: TransactionId,
    pub descriptors: Vec<LogBlock>,
    pub revokes: Vec<LogBlock>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Log,
    /// Looks for later transactions, in this many more blocks.
    Ahead(u32),
    FastCommits(LogBlock),
    Over,
}

/// The transaction whose commit block has not been found yet.
struct OpenTransaction {
    found: ScannedTransaction,
    whole: WholeTransaction,
    ancient: u32,
    /// The first thing that is not as its checksum says.
    fault: Option<(LogBlock, String)>,
    /// Of the logged blocks that follow: the first tag's checksum test.
    logged: VecDeque<format::jbd2::BlockTag>,
    counts: PassCounts,
}

impl OpenTransaction {
    fn new(id: TransactionId, seed: Seed) -> OpenTransaction {
        OpenTransaction {
            found: ScannedTransaction { id, descriptors: Vec::new(), revokes: Vec::new() },
            whole: WholeTransaction::new(seed, id),
            ancient: !0,
            fault: None,
            logged: VecDeque::new(),
            counts: PassCounts::default(),
        }
    }
    fn fault(&mut self, at: LogBlock, what: &str) {
        self.fault.get_or_insert_with(|| (at, what.to_owned()));
    }
}

impl ScanPass {
    /// Of a journal whose superblock is clean, nothing is read.
    pub fn new(superblock: &JournalSuperblock) -> Result<ScanPass, RecoverError> {
        let (log, layout): (Rc<dyn LogWalk>, _) = (Rc::new(Ring::of(superblock)), superblock.layout());
        let (first, clean) = (superblock.sequence, superblock.is_clean());
        let next = if clean { superblock.next_transaction() } else { first };
        Ok(ScanPass {
            unread: log.blocks(),
            log: log.clone(),
            layout,
            has_ancient_checksum: superblock.has_ancient_checksum(),
            fast_commits: superblock.fast_commit_start(),
            state: if clean { State::Over } else { State::Log },
            until_damage: false,
            at: superblock.start,
            latest: first,
            open: OpenTransaction::new(first, layout.seed),
            last_commit_time: None,
            scanned: Scanned { first, end: first, next, log, layout, transactions: Vec::new() },
            counts: PassCounts::default(),
        })
    }

    /// Whether a damaged log ends before the damage, and what was committed behind it is given up.
    pub fn until_damage(self, until_damage: bool) -> ScanPass {
        ScanPass { until_damage, ..self }
    }

    /// Call it when nothing is wanted any more.
    pub fn finish(self) -> Scanned {
        assert_eq!(self.state, State::Over, "the scan is not over");
        self.scanned
    }

    fn advance(&mut self) {
        self.unread -= 1;
        match self.log.next(self.at) {
            Some(next) if self.unread > 0 => self.at = next,
            // A whole turn: a log never is that full.
            _ => self.end(),
        }
    }

    fn end(&mut self) {
        let end = self.open.found.id;
        if end.is_after(self.latest) {
            self.latest = end;
        }
        self.scanned.end = end;
        self.scanned.next = TransactionId(self.latest.0.wrapping_add(1 + IDS_SKIPPED));
        self.state = self.fast_commits.map_or(State::Over, State::FastCommits);
    }

    /// Whether the log seems to have ended, and what is read tells only if that is damage.
    pub fn looks_ahead(&self) -> bool {
        matches!(self.state, State::Ahead(_))
    }

    /// The log ends with this `block`, or it is damaged: what lies ahead tells.
    fn look_ahead(&mut self, block: &[u8]) -> Result<(), RecoverError> {
        let reach = match self.until_damage {
            // Not a reason to refuse, but no id may be used again.
            true => self.log.blocks(),
            false if self.layout.has_checksums() => self.log.blocks() / TRANSACTION_SHARE_MAX,
            false => 0,
        };
        self.state = State::Ahead(reach.min(self.unread));
        self.give_ahead(block)
    }

    fn give_ahead(&mut self, block: &[u8]) -> Result<(), RecoverError> {
        let State::Ahead(left) = self.state else { panic!("nothing is looked for") };
        if left == 0 {
            self.end();
            return Ok(());
        }
        if let Some(found) = self.proves_commit(block) {
            if !self.until_damage {
                let (at, what) = self.open.fault.take().expect("what is wrong was noted");
                return Err(RecoverError::Damaged { at, transaction: self.open.found.id, what });
            }
            if found.is_after(self.latest) {
                self.latest = found;
            }
        }
        match self.log.next(self.at) {
            Some(next) if left > 1 => (self.at, self.state) = (next, State::Ahead(left - 1)),
            _ => self.end(),
        }
        Ok(())
    }

    /// The transaction of `block`, if there would be no such block had the open transaction not been durable: one of
    /// a later transaction; in a plain log its own commit block, too. But there only commit blocks count, by whose
    /// time what an older journal of the volume left behind is known (the kernel may have made a new one over it).
    fn proves_commit(&self, block: &[u8]) -> Option<TransactionId> {
        let header = BlockHeader::parse(block)?;
        let ahead = header.transaction.0.wrapping_sub(self.open.found.id.0);
        let proves = match header.kind? {
            BlockType::Descriptor | BlockType::Revoke => {
                ahead > 0 && (self.layout.multiwrite || self.until_damage) && self.layout.is_intact(block)
            }
            BlockType::Commit => {
                let commit = CommitBlock::parse(block, &self.layout)?;
                (ahead > 0 || !self.layout.multiwrite) && !self.goes_back(commit)
            }
            BlockType::SuperblockV1 | BlockType::SuperblockV2 => false,
        };
        (proves && ahead <= self.log.blocks()).then_some(header.transaction)
    }

    /// Whether the commit time lies before that of the last transaction: what an older journal left behind.
    fn goes_back(&self, commit: CommitBlock) -> bool {
        self.last_commit_time.is_some_and(|last| commit.time.seconds < last.seconds)
    }

    fn give_logged(&mut self, tag: format::jbd2::BlockTag, block: &[u8]) {
        let sum = self.layout.seed.of_logged_block(self.open.found.id, block);
        if !tag.matches(sum, &self.layout) {
            self.open.fault(self.at, &format!("the checksum of the copy of {} is wrong", tag.home));
        }
        self.sum(block);
        if self.has_ancient_checksum {
            self.open.ancient = ancient_checksum(self.open.ancient, block);
        }
        self.advance();
    }

    fn give_header(&mut self, block: &[u8]) -> Result<(), RecoverError> {
        let header = BlockHeader::parse(block);
        let kind = header.and_then(|header| header.kind);
        let commit = CommitBlock::parse(block, &self.layout);
        let facts = self.facts(header, commit, block);
        match decide(facts) {
            Decision::End => {
                self.open.fault(self.at, why_it_ends(facts));
                return self.look_ahead(block);
            }
            Decision::GoOn if kind == Some(BlockType::Descriptor) => return self.descriptor(block),
            Decision::GoOn => return self.revoke(block),
            Decision::Committed => {
                self.last_commit_time = commit.map(|commit| commit.time);
                self.committed();
                self.advance();
            }
            Decision::Damaged if self.until_damage => return self.look_ahead(block),
            Decision::Damaged => {
                let (at, what) = self.open.fault.take().expect("what is wrong was noted");
                return Err(RecoverError::Damaged { at, transaction: self.open.found.id, what });
            }
        }
        Ok(())
    }

    fn facts(&self, header: Option<BlockHeader>, commit: Option<CommitBlock>, block: &[u8]) -> Facts {
        let kind = header.and_then(|header| header.kind);
        let in_log = [BlockType::Descriptor, BlockType::Revoke, BlockType::Commit];
        let is_commit = kind == Some(BlockType::Commit);
        let whole = commit.and_then(|commit| commit.whole);
        let ancient = !is_commit
            || !self.has_ancient_checksum
            || CommitBlock::matches_ancient(block, self.open.ancient);
        Facts {
            known: kind.is_some_and(|kind| in_log.contains(&kind)),
            sequence: header.is_some_and(|header| header.transaction == self.open.found.id),
            commit: is_commit,
            commit_intact: commit.is_some(),
            transaction_sum: ancient && whole.is_none_or(|sum| sum == self.open.whole.sum()),
            body_intact: self.open.fault.is_none(),
            time_goes_back: commit.is_some_and(|commit| self.goes_back(commit)),
        }
    }

    fn descriptor(&mut self, block: &[u8]) -> Result<(), RecoverError> {
        if !self.layout.is_intact(block) {
            self.open.fault(self.at, "the checksum of its descriptor block is wrong");
            return self.look_ahead(block);
        }
        let descriptor = match DescriptorBlock::parse(block, &self.layout, self.at) {
            Ok(descriptor) => descriptor,
            // A block that is as it was written and that we do not understand is no torn one.
            Err(error) if self.layout.has_checksums() => return Err(error.into()),
            Err(_) => {
                self.end();
                return Ok(());
            }
        };
        let mut packing = Packing::new(self.layout.block_size);
        let counts = &mut self.open.counts;
        for tag in descriptor.tags {
            let begins = packing.place(&tag).begins_block();
            if begins {
                self.open.logged.push_back(tag);
            }
            match tag.fragment {
                Some(_) => {
                    counts.fragment_records += 1;
                    counts.multiwrite_blocks += u64::from(begins);
                }
                None => {
                    (counts.whole_records, counts.regular_blocks) =
                        (counts.whole_records + 1, counts.regular_blocks + 1)
                }
            }
        }
        counts.descriptors += 1;
        self.open.found.descriptors.push(self.at);
        self.sum(block);
        if self.has_ancient_checksum {
            self.open.ancient = ancient_checksum(self.open.ancient, block);
        }
        self.advance();
        Ok(())
    }

    fn revoke(&mut self, block: &[u8]) -> Result<(), RecoverError> {
        if !self.layout.is_intact(block) {
            self.open.fault(self.at, "the checksum of its revoke block is wrong");
            return self.look_ahead(block);
        }
        self.open.counts.revoke_blocks += 1;
        self.open.found.revokes.push(self.at);
        self.sum(block);
        self.advance();
        Ok(())
    }

    fn sum(&mut self, block: &[u8]) {
        if self.layout.multiwrite {
            self.open.whole.add(block);
        }
    }

    fn committed(&mut self) {
        let next = OpenTransaction::new(self.open.found.id.next(), self.layout.seed);
        let done = std::mem::replace(&mut self.open, next);
        let counts = &mut self.counts;
        counts.transactions += 1;
        counts.commit_blocks += 1;
        counts.descriptors += done.counts.descriptors;
        counts.revoke_blocks += done.counts.revoke_blocks;
        counts.multiwrite_blocks += done.counts.multiwrite_blocks;
        counts.regular_blocks += done.counts.regular_blocks;
        counts.whole_records += done.counts.whole_records;
        counts.fragment_records += done.counts.fragment_records;
        self.scanned.transactions.push(done.found);
    }
}

impl Pass for ScanPass {
    fn wants(&self) -> Option<LogBlock> {
        match self.state {
            State::Log | State::Ahead(_) => Some(self.at),
            State::FastCommits(at) => Some(at),
            State::Over => None,
        }
    }

    fn give(&mut self, block: &[u8]) -> Result<(), RecoverError> {
        check_size(block, &self.layout, self.at)?;
        self.counts.log_blocks_read += 1;
        match self.state {
            State::Log => match self.open.logged.pop_front() {
                Some(tag) => self.give_logged(tag, block),
                None => self.give_header(block)?,
            },
            State::Ahead(_) => self.give_ahead(block)?,
            State::FastCommits(_) => {
                self.state = State::Over;
                if live_fast_commit(block, self.scanned.end) {
                    return Err(RecoverError::FastCommits { transaction: self.scanned.end });
                }
            }
            State::Over => panic!("no block was wanted"),
        }
        Ok(())
    }

    fn counts(&self) -> PassCounts {
        self.counts
    }
}

/// Of facts that end the log.
fn why_it_ends(facts: Facts) -> &'static str {
    match facts {
        Facts { known: true, sequence: true, commit_intact: false, .. } => {
            "the checksum of its commit block is wrong"
        }
        Facts { known: true, sequence: true, .. } => "the checksum of the whole transaction is wrong",
        _ => "this block is none of it",
    }
}

pub(super) fn check_size(block: &[u8], layout: &LogLayout, at: LogBlock) -> Result<(), FormatError> {
    if block.len() == layout.block_size.bytes() {
        return Ok(());
    }
    Err(FormatError::Block {
        at,
        what: "log block",
        why: format!("{} bytes instead of a block", block.len()),
    })
}
