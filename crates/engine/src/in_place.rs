//! Data made durable where it lies, without a commit: what a file's last commit leads to already, and no log holds.

use crate::engine::Engine;
use crate::error::EngineError;
use crate::home::Neighbours;
use journal::plan_home_durable;
use units::{HomeBlock, InodeNumber};

/// With more blocks than this on their way home with the running transaction, a commit takes a file's along.
const LOOKED_THROUGH_MAX: usize = 4096;

impl Engine {
    /// Makes data of `inode` durable that goes home before the running transaction commits, or whenever: by home writes
    /// and one flush. What must be committed for it to be found is committed already, the caller knows. False if it
    /// takes a commit all the same.
    pub async fn sync_in_place(&self, inode: InodeNumber) -> Result<bool, EngineError> {
        let asked = self.world.now();
        self.check()?;
        // A commit under way may have taken some along.
        let committing = self.committing.borrow().as_ref().map(|(_, completion)| completion.clone());
        if let Some(completion) = committing {
            completion.wait().await?;
        }
        let id = self.running_id();
        let Some(blocks) = self.data_in_place(inode) else { return Ok(false) };
        let written = match self.write_home(blocks, Neighbours::Stay).await {
            Ok(outcome) => outcome.whole(),
            Err(error) => {
                self.abort(&error);
                Err(error)
            }
        };
        written?;
        // Some may have been changed again, or a commit may have begun and taken them.
        if self.running_id() != id || self.data_in_place(inode).is_none_or(|left| !left.is_empty()) {
            return Ok(false);
        }
        if !self.runner.is_home_durable(self.runner.home_written())
            && let Err(error) = self.runner.run(plan_home_durable()).await
        {
            self.abort(&error);
            return Err(error);
        }
        let latency = self.world.now().since(asked);
        self.runner.counters.borrow_mut().synced(latency);
        Ok(true)
    }

    /// The file's blocks that may go home as they are now; `None` if a commit is the better way. An older image that is
    /// not home yet is a reason: moving it is a matter of the log's tail.
    fn data_in_place(&self, inode: InodeNumber) -> Option<Vec<HomeBlock>> {
        if self.ticks.are_kept() {
            return None;
        }
        let mut blocks = self.running.borrow().transaction.home_data_of(inode, LOOKED_THROUGH_MAX)?;
        let lazy = self.lazy.borrow();
        blocks.extend(lazy.range((inode, HomeBlock(0))..=(inode, HomeBlock(u64::MAX))).map(|(_, at)| *at));
        blocks.sort_unstable();
        blocks.dedup();
        let cache = self.cache.borrow();
        let goes = |at: &HomeBlock| {
            cache.peek(*at).is_some_and(|block| {
                block.current_may_go_home() && block.is_whole() && block.committed.borrow().is_none()
            })
        };
        blocks.iter().all(goes).then_some(blocks)
    }
}
