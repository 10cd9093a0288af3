//! Handles: atomic changes, and what they do to blocks.

use crate::cache::block::{Block, CachedBlock};
use crate::cache::block_cache::Temperature;
use crate::engine::Engine;
use crate::interface::error::EngineError;
use crate::interface::update::{Base, Contents, Credits, FileUpdate};
use crate::log::log_state::LogState;
use crate::transaction::differing::differing;
use device::Buffer;
use journal::{Decision, UpdateSequence};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;
use units::{BlockRange, HomeBlock, Owner, TransactionId};

/// Blocks of file data that any handle may write: the ends of what it cuts off or punches.
pub(crate) const DATA_BLOCKS_ALWAYS: u32 = 2;

/// One atomic change of the volume: all of it is in one transaction or none. Ends when dropped or
/// stopped.
pub struct Handle {
    engine: Rc<Engine>,
    transaction: TransactionId,
    /// Metadata blocks that it may still add.
    credits: u32,
    /// Logged data updates that it may still make without asking whether there is room.
    data_credits: u32,
    /// Blocks of data that is written home without the log, which it may still write.
    home_credits: u32,
    /// Revokes that it has made since it asked for room.
    revokes: u32,
    changes: u32,
}

/// Whether only the changed ranges of a metadata block are logged.
fn logs_ranges(log: Option<&RefCell<LogState>>) -> bool {
    log.is_some_and(|log| !log.borrow().records().logs_images())
}

impl Handle {
    /// Joins the running transaction with a handle that may write `blocks` blocks of file data.
    pub(crate) async fn start(
        engine: Rc<Engine>,
        credits: Credits,
        blocks: u32,
    ) -> Result<Handle, EngineError> {
        let admission = engine.admission();
        let (data_credits, home_credits) =
            if admission.logs_data() { (blocks, 0) } else { (0, blocks) };
        let needed = credits.0.saturating_add(data_credits);
        if let Some(limit) = admission.handle_limit() {
            if needed > limit {
                return Err(EngineError::HandleTooLarge { needed, limit });
            }
        }
        let admit = || admission.admit(needed, home_credits).transpose();
        let pipeline = &engine.pipeline;
        pipeline.enter(admit).await.map_err(|error| error.of_changes(pipeline.was_shut_down()))?;
        Ok(Handle {
            transaction: engine.running(),
            engine,
            credits: credits.0,
            data_credits,
            home_credits,
            revokes: 0,
            changes: 0,
        })
    }

    pub fn engine(&self) -> &Rc<Engine> {
        &self.engine
    }
    pub fn transaction(&self) -> TransactionId {
        self.transaction
    }
    /// Notes that it has written `count` blocks of data past the cache.
    pub(crate) fn note_run(&mut self, count: u32) {
        self.changes += 1;
        self.use_home_credits(count);
    }
    /// Uses credits for `count` blocks of data that bypass the log.
    fn use_home_credits(&mut self, count: u32) {
        let count = count.min(self.home_credits);
        if count > 0 {
            self.home_credits -= count;
            self.engine.pipeline.use_home_credits(count);
        }
    }
    /// Returns the number of changes made so far: a caller that fails before the first leaves
    /// nothing behind.
    pub fn changes(&self) -> u32 {
        self.changes
    }

    /// Changes a metadata block: `change` gets the whole block and writes only within `range`,
    /// which debug builds check. (get_write_access, change and dirty_metadata of JBD2 in one, so
    /// that no order can be wrong.)
    #[track_caller]
    pub fn change<T>(
        &mut self,
        block: &Block,
        range: BlockRange,
        change: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        self.change_ranges(block, &[range], change)
    }

    /// [`Handle::change`] of several ranges at once: a field, say, and a checksum far behind it.
    #[track_caller]
    pub fn change_ranges<T>(
        &mut self,
        block: &Block,
        ranges: &[BlockRange],
        change: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        self.begin_change(block, ranges);
        let range_checks = &self.engine.range_checks;
        let before = range_checks.before(block);
        let result = block.0.change(change);
        range_checks.check(Location::caller(), block, ranges, before);
        result
    }

    /// [`Handle::change`] of a structure that is written anew as a whole: where ranges are logged,
    /// only the bytes that differ afterwards count as changed. If none does, the first one counts,
    /// so that the block is in the transaction in any case. Not for what is written home past the
    /// log, and may there be another than in memory.
    #[track_caller]
    pub fn change_within<T>(
        &mut self,
        block: &Block,
        range: BlockRange,
        change: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        if !logs_ranges(self.engine.log.as_ref()) {
            return self.change(block, range, change);
        }
        // An inode, mostly.
        let before = SmallVec::<[u8; 256]>::from_slice(&block.bytes()[range.as_usize()]);
        let range_checks = &self.engine.range_checks;
        let all_before = range_checks.before(block);
        let result = block.0.change(change);
        let mut parts = differing(range, &before, &block.bytes());
        if parts.is_empty() {
            parts.push(BlockRange::new(range.start, range.start + 1));
        }
        range_checks.check(Location::caller(), block, &parts, all_before);
        self.begin_change(block, &parts);
        result
    }

    /// Adds these ranges of `block` to the running transaction.
    fn begin_change(&mut self, block: &Block, ranges: &[BlockRange]) {
        self.changes += 1;
        let engine = &self.engine;
        let block = &block.0;
        if !block.is_cached() {
            engine.aborter().abort(&EngineError::Shared { at: block.number() });
        }
        let whole = engine.block_size.whole();
        assert!(ranges.iter().all(|range| !range.is_empty() && whole.covers(*range)));
        let mut transaction = engine.pipeline.transaction();
        if transaction.add_metadata(block.number(), ranges) {
            debug_assert!(
                self.credits > 0,
                "{} is one more than the handle's credits",
                block.number()
            );
            if self.credits > 0 {
                self.credits -= 1;
                transaction.use_credits(1);
            }
        }
        drop(transaction);
        engine.queue.mark_dirty(block, || engine.world.now(), &engine.cache);
        block.join(Contents::Metadata);
    }

    /// Creates a newly allocated metadata block: zeros, whatever the disk holds. Counts as
    /// verified.
    pub fn create(&mut self, at: HomeBlock) -> Block {
        let block = Block(self.engine.cache.borrow_mut().get_or_insert(at, Temperature::Warm));
        block.0.replace(Buffer::zeroed(self.engine.block_size.bytes()));
        let whole = match units::fault!("packed-created-as-part") {
            true => BlockRange::new(0, 1),
            false => self.engine.block_size.whole(),
        };
        self.begin_change(&block, &[whole]);
        block.set_verified();
        block
    }

    /// Writes within one block of file data. The policy of the mount decides what is logged; it may
    /// have to read the rest of the block first. Whether the log will hold it: then only a commit
    /// makes it durable.
    pub async fn write_file_data(&mut self, update: FileUpdate<'_>) -> Result<bool, EngineError> {
        loop {
            if let Some(is_logged) = self.try_write_file_data(&update)? {
                return Ok(is_logged);
            }
            let engine = self.engine.clone();
            let block = engine.cache.borrow_mut().get_or_insert(update.home, Temperature::Warm);
            // In a box: few updates read, and each that waits for its commit holds this future.
            Box::pin(async move { engine.reader().load(&block, CachedBlock::is_whole).await })
                .await?;
        }
    }

    /// Writes as [`Handle::write_file_data`] does, but never waits: returns `None`, and does
    /// nothing, if the rest of the block must be read first.
    pub fn try_write_file_data(
        &mut self,
        update: &FileUpdate<'_>,
    ) -> Result<Option<bool>, EngineError> {
        let engine = self.engine.clone();
        assert!(!update.range.is_empty() && update.range.end as usize <= engine.block_size.bytes());
        assert_eq!(update.range.len(), update.bytes.len());
        engine.reader().check_range(update.home, 1)?;
        let block = engine.cache.borrow_mut().get_or_insert(update.home, Temperature::Warm);
        let overwrites = update.base == Base::Zero || update.range == engine.block_size.whole();
        let (decision, sequence) = engine.data_updates().decide(&block, update);
        if decision != Decision::LogBytes && !overwrites && !block.is_whole() {
            return Ok(None);
        }
        if decision.is_logged() {
            self.use_data_credit()?;
        } else {
            self.use_home_credits(1);
        }
        self.note_update(update, sequence, decision);
        engine.data_updates().note_data(&block, update, decision);
        engine.data_updates().write_data(&block, update, overwrites);
        Ok(Some(decision.is_logged()))
    }

    /// Notes that it logs bytes of a block, with a credit of its own.
    pub(crate) fn note_logged(
        &mut self,
        update: &FileUpdate<'_>,
        sequence: UpdateSequence,
    ) -> Result<(), EngineError> {
        self.use_data_credit()?;
        self.note_update(update, sequence, Decision::LogBytes);
        Ok(())
    }

    fn note_update(
        &mut self,
        update: &FileUpdate<'_>,
        sequence: UpdateSequence,
        decision: Decision,
    ) {
        let engine = &self.engine;
        if engine.policy.keeps_sequences() {
            let state = sequence.after(decision, self.transaction);
            if engine.sequences.set(update.home, state) {
                engine.cache.borrow_mut().shrink();
            }
        }
        if let Some(auto) = engine.policy.learns().filter(|_| !update.sequential) {
            auto.updated(
                update.request,
                update.range.len() as u64,
                sequence == UpdateSequence::None,
            );
        }
        self.changes += 1;
    }

    /// Has data of this handle that would be written home at any time written home before the
    /// commit, whatever the mode. It serves what was durable elsewhere, and is not any more with
    /// this handle.
    pub fn order_data(&mut self, owner: Owner, at: HomeBlock) {
        let engine = &self.engine;
        if engine.unordered.remove(owner, at) {
            if let Some(block) = engine.cache.borrow().peek(at) {
                block.order_unordered(owner);
                engine.pipeline.transaction().add_home_data(owner, at, 0);
            }
        }
    }

    /// Uses one credit: every logged update takes at most one log block.
    fn use_data_credit(&mut self) -> Result<(), EngineError> {
        let mut transaction = self.engine.pipeline.transaction();
        if self.data_credits > 0 {
            self.data_credits -= 1;
            transaction.use_credits(1);
            return Ok(());
        }
        let Some(log) = &self.engine.log else { return Ok(()) };
        let log = log.borrow();
        let needed = log.bound(&transaction.holdings().and_blocks(1));
        let limit = log.largest_now(transaction.open_handles().into());
        if needed > limit {
            return Err(EngineError::HandleTooLarge { needed, limit });
        }
        Ok(())
    }

    /// Forgets the blocks `at .. at + count` are free from this transaction on. Their content is
    /// worthless and must not be written home any more, and old log records of them must not be
    /// replayed (`revokes`). Visits what memory has of the range, and not each of its blocks.
    pub fn forget(&mut self, at: HomeBlock, count: u64, _contents: Contents) {
        self.changes += 1;
        let engine = &self.engine;
        engine.pipeline.free(at, count);
        let mut transaction = engine.pipeline.transaction();
        if let Some(log) = &engine.log {
            for number in log.borrow().live().in_run(at, count) {
                transaction.free(number, true);
                self.revokes += 1;
            }
        }
        for block in engine.cache.borrow().within(at, count) {
            let number = block.number();
            if block.is_running() {
                transaction.free(number, engine.would_replay(number));
            }
            if let Some(owner) = block.free() {
                engine.unordered.remove(owner, number);
            }
        }
        engine.sequences.forget(at, count);
        debug_assert!(
            u64::from(self.revokes) <= engine.freeing().revokes_of_handle(),
            "{at} is revoked without a reservation"
        );
    }

    /// Makes room for `credits` more in the same transaction; false when it or memory is too full,
    /// or a commit waits for the handle.
    /// The caller must then bring the volume into a consistent state, stop, and start anew
    /// (truncate of a large file).
    #[must_use]
    pub fn extend(&mut self, credits: Credits) -> bool {
        // A commit, and all who wait for it, wait for this handle to stop.
        if self.engine.is_locking() && !units::fault!("long-handle-delays-commit") {
            return false;
        }
        // As for a start; but who holds a handle waits for no memory, which its own commit may have
        // to free.
        if !self.engine.admission().has_memory_for(credits) {
            return false;
        }
        let mut transaction = self.engine.pipeline.transaction();
        if let Some(log) = &self.engine.log {
            let log = log.borrow();
            let bound = log.bound(&transaction.holdings().and_blocks(credits.0));
            let fits = log.fits_now(bound, transaction.open_handles().into());
            if !fits && !units::fault!("handle-outgrows-the-log") {
                return false;
            }
        }
        transaction.extend_handle(credits.0);
        self.credits += credits.0;
        self.revokes = 0;
        true
    }

    /// Ends the change. What it did is durable once [`Engine::commit`] of the returned transaction
    /// is done.
    pub fn stop(self) -> TransactionId {
        self.transaction
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.engine.pipeline.leave(self.credits + self.data_credits, self.home_credits);
    }
}
