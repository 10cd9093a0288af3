use super::BlockRecords;
use super::decide::{Facts, ScanDecision, decide};
use crate::pass_outcome::RecoverError;
use crate::records::{
    BlockAhead, FoundTransaction, LogPiece, LogSpan, RecordFault, ScanVerdict, Scanner,
};
use format::WholeTransaction;
use format::jbd2::{
    BlockHeader, BlockTag, BlockType, CommitBlock, DescriptorBlock, Packing, ancient_checksum,
};
use std::collections::VecDeque;
use units::{LogBlock, Timestamp, TransactionId};

/// Scans descriptors, logged blocks, revoke and commit blocks. Blocks of earlier wraps of the log
/// have smaller ids, and logged blocks never begin like a journal block. Without checksums a block
/// proves nothing, and the log ends.
pub(super) struct BlockScanner {
    records: BlockRecords,
    open: OpenTransaction,
    last_commit_time: Option<Timestamp>,
}

/// The transaction whose commit block has not been found yet.
struct OpenTransaction {
    id: TransactionId,
    found: FoundTransaction,
    whole: WholeTransaction,
    ancient: u32,
    /// The first block that does not match its checksum.
    fault: Option<RecordFault>,
    /// Tags of the logged blocks that follow, for their checksum tests.
    logged: VecDeque<BlockTag>,
}

impl OpenTransaction {
    fn new(id: TransactionId, records: &BlockRecords) -> OpenTransaction {
        OpenTransaction {
            id,
            found: FoundTransaction::default(),
            whole: records.layout.whole_transaction(id),
            ancient: !0,
            fault: None,
            logged: VecDeque::new(),
        }
    }
    fn fault(&mut self, at: LogBlock, what: &str) {
        self.fault.get_or_insert_with(|| RecordFault { at, what: what.to_owned() });
    }
    fn take_fault(&mut self) -> RecordFault {
        self.fault.take().expect("what is wrong was noted")
    }
}

impl BlockScanner {
    pub fn new(records: BlockRecords, first: TransactionId) -> BlockScanner {
        BlockScanner {
            records,
            open: OpenTransaction::new(first, &records),
            last_commit_time: None,
        }
    }

    /// Whether the commit time lies before that of the last transaction: a remnant of an older
    /// journal.
    fn goes_back(&self, commit: CommitBlock) -> bool {
        self.last_commit_time.is_some_and(|last| commit.time.seconds < last.seconds)
    }

    fn logged(&mut self, tag: BlockTag, piece: LogPiece) -> ScanVerdict {
        let layout = &self.records.layout;
        let sum = layout.seed.of_logged_block(self.open.id, piece.bytes);
        if !tag.matches(sum, layout) {
            self.open
                .fault(piece.at, &format!("the checksum of the copy of {} is wrong", tag.home));
        }
        self.sum(piece.bytes);
        self.sum_ancient(piece.bytes);
        ScanVerdict::GoOn
    }

    fn header(&mut self, piece: LogPiece) -> Result<ScanVerdict, RecoverError> {
        let header = BlockHeader::parse(piece.bytes);
        let kind = header.and_then(|header| header.kind);
        let commit = CommitBlock::parse(piece.bytes, &self.records.layout);
        let facts = self.facts(header, commit, piece.bytes);
        Ok(match decide(facts) {
            ScanDecision::End => {
                self.open.fault(piece.at, why_it_ends(facts));
                ScanVerdict::End(self.open.take_fault())
            }
            ScanDecision::GoOn if kind == Some(BlockType::Descriptor) => {
                return self.descriptor(piece);
            }
            ScanDecision::GoOn => self.revoke(piece),
            ScanDecision::Committed => {
                self.last_commit_time = commit.map(|commit| commit.time);
                self.open.found.counts.commit_blocks += 1;
                let next = OpenTransaction::new(self.open.id.next(), &self.records);
                ScanVerdict::Committed(std::mem::replace(&mut self.open, next).found)
            }
            ScanDecision::Damaged => ScanVerdict::Damaged(self.open.take_fault()),
        })
    }

    fn facts(
        &self,
        header: Option<BlockHeader>,
        commit: Option<CommitBlock>,
        block: &[u8],
    ) -> Facts {
        let kind = header.and_then(|header| header.kind);
        let in_log = [BlockType::Descriptor, BlockType::Revoke, BlockType::Commit];
        let is_commit = kind == Some(BlockType::Commit);
        let whole = commit.and_then(|commit| commit.whole);
        let ancient = !is_commit
            || !self.records.has_ancient_checksum
            || CommitBlock::matches_ancient(block, self.open.ancient);
        Facts {
            known: kind.is_some_and(|kind| in_log.contains(&kind)),
            sequence: header.is_some_and(|header| header.transaction == self.open.id),
            commit: is_commit,
            commit_intact: commit.is_some(),
            transaction_sum: ancient
                && whole.is_none_or(|sum| {
                    sum == self.open.whole.sum() || units::fault!("whole-sum-unverified")
                }),
            body_intact: self.open.fault.is_none(),
            time_goes_back: commit.is_some_and(|commit| self.goes_back(commit)),
        }
    }

    fn descriptor(&mut self, piece: LogPiece) -> Result<ScanVerdict, RecoverError> {
        let layout = self.records.layout;
        if !layout.is_intact(piece.bytes) {
            self.open.fault(piece.at, "the checksum of its descriptor block is wrong");
            return Ok(ScanVerdict::End(self.open.take_fault()));
        }
        let descriptor = match DescriptorBlock::parse(piece.bytes, &layout, piece.at) {
            Ok(descriptor) => descriptor,
            // A block that is intact and that we do not understand is not a torn one.
            Err(error) if layout.has_checksums() => return Err(error.into()),
            Err(error) => {
                self.open.fault(piece.at, &error.to_string());
                return Ok(ScanVerdict::End(self.open.take_fault()));
            }
        };
        let mut packing = Packing::new(layout.block_size);
        let counts = &mut self.open.found.counts;
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
        self.open.found.records.push(LogSpan { at: piece.at, blocks: 1 + packing.blocks() });
        self.sum(piece.bytes);
        self.sum_ancient(piece.bytes);
        Ok(ScanVerdict::GoOn)
    }

    fn revoke(&mut self, piece: LogPiece) -> ScanVerdict {
        if !self.records.layout.is_intact(piece.bytes) {
            self.open.fault(piece.at, "the checksum of its revoke block is wrong");
            return ScanVerdict::End(self.open.take_fault());
        }
        self.open.found.counts.revoke_blocks += 1;
        self.open.found.revokes.push(LogSpan { at: piece.at, blocks: 1 });
        self.sum(piece.bytes);
        ScanVerdict::GoOn
    }

    fn sum(&mut self, block: &[u8]) {
        if self.records.layout.multiwrite {
            self.open.whole.add(block);
        }
    }
    /// Leaves revoke blocks out, as the kernel does.
    fn sum_ancient(&mut self, block: &[u8]) {
        if self.records.has_ancient_checksum {
            self.open.ancient = ancient_checksum(self.open.ancient, block);
        }
    }
}

impl Scanner for BlockScanner {
    fn give(&mut self, piece: LogPiece) -> Result<ScanVerdict, RecoverError> {
        match self.open.logged.pop_front() {
            Some(tag) => Ok(self.logged(tag, piece)),
            None => self.header(piece),
        }
    }

    /// Examines a block ahead. In a plain log the open transaction's own commit block proves it,
    /// too. But there only commit blocks count. Their time reveals remnants of an older journal of
    /// the volume (the kernel may have made a new one over it).
    fn ahead(&self, block: &[u8]) -> Option<BlockAhead> {
        let header = BlockHeader::parse(block)?;
        let is_later = header.transaction.is_after(self.open.id);
        let multiwrite = self.records.layout.multiwrite;
        let proves = match header.kind? {
            BlockType::Descriptor | BlockType::Revoke => {
                (is_later && self.records.layout.is_intact(block)).then_some(multiwrite)?
            }
            BlockType::Commit => {
                let commit = CommitBlock::parse(block, &self.records.layout)?;
                ((is_later || !multiwrite) && !self.goes_back(commit)).then_some(true)?
            }
            BlockType::SuperblockV1 | BlockType::SuperblockV2 => return None,
        };
        Some(BlockAhead { transaction: header.transaction, proves })
    }
}

/// Returns why the facts end the log.
fn why_it_ends(facts: Facts) -> &'static str {
    match facts {
        Facts { known: true, sequence: true, commit_intact: false, .. } => {
            "the checksum of its commit block is wrong"
        }
        Facts { known: true, sequence: true, .. } => {
            "the checksum of the whole transaction is wrong"
        }
        _ => "this block is none of it",
    }
}
