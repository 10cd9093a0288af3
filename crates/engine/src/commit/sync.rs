//! Who wants something durable: waits for a commit, and takes data along that no commit waits for.

use crate::cache::block::CachedBlock;
use crate::cache::direct_writes::LongWrite;
use crate::engine::Engine;
use crate::interface::error::EngineError;
use journal::plan_home_durable;
use std::rc::Rc;
use units::{HomeBlock, Owner, TransactionId};

impl Engine {
    /// Waits until `transaction` and all before it are durable, starting a commit if need be.
    pub async fn commit(&self, transaction: TransactionId) -> Result<(), EngineError> {
        let asked = self.world.now();
        self.pipeline.check()?;
        self.pipeline.note_return();
        if let Some(completion) = self.pipeline.completion_of(transaction) {
            completion.wait().await?;
        }
        let latency = self.world.now().since(asked);
        self.counters.borrow_mut().synced(latency);
        Ok(())
    }

    /// Waits until all that is on its way to the disk now is durable; asks for nothing.
    pub async fn wait_for_commits_in_flight(&self) -> Result<(), EngineError> {
        match self.pipeline.last_in_flight() {
            Some(last) => last.wait().await,
            None => Ok(()),
        }
    }

    /// Makes the data of one owner durable as well as `transaction`, its latest change: `fsync`.
    /// What is logged, or goes home before the commit, needs no more than that; what goes home at
    /// any time is sent there now. Nobody else's is.
    pub async fn sync_owner(
        &self,
        owner: Owner,
        transaction: TransactionId,
    ) -> Result<(), EngineError> {
        self.pacing.synced(owner, self.world.now());
        let mut unordered = self.unordered.of(owner);
        if units::fault!("fsync-leaves-data") {
            unordered.clear();
        }
        self.sync_unordered(Some(owner), unordered, transaction).await
    }

    /// Makes all that was done before the call durable: `sync`, `syncfs`.
    pub async fn sync(&self) -> Result<(), EngineError> {
        let unordered = self.unordered.all();
        self.sync_unordered(None, unordered, self.running()).await
    }

    /// Commits `transaction`, and data of `owner`, or of everybody, that no commit waited for.
    async fn sync_unordered(
        &self,
        owner: Option<Owner>,
        unordered: Vec<(Owner, HomeBlock)>,
        transaction: TransactionId,
    ) -> Result<(), EngineError> {
        let is_meant = |write: &LongWrite| owner.is_none_or(|owner| write.owner == owner);
        if !units::fault!("long-write-not-synced") {
            self.direct_writes.until_arrived(is_meant).await;
        }
        let transaction = match unordered.is_empty() {
            true => self.unordered.durable_with(owner, transaction),
            false => self.order_unordered(unordered).await?,
        };
        // Write-back may have sent some home already; that is durable only after a flush.
        if let Err(error) = self.make_unordered_durable(owner).await {
            self.abort(&error);
        }
        self.commit(transaction).await
    }

    /// What write-back has sent home of the data of `owner`, or of everybody, that no log holds is
    /// durable when this returns.
    pub(crate) async fn make_unordered_durable(
        &self,
        owner: Option<Owner>,
    ) -> Result<(), EngineError> {
        match self.durability.wants_flush_of_unordered(owner) {
            true => self.runner.run(plan_home_durable()).await,
            false => Ok(()),
        }
    }

    /// Before blocks are written again that a committed transaction freed, by a caller for whom
    /// home holds their old content. The log may hold nothing of them any more. So what is on its
    /// way home arrives first, what was read meanwhile is forgotten, and what home holds is made
    /// durable: whoever logs a part of a block relies on the rest. Nobody writes them meanwhile.
    pub async fn settle_freed(&self, runs: &[(HomeBlock, u64)]) -> Result<(), EngineError> {
        for (at, count) in runs {
            self.claims.until_unclaimed(*at, *count).await;
            self.forget_clean(*at, *count);
            runtime::yield_now().await;
        }
        if !self.durability.is_durable(self.durability.home_written()) {
            let durable = self.runner.run(plan_home_durable()).await;
            durable.inspect_err(|error| self.abort(error))?;
        }
        self.pipeline.check()
    }

    /// What is clean of these blocks is read at home again.
    fn forget_clean(&self, at: HomeBlock, count: u64) {
        let mut cache = self.cache.borrow_mut();
        let is_clean = |block: &&Rc<CachedBlock>| !block.is_dirty() && block.is_home();
        let clean: Vec<_> =
            cache.within(at, count).filter(is_clean).map(|block| block.number()).collect();
        clean.into_iter().for_each(|number| drop(cache.remove(number)));
    }

    /// Has data go home with the running transaction, to share its barrier. It joins as a handle
    /// does: the commit takes log space. What write-back has sent home while this waited is left
    /// out.
    async fn order_unordered(
        &self,
        blocks: Vec<(Owner, HomeBlock)>,
    ) -> Result<TransactionId, EngineError> {
        // No credits: data that goes home takes no log blocks, and the commit block is in every
        // bound.
        if units::fault!("loose-without-admission") {
            self.pipeline.join(0, 0, self.world.now());
        } else {
            self.pipeline.pass(|| self.admit(0, 0).transpose()).await?;
        }
        let mut transaction = self.pipeline.transaction();
        let id = transaction.id();
        for (owner, at) in blocks {
            if self.unordered.remove(owner, at)
                && let Some(block) = self.cache.borrow().peek(at)
            {
                block.order_unordered(owner);
                transaction.add_home_data(owner, at, 0);
                self.unordered.note_ordered(owner, id);
            }
        }
        transaction.close_handle(0);
        Ok(id)
    }
}
