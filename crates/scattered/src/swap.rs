//! Log swapping: what a hot, nearly full log holds moves to a cold, empty one, so that there is room again where the arm is.
//!
//! Invariants: the blocks go as ordinary records, so a restart knows no swaps. A block is moved under a claim and only if its entry is still the one that
//! was read; the old log is emptied by a snapshot, as ever.

use crate::BLOCK;
use crate::append::Piece;
use crate::disk::DeviceResult;
use crate::state::State;
use crate::table::Mapped;
use device::{Buffer, Durability};
use std::rc::Rc;

impl State {
    /// The hot log most recently used of those that are too full, if there is a cold one.
    pub fn log_to_swap(&self) -> Option<u32> {
        let inner = self.inner.borrow();
        let limit = u64::from(self.settings.swap_above) * u64::from(self.layout.log_blocks()) / 100;
        let full = |log: &crate::logs::Log| log.hot && !log.closing && u64::from(log.fill) > limit;
        let (log, _) =
            (0u32..).zip(&inner.logs).filter(|(_, log)| full(log)).max_by_key(|(_, log)| log.used)?;
        drop(inner);
        self.coldest().map(|_| log)
    }
    /// Empty, and not used for the longest time; of those the farthest from the arm.
    fn coldest(&self) -> Option<u32> {
        let inner = self.inner.borrow();
        let most = self.settings.scan_regions.clamp(1, crate::open_list::REGIONS_MAX);
        let listed = |log: u32| {
            inner.regions.len() < most || inner.regions.contains(&(log / crate::open_list::REGION_LOGS))
        };
        let empty = (0u32..).zip(&inner.logs).filter(|(number, log)| {
            log.fill == 0 && log.room(self.layout.log_blocks()) > 0 && listed(*number)
        });
        let far = |log: u32| self.layout.log_begin(log).abs_diff(inner.head);
        empty.min_by_key(|(number, log)| (log.used, u64::MAX - far(*number))).map(|(number, _)| number)
    }

    pub async fn swap(self: &Rc<Self>, log: u32) -> DeviceResult<()> {
        let maintenance = self.maintenance.write().await;
        self.check_failed()?;
        let Some(cold) = self.coldest() else { return Ok(()) };
        let (fill, mut entries) = self.entries_of(log);
        entries.sort_unstable_by_key(|(_, mapped)| mapped.place);
        let begin = self.layout.log_begin(log);
        let content = self.read_log(begin, fill as usize).await?;
        for some in entries.chunks(self.layout.record_entries_max()) {
            let mut claims = Vec::new();
            let mut blocks = Vec::new();
            let mut moved = Vec::new();
            for (home, mapped) in some {
                let same = || self.inner.borrow().table.get(*home) == Some(*mapped);
                // Whoever has it is about to change it.
                let Some(claim) = self.claims.try_claim(*home..home + 1) else { continue };
                if same() {
                    claims.push(claim);
                    blocks.push((*home, mapped.mask));
                    let from = (mapped.place - begin) as usize * BLOCK;
                    moved.extend_from_slice(&content[from..from + BLOCK]);
                }
            }
            if blocks.is_empty() {
                continue;
            }
            let appending = self.appending.write().await;
            let room = self.inner.borrow().logs[cold as usize].room(self.layout.log_blocks());
            if (room as usize) < 1 + blocks.len() {
                break;
            }
            self.inner.borrow_mut().statistics.swapped_blocks += blocks.len() as u64;
            let piece = Piece { blocks, content: Rc::new(Buffer::copy_of(&moved)) };
            self.append(&appending, cold, &[piece], &[], Durability::Cached).await?;
        }
        {
            let mut inner = self.inner.borrow_mut();
            inner.logs[log as usize].hot = false;
            inner.statistics.swaps += 1;
        }
        self.snapshot_with(&maintenance).await
    }

    fn entries_of(&self, log: u32) -> (u32, Vec<(u64, Mapped)>) {
        let inner = self.inner.borrow();
        let lies_here = |mapped: &Mapped| self.layout.log_of(mapped.place).is_some_and(|(of, _)| of == log);
        let entries = inner.table.iter().filter(|(_, mapped)| !mapped.clean && lies_here(mapped)).collect();
        (inner.logs[log as usize].fill, entries)
    }
}
