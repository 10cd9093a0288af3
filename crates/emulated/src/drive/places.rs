//! Writes without an address until they are served. Their owner then decides it, and gets the
//! position of the head.

use super::EmulatedDisk;
use super::content::Piece;
use crate::SECTOR;
use crate::medium::Medium;
use crate::run::Direction;
use device::Buffer;
use std::ops::Range;
use std::rc::Rc;

/// Owner of a write without an address.
pub(crate) trait Places {
    /// The first sector of its address if it were served now.
    fn propose(&self, head: &Head<'_>) -> u64;
    /// Assigns the address when it is served. Returns its sectors: fewer than the content if there
    /// is no contiguous space for all of it.
    fn take(&self, head: &Head<'_>) -> Range<u64>;
}

/// Arm and platter when the next transfer may start.
pub(crate) struct Head<'a> {
    medium: &'a Medium,
    disk: &'a EmulatedDisk,
    /// Time in nanoseconds of the world.
    now: u64,
}

impl<'a> Head<'a> {
    pub fn cylinder(&self) -> u32 {
        self.medium.cylinder()
    }
    /// Time until a write of this sector begins: overhead, seek, settling, and rotation.
    pub fn positioning_ns(&self, sector: u64) -> u64 {
        let is_known = self.disk.ended_at(self.now);
        let overhead = self.disk.overhead(self.now, is_known, Direction::Write, sector);
        overhead + self.medium.positioning_ns(self.now + overhead, Direction::Write, sector)
    }
    /// Lower bound on the time of a write at a distance of `cylinders`.
    pub fn seek_ns(&self, cylinders: u32) -> u64 {
        self.medium.seek_ns(cylinders)
    }
}

impl EmulatedDisk {
    /// The position of the head for a write that is to get its address now.
    pub(super) fn head<'a>(&'a self, medium: &'a Medium, now: u64) -> Head<'a> {
        Head { medium, disk: self, now }
    }

    /// Writes to the address that `places` assigns when the medium serves it. The drive's write
    /// cache is not used.
    pub(crate) async fn write_when_served(&self, content: Rc<Buffer>, places: Rc<dyn Places>) {
        self.arrive().await;
        self.0.is_reading.set(false);
        let bytes = content.len() as u64;
        self.count(|statistics| {
            statistics.writes += 1;
            statistics.bytes_written += bytes;
        });
        let queued = Queued {
            direction: Direction::Write,
            sectors: 0..bytes / SECTOR,
            places: Some(places),
        };
        self.through_medium(queued, &[content], false).await;
    }
}

/// A request of the host to the medium. A write with `places` has sectors that count from 0.
pub(super) struct Queued {
    pub direction: Direction,
    pub sectors: Range<u64>,
    pub places: Option<Rc<dyn Places>>,
}

impl Queued {
    pub fn at(direction: Direction, sectors: Range<u64>) -> Queued {
        Queued { direction, sectors, places: None }
    }
}

/// The content of a write that has got its address.
pub(super) fn placed(pieces: Vec<Piece>, at: &Range<u64>) -> Vec<Piece> {
    let count = at.end - at.start;
    pieces
        .iter()
        .filter_map(|piece| piece.within(&(0..count)))
        .map(|piece| piece.moved(at.start))
        .collect()
}
