//! Writes a snapshot, and with it empties the logs that hold nothing needed.
//!
//! The order is: the point of the snapshot, while nothing is appended; the payload; a flush; the
//! header. The flush makes durable at home what the snapshot no longer covers. While the header is
//! written nothing is appended, for it begins a new open list. Only then are logs emptied, clean
//! entries and recorded drops forgotten.

use crate::open_list::REGION_LOGS;
use crate::snapshot::{SnapshotHeader, payload};
use crate::state::State;
use crate::{BLOCK, layout::Layout};
use device::{Buffer, DeviceError, Durability};
use runtime::sync::WriteGuard;
use std::collections::BTreeSet;
use std::rc::Rc;

const CHUNK: usize = 1 << 20;

/// The table as of one point.
struct SnapshotPoint {
    number: u64,
    sequence: u64,
    entries: u64,
    payload: Vec<u8>,
    emptied: BTreeSet<u32>,
    /// Drops up to this one are not in the table.
    drops: u64,
}

impl State {
    pub async fn snapshot(&self) -> Result<(), DeviceError> {
        let maintenance = self.maintenance.write().await;
        self.snapshot_with(&maintenance).await
    }

    pub async fn snapshot_with(&self, _maintenance: &WriteGuard) -> Result<(), DeviceError> {
        self.check_failed()?;
        let point = {
            let _appending = self.appending.write().await;
            self.point()
        };
        let place = self.layout.snapshot_place(point.number);
        for (chunk, number) in point.payload.chunks(CHUNK).zip(0..) {
            let at = place + 1 + number * (CHUNK / BLOCK) as u64;
            self.write_meta(at, chunk, Durability::Cached).await?;
        }
        self.flush_all().await?;
        let _appending = self.appending.write().await;
        let regions =
            self.inner.borrow().since.as_ref().map(|since| since.0.clone()).unwrap_or_default();
        let header = SnapshotHeader {
            number: point.number,
            sequence: point.sequence,
            entries: point.entries,
            checksum: crc32c::crc32c(&point.payload),
            regions,
        };
        self.write_meta(place, &header.serialize(self.layout.nonce()), Durability::Durable).await?;
        self.conclude(header, point);
        Ok(())
    }

    fn point(&self) -> SnapshotPoint {
        let mut inner = self.inner.borrow_mut();
        let emptied: BTreeSet<u32> = inner
            .logs
            .iter()
            .zip(0..)
            .filter(|(log, _)| log.fill > 0 && log.live == 0)
            .map(|(_, n)| n)
            .collect();
        for log in &emptied {
            inner.logs[*log as usize].closing = true;
        }
        inner.since = Some((BTreeSet::new(), 0));
        let (entries, payload) = payload(&self.layout, &inner.table, &inner.logs, &emptied);
        SnapshotPoint {
            number: inner.snapshot + 1,
            sequence: inner.installed,
            entries,
            payload,
            emptied,
            drops: inner.drops.mark(),
        }
    }

    fn conclude(&self, header: SnapshotHeader, point: SnapshotPoint) {
        let mut inner = self.inner.borrow_mut();
        let layout: &Layout = &self.layout;
        inner.snapshot = header.number;
        inner.regions = header.regions;
        inner.unknown_bytes = inner.since.take().map_or(0, |(_, bytes)| bytes);
        inner.drops.recorded(point.drops);
        if inner.clean > 0 {
            let clean: Vec<u64> = inner
                .table
                .iter()
                .filter(|(_, mapped)| mapped.clean)
                .map(|(home, _)| home)
                .collect();
            clean.into_iter().for_each(|home| inner.unmap(layout, home));
        }
        for number in &point.emptied {
            let log = &mut inner.logs[*number as usize];
            assert_eq!(log.live, 0, "log {number} is emptied and needed");
            *log = crate::logs::Log { readers: log.readers, used: log.used, ..log.next_life() };
            inner.in_use -= 1;
            inner.overfull.remove(number);
            inner.swapping = inner.swapping.filter(|(from, to)| from != number && to != number);
            inner.unflushed.remove(number);
        }
        inner.forget_partial(|place| {
            layout.log_of(place).is_some_and(|(log, _)| point.emptied.contains(&log))
        });
        inner.statistics.snapshots += 1;
        debug_assert!(inner.regions.iter().all(|region| *region <= layout.logs / REGION_LOGS));
    }

    /// Reads blocks of a log, which is not overwritten during that.
    pub async fn read_log(&self, place: u64, blocks: usize) -> Result<Buffer, DeviceError> {
        let _pin = self.pin(place);
        self.beside_records(self.main.read(place * BLOCK as u64, blocks * BLOCK)).await
    }
    /// Keeps the log of a place as it is.
    pub fn pin(&self, place: u64) -> Pin<'_> {
        let (log, _) = self.layout.log_of(place).expect("a place in a log");
        self.inner.borrow_mut().logs[log as usize].readers += 1;
        Pin { state: self, log }
    }
    /// The content of one logged block.
    pub async fn logged_block(&self, place: u64) -> Result<Rc<Buffer>, DeviceError> {
        let kept = self.inner.borrow().partial(place);
        match kept {
            Some(content) => Ok(content),
            None => Ok(Rc::new(self.read_log(place, 1).await?)),
        }
    }
}

pub struct Pin<'a> {
    state: &'a State,
    log: u32,
}
impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.state.inner.borrow_mut().logs[self.log as usize].readers -= 1;
    }
}
