use super::scan::check_size;
use super::{HomeBounds, Pass, PassCounts, RecoverError, Scanned};
use crate::log_space::LogWalk;
use crate::revoke::RevokeTable;
use format::jbd2::{BlockTag, DescriptorBlock, LogLayout, Packing, Place, unescape};
use std::collections::VecDeque;
use std::rc::Rc;
use units::{BlockRange, HomeBlock, LogBlock, TransactionId};

/// One record to replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplayAction {
    WriteWhole { home: HomeBlock, bytes: Vec<u8> },
    Merge { home: HomeBlock, range: BlockRange, bytes: Vec<u8>, base_zero: bool },
}

/// Third pass: the records of all committed transactions in order, without those that a revoke hides.
pub struct ReplayPass {
    layout: LogLayout,
    log: Rc<dyn LogWalk>,
    revokes: RevokeTable,
    bounds: HomeBounds,
    descriptors: VecDeque<(TransactionId, LogBlock)>,
    open: Option<OpenDescriptor>,
    actions: Vec<ReplayAction>,
    counts: PassCounts,
}

/// The descriptor whose logged blocks are being read.
struct OpenDescriptor {
    transaction: TransactionId,
    /// The log block to read next.
    at: LogBlock,
    /// Those of it and of the blocks behind it. Not empty.
    tags: VecDeque<(BlockTag, Place)>,
}

impl ReplayPass {
    pub fn new(scanned: &Scanned, revokes: RevokeTable, bounds: HomeBounds) -> ReplayPass {
        let of = |found: &super::scan::ScannedTransaction| {
            let id = found.id;
            found.descriptors.clone().into_iter().map(move |at| (id, at))
        };
        ReplayPass {
            layout: scanned.layout,
            log: scanned.log.clone(),
            revokes,
            bounds,
            descriptors: scanned.transactions.iter().flat_map(of).collect(),
            open: None,
            actions: Vec::new(),
            counts: PassCounts { transactions: scanned.transactions.len() as u64, ..PassCounts::default() },
        }
    }

    /// The records read since the last call, in log order. Take them after each `give`.
    pub fn take_actions(&mut self) -> Vec<ReplayAction> {
        std::mem::take(&mut self.actions)
    }

    fn after(&self, at: LogBlock) -> LogBlock {
        self.log.next(at).expect("the scan came this way")
    }

    fn descriptor(&mut self, block: &[u8]) -> Result<(), RecoverError> {
        let (transaction, at) = self.descriptors.pop_front().expect("no block was wanted");
        let descriptor = DescriptorBlock::parse(block, &self.layout, at)?;
        if descriptor.transaction != transaction || !self.layout.is_intact(block) {
            let what = "its descriptor block is not what the scan read".to_owned();
            return Err(RecoverError::Damaged { at, transaction, what });
        }
        self.counts.descriptors += 1;
        let mut packing = Packing::new(self.layout.block_size);
        let tags = descriptor.tags.into_iter().map(|tag| (tag, packing.place(&tag))).collect();
        self.open = Some(OpenDescriptor { transaction, at: self.after(at), tags });
        Ok(())
    }

    fn logged(&mut self, block: &[u8]) -> Result<(), RecoverError> {
        let OpenDescriptor { transaction, at, mut tags } = self.open.take().expect("a descriptor");
        let (first, place) = *tags.front().expect("a tag of this block");
        let sum = self.layout.seed.of_logged_block(transaction, block);
        if !first.matches(sum, &self.layout) {
            let what = format!("the checksum of the copy of {} is wrong", first.home);
            return Err(RecoverError::Damaged { at, transaction, what });
        }
        let mut content = block.to_vec();
        if first.escaped {
            unescape(&mut content);
        }
        match first.fragment {
            Some(_) => self.counts.multiwrite_blocks += 1,
            None => self.counts.regular_blocks += 1,
        }
        while let Some((tag, its)) = tags.front().copied()
            && its.block == place.block
        {
            tags.pop_front();
            self.record(tag, its, &content, transaction, at)?;
        }
        if !tags.is_empty() {
            self.open = Some(OpenDescriptor { transaction, at: self.after(at), tags });
        }
        Ok(())
    }

    fn record(
        &mut self,
        tag: BlockTag,
        place: Place,
        content: &[u8],
        transaction: TransactionId,
        at: LogBlock,
    ) -> Result<(), RecoverError> {
        let home = tag.home;
        if let Some(why) = self.bounds.refuses(home) {
            return Err(RecoverError::ForbiddenHome { at, transaction, home, why });
        }
        // The block may have been freed and now hold other data. An old copy, or an old fragment, would
        // overwrite it.
        if self.revokes.hides(home, transaction) {
            self.counts.revokes += 1;
            return Ok(());
        }
        let bytes = content[place.offset..][..place.length].to_vec();
        self.actions.push(match tag.fragment {
            None => {
                self.counts.whole_records += 1;
                ReplayAction::WriteWhole { home, bytes }
            }
            Some(fragment) => {
                self.counts.fragment_records += 1;
                ReplayAction::Merge { home, range: fragment.range, bytes, base_zero: fragment.base_zero }
            }
        });
        Ok(())
    }
}

impl Pass for ReplayPass {
    fn wants(&self) -> Option<LogBlock> {
        match &self.open {
            Some(open) => Some(open.at),
            None => self.descriptors.front().map(|(_, at)| *at),
        }
    }

    fn give(&mut self, block: &[u8]) -> Result<(), RecoverError> {
        check_size(block, &self.layout, self.wants().expect("no block was wanted"))?;
        self.counts.log_blocks_read += 1;
        if self.open.is_some() { self.logged(block) } else { self.descriptor(block) }
    }

    fn counts(&self) -> PassCounts {
        self.counts
    }
}
