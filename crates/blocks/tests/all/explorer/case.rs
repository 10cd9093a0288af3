//! Contents of a case, by its seed.

use super::model::Atomic;
use crate::common::{Images, Life, Making, eviction_of, make, options};
use blocks::{BlockParts, GroupBytes, Persistence};
use disks::{Atomicity, CrashPolicy, Image, Latency, LineReplacement, Lying, MemoryDisk};
use engine::{
    DataMode, DurableMemory, EngineOptions, LogGap, LogKind, RecordFormat, WriteThreshold,
};
use eviction::EvictionWorkload;
use format::run_table::TABLE_BYTES;
use runtime::SplitMix;
use std::rc::Rc;
use std::time::Duration;

/// Modes, record formats, and logs: scattered, inside, on its own device.
const CHOICES: u64 = 6 * 2 * 3;
/// Number of combinations with flushes, and with evictions on disks that ignore flushes.
pub const COMBINATIONS: usize = CHOICES as usize * 2;
/// The seeds of one run. The last third plays disks that ignore flushes.
pub const SEEDS: u64 = CHOICES * 12;
/// Lines of 4096 bytes in the cache of a disk that ignores flushes.
const LINES: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Inside,
    OwnDevice,
    Scattered,
}

#[derive(Clone, Debug)]
pub struct Case {
    pub seed: u64,
    pub making: Making,
    pub options: EngineOptions,
    pub persistence: Persistence,
    /// Whether the volume's disk, and the journal's, hide forced unit access.
    pub hides_forced_unit_access: [bool; 2],
    /// Whether few blocks are written and discarded again and again.
    pub reuses: bool,
    /// Home writes take longer than a log on its own device.
    pub is_home_slow: bool,
    pub lives: u64,
    pub clients: u64,
    /// Changes of the disk after which the power fails, at most.
    pub changes: u64,
    /// The last life ends with a close, not a cut.
    pub closes: bool,
    /// The disks acknowledge flushes and durable writes, and do nothing for them.
    pub lies: bool,
    /// Whether every flush is an eviction.
    pub coerces: bool,
    /// The disk becomes longer before each life, and the volume grows while it is written.
    pub grows: bool,
    /// A write or flush of a disk fails in each life: while the volume grows, or at any change.
    pub has_faults: bool,
    /// Scattered logs: the second disk has a table of their runs. Some lives do not name it.
    pub has_run_table: bool,
    place: Place,
    atomicity: Atomicity,
}

fn making(random: &SplitMix, block_size: u32, place: Place, writes: Option<u32>) -> Making {
    let one_of = |count: u64| random.next() % count;
    Making {
        block_size,
        disk_bytes: [8 << 20, 16 << 20][one_of(2) as usize],
        journal_bytes: [1 << 20, 2 << 20][one_of(2) as usize],
        journal_disk: (place == Place::OwnDevice).then_some(6 << 20),
        groups: (place == Place::Scattered)
            .then_some(GroupBytes { log: 512 << 10, group: 1536 << 10 }),
        eviction: writes.map(|writes| EvictionWorkload { writes, ..eviction_of(LINES) }),
    }
}

/// Sets when is committed and written back, and in some cases of reuse the mode.
fn set_times(options: &mut EngineOptions, random: &SplitMix, reuses: bool) {
    let one_of = |count: u64| random.next() % count;
    let never = Duration::from_secs(3600);
    match reuses {
        true => {
            options.commit = [options.commit, never, never][one_of(3) as usize];
            options.expire = Duration::from_millis([6, 30, 100, 100][one_of(4) as usize]);
            options.writeback = Duration::from_millis([2, 10][one_of(2) as usize]);
            if one_of(2) == 0 {
                options.data = DataMode::Wasteless;
            }
        }
        false if one_of(2) == 0 => options.expire = never,
        _ => {}
    }
}

impl Case {
    pub fn new(seed: u64) -> Case {
        let random = SplitMix::new(seed);
        let one_of = |count: u64| random.next() % count;
        // Every combination in turn; the rest is chance.
        let combination = seed % CHOICES;
        let reuses = (seed / CHOICES) % 2 != 0;
        let lies = seed / CHOICES % 12 >= 8;
        let data = DataMode::ALL[(combination % 6) as usize];
        let records = [RecordFormat::Packed, RecordFormat::Blocks][(combination / 6 % 2) as usize];
        let place =
            [Place::Inside, Place::OwnDevice, Place::Scattered][(combination / 12) as usize];
        let block_size = [1024, 2048, 4096, 4096][one_of(4) as usize];
        let mut options = EngineOptions {
            data,
            records: Some(records),
            threshold: [
                WriteThreshold::Fixed(4097),
                WriteThreshold::Fixed(64 << 10),
                WriteThreshold::Auto,
            ][one_of(3) as usize],
            cache_bytes: [1 << 20, 4 << 20, 64 << 20][one_of(3) as usize],
            commits_in_flight: 1 + one_of(2) as usize,
            log_gap: [LogGap::Off, LogGap::Auto, LogGap::Always(20 << 10)][one_of(3) as usize],
            order_overwrites: one_of(3) == 0,
            ..options()
        };
        set_times(&mut options, &random, reuses);
        if place == Place::Scattered {
            options.log = LogKind::Scattered;
            options.snapshot_after = [None, Some(256 << 10)][one_of(2) as usize];
        }
        // Requests meet an eviction of several writes half way.
        let writes = if seed / CHOICES % 4 < 2 { 1 } else { LINES as u32 };
        let making = making(&random, block_size, place, lies.then_some(writes));
        Case {
            seed,
            making,
            options,
            persistence: match one_of(5) {
                0 => Persistence::WriteThrough,
                _ => Persistence::WriteBack,
            },
            hides_forced_unit_access: [one_of(2) == 0, one_of(2) == 0],
            reuses,
            is_home_slow: one_of(2) == 0,
            lives: 2 + one_of(3),
            clients: if reuses { [1, 2, 4] } else { [2, 6, 6] }[one_of(3) as usize],
            changes: [12, 60, 300][one_of(3) as usize]
                * if lies { 1 + u64::from(writes) } else { 1 },
            closes: one_of(2) == 0,
            lies,
            coerces: lies,
            place,
            atomicity: Atomicity::Unit([512, 4096][one_of(2) as usize]),
            grows: one_of(4) == 0,
            has_faults: one_of(3) == 0,
            has_run_table: place == Place::Scattered && !lies && one_of(2) == 0,
        }
    }

    /// Makes the disks of the case.
    pub fn make(&self) -> Images {
        let mut images = make(&self.making).expect("a volume");
        images.extend(self.has_run_table.then(|| Image::new(TABLE_BYTES)));
        images
    }

    /// Returns what the volume is opened with, in one of its lives.
    pub fn parts(&self, life: &Life, random: &SplitMix) -> BlockParts {
        let parts = life.parts(&self.options, self.persistence);
        if !self.has_run_table {
            return parts;
        }
        let is_named = random.next() % 3 != 0;
        let table = life.disks[1].clone();
        let run_table = is_named.then(|| DurableMemory(Rc::new(table)));
        let options = EngineOptions { run_table, ..parts.options };
        BlockParts { journal: None, options, ..parts }
    }

    pub fn combination(&self) -> String {
        let barrier = if self.coerces { "coerce" } else { "flush" };
        format!("{:?} {:?} {:?} {barrier}", self.options.data, self.options.records, self.place)
    }
    pub fn crash(&self, seed: u64) -> CrashPolicy {
        CrashPolicy::Random { seed, atomicity: self.atomicity }
    }
    /// Whether the power fails late enough after an error that the journal has recorded it.
    pub fn records_error(&self) -> bool {
        self.seed / CHOICES / 2 % 2 == 0
    }
    /// Changes of the disk for a flush: evictions write, too.
    pub fn changes_a_flush(&self) -> u64 {
        let eviction = self.making.eviction.filter(|_| self.coerces);
        1 + eviction.map_or(0, |workload| u64::from(workload.writes))
    }
    pub fn block_sectors(&self) -> u64 {
        u64::from(self.making.block_size) / 512
    }

    /// Gives the disks of a life what they can do, and the time they take.
    pub fn set_disks(&self, disks: &[MemoryDisk]) {
        if self.lies {
            let (lines, seed) = (LINES, self.seed);
            let replacement = LineReplacement::LeastRecentlyUsed;
            disks.iter().for_each(|disk| disk.lie(Lying { lines, replacement, seed }));
        }
        for (disk, hides) in disks.iter().zip(self.hides_forced_unit_access) {
            if hides {
                disk.hide_forced_unit_access();
            }
        }
        if let [home, _journal] = disks {
            if self.is_home_slow {
                let (least, spread) = (Duration::from_millis(1), Duration::from_millis(30));
                home.set_latency(Latency { least, spread });
            }
        }
    }
    /// Whether expired blocks are written back, and the log's tail follows, whatever is requested.
    pub fn empties_log(&self) -> bool {
        self.options.expire < Duration::from_secs(1) && self.place != Place::Scattered
    }

    /// Returns few places, so that blocks are written again and again; some where runs end at home.
    pub fn places(&self, sectors: u64) -> Vec<u64> {
        let random = SplitMix::new(self.seed);
        let place = |number: u64| match number % 6 {
            0 => 2048 * (number / 6 + 1) - 5,
            _ => random.next() % sectors,
        };
        let count = if self.reuses { 3 } else { 24 };
        (0..count).map(place).map(|place| place.min(sectors - 1)).collect()
    }

    /// `most`: sectors of the longest write that is one handle.
    pub fn atomic(&self, most: u64) -> Atomic {
        let block = self.block_sectors();
        let is_whole_at_home =
            matches!(self.atomicity, Atomicity::Unit(unit) if u64::from(unit) >= block * 512);
        match self.options.data {
            DataMode::Journal | DataMode::Wasteless => Atomic::Write { block, most },
            // A write that fails may be there in any of its sectors.
            _ if is_whole_at_home && !self.has_faults => Atomic::Block(block),
            _ => Atomic::Sector,
        }
    }
}
