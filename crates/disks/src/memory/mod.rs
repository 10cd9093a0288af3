//! A disk in memory for tests: a volatile write cache over durable bytes, latencies that reorder,
//! faults on demand, and a power switch. What a power cut may leave is in `docs/CRASH_MODEL.md`.
//!
//! A write is *in flight* from its start to its completion, then *volatile* in the cache. It is
//! *durable* after a flush that began later has completed, or at once if it was written `Durable`.
//! A lying disk keeps data volatile all the same, until other data replaces it in the cache.

mod cache;
mod fault;
mod image;
mod lying;
mod operations;

pub use cache::Atomicity;
pub use fault::{Effect, Fault, FaultTimes};
pub use image::Image;
pub use lying::{LineReplacement, Lying};

use cache::{Cache, SECTOR};
use device::{Durability, Operation, World};
use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// Duration of an operation: `least` and up to `spread` more, at random.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    pub least: Duration,
    pub spread: Duration,
}

/// Fate of writes that are not durable, in a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPolicy {
    /// Keeps all of them, those in flight included.
    KeepAll,
    /// Loses all of them.
    LoseAll,
    /// Keeps or loses each, torn into units or not, as the seed decides.
    Random { seed: u64, atomicity: Atomicity },
}

/// An operation as recorded at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    pub operation: Operation,
    pub at: u64,
    pub length: u64,
    pub durability: Durability,
}

/// Number of operations started, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStatistics {
    pub reads: u64,
    pub writes: u64,
    pub durable_writes: u64,
    pub flushes: u64,
    pub discards: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

type Hook = Rc<dyn Fn(&MemoryDisk, u64, &Logged)>;

struct State {
    world: Rc<dyn World>,
    name: String,
    size: u64,
    cache: RefCell<Cache>,
    latency: Cell<Latency>,
    forced_unit_access: Cell<bool>,
    physical_sector: Cell<u32>,
    faults: RefCell<Vec<Fault>>,
    statistics: Cell<MemoryStatistics>,
    log: RefCell<Option<Vec<Logged>>>,
    hook: RefCell<Option<Hook>>,
    /// Writes, flushes and discards started so far.
    changes: Cell<u64>,
    cut_at: Cell<Option<u64>>,
    /// Times that single changes take besides, by their numbers; and that of the operation which
    /// starts now.
    delays: RefCell<BTreeMap<u64, Duration>>,
    delay: Cell<Duration>,
    power_is_off: Cell<bool>,
    power_lost: Event,
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone)]
pub struct MemoryDisk(Rc<State>);

impl MemoryDisk {
    /// A disk of zeros; `size` in bytes, a multiple of 512.
    pub fn new(world: Rc<dyn World>, size: u64) -> MemoryDisk {
        MemoryDisk::from_image(world, Image::new(size))
    }

    /// A disk that durably holds `image`, whose size is a multiple of 512.
    pub fn from_image(world: Rc<dyn World>, image: Image) -> MemoryDisk {
        assert!(image.size() % (SECTOR as u64) == 0, "{image:?} does not end with a sector");
        MemoryDisk::with_cache(world, Cache::new(image))
    }

    /// A disk with the bytes of a file, such as one that mke2fs made.
    pub fn read_image(world: Rc<dyn World>, path: &Path) -> io::Result<MemoryDisk> {
        Ok(MemoryDisk::from_image(world, Image::read_file(path)?))
    }

    fn with_cache(world: Rc<dyn World>, cache: Cache) -> MemoryDisk {
        MemoryDisk(Rc::new(State {
            world,
            name: "memory disk".to_owned(),
            size: cache.durable.size(),
            cache: RefCell::new(cache),
            forced_unit_access: Cell::new(true),
            physical_sector: Cell::new(SECTOR as u32),
            latency: Cell::new(Latency {
                least: Duration::from_micros(5),
                spread: Duration::from_micros(50),
            }),
            faults: RefCell::default(),
            statistics: Cell::default(),
            log: RefCell::default(),
            hook: RefCell::default(),
            changes: Cell::new(0),
            cut_at: Cell::new(None),
            delays: RefCell::default(),
            delay: Cell::default(),
            power_is_off: Cell::new(false),
            power_lost: Event::default(),
        }))
    }

    pub fn set_latency(&self, latency: Latency) {
        self.0.latency.set(latency);
    }

    /// Makes write, flush or discard number `change` (from 0) take `delay` longer: others that were
    /// started later complete before it.
    pub fn delay_change(&self, change: u64, delay: Duration) {
        self.0.delays.borrow_mut().insert(change, delay);
    }

    /// Makes the disk report that it has no FUA. Its durable writes are unaffected.
    pub fn hide_forced_unit_access(&self) {
        self.0.forced_unit_access.set(false);
    }

    /// Makes the disk report that it writes `bytes` as one: a power of two.
    pub fn set_physical_sector(&self, bytes: u32) {
        self.0.physical_sector.set(bytes);
    }

    /// Makes the disk acknowledge flushes and durable writes without effect.
    pub fn lie(&self, lying: Lying) {
        self.0.cache.borrow_mut().lie(lying);
    }

    /// Returns all bytes as a read would return them now: volatile writes included, those in flight
    /// excluded.
    pub fn image(&self) -> Image {
        let mut image = self.0.cache.borrow().clone();
        image.forget_in_flight();
        image.crash(Atomicity::Write, &mut |count| count - 1)
    }
    /// Writes [`MemoryDisk::image`] to a sparse file, such as for e2fsck.
    pub fn write_image(&self, path: &Path) -> io::Result<()> {
        self.image().write_file(path)
    }

    /// The content after a power cut at this moment. The disk itself continues.
    pub fn crash(&self, policy: CrashPolicy) -> Image {
        match policy {
            CrashPolicy::KeepAll => self.crash_by(Atomicity::Write, &mut |count| count - 1),
            CrashPolicy::LoseAll => self.crash_by(Atomicity::Write, &mut |_| 0),
            CrashPolicy::Random { seed, atomicity } => {
                let random = runtime::SplitMix::new(seed);
                self.crash_by(atomicity, &mut |count| (random.next() % count as u64) as usize)
            }
        }
    }
    /// Crashes as [`MemoryDisk::crash`] does, where `choose(n)` returns a number below `n` for
    /// every choice of the disk: 0 for the oldest content, `n - 1` for the newest. The same choices
    /// give the same image, so that all images can be visited; their number grows exponentially
    /// with the sectors that are not durable.
    pub fn crash_by(&self, atomicity: Atomicity, choose: &mut dyn FnMut(usize) -> usize) -> Image {
        self.0.cache.borrow().crash(atomicity, choose)
    }

    /// Returns the sectors of each write that is not durable: completed writes in their order, then
    /// those in flight in the order of their start. Sectors that a later durable write replaced do
    /// not count.
    pub fn volatile_writes(&self) -> Vec<usize> {
        self.0.cache.borrow().write_lengths()
    }
    /// Returns what the disk would hold if of each of [`MemoryDisk::volatile_writes`] those sectors
    /// had arrived of which `keeps` says so: number of the write, number of the sector in it.
    pub fn crash_with(&self, keeps: impl Fn(usize, usize) -> bool) -> Image {
        self.0.cache.borrow().crash_with(keeps)
    }

    /// Makes a second disk in the same state, in a world of its own: writes in flight are lost,
    /// faults, hooks and counts are not copied.
    pub fn fork(&self, world: Rc<dyn World>) -> MemoryDisk {
        let mut cache = self.0.cache.borrow().clone();
        cache.forget_in_flight();
        MemoryDisk::with_cache(world, cache)
    }

    /// Cuts the power when write, flush or discard number `count` (from 0) starts. Those before it
    /// proceed. It and everything in flight then never complete.
    pub fn cut_at(&self, count: u64) {
        self.0.cut_at.set(Some(count));
    }
    /// Cuts the power now: no operation completes any more. [`MemoryDisk::crash`] returns the
    /// content left.
    pub fn power_off(&self) {
        self.0.power_is_off.set(true);
        self.0.power_lost.notify();
    }
    pub fn is_off(&self) -> bool {
        self.0.power_is_off.get()
    }
    /// Waits for the power to fail; `runtime::race` a script against it.
    pub async fn power_lost(&self) {
        self.0.power_lost.until(|| self.is_off().then_some(())).await
    }

    /// Makes operations that `fault` describes fail or hang from now on.
    pub fn inject(&self, fault: Fault) {
        self.0.faults.borrow_mut().push(fault);
    }
    pub fn heal(&self) {
        self.0.faults.borrow_mut().clear();
    }

    /// Calls `hook` with its number (from 0) when a write, flush or discard starts, a write already
    /// being in flight. This is the place to take crash images or to cut the power.
    pub fn on_change(&self, hook: impl Fn(&MemoryDisk, u64, &Logged) + 'static) {
        *self.0.hook.borrow_mut() = Some(Rc::new(hook));
    }
    /// Ends [`MemoryDisk::on_change`]: a hook that holds this disk would keep it for ever.
    pub fn stop_watching(&self) {
        *self.0.hook.borrow_mut() = None;
    }
    /// Writes, flushes and discards started so far.
    pub fn changes(&self) -> u64 {
        self.0.changes.get()
    }
    pub fn statistics(&self) -> MemoryStatistics {
        self.0.statistics.get()
    }
    /// Keeps a log of all operations from now on.
    pub fn record(&self) {
        *self.0.log.borrow_mut() = Some(Vec::new());
    }
    /// Takes the log since [`MemoryDisk::record`], or since the last call.
    pub fn take_log(&self) -> Vec<Logged> {
        self.0.log.borrow_mut().as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl Logged {
    fn new(operation: Operation, at: u64, length: u64) -> Logged {
        Logged { operation, at, length, durability: Durability::Cached }
    }
}

impl MemoryStatistics {
    fn add(&mut self, logged: &Logged) {
        match logged.operation {
            Operation::Read => {
                self.reads += 1;
                self.bytes_read += logged.length;
            }
            Operation::Write => {
                self.writes += 1;
                self.durable_writes += u64::from(logged.durability == Durability::Durable);
                self.bytes_written += logged.length;
            }
            Operation::Flush => self.flushes += 1,
            Operation::Discard => self.discards += 1,
        }
    }
}
