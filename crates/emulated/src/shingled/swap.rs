//! In idle time a full log's content moves to the empty log that is farthest from it.

use super::State;
use crate::SECTOR;
use device::{DeviceError, Disk, Durability, World};
use std::rc::{Rc, Weak};
use std::time::Duration;

const GLANCE: Duration = Duration::from_millis(20);
/// Moved at once: requests that come meanwhile wait for so much.
const STEP: u64 = (1 << 20) / SECTOR;

pub(super) async fn mind(state: Weak<State>, world: Rc<dyn World>) {
    loop {
        world.sleep_until(world.now().plus(GLANCE)).await;
        let Some(state) = state.upgrade() else { return };
        let log = state.inner.borrow().crowded.last().copied();
        if let Some(log) = log
            && matches!(state.shingles.logs, super::ShingledLogs::Surface { .. })
            && state.idle_time() >= state.shingles.swap_idle
            && state.swap_step(log).await.is_err()
        {
            return;
        }
    }
}

impl State {
    async fn swap_step(&self, log: usize) -> Result<(), DeviceError> {
        let place = self.layout.logs[log].sectors.clone();
        let (cold, part, to, order) = {
            let mut inner = self.inner.borrow_mut();
            let lies_here = |(_, extent): &(u64, super::extents::Extent)| place.contains(&extent.place);
            let found = inner.extents.iter().filter(lies_here).min_by_key(|(_, extent)| extent.place);
            let Some((start, extent)) = found else {
                inner.crowded.retain(|crowded| *crowded != log);
                return Ok(());
            };
            let count = (extent.end - start).min(STEP);
            let hot = self.layout.logs[log].cylinder;
            let room = |log: usize| self.layout.room(&inner, log);
            let limit = |log: usize| {
                self.layout.logs[log].size() * u64::from(100 - self.shingles.swap_above.min(100)) / 100
            };
            if inner.free - inner.promised < count {
                return Ok(());
            }
            let cold = (0..self.layout.logs.len())
                .filter(|cold| *cold != log && room(*cold) >= count + limit(*cold))
                .max_by_key(|cold| self.layout.logs[*cold].cylinder.abs_diff(hot));
            let Some(cold) = cold else { return Ok(()) };
            let to = self.layout.place(&inner, cold);
            inner.fill(cold, count);
            inner.logs[log].users += 1;
            (cold, (start, count, extent), to, extent.order)
        };
        let (start, count, extent) = part;
        let moved = async {
            let bytes = self.drive.read(extent.place * SECTOR, (count * SECTOR) as usize).await?;
            self.drive.write(to * SECTOR, vec![Rc::new(bytes)], Durability::Durable).await
        };
        let result = moved.await;
        {
            let mut inner = self.inner.borrow_mut();
            // What was written or trimmed meanwhile is elsewhere.
            let still = inner.extents.within(start..start + count);
            for (from, part) in still.into_iter().filter(|(from, part)| {
                result.is_ok() && part.order == order && part.place == extent.place + (from - start)
            }) {
                let (come, gone) = inner.extents.insert(from..part.end, to + (from - start), order);
                inner.logs[cold].live += come.iter().map(|(at, extent)| extent.end - at).sum::<u64>();
                self.forget(&mut inner, &gone);
            }
            if inner.logs[log].live == 0 {
                inner.statistics.swaps += 1;
            }
        }
        self.leave(cold);
        self.leave(log);
        result
    }
}
