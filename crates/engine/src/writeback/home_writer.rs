//! Blocks are written home only as of the latest committed transaction, and always whole. Data that
//! the running transaction sends home in any case goes before it commits.

use crate::cache::block::{AsOf, CachedBlock};
use crate::cache::reader::Reader;
use crate::commit::clocks::HomeClock;
use crate::interface::error::EngineError;
use crate::interface::limits::HOME_REQUESTS_MAX;
use crate::writeback::bytes_in_flight::BytesInFlight;
use crate::writeback::coalescing::{Neighbours, Run, runs_of};
use crate::writeback::copies::CopyWriter;
use crate::writeback::unordered_data::UnorderedData;
use crate::writeback::writeback_outcome::{WritebackOutcome, read_all_readable};
use commit::Durability;
use commit::HomeWrites;
use device::Buffer;
use journal::Policy;
use runtime::join_window;
use std::pin::Pin;
use std::rc::Rc;
use units::{HomeBlock, Owner};

type LocalWrite<'a> = Pin<Box<dyn Future<Output = Result<WritebackOutcome, EngineError>> + 'a>>;

/// Caller that has blocks written home.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Writeback,
    /// A sync, which waits until the blocks are durable.
    Sync,
    /// A sync whose blocks are one request.
    SyncAtOnce,
}

/// Image of a block that was sent home.
struct Sent {
    block: Rc<CachedBlock>,
    bytes: Rc<Buffer>,
    as_of: AsOf,
}

/// Writes blocks to their home.
#[derive(Clone, Copy)]
pub(crate) struct HomeWriter<'a> {
    pub reader: Reader<'a>,
    pub copies: CopyWriter<'a>,
    pub policy: &'a dyn Policy,
    pub durability: &'a Durability,
    pub unordered: &'a UnorderedData,
    pub home_bytes: &'a BytesInFlight,
}

impl HomeWriter<'_> {
    /// Writes the committed images of `numbers` (sorted) home, except those whose base cannot be
    /// read, and what may go along. No barrier yet.
    pub(crate) async fn write_home(
        &self,
        numbers: Vec<HomeBlock>,
        neighbours: Neighbours,
    ) -> Result<WritebackOutcome, EngineError> {
        self.write_runs(numbers, neighbours, Asked::Writeback).await
    }

    /// Writes as [`HomeWriter::write_home`] does, for a sync that waits for all blocks: if they
    /// take one request, it is durable by itself where that saves a flush.
    pub(crate) async fn sync_home(
        &self,
        numbers: Vec<HomeBlock>,
    ) -> Result<WritebackOutcome, EngineError> {
        self.write_runs(numbers, Neighbours::Stay, Asked::Sync).await
    }

    /// Makes durable what home holds of blocks that a committed transaction freed, before a caller
    /// that relies on their old content writes them again. The log may hold nothing of them any
    /// more. So writes in flight arrive first, clean copies read in that time are dropped,
    /// and home is flushed. Nobody writes these blocks before this returns.
    pub(crate) async fn settle_freed(&self, runs: &[(HomeBlock, u64)]) -> Result<(), EngineError> {
        for (at, count) in runs {
            self.copies.claims.until_unclaimed(*at, *count).await;
            if !units::fault!("blocks-freed-cached") {
                self.drop_clean(*at, *count);
            }
            runtime::yield_now().await;
        }
        Ok(self.reader.executor.make_writes_durable().await?)
    }

    /// Drops the clean ones of these blocks from the cache: their next reader reads home.
    fn drop_clean(&self, at: HomeBlock, count: u64) {
        let mut cache = self.reader.cache.borrow_mut();
        let is_clean = |block: &&Rc<CachedBlock>| !block.is_dirty() && block.is_home();
        let clean: Vec<_> =
            cache.within(at, count).filter(is_clean).map(|block| block.number()).collect();
        clean.into_iter().for_each(|number| drop(cache.remove(number)));
    }

    async fn write_runs(
        &self,
        numbers: Vec<HomeBlock>,
        neighbours: Neighbours,
        asked: Asked,
    ) -> Result<WritebackOutcome, EngineError> {
        let runs = runs_of(&self.reader.cache.borrow(), &numbers, neighbours);
        let asked = match asked {
            Asked::Sync if runs.len() == 1 => Asked::SyncAtOnce,
            asked => asked,
        };
        let clock = self
            .policy
            .learns()
            .map(|auto| HomeClock::begin(auto, self.copies.world, asked == Asked::SyncAtOnce));
        let clock_of_runs = clock.as_ref();
        let writes = runs
            .into_iter()
            .map(|run| -> LocalWrite<'_> { Box::pin(self.write_run(run, asked, clock_of_runs)) });
        let outcomes = join_window(writes, HOME_REQUESTS_MAX).await?;
        self.reader.cache.borrow_mut().shrink();
        self.copies.pipeline.wake_joiners();
        let all = outcomes.into_iter().fold(WritebackOutcome::default(), WritebackOutcome::and);
        clock.into_iter().for_each(HomeClock::end);
        Ok(all.and(self.copies.copies_home(&numbers).await?))
    }

    /// Writes neighbours home with one request, or several if some need no writing any more.
    async fn write_run(
        &self,
        run: Run,
        asked: Asked,
        clock: Option<&HomeClock<'_>>,
    ) -> Result<WritebackOutcome, EngineError> {
        let load = async |blocks: &[Rc<CachedBlock>]| {
            self.reader.load_all(blocks, CachedBlock::is_whole_in_all_images).await?;
            Ok(vec![(); blocks.len()])
        };
        let (run, unreadable) = read_all_readable(run, load).await;
        let run: Vec<_> = run.into_iter().map(|(block, ())| block).collect();
        let Some(first) = run.first() else {
            return Ok(WritebackOutcome { written: 0, unreadable });
        };
        let count = run[run.len() - 1].number().get() + 1 - first.number().get();
        // No claim is held during this wait: a sync may want to write one of these blocks. A sync
        // itself does not wait: write-back asks for room again at the moment it gives some back.
        let _in_flight = match asked {
            Asked::Writeback => {
                Some(self.home_bytes.admit(count << self.reader.block_size.shift()).await)
            }
            Asked::Sync | Asked::SyncAtOnce => None,
        };
        let _claim = self.copies.claims.claim(first.number(), count).await;
        // Only now: while waiting for the claim, another write may have brought a newer image home.
        let sent: Vec<Sent> = run.into_iter().filter_map(Sent::of).collect();
        let mut written = 0;
        let neighbours =
            |left: &Sent, right: &Sent| left.block.number().plus(1) == right.block.number();
        let is_one = sent.chunk_by(neighbours).count() == 1;
        for sent in sent.chunk_by(neighbours) {
            let kinds: Vec<_> = sent.iter().map(|sent| sent.block.contents().at_home()).collect();
            let parts = sent.iter().map(|sent| sent.bytes.clone()).collect();
            let at = sent[0].block.number();
            let volatile = match asked {
                Asked::SyncAtOnce if is_one => {
                    self.reader.executor.sync_home(at, &kinds, parts).await?
                }
                _ => Some(self.reader.executor.write_home(at, &kinds, parts).await?),
            };
            sent.iter().for_each(|sent| self.arrived(sent, volatile));
            let is_logged = |sent: &&Sent| {
                matches!(sent.as_of, AsOf::Committed(_)) && !sent.block.is_durable_only()
            };
            self.copies.checkpoints.written(sent.iter().filter(is_logged).count() as u64);
            written += sent.len();
            if let Some(clock) = clock {
                let bytes = sent.len() * self.reader.block_size.bytes();
                clock.wrote(sent[0].block.contents(), bytes as u64);
            }
        }
        self.reader.counters.borrow_mut().requested_home_write();
        Ok(WritebackOutcome { written, unreadable })
    }

    /// Notes that data of `owner` that no commit waits for is home, though perhaps in the disk's
    /// cache only. Whether it is the first there that is to be flushed.
    pub(crate) fn note_unordered_at_home(&self, owner: Owner, writes: HomeWrites) -> bool {
        self.durability.note_unordered(owner, writes, self.copies.world.now())
    }

    /// Notes that `sent` is home. `volatile`: the last write of it, if it may be in the disk's
    /// cache only.
    fn arrived(&self, sent: &Sent, volatile: Option<HomeWrites>) {
        let Sent { block, bytes, as_of } = sent;
        match as_of {
            AsOf::Committed(as_of) => {
                if let Some(log) = self.reader.log {
                    let all = units::fault!("newer-image-dropped");
                    let as_of = if all { self.copies.pipeline.committed() } else { *as_of };
                    log.borrow_mut().home_written(block.number(), as_of);
                }
                block.committed_arrived(bytes);
            }
            AsOf::Running => {
                if let Some(owner) = block.ordered_arrived(bytes) {
                    if let Some(writes) = volatile {
                        self.durability.note_early(writes);
                    }
                    let mut transaction = self.copies.pipeline.transaction();
                    transaction.home_data_written(owner, block.number());
                    block.leave_order(transaction.logs(block.number()));
                }
            }
            // Also for one that was changed since and is still unordered: what was sent is in a
            // disk's cache.
            AsOf::Unordered => {
                if let Some(owner) = block.unordered_owner() {
                    if let Some(writes) = volatile {
                        self.note_unordered_at_home(owner, writes);
                    }
                    if block.unordered_arrived(bytes) {
                        self.unordered.remove(owner, block.number());
                    }
                }
            }
        }
        self.copies.queue.mark_clean(block);
    }
}

impl Sent {
    /// The image that may be written home; `None` if home has it already.
    fn of(block: Rc<CachedBlock>) -> Option<Sent> {
        let (bytes, as_of) = block.to_send()?;
        Some(Sent { block, bytes, as_of })
    }
}
