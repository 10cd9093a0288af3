//! A checkpoint on request: everything is written home now, and the log holds only later changes.

use crate::interface::error::EngineError;
use crate::log::tail::TailRequest;
use crate::writeback::checkpoints::{CheckpointProgress, CheckpointReport};
use crate::writeback::writeback_task::Writeback;

impl Writeback<'_> {
    /// Checkpoints everything: on return all that was changed before the call is home, and the log
    /// no longer needs it. Files of which durability is enough are excepted.
    pub async fn checkpoint(&self) -> Result<CheckpointReport, EngineError> {
        if self.admission.pipeline.is_quiesced() {
            return Ok(CheckpointReport::default());
        }
        self.syncs.sync().await?;
        self.write_back_committed().await?;
        let _lock = self.admission.queue.lock().await;
        if let Some(log) = self.admission.log {
            log.borrow_mut().is_waited_for();
        }
        self.tail.advance_tail(TailRequest::Space).await?;
        Ok(self.swaps.checkpoints.last())
    }

    /// Writes home all that was committed at the call, not necessarily durably; the log keeps it,
    /// too. So a checkpoint begins, and so Linux's sync(2) ends: it writes what its journal has
    /// committed.
    pub async fn write_back_committed(&self) -> Result<(), EngineError> {
        let _lock = self.admission.queue.lock().await;
        self.admission.pipeline.check()?;
        self.write_all_committed().await?.map_or(Ok(()), Err)
    }

    pub fn checkpoint_progress(&self) -> CheckpointProgress {
        self.swaps.checkpoints.progress()
    }
}
