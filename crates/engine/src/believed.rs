//! What recovery believes of a log, as it stands there: for whoever knows what was written, and
//! holds the two together.

use crate::error::EngineError;
use crate::options::EngineParts;
use crate::recovery::{Begun, Recovery};
use journal::ReplayAction;
use units::{HomeBlock, TransactionId};

/// A transaction that recovery would replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BelievedTransaction {
    pub id: TransactionId,
    /// The log blocks that hold its records and revokes.
    pub blocks: Vec<BelievedBlock>,
    /// The blocks of home that it holds whole, as they are replayed.
    pub whole: Vec<(HomeBlock, Vec<u8>)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BelievedBlock {
    /// The byte of the log's disk at which it begins.
    pub at: u64,
    pub bytes: Vec<u8>,
}

/// The transactions that recovery would replay. Nothing is written. The log is held in memory as a
/// whole.
pub async fn believed(parts: &EngineParts) -> Result<Vec<BelievedTransaction>, EngineError> {
    match Recovery::begin(parts, true).await? {
        Begun::Clean(_) => Ok(Vec::new()),
        Begun::Live(mut recovery) => recovery.believed().await,
    }
}

impl Recovery<'_> {
    async fn believed(&mut self) -> Result<Vec<BelievedTransaction>, EngineError> {
        let read = self.read_log().await?;
        let mut all = Vec::new();
        for (id, blocks) in read.scanned.transactions() {
            let mut read = Vec::new();
            for block in blocks {
                let (at, bytes) = self.read_log_block(block).await?;
                read.push(BelievedBlock { at, bytes: bytes.to_vec() });
            }
            all.push(BelievedTransaction { id, blocks: read, whole: Vec::new() });
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
