//! Shingled disks that manage themselves (Patana-anake et al., MSST 2016): tracks overlap, so a
//! band is rewritten as a whole. All writes go to logs first, and a table maps their sectors;
//! cleaning writes them home, band by band.
//!
//! The drive beneath has the model's arm, with its write cache off. The table is in memory that
//! survives power loss, as the paper's is; a power cut of such a disk is not emulated. Facts and
//! choices: `docs/DISKS.md`.

mod choose_log;
mod clean;
mod extents;
mod layout;
mod swap;

pub use clean::Cleaned;
pub use layout::ShingledLogs;

use crate::drive::{CacheMode, DriveOptions, DriveStatistics, EmulatedDisk};
use crate::model::Model;
use crate::{Lies, SECTOR};
use choose_log::Reservation;
use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture, Operation, World};
use extents::Extents;
use layout::{LogRegion, ShingledLayout};
use runtime::sync::Event;
use serde::Serialize;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use units::Instant;

/// Choice among the logs with space for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogChoice {
    /// The paper's: that of the arm's cylinder, or the nearest. A single log is filled from start
    /// to end.
    NearestCylinder,
    /// The log whose next free sector is under the head first, by seek, settling and rotation.
    /// Within a single log the choice is by segments.
    Soonest,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shingles {
    pub logs: ShingledLogs,
    pub choice: LogChoice,
    /// Bytes rewritten as one: 15 to 40 MB on drives that were examined.
    pub band: u64,
    /// Share, in percent, above which the logs of neighbouring cylinders are swapped: one moves
    /// elsewhere in idle time.
    pub swap_above: u32,
    /// Time without requests that counts as idle.
    pub swap_idle: Duration,
}

impl Shingles {
    /// Parameters of the drives on the market with which the paper compares.
    pub fn single_log() -> Shingles {
        Shingles {
            logs: ShingledLogs::Single { bytes: 25_000_000_000 },
            ..Shingles::scattered_logs()
        }
    }
    /// Parameters of the paper's proposal: a log in each cylinder, since the drive knows its
    /// cylinders. Its delay is "tens to hundreds of microseconds".
    pub fn scattered_logs() -> Shingles {
        Shingles {
            logs: ShingledLogs::Surface { tracks: 1, alignment_us: 100.0 },
            choice: LogChoice::Soonest,
            band: 30_000_000,
            swap_above: 80,
            swap_idle: Duration::from_millis(100),
        }
    }
}

/// Counts since the disk was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ShingledStatistics {
    pub reads: u64,
    pub writes: u64,
    /// Reads of which some sectors lay in a log.
    pub redirected_reads: u64,
    pub swaps: u64,
    /// Cleaned because every log was full.
    pub bands_cleaned: u64,
    pub logs_in_use: u64,
    pub extents: u64,
}

/// A shingled disk. Clones are the same disk.
#[derive(Clone)]
pub struct ShingledDisk(Rc<State>);

struct State {
    world: Rc<dyn World>,
    name: String,
    drive: EmulatedDisk,
    layout: Rc<ShingledLayout>,
    shingles: Shingles,
    inner: Rc<RefCell<Inner>>,
    /// Notified when a log has space again.
    emptied: Event,
}

struct Inner {
    extents: Extents,
    logs: Vec<Log>,
    /// Free sectors of all logs together, less those reserved for writes without an address.
    free: u64,
    reserved: u64,
    orders: u64,
    /// The log of the last write.
    current: usize,
    requests: usize,
    last_request: Instant,
    /// Used sectors of each neighbourhood's logs.
    filled: Vec<u64>,
    /// Neighbourhoods whose logs are to be swapped.
    overfull: Vec<usize>,
    cleaning: bool,
    statistics: ShingledStatistics,
}

#[derive(Clone, Default)]
struct Log {
    /// Sectors written since it was empty.
    fill: u64,
    live: u64,
    /// Writes and reads in progress.
    users: usize,
}

/// A place in a log for a part of a write.
struct Part {
    log: usize,
    place: u64,
    sectors: Range<u64>,
    order: u64,
}

impl ShingledDisk {
    /// Creates a disk of zeros; `None` if the model cannot be shingled in this way.
    pub fn new(world: Rc<dyn World>, model: Model, shingles: Shingles) -> Option<ShingledDisk> {
        let size = model.size.get();
        let layout = ShingledLayout::new(&model, shingles.logs, size)?;
        let options = DriveOptions { cache: CacheMode::Off, lies: Lies::default(), size: None };
        let name = format!("shingled {}", model.name);
        let inner = Inner {
            extents: Extents::default(),
            logs: vec![Log::default(); layout.logs.len()],
            free: layout.logs.iter().map(LogRegion::size).sum(),
            reserved: 0,
            orders: 0,
            current: 0,
            requests: 0,
            last_request: world.now(),
            filled: vec![0; layout.neighbourhoods.len()],
            overfull: Vec::new(),
            cleaning: false,
            statistics: ShingledStatistics::default(),
        };
        let drive = EmulatedDisk::new(world.clone(), model, options);
        drive.align_last_surface(Duration::from_nanos(layout.alignment_ns));
        let state = State {
            name,
            drive,
            layout: Rc::new(layout),
            shingles,
            inner: Rc::new(RefCell::new(inner)),
            emptied: Event::default(),
            world: world.clone(),
        };
        let state = Rc::new(state);
        world.spawn(Box::pin(swap::mind(Rc::downgrade(&state), world.clone())));
        Some(ShingledDisk(state))
    }
    pub fn statistics(&self) -> ShingledStatistics {
        let inner = self.0.inner.borrow();
        ShingledStatistics {
            logs_in_use: inner.logs.iter().filter(|log| log.fill > 0).count() as u64,
            extents: inner.extents.iter().count() as u64,
            ..inner.statistics
        }
    }
    /// Statistics of the drive beneath, reads and writes of swaps and cleaning included.
    pub fn drive_statistics(&self) -> DriveStatistics {
        self.0.drive.statistics()
    }
    /// Writes everything in the logs home.
    pub async fn clean(&self) -> Result<Cleaned, DeviceError> {
        self.0.clean_all().await
    }

    fn request<T: 'static, F: Future<Output = Result<T, DeviceError>> + 'static>(
        &self,
        (operation, at, length): (Operation, u64, u64),
        work: impl FnOnce(Rc<State>, Range<u64>) -> F + 'static,
    ) -> LocalFuture<Result<T, DeviceError>> {
        let disk = self.clone();
        Box::pin(async move {
            disks::check(disk.name(), disk.geometry(), operation, at, length)?;
            let state = disk.0.clone();
            let world = state.world.clone();
            runtime::spawn_after_first_step(&*world, async move {
                state.inner.borrow_mut().requests += 1;
                let result = work(state.clone(), at / SECTOR..(at + length) / SECTOR).await;
                let mut inner = state.inner.borrow_mut();
                inner.requests -= 1;
                inner.last_request = state.world.now();
                result
            })
            .await
        })
    }
}

impl State {
    async fn read(&self, sectors: Range<u64>) -> Result<Buffer, DeviceError> {
        let mut whole = Buffer::zeroed(((sectors.end - sectors.start) * SECTOR) as usize);
        let (runs, logs) = self.runs(&sectors);
        let reads = runs
            .iter()
            .map(|(at, of)| self.drive.read(at * SECTOR, ((of.end - of.start) * SECTOR) as usize));
        let results = runtime::join_all(reads.collect()).await;
        logs.iter().for_each(|log| self.leave(*log));
        for ((_, of), result) in runs.iter().zip(results) {
            let to = ((of.start - sectors.start) * SECTOR) as usize;
            let bytes = result?;
            whole[to..to + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(whole)
    }

    /// Addresses of sectors of the logical disk on the drive, and the logs that are in use as long
    /// as they are read.
    fn runs(&self, sectors: &Range<u64>) -> (Vec<(u64, Range<u64>)>, Vec<usize>) {
        let mut inner = self.inner.borrow_mut();
        let (mut runs, mut logs) = (Vec::new(), Vec::new());
        let mut home = |range: Range<u64>| {
            let mut from = range.start;
            for (at, count) in self.layout.homes(range) {
                runs.push((at, from..from + count));
                from += count;
            }
        };
        let mut from = sectors.start;
        let extents = inner.extents.within(sectors.clone());
        for (start, extent) in &extents {
            if from < *start {
                home(from..*start);
            }
            from = extent.end;
        }
        if from < sectors.end {
            home(from..sectors.end);
        }
        for (start, extent) in &extents {
            runs.push((extent.place, *start..extent.end));
            let log = self.log_of(extent.place);
            inner.logs[log].users += 1;
            logs.push(log);
        }
        inner.statistics.reads += 1;
        inner.statistics.redirected_reads += u64::from(!extents.is_empty());
        (runs, logs)
    }
    fn log_of(&self, place: u64) -> usize {
        let holds = |log: &layout::LogRegion| log.sectors.contains(&place);
        // Addresses rise with cylinders but for the reverse of odd surfaces, within one band of the
        // layout.
        let cylinder = self.layout.cylinder(place);
        let mut near = self.layout.nearest(cylinder);
        near.find(|index| holds(&self.layout.logs[*index])).expect("it lies in a log")
    }
    fn leave(&self, log: usize) {
        let mut inner = self.inner.borrow_mut();
        inner.logs[log].users -= 1;
        inner.reset_if_empty(&self.layout, log);
        drop(inner);
        self.emptied.notify();
    }

    async fn write(
        self: Rc<Self>,
        sectors: Range<u64>,
        parts: Vec<Rc<Buffer>>,
    ) -> Result<(), DeviceError> {
        self.inner.borrow_mut().statistics.writes += 1;
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let mut from = sectors.start;
        while from < sectors.end {
            let Some(reserved) = self.reserve(from..sectors.end) else {
                self.clone().free_space();
                self.emptied.until(|| self.has_space().then_some(())).await;
                continue;
            };
            let offset = |sector: u64| ((sector - sectors.start) * SECTOR) as usize;
            let content = &bytes[offset(from)..offset(reserved.sectors.end)];
            let reserved = Rc::new(reserved);
            self.drive.write_when_served(Rc::new(Buffer::copy_of(content)), reserved.clone()).await;
            let part = reserved.part.take().expect("it has been served");
            from = part.sectors.end;
            self.map(&part);
            self.leave(part.log);
        }
        Ok(())
    }

    /// Reserves space in the logs for some of these sectors.
    fn reserve(&self, sectors: Range<u64>) -> Option<Reservation> {
        let mut inner = self.inner.borrow_mut();
        let count = (sectors.end - sectors.start).min(inner.free - inner.reserved);
        if count == 0 {
            return None;
        }
        inner.reserved += count;
        inner.orders += 1;
        Some(Reservation {
            layout: self.layout.clone(),
            shingles: self.shingles,
            inner: self.inner.clone(),
            sectors: sectors.start..sectors.start + count,
            order: inner.orders,
            part: RefCell::default(),
        })
    }
    fn has_space(&self) -> bool {
        let inner = self.inner.borrow();
        inner.free > inner.reserved
    }
    fn map(&self, part: &Part) {
        let mut inner = self.inner.borrow_mut();
        let (come, gone) = inner.extents.insert(part.sectors.clone(), part.place, part.order);
        for (start, extent) in come {
            inner.logs[part.log].live += extent.end - start;
        }
        self.forget(&mut inner, &gone);
    }
    /// Notes that these extents no longer have the newest content.
    fn forget(&self, inner: &mut Inner, gone: &[(u64, extents::Extent)]) {
        for (start, extent) in gone {
            let log = self.log_of(extent.place);
            inner.logs[log].live -= extent.end - start;
            inner.reset_if_empty(&self.layout, log);
        }
    }
    fn idle_time(&self) -> Duration {
        let inner = self.inner.borrow();
        if inner.requests > 0 { Duration::ZERO } else { self.world.now().since(inner.last_request) }
    }
}

impl Inner {
    /// Takes `count` sectors of a log, which the caller uses.
    fn fill(&mut self, layout: &ShingledLayout, log: usize, count: u64) {
        self.logs[log].fill += count;
        self.logs[log].users += 1;
        self.free -= count;
        self.filled[layout.neighbourhood(log)] += count;
    }
    /// Whether its logs hold more than this share, in percent.
    fn is_filled(&self, layout: &ShingledLayout, neighbourhood: usize, percent: u32) -> bool {
        self.filled[neighbourhood] * 100 > layout.neighbourhoods[neighbourhood] * u64::from(percent)
    }
    /// Restarts a log with nothing in it.
    fn reset_if_empty(&mut self, layout: &ShingledLayout, log: usize) {
        if self.logs[log].live == 0 && self.logs[log].users == 0 {
            let fill = std::mem::take(&mut self.logs[log].fill);
            self.free += fill;
            self.filled[layout.neighbourhood(log)] -= fill;
        }
    }
}

impl Disk for ShingledDisk {
    fn name(&self) -> &str {
        &self.0.name
    }
    fn geometry(&self) -> Geometry {
        let beneath = self.0.drive.geometry();
        Geometry { size: self.0.layout.sectors * SECTOR, discard: true, ..beneath }
    }
    fn physical_sector(&self) -> u32 {
        self.0.drive.physical_sector()
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        self.request((Operation::Read, at, length as u64), |state, sectors| async move {
            state.read(sectors).await
        })
    }
    fn write(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        _: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        self.request((Operation::Write, at, length), |state, sectors| state.write(sectors, parts))
    }
    fn flush(&self) -> LocalFuture<Result<(), DeviceError>> {
        self.request((Operation::Flush, 0, 0), |state, _| async move { state.drive.flush().await })
    }
    /// Drops trimmed sectors, which need not be written home.
    fn discard(&self, at: u64, length: u64) -> LocalFuture<Result<(), DeviceError>> {
        self.request((Operation::Discard, at, length), |state, sectors| async move {
            let mut inner = state.inner.borrow_mut();
            let order = inner.orders;
            let gone = inner.extents.remove(sectors, order);
            state.forget(&mut inner, &gone);
            Ok(())
        })
    }
}
