//! One drive of a model: a queue before a medium, a cache beside it, and the bytes.

mod cache;
mod choose;
mod clean;
mod content;
mod crash;
mod operations;
mod places;
mod read_ahead;
mod service;

pub use crash::CrashImage;
pub(crate) use places::{Head, Places};

use crate::SECTOR;
use crate::mechanics::Travelled;
use crate::medium::{Medium, moving_ns};
use crate::model::{Model, ReadHit, WriteHit};
use crate::run::Direction;
use cache::Cache;
use content::{Order, Piece};
use device::World;
use disks::Image;
use read_ahead::ReadAhead;
use runtime::Sender;
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use units::Instant;

/// Whether writes are answered before they reach the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheMode {
    On,
    Off,
}

/// Dishonest behaviour of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lies {
    /// Answers a flush at once and takes a FUA write for a cached one.
    pub ignores_flush: bool,
    /// Continues caching when the cache is switched off.
    pub ignores_cache_off: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct DriveOptions {
    pub cache: CacheMode,
    pub lies: Lies,
    /// Size in bytes, a multiple of 512, at most the model's size, which is the default.
    pub size: Option<u64>,
}

impl Default for DriveOptions {
    fn default() -> DriveOptions {
        DriveOptions { cache: CacheMode::On, lies: Lies::default(), size: None }
    }
}

/// Counts since the drive was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DriveStatistics {
    /// Requests of the host.
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    /// Reads answered by the cache, read-ahead included.
    pub read_hits: u64,
    /// Writes answered by the cache.
    pub cached_writes: u64,
    /// Cached segments written to the medium.
    pub destages: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Moves of the arm to another cylinder, and the cylinders crossed.
    pub seeks: u64,
    pub cylinders_crossed: u64,
}

/// An emulated drive. Clones are the same drive.
#[derive(Clone)]
pub struct EmulatedDisk(Rc<State>);

struct State {
    world: Rc<dyn World>,
    model: Model,
    lies: Lies,
    size: u64,
    caching: Cell<bool>,
    medium: RefCell<Medium>,
    /// Content of the medium.
    image: RefCell<Image>,
    /// Whether the medium stores no new content.
    forgets: Cell<bool>,
    unreadable: RefCell<BTreeSet<u64>>,
    cache: RefCell<Cache>,
    read_ahead: RefCell<Option<ReadAhead>>,
    /// Requests that need the medium, in the order of arrival.
    queue: RefCell<VecDeque<Waiting>>,
    /// Requests that the medium works on.
    in_service: RefCell<Vec<Service>>,
    orders: Cell<Order>,
    /// Flushes that wait for all writes up to an order, which rises.
    flushes: RefCell<VecDeque<(Order, Sender<()>)>>,
    /// Cached writes that wait for space, in the order of arrival.
    writers: RefCell<VecDeque<Writer>>,
    /// Order from which on the first of them waits for the space of a dirty segment, if it does.
    wants_dirty_since: Cell<Option<Order>>,
    last_request: Cell<Instant>,
    destage_timer: Cell<bool>,
    read_ahead_timer: Cell<bool>,
    /// Whether the last request was a read.
    is_reading: Cell<bool>,
    /// Whether the last read came right after a write.
    after_write: Cell<bool>,
    /// End of the last read of the host, and whether it continued the read before.
    last_read_end: Cell<u64>,
    read_continues: Cell<bool>,
    upwards: Cell<bool>,
    /// Choices since the oldest request was served for its age.
    choices_since_oldest: Cell<u32>,
    /// End of the last transfer, for the elevator.
    position: Cell<u64>,
    /// Time of that end: nanoseconds of the world and fractions.
    ended: Cell<f64>,
    /// Whether it was a read.
    ended_reading: Cell<bool>,
    /// End of the last write of the host, for streams that bypass the cache.
    last_write_end: Cell<u64>,
    off_at: Cell<Option<Instant>>,
    statistics: Cell<DriveStatistics>,
}

struct Waiting {
    order: Order,
    direction: Direction,
    sectors: Range<u64>,
    pieces: Vec<Piece>,
    /// Given the time when the host has it, when the medium is done; `None` for a destage.
    done: Option<Sender<Instant>>,
    /// Whether it stays in the cache's segments.
    keep: bool,
    /// Decides where a write goes when it is served; its sectors count from 0 until then.
    places: Option<Rc<dyn Places>>,
}

struct Writer {
    sectors: Range<u64>,
    pieces: Vec<Piece>,
    way: Way,
    done: Sender<()>,
}

/// Place of a write before it reaches the medium.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Segments,
    StreamBuffer,
}

struct Service {
    order: Order,
    direction: Direction,
    sectors: Range<u64>,
    pieces: Vec<Piece>,
    runs: Vec<crate::run::Run>,
    /// Time when the host has what is read.
    sent: Instant,
    destages: bool,
    done: Option<Sender<Instant>>,
    keep: bool,
}

impl EmulatedDisk {
    /// A drive of zeros.
    pub fn new(world: Rc<dyn World>, model: Model, options: DriveOptions) -> EmulatedDisk {
        let size = options.size.unwrap_or(model.size.get());
        EmulatedDisk::with_image(world, model, options, Image::new(size))
    }

    /// A drive that durably holds `image`, such as one that mke2fs wrote; its size is that of the
    /// image.
    pub fn with_image(
        world: Rc<dyn World>,
        model: Model,
        options: DriveOptions,
        image: Image,
    ) -> EmulatedDisk {
        EmulatedDisk::after_crash(world, model, options, CrashImage::whole(image))
    }

    /// A drive that durably holds `left`; its size is that of the image.
    pub fn after_crash(
        world: Rc<dyn World>,
        model: Model,
        options: DriveOptions,
        left: CrashImage,
    ) -> EmulatedDisk {
        let size = left.image.size();
        assert!(size % SECTOR == 0 && size <= model.size.get(), "{size} bytes on {}", model.name);
        let caching = options.cache == CacheMode::On || options.lies.ignores_cache_off;
        let unit = model.cache.as_ref().map_or(SECTOR, |cache| cache.unit.get().into());
        EmulatedDisk(Rc::new(State {
            world,
            lies: options.lies,
            size,
            caching: Cell::new(caching && model.cache.is_some()),
            medium: RefCell::new(Medium::new(&model)),
            image: RefCell::new(left.image),
            forgets: Cell::new(false),
            unreadable: RefCell::new(left.unreadable),
            cache: RefCell::new(Cache::new(unit / SECTOR)),
            read_ahead: RefCell::default(),
            queue: RefCell::default(),
            in_service: RefCell::default(),
            orders: Cell::new(0),
            flushes: RefCell::default(),
            writers: RefCell::default(),
            wants_dirty_since: Cell::default(),
            last_request: Cell::default(),
            destage_timer: Cell::new(false),
            read_ahead_timer: Cell::new(false),
            is_reading: Cell::new(false),
            after_write: Cell::new(false),
            last_read_end: Cell::new(u64::MAX),
            read_continues: Cell::new(false),
            upwards: Cell::new(true),
            choices_since_oldest: Cell::new(0),
            position: Cell::new(0),
            ended: Cell::new(0.0),
            ended_reading: Cell::new(false),
            last_write_end: Cell::new(u64::MAX),
            off_at: Cell::new(None),
            statistics: Cell::default(),
            model,
        }))
    }

    pub fn model(&self) -> &Model {
        &self.0.model
    }
    pub fn statistics(&self) -> DriveStatistics {
        let Travelled { seeks, cylinders } = self.0.medium.borrow().travelled();
        DriveStatistics { seeks, cylinders_crossed: cylinders, ..self.0.statistics.get() }
    }
    /// Sets the time that the head needs to find its track between the last surface and the others.
    pub(crate) fn align_last_surface(&self, time: Duration) {
        if let Medium::Platters(arm) = &mut *self.0.medium.borrow_mut() {
            arm.align_last_surface(time.as_nanos() as f64);
        }
    }
    /// Stops storing content: later writes cost their time and no memory. Used where only times
    /// matter.
    pub fn forget_content(&self) {
        self.0.forgets.set(true);
    }
    /// Switches the write cache; cached content goes to the medium soon when it is switched off.
    pub fn set_cache(&self, mode: CacheMode) {
        let caching = mode == CacheMode::On || self.0.lies.ignores_cache_off;
        self.0.caching.set(caching && self.0.model.cache.is_some());
        self.pump();
    }

    fn now(&self) -> u64 {
        self.0.world.now().0
    }
    fn next_order(&self) -> Order {
        self.0.orders.set(self.0.orders.get() + 1);
        self.0.orders.get()
    }
    fn count(&self, change: impl FnOnce(&mut DriveStatistics)) {
        let mut statistics = self.0.statistics.get();
        change(&mut statistics);
        self.0.statistics.set(statistics);
    }
    /// Time of a flush or of a discard, beyond what it waits for.
    fn hit_time(&self) -> Duration {
        duration_of(self.0.model.interface.hit_ms.get())
    }
    /// Time of a read that needs no medium.
    fn read_hit_time(&self, bytes: u64, hit: ReadHit) -> Duration {
        let interface = &self.0.model.interface;
        let ms = interface.overheads.read_hit_ms(interface.hit_ms.get(), hit);
        self.bus_time(bytes) + duration_of(ms) + self.hit_delay()
    }
    /// Time of a write that needs no medium, beyond that of the bus.
    fn write_hit_time(&self, hit: WriteHit) -> Duration {
        let interface = &self.0.model.interface;
        duration_of(interface.overheads.write_hit_ms(interface.hit_ms.get(), hit))
            + self.hit_delay()
    }
    /// Further time of some hits.
    fn hit_delay(&self) -> Duration {
        duration_of(self.0.model.interface.overheads.delay_ms(|| self.0.world.random()))
    }
    fn bus_time(&self, bytes: u64) -> Duration {
        Duration::from_nanos(moving_ns(bytes, self.0.model.interface.bus_mb_s.get()) as u64)
    }
    async fn sleep(&self, time: Duration) {
        self.0.world.sleep_until(self.0.world.now().plus(time)).await;
        self.hang_if_off().await;
    }
}

fn duration_of(ms: f64) -> Duration {
    Duration::from_nanos((ms * 1e6) as u64)
}
