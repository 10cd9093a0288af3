//! Choices that the seed of a case decides besides its scripts: the drives, the engine's options,
//! and what an earlier life has left. They are independent of each other, so that every pair of
//! values of two choices is played.

use crate::case::Case;
use crate::script::Mix;
use engine::{BarrierKind, CheckpointTimes, EngineOptions, LogGap, RecordFormat, WriteThreshold};
use ext4::DurableOnly;
use runtime::SplitMix;
use std::time::Duration;

/// Bytes of a page of the kernel that splits writes.
const PAGE: usize = 4096;
/// Bytes logged between two snapshots of a mapping table, see [`Case::snapshot_after`].
pub const SNAPSHOT_EACH_RUN: u64 = 1;
/// Snapshot interval in bytes, more than any script logs: pieces are written by swaps alone.
const SNAPSHOT_OF_SWAPS: u64 = 1 << 40;
/// Items of a short piece.
const SHORT_PIECE: usize = 6;

/// Intervals of the engine before commits and write-back. Faults of write-back between two
/// commits are never seen where it is rare.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    pub commit: Duration,
    pub writeback: Duration,
    pub expire: Duration,
}

impl Intervals {
    const fn of(commit: u64, writeback: u64, expire: u64) -> Intervals {
        let time = Duration::from_micros;
        Intervals { commit: time(commit), writeback: time(writeback), expire: time(expire) }
    }
    /// Intervals within the milliseconds that a script takes.
    const EVEN: Intervals = Intervals::of(3000, 2000, 5000);
    /// Write-back all the time, commits only where a writer waits for them.
    const EAGER: Intervals = Intervals::of(20_000, 100, 50);
    /// Blocks of one transaction are written back in several rounds.
    const PATCHY: Intervals = Intervals::of(20_000, 300, 900);
    /// Write-back meets blocks of commits that are in flight to home.
    const RESTLESS: Intervals = Intervals::of(20_000, 200, 100);
    /// Intervals beyond every run: nothing is written back before the log, or memory, is full.
    const LAZY: Intervals = Intervals::of(3000, 400_000, 1_000_000);
}

/// The disk whose physical sectors are longer than those of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LongSectors {
    Home,
    Journal,
}

impl Case {
    /// Returns a number below `limit` that the case decides, the same in all its lives and
    /// different for each name: remainders of the seed would always coincide.
    fn draw(&self, name: &str, limit: u64) -> u64 {
        self.draw_in(0, name, limit)
    }
    /// Returns a number below `limit` that is different in each life, too.
    fn draw_in_life(&self, name: &str, limit: u64) -> u64 {
        self.draw_in(self.life, name, limit)
    }
    fn draw_in(&self, life: u64, name: &str, limit: u64) -> u64 {
        let bytes = [self.setup.name, self.mode.name(), name].into_iter().flat_map(str::bytes);
        let salt = bytes.fold(life, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        SplitMix::new(self.seed ^ salt << 32).below(limit)
    }

    /// Whether the disk has FUA, in half of the cases. Without it every commit is a flush, and
    /// takes the log's tail along where the log is in the volume.
    pub(crate) fn has_forced_unit_access(&self) -> bool {
        self.draw("forced unit access", 2) == 0
    }

    /// Whether transactions have a checksum, in the modes whose log others read otherwise: one case
    /// of four.
    pub(crate) fn has_transaction_checksum(&self) -> bool {
        self.draw("checksum", 4) == 0
    }

    /// Returns the threshold of small requests: learnt in half of the cases, in others a block, a
    /// part of one, or a byte.
    pub(crate) fn threshold(&self) -> WriteThreshold {
        match self.draw("threshold", 6) {
            0 => WriteThreshold::Fixed(4096),
            1 => WriteThreshold::Fixed(700),
            2 => WriteThreshold::Fixed(1),
            _ => WriteThreshold::Auto,
        }
    }

    /// Returns the record format: packed in one case of three, and in two where that is the mode's
    /// default; one of four of those in units of 1 KiB. Seeds 4 to 7, 16 to 19 and so on have
    /// packed records in every mode.
    pub(crate) fn records(&self) -> (RecordFormat, Option<u32>) {
        let unit = (self.draw("log unit", 4) == 0).then_some(1024);
        let default = EngineOptions { data: self.mode, ..EngineOptions::default() }.record_format();
        match self.seed / 4 % 3 {
            0 => (RecordFormat::Blocks, None),
            1 => (RecordFormat::Packed, unit),
            _ => (default, unit),
        }
    }

    /// Returns how many log blocks of a transaction are made before other tasks run: one in half of
    /// the cases, all of any script's in the others.
    pub(crate) fn records_at_once(&self) -> usize {
        if self.draw("records at once", 2) == 0 {
            1
        } else {
            EngineOptions::default().records_at_once
        }
    }

    /// Whether overwrites in place that bypass the log are ordered before the commit: half of the
    /// cases.
    pub(crate) fn order_overwrites(&self) -> bool {
        self.draw("order of overwrites", 2) == 0
    }

    /// Returns the length from which whole blocks bypass the cache, in half of the cases any.
    pub(crate) fn past_cache_from(&self) -> Option<u64> {
        let never_long = EngineOptions::default().past_cache_from;
        if self.draw("past the cache", 2) == 0 { Some(0) } else { never_long }
    }

    /// Returns the page size if writes come through the kernel's page cache, in one case of four:
    /// one that begins within a page and ends behind it comes in two requests
    /// (`fuse_fill_write_pages`).
    pub fn splits_at_page(&self) -> Option<usize> {
        let is_sound = self.fault.is_none() && !self.hostile;
        (is_sound && self.draw("page", 4) == 0).then_some(PAGE)
    }

    /// Returns the commits in flight: two in half of the cases, where that is permitted.
    pub(crate) fn commits_in_flight(&self) -> usize {
        1 + self.draw("commits", 2) as usize
    }

    /// Returns the gap between packed transactions in the journal, in three lives of four: a few
    /// sectors, more than most are long, or as the drive's times suggest.
    pub(crate) fn log_gap(&self) -> LogGap {
        let gaps = [LogGap::Off, LogGap::Always(1536), LogGap::Always(20 << 10), LogGap::Auto];
        gaps[self.draw_in_life("gap", 4) as usize]
    }

    /// Returns the time of write-back: in half of the lives that of each block by its age.
    pub(crate) fn checkpoint(&self) -> CheckpointTimes {
        match self.draw_in_life("checkpoint", 6) {
            0 => CheckpointTimes::Manual,
            1 => CheckpointTimes::Periodic(Duration::from_millis(4)),
            2 => CheckpointTimes::Idle(Duration::from_millis(1)),
            _ => CheckpointTimes::ByAge,
        }
    }

    /// Whether free blocks are discarded and addresses of files queried: half of the lives.
    pub(crate) fn has_requests(&self) -> bool {
        self.draw_in_life("requests", 2) == 0 && !self.setup.is_tight() && !self.hostile
    }

    /// Returns the disk with the longer physical sectors: each in one case of three with a journal
    /// on a disk of its own.
    pub(crate) fn long_sectors(&self) -> Option<LongSectors> {
        let disks = [None, Some(LongSectors::Home), Some(LongSectors::Journal)];
        disks[self.draw("sectors", 3) as usize].filter(|_| self.setup.external_journal)
    }

    /// Returns the files for which durability is enough: one of each writer, in one case of three
    /// in scattered logs.
    pub(crate) fn durable_only(&self) -> Option<DurableOnly> {
        let has_one = self.setup.logs.is_some() && self.draw("durable only", 3) == 0;
        has_one.then(|| "file-1".parse().expect("a name"))
    }

    /// Scattered logs: whether they hold what an earlier life has left, which a power cut ended, in
    /// half of the cases.
    pub(crate) fn had_earlier_life(&self) -> bool {
        let is_plain = self.lying_disk.is_none() && self.fault.is_none() && !self.hostile;
        self.setup.logs.is_some() && is_plain && self.draw("earlier life", 2) == 0
    }

    /// Circular logs: whether an earlier life without barriers has left what it wrote in the disk's
    /// cache, in one of three cases.
    pub(crate) fn had_unflushed_life(&self) -> bool {
        let is_plain = self.lying_disk.is_none() && self.fault.is_none() && !self.hostile;
        let flushes =
            (self.barrier, self.later_barrier) == (BarrierKind::Flush, BarrierKind::Flush);
        let is_circular = self.setup.logs.is_none() && !self.setup.is_tight();
        is_circular && is_plain && flushes && self.draw("unflushed life", 3) == 0
    }

    /// Whether files of an earlier life are there.
    pub(crate) fn has_earlier_files(&self) -> bool {
        self.had_earlier_life() || self.had_unflushed_life()
    }

    /// Scattered logs: whether memory that survives the cuts has a table of their runs, in two of
    /// three cases.
    pub fn has_run_table(&self) -> bool {
        let has_one = self.setup.logs.is_some() && self.lying_disk.is_none();
        has_one && self.draw("table of runs", 3) != 0
    }

    /// Scattered logs: whether the disk is idle from time to time, so that logs are swapped, in
    /// half of the lives. Otherwise blocks freed by an earlier life are used at once.
    pub(crate) fn has_rests(&self) -> bool {
        let rests = self.draw_in_life("rests", 2) == 0
            // Where each commit is in a snapshot, swaps are to meet that.
            || self.life == 0 && self.snapshot_after() == Some(SNAPSHOT_EACH_RUN);
        self.setup.logs.is_some() && rests
    }

    /// Scattered logs: returns the bytes after which a snapshot of the mapping table is written:
    /// each run in two cases of five; many, never, or by swaps alone.
    pub fn snapshot_after(&self) -> Option<u64> {
        let times = [Some(SNAPSHOT_EACH_RUN), Some(3 << 20), None, Some(SNAPSHOT_OF_SWAPS)];
        let likely = match self.life {
            0 => [0, 0, 1, 2, 3],
            // Mostly the snapshot of the first life stays, and gets a backlog.
            _ => [0, 1, 3, 3, 3],
        };
        times[likely[self.draw_in_life("snapshots", 5) as usize]]
    }

    /// Returns the most items of a piece of a snapshot: in half of the cases so few that pieces are
    /// written with a backlog.
    pub(crate) fn snapshot_items(&self) -> usize {
        match self.draw("pieces", 2) {
            0 => SHORT_PIECE,
            _ => EngineOptions::default().snapshot_items,
        }
    }

    /// Returns the most frequent kind of steps in random scripts.
    pub(crate) fn mix(&self) -> Mix {
        if let Some(mix) = self.mix {
            return mix;
        }
        match self.draw_in_life("mix", 4) {
            _ if self.setup.is_tight() => Mix::Large,
            0 if self.has_short_log() => Mix::Large,
            0 | 1 => Mix::Overwrites,
            2 => Mix::Crossing,
            _ => Mix::All,
        }
    }

    /// Returns the intervals of the engine: all of them in four seeds in a row, which begin at
    /// another one on each kind of volume.
    pub(crate) fn intervals(&self) -> Intervals {
        let name = self.setup.name.bytes().map(u64::from).sum::<u64>();
        let turn = match self.life {
            0 => self.seed.wrapping_add(name) % 4,
            _ => self.draw_in_life("intervals", 4),
        };
        match turn {
            _ if self.is_scattered() => Intervals::RESTLESS,
            0 => Intervals::EAGER,
            1 => Intervals::PATCHY,
            // A short log is to move its tail because it is full, not because time passes.
            _ if self.has_short_log() => Intervals::LAZY,
            _ => Intervals::EVEN,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::case::Case;
    use crate::setup;
    use engine::DataMode;
    use std::collections::BTreeSet;
    use std::fmt::Debug;

    const SEEDS: std::ops::RangeInclusive<u64> = 1..=200;
    /// Choices of which one includes the other.
    const TIED: (&str, &str) = ("rests", "snapshots");

    /// Returns everything that the seed decides, by name.
    fn choices(case: &Case) -> Vec<(&'static str, String)> {
        let chosen: [(_, &dyn Debug); 21] = [
            ("forced unit access", &case.has_forced_unit_access()),
            ("checksum", &case.has_transaction_checksum()),
            ("threshold", &case.threshold()),
            ("records", &case.records()),
            ("records at once", &case.records_at_once()),
            ("order of overwrites", &case.order_overwrites()),
            ("past the cache", &case.past_cache_from()),
            ("page", &case.splits_at_page()),
            ("commits", &case.commits_in_flight()),
            ("gap", &case.log_gap()),
            ("checkpoint", &case.checkpoint()),
            ("requests", &case.has_requests()),
            ("sectors", &case.long_sectors()),
            ("mix", &case.mix()),
            ("intervals", &case.intervals()),
            ("unflushed life", &case.had_unflushed_life()),
            ("earlier life", &case.had_earlier_life()),
            ("table of runs", &case.has_run_table()),
            ("rests", &case.has_rests()),
            ("snapshots", &case.snapshot_after()),
            ("pieces", &case.snapshot_items()),
        ];
        chosen.map(|(name, value)| (name, format!("{value:?}"))).to_vec()
    }

    fn pairs(case: &Case) -> Vec<[(&'static str, String); 2]> {
        let chosen = choices(case);
        let each = chosen.iter().enumerate();
        each.flat_map(|(at, one)| chosen[at + 1..].iter().map(|other| [one.clone(), other.clone()]))
            .filter(|[(one, _), (other, _)]| (*one, *other) != TIED)
            .collect()
    }

    /// Returns the pairs of values of different choices that no case has.
    fn missing(cases: &[Case]) -> Vec<String> {
        let values: BTreeSet<_> = cases.iter().flat_map(choices).collect();
        let played: BTreeSet<_> = cases.iter().flat_map(pairs).collect();
        let all = values.iter().flat_map(|one| values.iter().map(move |other| [one, other]));
        let known: BTreeSet<_> = played.iter().map(|[one, other]| (one.0, other.0)).collect();
        all.filter(|[one, other]| known.contains(&(one.0, other.0)))
            .filter(|[one, other]| !played.contains(&[(*one).clone(), (*other).clone()]))
            .map(|[one, other]| format!("{} {} with {} {}", one.0, one.1, other.0, other.1))
            .collect()
    }

    #[test]
    fn every_pair_of_choices_is_played() {
        for name in ["external-1k", "scattered-1k"] {
            let setup = setup::find(name).unwrap();
            let case = |seed| Case::random(setup, DataMode::Selective, seed, 3, 14);
            let cases: Vec<_> = SEEDS.map(case).collect();
            let never = missing(&cases);
            assert!(never.is_empty(), "{name}: {} never: {never:#?}", never.len());
            let later = |case: &Case| {
                let life = (0..).find_map(|image| case.lives_on(image, false));
                case.later_life(life.expect("one in a few images"))
            };
            let never = missing(&cases.iter().map(later).collect::<Vec<_>>());
            assert!(never.is_empty(), "{name}, later: {} never: {never:#?}", never.len());
        }
    }
}
