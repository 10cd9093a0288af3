//! The bound of the memory of update sequences, and sweeps that forget those that have ended.
//!
//! A sequence ends when its block is home and its records are out of the log. Where neither age nor
//! a short log moves the log's tail (`checkpoint=manual`, a long `expire=`), none would end, and
//! each block that was ever written would take memory. So the table may take a part of `cache=`.
//! Beyond that, all that is committed is written back, and the tail moves (`write_back`).

use crate::cache::block_cache::Cache;
use crate::log::log_state::LogState;
use crate::writeback::sequences::Sequences;
use std::cell::RefCell;

/// The part of the cache's memory that the table may take. With the mapping table's eighth it is
/// less than the quarter down to which write-back relieves memory.
const TABLE_PART: u64 = 16;

/// Returns the maximum number of bytes of the table.
pub(crate) fn table_max(cache: &Cache) -> usize {
    (cache.bytes_of(cache.limit()) / TABLE_PART) as usize
}

/// Forgets sequences that have ended, a few at a time.
pub(crate) async fn sweep_sequences(
    sequences: &Sequences,
    log: Option<&RefCell<LogState>>,
    cache: &RefCell<Cache>,
) {
    let Some(log) = log.filter(|_| sequences.may_have_ended()) else {
        return;
    };
    sequences.begin_sweep();
    let mut from = Some(0);
    while let Some(begin) = from {
        from = {
            let (tail, cache) = (log.borrow().tail_on_disk(), cache.borrow());
            let is_clean = |at| cache.peek(at).is_none_or(|block| !block.is_dirty());
            sequences.sweep_some(begin, tail, is_clean)
        };
        if from.is_some() {
            runtime::yield_now().await;
        }
    }
}
