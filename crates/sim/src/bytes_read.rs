//! Bytes of the disks that a run has read. Everything else in it follows from the seed, so a run on
//! disks with the same bytes in these places is the same run.

use crate::memory_disks::MemoryDisks;
use crate::setup::Disks;
use device::Operation;
use disks::{Image, MemoryDisk};
use std::ops::Range;

/// The disks, each with the ranges that were read of it.
#[derive(Default)]
pub struct BytesRead(Vec<(Image, Vec<Range<u64>>)>);

impl BytesRead {
    /// Has the disks of a run record what is read. To be called before the run.
    pub fn record(memory: &MemoryDisks) {
        memory.all().for_each(MemoryDisk::record);
    }

    /// Returns what a run has read that began with `disks`.
    pub fn of(disks: &Disks, memory: &MemoryDisks) -> BytesRead {
        BytesRead(images(disks).cloned().zip(memory.all().map(ranges_read)).collect())
    }

    /// Whether these disks have the same bytes there.
    pub fn are_of(&self, disks: &Disks) -> bool {
        let is_same = |((before, read), now): (&(Image, Vec<Range<u64>>), &Image)| {
            read.iter().all(|range| before.is_equal_in(now, range.clone()))
        };
        self.0.len() == images(disks).count() && self.0.iter().zip(images(disks)).all(is_same)
    }
}

/// Returns the images in the order of [`MemoryDisks::all`]. All cuts of a case have the same ones,
/// except perhaps the last.
fn images(disks: &Disks) -> impl Iterator<Item = &Image> {
    [Some(&disks.home), disks.journal.as_ref(), disks.table.as_ref()].into_iter().flatten()
}

/// Returns the ranges read since the disk records, each byte once.
fn ranges_read(disk: &MemoryDisk) -> Vec<Range<u64>> {
    let log = disk.take_log().into_iter();
    let reads = log.filter(|logged| logged.operation == Operation::Read);
    let mut reads: Vec<_> = reads.map(|read| read.at..read.at + read.length).collect();
    reads.sort_by_key(|range| range.start);
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for read in reads {
        match ranges.last_mut().filter(|last| read.start <= last.end) {
            Some(last) => last.end = last.end.max(read.end),
            None => ranges.push(read),
        }
    }
    ranges
}
