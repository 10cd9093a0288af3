//! Discarding free blocks (FITRIM).

use super::FreeFound;
use crate::{Error, Result, Volume};
use device::DeviceError;
use engine::EngineError;
use format::ext4::bitmap;
use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use units::Refusal;
use units::{GroupNumber, HomeBlock};

/// Bytes of one discard at most: no task can allocate this part of the free space until it
/// completes.
const PIECE_MAX: u64 = 64 << 20;
/// Divisor of the free space that bounds one discard as well.
const PARTS: u64 = 8;

/// Running trims, each of which withholds the free space that it discards.
#[derive(Default)]
pub(crate) struct Trims {
    begun: Cell<u64>,
    running: RefCell<BTreeSet<u64>>,
    /// Discards in flight, and those completed.
    in_flight: Cell<u32>,
    discards: Cell<u64>,
    changed: Event,
}

/// A running trim, until it is dropped.
struct Trim<'a> {
    trims: &'a Trims,
    number: u64,
}

impl Trims {
    fn is_running(&self, last: u64) -> bool {
        self.running.borrow().first().is_some_and(|first| *first <= last)
    }

    /// Waits until more than `before` discards have completed; false where none is in flight. Ends
    /// as soon as the disk completes one, whatever locks the caller holds.
    async fn wait_for_discard(&self, before: u64) -> bool {
        let has_ended = || self.in_flight.get() == 0 || self.discards.get() != before;
        self.changed.until(|| has_ended().then_some(())).await;
        self.discards.get() != before
    }

    fn begin(&self) -> Trim<'_> {
        self.begun.set(self.begun.get() + 1);
        self.running.borrow_mut().insert(self.begun.get());
        Trim { trims: self, number: self.begun.get() }
    }

    async fn count<T>(&self, discard: impl Future<Output = T>) -> T {
        self.in_flight.set(self.in_flight.get() + 1);
        let _in_flight = InFlight(self);
        discard.await
    }
}

/// A discard, until it is dropped.
struct InFlight<'a>(&'a Trims);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.set(self.0.in_flight.get() - 1);
        self.0.discards.set(self.0.discards.get() + 1);
        self.0.changed.notify();
    }
}

impl Drop for Trim<'_> {
    fn drop(&mut self) {
        self.trims.running.borrow_mut().remove(&self.number);
    }
}

impl Volume {
    /// Discards the free runs of at least `shortest` blocks among `blocks`, piece by piece. Returns
    /// the number of blocks. Blocks that are not free as of a committed transaction are left: a
    /// crash could give them back to their owner.
    pub async fn trim(self: &Rc<Self>, blocks: Range<u64>, shortest: u64) -> Result<u64> {
        if self.is_read_only() {
            return Err(Refusal::ReadOnly.into());
        }
        // Makes what was freed eligible, and stops at a volume that has failed.
        self.sync().await?;
        self.release_committed();
        let _trim = self.trims.begin();
        let mut trimmed = 0;
        for group in (0..self.groups.count()).map(GroupNumber) {
            // The rest of a run follows its piece, however short it is.
            let (mut at, mut piece_end) = (blocks.start, None);
            loop {
                let _writable = self.keep_writable().await?;
                let run = self.next_free_run(group, at..blocks.end, shortest, piece_end).await?;
                let Some(run) = run else { break };
                at = run.end;
                piece_end = Some(run.end);
                self.discard_run(group, run.clone()).await?;
                trimmed += run.end - run.start;
            }
        }
        Ok(trimmed)
    }

    /// The first free run of the group in `within`, or a piece of it, withheld from all other tasks
    /// from now on. A run that begins at `piece_end` may be shorter than `shortest`.
    async fn next_free_run(
        &self,
        group: GroupNumber,
        within: Range<u64>,
        shortest: u64,
        piece_end: Option<u64>,
    ) -> Result<Option<Range<u64>>> {
        let (start, end) = {
            let superblock = self.superblock.borrow();
            let start = superblock.group_start(group).get();
            (start, start + u64::from(superblock.blocks_in_group(group)))
        };
        let (from, to) = (within.start.max(start), within.end.min(end));
        if from >= to || self.groups.state(group).damaged {
            return Ok(None);
        }
        let mut taken = match self.block_bitmap(group).await {
            Ok(bits) => bits.to_vec(),
            Err(Error::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        // Nothing is awaited from here on.
        for range in self.withheld.borrow().ranges(start..end) {
            bitmap::set(&mut taken, (range.start - start) as u32..(range.end - start) as u32);
        }
        let mut at = (from - start) as u32;
        while let Some(run) = bitmap::next_clear_run(&taken, at..(to - start) as u32) {
            let goes_on = piece_end == Some(start + u64::from(run.start));
            if run.len() as u64 >= shortest || goes_on {
                let run = run.start..run.end.min(run.start.saturating_add(self.piece_blocks()));
                let found = start + u64::from(run.start)..start + u64::from(run.end);
                // The bitmap may lie here as anywhere else. The damage is noted.
                if self.check_free_blocks(group, HomeBlock(found.start), run.len() as u32).is_err()
                {
                    return Ok(None);
                }
                self.withheld.borrow_mut().hold(found.clone());
                self.groups.withhold(group, run.len() as u32);
                return Ok(Some(found));
            }
            at = run.end;
        }
        Ok(None)
    }

    /// Blocks that are discarded, and withheld, at a time.
    fn piece_blocks(&self) -> u32 {
        let parts = if units::fault!("trim-takes-all-space") { 1 } else { PARTS };
        let share = self.superblock.borrow().free_blocks / parts;
        (PIECE_MAX >> self.block_size().shift()).min(share).max(1) as u32
    }

    async fn discard_run(&self, group: GroupNumber, run: Range<u64>) -> Result<()> {
        let (shift, count) = (self.block_size().shift(), run.end - run.start);
        let discarded = self.trims.count(async {
            let discarded = self.home_disk().discard(run.start << shift, count << shift).await;
            self.withheld.borrow_mut().release(&run);
            self.groups.give_back(group, count as u32);
            discarded
        });
        discarded.await.map_err(|error| match error {
            DeviceError::Failed { code, .. } if code == Refusal::Unsupported.errno() => {
                Refusal::Unsupported.into()
            }
            error => EngineError::from(error).into(),
        })
    }

    /// Searches, and repeats an unsuccessful search when a discard that withholds free space has
    /// completed, until the trims that were running at first have ended.
    pub(super) async fn find_beside_trims(
        &self,
        goal: HomeBlock,
        wanted: u32,
        groups: u32,
    ) -> Result<Option<FreeFound>> {
        let (trims, mut last_trim, mut is_last) = (&self.trims, None, false);
        loop {
            let before = trims.discards.get();
            let found = self.find(goal, wanted, groups).await?;
            if found.is_some() || is_last || units::fault!("trim-takes-all-space") {
                return Ok(found);
            }
            let last_trim = *last_trim.get_or_insert_with(|| trims.begun.get());
            is_last = !trims.is_running(last_trim);
            let gives_back = match is_last {
                true => trims.discards.get() != before,
                false => trims.wait_for_discard(before).await,
            };
            if !gives_back {
                return Ok(None);
            }
        }
    }
}
