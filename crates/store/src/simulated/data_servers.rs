//! Data servers: each with a journal, and perhaps a file system of its own behind it, as Ceph's
//! FileStore had.
//!
//! What waits for a journal goes there in one write. With a second disk the content is brought to
//! its place later, every few seconds, each block once. That disk's own time is what repeated
//! writes cost.

use super::link::Link;
use crate::attributes::FileId;
use device::{Buffer, Disk, Durability, World};
use runtime::join_window;
use runtime::sync::RwLock;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// A file's content lies in pieces of this size, as Ceph's objects do.
pub(super) const OBJECT_BYTES: u64 = 4 << 20;
const SECTOR: u64 = 4096;
/// A run of blocks on its way home is written at once up to this length.
const RUN_BLOCKS_MAX: usize = 128;
const WRITES_AT_ONCE: usize = 32;

/// The two disks of one data server, and how often content goes to its place.
#[derive(Clone)]
pub struct ServerDisks {
    pub journal: Rc<dyn Disk>,
    pub home: Rc<dyn Disk>,
    pub home_every: Duration,
}

pub(super) struct DataServer {
    journal: Rc<dyn Disk>,
    /// Where its journal goes on.
    at: Cell<u64>,
    /// One write of its journal at a time.
    turn: Rc<RwLock>,
    waiting_bytes: Cell<u64>,
    /// Of the journal's writes: the one that takes all that waits, and the last that is done.
    next_write: Cell<u64>,
    last_write: Cell<u64>,
    home: Option<Home>,
    /// What it sends to the others.
    pub link: Link,
}

struct Home {
    disk: Rc<dyn Disk>,
    /// Where each block of each file lies; the last numbers are those of objects' own blocks.
    places: RefCell<BTreeMap<(FileId, u64), u64>>,
    dirty: RefCell<BTreeSet<u64>>,
}

impl DataServer {
    pub fn new(journal: Rc<dyn Disk>) -> DataServer {
        DataServer {
            journal,
            at: Cell::new(0),
            turn: Rc::default(),
            waiting_bytes: Cell::new(0),
            next_write: Cell::new(1),
            last_write: Cell::new(0),
            home: None,
            link: Link::default(),
        }
    }
    pub fn with_home(disks: &ServerDisks) -> DataServer {
        let home = Home {
            disk: disks.home.clone(),
            places: RefCell::default(),
            dirty: RefCell::default(),
        };
        DataServer { home: Some(home), ..DataServer::new(disks.journal.clone()) }
    }

    /// Durable in the journal when it returns. Whether it wrote for itself, and all that waited.
    pub async fn journal(&self, bytes: u64) -> bool {
        self.waiting_bytes.set(self.waiting_bytes.get() + bytes + SECTOR);
        let mine = self.next_write.get();
        let _turn = self.turn.write().await;
        if self.last_write.get() >= mine {
            return false;
        }
        self.next_write.set(self.next_write.get() + 1);
        let size = self.journal.geometry().size;
        let length = self.waiting_bytes.take().next_multiple_of(SECTOR).min(size);
        if self.at.get() + length > size {
            self.at.set(0);
        }
        let parts = vec![Rc::new(Buffer::zeroed(length as usize))];
        // A data server whose disk fails is not played.
        let _ = self.journal.write(self.at.get(), parts, Durability::Durable).await;
        self.at.set(self.at.get() + length);
        self.last_write.set(self.next_write.get() - 1);
        true
    }

    /// The content belongs to these places.
    pub fn note_dirty(&self, file: FileId, at: u64, bytes: u64) {
        let Some(home) = &self.home else { return };
        for block in at / SECTOR..(at + bytes).div_ceil(SECTOR) {
            home.note_dirty((file, block));
        }
        home.note_dirty((file, u64::MAX - at / OBJECT_BYTES));
    }

    /// A block that no cache has.
    pub async fn read(&self, file: FileId, at: u64) {
        if let Some(home) = &self.home {
            let place = home.place((file, at / SECTOR));
            let _ = home.disk.read(place * SECTOR, SECTOR as usize).await;
        }
    }

    /// Runs as long as the world.
    pub async fn bring_home(&self, world: Rc<dyn World>, every: Duration) {
        loop {
            world.sleep_until(world.now().plus(every)).await;
            if let Some(home) = &self.home {
                home.write_dirty().await;
            }
        }
    }
}

impl Home {
    fn place(&self, block: (FileId, u64)) -> u64 {
        let mut places = self.places.borrow_mut();
        let next = places.len() as u64 % (self.disk.geometry().size / SECTOR);
        *places.entry(block).or_insert(next)
    }
    fn note_dirty(&self, block: (FileId, u64)) {
        let place = self.place(block);
        self.dirty.borrow_mut().insert(place);
    }
    async fn write_dirty(&self) {
        let mut runs: Vec<(u64, usize)> = Vec::new();
        for place in self.dirty.take() {
            match runs.last_mut() {
                Some((start, count))
                    if *start + *count as u64 == place && *count < RUN_BLOCKS_MAX =>
                {
                    *count += 1
                }
                _ => runs.push((place, 1)),
            }
        }
        if runs.is_empty() {
            return;
        }
        let writes = runs.into_iter().map(|(start, count)| -> Pin<Box<dyn Future<Output = _>>> {
            let parts = vec![Rc::new(Buffer::zeroed(count * SECTOR as usize))];
            self.disk.write(start * SECTOR, parts, Durability::Cached)
        });
        let _ = join_window(writes.collect::<Vec<_>>(), WRITES_AT_ONCE).await;
        let _ = self.disk.flush().await;
    }
}
