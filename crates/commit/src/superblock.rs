//! The journal superblock: what the disk has of it, and what is in flight there.
//!
//! Invariants
//! 1. What is held is what the disk has. A change is put here when it has been written, because an
//!    abort writes this once more. The first that says where the log begins is the exception: the
//!    plan that it goes with fails with it.
//! 2. Before the log has begun the superblock on disk says that it is empty.

use device::Buffer;
use format::jbd2::JournalSuperblock;
use journal::{SuperblockImage, records};
use runtime::sync::Event;
use std::rc::Rc;
use units::{LogBlock, TransactionId};

/// `EIO`, as the journal superblock records it after an abort.
const ERRNO_IO: i32 = -5;
/// `EFSCORRUPTED`, as the journal superblock records it where damage was found, or where recovery
/// left out what was committed. A journal without an error records 0.
pub const ERRNO_DAMAGED: i32 = -117;

pub struct LogSuperblock {
    on_disk: JournalSuperblock,
    /// Address of the superblock, in log blocks.
    at: LogBlock,
    has_begun: bool,
    /// Notified when a superblock in flight has arrived.
    arrival: Rc<Event>,
}

/// A new version of the superblock, in flight to the disk.
pub struct SuperblockChange {
    at: LogBlock,
    superblock: Box<JournalSuperblock>,
}

impl SuperblockChange {
    pub fn image(&self) -> SuperblockImage {
        SuperblockImage { at: self.at, image: image_of(&self.superblock) }
    }
}

impl LogSuperblock {
    /// Creates the state of the superblock in `block` of the journal.
    pub fn new(on_disk: JournalSuperblock, block: LogBlock, has_begun: bool) -> LogSuperblock {
        let at = LogBlock(block.get() * on_disk.log_blocks_per_block());
        LogSuperblock { on_disk, at, has_begun, arrival: Rc::default() }
    }
    pub fn on_disk(&self) -> &JournalSuperblock {
        &self.on_disk
    }
    /// Returns whether the superblock says where the log begins.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Begins the log: from now on the superblock says where it begins, as `change` sets it.
    pub fn begin(&mut self, change: impl FnOnce(&mut JournalSuperblock)) -> SuperblockImage {
        self.has_begun = true;
        change(&mut self.on_disk);
        self.image(&self.on_disk)
    }
    /// Marks the log empty: all up to `last` is home.
    pub fn end(&mut self, last: TransactionId) {
        self.has_begun = false;
        self.on_disk.set_tail(last, LogBlock(0));
        self.on_disk.name_snapshot(None);
    }
    pub fn change(&self, superblock: JournalSuperblock) -> SuperblockChange {
        SuperblockChange { at: self.at, superblock: Box::new(superblock) }
    }
    /// Notes that `change` is on disk.
    pub fn arrived(&mut self, change: SuperblockChange) {
        self.on_disk = *change.superblock;
        self.arrival.notify();
    }
    /// Rings when one has arrived.
    pub fn arrival(&self) -> Rc<Event> {
        self.arrival.clone()
    }
    /// Wakes tasks that wait for an arrival, when none will come any more.
    pub fn wake(&self) {
        self.arrival.notify();
    }

    /// Returns the superblock of an empty log, with or without `checksums`; `None` if it already
    /// says so. All up to `last` is home.
    pub fn emptied(&self, last: TransactionId, checksums: bool) -> Option<SuperblockImage> {
        let mut superblock = self.on_disk.clone();
        superblock.set_clean(last);
        records::clear(&mut superblock, checksums);
        self.has_begun.then(|| self.image(&superblock))
    }
    /// Returns the superblock with the reason why the journal failed, so that e2fsck checks
    /// thoroughly.
    pub fn with_failure(&self, is_damaged: bool, checksums: bool) -> SuperblockImage {
        let mut superblock = self.on_disk.clone();
        // What a recovery left out stays left out.
        let was_damaged = superblock.errno == ERRNO_DAMAGED;
        let is_damaged = is_damaged && !units::fault!("damage-recorded-as-io");
        superblock.errno = if was_damaged || is_damaged { ERRNO_DAMAGED } else { ERRNO_IO };
        if !self.has_begun {
            // The log is empty, and not yet of any format.
            records::clear(&mut superblock, checksums);
        }
        self.image(&superblock)
    }
    fn image(&self, superblock: &JournalSuperblock) -> SuperblockImage {
        SuperblockImage { at: self.at, image: image_of(superblock) }
    }
}

/// The block that holds `superblock`.
pub fn image_of(superblock: &JournalSuperblock) -> Rc<Buffer> {
    Rc::new(Buffer::copy_of(&superblock.serialize()))
}
