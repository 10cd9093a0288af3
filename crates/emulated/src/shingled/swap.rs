//! Log swapping: where the logs of neighbouring cylinders are nearly full, the fullest moves to the
//! nearest cylinders whose logs are nearly empty.
//!
//! It is one read and one write in order. A request that arrives during the read waits for it, and
//! nothing is written then.
//!
//! Invariant: sectors written or trimmed during the swap stay where they are.

use super::extents::Extent;
use super::{Inner, ShingledLogs, State};
use crate::SECTOR;
use device::{Buffer, DeviceError, Disk, Durability, World};
use std::rc::{Rc, Weak};
use std::time::Duration;

const GLANCE: Duration = Duration::from_millis(20);
/// Sectors moved at once at most: about a track.
const STEP: u64 = (2 << 20) / SECTOR;

pub(super) async fn mind(state: Weak<State>, world: Rc<dyn World>) {
    loop {
        world.sleep_until(world.now().plus(GLANCE)).await;
        let Some(state) = state.upgrade() else { return };
        let overfull = state.inner.borrow().overfull.last().copied();
        if let Some(overfull) = overfull {
            if matches!(state.shingles.logs, ShingledLogs::Surface { .. })
                && state.idle_time() >= state.shingles.swap_idle
                && state.swap_step(overfull).await.is_err()
            {
                return;
            }
        }
    }
}

/// A move: ranges of the logical disk with their former extents, by address.
struct Move {
    hot: usize,
    cold: usize,
    parts: Vec<(u64, Extent)>,
    sectors: u64,
}

impl State {
    async fn swap_step(&self, overfull: usize) -> Result<(), DeviceError> {
        let chosen = {
            let mut inner = self.inner.borrow_mut();
            let chosen = self.choose_move(&inner, overfull);
            match &chosen {
                None => inner.overfull.retain(|other| *other != overfull),
                Some(chosen) => inner.logs[chosen.hot].users += 1,
            }
            chosen
        };
        let Some(chosen) = chosen else { return Ok(()) };
        let result = self.carry_out(&chosen).await;
        self.leave(chosen.hot);
        result
    }

    /// The fullest log of the neighbourhood, if that is still overfull and there is an emptier one.
    fn choose_move(&self, inner: &Inner, overfull: usize) -> Option<Move> {
        if !inner.is_filled(&self.layout, overfull, self.shingles.swap_above) {
            return None;
        }
        let logs = self.layout.logs_of(overfull).iter().copied();
        let hot =
            logs.max_by_key(|log| inner.logs[*log].live).filter(|log| inner.logs[*log].live > 0)?;
        let place = self.layout.logs[hot].sectors.clone();
        let mut parts: Vec<_> =
            inner.extents.iter().filter(|(_, extent)| place.contains(&extent.place)).collect();
        parts.sort_unstable_by_key(|(_, extent)| extent.place);
        let length = |(start, extent): &(u64, Extent)| extent.end - start;
        let first = parts.first()?.1.place;
        parts.retain(|part| part.1.place + length(part) - first <= STEP);
        let sectors = parts.iter().map(length).sum();
        let cold = self.cold_log(inner, overfull, sectors).filter(|_| sectors > 0)?;
        Some(Move { hot, cold, parts, sectors })
    }

    /// The emptiest log of the nearest neighbourhood that is as empty as the overfull one is full.
    fn cold_log(&self, inner: &Inner, overfull: usize, sectors: u64) -> Option<usize> {
        let empty = 100 - self.shingles.swap_above.min(100);
        let all = self.layout.neighbourhoods.len();
        let by_distance =
            (1..all).flat_map(|away| [overfull.checked_add(away), overfull.checked_sub(away)]);
        let cold = by_distance.flatten().filter(|other| *other < all);
        let mut cold = cold.filter(|other| !inner.is_filled(&self.layout, *other, empty));
        cold.find_map(|other| {
            let logs = self.layout.logs_of(other).iter().copied();
            let emptiest = logs.max_by_key(|log| self.layout.free_sectors(inner, *log));
            emptiest.filter(|log| self.layout.free_sectors(inner, *log) >= sectors)
        })
    }

    async fn carry_out(&self, chosen: &Move) -> Result<(), DeviceError> {
        let Move { hot, cold, parts, sectors } = chosen;
        let first = parts[0].1.place;
        let last =
            parts.last().map_or(first, |(start, extent)| extent.place + (extent.end - start));
        let read = self.drive.read(first * SECTOR, ((last - first) * SECTOR) as usize).await?;
        let mut packed = Vec::with_capacity((sectors * SECTOR) as usize);
        for (start, extent) in parts {
            let (from, count) = (extent.place - first, extent.end - start);
            packed.extend_from_slice(
                &read[(from * SECTOR) as usize..((from + count) * SECTOR) as usize],
            );
        }
        let to = {
            let mut inner = self.inner.borrow_mut();
            let has_space = self.layout.free_sectors(&inner, *cold) >= *sectors
                && inner.free - inner.reserved >= *sectors;
            // It is read again in the next idle time.
            if inner.requests > 0 || !has_space {
                return Ok(());
            }
            let to = self.layout.place(&inner, *cold);
            inner.fill(&self.layout, *cold, *sectors);
            to
        };
        let content = vec![Rc::new(Buffer::copy_of(&packed))];
        let result = self.drive.write(to * SECTOR, content, Durability::Durable).await;
        if result.is_ok() {
            self.map_moved(chosen, to);
        }
        if self.inner.borrow().logs[*hot].live == 0 {
            self.inner.borrow_mut().statistics.swaps += 1;
        }
        self.leave(*cold);
        result
    }

    /// Maps the parts that are unchanged to the cold log, from `to` on.
    fn map_moved(&self, Move { cold, parts, .. }: &Move, mut to: u64) {
        let mut inner = self.inner.borrow_mut();
        for (start, extent) in parts {
            let still = inner.extents.within(*start..extent.end).into_iter();
            let same = still.filter(|(from, part)| {
                part.order == extent.order && part.place == extent.place + (from - start)
            });
            for (from, part) in same.collect::<Vec<_>>() {
                let (come, gone) =
                    inner.extents.insert(from..part.end, to + (from - start), part.order);
                inner.logs[*cold].live +=
                    come.iter().map(|(at, extent)| extent.end - at).sum::<u64>();
                self.forget(&mut inner, &gone);
            }
            to += extent.end - start;
        }
    }
}
