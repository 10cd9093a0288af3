//! Long rows of requests go home past the cache: a run of blocks at a time, from the request's
//! memory or a copy of it.
//!
//! What would be logged does not. Nor do blocks of which the cache holds something newer than home.

use crate::cache::block_cache::Temperature;
use crate::cache::direct_writes::LongWrite;
use crate::engine::Engine;
use crate::interface::error::EngineError;
use crate::interface::update::FileRun;
use crate::transaction::handle::Handle;
use crate::writeback::claims::Claim;
use device::Buffer;
use journal::{BlockKind, Decision, Update};
use std::ops::Range;
use std::rc::Rc;
use units::HomeBlock;

fn copy(bytes: &[u8]) -> Buffer {
    let mut copy = Buffer::to_fill(bytes.len());
    copy.copy_from_slice(bytes);
    copy
}

impl FileRun<'_> {
    /// The memory that came with it. What is much longer than the run is not kept: the cache counts
    /// the run's blocks.
    fn kept_memory(&self) -> Option<Rc<Buffer>> {
        let memory = self.memory?;
        debug_assert_eq!(memory.len(), self.bytes.len());
        (memory.held() <= memory.len() + memory.len() / 4).then(|| memory.clone())
    }
}

impl Handle {
    /// Sends a run of blocks home past the cache, if it would bypass the log. False, and nothing is
    /// done, if the cache is to take it ([`Handle::file_data_now`]).
    pub fn file_run_past_cache(&mut self, run: &FileRun<'_>) -> Result<bool, EngineError> {
        let engine = self.engine().clone();
        let count = run.bytes.len() >> engine.block_size.shift();
        let blocks = run.home..run.home.plus(count as u64);
        engine.check_range(run.home, count as u64)?;
        let Some(decision) = engine.decide_past_cache(&blocks, run) else { return Ok(false) };
        if !engine.direct_writes.may_set_out(run.owner, run.bytes.len() as u64) {
            return Ok(false);
        }
        let before = (decision == Decision::HomeBeforeCommit).then_some(self.transaction());
        self.note_run(count as u32);
        engine.counters.borrow_mut().updated(run.request, run.bytes.len() as u64, true);
        if before.is_some() {
            engine.pipeline.transaction().add_home_run(run.bytes.len() as u64);
        }
        engine.cache.borrow_mut().pass(&blocks);
        // Now: whoever brings these blocks into the cache from here on sends them home later.
        let claim = engine.claims.enqueue(run.home, count as u64);
        let write = engine.direct_writes.set_out(run.owner, blocks, before);
        let memory = run.kept_memory().unwrap_or_else(|| Rc::new(copy(run.bytes)));
        engine.world.clone().spawn(Box::pin(engine.send_past_cache(write, claim, memory)));
        Ok(true)
    }
}

impl Engine {
    /// What the policy says of all `blocks`; `None` if the cache has one of them that it needs, or
    /// if one is to be logged.
    fn decide_past_cache(&self, blocks: &Range<HomeBlock>, run: &FileRun<'_>) -> Option<Decision> {
        if !self.cache.borrow().can_do_without(blocks) || self.first_copy_within(blocks).is_some() {
            return None;
        }
        let mut decisions =
            (blocks.start.get()..blocks.end.get()).map(|at| self.decide_of(HomeBlock(at), run));
        let first = decisions.next()?;
        (!first.is_logged() && decisions.all(|decision| decision == first)).then_some(first)
    }

    /// What the policy says of a block that the cache does not have.
    fn decide_of(&self, at: HomeBlock, run: &FileRun<'_>) -> Decision {
        if self.log.is_none() {
            return Decision::HomeBeforeCommit;
        }
        self.policy.decide(&Update {
            range: self.block_size.whole(),
            block_size: self.block_size,
            request: run.request,
            sequential: true,
            sequence: self.sequence(at, true),
            in_place: run.in_place,
            must_log: self.is_in_log(at),
        })
    }

    async fn send_past_cache(self: Rc<Self>, write: LongWrite, claim: Claim, memory: Rc<Buffer>) {
        self.world.name_task("large write");
        let count = memory.len() >> self.block_size.shift();
        let claim = if units::fault!("long-write-claims-late") {
            drop(claim);
            self.world
                .sleep_until(self.world.now().plus(std::time::Duration::from_millis(20)))
                .await;
            self.claims.enqueue(write.blocks.start, count as u64)
        } else {
            claim
        };
        claim.granted().await;
        let sent = self.write_past_cache(&write, count, memory.clone()).await;
        drop(claim);
        if let Err(error) = sent {
            self.keep(&write, &memory);
            self.abort(&error);
        }
        self.cache.borrow_mut().drop_passed(count);
        self.direct_writes.arrive(&write);
        self.pipeline.wake_joiners();
    }

    /// What could not be written home stays in memory: readers go on seeing it, and never what the
    /// disk held before.
    fn keep(&self, write: &LongWrite, memory: &Buffer) {
        for (index, part) in memory.chunks_exact(self.block_size.bytes()).enumerate() {
            let at = write.blocks.start.plus(index as u64);
            if self.direct_writes.is_followed(write, at) {
                continue;
            }
            let block = self.cache.borrow_mut().get_or_insert(at, Temperature::Warm);
            self.queue.mark_dirty(&block, || self.world.now(), &self.cache);
            // Others may have changed it meanwhile.
            block.fill(Rc::new(Buffer::copy_of(part)), self.block_size);
        }
    }

    async fn write_past_cache(
        &self,
        write: &LongWrite,
        count: usize,
        memory: Rc<Buffer>,
    ) -> Result<(), EngineError> {
        let kinds = vec![BlockKind::HomeData; count];
        let writes = self.runner.write_home(write.blocks.start, &kinds, vec![memory]).await?;
        self.counters.borrow_mut().requested_home_write();
        match write.before {
            Some(_) => self.durability.note_early(writes),
            // Whoever flushes it a second later may be asleep.
            None if self.note_unordered_at_home(write.owner, writes) => self.queue.request(),
            None => {}
        }
        Ok(())
    }
}
