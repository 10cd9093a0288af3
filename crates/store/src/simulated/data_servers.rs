//! Data servers: each with a journal, and perhaps a file system of its own behind it, as Ceph's
//! FileStore had.
//!
//! Writes that wait for a journal are written together. With a second disk the content is written
//! back every few seconds, each block once. That disk's own time is the cost of repeated writes.

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
/// Adjacent blocks are written back together up to this length.
const RUN_BLOCKS_MAX: usize = 128;
const WRITES_AT_ONCE: usize = 32;

/// The two disks of one data server, and the interval of its write-back.
#[derive(Clone)]
pub struct ServerDisks {
    pub journal: Rc<dyn Disk>,
    pub home: Rc<dyn Disk>,
    pub home_every: Duration,
}

pub(super) struct DataServer {
    journal: Rc<dyn Disk>,
    /// Position at which its journal continues.
    at: Cell<u64>,
    /// Lock held for each write of its journal.
    journal_lock: Rc<RwLock>,
    waiting_bytes: Cell<u64>,
    /// The journal write that takes everything that waits, and the last that is done.
    next_write: Cell<u64>,
    last_write: Cell<u64>,
    home: Option<Home>,
    /// The link on which it sends to other data servers.
    pub link: Link,
}

struct Home {
    disk: Rc<dyn Disk>,
    /// The position of each block of each file; the last numbers are those of objects' own blocks.
    places: RefCell<BTreeMap<(FileId, u64), u64>>,
    dirty: RefCell<BTreeSet<u64>>,
}

impl DataServer {
    pub fn new(journal: Rc<dyn Disk>) -> DataServer {
        DataServer {
            journal,
            at: Cell::new(0),
            journal_lock: Rc::default(),
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

    /// Journals content; durable when this returns. Returns whether this call wrote, for itself and
    /// all that waited.
    pub async fn journal(&self, bytes: u64) -> bool {
        self.waiting_bytes.set(self.waiting_bytes.get() + bytes + SECTOR);
        let mine = self.next_write.get();
        let _guard = self.journal_lock.write().await;
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
        // Failures of a data server's disk are not simulated.
        let _ = self.journal.write(self.at.get(), parts, Durability::Durable).await;
        self.at.set(self.at.get() + length);
        self.last_write.set(self.next_write.get() - 1);
        true
    }

    /// Marks the content's blocks as dirty.
    pub fn note_dirty(&self, file: FileId, at: u64, bytes: u64) {
        let Some(home) = &self.home else { return };
        for block in at / SECTOR..(at + bytes).div_ceil(SECTOR) {
            home.note_dirty((file, block));
        }
        home.note_dirty((file, u64::MAX - at / OBJECT_BYTES));
    }

    /// Reads a block that no cache has.
    pub async fn read(&self, file: FileId, at: u64) {
        if let Some(home) = &self.home {
            let place = home.place((file, at / SECTOR));
            let _ = home.disk.read(place * SECTOR, SECTOR as usize).await;
        }
    }

    /// Writes back dirty blocks, as long as the world runs.
    pub async fn write_back(&self, world: Rc<dyn World>, every: Duration) {
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
