//! Writes a snapshot of the mapping table. On restart only transactions newer than the snapshot are
//! read from the log.
//!
//! 1. The snapshot records the newest committed record of a block. If memory knows it as whole in
//!    the log, or has evicted it, the snapshot says where it lies, and its checksum. If home has
//!    it, that is made durable before the snapshot counts.
//! 2. Concurrent commits are not waited for: transactions committed while a piece is written are
//!    covered by the log or by the next piece.
//! 3. Blocks of which home lacks a part are read from the log: from the oldest transaction on that
//!    any of them needs. That is looked up last.
//! 4. The write of the superblock that makes copies of a swap count also names the piece that
//!    records where they lie, or no snapshot.
//! 5. A piece says what was committed when it was written: runs lay then where it says.

use crate::cache::block_cache::Cache;
use crate::cache::mapping::sum;
use crate::interface::error::EngineError;
use crate::interface::options::EngineOptions;
use crate::log::log_state::LogState;
use crate::log::log_state::SnapshotSuperblockWrite;
use crate::writeback::dirty_queue::DirtyQueue;
use commit::Pipeline;
use commit::PlanExecutor;
use format::snapshot::{HOME_END, SnapshotItem};
use journal::{
    LogRun, LogSwap, NewPiece, WholeBlockLocation, plan_piece, plan_snapshot_superblock,
};
use std::cell::RefCell;
use units::{HomeBlock, TransactionId};

/// Blocks that are looked at before other tasks run: a millisecond or so.
const LOOKED_AT_MAX: usize = 1024;

/// Outcome of writing a piece.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Counts,
    /// Nothing was written: no space for it, or nothing to record.
    NoRoom,
}

/// Writes pieces of the snapshot, and the superblock that names them.
#[derive(Clone, Copy)]
pub(crate) struct SnapshotWriter<'a> {
    pub log: Option<&'a RefCell<LogState>>,
    pub pipeline: &'a Pipeline,
    pub options: &'a EngineOptions,
    pub executor: &'a PlanExecutor,
    pub cache: &'a RefCell<Cache>,
    pub queue: &'a DirtyQueue,
}

impl SnapshotWriter<'_> {
    pub(crate) fn snapshot_is_due(&self) -> bool {
        self.log.is_some_and(|log| log.borrow().snapshot_is_due())
    }

    /// Writes pieces while a restart would have to read more than it should. The caller holds the
    /// write-back lock.
    pub(crate) async fn write_snapshot_if_due(&self) -> Result<(), EngineError> {
        while self.snapshot_is_due() && !self.pipeline.has_ended() {
            if self.write_piece(None).await? == Outcome::NoRoom {
                break;
            }
        }
        Ok(())
    }

    /// The copies of `swap` are durable, with their headers. One write of the superblock makes them
    /// count, and has the snapshot record them, or names none. The caller holds the write-back
    /// lock.
    pub(crate) async fn count_copies(&self, swap: &LogSwap) -> Result<(), EngineError> {
        let is_named = self.log.is_some_and(|log| log.borrow().names_snapshot());
        if is_named && units::fault!("snapshot-kept-in-swap") {
            return self.name_snapshot(None, Some(self.pipeline.committed().next()), true).await;
        }
        let is_recorded = is_named && self.write_piece(Some(swap)).await? == Outcome::Counts;
        match is_recorded {
            true => Ok(()),
            false => self.name_snapshot(None, None, true).await,
        }
    }

    async fn write_piece(&self, swap: Option<&LogSwap>) -> Result<Outcome, EngineError> {
        let Some(log) = self.log else { return Ok(Outcome::NoRoom) };
        let (from, most) = log.borrow().uncovered();
        let mut end = from;
        let moves = swap.map_or(0, |swap| swap.runs().len());
        let (committed, wanted) =
            (self.pipeline.committed(), self.options.snapshot_items.min(most));
        let (mut items, mut looked_at) = (Vec::new(), 0);
        while committed.is_at_or_after(end) {
            let Some(more) = self.items_of(end).filter(|items| items.len() + moves <= most) else {
                break;
            };
            if !items.is_empty() && items.len() + more.len() + moves > wanted {
                break;
            }
            looked_at += more.len();
            items.extend(more);
            end = end.next();
            if looked_at >= LOOKED_AT_MAX {
                looked_at = 0;
                runtime::yield_now().await;
            }
        }
        if let Some(swap) = swap {
            let moved = swap.runs().iter().filter(|run| end.is_after(run.transaction));
            items.extend(moved.map(|run| SnapshotItem::Moved {
                transaction: run.transaction,
                start: run.to.plus(1),
            }));
        }
        if items.is_empty() && from.is_after(committed) {
            return Ok(Outcome::NoRoom);
        }
        if items.is_empty() || items.len() > most {
            log.borrow_mut().skip_piece();
            return Ok(Outcome::NoRoom);
        }
        let read_from = self.oldest_in_part(end);
        let mut piece = log.borrow().begin_piece(from..end, committed, &items);
        if piece.is_none() && log.borrow().may_give_up_pieces() {
            self.name_snapshot(None, Some(read_from), false).await?;
            piece = log.borrow().begin_piece(from..end, committed, &items);
        }
        let Some(piece) = piece else {
            log.borrow_mut().skip_piece();
            return Ok(Outcome::NoRoom);
        };
        self.name_snapshot(Some(piece), Some(read_from), swap.is_some()).await?;
        Ok(Outcome::Counts)
    }

    /// Writes the superblock that names the snapshot. `read_from` is the transaction from which a
    /// restart reads the log; `None` invalidates the snapshot. `ends_swap`: the same write makes
    /// the copies of a swap count.
    async fn name_snapshot(
        &self,
        piece: Option<NewPiece>,
        read_from: Option<TransactionId>,
        ends_swap: bool,
    ) -> Result<(), EngineError> {
        let Some(log) = self.log else { return Ok(()) };
        // During this write the superblock is free for commits.
        self.executor.run(plan_piece(piece.as_ref())).await?;
        loop {
            let write =
                log.borrow_mut().begin_snapshot_superblock(piece.as_ref(), read_from, ends_swap);
            match write {
                SnapshotSuperblockWrite::Begins(write) => {
                    self.executor.run(plan_snapshot_superblock(write.image())).await?;
                    log.borrow_mut().named(*write, piece, self.pipeline.committed());
                    return Ok(());
                }
                // A commit has it in flight with something else.
                SnapshotSuperblockWrite::Waits(arrived) => {
                    let over = || self.pipeline.has_failed() || !log.borrow().is_moving();
                    arrived.until(|| over().then_some(())).await;
                    self.pipeline.check()?;
                }
            }
        }
    }

    /// Returns the items that record `transaction`, which is committed.
    fn items_of(&self, transaction: TransactionId) -> Option<Vec<SnapshotItem>> {
        let log = self.log?.borrow();
        let run = log.run_of(transaction)?;
        let (start, blocks) = (run.start, run.count);
        let mut items = vec![SnapshotItem::Run { transaction, start, blocks }];
        let revokes = log.revoked_by(transaction).iter();
        let revokes = revokes.filter(|_| !units::fault!("snapshot-revoke-not-recorded"));
        items.extend(revokes.map(|home| SnapshotItem::Revoke { home: *home }));
        let cache = self.cache.borrow();
        for home in log.live().blocks_of(transaction) {
            let cached = cache.peek(*home);
            let is_any = units::fault!("snapshot-part-superseded");
            let whole = cached.filter(|block| block.is_whole_in_log() || is_any);
            if whole
                .and_then(|block| block.latest_by())
                .is_some_and(|latest| latest.is_after(transaction))
            {
                // The later transaction records it, or is read. Of one in part a restart needs this
                // too: that home has it.
                continue;
            }
            let in_memory =
                cached.and_then(|block| Some((block.committed_by(transaction)?, block)));
            let mapped = || log.mapping().get(*home).filter(|copy| copy.by == transaction);
            let whole = match in_memory {
                Some(((None, _), _)) => None,
                Some(((Some(place), image), block)) => {
                    self.whole_item(*home, run, place, block.is_durable_only(), || sum(&image))
                }
                None => mapped().and_then(|copy| {
                    self.whole_item(*home, run, copy.place(), copy.durable_only, || copy.sum)
                }),
            };
            items.push(whole.unwrap_or(SnapshotItem::Other { home: *home }));
        }
        let fits_item = |home: &HomeBlock| home.get() < HOME_END;
        let homes = log.live().blocks_of(transaction).iter().chain(log.revoked_by(transaction));
        homes.into_iter().all(fits_item).then_some(items)
    }

    fn whole_item(
        &self,
        home: HomeBlock,
        run: LogRun,
        place: WholeBlockLocation,
        durable_only: bool,
        sum: impl FnOnce() -> u32,
    ) -> Option<SnapshotItem> {
        let offset = u64::from(place.at.get().checked_sub(run.start.get())?)
            * self.executor.log_unit() as u64
            + u64::from(place.offset);
        let offset = u32::try_from(offset).ok()?;
        Some(SnapshotItem::Whole { home, durable_only, offset, sum: sum() })
    }

    /// The oldest transaction before `end` that a restart needs for a block which the log does not
    /// hold whole; `end` if there is none.
    fn oldest_in_part(&self, end: TransactionId) -> TransactionId {
        let Some(log) = self.log else { return end };
        let (log, mut oldest) = (log.borrow(), end);
        self.queue.while_dirty(&self.cache.borrow(), |block| {
            let left_out = units::fault!("snapshot-part-left-out");
            if block.is_held_by_log() && !block.is_whole_in_log() && !left_out {
                let needed = log.oldest_needed(block.number());
                oldest = needed.filter(|needed| oldest.is_after(*needed)).unwrap_or(oldest);
            }
            true
        });
        oldest
    }
}
