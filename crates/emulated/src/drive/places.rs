//! Writes that have no place until their turn comes. Whoever made them says then where they go, and
//! the drive tells where its head is.

use super::EmulatedDisk;
use super::content::Piece;
use crate::SECTOR;
use crate::medium::Medium;
use crate::run::Direction;
use device::Buffer;
use std::ops::Range;
use std::rc::Rc;

/// Where a write without a place may go.
pub(crate) trait Places {
    /// The first sector of where it would go if it were its turn.
    fn propose(&self, head: &Head<'_>) -> u64;
    /// It is its turn. The sectors that it takes: fewer than its content if there is no room for
    /// all in one place.
    fn take(&self, head: &Head<'_>) -> Range<u64>;
}

/// Arm and platter when the next transfer may set out.
pub(crate) struct Head<'a> {
    medium: &'a Medium,
    disk: &'a EmulatedDisk,
    /// Nanoseconds of the world.
    now: u64,
}

impl<'a> Head<'a> {
    pub fn cylinder(&self) -> u32 {
        self.medium.cylinder()
    }
    /// Until a write of this sector begins: overhead, seek, settling, and rotation.
    pub fn positioning_ns(&self, sector: u64) -> u64 {
        let is_known = self.disk.ended_at(self.now);
        let overhead = self.disk.overhead(self.now, is_known, Direction::Write, sector);
        overhead + self.medium.positioning_ns(self.now + overhead, Direction::Write, sector)
    }
    /// Less than this no write takes that is so many cylinders away.
    pub fn seek_ns(&self, cylinders: u32) -> u64 {
        self.medium.seek_ns(cylinders)
    }
}

impl EmulatedDisk {
    /// What a write that is to get its place now may know.
    pub(super) fn head<'a>(&'a self, medium: &'a Medium, now: u64) -> Head<'a> {
        Head { medium, disk: self, now }
    }

    /// Writes where `places` says when the medium comes to it. The drive's write cache takes no
    /// part.
    pub(crate) async fn write_at_its_turn(&self, content: Rc<Buffer>, places: Rc<dyn Places>) {
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

/// What the host wants of the medium. A write with `places` has sectors that count from 0.
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

/// The content of a write that has got its place.
pub(super) fn placed(pieces: Vec<Piece>, at: &Range<u64>) -> Vec<Piece> {
    let count = at.end - at.start;
    pieces
        .iter()
        .filter_map(|piece| piece.within(&(0..count)))
        .map(|piece| piece.moved(at.start))
        .collect()
}
