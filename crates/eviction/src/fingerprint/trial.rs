//! The trials of a workload.
//!
//! The paper's trial: a target, the workload, a flush, a pause, and a read that shows whether the
//! target was evicted. And one "at once": many targets all over the range wait in the cache
//! together, and are read as soon as the workload is answered. Only the workload can have evicted
//! them, since the drive had no idle time afterwards. It must do so although the drive was free to
//! write nearer sectors first.

use super::Cell;
use super::prober::{FingerprintError, Prober};
use crate::FlushZone;
use device::{Buffer, DeviceError, Durability};
use std::ops::Range;
use std::rc::Rc;

/// Targets of a trial at once.
const WAITING: u64 = 64;
/// Bytes of each target, and alignment of targets and zone: as file systems write. Some drives
/// treat parts of 4 KiB differently.
const BLOCK: u64 = 4096;

impl Prober<'_> {
    pub(super) async fn trial(&mut self, cell: &mut Cell) -> Result<(), FingerprintError> {
        let (zone, extent) = self.zone(cell, self.sector)?;
        let target = self.fresh_target(&extent, self.sector);
        self.write(target, &self.zeroed(self.sector)).await?;
        let begun = self.world.now();
        self.evict(&zone, cell.trials()).await?;
        let took = self.world.now().since(begun);
        self.world.sleep_until(self.world.now().plus(self.options.pause)).await;
        let read = self.timed_read(target, self.sector).await?;
        cell.milliseconds += took.as_secs_f64() * 1e3;
        cell.read_us.push(read);
        Ok(())
    }

    /// Starts every other trial on an idle drive, the others right behind another eviction in the
    /// same zone.
    pub(super) async fn trial_at_once(&mut self, cell: &mut Cell) -> Result<(), FingerprintError> {
        let block = BLOCK.max(self.sector);
        let (zone, extent) = self.zone(cell, block)?;
        let number = cell.trials_at_once();
        match number % 2 == 0 {
            true => self.world.sleep_until(self.world.now().plus(self.options.pause)).await,
            false => self.evict(&zone, number - 1).await?,
        }
        let mut targets: Vec<u64> =
            (0..WAITING).map(|_| self.fresh_target(&extent, block)).collect();
        let content = self.zeroed(block);
        for &target in &targets {
            self.write(target, &content).await?;
        }
        self.evict(&zone, number).await?;
        // Downwards, so that none was read ahead with another. A single cached target fails the
        // trial.
        targets.sort_unstable_by(|one, other| other.cmp(one));
        let mut fastest = f64::INFINITY;
        for target in targets {
            fastest = fastest.min(self.timed_read(target, block).await?);
        }
        cell.at_once_us.push(fastest);
        Ok(())
    }

    /// A zone at another place each time: blocks of the trial before that are still in the cache
    /// would make its writes cheap.
    fn zone(&self, cell: &Cell, unit: u64) -> Result<(FlushZone, Range<u64>), FingerprintError> {
        let sector = self.sector as u32;
        let size = FlushZone::size(&cell.workload, sector);
        let start = self.place(size, unit);
        let extent = start..start + size;
        Ok((FlushZone::new(cell.workload, std::slice::from_ref(&extent), sector)?, extent))
    }
    async fn evict(&self, zone: &FlushZone, count: u32) -> Result<(), DeviceError> {
        let content = self.zeroed(zone.write_size());
        for at in zone.writes(count.into(), &mut || self.world.random()) {
            self.write(at, &content).await?;
        }
        self.disk.flush().await
    }
    fn zeroed(&self, length: u64) -> Rc<Buffer> {
        Rc::new(Buffer::zeroed(length as usize))
    }

    /// A random address for `length` bytes, a multiple of `unit`.
    fn place(&self, length: u64, unit: u64) -> u64 {
        let range = &self.options.range;
        let start = range.start.next_multiple_of(unit);
        let units = (range.end - start - length) / unit;
        start + self.world.random() % units * unit
    }

    /// An address of `unit` bytes outside `zone` that was no target before.
    pub(super) fn fresh_target(&mut self, zone: &Range<u64>, unit: u64) -> u64 {
        let sectors = (self.options.range.end - self.options.range.start) / self.sector;
        loop {
            let at = self.place(unit, unit);
            // When much of a small range has been used, some must be used again.
            if !zone.contains(&at)
                && (self.used.insert(at) || self.used.len() as u64 >= sectors / 4)
            {
                return at;
            }
        }
    }

    pub(super) async fn write(&self, at: u64, content: &Rc<Buffer>) -> Result<(), DeviceError> {
        self.disk.write(at, vec![content.clone()], Durability::Cached).await
    }

    /// Reads and returns the time in microseconds.
    pub(super) async fn timed_read(&self, at: u64, length: u64) -> Result<f64, DeviceError> {
        let begun = self.world.now();
        self.disk.read(at, length as usize).await?;
        Ok(self.world.now().since(begun).as_secs_f64() * 1e6)
    }
}
