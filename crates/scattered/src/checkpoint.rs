//! Writes logged blocks back, in the order of their homes, neighbours in one write.
//!
//! Invariants: an entry stays in the table, marked clean, until a snapshot without it is durable;
//! only then may its log be overwritten. A block is copied after its record is durable, under a
//! claim, and only if its entry is still the one that was read. So older content never overwrites
//! newer.

use crate::claims::{Change, sectors_of};
use crate::disk::DeviceResult;
use crate::layout::Layout;
use crate::state::State;
use crate::table::Mapped;
use crate::{BLOCK, SECTOR};
use device::{Buffer, Durability};
use runtime::sync::WriteGuard;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// Blocks of one request.
const REQUEST_BLOCKS: usize = 256;
/// Blocks between two logged blocks that one read takes along.
const GAP: u64 = 16;
/// Requests in flight, from which the disk chooses: half of what drives can queue. In idle time it
/// is one, so that no request waits for more.
const TOGETHER: usize = 16;
/// Bytes of one step between two checks whether the disk is still idle.
const STEP_BYTES: usize = 4 << 20;

/// Work that a checkpoint did, and work that it was spared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScatteredCheckpointReport {
    pub log_reads: u64,
    pub home_writes: u64,
    pub blocks: u64,
    /// Since the last checkpoint of everything.
    pub logged_writes: u64,
    pub logged_blocks: u64,
    pub reading: Duration,
    pub writing: Duration,
}

impl ScatteredCheckpointReport {
    /// The share of logged writes that were merged with neighbours or not needed any more.
    pub fn writes_reduced(&self) -> f64 {
        share_saved(self.home_writes, self.logged_writes)
    }
    /// The share of logged blocks that were overwritten or dropped before.
    pub fn blocks_reduced(&self) -> f64 {
        share_saved(self.blocks, self.logged_blocks)
    }
}
fn share_saved(done: u64, asked: u64) -> f64 {
    if asked == 0 { 0.0 } else { 1.0 - done.min(asked) as f64 / asked as f64 }
}

/// Requests of a checkpoint to the disk below, in bytes there, if nothing changes before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointRequests {
    pub reads: Vec<Range<u64>>,
    pub writes: Vec<Range<u64>>,
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = DeviceResult<T>> + 'a>>;
type Batch = Vec<(u64, Mapped)>;
type Contents = BTreeMap<u64, (Rc<Buffer>, usize)>;

impl State {
    /// Everything that is logged when this begins, and a snapshot.
    pub async fn checkpoint_all(self: &Rc<Self>) -> DeviceResult<ScatteredCheckpointReport> {
        let maintenance = self.maintenance.write().await;
        let mut report = ScatteredCheckpointReport::default();
        (report.logged_writes, report.logged_blocks) =
            std::mem::take(&mut self.inner.borrow_mut().logged_since);
        let mut cursor = 0;
        while let Some(next) = self
            .step(&maintenance, cursor, (self.settings.checkpoint_memory, TOGETHER), &mut report)
            .await?
        {
            cursor = next;
        }
        self.snapshot_with(&maintenance).await?;
        self.inner.borrow_mut().statistics.checkpoints += 1;
        Ok(report)
    }

    /// Checkpoints step by step while no other request wants the disk; continues later where it
    /// stopped.
    pub async fn checkpoint_gradually(self: &Rc<Self>, quiet: Duration) -> DeviceResult<()> {
        if self.inner.borrow().in_use == 0 {
            return Ok(());
        }
        let maintenance = self.maintenance.write().await;
        let mut report = ScatteredCheckpointReport::default();
        while self.idle_time() >= quiet {
            let cursor = self.inner.borrow().cursor;
            let next = self.step(&maintenance, cursor, (STEP_BYTES, 1), &mut report).await?;
            self.inner.borrow_mut().cursor = next.unwrap_or(0);
            if next.is_none() {
                return self.snapshot_with(&maintenance).await;
            }
        }
        Ok(())
    }

    /// Checkpoints one part of the table from `cursor` on; returns where the next begins.
    async fn step(
        self: &Rc<Self>,
        _maintenance: &WriteGuard,
        cursor: u64,
        (memory, together): (usize, usize),
        report: &mut ScatteredCheckpointReport,
    ) -> DeviceResult<Option<u64>> {
        self.check_failed()?;
        let batch: Batch = {
            let inner = self.inner.borrow();
            let entries = inner.table.range(cursor, u64::MAX).filter(|(_, mapped)| !mapped.clean);
            entries.take((memory / BLOCK).max(1)).collect()
        };
        let Some((last, _)) = batch.last() else { return Ok(None) };
        let next = last + 1;
        let begin = self.world.now();
        let contents = self.read_logged(&batch, together, report).await?;
        self.records_are_durable(&batch).await?;
        let between = self.world.now();
        let runs: Vec<_> = runs(&batch, |home| self.layout.place_of(home).0).collect();
        for some in runs.chunks(together) {
            let mut copies: Vec<Boxed<'_, (u64, u64)>> = Vec::new();
            for run in some {
                copies.push(Box::pin(self.copy_home(run, &contents)));
            }
            for copied in runtime::join_all(copies).await {
                let (writes, blocks) = copied?;
                report.home_writes += writes;
                report.blocks += blocks;
            }
        }
        report.reading += between.since(begin);
        report.writing += self.world.now().since(between);
        Ok(Some(next))
    }

    /// A home copy that a power cut tears is repaired from its record, which must outlive it.
    async fn records_are_durable(&self, batch: &[(u64, Mapped)]) -> DeviceResult<()> {
        let log_of = |mapped: &Mapped| self.layout.log_of(mapped.place).map(|(log, _)| log);
        let logs: BTreeSet<u32> = batch.iter().filter_map(|(_, mapped)| log_of(mapped)).collect();
        let durable = !logs.iter().any(|log| self.inner.borrow().unflushed.contains_key(log));
        if !durable {
            self.flush_records().await?;
        }
        Ok(())
    }

    /// Reads blocks in the order of the logs, near ones with one request.
    async fn read_logged(
        &self,
        batch: &[(u64, Mapped)],
        together: usize,
        report: &mut ScatteredCheckpointReport,
    ) -> DeviceResult<Contents> {
        let mut by_place: Vec<(u64, u64)> =
            batch.iter().map(|(home, mapped)| (mapped.place, *home)).collect();
        by_place.sort_unstable();
        let mut contents = Contents::new();
        let requests = near_ones(&self.layout, &by_place);
        for some in requests.chunks(together) {
            let mut reads: Vec<Boxed<'_, Buffer>> = Vec::new();
            for entries in some {
                let (begin, last) = (entries[0].0, entries[entries.len() - 1].0);
                reads.push(Box::pin(self.read_log(begin, (last - begin + 1) as usize)));
            }
            for (entries, read) in some.iter().zip(runtime::join_all(reads).await) {
                let read = Rc::new(read?);
                report.log_reads += 1;
                for (place, home) in *entries {
                    contents.insert(*home, (read.clone(), (place - entries[0].0) as usize * BLOCK));
                }
            }
        }
        Ok(contents)
    }

    /// Neighbours at home, as far as they are still what was read: how many writes, and blocks.
    async fn copy_home(
        &self,
        run: &[(u64, Mapped)],
        contents: &Contents,
    ) -> DeviceResult<(u64, u64)> {
        let Some(((first, _), (last, _))) = run.first().zip(run.last()) else { return Ok((0, 0)) };
        let mut writes = 0;
        let _claim = self.claims.claim(Change::Alone, sectors_of(&(*first..last + 1))).await;
        let same: Batch = {
            let inner = self.inner.borrow();
            run.iter()
                .filter(|(home, mapped)| inner.table.get(*home) == Some(*mapped))
                .copied()
                .collect()
        };
        for (at, sectors) in sector_runs(&same) {
            let parts = sectors.iter().map(|(home, from, until)| {
                let (buffer, offset) = &contents[home];
                Rc::new(Buffer::copy_of(&buffer[offset + from..offset + until]))
            });
            let place = byte_of(&self.layout, at);
            // What fails here fails a later snapshot's promise, so it is kept.
            let write = self.main.write(place, parts.collect(), Durability::Cached);
            self.fail(self.beside_records(write).await)?;
            writes += 1;
        }
        let mut inner = self.inner.borrow_mut();
        let blocks = same.len() as u64;
        for (home, mapped) in same {
            inner.map(&self.layout, home, Mapped { clean: true, ..mapped });
        }
        Ok((writes, blocks))
    }
}

/// Returns the requests that these entries take.
pub fn requests(layout: &Layout, batch: &[(u64, Mapped)]) -> CheckpointRequests {
    let mut by_place: Vec<(u64, u64)> =
        batch.iter().map(|(home, mapped)| (mapped.place, *home)).collect();
    by_place.sort_unstable();
    let block = BLOCK as u64;
    let read =
        |entries: &[(u64, u64)]| entries[0].0 * block..(entries[entries.len() - 1].0 + 1) * block;
    let reads = near_ones(layout, &by_place).into_iter().map(read).collect();
    let runs = runs(batch, |home| layout.place_of(home).0);
    let write = |(at, sectors): (u64, Sectors)| {
        let (place, length) =
            (byte_of(layout, at), sectors.iter().map(|(_, from, until)| until - from));
        place..place + length.sum::<usize>() as u64
    };
    CheckpointRequests { reads, writes: runs.flat_map(sector_runs).map(write).collect() }
}

/// Entries by place, as they are read with one request.
fn near_ones<'a>(layout: &Layout, by_place: &'a [(u64, u64)]) -> Vec<&'a [(u64, u64)]> {
    let mut requests = Vec::new();
    let mut from = 0;
    while from < by_place.len() {
        let begin = by_place[from].0;
        let log = layout.log_of(begin).map(|(log, _)| log);
        let mut until = from + 1;
        while until < by_place.len()
            && by_place[until].0 - by_place[until - 1].0 <= GAP
            && by_place[until].0 - begin < REQUEST_BLOCKS as u64
            && layout.log_of(by_place[until].0).map(|(log, _)| log) == log
        {
            until += 1;
        }
        requests.push(&by_place[from..until]);
        from = until;
    }
    requests
}

/// Returns the place of a byte of the logical disk, in bytes of the disk below.
fn byte_of(layout: &Layout, at: u64) -> u64 {
    layout.place_of(at / BLOCK as u64).0 * BLOCK as u64 + at % BLOCK as u64
}

/// Neighbours at home, of at most one request.
fn runs(
    batch: &[(u64, Mapped)],
    place_of: impl Fn(u64) -> u64,
) -> impl Iterator<Item = &[(u64, Mapped)]> {
    let mut rest = batch;
    std::iter::from_fn(move || {
        let (first, _) = rest.first()?;
        let begin = place_of(*first);
        let together = |(number, (home, _)): &(usize, &(u64, Mapped))| {
            *home == first + *number as u64 && place_of(*home) == begin + *number as u64
        };
        let count = rest.iter().take(REQUEST_BLOCKS).enumerate().take_while(together).count();
        let (run, others) = rest.split_at(count);
        rest = others;
        Some(run)
    })
}

/// Home of each block of a run, and its bytes from and until.
type Sectors = Vec<(u64, usize, usize)>;

/// The writes that a run takes: sectors that follow one another, and the logical byte they begin
/// at.
fn sector_runs(batch: &[(u64, Mapped)]) -> Vec<(u64, Sectors)> {
    let mut runs: Vec<(u64, Sectors)> = Vec::new();
    let mut end = u64::MAX;
    for (home, mapped) in batch {
        let mut sector = 0;
        while sector < 8 {
            if mapped.mask & 1 << sector == 0 {
                sector += 1;
                continue;
            }
            let count = (mapped.mask >> sector).trailing_ones() as usize;
            let (from, until) = (sector * SECTOR, (sector + count) * SECTOR);
            let at = home * BLOCK as u64 + from as u64;
            match runs.last_mut() {
                Some((_, sectors)) if at == end => sectors.push((*home, from, until)),
                _ => runs.push((at, vec![(*home, from, until)])),
            }
            end = home * BLOCK as u64 + until as u64;
            sector += count;
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(home: u64, mask: u8) -> (u64, Mapped) {
        (home, Mapped { place: 0, mask, clean: false })
    }

    #[test]
    fn neighbours_are_merged_and_sectors_that_are_not_logged_are_not_written() {
        let batch = [entry(4, 0xff), entry(5, 0x0f), entry(6, 0xf1), entry(9, 0xff)];
        let places = |home| if home < 9 { home } else { home + 100 };
        let found: Vec<usize> = runs(&batch, places).map(<[_]>::len).collect();
        assert_eq!(found, [3, 1]);
        let written: Vec<(u64, usize)> =
            sector_runs(&batch[..3]).iter().map(|(at, blocks)| (at / 512, blocks.len())).collect();
        assert_eq!(written, [(32, 2), (48, 1), (52, 1)]);
    }
    #[test]
    fn a_group_border_parts_neighbours() {
        let batch = [entry(4, 0xff), entry(5, 0xff)];
        assert_eq!(runs(&batch, |home| home * 2).count(), 2);
    }
}
