//! Product of policies, record formats, logs, kinds of barrier and home, test doubles included.
//! Each combination commits, checkpoints and frees, is cut at every step, recovers, and must have
//! all that was acknowledged.

use crate::doubles::*;
use crate::simulation::{Disk, HOME_BLOCKS, differing};
use device::Buffer;
use format::jbd2::JournalSuperblock;
use format::packed::PackedLog;
use format::scattered::ActiveLogs;
use journal::records::{RecordFormat, RecordsWanted};
use journal::*;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use units::*;

const LOG_BLOCKS: u32 = 96;
/// Number of scattered logs; then the blocks of each.
const LOGS: u32 = 6;
const EACH: u32 = 40;
const ROUNDS: u64 = 7;
/// Log block whose first bytes record where the log begins: transaction and block.
const ANCHOR: LogBlock = LogBlock(0);

fn block_size() -> BlockSize {
    BlockSize::new(1024).unwrap()
}

type What = (&'static str, fn() -> Box<dyn Policy>);
type Format = (&'static str, fn() -> Rc<dyn Records>);

fn policies() -> Vec<What> {
    fn of<const MODE: usize>() -> Box<dyn Policy> {
        DataMode::ALL[MODE].policy(WriteThreshold::Fixed(600))
    }
    let modes: [fn() -> Box<dyn Policy>; DataMode::ALL.len()] =
        [of::<0>, of::<1>, of::<2>, of::<3>, of::<4>, of::<5>];
    let mut all: Vec<What> =
        DataMode::ALL.iter().zip(modes).map(|(mode, policy)| (mode.name(), policy)).collect();
    all.push(("halves", || Box::new(Halves)));
    all
}

fn formats() -> Vec<Format> {
    fn begun(format: RecordFormat, unit: u32, bytes: bool, checksums: bool) -> Rc<dyn Records> {
        let mut superblock = JournalSuperblock::new(block_size(), LOG_BLOCKS, [9; 16]);
        let wanted = RecordsWanted {
            format,
            unit,
            bytes,
            checksums,
            transaction_checksum: false,
            wide: true,
            gap_bytes: 0,
        };
        records::begin(&mut superblock, wanted, || 5)
    }
    fn blocks(bytes: bool, checksums: bool) -> Rc<dyn Records> {
        begun(RecordFormat::Blocks, 0, bytes, checksums)
    }
    fn packed(unit: u32) -> Rc<dyn Records> {
        begun(RecordFormat::Packed, unit, true, true)
    }
    vec![
        ("plain", || blocks(false, true)),
        ("multiwrite", || blocks(true, true)),
        ("multiwrite without checksums", || blocks(true, false)),
        ("packed in sectors", || packed(512)),
        ("packed in blocks", || packed(1024)),
        ("stream", || Rc::new(Stream { home_block: block_size() })),
    ]
}

#[derive(Clone, Copy, Debug)]
enum LogPlacement {
    LogRing,
    /// A circular log with gaps of up to [`GAP_MAX`] blocks.
    Gaps,
    Capacitor,
    Scattered,
}
const GAP_MAX: u32 = 3;

/// Knowledge of recovery about a log before it reads it.
#[derive(Clone)]
enum Remembered {
    LogRing(LogRing, u32),
    Map(Rc<RefCell<Map>>),
    /// A scattered log, except for the state that the anchor records.
    Logs(Box<JournalSuperblock>, Rc<Logs>),
}

struct Volume {
    policy: Box<dyn Policy>,
    records: Rc<dyn Records>,
    log: Box<dyn LogSpace>,
    remembered: Remembered,
    addresses: HomeAddresses,
    drive: Drive,
    /// Content of the next commit; then that of the last one.
    current: Vec<Vec<u8>>,
    committed: Vec<Vec<u8>>,
    /// Blocks of data that no commit orders, or that are being freed: their new content may be
    /// there or not.
    loose: BTreeSet<u64>,
    sequences: BTreeMap<u64, UpdateSequence>,
    checkpoint: Checkpoint,
    disk_tail: TransactionId,
    next: TransactionId,
}

/// A transaction, and the home data that may be there though the transaction is not committed.
struct Group {
    running: RunningTransaction,
    home_data: BTreeSet<u64>,
}

impl Volume {
    fn new(
        policy: Box<dyn Policy>,
        records: Rc<dyn Records>,
        place: LogPlacement,
        barrier: BarrierCase,
        addresses: HomeAddresses,
    ) -> Volume {
        let first = TransactionId(u32::MAX - 2);
        let (begin, end) = (LogBlock(1), LogBlock(LOG_BLOCKS));
        let (log, remembered): (Box<dyn LogSpace>, _) = match place {
            LogPlacement::LogRing | LogPlacement::Gaps => {
                let ring = LogRing::new(begin, end);
                let gap_max = if matches!(place, LogPlacement::Gaps) { GAP_MAX } else { 0 };
                // The second or third transaction passes the end.
                let log =
                    CircularLog::beginning_at(ring, LogBlock(LOG_BLOCKS - 14)).with_gaps(gap_max);
                (Box::new(log), Remembered::LogRing(ring, gap_max))
            }
            LogPlacement::Capacitor => {
                let log = CapacitorLog::new(begin, end);
                let map = log.map();
                (Box::new(log), Remembered::Map(map))
            }
            LogPlacement::Scattered => {
                let mut superblock = JournalSuperblock::new(block_size(), LOG_BLOCKS, [9; 16]);
                // Headers are as long as log blocks, of whatever format.
                let unit = records.block_bytes() as u32;
                superblock.set_log_format(true, true, false);
                superblock.set_packed(PackedLog { unit, nonce: 5, gap_max: 0 });
                superblock.set_scattered(5);
                let homes = (0..u64::from(LOGS)).map(|log| HomeBlock(10 + 10 * log)).collect();
                let logs =
                    ScatteredLogMap { first: begin, blocks: EACH, homes }.in_units(1).unwrap();
                let log = ScatteredLog::new(&superblock, logs.clone());
                (Box::new(log), Remembered::Logs(Box::new(superblock), Rc::new(logs)))
            }
        };
        let home: Vec<Vec<u8>> =
            (0..HOME_BLOCKS).map(|at| vec![at as u8; block_size().bytes()]).collect();
        let noise =
            (0..1 + LOGS * EACH).map(|at| vec![at as u8 ^ 0xff; records.block_bytes()]).collect();
        let disk = Disk { home: home.clone(), index_of: addresses.index_of(), log: noise };
        let mut volume = Volume {
            policy,
            records,
            log,
            remembered,
            addresses,
            drive: Drive::new(disk, barrier, addresses),
            current: home.clone(),
            committed: home,
            loose: BTreeSet::new(),
            sequences: BTreeMap::new(),
            checkpoint: Checkpoint::new(first),
            disk_tail: first,
            next: first,
        };
        let anchor = volume.anchor(Some(first));
        volume.drive.run(&plan_tail_update(anchor), &SplitMix::new(0), |_, _| {});
        volume.drive.flush();
        volume
    }

    /// Returns the write that stands for the journal superblock. `moves`: the tail moves there.
    fn anchor(&mut self, moves: Option<TransactionId>) -> SuperblockImage {
        let tail = moves.unwrap_or(self.disk_tail);
        let mut image = Buffer::zeroed(self.records.block_bytes());
        image[..4].copy_from_slice(&tail.0.to_le_bytes());
        let at = self.log.start_of(tail).unwrap_or(ANCHOR);
        image[4..8].copy_from_slice(&at.get().to_le_bytes());
        if let Remembered::Logs(superblock, _) = &mut self.remembered {
            self.log.announce(superblock, moves);
            let active = superblock.scattered.as_ref().unwrap().active.bytes();
            image[8..8 + ActiveLogs::BYTES].copy_from_slice(active);
        }
        SuperblockImage { at: ANCHOR, image: Rc::new(image) }
    }

    fn change(&mut self, index: u64, range: BlockRange, byte: u8) -> HomeBlock {
        self.current[index as usize][range.as_usize()].fill(byte);
        self.addresses.address(index)
    }

    /// Adds an update of file data, as the engine makes it.
    fn data(&mut self, group: &mut Group, index: u64, range: BlockRange, request: u64, byte: u8) {
        let home = self.addresses.address(index);
        let clean = self.checkpoint.newest(home).is_none();
        let sequence = self.sequences.get(&index).copied().unwrap_or_default();
        let sequence = sequence.current(clean, self.disk_tail);
        let block_size = block_size();
        let (sequential, in_place, must_log) = (false, false, false);
        let update =
            Update { range, block_size, request, sequential, sequence, in_place, must_log };
        let decision = self.policy.decide(&update);
        if self.policy.keeps_sequences() {
            self.sequences.insert(index, sequence.after(decision, self.next));
        }
        self.change(index, range, byte);
        match decision {
            Decision::LogBytes => group.running.add_data_bytes(home, range, false),
            Decision::LogBlock => group.running.add_data_block(home, request),
            Decision::HomeBeforeCommit => {
                group.running.add_home_data(Owner(12), home, request);
                group.home_data.insert(index);
            }
            Decision::HomeWhenever => {
                self.loose.insert(index);
            }
        }
    }

    /// Makes metadata changes in part and whole, small and large data, a free, and a reuse of freed
    /// blocks.
    fn group(&mut self, round: u64) -> Group {
        let byte = round as u8 ^ 0x5a;
        let running = RunningTransaction::new(self.next, Instant(0), block_size());
        let mut group = Group { running, home_data: BTreeSet::new() };
        for (index, range) in [(10 + round % 3, BlockRange::new(8, 20)), (20, block_size().whole())]
        {
            let home = self.change(index, range, byte);
            group.running.add_metadata(home, &[range]);
        }
        let start = (round as u32 * 97) % 500;
        self.data(&mut group, 30 + round % 3, BlockRange::new(start, start + 100), 100, byte);
        self.data(&mut group, 30 + round % 2, BlockRange::new(700, 900), 200, byte);
        self.data(&mut group, 34 + round % 2, block_size().whole(), 1 << 20, byte);
        self.data(&mut group, 31, BlockRange::new(0, 512), 1 << 20, byte);
        if round % 3 == 1 {
            let range = BlockRange::new(0, 40);
            let home = self.change(45, range, byte);
            group.running.add_metadata(home, &[range]);
        }
        if round % 3 == 2 {
            group.running.free(self.addresses.address(45), true);
            self.loose.insert(45);
        }
        if round > 2 && round % 3 == 0 {
            // Its new owner's data bypasses the log, which has records of the old one.
            let home = self.change(45, BlockRange::new(0, 40), byte);
            group.running.add_home_data(Owner(13), home, 40);
            group.home_data.insert(45);
            self.loose.remove(&45);
        }
        group
    }

    fn plan(&mut self, running: RunningTransaction) -> (CommitPlan, LockedTransaction) {
        let bound = self.records.log_blocks_bound(&running.holdings());
        let mut locked = running.lock();
        self.checkpoint.log_hot_blocks_whole(&mut locked, self.log.capacity());
        let (current, index_of) = (&self.current, self.addresses.index_of());
        let images = |home: HomeBlock| Rc::new(Buffer::copy_of(&current[index_of(home)]));
        let stamp = CommitStamp { time: Timestamp::default(), durable: self.next.previous() };
        // Sometimes more than allowed.
        self.log.leave_gap(self.next.0 % (GAP_MAX + 3));
        let mut plan =
            plan_commit(&locked, &images, &mut *self.log, &*self.records, &stamp).unwrap();
        let most = self.log.taken(bound) + GAP_MAX;
        assert!(plan.log_blocks <= most, "{} log blocks, bound {bound}", plan.log_blocks);
        self.log.choose(self.next, HomeBlock(u64::from(self.next.0) * 17 % 80));
        let announces = match &self.remembered {
            Remembered::Logs(superblock, _) => self.log.announce(&mut superblock.clone(), None),
            _ => false,
        };
        let announced = announces.then(|| self.anchor(None));
        plan.issue(&mut *self.log);
        announced.into_iter().for_each(|anchor| begin_log(&mut plan.plan, anchor));
        (plan, locked)
    }

    fn finish(&mut self, mut plan: CommitPlan, locked: LockedTransaction) {
        self.checkpoint.committed(&plan.carried_out(locked.start_commit()));
        self.committed.clone_from(&self.current);
        self.next = self.next.next();
    }

    /// Writes back some blocks that the oldest transactions need, into the disk's cache.
    fn write_back(&mut self) {
        for home in self.checkpoint.blocks_to_write(u32::MAX, 4) {
            let content = &self.committed[(self.addresses.index_of())(home)];
            let blocks = vec![(BlockKind::HomeData, Rc::new(Buffer::copy_of(content)))];
            self.drive.write(&Write { at: Address::Home(home), blocks });
            self.checkpoint.home_written(home, self.next.previous());
        }
    }

    fn tail_moved(&mut self, tail: TransactionId) {
        self.log.release_before(tail);
        self.disk_tail = tail;
    }

    /// Compares with the last commit, or with what is being committed.
    fn check(&self, disk: Disk, acknowledged: bool, home_data: &BTreeSet<u64>, what: &str) {
        let mut recovered = disk.clone();
        self.recover(&mut recovered, usize::MAX).unwrap_or_else(|error| panic!("{what}: {error}"));
        let may_differ: BTreeSet<u64> = self.loose.union(home_data).copied().collect();
        let before = differing(&recovered.home, &self.committed);
        let after = differing(&recovered.home, &self.current);
        let nothing = before.is_subset(&may_differ) && !acknowledged;
        let all = after.is_subset(&self.loose);
        assert!(all || nothing, "{what}: neither all ({after:?}) nor nothing ({before:?})");
        let mut again = disk;
        self.recover(&mut again, 2).unwrap();
        self.recover(&mut again, usize::MAX).unwrap();
        assert!(again.home == recovered.home, "{what}: recovery is not idempotent");
    }

    /// Runs recovery, with a power failure after `writes_max` home writes.
    fn recover(&self, disk: &mut Disk, writes_max: usize) -> Result<(), RecoverError> {
        let anchor = &disk.log[ANCHOR.get() as usize];
        let number = |at: usize| u32::from_le_bytes(anchor[at..at + 4].try_into().unwrap());
        let transaction = TransactionId(number(0));
        let mut scan = match &self.remembered {
            Remembered::Logs(superblock, logs) => {
                let mut superblock =
                    JournalSuperblock { sequence: transaction, ..(**superblock).clone() };
                let active = ActiveLogs::parse(&anchor[8..8 + ActiveLogs::BYTES]);
                superblock.scattered.as_mut().unwrap().active = active;
                let mut find = FindRuns::new(&superblock, logs.clone());
                while let Some(at) = find.wants() {
                    find.give(&disk.log[at.get() as usize]);
                }
                ScanPass::over_runs(self.records.clone(), &find.finish(false)?)
            }
            Remembered::LogRing(ring, gap_max) => {
                let start = LogStart { transaction, at: LogBlock(number(4)) };
                ScanPass::over(self.records.clone(), Rc::new(*ring), start).behind_gaps(*gap_max)
            }
            Remembered::Map(map) => match map.borrow().start_of(transaction) {
                Some(at) => {
                    let walk = Rc::new(map.borrow().clone());
                    ScanPass::over(self.records.clone(), walk, LogStart { transaction, at })
                }
                None => return Ok(()),
            },
        };
        while let Some(at) = scan.wants() {
            scan.give(&disk.log[at.get() as usize])?;
        }
        let scanned = scan.finish();
        let mut revoke = RevokePass::new(&scanned);
        while let Some(at) = revoke.wants() {
            revoke.give(&disk.log[at.get() as usize])?;
        }
        let mut replay =
            ReplayPass::new(&scanned, revoke.finish(), HomeWithin(self.addresses, HOME_BLOCKS));
        let mut images = ReplayImages::new(block_size());
        while let Some(at) = replay.wants() {
            replay.give(&disk.log[at.get() as usize])?;
            replay.take_actions().for_each(|action| images.apply(action));
        }
        for mut image in images.take().into_iter().take(writes_max) {
            let home = &mut disk.home[(disk.index_of)(image.home)];
            image.fill_from(home);
            home.copy_from_slice(&image.content);
        }
        Ok(())
    }

    fn one_round(&mut self, round: u64, rng: &SplitMix, what: &str) {
        let Group { running, home_data } = self.group(round);
        let (plan, locked) = self.plan(running);
        let mut drive = self.drive.clone();
        drive.run(&plan.plan, rng, |disk, passed| {
            self.check(disk, passed.contains(&Barrier::CommitBeforeReply), &home_data, what);
        });
        self.drive = drive;
        self.finish(plan, locked);
        if round % 3 == 2 {
            // The freed block belongs to a file now, whose data bypassed the log.
            self.drive.overwrite(self.addresses.address(45), 0x77);
            self.current[45].fill(0x77);
            self.committed[45].fill(0x77);
            self.loose.remove(&45);
        }
        if round % 2 == 1 {
            let tail = self.checkpoint.tail();
            let plan = plan_tail_update(self.anchor(Some(tail)));
            let mut drive = self.drive.clone();
            drive.run(&plan, rng, |disk, _| self.check(disk, true, &BTreeSet::new(), what));
            self.drive = drive;
            self.tail_moved(tail);
        }
        // The next commit finds it in the disk's cache.
        self.write_back();
    }
}

/// Plays one combination. A failure prints the combination, round and random number generator.
fn play(
    policy: Box<dyn Policy>,
    records: Rc<dyn Records>,
    (place, barrier, addresses): (LogPlacement, BarrierCase, HomeAddresses),
    what: &str,
) {
    let (mut volume, rng) =
        (Volume::new(policy, records, place, barrier, addresses), SplitMix::new(7));
    for round in 0..ROUNDS {
        let what =
            format!("{what} x {place:?} x {barrier:?} x {addresses:?}, round {round}, seed 7");
        volume.one_round(round, &rng, &what);
    }
}

#[test]
fn every_combination_of_choices_keeps_what_was_acknowledged() {
    let of_policy = |(what, policy): What| {
        let mut combinations = 0;
        for (records, format) in formats() {
            if policy().logs_bytes() && !format().holds_parts() {
                continue;
            }
            let has_gaps = records.starts_with("packed").then_some(LogPlacement::Gaps);
            let places = [LogPlacement::LogRing, LogPlacement::Capacitor, LogPlacement::Scattered];
            for place in places.into_iter().chain(has_gaps) {
                for barrier in BarrierCase::ALL {
                    for addresses in HomeAddresses::ALL {
                        play(
                            policy(),
                            format(),
                            (place, barrier, addresses),
                            &format!("{what} x {records}"),
                        );
                        combinations += 1;
                    }
                }
            }
        }
        combinations
    };
    let combinations: u32 = std::thread::scope(|scope| {
        let policies: Vec<_> =
            policies().into_iter().map(|policy| scope.spawn(move || of_policy(policy))).collect();
        policies.into_iter().map(|policy| policy.join().expect("it says why above")).sum()
    });
    // Three of seven policies log bytes, and one of six formats holds none. Two formats have gaps.
    let homes = HomeAddresses::ALL.len() as u32;
    assert_eq!(combinations, ((7 * 6 - 3) * 3 + 7 * 2) * 4 * homes);
}

#[test]
#[should_panic(expected = "neither all")]
fn without_barriers_a_cache_that_is_lost_loses_what_was_acknowledged() {
    let policy = DataMode::Wasteless.policy(WriteThreshold::Fixed(600));
    play(
        policy,
        formats()[4].1(),
        (LogPlacement::LogRing, BarrierCase::Missing, HomeAddresses::Volume),
        "without barriers",
    );
}
