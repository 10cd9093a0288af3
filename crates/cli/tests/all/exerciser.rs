//! Random changes of one file through descriptors of every kind, compared with a vector of bytes
//! after each step. The page cache, O_SYNC, O_DIRECT and memory maps must show one content at any
//! time. `OPERATIONS` and `SEED` in the environment change its length and choices.

use crate::common::Volume;
use crate::common::mapping::Map;
use runtime::SplitMix;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

const SIZE_MAX: usize = 400_000;
const LENGTH_MAX: usize = 40_000;
/// Flags of descriptors: page cache, durable at once, past the page cache, and both.
const KINDS: [i32; 4] = [0, libc::O_SYNC, libc::O_DIRECT, libc::O_DIRECT | libc::O_DSYNC];

struct Rng(SplitMix);

impl Rng {
    fn below(&self, end: usize) -> usize {
        self.0.below(end as u64) as usize
    }
    /// Returns an offset, often at a block's border, where mistakes live.
    fn offset(&mut self, end: usize) -> usize {
        match self.below(3) {
            0 => self.below(end) & !1023,
            1 => self.below(end) & !4095,
            _ => self.below(end),
        }
    }
    fn range(&mut self, end: usize) -> Range<usize> {
        let start = self.offset(end);
        start..(start + 1 + self.offset(LENGTH_MAX)).min(end)
    }
}

struct Exerciser<'a> {
    volume: &'a Volume,
    files: Vec<File>,
    model: Vec<u8>,
    rng: Rng,
    has_extents: bool,
}

impl Exerciser<'_> {
    fn open(&mut self) {
        let open = |flags: &i32| {
            let mut options = OpenOptions::new();
            let options =
                options.create(true).truncate(false).read(true).write(true).custom_flags(*flags);
            options.open(self.volume.at("file")).unwrap()
        };
        self.files = KINDS.iter().map(open).collect();
    }

    /// Performs a random change or check; returns its description.
    fn step(&mut self) -> io::Result<String> {
        let kind = self.rng.below(self.files.len());
        let what = self.rng.below(100);
        let size = self.model.len();
        let described = match what {
            0..30 => self.write(kind)?,
            30..50 if size > 0 => self.read(kind)?,
            50..60 => {
                let length = self.rng.offset(SIZE_MAX);
                self.model.resize(length, 0);
                self.files[kind].set_len(length as u64)?;
                format!("truncate to {length}")
            }
            60..75 => self.allocate(kind)?,
            75..85 if size > 0 => self.write_mapped()?,
            85..92 if size > 0 => self.read_mapped()?,
            92..94 => self.files[kind].sync_all().map(|()| "fsync".into())?,
            94..96 => self.files[kind].sync_data().map(|()| "fdatasync".into())?,
            96..98 => {
                self.open();
                "reopen".into()
            }
            _ => self.look()?,
        };
        Ok(format!("{described} (descriptor {kind})"))
    }

    fn write(&mut self, kind: usize) -> io::Result<String> {
        let range = self.rng.range(SIZE_MAX);
        let bytes = self.bytes(range.len());
        self.files[kind].write_all_at(&bytes, range.start as u64)?;
        if self.model.len() < range.end {
            self.model.resize(range.end, 0);
        }
        self.model[range.clone()].copy_from_slice(&bytes);
        Ok(format!("write {range:?}"))
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let first = self.rng.below(256);
        (0..count).map(|at| (first + at / 3 + at / 1024) as u8 | 1).collect()
    }

    fn read(&mut self, kind: usize) -> io::Result<String> {
        let range = self.rng.range(self.model.len());
        let mut bytes = vec![0; range.len()];
        self.files[kind].read_exact_at(&mut bytes, range.start as u64)?;
        self.compare(&bytes, range.clone());
        Ok(format!("read {range:?}"))
    }

    fn allocate(&mut self, kind: usize) -> io::Result<String> {
        let (keep, zero) = (FallocateFlags::KEEP_SIZE, FallocateFlags::ZERO_RANGE);
        let range = self.rng.range(SIZE_MAX);
        let mode = match self.rng.below(5) {
            0 if self.has_extents => FallocateFlags::empty(),
            1 if self.has_extents => keep,
            2 if self.has_extents => zero,
            3 if self.has_extents => zero | keep,
            _ => FallocateFlags::PUNCH_HOLE | keep,
        };
        fallocate(&self.files[kind], mode, range.start as u64, range.len() as u64)?;
        if !mode.contains(keep) && self.model.len() < range.end {
            self.model.resize(range.end, 0);
        }
        if mode.intersects(zero | FallocateFlags::PUNCH_HOLE) {
            let end = range.end.min(self.model.len());
            self.model[range.start.min(end)..end].fill(0);
        }
        Ok(format!("fallocate {mode:?} {range:?}"))
    }

    fn write_mapped(&mut self) -> io::Result<String> {
        let range = self.rng.range(self.model.len());
        let bytes = self.bytes(range.len());
        with_map(&self.files[0], self.model.len(), |map| {
            map[range.clone()].copy_from_slice(&bytes)
        })?;
        self.model[range.clone()].copy_from_slice(&bytes);
        Ok(format!("write mapped {range:?}"))
    }

    fn read_mapped(&mut self) -> io::Result<String> {
        let range = self.rng.range(self.model.len());
        let bytes = with_map(&self.files[0], self.model.len(), |map| map[range.clone()].to_vec())?;
        self.compare(&bytes, range.clone());
        Ok(format!("read mapped {range:?}"))
    }

    /// Returns the size, alike for every descriptor.
    fn look(&mut self) -> io::Result<String> {
        for file in &self.files {
            assert_eq!(file.metadata()?.len(), self.model.len() as u64);
        }
        Ok("look".into())
    }

    fn compare(&self, found: &[u8], range: Range<usize>) {
        if let Some(at) =
            found.iter().zip(&self.model[range.clone()]).position(|(found, want)| found != want)
        {
            let (place, want) = (range.start + at, self.model[range.start + at]);
            panic!("at {place} of {range:?} there is {:#x} instead of {want:#x}", found[at]);
        }
    }

    fn compare_whole(&self) {
        let found = std::fs::read(self.volume.at("file")).unwrap();
        assert_eq!(found.len(), self.model.len());
        self.compare(&found, 0..found.len());
    }
}

/// Maps the whole file, passes it to `work`, and syncs the changes.
fn with_map<T>(file: &File, length: usize, work: impl FnOnce(&mut [u8]) -> T) -> io::Result<T> {
    let mut map = Map::new(file, length)?;
    let result = work(map.bytes());
    map.sync().map(|()| result)
}

fn exercise(arguments: &[&str], options: &str) {
    let from_environment = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (operations, seed) = (from_environment("OPERATIONS", 2500), from_environment("SEED", 1u64));
    let volume = Volume::mounted(arguments, options);
    let rng = Rng(SplitMix::new(seed));
    let has_extents = arguments.contains(&"ext4");
    let mut exerciser =
        Exerciser { volume: &volume, files: Vec::new(), model: Vec::new(), rng, has_extents };
    exerciser.open();
    let mut last = std::collections::VecDeque::new();
    for number in 0..operations {
        let step = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| exerciser.step()));
        match step {
            Ok(Ok(what)) => last.push_back(format!("{number}: {what}")),
            wrong => {
                panic!("{options}, SEED={seed}, operation {number}: {wrong:?} after\n{last:#?}")
            }
        }
        if last.len() > 12 {
            last.pop_front();
        }
        // Reopens everything, reading from the disk.
        if number % 1000 == 999 {
            exerciser.files.clear();
            volume.umount_and_check();
            volume.mount(options);
            exerciser.compare_whole();
            exerciser.open();
        }
    }
    exerciser.files.clear();
    volume.umount_and_check();
    volume.mount(options);
    exerciser.compare_whole();
    volume.umount_and_check();
}

#[test]
fn every_kind_of_descriptor_shows_one_content_in_wasteless() {
    exercise(&["-t", "ext4", "-b", "4096"], "data=wasteless");
}

#[test]
fn every_kind_of_descriptor_shows_one_content_in_journal() {
    exercise(&["-t", "ext4", "-b", "1024", "-J", "size=2"], "data=journal,cache=16M");
}

#[test]
fn every_kind_of_descriptor_shows_one_content_in_ordered_on_block_maps() {
    exercise(&["-t", "ext3", "-b", "1024"], "data=ordered");
}

#[test]
fn every_kind_of_descriptor_shows_one_content_in_selective() {
    exercise(&["-t", "ext4", "-b", "2048"], "data=selective");
}

#[test]
fn every_kind_of_descriptor_shows_one_content_in_writeback() {
    exercise(&["-t", "ext4"], "data=writeback,noloop");
}
