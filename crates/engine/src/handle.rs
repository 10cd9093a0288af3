//! Handles: atomic changes, how they are admitted, and what they do to blocks.
//!
//! A handle reserves log space before it starts and never waits for any while open, so a full log cannot
//! deadlock: the transaction it is in can always commit, and a committed one can always be checkpointed.

use crate::cache::{CachedBlock, Temperature};
use crate::engine::{Block, Engine};
use crate::error::EngineError;
use crate::tail::Wish;
use crate::update::{Base, Contents, Credits, FileUpdate};
use device::Buffer;
use journal::{Decision, LogSpace, RunningTransaction, Update, UpdateSequence};
use std::rc::Rc;
use units::{BlockRange, HomeBlock, TransactionId};

/// Blocks of file data that any handle may write: the ends of what it cuts off or punches.
const DATA_BLOCKS_ALWAYS: u32 = 2;

/// Entries of the queue of dirty blocks whose block is clean, beyond those of dirty ones.
const STALE_MAX: usize = 4096;

/// One atomic change of the volume: all of it is in one transaction or none. Ends when dropped or stopped.
pub struct Handle {
    engine: Rc<Engine>,
    transaction: TransactionId,
    /// Metadata blocks that it may still add.
    credits: u32,
    /// Logged data updates that it may still make without asking whether there is room.
    data_credits: u32,
    /// Blocks of data that goes home without the log, which it may still write.
    home_credits: u32,
    changes: u64,
}

impl Engine {
    /// Joins the running transaction. Waits while it is being locked or the log is short of space.
    /// Call it after taking inode locks, never while holding another handle.
    pub async fn start(self: &Rc<Self>, credits: Credits) -> Result<Handle, EngineError> {
        self.start_writing(credits, DATA_BLOCKS_ALWAYS).await
    }

    /// [`Engine::start`] for a handle that writes up to `blocks` blocks of file data. No more than
    /// [`Engine::fits_handle`] allows.
    pub async fn start_writing(
        self: &Rc<Self>,
        credits: Credits,
        blocks: u32,
    ) -> Result<Handle, EngineError> {
        let (data_credits, home_credits) = if self.logs_data() { (blocks, 0) } else { (0, blocks) };
        let needed = credits.0.saturating_add(data_credits);
        if let Some(limit) = self.handle_limit()
            && needed > limit
        {
            return Err(EngineError::HandleTooLarge { needed, limit });
        }
        let admit = || self.admit(needed, home_credits).transpose();
        self.gate.pass(admit).await?;
        Ok(Handle {
            engine: self.clone(),
            transaction: self.running_id(),
            credits: credits.0,
            data_credits,
            home_credits,
            changes: 0,
        })
    }

    /// Whether one handle may reserve so much.
    pub fn fits_handle(&self, credits: Credits, blocks: u32) -> bool {
        let data_credits = if self.logs_data() { blocks } else { 0 };
        self.handle_limit().is_none_or(|limit| credits.0.saturating_add(data_credits) <= limit)
    }

    /// Whether updates of file data may take log blocks.
    fn logs_data(&self) -> bool {
        self.log.is_some() && self.policy.logs_data()
    }

    /// Three quarters of a transaction: the rest is for descriptors, revokes and the commit block.
    fn handle_limit(&self) -> Option<u32> {
        self.transaction_limit().map(|limit| limit / 4 * 3)
    }

    /// Reads what a coming update of part of a block will need of its home, so that no handle is held open for it: a commit
    /// waits for open handles, and everyone else for the commit. The update is right without it, too.
    pub async fn prepare_data(
        &self,
        home: HomeBlock,
        range: BlockRange,
        request: u64,
    ) -> Result<(), EngineError> {
        if range == self.block_size.whole() || !self.policy.needs_base() {
            return Ok(());
        }
        self.check_range(home, 1)?;
        let block = self.look_up(home, Temperature::Warm);
        let sequence = self.sequence(&block);
        let update = Update { range, block_size: self.block_size, request, sequential: false, sequence };
        if self.policy.decide(&update) != Decision::LogBytes {
            self.load(&block, CachedBlock::is_whole).await?;
        }
        Ok(())
    }

    pub(crate) fn running_id(&self) -> TransactionId {
        self.running.borrow().transaction.id()
    }

    fn transaction_limit(&self) -> Option<u32> {
        let log = self.log.as_ref()?.borrow();
        Some(log.home_blocks(log.transaction_limit()))
    }

    /// Joins the running transaction if that may be done now; otherwise starts what must happen first.
    /// `home` is what it needs of memory alone.
    pub(crate) fn admit(&self, needed: u32, home: u32) -> Result<Option<()>, EngineError> {
        self.check()?;
        if self.closed.get() {
            return Err(EngineError::ReadOnly);
        }
        if self.locking.get() || !self.has_log_space(needed) || !self.has_memory(needed + home) {
            return Ok(None);
        }
        let mut running = self.running.borrow_mut();
        running.transaction.open_handle(needed);
        self.home_credits.set(self.home_credits.get() + home);
        self.ticks.note_join(self.world.now());
        if running.since.is_none() {
            running.since = Some(self.world.now());
            drop(running);
            self.commit_work.notify();
        }
        Ok(Some(()))
    }

    fn has_log_space(&self, needed: u32) -> bool {
        let Some(log) = &self.log else { return true };
        let mut log = log.borrow_mut();
        let running = self.running.borrow();
        let transaction = &running.transaction;
        let bound = log.records.log_blocks_bound(&transaction.holdings().and_blocks(needed));
        let (used, id) = (transaction.handles() > 0, transaction.id());
        if bound > log.transaction_limit() && used {
            // Mostly reservations: they come back when the open handles stop. Otherwise it is full.
            if transaction.credits() <= log.home_blocks(bound) / 2 {
                self.request_commit(id);
            }
            return false;
        }
        // Credits, descriptors and commit block (`bound`) + revokes of whatever the log has records of.
        if bound + log.revoke_reserve() <= log.space.free() {
            return true;
        }
        // The oldest transactions must go home; if there are none, this one has to become one.
        if log.checkpoint.is_empty() && used {
            self.request_commit(id);
        }
        log.tail.wish = Wish::Now;
        self.kick_home();
        false
    }

    /// Images that cannot be evicted: those of dirty blocks, and what commits make of them.
    pub(crate) fn pinned_images(&self) -> usize {
        let made = self.made_for_log(&self.running.borrow().transaction);
        self.dirty_count.get() + self.cache.borrow().held() + made
    }

    /// At most so many blocks are made for the log when `transaction` commits: parts of blocks are copied, whole ones are not.
    pub(crate) fn made_for_log(&self, transaction: &RunningTransaction) -> usize {
        let Some(log) = &self.log else { return 0 };
        let holdings = transaction.holdings();
        let log = log.borrow();
        let all = log.home_blocks(log.records.log_blocks_bound(&holdings));
        let shared = if log.records.logs_images() { holdings.blocks } else { 0 };
        u64::from(all).saturating_sub(shared) as usize
    }

    /// Beyond half of the cache pinned images go home early, beyond three quarters nobody may make more of them: with
    /// `needed` credits and those of the open handles, one image each. A handle that is alone may, whatever it needs.
    fn has_memory(&self, needed: u32) -> bool {
        let (pinned, limit) = (self.pinned_images(), self.cache.borrow().limit());
        if pinned > limit / 2 {
            self.kick_home();
        }
        let running = self.running.borrow();
        let coming = match running.transaction.open_handles() {
            0 => 0,
            _ => (running.transaction.credits() + self.home_credits.get()) as usize + needed as usize,
        };
        pinned + coming <= limit / 4 * 3
    }

    /// `block` is about to become newer than home.
    pub(crate) fn soil(&self, block: &CachedBlock) {
        if block.dirty_since.get().is_some() {
            return;
        }
        let now = self.world.now();
        block.dirty_since.set(Some(now));
        let mut dirty = self.dirty.borrow_mut();
        // Most are of blocks that have been home since: some block is changed and goes home again and again.
        if dirty.len() > 2 * self.dirty_count.get() + STALE_MAX {
            let cache = self.cache.borrow();
            dirty.retain(|(since, at)| {
                cache.peek(*at).is_some_and(|block| block.dirty_since.get() == Some(*since))
            });
        }
        dirty.push_back((now, block.number));
        drop(dirty);
        self.dirty_count.set(self.dirty_count.get() + 1);
        if self.dirty_count.get() == 1 {
            self.kick_home();
        }
    }

    /// Notes that `block` is home, if it is.
    pub(crate) fn wash(&self, block: &CachedBlock) {
        if block.is_home() && block.dirty_since.take().is_some() {
            self.dirty_count.set(self.dirty_count.get() - 1);
        }
    }

    fn sequence(&self, block: &CachedBlock) -> UpdateSequence {
        let (true, Some(log)) = (self.policy.keeps_sequences(), &self.log) else {
            return UpdateSequence::None;
        };
        let state = self.sequences.borrow().get(&block.number).copied().unwrap_or_default();
        state.current(block.dirty_since.get().is_none(), log.borrow().disk_tail)
    }

    fn decide(&self, block: &CachedBlock, update: &FileUpdate<'_>) -> (Decision, UpdateSequence) {
        if self.log.is_none() {
            return (Decision::HomeBeforeCommit, UpdateSequence::None);
        }
        let sequence = self.sequence(block);
        let decision = self.policy.decide(&Update {
            range: update.range,
            block_size: self.block_size,
            request: update.request,
            sequential: update.sequential,
            sequence,
        });
        (decision, sequence)
    }
}

impl Handle {
    pub fn engine(&self) -> &Rc<Engine> {
        &self.engine
    }
    pub fn transaction(&self) -> TransactionId {
        self.transaction
    }
    /// How many changes it has made so far: whoever fails without one leaves nothing behind.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Changes a metadata block: `change` gets the whole block and writes only within `range`.
    /// (get_write_access, change and dirty_metadata of JBD2 in one, so that no order can be wrong.)
    pub fn change<T>(&mut self, block: &Block, range: BlockRange, change: impl FnOnce(&mut [u8]) -> T) -> T {
        self.changes += 1;
        let engine = &self.engine;
        assert!(!range.is_empty() && range.end as usize <= engine.block_size.bytes());
        let block = &block.0;
        if !block.is_cached() {
            engine.abort(&EngineError::Shared { at: block.number });
        }
        let transaction = &mut engine.running.borrow_mut().transaction;
        if transaction.add_metadata(block.number, range) {
            debug_assert!(self.credits > 0, "{} is one more than the handle's credits", block.number);
            if self.credits > 0 {
                self.credits -= 1;
                transaction.use_credits(1);
            }
        }
        engine.soil(block);
        block.running.set(true);
        block.contents.set(Contents::Metadata);
        let result = change(Rc::<Buffer>::make_mut(&mut block.current.borrow_mut().bytes));
        block.recount();
        result
    }

    /// A newly allocated metadata block: zeros, whatever the disk holds. Counts as verified.
    pub fn create(&mut self, at: HomeBlock) -> Block {
        let block = Block(self.engine.cache.borrow_mut().get_or_insert(at, Temperature::Warm));
        {
            let mut current = block.0.current.borrow_mut();
            current.bytes = Rc::new(Buffer::zeroed(self.engine.block_size.bytes()));
            current.valid = None;
        }
        self.change(&block, self.engine.block_size.whole(), |_| ());
        block.set_verified();
        block
    }

    /// Writes within one block of file data. The policy of the mount decides what is logged; it may have to
    /// read the rest of the block first.
    pub async fn file_data(&mut self, update: FileUpdate<'_>) -> Result<(), EngineError> {
        let engine = self.engine.clone();
        assert!(!update.range.is_empty() && update.range.end as usize <= engine.block_size.bytes());
        assert_eq!(update.range.len(), update.bytes.len());
        engine.check_range(update.home, 1)?;
        let block = engine.cache.borrow_mut().get_or_insert(update.home, Temperature::Warm);
        let overwrites = update.base == Base::Zero || update.range == engine.block_size.whole();
        let (mut decision, mut sequence) = engine.decide(&block, &update);
        while decision != Decision::LogBytes && !overwrites && !block.is_whole() {
            engine.load(&block, CachedBlock::is_whole).await?;
            (decision, sequence) = engine.decide(&block, &update);
        }
        if decision.is_logged() {
            self.use_data_credit()?;
        } else if self.home_credits > 0 {
            self.home_credits -= 1;
            engine.home_credits.set(engine.home_credits.get() - 1);
        }
        if engine.policy.keeps_sequences() {
            let after = sequence.after(decision, self.transaction);
            engine.sequences.borrow_mut().insert(update.home, after);
        }
        self.changes += 1;
        self.note_data(&block, &update, decision);
        self.write_data(&block, &update, overwrites);
        Ok(())
    }

    /// Every logged update takes at most one log block, so each costs one credit.
    fn use_data_credit(&mut self) -> Result<(), EngineError> {
        let mut running = self.engine.running.borrow_mut();
        if self.data_credits > 0 {
            self.data_credits -= 1;
            running.transaction.use_credits(1);
            return Ok(());
        }
        let Some(log) = &self.engine.log else { return Ok(()) };
        let log = log.borrow();
        let needed = log.records.log_blocks_bound(&running.transaction.holdings().and_blocks(1));
        let limit = log.transaction_limit().min(log.space.free().saturating_sub(log.revoke_reserve()));
        if needed > limit {
            return Err(EngineError::HandleTooLarge { needed, limit });
        }
        Ok(())
    }

    fn note_data(&self, block: &Rc<CachedBlock>, update: &FileUpdate<'_>, decision: Decision) {
        let engine = &self.engine;
        let (at, bytes) = (update.home, update.range.len() as u64);
        let mut running = engine.running.borrow_mut();
        let transaction = &mut running.transaction;
        match decision {
            Decision::LogBytes => transaction.add_data_bytes(at, update.range, update.base == Base::Zero),
            Decision::LogBlock => transaction.add_data_block(at, bytes),
            Decision::HomeBeforeCommit => {
                transaction.add_home_data(update.inode, at, bytes);
                block.ordered.set(Some(update.inode));
            }
            Decision::HomeWhenever => {
                block.lazy.set(Some(update.inode));
                engine.lazy.borrow_mut().insert((update.inode, at));
            }
        }
        drop(running);
        engine.soil(block);
        block.contents.set(Contents::Data);
        if decision != Decision::HomeWhenever {
            block.running.set(true);
        }
    }

    fn write_data(&self, block: &CachedBlock, update: &FileUpdate<'_>, overwrites: bool) {
        let size = self.engine.block_size;
        let mut current = block.current.borrow_mut();
        if overwrites {
            let mut buffer = Buffer::zeroed(size.bytes());
            buffer[update.range.as_usize()].copy_from_slice(update.bytes);
            current.bytes = Rc::new(buffer);
            current.valid = None;
        } else {
            let bytes = Rc::<Buffer>::make_mut(&mut current.bytes);
            bytes[update.range.as_usize()].copy_from_slice(update.bytes);
            current.note_written(update.range, size);
        }
        drop(current);
        block.recount();
    }

    /// The blocks `at .. at + count` are free from this transaction on: their content is worthless, must not
    /// be written home any more, and old log records of them must not be replayed (revoke).
    pub fn forget(&mut self, at: HomeBlock, count: u64, _contents: Contents) {
        self.changes += 1;
        let engine = &self.engine;
        let mut running = engine.running.borrow_mut();
        running.freed.push((at, count));
        let cache = engine.cache.borrow();
        for number in (0..count).map(|index| at.plus(index)) {
            let block = cache.peek(number);
            let logged = engine.log.as_ref().is_some_and(|log| log.borrow().live.contains(number));
            if logged || block.is_some_and(|block| block.running.get()) {
                running.transaction.free(number, logged);
            }
            engine.sequences.borrow_mut().remove(&number);
            // Images of committed transactions stay: until this transaction commits, the block is not free.
            let Some(block) = block else { continue };
            block.running.set(false);
            block.ordered.set(None);
            if let Some(inode) = block.lazy.take() {
                engine.lazy.borrow_mut().remove(&(inode, number));
            }
        }
    }

    /// Makes room for `credits` more in the same transaction; false when it is too full, and the caller must
    /// bring the volume into a consistent state, stop, and start anew (truncate of a large file).
    #[must_use]
    pub fn extend(&mut self, credits: Credits) -> bool {
        let transaction = &mut self.engine.running.borrow_mut().transaction;
        if let Some(log) = &self.engine.log {
            let log = log.borrow();
            let bound = log.records.log_blocks_bound(&transaction.holdings().and_blocks(credits.0));
            if bound > log.transaction_limit() || bound + log.revoke_reserve() > log.space.free() {
                return false;
            }
        }
        transaction.extend_handle(credits.0);
        self.credits += credits.0;
        true
    }

    /// Ends the change. What it did is durable once [`Engine::commit`] of the returned transaction is done.
    pub fn stop(self) -> TransactionId {
        self.transaction
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let unused = self.credits + self.data_credits;
        self.engine.running.borrow_mut().transaction.close_handle(unused);
        self.engine.home_credits.set(self.engine.home_credits.get() - self.home_credits);
        if self.engine.locking.get() {
            self.engine.commit_work.notify();
        }
        self.engine.gate.wake_first();
    }
}
