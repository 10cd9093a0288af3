//! An engine that is open to be read begins to write, and comes to rest again.

use crate::engine::Engine;
use crate::interface::error::EngineError;
use crate::interface::options::BarrierKind;
use std::rc::Rc;
use std::time::Duration;

impl Engine {
    /// What was opened to be read, or has come to rest, may be changed from now on.
    pub async fn begin_writing(self: &Rc<Self>) -> Result<(), EngineError> {
        self.check()?;
        self.pipeline.set_quiesced(false);
        self.spawn_tasks();
        Ok(())
    }

    /// Commits, sends everything home and empties the log, as [`Engine::shutdown`] does; then
    /// nothing may be changed until [`Engine::begin_writing`]. No handle may be open, and nobody
    /// about to start one.
    pub async fn quiesce(&self) -> Result<(), EngineError> {
        self.sync().await?;
        self.pipeline.set_quiesced(true);
        // What has come in between.
        let rested = match self.commit(self.running()).await {
            Ok(()) => self.empty_log().await,
            Err(error) => Err(error),
        };
        rested.inspect_err(|error| self.abort(error))
    }

    /// From the next transaction on.
    pub fn set_commit_age(&self, age: Duration) {
        self.commit_age.set(age);
    }
    /// Between commits: no commit is ordered in a part of it alone. What was written without
    /// barriers is flushed by the first that comes, on each disk, and the tail moves past nothing
    /// of it before.
    pub async fn set_barrier(&self, barrier: BarrierKind) -> Result<(), EngineError> {
        let _lock = self.queue.lock().await;
        while self.pipeline.in_flight() > 0 {
            self.wait_for_commits_in_flight().await?;
        }
        if self.durability.keep_barriers(barrier == BarrierKind::Flush)
            && let Some(log) = &self.log
        {
            log.borrow_mut().forget_notes();
        }
        Ok(())
    }
}
