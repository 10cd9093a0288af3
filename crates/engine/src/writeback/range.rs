//! Write-back of given blocks, for callers that read or write them past the journal.

use crate::interface::error::EngineError;
use crate::interface::limits::HOME_BATCH_MAX;
use crate::writeback::coalescing::Neighbours;
use crate::writeback::writeback_task::Writeback;
use std::collections::BTreeSet;
use units::{HomeBlock, TransactionId};

impl Writeback<'_> {
    /// Writes the runs back. On return home durably holds what these blocks held at the call, or
    /// newer. No replay writes to them what the log holds of them. `runs`: first block and count,
    /// in order and apart; no caller may change them before this returns.
    pub async fn write_back_range(&self, runs: &[(HomeBlock, u64)]) -> Result<(), EngineError> {
        self.make_home_durable(runs).await?;
        match self.revoke_records(runs).await? {
            Some(transaction) => self.syncs.commit(transaction).await,
            None => Ok(()),
        }
    }

    async fn make_home_durable(&self, runs: &[(HomeBlock, u64)]) -> Result<(), EngineError> {
        for (at, count) in runs {
            self.syncs.direct_writes.until_home_holds(&(*at..at.plus(*count))).await;
        }
        let mut waiting = self.admission.queue.dirty_within(&self.admission.cache.borrow(), runs);
        waiting
            .extend(self.admission.log.iter().flat_map(|log| log.borrow().mapping().within(runs)));
        waiting.sort_unstable();
        waiting.dedup();
        if !waiting.is_empty() {
            self.syncs.sync().await?;
        }
        let _lock = self.admission.queue.lock().await;
        self.admission.pipeline.check()?;
        for batch in waiting.chunks(HOME_BATCH_MAX) {
            self.writer.write_home(batch.to_vec(), Neighbours::Stay).await?.whole()?;
        }
        Ok(self.tail.executor.make_writes_durable().await?)
    }

    /// Others may write to these blocks from now on, and a replay would put older bytes over
    /// theirs. So what the log holds of them is revoked. Returns the last transaction that revokes
    /// something, if there was anything.
    async fn revoke_records(
        &self,
        runs: &[(HomeBlock, u64)],
    ) -> Result<Option<TransactionId>, EngineError> {
        let Some(log) = self.admission.log else { return Ok(None) };
        let (credits, most) =
            (self.freeing.credits_revokes().0, self.freeing.revokes_of_handle() as usize);
        let (mut revoked, mut last) = (BTreeSet::new(), None);
        loop {
            // There may be more of them by now: what was running when this began had its commit
            // since.
            let mut left = log.borrow().live().within(runs);
            left.retain(|block| !revoked.contains(block));
            if left.is_empty() {
                return Ok(last);
            }
            for some in left.chunks(most) {
                self.admission
                    .pipeline
                    .enter(|| self.admission.admit(credits, 0).transpose())
                    .await?;
                let mut transaction = self.admission.pipeline.transaction();
                some.iter()
                    .filter(|block| log.borrow().live().contains(**block))
                    .for_each(|block| transaction.revoke(*block));
                last = Some(transaction.id());
                drop(transaction);
                self.admission.pipeline.leave(credits, 0);
            }
            revoked.extend(left);
        }
    }
}
