//! Preview of a replay, as the log stands: for the crash explorer, which knows the writes and
//! compares them with the log.

use crate::interface::error::EngineError;
use crate::interface::options::EngineParts;
use crate::recovery::passes::{Recovery, RecoveryStart};
use journal::ReplayAction;
use units::{HomeBlock, TransactionId};

/// A transaction that recovery would replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PreviewedTransaction {
    pub id: TransactionId,
    /// The log blocks that hold its records and revokes.
    pub blocks: Vec<PreviewedBlock>,
    /// The blocks of home that it holds whole, as they are replayed.
    pub whole: Vec<(HomeBlock, Vec<u8>)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PreviewedBlock {
    /// The byte of the log's disk at which it begins.
    pub at: u64,
    pub bytes: Vec<u8>,
}

/// The transactions that recovery would replay. Nothing is written. The log is held in memory as a
/// whole.
pub async fn replay_preview(parts: &EngineParts) -> Result<Vec<PreviewedTransaction>, EngineError> {
    match Recovery::begin(parts, true).await? {
        RecoveryStart::Clean(_) => Ok(Vec::new()),
        RecoveryStart::Live(mut recovery) => recovery.replay_preview().await,
    }
}

impl Recovery<'_> {
    async fn replay_preview(&mut self) -> Result<Vec<PreviewedTransaction>, EngineError> {
        let read = self.read_log().await?;
        let mut all = Vec::new();
        for (id, blocks) in read.scanned.transactions() {
            let mut read = Vec::new();
            for block in blocks {
                let (at, bytes) = self.read_log_block(block).await?;
                read.push(PreviewedBlock { at, bytes: bytes.to_vec() });
            }
            all.push(PreviewedTransaction { id, blocks: read, whole: Vec::new() });
        }
        let mut index = 0;
        self.replay(&read, |record| {
            while all[index].id != record.by {
                index += 1;
            }
            if let ReplayAction::WriteWhole { home, bytes } = record.action {
                all[index].whole.push((home, bytes));
            }
            None
        })
        .await?;
        Ok(all)
    }
}
