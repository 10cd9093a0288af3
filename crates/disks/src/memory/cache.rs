//! The volatile cache of a memory disk, and the images that a power cut may leave
//! (`docs/CRASH_MODEL.md`).

use super::Image;
use super::lying::{LINE, Lines, Lying};
use device::Buffer;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Bytes of a sector, which a disk writes whole or not at all.
pub const SECTOR: usize = 512;
const LINE_SECTORS: u64 = LINE / SECTOR as u64;

/// The new bytes of one sector: a buffer and an offset in it.
#[derive(Clone)]
struct Content(Rc<Buffer>, usize);

impl Content {
    fn bytes(&self) -> &[u8] {
        &self.0[self.1..self.1 + SECTOR]
    }
}

/// Position of a write in the order of completion.
type Order = u64;

/// Part of a write that the disk applies whole or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomicity {
    /// The whole write, of any length: kinder than real disks; used to isolate the effects of
    /// tearing.
    Write,
    /// Aligned units of this many bytes, a multiple of 512: 512 is the strictest disk, 4096 a "4Kn"
    /// one.
    Unit(u32),
}

/// Content of the disk: durable, in its cache only, and in flight.
#[derive(Clone)]
pub(super) struct Cache {
    pub durable: Image,
    /// Completed writes of each sector, oldest first.
    volatile: BTreeMap<u64, Vec<(Order, Content)>>,
    /// Writes that were started and are not completed.
    in_flight: BTreeMap<u64, Vec<(u64, Content)>>,
    started: u64,
    completed: Order,
    /// Lines of a disk that ignores flushes.
    lying: Option<Lines>,
}

/// A write between its start and its completion.
#[derive(Clone, Copy)]
pub(super) struct Started(u64);

/// Mark of all writes completed before a flush began.
#[derive(Clone, Copy)]
pub(super) struct Mark(Order);

impl Cache {
    pub fn new(durable: Image) -> Cache {
        let (volatile, in_flight) = (BTreeMap::new(), BTreeMap::new());
        Cache { durable, volatile, in_flight, started: 0, completed: 0, lying: None }
    }

    /// Makes the disk acknowledge flushes and durable writes without effect.
    pub fn lie(&mut self, lying: Lying) {
        self.lying = Some(Lines::new(lying));
    }
    pub fn lies(&self) -> bool {
        self.lying.is_some()
    }
    /// Whether a lying disk reads the range without its medium.
    pub fn holds(&self, at: u64, length: u64) -> bool {
        let mut sectors = at / SECTOR as u64..(at + length) / SECTOR as u64;
        sectors.all(|sector| self.volatile.contains_key(&sector))
    }

    /// Starts a write. `at` is a multiple of 512, as are the lengths of all buffers.
    pub fn start(&mut self, at: u64, parts: &[Rc<Buffer>]) -> Started {
        let contents = parts.iter().flat_map(|part| {
            (0..part.len()).step_by(SECTOR).map(|offset| Content(part.clone(), offset))
        });
        self.started += 1;
        self.in_flight.insert(self.started, (at / SECTOR as u64..).zip(contents).collect());
        Started(self.started)
    }

    /// Moves the write to the cache. Returns the number of lines that a lying disk wrote to the
    /// medium for it.
    pub fn complete(&mut self, write: Started) -> u32 {
        self.complete_some(write, |_| true)
    }

    /// Completes a failed write: only sectors for which `reached` returns true get the new content.
    pub fn complete_some(
        &mut self,
        Started(write): Started,
        mut reached: impl FnMut(u64) -> bool,
    ) -> u32 {
        self.completed += 1;
        let mut destaged = 0;
        for (sector, content) in self.in_flight.remove(&write).into_iter().flatten() {
            if reached(sector) {
                let victim =
                    self.lying.as_mut().and_then(|lines| lines.write(sector / LINE_SECTORS));
                if let Some(victim) = victim {
                    self.destage(victim);
                    destaged += 1;
                }
                self.volatile.entry(sector).or_default().push((self.completed, content));
            }
        }
        destaged
    }

    /// Moves the newest content of a line to the medium.
    fn destage(&mut self, line: u64) {
        for sector in line * LINE_SECTORS..(line + 1) * LINE_SECTORS {
            if let Some((_, content)) =
                self.volatile.remove(&sector).into_iter().flatten().next_back()
            {
                self.durable.write(sector * SECTOR as u64, content.bytes());
            }
        }
    }

    /// Makes the write durable. Older content of its sectors can never come back; other sectors are
    /// unaffected.
    pub fn complete_durable(&mut self, Started(write): Started) {
        self.completed += 1;
        for (sector, content) in self.in_flight.remove(&write).into_iter().flatten() {
            self.volatile.remove(&sector);
            self.durable.write(sector * SECTOR as u64, content.bytes());
        }
    }

    pub fn start_flush(&self) -> Mark {
        Mark(self.completed)
    }

    /// Makes the writes before the flush durable; later writes of the same sectors stay volatile.
    pub fn complete_flush(&mut self, Mark(mark): Mark) {
        if self.lies() {
            return;
        }
        let Cache { durable, volatile, .. } = self;
        volatile.retain(|sector, contents| {
            let covered = contents.partition_point(|(order, _)| *order <= mark);
            if let Some((_, content)) = contents.drain(..covered).next_back() {
                durable.write(sector * SECTOR as u64, content.bytes());
            }
            !contents.is_empty()
        });
    }

    /// Fails a flush: each sector that it covers may be lost, and no later flush brings it back.
    pub fn fail_flush(&mut self, Mark(mark): Mark, mut lost: impl FnMut() -> bool) {
        self.volatile.retain(|_, contents| {
            if lost() {
                contents.retain(|(order, _)| *order > mark);
            }
            !contents.is_empty()
        });
    }

    /// Makes the range worthless; reads return 0xDD, so that no caller relies on the old content.
    pub fn discard(&mut self, at: u64, length: u64) {
        let sectors = at / SECTOR as u64..(at + length) / SECTOR as u64;
        let gone: Vec<u64> = self.volatile.range(sectors).map(|(sector, _)| *sector).collect();
        for sector in gone {
            self.volatile.remove(&sector);
        }
        self.durable.fill(at, length, 0xdd);
    }

    /// Reads as the disk does now: completed writes included.
    pub fn read(&mut self, at: u64, length: usize) -> Buffer {
        let mut buffer = self.durable.copy(at, length);
        let first = at / SECTOR as u64;
        for (sector, contents) in self.volatile.range(first..first + (length / SECTOR) as u64) {
            if let Some((_, content)) = contents.last() {
                let start = (sector - first) as usize * SECTOR;
                buffer[start..start + SECTOR].copy_from_slice(content.bytes());
            }
            if let Some(lines) = &mut self.lying {
                lines.read(sector / LINE_SECTORS);
            }
        }
        buffer
    }

    pub fn forget_in_flight(&mut self) {
        self.in_flight.clear();
    }

    /// Returns the content after a power cut at this moment. `choose(n)` decides, in a
    /// deterministic order. It returns a number below `n`, where 0 keeps the old content and `n -
    /// 1` the newest.
    ///
    /// With units: for each unit touched, how many of its completed writes had reached the medium;
    /// then for each write in flight, whether it did. Completed writes of a unit reach it in order,
    /// since the cache of a disk holds only the newest. For single sectors these are all outcomes
    /// of applying and dropping in any order.
    pub fn crash(&self, atomicity: Atomicity, choose: &mut dyn FnMut(usize) -> usize) -> Image {
        let mut image = self.durable.clone();
        match atomicity {
            Atomicity::Write => {
                for write in self.writes() {
                    if choose(2) == 1 {
                        write.into_iter().for_each(|piece| apply(&mut image, piece));
                    }
                }
            }
            Atomicity::Unit(size) => {
                let size = u64::from(size) / SECTOR as u64;
                assert!(size > 0, "a unit is at least a sector");
                let mut units: BTreeMap<u64, Unit> = BTreeMap::new();
                for (sector, contents) in &self.volatile {
                    let unit = units.entry(sector / size).or_default();
                    for (order, content) in contents {
                        unit.completed.entry(*order).or_default().push((*sector, content));
                    }
                }
                for (write, pieces) in &self.in_flight {
                    for (sector, content) in pieces {
                        let unit = units.entry(sector / size).or_default();
                        unit.in_flight.entry(*write).or_default().push((*sector, content));
                    }
                }
                for unit in units.into_values() {
                    let count = unit.completed.len();
                    let reached = if count > 0 { choose(count + 1) } else { 0 };
                    let kept = unit.completed.into_values().take(reached);
                    kept.flatten().for_each(|piece| apply(&mut image, piece));
                    for pieces in unit.in_flight.into_values() {
                        if choose(2) == 1 {
                            pieces.into_iter().for_each(|piece| apply(&mut image, piece));
                        }
                    }
                }
            }
        }
        image
    }

    /// Returns the sectors of each of [`Cache::writes`].
    pub fn write_lengths(&self) -> Vec<usize> {
        self.writes().iter().map(Vec::len).collect()
    }
    /// Returns what a power cut leaves if those sectors of [`Cache::writes`] arrive for which
    /// `keeps` returns true. Its arguments: number of the write, number of the sector in it.
    pub fn crash_with(&self, keeps: impl Fn(usize, usize) -> bool) -> Image {
        let mut image = self.durable.clone();
        for (number, write) in self.writes().into_iter().enumerate() {
            for (sector, piece) in write.into_iter().enumerate() {
                if keeps(number, sector) {
                    apply(&mut image, piece);
                }
            }
        }
        image
    }

    /// Returns every volatile write: completed ones in order, then those in flight in the order of
    /// their start.
    fn writes(&self) -> Vec<Vec<Piece<'_>>> {
        let mut completed: BTreeMap<Order, Vec<Piece<'_>>> = BTreeMap::new();
        for (sector, contents) in &self.volatile {
            for (order, content) in contents {
                completed.entry(*order).or_default().push((*sector, content));
            }
        }
        let in_flight = self.in_flight.values();
        let in_flight = in_flight
            .map(|pieces| pieces.iter().map(|(sector, content)| (*sector, content)).collect());
        completed.into_values().chain(in_flight).collect()
    }
}

type Piece<'a> = (u64, &'a Content);

#[derive(Default)]
struct Unit<'a> {
    completed: BTreeMap<Order, Vec<Piece<'a>>>,
    in_flight: BTreeMap<u64, Vec<Piece<'a>>>,
}

fn apply(image: &mut Image, (sector, content): Piece<'_>) {
    image.write(sector * SECTOR as u64, content.bytes());
}
