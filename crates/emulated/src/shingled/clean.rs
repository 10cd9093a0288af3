//! Cleaning: a band is read, merged with its sectors in the logs, and rewritten.
//!
//! Invariant: only merged sectors leave the table, so a sector written to a log while its band is
//! cleaned stays there.

use super::{ShingledDisk, State};
use crate::SECTOR;
use device::{Buffer, DeviceError, Disk, Durability};
use serde::Serialize;
use std::rc::Rc;
use std::time::Duration;

/// Cost of a cleaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cleaned {
    pub bands: u64,
    /// Reads from logs.
    pub log_reads: u64,
    pub bytes: u64,
    pub reading_logs: Duration,
    pub rewriting: Duration,
}

impl State {
    pub(super) async fn clean_all(&self) -> Result<Cleaned, DeviceError> {
        let mut cleaned = Cleaned::default();
        loop {
            let first = self.inner.borrow().extents.first();
            let Some((sector, _)) = first else { return Ok(cleaned) };
            self.clean_band(sector, &mut cleaned).await?;
        }
    }

    async fn clean_band(&self, sector: u64, cleaned: &mut Cleaned) -> Result<(), DeviceError> {
        let band = self.shingles.band / SECTOR;
        let start = sector / band * band;
        let range = start..(start + band).min(self.layout.sectors);
        let extents = {
            let mut inner = self.inner.borrow_mut();
            let extents = inner.extents.within(range.clone());
            extents.iter().for_each(|(_, extent)| inner.logs[self.log_of(extent.place)].users += 1);
            extents
        };
        let begin = self.world.now();
        let reads = extents.iter().map(|(start, extent)| {
            self.drive.read(extent.place * SECTOR, ((extent.end - start) * SECTOR) as usize)
        });
        let logged = runtime::join_all(reads.collect()).await;
        let between = self.world.now();
        for (at, count) in self.layout.homes(range.clone()) {
            let mut whole = self.drive.read(at * SECTOR, (count * SECTOR) as usize).await?;
            let from = self.logical_of(at, &range);
            for ((start, _), content) in extents.iter().zip(&logged) {
                let content = content.as_ref().map_err(Clone::clone)?;
                put_overlap(&mut whole, from..from + count, *start, content);
            }
            self.drive.write(at * SECTOR, vec![Rc::new(whole)], Durability::Durable).await?;
        }
        cleaned.bands += 1;
        cleaned.log_reads += extents.len() as u64;
        cleaned.bytes +=
            extents.iter().map(|(start, extent)| (extent.end - start) * SECTOR).sum::<u64>();
        cleaned.reading_logs += between.since(begin);
        cleaned.rewriting += self.world.now().since(between);
        {
            let mut inner = self.inner.borrow_mut();
            for (start, extent) in &extents {
                let gone = inner.extents.remove_same(*start, *extent);
                self.forget(&mut inner, &gone);
            }
        }
        extents.iter().for_each(|(_, extent)| self.leave(self.log_of(extent.place)));
        Ok(())
    }
    /// The logical sector of a run's first sector.
    fn logical_of(&self, at: u64, range: &std::ops::Range<u64>) -> u64 {
        let mut from = range.start;
        for (run, count) in self.layout.homes(range.clone()) {
            if run == at {
                break;
            }
            from += count;
        }
        from
    }

    /// Cleans bands, those with the oldest content first, while every log is full, until there is
    /// space again.
    pub(super) fn free_space(self: Rc<Self>) {
        if std::mem::replace(&mut self.inner.borrow_mut().cleaning, true) {
            return;
        }
        let world = self.world.clone();
        world.spawn(Box::pin(async move {
            while !self.has_space() {
                let oldest = {
                    let inner = self.inner.borrow();
                    inner
                        .extents
                        .iter()
                        .min_by_key(|(_, extent)| extent.order)
                        .map(|(start, _)| start)
                };
                let Some(sector) = oldest else { break };
                // An error of the drive also fails the next request.
                if self.clean_band(sector, &mut Cleaned::default()).await.is_err() {
                    break;
                }
                self.inner.borrow_mut().statistics.bands_cleaned += 1;
            }
            self.inner.borrow_mut().cleaning = false;
            self.emptied.notify();
        }));
    }
}

/// Copies the part of `content`, which begins at sector `start`, that lies in the range of `whole`.
fn put_overlap(whole: &mut Buffer, range: std::ops::Range<u64>, start: u64, content: &[u8]) {
    let end = start + content.len() as u64 / SECTOR;
    let (from, until) = (start.max(range.start), end.min(range.end));
    if from < until {
        let (to, of) =
            (((from - range.start) * SECTOR) as usize, ((from - start) * SECTOR) as usize);
        let length = ((until - from) * SECTOR) as usize;
        whole[to..to + length].copy_from_slice(&content[of..of + length]);
    }
}

impl ShingledDisk {
    /// Bytes of a band.
    pub fn band(&self) -> u64 {
        self.0.shingles.band
    }
}
