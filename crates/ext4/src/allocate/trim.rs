//! Telling the disk which blocks are free: FITRIM.

use crate::error::errno;
use crate::{Error, Result, Volume};
use device::DeviceError;
use engine::EngineError;
use format::ext4::bitmap;
use runtime::sync::Event;
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use units::GroupNumber;

/// Bytes that one request discards at most: so much of the free space nobody can have meanwhile.
const PIECE_MAX: u64 = 64 << 20;

/// Discards in flight, which withhold the free space that they discard.
#[derive(Default)]
pub(crate) struct Discards {
    in_flight: Cell<u32>,
    done: Cell<u64>,
    changed: Event,
}

impl Discards {
    /// Waits until one has given its space back; whether any was in flight.
    pub async fn wait_for_one(&self) -> bool {
        if self.in_flight.get() == 0 || units::fault!("trim-takes-all-space") {
            return false;
        }
        let before = self.done.get();
        self.changed.until(|| (self.done.get() != before).then_some(())).await;
        true
    }
}

impl Volume {
    /// Discards the free runs of at least `shortest` blocks among `blocks`, one piece after the
    /// other. How many blocks that were. What is not free as of a committed transaction stays: a
    /// crash could bring its owner back.
    pub async fn trim(self: &Rc<Self>, blocks: Range<u64>, shortest: u64) -> Result<u64> {
        if self.is_read_only() {
            return Err(Error::Refused(errno::EROFS));
        }
        // What was freed is to be discarded, too; and a volume that is out of order is left alone.
        self.sync().await?;
        self.release_committed();
        let mut trimmed = 0;
        for group in (0..self.groups.count()).map(GroupNumber) {
            let mut at = blocks.start;
            while let Some(run) = self.next_free_run(group, at..blocks.end, shortest).await? {
                at = run.end;
                self.discard_run(group, run.clone()).await?;
                trimmed += run.end - run.start;
            }
        }
        Ok(trimmed)
    }

    /// The first free run of the group in `within`, withheld from everybody else from now on.
    async fn next_free_run(
        &self,
        group: GroupNumber,
        within: Range<u64>,
        shortest: u64,
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
            if run.len() as u64 >= shortest {
                let piece = (PIECE_MAX >> self.block_size().shift()).max(shortest) as u32;
                let run = run.start..run.end.min(run.start.saturating_add(piece));
                let found = start + u64::from(run.start)..start + u64::from(run.end);
                self.withheld.borrow_mut().hold(found.clone());
                self.groups.withhold(group, run.len() as u32);
                return Ok(Some(found));
            }
            at = run.end;
        }
        Ok(None)
    }

    async fn discard_run(&self, group: GroupNumber, run: Range<u64>) -> Result<()> {
        let shift = self.block_size().shift();
        self.discards.in_flight.set(self.discards.in_flight.get() + 1);
        let discarded =
            self.home_disk().discard(run.start << shift, (run.end - run.start) << shift).await;
        self.withheld.borrow_mut().let_go(&run);
        self.groups.give_back(group, (run.end - run.start) as u32);
        self.discards.in_flight.set(self.discards.in_flight.get() - 1);
        self.discards.done.set(self.discards.done.get() + 1);
        self.discards.changed.notify();
        discarded.map_err(|error| match error {
            DeviceError::Failed { code: errno::EOPNOTSUPP, .. } => {
                Error::Refused(errno::EOPNOTSUPP)
            }
            error => EngineError::from(error).into(),
        })
    }
}
