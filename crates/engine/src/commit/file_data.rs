//! An update of one block of file data: what the policy decides of it, and what that does to the
//! block.

use crate::cache::block::CachedBlock;
use crate::cache::block_cache::Temperature;
use crate::cache::reader::Reader;
use crate::interface::error::EngineError;
use crate::interface::update::{Base, Contents, FileUpdate};
use crate::writeback::dirty_queue::DirtyQueue;
use crate::writeback::sequences::Sequences;
use crate::writeback::unordered_data::UnorderedData;
use commit::Pipeline;
use device::Buffer;
use device::World;
use journal::Policy;
use journal::{Decision, Update, UpdateSequence};
use std::rc::Rc;
use units::{BlockRange, HomeBlock};

/// Applies updates of file data, as the policy decides.
#[derive(Clone, Copy)]
pub(crate) struct DataUpdates<'a> {
    pub reader: Reader<'a>,
    pub world: &'a dyn World,
    pub policy: &'a dyn Policy,
    pub pipeline: &'a Pipeline,
    pub queue: &'a DirtyQueue,
    pub unordered: &'a UnorderedData,
    pub sequences: &'a Sequences,
}

impl DataUpdates<'_> {
    /// Reads what a coming update of part of a block will need of its home, so that no handle is
    /// held open for it. A commit waits for open handles, and everyone else for the commit. The
    /// update is right without it, too.
    pub async fn prepare_data(
        &self,
        home: HomeBlock,
        range: BlockRange,
        request: u64,
    ) -> Result<(), EngineError> {
        if range == self.reader.block_size.whole() || !self.policy.needs_base() {
            return Ok(());
        }
        self.reader.check_range(home, 1)?;
        let block = self.reader.look_up(home, Temperature::Warm);
        if block.is_whole() {
            return Ok(());
        }
        let sequence = self.sequence(home, !block.is_dirty());
        let update = Update {
            range,
            block_size: self.reader.block_size,
            request,
            sequential: false,
            sequence,
            in_place: false,
            must_log: self.is_in_log(home),
        };
        if self.policy.decide(&update) != Decision::LogBytes {
            self.reader.load(&block, CachedBlock::is_whole).await?;
        }
        Ok(())
    }

    pub(crate) fn sequence(&self, at: HomeBlock, is_clean: bool) -> UpdateSequence {
        let (true, Some(log)) = (self.policy.keeps_sequences(), &self.reader.log) else {
            return UpdateSequence::None;
        };
        self.sequences.of(at, is_clean, log.borrow().tail_on_disk())
    }

    /// Whether replay could undo an update of `block` that bypasses the log, where a policy wants
    /// to know.
    pub(crate) fn is_in_log(&self, block: HomeBlock) -> bool {
        let log = self.reader.log.filter(|_| self.policy.looks_into_log());
        log.is_some_and(|log| {
            log.borrow().live().contains(block) || self.pipeline.transaction().logs(block)
        })
    }

    pub(crate) fn decide(
        &self,
        block: &CachedBlock,
        update: &FileUpdate<'_>,
    ) -> (Decision, UpdateSequence) {
        if self.reader.log.is_none() {
            return (Decision::HomeBeforeCommit, UpdateSequence::None);
        }
        let sequence = self.sequence(block.number(), !block.is_dirty());
        let decision = self.policy.decide(&Update {
            range: update.range,
            block_size: self.reader.block_size,
            request: update.request,
            sequential: update.sequential,
            sequence,
            in_place: update.in_place && !block.is_ordered(),
            must_log: update.durable_only || self.is_in_log(update.home),
        });
        (decision, sequence)
    }

    /// Puts the block into the state that the decision on an update leads to.
    pub(crate) fn note_data(
        &self,
        block: &Rc<CachedBlock>,
        update: &FileUpdate<'_>,
        decision: Decision,
    ) {
        let (at, bytes) = (update.home, update.range.len() as u64);
        self.reader.counters.borrow_mut().updated(update.request, bytes, !block.is_running());
        self.queue.mark_dirty(block, || self.world.now(), self.reader.cache);
        let mut transaction = self.pipeline.transaction();
        let durable_only = update.durable_only && decision.is_logged();
        block.set_durable_only(durable_only);
        // A restart asks for it, and that keeps scattered logs alone.
        transaction.set_durable_only(
            at,
            durable_only && self.reader.log.is_some_and(|log| log.borrow().redirects()),
        );
        // From now on the commit makes the block durable as a whole, in the log or at home.
        let takes_along = matches!(decision, Decision::LogBlock | Decision::HomeBeforeCommit);
        if takes_along && self.unordered.remove(update.owner, at) {
            block.clear_unordered();
        }
        match decision {
            Decision::LogBytes => {
                transaction.add_data_bytes(at, update.range, update.base == Base::Zero);
                block.join(Contents::Data);
            }
            Decision::LogBlock => {
                transaction.add_data_block(at, bytes);
                block.join(Contents::Data);
            }
            Decision::HomeBeforeCommit => {
                transaction.add_home_data(update.owner, at, bytes);
                block.order(update.owner);
            }
            Decision::HomeWhenever => {
                block.mark_unordered(update.owner);
                self.unordered.insert(update.owner, at);
            }
        }
    }

    pub(crate) fn write_data(
        &self,
        block: &CachedBlock,
        update: &FileUpdate<'_>,
        overwrites: bool,
    ) {
        let size = self.reader.block_size;
        if overwrites {
            let range = update.range.as_usize();
            block.replace(Buffer::zeroed_around(range.start, update.bytes, size.bytes()));
        } else {
            block.write(update.range, update.bytes, size);
        }
    }
}
