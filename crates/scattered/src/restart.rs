//! Opening: the newest snapshot, then the records after it of the logs on the open list. Nothing is
//! checkpointed.
//!
//! Invariants: both disks are flushed first, so that what is read stays. A log's records are
//! followed as far as each proves that it follows the one before, directly or after a gap. A log
//! with a record that was begun and is not whole takes no other until it is emptied. All are
//! applied in the order of their sequence, and a drop hides only older records.

use crate::BLOCK;
use crate::claims::Claims;
use crate::disk::ScatteredDisk;
use crate::layout::{FormatError, Layout, Sizes, Superblock};
use crate::logs::Log;
use crate::open_list::{OpenList, REGION_LOGS};
use crate::policy::Settings;
use crate::record::{Header, RecordEntry};
use crate::snapshot::{SnapshotHeader, parse_payload, payload};
use crate::state::{Inner, State};
use crate::table::{Mapped, MappingTable};
use device::{Buffer, DeviceError, Disk, Durability, World};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// The first read of a log, beside a gap, and the longest: each is twice as long as the one before.
const PROBE: usize = 64 << 10;
const CHUNK: usize = 1 << 20;

#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("{disk}: {error}")]
    Format { disk: String, error: FormatError },
    #[error("{disk}: its mapping table lies on another device: name that with --mtl")]
    NeedsTable { disk: String },
    #[error("{disk}: its mapping table lies on the disk itself: do without --mtl")]
    HasTable { disk: String },
    #[error("{table} holds the mapping table of another disk than {disk}")]
    OtherTable { table: String, disk: String },
    #[error(
        "{disk}: the mapping table is damaged ({what}): blocks that lie in logs cannot be found"
    )]
    Damaged { disk: String, what: &'static str },
    #[error("{disk}: sectors of {sector} bytes are larger than a block of {BLOCK}")]
    Sectors { disk: String, sector: u32 },
}

/// Counts of what a restart read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RestartReport {
    /// Logs that were looked into, and those of them with records that the snapshot did not know.
    pub logs_read: u64,
    pub logs_grown: u64,
    pub records: u64,
    pub bytes_read: u64,
    pub entries: u64,
    pub took: Duration,
}

/// Makes empty logs. What lay on the disk is the logical disk's content no more.
pub async fn format(
    world: &Rc<dyn World>,
    main: &Rc<dyn Disk>,
    meta: Option<&Rc<dyn Disk>>,
    sizes: Sizes,
) -> Result<Layout, OpenError> {
    let wrong = |error| OpenError::Format { disk: main.name().to_owned(), error };
    let nonce = u128::from(world.random()) << 64 | u128::from(world.random());
    let superblock =
        Superblock::new(main.geometry().size, sizes, nonce, meta.is_some()).map_err(wrong)?;
    let layout = Layout::new(superblock).map_err(wrong)?;
    let table = meta.unwrap_or(main);
    if table.geometry().size < layout.table_area() {
        let error =
            FormatError::Shrunk { size: table.geometry().size, wanted: layout.table_area() };
        return Err(OpenError::Format { disk: table.name().to_owned(), error });
    }
    let logs = vec![Log::default(); layout.logs as usize];
    let (entries, payload) = payload(&layout, &MappingTable::default(), &logs, &BTreeSet::new());
    let header = SnapshotHeader {
        number: 1,
        sequence: 0,
        entries,
        checksum: crc32c::crc32c(&payload),
        regions: BTreeSet::new(),
    };
    let place = layout.snapshot_place(1) * BLOCK as u64;
    let write = |disk: &Rc<dyn Disk>, at: u64, bytes: &[u8]| {
        disk.write(at, vec![Rc::new(Buffer::copy_of(bytes))], Durability::Durable)
    };
    write(table, place + BLOCK as u64, &payload).await?;
    write(table, place, &header.serialize(nonce)).await?;
    // Last, and the main disk's at the very end: an interrupted format leaves what was there
    // before.
    if meta.is_some() {
        write(table, 0, &superblock.serialize()).await?;
    }
    write(main, 0, &superblock.serialize()).await?;
    Ok(layout)
}

pub async fn open(
    world: Rc<dyn World>,
    main: Rc<dyn Disk>,
    meta: Option<Rc<dyn Disk>>,
    settings: Settings,
) -> Result<(ScatteredDisk, RestartReport), OpenError> {
    let begin = world.now();
    let layout = identify(&main, meta.as_ref()).await?;
    let table = meta.unwrap_or_else(|| main.clone());
    main.flush().await?;
    if layout.superblock.table_elsewhere {
        table.flush().await?;
    }
    let mut reader = Reader::new(&main, &table, layout);
    let mut inner = reader.restore(world.now()).await?;
    reader.report.entries = inner.table.len() as u64;
    let mut report = reader.report;
    report.took = world.now().since(begin);
    inner.last_request = world.now();
    inner.head = layout.place_of(0).0;
    let state = State {
        name: format!("scattered logs on {}", main.name()),
        main,
        meta: table,
        layout,
        settings,
        claims: Rc::new(Claims::default()),
        maintenance: Rc::default(),
        appending: Rc::default(),
        listing: Rc::default(),
        advanced: runtime::sync::Event::default(),
        inner: RefCell::new(inner),
        world,
    };
    Ok((ScatteredDisk::new(state), report))
}

/// Reads what the disks say of themselves.
pub async fn identify(
    main: &Rc<dyn Disk>,
    meta: Option<&Rc<dyn Disk>>,
) -> Result<Layout, OpenError> {
    let disk = || main.name().to_owned();
    let wrong = |error| OpenError::Format { disk: disk(), error };
    let geometry = main.geometry();
    if geometry.logical_sector as usize > BLOCK {
        return Err(OpenError::Sectors { disk: disk(), sector: geometry.logical_sector });
    }
    if geometry.size < BLOCK as u64 {
        return Err(wrong(FormatError::NoSuperblock));
    }
    let superblock = Superblock::parse(&main.read(0, BLOCK).await?).map_err(wrong)?;
    let layout = Layout::new(superblock).map_err(wrong)?;
    let wanted = superblock.device_blocks * BLOCK as u64;
    if wanted > geometry.size {
        return Err(wrong(FormatError::Shrunk { size: geometry.size, wanted }));
    }
    match (superblock.table_elsewhere, meta) {
        (false, None) => {}
        (true, None) => return Err(OpenError::NeedsTable { disk: disk() }),
        (false, Some(_)) => return Err(OpenError::HasTable { disk: disk() }),
        (true, Some(table)) => {
            let other = || OpenError::OtherTable { table: table.name().to_owned(), disk: disk() };
            if table.geometry().size < layout.table_area() {
                return Err(other());
            }
            if Superblock::parse(&table.read(0, BLOCK).await?) != Ok(superblock) {
                return Err(other());
            }
        }
    }
    Ok(layout)
}

pub struct Reader<'a> {
    pub main: &'a Rc<dyn Disk>,
    table: &'a Rc<dyn Disk>,
    pub layout: Layout,
    report: RestartReport,
    /// Sequence of the last record that the snapshot covers.
    pub snapshot_sequence: u64,
}

impl<'a> Reader<'a> {
    pub fn new(main: &'a Rc<dyn Disk>, table: &'a Rc<dyn Disk>, layout: Layout) -> Reader<'a> {
        Reader { main, table, layout, report: RestartReport::default(), snapshot_sequence: 0 }
    }
    fn damaged(&self, what: &'static str) -> OpenError {
        OpenError::Damaged { disk: self.table.name().to_owned(), what }
    }
    pub async fn read(
        &mut self,
        disk: &Rc<dyn Disk>,
        place: u64,
        bytes: usize,
    ) -> Result<Buffer, OpenError> {
        self.report.bytes_read += bytes as u64;
        Ok(disk.read(place * BLOCK as u64, bytes).await?)
    }

    pub async fn restore(&mut self, now: units::Instant) -> Result<Inner, OpenError> {
        let header = self.newest_snapshot().await?;
        self.snapshot_sequence = header.sequence;
        let (list, counter) = self.newest_list(&header).await?;
        let (mut logs, table) = self.payload(&header).await?;
        let mut records = BTreeMap::new();
        let mut unknown_bytes = 0;
        for region in &list {
            let first = region * REGION_LOGS;
            for number in first..(first + REGION_LOGS).min(self.layout.logs) {
                let before = logs[number as usize].fill;
                self.scan(number, &mut logs[number as usize], header.sequence, &mut records)
                    .await?;
                let grown = logs[number as usize].fill - before;
                unknown_bytes += u64::from(grown) * BLOCK as u64;
                self.report.logs_read += 1;
                self.report.logs_grown += u64::from(grown > 0);
            }
        }
        self.report.records = records.len() as u64;
        let mut inner = Inner::new(table, logs, self.layout.gap(), now);
        inner.snapshot = header.number;
        inner.list_counter = counter;
        inner.regions = list;
        inner.unknown_bytes = unknown_bytes;
        inner.assigned =
            records.last_key_value().map_or(header.sequence, |(sequence, _)| *sequence);
        inner.installed = inner.assigned;
        apply(&mut inner, &self.layout, header.sequence, records);
        Ok(inner)
    }

    async fn newest_snapshot(&mut self) -> Result<SnapshotHeader, OpenError> {
        let mut newest: Option<SnapshotHeader> = None;
        for slot in 0..2 {
            let bytes = self.read(self.table, self.layout.snapshot_place(slot), BLOCK).await?;
            let header = SnapshotHeader::parse(&bytes, &self.layout)
                .filter(|header| header.number % 2 == slot);
            newest = newest.into_iter().chain(header).max_by_key(|header| header.number);
        }
        newest.ok_or_else(|| self.damaged("no snapshot is whole"))
    }

    /// The logs that may have grown, and the highest counter.
    async fn newest_list(
        &mut self,
        header: &SnapshotHeader,
    ) -> Result<(BTreeSet<u32>, u64), OpenError> {
        let (mut regions, mut of, mut highest) = (header.regions.clone(), 0, 0);
        for slot in 0..2 {
            let bytes = self.read(self.table, self.layout.list_place(slot), BLOCK).await?;
            let Some(list) = OpenList::parse(&bytes, &self.layout) else { continue };
            if list.snapshot > header.number {
                return Err(self.damaged("the newest snapshot is gone"));
            }
            highest = highest.max(list.counter);
            if list.snapshot == header.number && list.counter > of {
                (regions, of) = (list.regions, list.counter);
            }
        }
        Ok((regions, highest))
    }

    async fn payload(
        &mut self,
        header: &SnapshotHeader,
    ) -> Result<(Vec<Log>, MappingTable), OpenError> {
        let length = header.payload_bytes(&self.layout) as usize;
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let place =
                self.layout.snapshot_place(header.number) + 1 + (bytes.len() / BLOCK) as u64;
            let chunk = (length - bytes.len()).min(CHUNK);
            bytes.extend_from_slice(&self.read(self.table, place, chunk).await?);
        }
        if crc32c::crc32c(&bytes) != header.checksum && !units::fault!("block-snapshot-sum-ignored")
        {
            return Err(self.damaged("the snapshot's checksum is wrong"));
        }
        parse_payload(&self.layout, header.entries, &bytes)
            .ok_or_else(|| self.damaged("the snapshot contradicts itself"))
    }

    /// Follows a log's records from where the snapshot saw its end.
    async fn scan(
        &mut self,
        number: u32,
        log: &mut Log,
        known: u64,
        records: &mut BTreeMap<u64, (Header, u64)>,
    ) -> Result<(), OpenError> {
        let blocks = self.layout.log_blocks();
        let size = PROBE + self.layout.gap() as usize * BLOCK;
        let begin = self.layout.log_begin(number);
        let mut window = Window { begin, at: log.fill, bytes: Vec::new(), size };
        loop {
            window.forget(log.fill);
            let mut next = None;
            // It may follow after any gap up to the longest.
            let places = log.fill..=log.fill.saturating_add(self.layout.gap());
            for position in places.clone() {
                if position > log.fill && units::fault!("block-gap-not-searched") {
                    continue;
                }
                let follows = |header: &Header| {
                    header.log == number
                        && header.epoch == log.epoch
                        && header.position == position
                        && header.previous == log.tag
                        && header.sequence > known
                        && !records.contains_key(&header.sequence)
                };
                next = self
                    .record_at(&mut window, position, follows)
                    .await?
                    .map(|header| (position, header));
                if next.is_some() {
                    break;
                }
            }
            let Some((position, header)) = next else {
                // What is written over parts of it might make it whole, and it would follow again.
                let nonce = self.layout.nonce();
                if places.clone().any(|place| Header::was_begun(window.from(place), nonce, log.tag))
                    && !units::fault!("block-torn-goes-on")
                {
                    log.fill = blocks;
                }
                return Ok(());
            };
            log.fill = position + 1 + header.data_blocks() as u32;
            log.tag = header.tag;
            records.insert(header.sequence, (header, window.begin + u64::from(position)));
        }
    }

    /// The record that begins there, if it follows and is whole.
    async fn record_at(
        &mut self,
        window: &mut Window,
        position: u32,
        follows: impl Fn(&Header) -> bool,
    ) -> Result<Option<Header>, OpenError> {
        let (blocks, sums) = (self.layout.log_blocks() as usize, self.layout.sums());
        let main = self.main.clone();
        loop {
            let behind = window.from(position);
            let header =
                Header::parse(behind, self.layout.nonce(), self.layout.homes()).filter(&follows);
            let needed = (1 + header.as_ref().map_or(0, Header::data_blocks)) * BLOCK;
            let end = window.at as usize + window.bytes.len() / BLOCK;
            if behind.len() >= needed || end >= blocks {
                let is_whole = |header: &Header| {
                    behind.get(BLOCK..needed).is_some_and(|data| header.holds(data, sums))
                };
                return Ok(header.filter(is_whole));
            }
            let chunk = window.size.min((blocks - end) * BLOCK);
            window
                .bytes
                .extend_from_slice(&self.read(&main, window.begin + end as u64, chunk).await?);
            window.size = CHUNK.min(window.size * 2);
        }
    }
}

/// Bytes read of a log, from block `at` on.
struct Window {
    begin: u64,
    at: u32,
    bytes: Vec<u8>,
    /// Size of the next read.
    size: usize,
}

impl Window {
    fn from(&self, position: u32) -> &[u8] {
        self.bytes.get((position - self.at) as usize * BLOCK..).unwrap_or_default()
    }
    /// Forgets what lies before the position.
    fn forget(&mut self, position: u32) {
        let gone = (position - self.at) as usize * BLOCK;
        if gone >= self.bytes.len() {
            // Only what is asked for is read.
            self.bytes.clear();
            self.at = position;
        } else if gone >= CHUNK {
            self.bytes.drain(..gone);
            self.at = position;
        }
    }
}

/// Applies records in the order of sequence. `known` is the snapshot's: its entries are of that
/// sequence or older.
fn apply(inner: &mut Inner, layout: &Layout, known: u64, records: BTreeMap<u64, (Header, u64)>) {
    let mut sequences: BTreeMap<u64, u64> = BTreeMap::new();
    for (sequence, (header, mut place)) in records {
        for entry in header.entries {
            match entry {
                RecordEntry::Data { home, mask, .. } => {
                    place += 1;
                    inner.map(layout, home, Mapped { place, mask, clean: false });
                    sequences.insert(home, sequence);
                }
                RecordEntry::Drop { home, length, age } => {
                    let as_of = sequence.saturating_sub(u64::from(age));
                    let mapped = inner.table.range(home, home + u64::from(length));
                    let old = |home: &u64| sequences.get(home).copied().unwrap_or(known) < as_of;
                    let gone: Vec<u64> = mapped.map(|(home, _)| home).filter(old).collect();
                    gone.into_iter().for_each(|home| inner.unmap(layout, home));
                }
            }
        }
    }
}
