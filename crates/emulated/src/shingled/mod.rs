//! Shingled disks that manage themselves (Patana-anake et al., MSST 2016): tracks overlap, so a
//! band is written anew as a whole. All writes go to logs first, and a table says what lies there;
//! cleaning brings it home, band by band.
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
use choose_log::Promised;
use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture, Operation, World};
use extents::Extents;
use layout::{LogPlace, ShingledLayout};
use runtime::sync::Event;
use serde::Serialize;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use units::Instant;

/// Which of the logs with room a write goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogChoice {
    /// The paper's: that of the arm's cylinder, or the nearest. A single log is filled from begin
    /// to end.
    NearestCylinder,
    /// That whose next free sector is under the head first, by seek, settling and rotation. A
    /// single log is chosen within by segments.
    Soonest,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shingles {
    pub logs: ShingledLogs,
    pub choice: LogChoice,
    /// Bytes that are written anew as one: 15 to 40 MB on drives that were looked into.
    pub band: u64,
    /// Where logs of neighbouring cylinders are filled to more than this share, one moves elsewhere
    /// in idle time, in percent.
    pub swap_above: u32,
    /// No request for so long is idle time.
    pub swap_idle: Duration,
}

impl Shingles {
    /// As the drives on the market that the paper compares with.
    pub fn single_log() -> Shingles {
        Shingles {
            logs: ShingledLogs::Single { bytes: 25_000_000_000 },
            ..Shingles::scattered_logs()
        }
    }
    /// As the paper proposes: a log in each cylinder, since the drive knows its cylinders. Its
    /// delay is "tens to hundreds of microseconds".
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

/// Clones are the same disk.
#[derive(Clone)]
pub struct ShingledDisk(Rc<State>);

struct State {
    world: Rc<dyn World>,
    name: String,
    drive: EmulatedDisk,
    layout: Rc<ShingledLayout>,
    shingles: Shingles,
    inner: Rc<RefCell<Inner>>,
    /// A log has room again.
    emptied: Event,
}

struct Inner {
    extents: Extents,
    logs: Vec<Log>,
    /// Sectors of all logs together, and how many of them writes were promised that have no place
    /// yet.
    free: u64,
    promised: u64,
    orders: u64,
    /// The log that the last write went to.
    current: usize,
    requests: usize,
    last_request: Instant,
    /// Sectors of each neighbourhood's logs that are taken.
    filled: Vec<u64>,
    /// Neighbourhoods whose logs are to be swapped.
    crowded: Vec<usize>,
    cleaning: bool,
    statistics: ShingledStatistics,
}

#[derive(Clone, Default)]
struct Log {
    /// Sectors that were written since it was empty.
    fill: u64,
    live: u64,
    /// Writes and reads under way.
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
    /// A disk of zeros. `None`: the model cannot be shingled so.
    pub fn new(world: Rc<dyn World>, model: Model, shingles: Shingles) -> Option<ShingledDisk> {
        let size = model.size.get();
        let layout = ShingledLayout::new(&model, shingles.logs, size)?;
        let options = DriveOptions { cache: CacheMode::Off, lies: Lies::default(), size: None };
        let name = format!("shingled {}", model.name);
        let inner = Inner {
            extents: Extents::default(),
            logs: vec![Log::default(); layout.logs.len()],
            free: layout.logs.iter().map(LogPlace::size).sum(),
            promised: 0,
            orders: 0,
            current: 0,
            requests: 0,
            last_request: world.now(),
            filled: vec![0; layout.neighbourhoods.len()],
            crowded: Vec::new(),
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
    /// Of the drive beneath: what swaps and cleaning read and write counts, too.
    pub fn drive_statistics(&self) -> DriveStatistics {
        self.0.drive.statistics()
    }
    /// Brings home all that lies in logs.
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
            runtime::complete_anyway(&*world, async move {
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

    /// Where sectors of the logical disk lie on the drive, and the logs that are used for as long
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
        let holds = |log: &layout::LogPlace| log.sectors.contains(&place);
        // Places rise with cylinders but for the reverse of odd surfaces, within one band of the
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
            let Some(promised) = self.promise(from..sectors.end) else {
                self.clone().make_room();
                self.emptied.until(|| self.has_room().then_some(())).await;
                continue;
            };
            let offset = |sector: u64| ((sector - sectors.start) * SECTOR) as usize;
            let content = &bytes[offset(from)..offset(promised.sectors.end)];
            let promised = Rc::new(promised);
            self.drive.write_at_its_turn(Rc::new(Buffer::copy_of(content)), promised.clone()).await;
            let part = promised.part.take().expect("it has had its turn");
            from = part.sectors.end;
            self.map(&part);
            self.leave(part.log);
        }
        Ok(())
    }

    /// Room in the logs for some of these sectors.
    fn promise(&self, sectors: Range<u64>) -> Option<Promised> {
        let mut inner = self.inner.borrow_mut();
        let count = (sectors.end - sectors.start).min(inner.free - inner.promised);
        if count == 0 {
            return None;
        }
        inner.promised += count;
        inner.orders += 1;
        Some(Promised {
            layout: self.layout.clone(),
            shingles: self.shingles,
            inner: self.inner.clone(),
            sectors: sectors.start..sectors.start + count,
            order: inner.orders,
            part: RefCell::default(),
        })
    }
    fn has_room(&self) -> bool {
        let inner = self.inner.borrow();
        inner.free > inner.promised
    }
    fn map(&self, part: &Part) {
        let mut inner = self.inner.borrow_mut();
        let (come, gone) = inner.extents.insert(part.sectors.clone(), part.place, part.order);
        for (start, extent) in come {
            inner.logs[part.log].live += extent.end - start;
        }
        self.forget(&mut inner, &gone);
    }
    /// These are no longer where the newest content is.
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
    /// So many sectors of a log are taken; whoever does so uses it.
    fn fill(&mut self, layout: &ShingledLayout, log: usize, count: u64) {
        self.logs[log].fill += count;
        self.logs[log].users += 1;
        self.free -= count;
        self.filled[layout.neighbourhood(log)] += count;
    }
    /// Its logs hold more than this share, in percent.
    fn is_filled(&self, layout: &ShingledLayout, neighbourhood: usize, percent: u32) -> bool {
        self.filled[neighbourhood] * 100 > layout.neighbourhoods[neighbourhood] * u64::from(percent)
    }
    /// A log with nothing in it begins anew.
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
    /// What is trimmed need not be brought home.
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
