//! Blocks brought home for whoever reads or writes them past the journal.

use crate::engine::Engine;
use crate::error::EngineError;
use crate::home::BATCH_BLOCKS_MAX;
use crate::home_runs::Neighbours;
use journal::plan_home_durable;
use units::HomeBlock;

impl Engine {
    /// When it returns, home holds durably what these blocks held at the call, or newer. `runs`: first block and count,
    /// in order and apart.
    pub async fn bring_home(&self, runs: &[(HomeBlock, u64)]) -> Result<(), EngineError> {
        let waiting = self.queue.dirty_within(&self.cache.borrow(), runs);
        if !waiting.is_empty() {
            self.sync().await?;
        }
        let _turn = self.queue.turn().await;
        self.pipeline.check()?;
        for batch in waiting.chunks(BATCH_BLOCKS_MAX) {
            self.write_home(batch.to_vec(), Neighbours::Stay).await?.whole()?;
        }
        let durability = &self.runner.durability;
        if durability.is_durable(durability.home_written()) {
            return Ok(());
        }
        self.runner.run(plan_home_durable()).await
    }
}
