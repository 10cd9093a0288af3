//! Syncs: each waits for a commit, and orders data that no commit waits for.

use crate::cache::direct_writes::DirectWrite;
use crate::cache::direct_writes::DirectWrites;
use crate::interface::error::EngineError;
use crate::interface::stats::Counters;
use crate::transaction::abort::Aborter;
use crate::transaction::admit::Admission;
use crate::writeback::unordered_data::UnorderedData;
use journal::plan_home_durable;
use std::cell::RefCell;
use units::{HomeBlock, Owner, TransactionId};

/// Makes changes durable.
#[derive(Clone, Copy)]
pub(crate) struct Syncer<'a> {
    pub admission: Admission<'a>,
    pub aborter: Aborter<'a>,
    pub counters: &'a RefCell<Counters>,
    pub unordered: &'a UnorderedData,
    pub direct_writes: &'a DirectWrites,
}

impl Syncer<'_> {
    /// Waits until `transaction` and all before it are durable, starting a commit if need be.
    pub async fn commit(&self, transaction: TransactionId) -> Result<(), EngineError> {
        let asked = self.admission.world.now();
        self.admission.pipeline.check()?;
        self.admission.pipeline.note_writer_arrival();
        if let Some(completion) = self.admission.pipeline.completion_of(transaction) {
            completion.wait().await?;
        }
        let latency = self.admission.world.now().since(asked);
        self.counters.borrow_mut().synced(latency);
        Ok(())
    }

    /// Waits until all that is in flight to the disk now is durable; asks for nothing.
    pub async fn wait_for_commits_in_flight(&self) -> Result<(), EngineError> {
        match self.admission.pipeline.last_in_flight() {
            Some(last) => Ok(last.wait().await?),
            None => Ok(()),
        }
    }

    /// Makes the data of one owner durable as well as `transaction`, its latest change: `fsync`.
    /// What is logged, or is written home before the commit, needs no more than that; what is
    /// written home at any time is sent there now. Nobody else's is.
    pub async fn sync_owner(
        &self,
        owner: Owner,
        transaction: TransactionId,
    ) -> Result<(), EngineError> {
        self.admission.pacing.synced(owner, self.admission.world.now());
        let mut unordered = self.unordered.of(owner);
        if units::fault!("fsync-leaves-data") {
            unordered.clear();
        }
        self.sync_unordered(Some(owner), unordered, transaction).await
    }

    /// Makes all that was done before the call durable: `sync`, `syncfs`.
    pub async fn sync(&self) -> Result<(), EngineError> {
        let unordered = self.unordered.all();
        self.sync_unordered(None, unordered, self.admission.pipeline.running_id()).await
    }

    /// Commits `transaction`, and data of `owner`, or of everybody, that no commit waited for.
    async fn sync_unordered(
        &self,
        owner: Option<Owner>,
        unordered: Vec<(Owner, HomeBlock)>,
        transaction: TransactionId,
    ) -> Result<(), EngineError> {
        let is_meant = |write: &DirectWrite| owner.is_none_or(|owner| write.owner == owner);
        if !units::fault!("long-write-not-synced") {
            self.direct_writes.until_arrived(is_meant).await;
        }
        let transaction = match unordered.is_empty() {
            true => self.unordered.durable_with(owner, transaction),
            false => self.order_unordered(unordered).await?,
        };
        // Write-back may have sent some home already; that is durable only after a flush.
        if let Err(error) = self.make_unordered_durable(owner).await {
            self.aborter.abort(&error);
        }
        self.commit(transaction).await
    }

    /// Makes durable the data of `owner`, or of all owners, that write-back has written home and no
    /// log holds.
    pub(crate) async fn make_unordered_durable(
        &self,
        owner: Option<Owner>,
    ) -> Result<(), EngineError> {
        match self.aborter.durability.wants_flush_of_unordered(owner) {
            true => Ok(self.aborter.executor.run(plan_home_durable()).await?),
            false => Ok(()),
        }
    }

    /// Has data written home with the running transaction, to share its barrier. It joins as a
    /// handle does: the commit takes log space. What write-back has sent home while this waited is
    /// left out.
    async fn order_unordered(
        &self,
        blocks: Vec<(Owner, HomeBlock)>,
    ) -> Result<TransactionId, EngineError> {
        // No credits: data that is written home takes no log blocks, and the commit block is in
        // every bound.
        if units::fault!("loose-without-admission") {
            self.admission.pipeline.join(0, 0, self.admission.world.now());
        } else {
            let joined = self.admission.pipeline.enter(|| self.admission.admit(0, 0).transpose());
            match joined.await {
                Err(EngineError::ReadOnly) if !units::fault!("sync-refused-at-rest") => {
                    // The log is being emptied: everything is durable at home when that is over,
                    // or the engine has failed.
                    self.admission.pipeline.until_emptied().await;
                    return Ok(self.admission.pipeline.running_id());
                }
                joined => joined?,
            }
        }
        let mut transaction = self.admission.pipeline.transaction();
        let id = transaction.id();
        for (owner, at) in blocks {
            if self.unordered.remove(owner, at) {
                if let Some(block) = self.admission.cache.borrow().peek(at) {
                    block.order_unordered(owner);
                    transaction.add_home_data(owner, at, 0);
                    self.unordered.note_ordered(owner, id);
                }
            }
        }
        transaction.close_handle(0);
        Ok(id)
    }
}
