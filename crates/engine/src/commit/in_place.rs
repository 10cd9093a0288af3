//! Data made durable where it lies, without a commit: what a file's last commit leads to already,
//! and no log holds.

use crate::commit::sync::Syncer;
use crate::interface::error::EngineError;
use crate::writeback::home_writer::HomeWriter;
use journal::Policy;
use units::{HomeBlock, Owner};

/// Number of blocks in flight to home with the running transaction above which a commit takes an
/// owner's along.
const LOOKED_THROUGH_MAX: usize = 4096;

/// Makes data durable at home, without a commit.
#[derive(Clone, Copy)]
pub(crate) struct InPlaceSync<'a> {
    pub syncs: Syncer<'a>,
    pub writer: HomeWriter<'a>,
    pub policy: &'a dyn Policy,
}

impl InPlaceSync<'_> {
    /// Notes that a sync comes for data of which [`crate::Engine::sync_in_place`] could be asked,
    /// were none of it logged.
    pub fn note_sync_of_data(&self) {
        if let Some(auto) = self.policy.learns() {
            auto.data_sync_requested(self.syncs.admission.world.now());
        }
    }

    /// Makes data of `owner` durable that is written home before the running transaction commits,
    /// or whenever: by home writes and one flush, or one durable write. The caller knows that
    /// whatever leads to it is committed already. False if it takes a commit all the same.
    pub async fn sync_in_place(&self, owner: Owner) -> Result<bool, EngineError> {
        let asked = self.syncs.admission.world.now();
        self.syncs.admission.pipeline.check()?;
        let on = !units::fault!("long-write-not-synced-in-place");
        self.syncs.direct_writes.until_arrived(|write| on && write.owner == owner).await;
        // A commit in flight may have taken some along.
        self.syncs.wait_for_commits_in_flight().await?;
        // The next may have begun at the same moment, and taken the rest.
        if self.syncs.admission.pipeline.in_flight() > 0 {
            return Ok(false);
        }
        let id = self.syncs.admission.pipeline.running_id();
        let Some(blocks) = self.data_in_place(owner) else { return Ok(false) };
        let written =
            Box::pin(self.writer.sync_home(blocks)).await.and_then(|outcome| outcome.whole());
        written.inspect_err(|error| self.syncs.aborter.abort(error))?;
        // Some may have been changed again, or a commit may have begun and taken them.
        if self.syncs.admission.pipeline.running_id() != id
            || self.data_in_place(owner).is_none_or(|left| !left.is_empty())
        {
            return Ok(false);
        }
        let durable = self.syncs.aborter.executor.make_writes_durable().await;
        durable.map_err(EngineError::from).inspect_err(|error| self.syncs.aborter.abort(error))?;
        self.syncs.admission.pipeline.check()?;
        if let Some(auto) = self.policy.learns() {
            auto.data_sync_answered(asked, self.syncs.admission.world.now());
        }
        self.syncs.admission.pipeline.note_writer_arrival();
        let latency = self.syncs.admission.world.now().since(asked);
        self.syncs.counters.borrow_mut().synced(latency);
        Ok(true)
    }

    /// The owner's blocks that may be written home as they are now; `None` if a commit is the
    /// better way. An older image that is not home yet is a reason: moving it is a matter of the
    /// log's tail.
    fn data_in_place(&self, owner: Owner) -> Option<Vec<HomeBlock>> {
        if self.syncs.admission.pacing.commits_every_sync() {
            return None;
        }
        let mut blocks =
            self.syncs.admission.pipeline.transaction().home_data_of(owner, LOOKED_THROUGH_MAX)?;
        blocks.extend(self.syncs.unordered.of(owner).into_iter().map(|(_, at)| at));
        blocks.sort_unstable();
        blocks.dedup();
        let cache = self.syncs.admission.cache.borrow();
        let goes =
            |at: &HomeBlock| cache.peek(*at).is_some_and(|block| block.is_only_current_image());
        blocks.iter().all(goes).then_some(blocks)
    }
}
