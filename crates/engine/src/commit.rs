//! Group commit: one transaction runs, one commits. All who ask while a commit is under way share the next.
//!
//! Order: wait until open handles have stopped; take the images; plan; carry out; then, and only then, the
//! transaction counts as committed and its waiters are woken, in the order they came.

use crate::cache::CachedBlock;
use crate::completion::Completion;
use crate::engine::{Engine, Running};
use crate::error::EngineError;
use journal::{
    CommitPlan, CommittingTransaction, LockedTransaction, LogSpace, Moment, begin_log, plan_commit,
    plan_commit_home,
};
use runtime::race;
use std::rc::Rc;
use std::time::Duration;
use units::{HomeBlock, InodeNumber, TransactionId};

/// With at most this many writers about, an answer of the disk is worth staying awake for.
const FEW_WRITERS: usize = 32;
/// How long a commit is held for writers on their way back: once, and for each of them. Without the hold the
/// writers fall into two halves that commit in turns: twice the commits, half-filled blocks. The time for each is
/// about what a writer costs the processors, so a group that comes back at once is not waited for in vain.
const HOLD: Duration = Duration::from_micros(100);
const HOLD_EACH: Duration = Duration::from_micros(5);

/// Blocks that are logged, and blocks that go home in the commit.
type Images = (Vec<Rc<CachedBlock>>, Vec<Rc<CachedBlock>>);

/// A transaction on its way to the disk, and the blocks that wait for the outcome.
struct Commit {
    transaction: CommittingTransaction,
    completion: Rc<Completion>,
    freed: Vec<(HomeBlock, u64)>,
    /// Blocks whose image is in the log: from then on it may go home.
    logged: Vec<Rc<CachedBlock>>,
    /// Blocks that go home in the commit itself.
    home: Vec<Rc<CachedBlock>>,
    plan: CommitPlan,
    handles: u64,
}

impl Engine {
    /// Waits until `transaction` and all before it are durable, starting a commit if need be.
    pub async fn commit(&self, transaction: TransactionId) -> Result<(), EngineError> {
        let asked = self.world.now();
        self.check()?;
        self.note_return();
        if let Some(completion) = self.completion_of(transaction) {
            completion.wait().await?;
        }
        let latency = self.world.now().since(asked);
        self.runner.counters.borrow_mut().synced(latency);
        Ok(())
    }

    /// Makes the data of one file durable as well as `transaction`, its latest change: `fsync`. Modes that log
    /// data, or send it home before each commit, need no more than the commit; `writeback` sends it home now.
    pub async fn sync_file(&self, inode: InodeNumber, transaction: TransactionId) -> Result<(), EngineError> {
        self.ticks.note_sync(inode, self.world.now());
        let lazy: Vec<_> = {
            let all = self.lazy.borrow();
            all.range((inode, HomeBlock(0))..=(inode, HomeBlock(u64::MAX))).copied().collect()
        };
        self.sync_lazy(lazy, transaction).await
    }

    /// Makes all that was done before the call durable: `sync`, `syncfs`.
    pub async fn sync(&self) -> Result<(), EngineError> {
        let lazy = self.lazy.borrow().iter().copied().collect();
        self.sync_lazy(lazy, self.running_id()).await
    }

    /// Commits `transaction`, and data that no commit waited for.
    async fn sync_lazy(
        &self,
        lazy: Vec<(InodeNumber, HomeBlock)>,
        transaction: TransactionId,
    ) -> Result<(), EngineError> {
        let transaction = match self.lazy_ordered.get() {
            _ if !lazy.is_empty() => self.order_lazy(lazy).await?,
            // Somebody else's sync may have taken this file's data along: then it is as durable as that commit.
            Some(ordered) if ordered.is_after(transaction) => ordered,
            _ => transaction,
        };
        // Write-back may have sent some home already; that is durable only after a flush.
        if let Err(error) = self.runner.flush_loose().await {
            self.abort(&error);
        }
        self.commit(transaction).await
    }

    /// Has data go home with the running transaction, to share its barrier. It joins as a handle does: the commit takes log
    /// space. What write-back has sent home while this waited is left out.
    async fn order_lazy(&self, blocks: Vec<(InodeNumber, HomeBlock)>) -> Result<TransactionId, EngineError> {
        // No credits: data that goes home takes no log blocks, and the commit block is in every bound.
        self.gate.pass(|| self.admit(0, 0).transpose()).await?;
        let mut running = self.running.borrow_mut();
        for (inode, at) in blocks {
            if self.lazy.borrow_mut().remove(&(inode, at))
                && let Some(block) = self.cache.borrow().peek(at)
            {
                block.lazy.set(None);
                block.running.set(true);
                block.ordered.set(Some(inode));
                running.transaction.add_home_data(inode, at, 0);
            }
        }
        let id = running.transaction.id();
        running.transaction.close_handle(0);
        self.lazy_ordered.set(Some(id));
        Ok(id)
    }

    /// What to wait for, after asking for it; `None` if `transaction` and all before it are durable.
    fn completion_of(&self, transaction: TransactionId) -> Option<Rc<Completion>> {
        if self.committed.get().is_at_or_after(transaction) {
            return None;
        }
        let committing = self.committing.borrow();
        if let Some((id, completion)) = &*committing
            && id.is_at_or_after(transaction)
        {
            return Some(completion.clone());
        }
        let running = self.running.borrow();
        let id = running.transaction.id();
        if running.transaction.is_empty() && running.transaction.open_handles() == 0 {
            return committing.as_ref().map(|(_, completion)| completion.clone());
        }
        self.request_commit(id);
        Some(running.completion.clone())
    }

    pub(crate) fn request_commit(&self, transaction: TransactionId) {
        if transaction.is_after(self.wanted.get()) {
            self.wanted.set(transaction);
            self.commit_work.notify();
        }
    }

    /// One of the writers answered by the last commit is back; a held commit waits for the last of them.
    fn note_return(&self) {
        if let Some(away) = self.away.get().checked_sub(1) {
            self.away.set(away);
            if away == 0 {
                self.commit_work.notify();
            }
        }
    }

    /// Commits whenever someone has asked for it.
    pub(crate) async fn commit_task(self: Rc<Self>) {
        loop {
            let wanted =
                || (self.is_over() || self.wanted.get().is_at_or_after(self.running_id())).then_some(());
            self.commit_work.until(wanted).await;
            if self.is_over() {
                return;
            }
            self.hold().await;
            self.locking.set(true);
            let stopped = || {
                let open = self.running.borrow().transaction.open_handles();
                (self.is_over() || open == 0).then_some(())
            };
            self.commit_work.until(stopped).await;
            if self.is_over() {
                return;
            }
            if self.skip_empty() {
                continue;
            }
            if let Err(error) = self.commit_running().await {
                self.abort(&error);
                return;
            }
        }
    }

    /// A transaction in which nothing happened is not written: it goes on, and those who waited for it are done.
    fn skip_empty(&self) -> bool {
        let mut running = self.running.borrow_mut();
        if !running.transaction.is_empty() {
            return false;
        }
        running.since = None;
        let completion = std::mem::take(&mut running.completion);
        self.wanted.set(running.transaction.id().previous());
        drop(running);
        self.locking.set(false);
        completion.complete(Ok(()));
        self.gate.wake_first();
        self.commit_work.notify();
        true
    }

    /// The writers answered by the last commit are worth a short wait: if they come back, they share this one.
    async fn hold(&self) {
        while let Some(tick) = self.ticks.until(self.world.now()).filter(|_| !self.is_over()) {
            self.world.sleep_until(tick).await;
        }
        let waiting = self.running.borrow().completion.waiters();
        let away = self.away.get();
        if waiting == 0 || away == 0 {
            return;
        }
        let until = self.answered.get().plus(HOLD + HOLD_EACH * away as u32);
        if self.world.now() < until {
            let few = waiting + away <= FEW_WRITERS;
            if few {
                self.world.expect_soon(true);
            }
            let back = self.commit_work.until(|| (self.is_over() || self.away.get() == 0).then_some(()));
            race(back, self.world.sleep_until(until)).await;
            if few {
                self.world.expect_soon(false);
            }
        }
        self.away.set(0);
    }

    /// From lock to answer. No handle is open.
    async fn commit_running(&self) -> Result<(), EngineError> {
        let commit = self.lock()?;
        let waiting = commit.completion.waiters();
        let few = waiting > 0 && waiting + self.away.get() <= FEW_WRITERS;
        if few {
            self.world.expect_soon(true);
        }
        let result = self.carry_out(commit).await;
        if few {
            self.world.expect_soon(false);
        }
        result
    }

    /// Takes the running transaction and puts a new one in its place. One stretch without waiting, so that the
    /// images are those of this moment.
    fn lock(&self) -> Result<Commit, EngineError> {
        let mut running = self.running.borrow_mut();
        let next = Running::new(running.transaction.id().next(), self.world.now(), self.block_size);
        let taken = std::mem::replace(&mut *running, next);
        let made = self.made_for_log(&taken.transaction);
        drop(running);
        self.ticks.begin_anew();
        let locked = taken.transaction.lock();
        *self.committing.borrow_mut() = Some((locked.id(), taken.completion.clone()));
        let (logged, home) = self.take_images(&locked)?;
        self.cache.borrow_mut().note_made(made);
        let handles = locked.handles();
        let (plan, transaction) = self.plan(locked)?;
        self.locking.set(false);
        self.gate.wake_first();
        self.commit_work.notify();
        let Running { completion, freed, .. } = taken;
        Ok(Commit { transaction, completion, freed, logged, home, plan, handles })
    }

    /// On a volume whose structures share a block, freeing one takes it from the other's transaction.
    fn take_images(&self, locked: &LockedTransaction) -> Result<Images, EngineError> {
        let cache = self.cache.borrow();
        let take = |at: HomeBlock| {
            let Some(block) = cache.peek(at) else { return Err(EngineError::Shared { at }) };
            block.running.set(false);
            block.ordered.set(None);
            *block.committing.borrow_mut() = Some(block.current.borrow().clone());
            block.recount();
            Ok(block.clone())
        };
        let logged = locked.metadata().chain(locked.data().map(|(at, _)| at)).map(take);
        let logged = logged.collect::<Result<Vec<_>, _>>()?;
        let home = locked.home_data().map(|(_, at)| take(at)).collect::<Result<Vec<_>, _>>()?;
        Ok(match self.log {
            Some(_) => (logged, home),
            None => (Vec::new(), logged.into_iter().chain(home).collect()),
        })
    }

    fn plan(
        &self,
        mut locked: LockedTransaction,
    ) -> Result<(CommitPlan, CommittingTransaction), EngineError> {
        let cache = self.cache.borrow();
        let image = |at: HomeBlock| {
            let block = cache.peek(at).expect("a block in a transaction stays in the cache");
            block.current.borrow().bytes.clone()
        };
        let Some(log) = &self.log else {
            return Ok((plan_commit_home(&locked, &image), locked.start_commit()));
        };
        let log = &mut *log.borrow_mut();
        let moment = Moment { time: self.world.wall_clock(), durable: self.committed.get() };
        locked.log_hot_blocks_whole(&log.checkpoint, log.space.capacity());
        let planned = plan_commit(&locked, &image, &mut log.space, &*log.records, &moment)
            .map_err(|error| EngineError::BadJournal { why: error.to_string() })?;
        let records = locked.metadata().chain(locked.data().map(|(at, _)| at)).collect();
        log.live.add(locked.id(), records);
        Ok((planned, locked.start_commit()))
    }

    /// The last moment before the plan is carried out: its log blocks get their addresses.
    fn issue(&self, planned: &mut CommitPlan) {
        let Some(log) = &self.log else { return };
        let log = &mut *log.borrow_mut();
        let runs = planned.issue(&mut log.space);
        if !log.started {
            log.started = true;
            log.superblock.set_tail(planned.transaction, runs.start().expect("a commit has log blocks"));
            begin_log(&mut planned.plan, log.image_of(&log.superblock));
        }
    }

    async fn carry_out(&self, mut commit: Commit) -> Result<(), EngineError> {
        self.issue(&mut commit.plan);
        let mut last = commit.plan.plan.split_off_last_phase();
        self.note_tail();
        self.runner.run(std::mem::take(&mut commit.plan.plan)).await?;
        let moved = self.take_tail_along(&mut last);
        self.runner.run(last).await?;
        self.check()?;
        if let Some(moved) = moved {
            self.tail_moved(moved);
        }
        self.finish(commit);
        Ok(())
    }

    /// The commit block is durable: what was logged may go home, what was freed may be used again.
    fn finish(&self, mut commit: Commit) {
        let committed = commit.transaction.committed(&mut commit.plan);
        for block in &commit.logged {
            let image = block.committing.take().expect("one image of each, since the lock");
            *block.committed.borrow_mut() = Some((image, committed.id));
            block.recount();
        }
        for block in &commit.home {
            let written = block.committing.take();
            // One that was changed meanwhile is home when the newer image is.
            if written.is_none_or(|image| Rc::ptr_eq(&image.bytes, &block.current.borrow().bytes)) {
                self.wash(block);
            }
            block.recount();
        }
        if let Some(log) = &self.log {
            log.borrow_mut().checkpoint.committed(&committed);
        }
        self.drop_freed(&commit.freed);
        self.committed.set(committed.id);
        *self.committing.borrow_mut() = None;
        self.runner.counters.borrow_mut().committed(commit.handles, commit.plan.payload);
        self.away.set(commit.completion.waiters());
        self.answered.set(self.world.now());
        commit.completion.complete(Ok(()));
        self.gate.wake_first();
        drop((commit.logged, commit.home, commit.plan));
        self.cache.borrow_mut().note_made(0);
        if self.log_is_short() || self.pinned_images() > self.cache.borrow().limit() / 2 {
            self.kick_home();
        }
    }

    /// The transaction that freed these blocks is committed: nothing of them goes home any more.
    fn drop_freed(&self, freed: &[(HomeBlock, u64)]) {
        let mut cache = self.cache.borrow_mut();
        for (at, count) in freed {
            for number in (0..*count).map(|index| at.plus(index)) {
                // Used again before this commit: only by another owner of the same block, on a damaged volume.
                if cache.peek(number).is_some_and(|block| block.running.get()) {
                    continue;
                }
                let Some(block) = cache.remove(number) else { continue };
                *block.committed.borrow_mut() = None;
                block.recount();
                if block.dirty_since.take().is_some() {
                    self.dirty_count.set(self.dirty_count.get() - 1);
                }
            }
        }
    }

    /// Asks for the commit of transactions that have become old.
    pub(crate) async fn commit_timer_task(self: Rc<Self>) {
        loop {
            let begun = || (self.is_over() || self.running.borrow().since.is_some()).then_some(());
            self.commit_work.until(begun).await;
            if self.is_over() {
                return;
            }
            let (id, since) = {
                let running = self.running.borrow();
                (running.transaction.id(), running.since)
            };
            let due = since.unwrap_or(self.world.now()).plus(self.options.commit);
            let replaced = || {
                let running = self.running.borrow();
                let same = running.transaction.id() == id && running.since == since;
                (self.is_over() || !same).then_some(())
            };
            let _ = race(self.commit_work.until(replaced), self.world.sleep_until(due)).await;
            if self.is_over() {
                return;
            }
            if replaced().is_none() {
                self.request_commit(id);
                self.commit_work.until(replaced).await;
            }
        }
    }
}
