//! Bounds the memory of update sequences, and forgets those that have ended.
//!
//! A sequence ends when its block is home and its records are out of the log. Where neither age nor
//! a short log moves the log's tail (`checkpoint=manual`, a long `expire=`), none would end, and
//! each block that was ever written would take memory. So the table may take a part of `cache=`.
//! Beyond that, all that is committed is written back, and the tail moves.

use crate::cache::Cache;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::home_runs::Neighbours;
use crate::limits::HOME_BATCH_MAX;
use crate::tail::Occasion;

/// The part of the cache's memory that the table may take. With the mapping table's eighth it is
/// less than the quarter down to which write-back relieves memory.
const TABLE_PART: u64 = 16;

/// Most bytes of the table.
pub(crate) fn table_max(cache: &Cache) -> usize {
    (cache.bytes_of(cache.limit()) / TABLE_PART) as usize
}

impl Engine {
    /// Forgets sequences that have ended, a few at a time.
    pub(crate) async fn sweep_sequences(&self) {
        let Some(log) = self.log.as_ref().filter(|_| self.sequences.may_have_ended()) else {
            return;
        };
        self.sequences.begin_sweep();
        let mut from = Some(0);
        while let Some(begin) = from {
            let tail = log.borrow().tail_on_disk();
            let cache = self.cache.borrow();
            let is_clean = |at| cache.peek(at).is_none_or(|block| !block.is_dirty());
            from = self.sequences.sweep_some(begin, tail, is_clean);
            drop(cache);
            if from.is_some() {
                runtime::yield_now().await;
            }
        }
    }

    /// Where the table takes more than its part, has sequences end: what is committed is written
    /// back, files of which durability is enough included, and the tail moves. The caller holds
    /// the turn.
    pub(crate) async fn relieve_sequences(&self) -> Result<(), EngineError> {
        if self.sequences.want_sweep() {
            self.sweep_sequences().await;
        }
        let Some(log) = self.log.as_ref().filter(|_| self.sequences.are_too_many()) else {
            return Ok(());
        };
        let began = self.world.now();
        let blocks =
            self.queue.due(&self.cache.borrow(), began, usize::MAX, |since| since <= began);
        for blocks in blocks.chunks(HOME_BATCH_MAX) {
            if !self.write_home(blocks.to_vec(), Neighbours::GoAlong).await?.progress()? {
                break;
            }
        }
        self.write_copied_home(true).await?;
        log.borrow_mut().is_waited_for();
        self.advance_tail(Occasion::Space).await?;
        self.sweep_sequences().await;
        if self.sequences.are_too_many() {
            // The rest are of transactions that are not committed yet.
            self.pipeline.request(self.running());
        }
        Ok(())
    }
}
