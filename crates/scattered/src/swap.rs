//! Log swapping: the content of a hot, nearly full log moves to a cold, empty one, so that there is
//! space again where the arm is.
//!
//! Each step reads one record's blocks, and writes them. A request that arrives during it waits for
//! one of the two, and the rest of the swap for idle time.
//!
//! Invariants: the blocks are written as ordinary records, so a restart knows no swaps. A block is
//! moved under a claim and only if its entry is still the one that was read. A snapshot empties the
//! old log, as ever.

use crate::BLOCK;
use crate::append::Piece;
use crate::claims::{Change, sectors_of};
use crate::disk::DeviceResult;
use crate::record::MAX_ENTRIES;
use crate::state::State;
use crate::table::Mapped;
use device::{Buffer, Durability};
use std::rc::Rc;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SwapTime {
    /// Yields to requests.
    Idle,
    /// Somebody asked for it.
    Now,
}

impl State {
    /// The hot log most recently used of those that are too full, if there is a cold one.
    pub fn log_to_swap(&self) -> Option<u32> {
        let inner = self.inner.borrow();
        if let Some((log, _)) = inner.swapping.filter(|(log, _)| inner.overfull.contains(log)) {
            return Some(log);
        }
        let full = inner.overfull.iter().filter(|log| !inner.logs[**log as usize].closing);
        let log = full.max_by_key(|log| inner.logs[**log as usize].used).copied()?;
        drop(inner);
        self.coldest().map(|_| log)
    }
    /// Empty, and not used for the longest time; of those the farthest from the arm.
    fn coldest(&self) -> Option<u32> {
        let inner = self.inner.borrow();
        let most = self.settings.scan_regions.clamp(1, crate::open_list::REGIONS_MAX);
        let listed = |log: u32| {
            inner.regions.len() < most
                || inner.regions.contains(&(log / crate::open_list::REGION_LOGS))
        };
        let empty = (0u32..).zip(&inner.logs).filter(|(number, log)| {
            log.fill == 0 && log.free_blocks(self.layout.log_blocks()) > 0 && listed(*number)
        });
        let far = |log: u32| self.layout.log_begin(log).abs_diff(inner.head);
        empty
            .min_by_key(|(number, log)| (log.used, u64::MAX - far(*number)))
            .map(|(number, _)| number)
    }

    /// The blocks of one record, from the one swap to the next. True: the log is swapped.
    pub async fn swap_step(self: &Rc<Self>, log: u32, when: SwapTime) -> DeviceResult<bool> {
        let maintenance = self.maintenance.write().await;
        self.check_failed()?;
        let mut entries = self.entries_of(log);
        entries.sort_unstable_by_key(|(_, mapped)| mapped.place);
        entries.truncate(self.layout.record_entries_max());
        // Gaps between records make a read long.
        let first = entries.first().map_or(0, |(_, mapped)| mapped.place);
        entries.retain(|(_, mapped)| mapped.place - first < 2 * MAX_ENTRIES as u64);
        let going_on =
            self.inner.borrow().swapping.filter(|(from, _)| *from == log).map(|(_, to)| to);
        let Some(cold) = going_on.or_else(|| self.coldest()) else { return Ok(true) };
        let free_blocks =
            self.inner.borrow().logs[cold as usize].free_blocks(self.layout.log_blocks()) as usize;
        entries.truncate(free_blocks.saturating_sub(1));
        if let (Some((_, first)), Some((_, last))) = (entries.first(), entries.last()) {
            self.inner.borrow_mut().swapping = Some((log, cold));
            let (begin, blocks) = (first.place, (last.place - first.place + 1) as usize);
            let content = self.read_log(begin, blocks).await?;
            // In idle time it will read them again.
            if when == SwapTime::Idle && self.inner.borrow().requests > 0 {
                return Ok(false);
            }
            if self.move_blocks(cold, &entries, begin, &content).await? {
                return Ok(false);
            }
        }
        // All is moved, or the rest is just being changed, or does not fit.
        {
            let mut inner = self.inner.borrow_mut();
            inner.swapping = None;
            inner.logs[log as usize].hot = false;
            inner.overfull.remove(&log);
            inner.statistics.swaps += 1;
        }
        self.snapshot_with(&maintenance).await?;
        Ok(true)
    }

    /// Moves blocks. Returns false if none of them is as it was read, or there is no space.
    async fn move_blocks(
        self: &Rc<Self>,
        cold: u32,
        entries: &[(u64, Mapped)],
        begin: u64,
        content: &Buffer,
    ) -> DeviceResult<bool> {
        let (mut claims, mut blocks, mut moved) = (Vec::new(), Vec::new(), Vec::new());
        for (home, mapped) in entries {
            let same = || self.inner.borrow().table.get(*home) == Some(*mapped);
            // The holder of the claim is about to change it.
            let Some(claim) = self.claims.try_claim(Change::Alone, sectors_of(&(*home..home + 1)))
            else {
                continue;
            };
            if same() {
                claims.push(claim);
                blocks.push((*home, mapped.mask));
                let from = (mapped.place - begin) as usize * BLOCK;
                moved.extend_from_slice(&content[from..from + BLOCK]);
            }
        }
        let appending = self.appending.read().await;
        let free_blocks =
            self.inner.borrow().logs[cold as usize].free_blocks(self.layout.log_blocks()) as usize;
        if blocks.is_empty() || free_blocks < 1 + blocks.len() {
            return Ok(false);
        }
        self.inner.borrow_mut().statistics.swapped_blocks += blocks.len() as u64;
        let piece = Piece { blocks, content: Rc::new(Buffer::copy_of(&moved)), ticket: 0 };
        let begun = self.begin_record(appending, cold, vec![piece], &[], Durability::Cached);
        self.write_record(begun).await?;
        Ok(true)
    }

    fn entries_of(&self, log: u32) -> Vec<(u64, Mapped)> {
        let inner = self.inner.borrow();
        let lies_here =
            |mapped: &Mapped| self.layout.log_of(mapped.place).is_some_and(|(of, _)| of == log);
        inner.table.iter().filter(|(_, mapped)| !mapped.clean && lies_here(mapped)).collect()
    }
}
