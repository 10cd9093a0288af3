//! A volume and its log as arrays of blocks, and every way a plan can be cut by a power failure.

use device::Buffer;
use format::jbd2::JournalSuperblock;
use journal::*;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use units::*;

pub const HOME_BLOCKS: u64 = 64;
const SECTOR: usize = 512;

/// Content of the disk.
#[derive(Clone)]
pub struct Disk {
    pub home: Vec<Vec<u8>>,
    /// Returns the index of the block that an address belongs to.
    pub index_of: fn(HomeBlock) -> usize,
    /// Block 0 is the journal superblock.
    pub log: Vec<Vec<u8>>,
}

impl Disk {
    pub const SECTOR: usize = SECTOR;
    /// Returns the blocks of a write, one by one: a buffer may hold several.
    pub fn blocks_of(&self, write: &Write) -> Vec<Vec<u8>> {
        let length = match write.at {
            Address::Home(_) => self.home[0].len(),
            _ => self.log[0].len(),
        };
        write
            .blocks
            .iter()
            .flat_map(|(_, buffer)| buffer.chunks(length).map(<[u8]>::to_vec))
            .collect()
    }
    pub fn write(
        &mut self,
        at: Address,
        index: usize,
        bytes: &[u8],
        sectors: std::ops::Range<usize>,
    ) {
        let block = match at {
            Address::Home(home) => &mut self.home[(self.index_of)(home) + index],
            Address::Log(log) => &mut self.log[log.get() as usize + index],
            Address::Slot(slot) => panic!("{slot:?} was not bound"),
            Address::Table(page) => panic!("page {page} of a table that is not there"),
        };
        let part = sectors.start * SECTOR..(sectors.end * SECTOR).min(bytes.len());
        block[part.clone()].copy_from_slice(&bytes[part]);
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Format {
    pub block_size: u32,
    pub checksums: bool,
    pub wide: bool,
    pub extended: bool,
}

impl Format {
    pub fn all() -> impl Iterator<Item = Format> {
        [1024, 2048, 4096].into_iter().flat_map(|block_size| {
            (0..8).map(move |bits| Format {
                block_size,
                checksums: bits & 1 != 0,
                wide: bits & 2 != 0,
                extended: bits & 4 != 0,
            })
        })
    }
}

/// A journal in use: the disk, the log, and the state in memory.
pub struct Volume {
    pub disk: Disk,
    pub cache: BTreeMap<HomeBlock, Rc<Buffer>>,
    pub superblock: JournalSuperblock,
    pub log: CircularLog,
    pub checkpoint: Checkpoint,
    pub format: Format,
    pub records: Rc<dyn Records>,
    pub block_size: BlockSize,
    pub next: TransactionId,
    /// The state that recovery must produce: every committed update.
    pub committed: Vec<Vec<u8>>,
}

impl Volume {
    /// Creates a volume. `log_blocks` includes the superblock. Home blocks hold their number, log
    /// blocks old noise.
    pub fn new(format: Format, log_blocks: u32, first: TransactionId) -> Volume {
        let block_size = BlockSize::new(format.block_size).unwrap();
        let block = |byte: u64| vec![byte as u8; block_size.bytes()];
        let mut superblock = JournalSuperblock::new(block_size, log_blocks, *b"a journal's uuid");
        superblock.set_log_format(format.checksums, format.wide, format.extended);
        superblock.set_tail(first, superblock.first);
        let mut log: Vec<Vec<u8>> = (0..u64::from(log_blocks)).map(|at| block(at ^ 0xff)).collect();
        log[0] = superblock.serialize();
        let home: Vec<Vec<u8>> = (0..HOME_BLOCKS).map(block).collect();
        let head = CircularLog::new(superblock.first, superblock.log_end());
        Volume {
            committed: home.clone(),
            disk: Disk { home, index_of: |home| home.get() as usize, log },
            cache: BTreeMap::new(),
            format,
            records: journal::records::of(&superblock),
            block_size,
            checkpoint: Checkpoint::new(first),
            log: head,
            superblock,
            next: first,
        }
    }

    pub fn running(&self) -> RunningTransaction {
        RunningTransaction::new(self.next, Instant(0), self.block_size)
    }

    pub fn stamp(&self) -> CommitStamp {
        let time = Timestamp { seconds: 1_700_000_000, nanoseconds: 5 };
        CommitStamp { time, durable: self.next.previous() }
    }

    pub fn image(&mut self, home: HomeBlock) -> &mut Buffer {
        let content = &self.committed[home.get() as usize];
        let image = self.cache.entry(home).or_insert_with(|| Rc::new(Buffer::copy_of(content)));
        Rc::<Buffer>::make_mut(image)
    }

    /// Changes bytes in memory.
    pub fn change(&mut self, home: u64, range: BlockRange, byte: u8) -> HomeBlock {
        self.image(HomeBlock(home))[range.as_usize()].fill(byte);
        HomeBlock(home)
    }

    pub fn plan(&mut self, running: RunningTransaction) -> (CommitPlan, LockedTransaction) {
        let bound = self.records.log_blocks_bound(&running.holdings());
        let locked = running.lock();
        let (cache, stamp) = (&self.cache, self.stamp());
        let images = |home: HomeBlock| cache[&home].clone();
        let mut plan =
            plan_commit(&locked, &images, &mut self.log, &*self.records, &stamp).unwrap();
        assert!(plan.log_blocks <= bound, "{} log blocks, bound {bound}", plan.log_blocks);
        plan.issue(&mut self.log);
        (plan, locked)
    }

    /// Records in memory and on disk that the plan has been carried out.
    pub fn finish(&mut self, plan: &mut CommitPlan, locked: LockedTransaction) {
        perform(&mut self.disk, &plan.plan);
        for (home, image) in &self.cache {
            self.committed[home.get() as usize] = image.to_vec();
        }
        self.next = self.next.next();
        self.checkpoint.committed(&plan.carried_out(locked.start_commit()));
    }

    pub fn commit(&mut self, running: RunningTransaction) {
        let (mut plan, locked) = self.plan(running);
        self.finish(&mut plan, locked);
    }

    /// Writes `blocks` home as last committed, and plans the new tail.
    pub fn plan_checkpoint(&mut self, blocks: &[HomeBlock]) -> Plan {
        let mut plan = Plan::default();
        for block in blocks {
            let image = Rc::new(Buffer::copy_of(&self.committed[block.get() as usize]));
            plan.write(Address::Home(*block), vec![(BlockKind::HomeData, image)]);
            self.checkpoint.home_written(*block, self.next.previous());
        }
        let tail = self.checkpoint.tail();
        self.superblock.set_tail(tail, self.log.start_of(tail).unwrap());
        let image = Rc::new(Buffer::copy_of(&self.superblock.serialize()));
        plan.steps.extend(plan_tail_update(SuperblockImage { at: LogBlock(0), image }).steps);
        plan
    }

    /// Frees log space for a transaction of `blocks` log blocks.
    pub fn make_room(&mut self, blocks: u32) {
        while self.log.free() < blocks {
            let homes = self.checkpoint.blocks_to_write(blocks, usize::MAX);
            let plan = self.plan_checkpoint(&homes);
            perform(&mut self.disk, &plan);
            self.log.release_before(self.superblock.sequence);
        }
    }
}

pub fn perform(disk: &mut Disk, plan: &Plan) {
    for step in &plan.steps {
        if let Step::Write(write) = step {
            for (index, block) in disk.blocks_of(write).into_iter().enumerate() {
                disk.write(write.at, index, &block, 0..usize::MAX / SECTOR);
            }
        }
    }
}

/// Checks every state of the disk after a power failure during `plan`. Writes before the last
/// barrier passed are there, of later ones any part, sector by sector. All subsets up to
/// `2^EXHAUSTIVE_MAX`; beyond, and for tearing, random ones. `check` gets the number of barriers
/// passed.
pub fn every_crash(
    disk: &Disk,
    plan: &Plan,
    rng: &SplitMix,
    mut check: impl FnMut(Disk, &[Barrier]),
) {
    const EXHAUSTIVE_MAX: usize = 8;
    let (mut durable, mut pending, mut passed) = (disk.clone(), Vec::new(), Vec::new());
    for step in plan.steps.iter().chain([&Step::Barrier(Barrier::CommitBeforeReply)]) {
        match step {
            Step::Write(write) => {
                for (index, block) in disk.blocks_of(write).into_iter().enumerate() {
                    pending.push((write.at, index, block));
                }
            }
            Step::Barrier(reason) => {
                let subsets =
                    if pending.len() <= EXHAUSTIVE_MAX { 1usize << pending.len() } else { 200 };
                for subset in 0..subsets {
                    let mut crashed = durable.clone();
                    for (number, (at, index, block)) in pending.iter().enumerate() {
                        let kept = match pending.len() <= EXHAUSTIVE_MAX {
                            true => subset >> number & 1 == 1,
                            false => rng.below(8) != 0,
                        };
                        let torn = rng.below(12) == 0;
                        for sector in 0..block.len() / SECTOR {
                            if kept != (torn && rng.below(2) == 0) {
                                crashed.write(*at, *index, block, sector..sector + 1);
                            }
                        }
                    }
                    check(crashed, &passed);
                }
                for (at, index, block) in pending.drain(..) {
                    durable.write(at, index, &block, 0..block.len() / SECTOR);
                }
                passed.push(*reason);
            }
        }
    }
}

/// Runs all three passes and the home writes. `Ok` holds what the replay saw.
pub fn recover(disk: &mut Disk) -> Result<Recovered, RecoverError> {
    recover_until(disk, usize::MAX)
}

#[derive(Debug)]
pub struct Recovered {
    pub scanned: Scanned,
    pub counts: [PassCounts; 3],
}

/// Runs recovery, but the power fails again after `writes_max` home writes.
pub fn recover_until(disk: &mut Disk, writes_max: usize) -> Result<Recovered, RecoverError> {
    recover_with(disk, writes_max, false)
}

/// Runs recovery likewise; with `until_damage` a damaged log ends before the damage.
pub fn recover_with(
    disk: &mut Disk,
    writes_max: usize,
    until_damage: bool,
) -> Result<Recovered, RecoverError> {
    let block_size = BlockSize::new(disk.log[0].len() as u32).unwrap();
    let superblock = JournalSuperblock::parse(&disk.log[0], block_size, disk.log.len() as u64)?;
    let log = &disk.log;
    let mut scan = ScanPass::new(&superblock)?.until_damage(until_damage);
    run(log, &mut scan)?;
    let scan_counts = scan.counts();
    assert!(scan_counts.log_blocks_read <= log.len() as u64);
    let scanned = scan.finish();
    let mut revoke = RevokePass::new(&scanned);
    run(log, &mut revoke)?;
    let revoke_counts = revoke.counts();
    let bounds = HomeBounds { blocks: disk.home.len() as u64, forbidden: Vec::new() };
    let mut replay = ReplayPass::new(&scanned, revoke.finish(), bounds);
    let mut images = ReplayImages::new(block_size);
    while let Some(at) = replay.wants() {
        replay.give(&log[at.get() as usize])?;
        replay.take_actions().for_each(|action| images.apply(action));
    }
    for mut image in images.take().into_iter().take(writes_max) {
        let home = &mut disk.home[image.home.get() as usize];
        image.fill_from(home);
        home.copy_from_slice(&image.content);
    }
    Ok(Recovered { scanned, counts: [scan_counts, revoke_counts, replay.counts()] })
}

fn run(log: &[Vec<u8>], pass: &mut dyn Pass) -> Result<(), RecoverError> {
    while let Some(at) = pass.wants() {
        pass.give(&log[at.get() as usize])?;
    }
    Ok(())
}

/// Returns the home blocks in which two states differ.
pub fn differing(left: &[Vec<u8>], right: &[Vec<u8>]) -> BTreeSet<u64> {
    (0..left.len() as u64).filter(|at| left[*at as usize] != right[*at as usize]).collect()
}
