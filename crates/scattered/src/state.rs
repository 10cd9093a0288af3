//! The state of a scattered disk, and its locks.
//!
//! Locks are always taken in this order: a claim on homes, `maintenance`, `appending`, `listing`.
//! Checkpoint, swap and snapshot take `maintenance` one at a time. Records in flight share
//! `appending`, and the point of a snapshot has it exclusively. One task, which has `listing`,
//! writes the open list. The writer takes the last two only, so it never waits for a claim or for
//! maintenance. A holder of a claim may wait for the writer.
//!
//! After a failed write of a log or of the table, or a failed flush, the content of the disk is
//! unknown. Reads go on, all changes report that error.

use crate::claims::Claims;
use crate::drops::Drops;
use crate::gap::Gap;
use crate::in_flight::InFlight;
use crate::layout::Layout;
use crate::logs::Log;
use crate::pending::Pending;
use crate::policy::Settings;
use crate::statistics::ScatteredStatistics;
use crate::table::{Mapped, MappingTable};
use crate::writer::QueuedWrite;
use crate::{BLOCK, SECTOR};
use device::{Buffer, DeviceError, Disk, Durability, LocalFuture, World};
use runtime::Sender;
use runtime::sync::{Event, RwLock};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::rc::Rc;
use units::Instant;

/// Contents of partly logged blocks that are kept, since the next write of such a block needs them.
const PARTIAL_MAX: usize = 64;

pub struct Inner {
    pub table: MappingTable,
    pub logs: Vec<Log>,
    /// Sequence of the last record that was begun, and of the last that is in the table.
    pub assigned: u64,
    pub installed: u64,
    /// Place where the last request that was not logged ended.
    pub head: u64,
    pub drops: Drops,
    /// Number of the newest durable snapshot.
    pub snapshot: u64,
    pub list_counter: u64,
    /// Durably listed for that snapshot.
    pub regions: BTreeSet<u32>,
    /// Not yet listed, but wanted by records in flight.
    pub opening: BTreeSet<u32>,
    /// While a snapshot is being written: where records went since its point, and how many bytes.
    pub since: Option<(BTreeSet<u32>, u64)>,
    /// Bytes of records that no snapshot knows.
    pub unknown_bytes: u64,
    /// Records complete in the disk's cache only: for each log the last one's number among all of
    /// those.
    pub unflushed: BTreeMap<u32, u64>,
    pub completions: u64,
    pub in_flight: InFlight,
    /// The log of the record that was complete last, and when that was.
    pub ended: Option<(u32, Instant)>,
    /// Between records that follow each other at once.
    pub gap: Gap,
    pub pending: Pending,
    /// Logs that are not empty.
    pub in_use: usize,
    /// Hot logs that are too full.
    pub overfull: BTreeSet<u32>,
    /// From which log to which.
    pub swapping: Option<(u32, u32)>,
    pub clean: usize,
    partial: VecDeque<(u64, Rc<Buffer>)>,
    pub queue: VecDeque<QueuedWrite>,
    pub writer_runs: bool,
    pub flushes: Vec<Sender<Result<(), DeviceError>>>,
    pub flusher_runs: bool,
    pub failed: Option<DeviceError>,
    pub requests: usize,
    pub last_request: Instant,
    /// Writes and blocks logged since the last checkpoint of everything.
    pub logged_since: (u64, u64),
    /// Where a gradual checkpoint continues.
    pub cursor: u64,
    pub statistics: ScatteredStatistics,
}

pub struct State {
    pub world: Rc<dyn World>,
    pub name: String,
    pub main: Rc<dyn Disk>,
    /// The disk with the table's area: the same, or memory that survives power loss.
    pub meta: Rc<dyn Disk>,
    pub layout: Layout,
    pub settings: Settings,
    pub claims: Rc<Claims>,
    pub maintenance: Rc<RwLock>,
    pub appending: Rc<RwLock>,
    pub listing: Rc<RwLock>,
    /// A record is complete, or failed.
    pub advanced: Event,
    pub inner: RefCell<Inner>,
}

impl Inner {
    pub fn new(table: MappingTable, logs: Vec<Log>, gap_most: u32, now: Instant) -> Inner {
        Inner {
            table,
            in_use: logs.iter().filter(|log| log.fill > 0).count(),
            logs,
            assigned: 0,
            installed: 0,
            head: 0,
            drops: Drops::default(),
            snapshot: 0,
            list_counter: 0,
            regions: BTreeSet::new(),
            opening: BTreeSet::new(),
            since: None,
            unknown_bytes: 0,
            unflushed: BTreeMap::new(),
            completions: 0,
            in_flight: InFlight::default(),
            ended: None,
            gap: Gap::new(gap_most),
            pending: Pending::default(),
            overfull: BTreeSet::new(),
            swapping: None,
            clean: 0,
            partial: VecDeque::new(),
            queue: VecDeque::new(),
            writer_runs: false,
            flushes: Vec::new(),
            flusher_runs: false,
            failed: None,
            requests: 0,
            last_request: now,
            logged_since: (0, 0),
            cursor: 0,
            statistics: ScatteredStatistics::default(),
        }
    }

    /// An entry came, changed or went: the logs' counts follow.
    pub fn recount(&mut self, layout: &Layout, before: Option<Mapped>, after: Option<Mapped>) {
        for (mapped, comes) in [(before, false), (after, true)] {
            let Some(mapped) = mapped else { continue };
            let (log, _) = layout.log_of(mapped.place).expect("entries lie in logs");
            let count = if mapped.clean { &mut self.clean } else { &mut 0 };
            match (mapped.clean, comes) {
                (true, true) => *count += 1,
                (true, false) => *count -= 1,
                (false, true) => self.logs[log as usize].live += 1,
                (false, false) => self.logs[log as usize].live -= 1,
            }
        }
    }
    pub fn map(&mut self, layout: &Layout, home: u64, mapped: Mapped) {
        let before = self.table.insert(home, mapped);
        self.recount(layout, before, Some(mapped));
    }
    pub fn unmap(&mut self, layout: &Layout, home: u64) {
        let before = self.table.remove(home);
        self.recount(layout, before, None);
    }

    /// A record went there through the disk's cache.
    pub fn completed_unflushed(&mut self, log: u32) {
        self.completions += 1;
        self.unflushed.insert(log, self.completions);
    }
    /// A near-head record went there. Above `limit` percent the log is to be swapped.
    pub fn note_hot(&mut self, number: u32, layout: &Layout, limit: u32) {
        let log = &mut self.logs[number as usize];
        log.hot = true;
        if u64::from(log.fill) * 100 > u64::from(limit) * u64::from(layout.log_blocks()) {
            self.overfull.insert(number);
        }
    }

    pub fn keep_partial(&mut self, place: u64, content: Rc<Buffer>) {
        if self.partial.len() == PARTIAL_MAX {
            self.partial.pop_front();
        }
        self.partial.push_back((place, content));
    }
    pub fn partial(&self, place: u64) -> Option<Rc<Buffer>> {
        self.partial.iter().rev().find(|(at, _)| *at == place).map(|(_, content)| content.clone())
    }
    pub fn forget_partial(&mut self, of: impl Fn(u64) -> bool) {
        self.partial.retain(|(place, _)| !of(*place));
    }
}

impl State {
    /// Blocks that a logged write has at most, however it lies.
    pub fn logged_blocks(&self) -> usize {
        let blocks = self.settings.logged_write_size.div_ceil(BLOCK as u64) as usize + 1;
        blocks.min(self.layout.record_entries_max())
    }
    pub fn has_failed(&self) -> bool {
        self.inner.borrow().failed.is_some()
    }
    pub fn check_failed(&self) -> Result<(), DeviceError> {
        self.inner.borrow().failed.clone().map_or(Ok(()), Err)
    }
    /// Keeps the first error.
    pub fn fail<T>(&self, result: Result<T, DeviceError>) -> Result<T, DeviceError> {
        if let Err(error) = &result {
            self.inner.borrow_mut().failed.get_or_insert_with(|| error.clone());
        }
        result
    }

    /// Runs a request of a disk below that is no record: the arm is elsewhere when it completes.
    pub fn beside_records<'a, T: 'a>(
        &'a self,
        request: LocalFuture<T>,
    ) -> Pin<Box<dyn Future<Output = T> + 'a>> {
        Box::pin(async move {
            let result = request.await;
            self.inner.borrow_mut().gap.interrupted();
            result
        })
    }
    pub async fn flush_main(&self) -> Result<(), DeviceError> {
        self.fail(self.beside_records(self.main.flush()).await)
    }
    /// Flushes both disks, or the one.
    pub async fn flush_all(&self) -> Result<(), DeviceError> {
        self.flush_main().await?;
        if self.layout.superblock.table_elsewhere {
            self.fail(self.meta.flush().await)?;
        }
        Ok(())
    }
    pub async fn write_meta(
        &self,
        place: u64,
        bytes: &[u8],
        durability: Durability,
    ) -> Result<(), DeviceError> {
        let parts = vec![Rc::new(Buffer::copy_of(bytes))];
        self.fail(
            self.beside_records(self.meta.write(place * BLOCK as u64, parts, durability)).await,
        )
    }
}

/// The bits of a block's sectors from byte `from` up to `until` of it.
pub fn mask_of(from: usize, until: usize) -> u8 {
    (from / SECTOR..until / SECTOR).fold(0, |mask, sector| mask | 1 << sector)
}
