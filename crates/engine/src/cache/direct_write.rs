//! Long sequential streams bypass the cache: a run of blocks at a time, from the request's memory
//! or a copy of it.
//!
//! What would be logged does not. Nor do blocks of which the cache holds something newer than home.

use crate::cache::block_cache::Temperature;
use crate::cache::direct_writes::DirectWrite;
use crate::commit::file_data::DataUpdates;
use crate::interface::error::EngineError;
use crate::interface::update::FileRun;
use crate::transaction::abort::Aborter;
use crate::writeback::home_writer::HomeWriter;
use commit::HomeClaim;
use device::Buffer;
use journal::{BlockKind, Decision, Update};
use std::ops::Range;
use std::rc::Rc;
use units::HomeBlock;

/// Writes runs of blocks home that bypass the cache.
#[derive(Clone, Copy)]
pub(crate) struct DirectWriter<'a> {
    pub updates: DataUpdates<'a>,
    pub writer: HomeWriter<'a>,
    pub aborter: Aborter<'a>,
}

impl DirectWriter<'_> {
    /// Returns the policy's decision on all `blocks`; `None` if the cache has one of them that it
    /// needs, or if one is to be logged.
    pub fn decide_past_cache(
        &self,
        blocks: &Range<HomeBlock>,
        run: &FileRun<'_>,
    ) -> Option<Decision> {
        if !self.updates.reader.cache.borrow().can_do_without(blocks)
            || self.updates.reader.first_copy_within(blocks).is_some()
        {
            return None;
        }
        let mut decisions =
            (blocks.start.get()..blocks.end.get()).map(|at| self.decide_of(HomeBlock(at), run));
        let first = decisions.next()?;
        (!first.is_logged() && decisions.all(|decision| decision == first)).then_some(first)
    }

    /// Returns the policy's decision on a block that the cache does not have.
    fn decide_of(&self, at: HomeBlock, run: &FileRun<'_>) -> Decision {
        if self.aborter.log.is_none() {
            return Decision::HomeBeforeCommit;
        }
        self.updates.policy.decide(&Update {
            range: self.updates.reader.block_size.whole(),
            block_size: self.updates.reader.block_size,
            request: run.request,
            sequential: run.sequential,
            sequence: self.updates.sequence(at, true),
            in_place: run.in_place,
            must_log: self.updates.is_in_log(at),
        })
    }

    pub async fn send_past_cache(&self, write: DirectWrite, claim: HomeClaim, memory: Rc<Buffer>) {
        self.updates.world.name_task("large write");
        let count = memory.len() >> self.updates.reader.block_size.shift();
        let claim = if units::fault!("long-write-claims-late") {
            drop(claim);
            self.updates
                .world
                .sleep_until(self.updates.world.now().plus(std::time::Duration::from_millis(20)))
                .await;
            self.writer.copies.claims.enqueue(write.blocks.start, count as u64)
        } else {
            claim
        };
        claim.granted().await;
        let sent = self.write_past_cache(&write, count, memory.clone()).await;
        drop(claim);
        if let Err(error) = sent {
            self.keep(&write, &memory);
            self.aborter.abort(&error);
        }
        self.updates.reader.cache.borrow_mut().drop_bypassed(count);
        self.updates.reader.direct_writes.arrive(&write);
        self.updates.pipeline.wake_joiners();
    }

    /// Keeps in memory the blocks that could not be written home: readers go on seeing them, and
    /// never the former content of the disk.
    fn keep(&self, write: &DirectWrite, memory: &Buffer) {
        for (index, part) in memory.chunks_exact(self.updates.reader.block_size.bytes()).enumerate()
        {
            let at = write.blocks.start.plus(index as u64);
            if self.updates.reader.direct_writes.is_followed(write, at) {
                continue;
            }
            let block = self.updates.reader.cache.borrow_mut().get_or_insert(at, Temperature::Warm);
            self.updates.queue.mark_dirty(
                &block,
                || self.updates.world.now(),
                self.updates.reader.cache,
            );
            // Another caller may have changed it while it was read.
            block.fill(Rc::new(Buffer::copy_of(part)), self.updates.reader.block_size);
        }
    }

    async fn write_past_cache(
        &self,
        write: &DirectWrite,
        count: usize,
        memory: Rc<Buffer>,
    ) -> Result<(), EngineError> {
        let kinds = vec![BlockKind::HomeData; count];
        let writes =
            self.aborter.executor.write_home(write.blocks.start, &kinds, vec![memory]).await?;
        self.updates.reader.counters.borrow_mut().requested_home_write();
        match write.before {
            Some(_) => self.writer.durability.note_early(writes),
            // The task that flushes it a second later may be asleep.
            None if self.writer.note_unordered_at_home(write.owner, writes) => {
                self.updates.queue.request()
            }
            None => {}
        }
        Ok(())
    }
}
