//! Blocks brought home for whoever reads or writes them past the journal.

use crate::engine::Engine;
use crate::error::EngineError;
use crate::home::{BATCH_BLOCKS_MAX, Neighbours};
use journal::plan_home_durable;
use units::HomeBlock;

impl Engine {
    /// When it returns, home holds durably what these blocks held at the call, or newer. `runs`: first block and count,
    /// in order and apart.
    pub async fn bring_home(&self, runs: &[(HomeBlock, u64)]) -> Result<(), EngineError> {
        let waiting = self.dirty_within(runs);
        if !waiting.is_empty() {
            self.sync().await?;
        }
        let _turn = self.home_turn.write().await;
        self.check()?;
        for batch in waiting.chunks(BATCH_BLOCKS_MAX) {
            self.write_home(batch.to_vec(), Neighbours::Stay).await?.whole()?;
        }
        if self.runner.is_home_durable(self.runner.home_written()) {
            return Ok(());
        }
        self.runner.run(plan_home_durable()).await
    }

    /// Blocks of `runs` that are newer than home, sorted.
    fn dirty_within(&self, runs: &[(HomeBlock, u64)]) -> Vec<HomeBlock> {
        let is_within = |at: HomeBlock| {
            let before = runs.partition_point(|(start, _)| *start <= at);
            before > 0 && at.get() - runs[before - 1].0.get() < runs[before - 1].1
        };
        let cache = self.cache.borrow();
        let is_dirty = |at: HomeBlock| cache.peek(at).is_some_and(|block| block.dirty_since.get().is_some());
        let dirty = self.dirty.borrow();
        let numbers = dirty.iter().map(|(_, number)| *number);
        let mut found: Vec<_> = numbers.filter(|number| is_within(*number) && is_dirty(*number)).collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}
