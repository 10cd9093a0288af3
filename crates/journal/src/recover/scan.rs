use super::{FoundRuns, Pass, PassCounts, RecoverError};
use crate::log_space::{LogRing, LogWalk};
use crate::records::{self, LogPiece, LogSpan, RecordFault, Records, ScanVerdict, Scanner};
use format::jbd2::{JournalFormatError, JournalSuperblock};
use std::collections::BTreeSet;
use std::rc::Rc;
use units::{LogBlock, TransactionId};

/// Ids left out after recovery: no later scan may take what lies behind the end of this log for its
/// own transactions.
const IDS_SKIPPED: u32 = 16;
/// Inverse of the reach as a share of the log: no transaction takes more than a quarter of the log,
/// and a sixteenth for its revokes. Used where the superblock does not record their length.
const TRANSACTION_SHARE_MAX: u32 = 2;
/// Maximum number of transactions in flight at once: as many may follow one without proving that it
/// was durable.
pub const IN_FLIGHT_MAX: u32 = 4;

/// First pass: finds the last committed transaction.
///
/// Where the log seems to end it looks ahead. A commit is issued when one of the few before it is
/// durable. So any block of a later transaction proves that this one was committed, and that damage
/// ended the log. The pass looks as far as these few may reach, given their length in the
/// superblock.
pub struct ScanPass {
    log: Rc<dyn LogWalk>,
    records: Rc<dyn Records>,
    scanner: Box<dyn Scanner>,
    state: State,
    until_damage: bool,
    /// The latest transaction up to which all were durable once, by the record of later ones.
    proven: Option<TransactionId>,
    at: LogBlock,
    /// Beginning of the open transaction, if it directly follows the one before it.
    expected: LogBlock,
    /// The open transaction was sought behind a gap, and is not there.
    has_no_gap: bool,
    /// A block of the gap that cannot be read.
    unreadable: Option<LogBlock>,
    /// Blocks of the log not yet read: at most one wrap.
    unread: u32,
    /// Maximum number of blocks between a transaction and the one before it.
    gap_max: u32,
    /// Distance behind the log's end within which a later transaction proves that this is no end.
    reach: u32,
    /// The transaction whose end has not been found yet, and the latest one of which anything was
    /// found.
    open: TransactionId,
    latest: TransactionId,
    /// Blocks ahead that cannot be read. Each may be of a later transaction.
    ids_unread: u32,
    /// Reason why the log seemed to end.
    fault: Option<RecordFault>,
    scanned: Scanned,
    counts: PassCounts,
}

/// Result of the scan. Bounded by the log.
#[derive(Clone, Debug)]
pub struct Scanned {
    /// The first transaction of the log and the first that is not committed.
    pub first: TransactionId,
    pub end: TransactionId,
    /// The id that the next new transaction must have.
    pub next: TransactionId,
    /// Whether the log was damaged, and what had been committed behind the damage is given up. Home
    /// may hold newer blocks than the log, so e2fsck must be run.
    pub gave_up: bool,
    pub(super) log: Rc<dyn LogWalk>,
    pub(super) records: Rc<dyn Records>,
    pub(super) transactions: Vec<ScannedTransaction>,
}

impl Scanned {
    /// Returns the committed transactions, and the log blocks of each that are read again.
    pub fn transactions(&self) -> impl Iterator<Item = (TransactionId, Vec<LogBlock>)> {
        self.transactions.iter().map(|found| {
            let spans = found.records.iter().chain(&found.revokes);
            let mut seen = BTreeSet::new();
            let blocks = spans.flat_map(|span| self.blocks_of(*span)).filter(|at| seen.insert(*at));
            (found.id, blocks.collect())
        })
    }
    fn blocks_of(&self, span: LogSpan) -> impl Iterator<Item = LogBlock> {
        let blocks = std::iter::successors(Some(span.at), |at| self.log.next(*at));
        blocks.take(span.blocks as usize)
    }
}

/// Spans of a committed transaction that must be read again.
#[derive(Clone, Debug)]
pub(super) struct ScannedTransaction {
    pub id: TransactionId,
    pub revokes: Vec<LogSpan>,
    pub records: Vec<LogSpan>,
}

/// Beginning of a log that is not empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogStart {
    pub transaction: TransactionId,
    pub at: LogBlock,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Log,
    /// Looks for the beginning of the open transaction behind a gap: this many blocks are none.
    Gap(u32),
    /// Looks for later transactions, in this many more blocks.
    Ahead(u32),
    Epilogue(LogBlock),
    Over,
}

impl ScanPass {
    /// Creates the pass. If the journal's superblock is clean, nothing is read.
    pub fn new(superblock: &JournalSuperblock) -> Result<ScanPass, RecoverError> {
        if superblock.scattered.is_some() && !superblock.is_clean() {
            return Err(RecoverError::LogsMissing);
        }
        let (records, log) = (records::of(superblock), Rc::new(LogRing::of(superblock)));
        let (transaction, at) = (superblock.sequence, superblock.start);
        let scan = ScanPass::over(records, log, LogStart { transaction, at });
        let mut scan = scan.behind_gaps(superblock.gap_max());
        if let Some(bound) = superblock.transaction_bound {
            scan.reach = bound.saturating_mul(IN_FLIGHT_MAX + 1);
        }
        Ok(match superblock.is_clean() {
            true => scan.of_nothing(superblock.next_transaction()),
            false => scan,
        })
    }

    /// Creates the pass over scattered logs.
    pub fn over_runs(records: Rc<dyn Records>, found: &FoundRuns) -> ScanPass {
        let (transaction, at) = (found.tail, found.walk.start());
        let start = LogStart { transaction, at: at.unwrap_or(LogBlock(0)) };
        let mut scan = ScanPass::over(records, found.walk.clone(), start);
        (scan.latest, scan.proven, scan.scanned.gave_up) =
            (found.latest, found.proven, found.gave_up);
        if at.is_none() {
            scan.end();
            scan.state = State::Over;
        }
        scan
    }

    /// Creates the pass over a log of any kind.
    pub fn over(records: Rc<dyn Records>, log: Rc<dyn LogWalk>, start: LogStart) -> ScanPass {
        let first = start.transaction;
        ScanPass {
            scanner: records.scanner(first),
            state: State::Log,
            until_damage: false,
            proven: None,
            at: start.at,
            expected: start.at,
            has_no_gap: false,
            unreadable: None,
            unread: log.blocks(),
            gap_max: 0,
            reach: log.blocks() / TRANSACTION_SHARE_MAX,
            open: first,
            latest: first,
            ids_unread: 0,
            fault: None,
            scanned: Scanned {
                first,
                end: first,
                next: first,
                gave_up: false,
                log: log.clone(),
                records: records.clone(),
                transactions: Vec::new(),
            },
            counts: PassCounts::default(),
            log,
            records,
        }
    }

    fn of_nothing(mut self, next: TransactionId) -> ScanPass {
        self.scanned.next = next;
        ScanPass { state: State::Over, ..self }
    }

    /// Sets whether a damaged log ends before the damage, and what was committed behind it is given
    /// up.
    pub fn until_damage(self, until_damage: bool) -> ScanPass {
        ScanPass { until_damage, ..self }
    }

    /// Returns the result. Call it when no block is wanted any more.
    pub fn finish(self) -> Scanned {
        assert_eq!(self.state, State::Over, "the scan is not over");
        let mut scanned = self.scanned;
        if units::fault!("recovery-stops-early") {
            scanned.transactions.pop();
        }
        scanned
    }

    /// Skips the wanted block, which cannot be read. In a gap it may be an old remnant: commits
    /// need not overwrite it. Within a transaction it is damage that may not last, so the log ends
    /// there only if asked to. Returns whether the block was skipped.
    pub fn pass_over(&mut self) -> Result<bool, RecoverError> {
        match self.state {
            State::Log if self.may_begin_later() => self.pass_over_in_gap(0),
            State::Gap(passed) => self.pass_over_in_gap(passed),
            State::Log => self.end_unreadable(self.at).map(|()| true),
            State::Ahead(left) if self.until_damage => {
                self.scanned.gave_up = true;
                self.ids_unread += 1;
                self.go_on_ahead(left);
                Ok(true)
            }
            State::Ahead(_) => self.end_unreadable(self.at).map(|()| true),
            _ => Ok(false),
        }
    }
    fn pass_over_in_gap(&mut self, passed: u32) -> Result<bool, RecoverError> {
        self.unreadable = Some(self.at);
        self.go_on_in_gap(passed).map(|()| true)
    }

    /// Allows transactions to begin up to `most` blocks behind the end of the one before them.
    pub fn behind_gaps(self, most: u32) -> ScanPass {
        ScanPass { gap_max: most, ..self }
    }
    /// Whether the log seems to have ended, and further blocks only decide whether it is damaged.
    pub fn looks_ahead(&self) -> bool {
        matches!(self.state, State::Ahead(_))
    }

    fn give_log(&mut self, block: &[u8]) -> Result<(), RecoverError> {
        if self.may_be_gap(block) {
            return self.go_on_in_gap(0);
        }
        let (transaction, piece) = (self.open, LogPiece { at: self.at, bytes: block });
        match self.scanner.give(piece)? {
            ScanVerdict::GoOn => {
                let at = self.at;
                self.advance();
                if self.state != State::Log && self.is_proven() {
                    return self.damaged(RecordFault { at, what: "it has no end".to_owned() });
                }
            }
            ScanVerdict::Committed(found) => {
                self.counts.transactions += 1;
                self.counts.add(&found.counts);
                let (revokes, records) = (found.revokes, found.records);
                self.scanned.transactions.push(ScannedTransaction {
                    id: transaction,
                    revokes,
                    records,
                });
                self.open = transaction.next();
                self.advance();
                (self.expected, self.has_no_gap) = (self.at, false);
            }
            ScanVerdict::Damaged(fault) => {
                self.damaged(fault)?;
                return self.look_ahead(block);
            }
            ScanVerdict::End(fault) if self.is_proven() => {
                self.damaged(fault)?;
                return self.look_ahead(block);
            }
            ScanVerdict::End(fault) => {
                self.fault = Some(fault);
                return self.look_ahead(block);
            }
        }
        Ok(())
    }

    /// Whether the open transaction should begin with this block, does not, and may do so farther
    /// on.
    fn may_be_gap(&self, block: &[u8]) -> bool {
        self.may_begin_later() && !self.scanner.begins(block)
    }
    /// Whether the wanted block is where the open transaction begins, or where the gap before it
    /// does.
    fn may_begin_later(&self) -> bool {
        self.gap_max > 0
            && self.at == self.expected
            && !self.has_no_gap
            && !units::fault!("gap-ends-log")
    }
    /// Takes a block of a gap. `passed`: blocks from the expected beginning on that do not begin
    /// the open transaction.
    fn give_gap(&mut self, block: &[u8], passed: u32) -> Result<(), RecoverError> {
        if self.scanner.begins(block) {
            (self.state, self.expected, self.unreadable) = (State::Log, self.at, None);
            self.unread -= passed;
            return self.give_log(block);
        }
        self.go_on_in_gap(passed)
    }
    /// Continues in a gap. If no beginning is within reach, the block where it was expected decides
    /// how the log ended.
    fn go_on_in_gap(&mut self, passed: u32) -> Result<(), RecoverError> {
        let passed = passed + 1;
        let next =
            self.log.next(self.at).filter(|_| passed <= self.gap_max && passed < self.unread);
        if let Some(next) = next {
            (self.state, self.at) = (State::Gap(passed), next);
            return Ok(());
        }
        (self.state, self.at, self.has_no_gap) = (State::Log, self.expected, true);
        let Some(at) = self.unreadable.take() else { return Ok(()) };
        if units::fault!("gap-unreadable-ends-log") {
            self.end();
            return Ok(());
        }
        self.end_unreadable(at)
    }
    /// Ends the log in the open transaction, of which `at` cannot be read. An error, unless the log
    /// is to end before the damage.
    fn end_unreadable(&mut self, at: LogBlock) -> Result<(), RecoverError> {
        if !self.until_damage {
            return Err(RecoverError::Unreadable { at, transaction: self.open });
        }
        self.scanned.gave_up = true;
        self.state = State::Ahead(self.log.blocks().min(self.unread));
        Ok(())
    }

    /// Whether the open transaction was durable once.
    fn is_proven(&self) -> bool {
        self.proven.is_some_and(|proven| !self.open.is_after(proven))
    }

    /// Returns an error, unless the log is to end before the damage.
    fn damaged(&mut self, fault: RecordFault) -> Result<(), RecoverError> {
        let RecordFault { at, what } = fault.clone();
        if !self.until_damage {
            return Err(RecoverError::Damaged { at, transaction: self.open, what });
        }
        (self.fault, self.scanned.gave_up) = (Some(fault), true);
        Ok(())
    }

    fn advance(&mut self) {
        self.unread -= 1;
        match self.log.next(self.at) {
            Some(next) if self.unread > 0 => self.at = next,
            // A whole wrap: a log never is that full.
            _ => self.end(),
        }
    }

    fn end(&mut self) {
        if self.open.is_after(self.latest) {
            self.latest = self.open;
        }
        self.scanned.end = self.open;
        let skipped = 1 + IDS_SKIPPED + self.ids_unread;
        self.scanned.next = TransactionId(self.latest.0.wrapping_add(skipped));
        self.state = self.records.epilogue().map_or(State::Over, State::Epilogue);
    }

    /// Looks ahead: the log ends with this `block`, or it is damaged.
    fn look_ahead(&mut self, block: &[u8]) -> Result<(), RecoverError> {
        let reach = match self.until_damage {
            // Not a reason to refuse, but no id may be used again.
            true => self.log.blocks(),
            false if self.records.proves_commits() => self.reach,
            false => 0,
        };
        self.give_ahead(block, reach.min(self.unread))
    }

    /// Takes a block ahead. `left`: how many blocks may still be looked at, this one included.
    fn give_ahead(&mut self, block: &[u8], left: u32) -> Result<(), RecoverError> {
        if left == 0 {
            self.end();
            return Ok(());
        }
        let is_near = |ahead: TransactionId| ahead.0.wrapping_sub(self.open.0) <= self.log.blocks();
        if let Some(found) = self.scanner.ahead(block).filter(|found| is_near(found.transaction)) {
            let ignored = units::fault!("proof-ignored");
            if found.proves && !self.until_damage && !ignored {
                let RecordFault { at, what } =
                    self.fault.take().expect("why the log seemed to end");
                return Err(RecoverError::Damaged { at, transaction: self.open, what });
            }
            self.scanned.gave_up |= found.proves;
            if self.until_damage && found.transaction.is_after(self.latest) {
                self.latest = found.transaction;
            }
        }
        self.go_on_ahead(left);
        Ok(())
    }
    fn go_on_ahead(&mut self, left: u32) {
        match self.log.next(self.at) {
            Some(next) if left > 1 => (self.at, self.state) = (next, State::Ahead(left - 1)),
            _ => self.end(),
        }
    }
}

impl Pass for ScanPass {
    fn wants(&self) -> Option<LogBlock> {
        match self.state {
            State::Log | State::Gap(_) | State::Ahead(_) => Some(self.at),
            State::Epilogue(at) => Some(at),
            State::Over => None,
        }
    }

    fn give(&mut self, block: &[u8]) -> Result<(), RecoverError> {
        check_size(block, &*self.records, self.at)?;
        self.counts.log_blocks_read += 1;
        match self.state {
            State::Log => self.give_log(block),
            State::Gap(passed) => self.give_gap(block, passed),
            State::Ahead(left) => self.give_ahead(block, left),
            State::Epilogue(_) => {
                self.state = State::Over;
                self.records.check_epilogue(self.scanned.end, block)
            }
            State::Over => panic!("no block was wanted"),
        }
    }

    fn counts(&self) -> PassCounts {
        self.counts
    }
}

pub(super) fn check_size(
    block: &[u8],
    records: &dyn Records,
    at: LogBlock,
) -> Result<(), JournalFormatError> {
    if block.len() == records.block_bytes() {
        return Ok(());
    }
    Err(JournalFormatError::Block {
        at,
        what: "log block",
        why: format!("{} bytes instead of a block", block.len()),
    })
}
