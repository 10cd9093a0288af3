//! The end of an engine after a failed write, or on request.

use crate::interface::error::EngineError;
use crate::interface::options::EngineOptions;
use crate::log::log_state::LogState;
use crate::writeback::dirty_queue::DirtyQueue;
use commit::Durability;
use commit::Pipeline;
use commit::PlanExecutor;
use device::World;
use std::cell::RefCell;

/// Stops an engine that can no longer write.
#[derive(Clone, Copy)]
pub(crate) struct Aborter<'a> {
    pub world: &'a dyn World,
    pub options: &'a EngineOptions,
    pub log: Option<&'a RefCell<LogState>>,
    pub pipeline: &'a Pipeline,
    pub durability: &'a Durability,
    pub queue: &'a DirtyQueue,
    pub executor: &'a PlanExecutor,
}

impl Aborter<'_> {
    /// Aborts after a failed write or flush: what is durable is unknown, so nothing is written any
    /// more, and every present and later waiter gets this error. Also for a caller that has changed
    /// blocks and cannot finish its change: nothing of the running transaction will ever be
    /// committed.
    pub fn abort(&self, cause: &EngineError) {
        if !self.pipeline.has_failed() {
            self.stop_writing(cause);
            self.record_failure(cause);
        }
    }

    /// Ends an engine that could not write everything home: aborts after a failed write or flush. A
    /// block that cannot be read stays in the log, which is as sound as after a crash.
    pub fn end(&self, cause: &EngineError) {
        if self.durability.check().is_err() || units::fault!("unread-home-recorded") {
            self.abort(cause);
        } else {
            self.stop_writing(cause);
        }
    }

    /// Stops writing as [`Aborter::abort`] does, but leaves the journal sound: the next mount
    /// replays it, and e2fsck need not run.
    pub fn stop_writing(&self, cause: &EngineError) {
        if !self.pipeline.has_failed() {
            self.pipeline.fail(cause.root(), matches!(cause, EngineError::ShutDown));
            // Operations in flight write nothing more either.
            let _: Result<(), _> = self.durability.note(Err(cause.root().to_string()));
            self.wake_writeback();
        }
    }

    pub(crate) fn wake_writeback(&self) {
        self.queue.wake();
        if let Some(log) = self.log {
            log.borrow().superblock().wake();
        }
    }

    /// Leaves a note in the journal superblock, if that can still be written, so that e2fsck looks
    /// closely.
    fn record_failure(&self, cause: &EngineError) {
        let Some(log) = self.log else { return };
        let is_damaged = matches!(cause, EngineError::Stopped { .. });
        let note =
            log.borrow().superblock().with_failure(is_damaged, self.options.journal_checksum);
        let Ok(write) = self.executor.write_after_failure(note) else { return };
        // Whether it succeeds changes nothing: the engine has stopped.
        self.world.spawn(Box::pin(async move { drop(write.await) }));
    }
}
