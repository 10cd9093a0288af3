//! A disk whose flush is an eviction.

use crate::{EvictionWorkload, FlushZone, ZoneError};
use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture, World};
use format::flush_zone::FoundFlushZone;
use runtime::sync::{Event, RwLock};
use runtime::{join_window, spawn_after_first_step, spawn_with_result};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A drive in front of which every flush becomes the drive's own flush, which it may ignore, and
/// then an eviction.
///
/// Counting: `completed` writes have been answered by the drive. The first of them stand for
/// leftovers of an earlier mount in its cache. The first `evicted` are on the medium. An eviction
/// covers the writes completed before it begins. Flushes that arrive while one is in progress share
/// the next; a flush whose writes are evicted already costs nothing.
///
/// Invariant: while an eviction runs the drive carries out its writes and nothing else. A request
/// that touched what the cache holds would make it the most recently used, and the rest of the
/// eviction would not push it out. So an eviction waits for requests in flight, and later ones for
/// its end, in the order of their arrival. Its own writes go to the drive directly, and it waits
/// for nothing else: it always ends if the drive answers.
///
/// After an eviction that failed every later one fails, as flushes of a file do: which of
/// its writes took space in the cache is unknown. A recovery goes on without evictions instead
/// ([`CoercedDisk::or_flush`]).
#[derive(Clone)]
pub struct CoercedDisk(Rc<State>);

/// Called with the error of an eviction.
type Report = Box<dyn Fn(&DeviceError)>;

struct State {
    world: Rc<dyn World>,
    drive: Rc<dyn Disk>,
    zone: FlushZone,
    /// Writes of an eviction in flight at the same time.
    at_once: usize,
    completed: Cell<u64>,
    evicted: Cell<u64>,
    evicting: Cell<bool>,
    over: Event,
    /// Lock held shared by requests in flight, and exclusively by an eviction.
    requests: Rc<RwLock>,
    next_round: Cell<u64>,
    /// The error of an eviction.
    failed: RefCell<Option<DeviceError>>,
    /// Called with the first failed write, where the drive's flush alone is enough from then on.
    on_failure: Option<Report>,
    /// Whether that is so by now.
    only_flushes: Cell<bool>,
    statistics: Cell<CoercionStatistics>,
}

/// Counts since the disk was wrapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CoercionStatistics {
    /// Flushes and durable writes requested.
    pub barriers: u64,
    pub evictions: u64,
    /// Bytes of the evictions, in the flush zone.
    pub bytes: u64,
    /// Time that the evictions took.
    pub nanoseconds: u64,
}

impl CoercedDisk {
    pub fn new(world: Rc<dyn World>, drive: Rc<dyn Disk>, zone: FlushZone) -> CoercedDisk {
        CoercedDisk(Rc::new(State {
            world,
            drive,
            zone,
            at_once: 1,
            completed: Cell::new(1),
            evicted: Cell::default(),
            evicting: Cell::default(),
            over: Event::default(),
            requests: Rc::default(),
            next_round: Cell::default(),
            failed: RefCell::default(),
            on_failure: None,
            only_flushes: Cell::default(),
            statistics: Cell::default(),
        }))
    }

    /// Wraps a drive on which a zone was found.
    ///
    /// # Errors
    /// [`ZoneError`] for a zone that evictions cannot use.
    pub fn over(
        world: Rc<dyn World>,
        drive: Rc<dyn Disk>,
        zone: &FoundFlushZone,
    ) -> Result<CoercedDisk, ZoneError> {
        let sector = drive.geometry().logical_sector;
        let workload = EvictionWorkload::from(&zone.superblock);
        let zone = FlushZone::new(workload, &zone.extents, sector)?;
        Ok(CoercedDisk::new(world, drive, zone))
    }

    /// Goes on with the drive's own flush alone after a write of an eviction fails, which `report`
    /// gets: for a recovery, which a bad sector of the zone must not prevent. Call before the first
    /// use.
    pub fn or_flush(self, report: impl Fn(&DeviceError) + 'static) -> CoercedDisk {
        self.with(|state| state.on_failure = Some(Box::new(report)))
    }

    /// Makes an eviction submit all its writes together, as a kernel would, for hosts that sort
    /// requests and give a drive one at a time. Call before the first use.
    pub fn all_at_once(self) -> CoercedDisk {
        self.with(|state| state.at_once = usize::MAX)
    }

    fn with(self, change: impl FnOnce(&mut State)) -> CoercedDisk {
        let mut state = Rc::into_inner(self.0).expect("it is not shared yet");
        change(&mut state);
        CoercedDisk(Rc::new(state))
    }

    pub fn statistics(&self) -> CoercionStatistics {
        self.0.statistics.get()
    }

    /// Makes an eviction although no write waits for it, for plans with more of them than ours.
    ///
    /// # Errors
    ///
    /// A write of the eviction failed.
    pub async fn evict_once_more(&self) -> Result<(), DeviceError> {
        self.0.evict().await.map(drop)
    }
}

impl State {
    fn count(&self, change: impl FnOnce(&mut CoercionStatistics)) {
        let mut statistics = self.statistics.get();
        change(&mut statistics);
        self.statistics.set(statistics);
    }

    /// Returns when all writes that were completed at the call are on the medium.
    async fn settle(self: Rc<Self>) -> Result<(), DeviceError> {
        self.count(|statistics| statistics.barriers += 1);
        let wanted = self.completed.get();
        self.check()?;
        while self.evicted.get() < wanted {
            if self.evicting.get() {
                self.over.until(|| (!self.evicting.get()).then_some(())).await;
                self.check()?;
                continue;
            }
            self.evicting.set(true);
            // A task of its own: the caller's future may be dropped, and other callers wait for the
            // end.
            let this = self.clone();
            let eviction = spawn_with_result(&*self.world, async move {
                let result = this.evict().await;
                match &result {
                    Ok(covered) => this.evicted.set(this.evicted.get().max(*covered)),
                    Err(error) => drop(this.failed.borrow_mut().get_or_insert(error.clone())),
                }
                this.evicting.set(false);
                this.over.notify();
                result
            });
            // No result: the world has ended.
            let Some(result) = eviction.await else { return std::future::pending().await };
            result?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), DeviceError> {
        match &*self.failed.borrow() {
            Some(error) if !units::fault!("eviction-after-failure") => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Makes an eviction. Returns the number of completed writes that it covers.
    async fn evict(&self) -> Result<u64, DeviceError> {
        let _alone = self.requests.write().await;
        let (begin, covered) = (self.world.now(), self.completed.get());
        // An honest drive needs no more than this; a drive that ignores it loses no time.
        self.drive.flush().await?;
        if self.only_flushes.get() {
            return Ok(covered);
        }
        let places = self.next_places();
        let size = self.zone.write_size();
        let size = if units::fault!("evicts-too-little") { (size / 2).max(512) } else { size };
        self.count(|statistics| {
            statistics.evictions += 1;
            statistics.bytes += size * places.len() as u64;
        });
        let content = Rc::new(Buffer::zeroed(size as usize));
        // One after the other, as in the fingerprint: the number of concurrent writes may change
        // what a drive evicts.
        let writes = places
            .into_iter()
            .map(|at| self.drive.write(at, vec![content.clone()], Durability::Cached));
        match (join_window(writes, self.at_once).await, &self.on_failure) {
            (Err(error), Some(report)) => {
                self.only_flushes.set(true);
                report(&error);
            }
            (written, _) => drop(written?),
        }
        let took = self.world.now().since(begin);
        self.count(|statistics| statistics.nanoseconds += took.as_nanos() as u64);
        Ok(covered)
    }

    /// Returns the places of the next eviction's writes.
    ///
    /// The first one takes two rounds of the zone. An earlier process, killed at any moment, may
    /// have left its last evictions in the cache, and a write to a place that the cache holds takes
    /// no space in it. The cache holds no more of the zone than one round, since an eviction fills
    /// it. So of the writes of two rounds at least as many as one round has take space.
    fn next_places(&self) -> Vec<u64> {
        let first = self.statistics.get().evictions == 0;
        let rounds = if first && !units::fault!("eviction-first-round-alone") { 2 } else { 1 };
        let next = self.next_round.get();
        self.next_round.set(next + rounds);
        let places = |round| self.zone.writes(round, &mut || self.world.random());
        (next..next + rounds).flat_map(places).collect()
    }

    /// Carries out a request while no eviction runs, to its end even if its caller does not wait:
    /// what is in flight at the drive holds the next eviction up.
    async fn request<T: 'static>(
        self: Rc<Self>,
        work: impl AsyncFnOnce(&State) -> Result<T, DeviceError> + 'static,
    ) -> Result<T, DeviceError> {
        let world = self.world.clone();
        let whole = async move {
            let _shared = match units::fault!("eviction-not-alone") {
                true => None,
                false => Some(self.requests.read().await),
            };
            work(&self).await
        };
        spawn_after_first_step(&*world, whole).await
    }
}

impl Disk for CoercedDisk {
    fn name(&self) -> &str {
        self.0.drive.name()
    }
    fn geometry(&self) -> Geometry {
        // An eviction makes everything durable, not only the write that it was for.
        Geometry { forced_unit_access: false, ..self.0.drive.geometry() }
    }
    fn physical_sector(&self) -> u32 {
        self.0.drive.physical_sector()
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        let read = async move |state: &State| state.drive.read(at, length).await;
        Box::pin(self.0.clone().request(read))
    }
    fn write(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        let write = async move |state: &State| {
            state.drive.write(at, parts, Durability::Cached).await?;
            state.completed.set(state.completed.get() + 1);
            Ok(())
        };
        let state = self.0.clone();
        Box::pin(async move {
            state.clone().request(write).await?;
            match durability {
                Durability::Cached => Ok(()),
                Durability::Durable => state.settle().await,
            }
        })
    }
    fn flush(&self) -> LocalFuture<Result<(), DeviceError>> {
        Box::pin(self.0.clone().settle())
    }
    fn discard(&self, at: u64, length: u64) -> LocalFuture<Result<(), DeviceError>> {
        let discard = async move |state: &State| state.drive.discard(at, length).await;
        Box::pin(self.0.clone().request(discard))
    }
}
