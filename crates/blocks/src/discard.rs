//! Discards: blocks whose content is no longer needed. They are not written back any more, and the
//! log's records of them are revoked.
//!
//! What a discarded block holds is undefined until it is written again, as on any disk.

use crate::freed::Unsettled;
use crate::layout::BlockRun;
use crate::shared::Shared;
use engine::{Contents, EngineError};
use std::ops::Range;
use units::HomeBlock;

/// Blocks freed before the task yields to others.
const STEP_BLOCKS: u64 = 8192;

impl Shared {
    /// Waits until no uncommitted transaction has freed any of `blocks`, and until what home holds
    /// of them is durable.
    pub async fn until_reusable(&self, blocks: &Range<u64>) -> Result<(), EngineError> {
        if units::fault!("blocks-freed-reused") {
            return Ok(());
        }
        while let Some(unsettled) = self.freed.latest(blocks) {
            self.settle(unsettled).await?;
        }
        Ok(())
    }

    /// Waits until runs are committed, and what home holds of them is durable.
    async fn settle(&self, unsettled: Unsettled) -> Result<(), EngineError> {
        self.engine.commit(unsettled.by).await?;
        let blocks = self.freed.settled_by(unsettled).into_iter();
        let layout = self.layout();
        let runs = blocks.flat_map(|blocks| layout.runs(blocks));
        let runs: Vec<_> = runs.map(|run| (run.home, run.count)).collect();
        if !units::fault!("blocks-freed-not-settled") {
            self.engine.settle_freed(&runs).await?;
        }
        self.freed.settle(unsettled);
        Ok(())
    }

    /// Frees the whole blocks of the range; blocks covered in part do not change.
    pub async fn discard(&self, at: u64, length: u64) -> Result<(), EngineError> {
        let _open = self.changes.read().await;
        let layout = self.layout();
        let size = layout.block_size();
        let first = at.div_ceil(size.bytes() as u64);
        let end = (at + length) >> size.shift();
        let mut next = first;
        while next < end {
            let step = next..end.min(next + STEP_BLOCKS);
            let runs: Vec<BlockRun> = layout.runs(step.clone()).collect();
            for run in runs {
                self.free(run).await?;
            }
            next = step.end;
            runtime::yield_now().await;
        }
        Ok(())
    }

    async fn free(&self, run: BlockRun) -> Result<(), EngineError> {
        let engine = &self.engine;
        let end = run.home.plus(run.count);
        let mut at = run.home;
        while at < end {
            let mut handle = engine.start(engine.credits_revokes()).await?;
            let left = run.block + (at.get() - run.home.get())..run.block + run.count;
            if self.writing.overlap(&left) {
                handle.stop();
                self.writing.until_over(&left).await;
                continue;
            }
            loop {
                let count = engine.freeable_in_one_handle(at, end.get() - at.get());
                handle.forget(at, count, Contents::Data);
                let from = run.block + (at.get() - run.home.get());
                self.freed.add(from..from + count, handle.transaction());
                at = HomeBlock(at.get() + count);
                if at >= end || !handle.extend(engine.credits_revokes()) {
                    break;
                }
            }
            handle.stop();
        }
        if !self.freed.is_full() {
            return Ok(());
        }
        if units::fault!("blocks-discard-waits-for-all") {
            return self.until_reusable(&(0..u64::MAX)).await;
        }
        // Runs that concurrent discards add are theirs to wait for.
        match self.freed.latest(&(0..u64::MAX)) {
            Some(unsettled) => self.settle(unsettled).await,
            None => Ok(()),
        }
    }
}
