//! Data made durable where it lies, without a commit: what a file's last commit leads to already,
//! and no log holds.

use crate::engine::Engine;
use crate::interface::error::EngineError;
use journal::plan_home_durable;
use units::{HomeBlock, Owner};

/// With more blocks than this on their way home with the running transaction, a commit takes an
/// owner's along.
const LOOKED_THROUGH_MAX: usize = 4096;

impl Engine {
    /// A sync comes for data of which [`Engine::sync_in_place`] could be asked, were none of it
    /// logged.
    pub fn note_sync_of_data(&self) {
        if let Some(auto) = self.policy.learns() {
            auto.asked_for_data_alone(self.world.now());
        }
    }

    /// Makes data of `owner` durable that goes home before the running transaction commits, or
    /// whenever: by home writes and one flush, or one durable write. The caller knows that whatever
    /// leads to it is committed already. False if it takes a commit all the same.
    pub async fn sync_in_place(&self, owner: Owner) -> Result<bool, EngineError> {
        let asked = self.world.now();
        self.pipeline.check()?;
        let on = !units::fault!("long-write-not-synced-in-place");
        self.direct_writes.until_arrived(|write| on && write.owner == owner).await;
        // A commit under way may have taken some along.
        self.wait_for_commits_in_flight().await?;
        // The next may have begun at the same moment, and taken the rest.
        if self.pipeline.in_flight() > 0 {
            return Ok(false);
        }
        let id = self.running();
        let Some(blocks) = self.data_in_place(owner) else { return Ok(false) };
        let written = Box::pin(self.sync_home(blocks)).await.and_then(|outcome| outcome.whole());
        written.inspect_err(|error| self.abort(error))?;
        // Some may have been changed again, or a commit may have begun and taken them.
        if self.running() != id || self.data_in_place(owner).is_none_or(|left| !left.is_empty()) {
            return Ok(false);
        }
        let durability = &self.durability;
        if !durability.is_durable(durability.home_written()) {
            self.runner.run(plan_home_durable()).await.inspect_err(|error| self.abort(error))?;
        }
        self.check()?;
        if let Some(auto) = self.policy.learns() {
            auto.needed_no_commit(asked, self.world.now());
        }
        self.pipeline.note_return();
        let latency = self.world.now().since(asked);
        self.counters.borrow_mut().synced(latency);
        Ok(true)
    }

    /// The owner's blocks that may go home as they are now; `None` if a commit is the better way.
    /// An older image that is not home yet is a reason: moving it is a matter of the log's tail.
    fn data_in_place(&self, owner: Owner) -> Option<Vec<HomeBlock>> {
        if self.pacing.commits_every_sync() {
            return None;
        }
        let mut blocks = self.pipeline.transaction().home_data_of(owner, LOOKED_THROUGH_MAX)?;
        blocks.extend(self.unordered.of(owner).into_iter().map(|(_, at)| at));
        blocks.sort_unstable();
        blocks.dedup();
        let cache = self.cache.borrow();
        let goes = |at: &HomeBlock| cache.peek(*at).is_some_and(|block| block.goes_home_as_it_is());
        blocks.iter().all(goes).then_some(blocks)
    }
}
