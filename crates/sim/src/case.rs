//! One case: writers run their scripts on a volume. At every write, flush and discard the disk is
//! asked what a power cut would leave. Each such image is recovered and judged.

use crate::crash::{Recording, Snapshot, State, record};
use crate::faults::FaultPlan;
use crate::judge::{Looks, Wrong, judge};
use crate::liar::Liar;
use crate::model::{History, Outcome, WriteBounds};
use crate::script::{Mix, Script, ScriptSize, add_requests, add_rests, make_scripts};
use crate::script_text::format_scripts;
use crate::setup::{Disks, JournalStart, Setup};
use crate::written::WrittenLog;
use device::Operation;
use engine::{
    BarrierKind, CheckpointTimes, DataMode, EngineOptions, LogGap, RecordFormat, WriteThreshold,
};
use ext4::DurableOnly;
use runtime::SplitMix;
use std::time::Duration;

/// Bytes of a page of the kernel that splits writes.
const PAGE: usize = 4096;

/// Everything that decides a run: the same case is the same run.
#[derive(Clone, Debug)]
pub struct Case {
    pub setup: Setup,
    pub mode: DataMode,
    pub barrier: BarrierKind,
    /// The same in the life behind a cut. Another one is for tests of what must be found there.
    pub later_barrier: BarrierKind,
    pub seed: u64,
    pub scripts: Scripts,
    /// What random scripts do most; the seed says it where this does not.
    pub mix: Option<Mix>,
    /// Bytes of blocks in the engine's cache.
    pub cache_bytes: u64,
    /// Of this many images one is given to e2fsck, and is recovered a second time with two crashes
    /// on the way.
    pub sample: u64,
    /// What fails, instead of the power.
    pub fault: Option<FaultPlan>,
    /// The disks ignore flushes. Not with a fault.
    pub liar: Option<Liar>,
    /// Half way through, the bitmaps begin to lie. Instead of all else that may go wrong.
    pub hostile: bool,
    /// 0 in the first life of the disks; else it chooses scripts, paces and the like of a later
    /// one.
    pub life: u64,
}

/// Where the scripts come from.
#[derive(Clone, Debug)]
pub enum Scripts {
    /// From the case's seed.
    Random { writers: usize, steps: usize },
    /// Word for word. The first `quiet` steps of each are over before anything goes wrong.
    Given { scripts: Vec<Script>, quiet: usize },
}

/// How long the engine leaves things as they are. What goes wrong when write-back comes between two
/// commits is never seen where it comes seldom.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub commit: Duration,
    pub writeback: Duration,
    pub expire: Duration,
}

impl Pace {
    const fn of(commit: u64, writeback: u64, expire: u64) -> Pace {
        let time = Duration::from_micros;
        Pace { commit: time(commit), writeback: time(writeback), expire: time(expire) }
    }
    /// Everything in the milliseconds that a script takes.
    const EVEN: Pace = Pace::of(3000, 2000, 5000);
    /// Write-back all the time, commits only where someone waits for them.
    const EAGER: Pace = Pace::of(20_000, 100, 50);
    /// Blocks of one transaction go home in several rounds.
    const PATCHY: Pace = Pace::of(20_000, 300, 900);
    /// Write-back meets what commits have on their way home.
    const RESTLESS: Pace = Pace::of(20_000, 200, 100);
    /// Nothing goes home before the log is full, or memory.
    const LAZY: Pace = Pace::of(3000, 400_000, 1_000_000);
}

pub const CACHE_BYTES: u64 = 256 << 20;
/// Small enough that blocks are evicted all the time.
pub const SMALL_CACHE: u64 = 128 << 10;
/// As many blocks as the engine must have: nothing that is not held stays in memory.
pub const LEAST_CACHE: u64 = 0;
/// Bytes logged between two snapshots of a mapping table, see [`Case::snapshot_after`].
pub const SNAPSHOT_EACH_RUN: u64 = 1;
/// More than any script logs: pieces are written by swaps alone.
const SNAPSHOT_OF_SWAPS: u64 = 1 << 40;
/// Items of a short piece.
const SHORT_PIECE: usize = 6;
/// Writers, and steps of each, in the life behind a cut.
const LATER_SCRIPTS: (usize, usize) = (2, 7);
/// Images that one cut leaves are fewer.
const IMAGES_A_CUT: u64 = 16;
/// Of so many images that a cut leaves, one is lived on after its recovery.
const IMAGES_A_LIFE: u64 = 8;
/// Scattered logs: as many of those always, where the superblock was to say that logs are swapped,
/// or which snapshot counts.
const TURNS_AT_SUPERBLOCK: u64 = 4;
/// Of so many images one is not judged: its time goes to the lives behind others.
const IMAGES_A_LEFT_OUT: u64 = 3;
const SCATTERED_CHANGES_A_CUT: u64 = 5;
/// KiB of scattered logs that scripts fill.
const SHORT_LOGS: u64 = 512;

impl Case {
    /// A case of random scripts, without faults.
    pub fn random(setup: Setup, mode: DataMode, seed: u64, writers: usize, steps: usize) -> Case {
        Case {
            setup,
            mode,
            barrier: BarrierKind::Flush,
            later_barrier: BarrierKind::Flush,
            seed,
            scripts: Scripts::Random { writers, steps },
            mix: None,
            cache_bytes: CACHE_BYTES,
            sample: 24,
            fault: None,
            liar: None,
            hostile: false,
            life: 0,
        }
    }
    pub fn given(
        setup: Setup,
        mode: DataMode,
        seed: u64,
        scripts: Vec<Script>,
        quiet: usize,
    ) -> Case {
        Case { scripts: Scripts::Given { scripts, quiet }, ..Case::random(setup, mode, seed, 0, 0) }
    }

    /// A failing read needs a cache that does not hold everything. A failed write or flush may
    /// leave old content on the disk, so then only what is cached can be read. The cache therefore
    /// holds everything.
    pub fn with_fault(self, fault: FaultPlan) -> Case {
        let cache_bytes =
            if fault.operation == Operation::Read { LEAST_CACHE } else { CACHE_BYTES };
        Case { fault: Some(fault), cache_bytes, ..self }
    }

    pub fn scripts(&self) -> Vec<Script> {
        match &self.scripts {
            Scripts::Given { scripts, .. } => scripts.clone(),
            Scripts::Random { writers, steps } => {
                let (mix, extents, block) =
                    (self.mix(), self.setup.has_extents(), self.setup.block_size());
                let size = ScriptSize { steps: *steps, files: 3, mix, extents, block };
                let seed = self.seed ^ self.life << 32;
                let mut scripts = make_scripts(seed, *writers, size);
                if self.has_requests() {
                    add_requests(&mut scripts, &SplitMix::new(!seed), size.files);
                }
                if self.has_rests() {
                    add_rests(&mut scripts, &SplitMix::new(seed), self.pace().writeback);
                }
                scripts
            }
        }
    }
    /// Steps of each script that are over before anything goes wrong.
    pub fn quiet_steps(&self) -> usize {
        match self.scripts {
            Scripts::Given { quiet, .. } => quiet,
            Scripts::Random { steps, .. } if self.hostile => steps / 2,
            Scripts::Random { .. } => 0,
        }
    }

    /// Without it every commit is a flush, and takes the log's tail along where the log is in the
    /// volume.
    pub(crate) fn has_forced_unit_access(&self) -> bool {
        self.seed % 2 == 1
    }

    /// In the modes whose log others read otherwise: one case of four.
    pub(crate) fn has_transaction_checksum(&self) -> bool {
        self.seed / 2 % 4 == 1
    }

    /// What counts as small is learnt in half of the cases. In others it is a block, a part of one,
    /// or a byte.
    pub(crate) fn threshold(&self) -> WriteThreshold {
        match self.seed % 6 {
            0 | 2 | 4 => WriteThreshold::Auto,
            1 => WriteThreshold::Fixed(4096),
            3 => WriteThreshold::Fixed(700),
            _ => WriteThreshold::Fixed(1),
        }
    }

    /// One case of three has packed transactions, and two where that is the mode's default; one of
    /// four of those in units of 1 KiB.
    pub(crate) fn records(&self) -> (RecordFormat, Option<u32>) {
        let unit = (self.seed % 4 == 3).then_some(1024);
        let default = EngineOptions { data: self.mode, ..EngineOptions::default() }.record_format();
        match self.seed / 4 % 3 {
            0 => (RecordFormat::Blocks, None),
            1 => (RecordFormat::Packed, unit),
            _ => (default, unit),
        }
    }

    /// Overwrites in place that bypass the log are ordered before the commit in half of the cases.
    pub(crate) fn order_overwrites(&self) -> bool {
        (self.seed / 5).is_multiple_of(2)
    }

    /// Whole blocks of any request go past the cache in half of the cases.
    pub(crate) fn past_cache_from(&self) -> Option<u64> {
        let never_long = EngineOptions::default().past_cache_from;
        if (self.seed / 7).is_multiple_of(2) { Some(0) } else { never_long }
    }

    /// In one case of four writes come through the kernel's page cache: one that begins within a
    /// page and ends behind it comes in two requests (`fuse_fill_write_pages`).
    pub(crate) fn splits_at_page(&self) -> Option<usize> {
        (self.seed / 11 % 4 == 3 && self.fault.is_none() && !self.hostile).then_some(PAGE)
    }

    /// Two commits are on their way at once in half of the cases, where they may be.
    pub(crate) fn commits_in_flight(&self) -> usize {
        1 + (self.seed / 3 % 2) as usize
    }

    /// In three cases of four packed transactions in the journal lie apart. They do so by a few
    /// sectors, by more than most are long, or as the drive's times suggest.
    pub(crate) fn log_gap(&self) -> LogGap {
        let gaps = [LogGap::Off, LogGap::Always(1536), LogGap::Always(20 << 10), LogGap::Auto];
        gaps[((self.seed / 6 + self.life) % 4) as usize]
    }

    /// When all goes home: in every other case each block by its age.
    pub(crate) fn checkpoint(&self) -> CheckpointTimes {
        match (self.turn() / 3 + self.life) % 6 {
            1 => CheckpointTimes::Manual,
            3 => CheckpointTimes::Periodic(Duration::from_millis(4)),
            5 => CheckpointTimes::Idle(Duration::from_millis(1)),
            _ => CheckpointTimes::ByAge,
        }
    }

    /// Free blocks are discarded and addresses of files told in every other case.
    fn has_requests(&self) -> bool {
        (self.turn() / 2 + self.life).is_multiple_of(2) && !self.setup.is_tight() && !self.hostile
    }

    /// In two cases of three with a journal on a disk of its own, the physical sectors of the two
    /// disks have different lengths.
    pub(crate) fn has_unequal_disks(&self) -> bool {
        !(self.seed / 2).is_multiple_of(3)
    }

    /// In one case of three in scattered logs durability is enough for one file of each writer.
    pub(crate) fn durable_only(&self) -> Option<DurableOnly> {
        let has_one = self.setup.logs.is_some() && self.seed % 3 == 2;
        has_one.then(|| "file-1".parse().expect("a name"))
    }

    /// Scattered logs: in every other case they hold what an earlier life has left, which a power
    /// cut ended.
    pub(crate) fn had_earlier_life(&self) -> bool {
        let is_plain = self.liar.is_none() && self.fault.is_none() && !self.hostile;
        self.setup.logs.is_some() && is_plain && self.seed % 4 < 2
    }

    /// Scattered logs: in two of three cases memory that survives the cuts has a table of their
    /// runs.
    pub(crate) fn has_run_table(&self) -> bool {
        self.setup.logs.is_some() && self.liar.is_none() && self.seed % 3 != 1
    }

    /// Scattered logs: in every other case, and in every other later life, the disk is idle now and
    /// then, so that logs are swapped. Where it is not, what an earlier life freed is used at once.
    fn has_rests(&self) -> bool {
        let rests = match self.life {
            // Where each commit is in a snapshot, swaps are to meet that.
            0 => self.draw("rests", 2) == 0 || self.snapshot_after() == Some(SNAPSHOT_EACH_RUN),
            life => (life + life / IMAGES_A_LIFE) % 2 == 1,
        };
        self.setup.logs.is_some() && rests
    }

    /// A number below `limit` that the seed decides, for each name another one: what remainders of
    /// the seed decide goes together for ever.
    fn draw(&self, name: &str, limit: u64) -> u64 {
        let salt = name.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
        SplitMix::new(self.seed ^ salt << 32).below(limit)
    }

    /// Scattered logs: a snapshot of the mapping table is written after each run, in two cases of
    /// five; after many, never, or by swaps alone.
    pub fn snapshot_after(&self) -> Option<u64> {
        let times = [Some(SNAPSHOT_EACH_RUN), Some(3 << 20), None, Some(SNAPSHOT_OF_SWAPS)];
        match self.life {
            0 => times[[0, 0, 1, 2, 3][self.draw("snapshots", 5) as usize]],
            // Mostly what the first life has named stays, and gets a backlog.
            life => times[[3, 1, 3, 0][(life % 4) as usize]],
        }
    }

    /// In every other case pieces of a snapshot are so short that they are written with a backlog.
    pub(crate) fn snapshot_items(&self) -> usize {
        match self.draw("pieces", 2) {
            0 => SHORT_PIECE,
            _ => EngineOptions::default().snapshot_items,
        }
    }

    /// The case of the life behind a cut: short scripts of its own in the same mode.
    #[must_use]
    pub(crate) fn later_life(&self, life: u64) -> Case {
        let (writers, steps) = LATER_SCRIPTS;
        let scripts = Scripts::Random { writers, steps };
        let barrier = match self.later_barrier {
            BarrierKind::Flush => self.barrier,
            other => other,
        };
        Case { scripts, mix: None, life, barrier, ..self.clone() }
    }

    /// Which life follows the recovery of an image, if any does. Disks that lie, and volumes that
    /// are full, have one life.
    /// `always`: where it is not left to the dice.
    fn lives_on(&self, image: u64, always: bool) -> Option<u64> {
        let is_plain = self.liar.is_none() && !self.setup.is_tight();
        let is_drawn = always || (image + self.seed).is_multiple_of(IMAGES_A_LIFE);
        (is_plain && is_drawn).then_some(1 + image)
    }

    /// Whether an image is not judged, for the sake of later lives.
    fn leaves_out(&self, image: u64) -> bool {
        self.liar.is_none()
            && !self.setup.is_tight()
            && (image + self.seed) % IMAGES_A_LEFT_OUT == 1
    }

    /// Seeds take all worlds in turn; on each kind of volume another one first.
    fn turn(&self) -> u64 {
        let name =
            self.setup.name.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
        self.seed.wrapping_add(name)
    }
    fn has_short_log(&self) -> bool {
        matches!(self.setup.journal, JournalStart::Blocks(_))
            || self.setup.logs.is_some_and(|logs| logs.each < SHORT_LOGS)
    }
    fn mix(&self) -> Mix {
        if let Some(mix) = self.mix {
            return mix;
        }
        match (self.turn() / 4).wrapping_add(self.turn()) % 4 {
            _ if self.setup.is_tight() => Mix::Large,
            0 if self.has_short_log() => Mix::Large,
            0 | 1 => Mix::Overwrites,
            2 => Mix::Crossing,
            _ => Mix::All,
        }
    }
    pub(crate) fn is_scattered(&self) -> bool {
        self.mix == Some(Mix::Scattered)
    }
    /// Of so many writes, flushes and discards one is a place to cut. What is lost on scattered
    /// blocks stays lost, and there are many of them.
    pub(crate) fn changes_a_cut(&self) -> u64 {
        if self.is_scattered() { SCATTERED_CHANGES_A_CUT } else { 1 }
    }
    pub fn pace(&self) -> Pace {
        match (self.turn() + self.life) % 4 {
            _ if self.is_scattered() => Pace::RESTLESS,
            0 => Pace::EAGER,
            1 => Pace::PATCHY,
            // A short log is to move its tail because it is full, not because time passes.
            _ if self.has_short_log() => Pace::LAZY,
            _ => Pace::EVEN,
        }
    }

    /// What is promised of single writes, and how the kernel hands them over.
    pub(crate) fn write_bounds(&self) -> WriteBounds {
        WriteBounds { page: self.splits_at_page(), ..self.setup.write_bounds() }
    }

    /// `outcomes`: of each writer what became of its actions.
    pub(crate) fn histories(&self, outcomes: &[Vec<Outcome>]) -> Vec<History> {
        self.histories_from(0, outcomes)
    }

    /// The same of writers whose numbers begin with `first`.
    pub(crate) fn histories_from(&self, first: usize, outcomes: &[Vec<Outcome>]) -> Vec<History> {
        let bounds = self.write_bounds();
        let scripts = self.scripts();
        let each = scripts.iter().zip(outcomes).enumerate();
        each.map(|(writer, (script, outcomes))| {
            History::with_outcomes(first + writer, script, outcomes, bounds)
        })
        .collect()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct CaseReport {
    /// Sets of scripts run to their end.
    pub scripts: u64,
    /// Writes, flushes and discards of the runs, each a place to cut.
    pub cuts: u64,
    /// Crash images recovered and judged, those of the next two counts included.
    pub images: u64,
    pub recoveries_cut: u64,
    /// Images that were lived on and cut again, and the images that these later lives left.
    pub lives: u64,
    pub later_images: u64,
    /// Seen by e2fsck.
    pub checked: u64,
    pub faults: u64,
    /// Scripts on volumes whose bitmaps lie, and those of them in which a lie was met.
    pub hostile: u64,
    pub met: u64,
    /// Actions that found no room on the volume.
    pub refused: u64,
    /// Writes over a border of blocks that were under way at the cut of an image. Only where the
    /// mode promises that they are there whole or not at all.
    pub writes: u64,
    /// Those of them that were there in part.
    pub torn: u64,
    /// Images with a part of a write that is longer than what is promised.
    pub split: u64,
    /// Blocks that had left memory before they were home, and were read from the log.
    pub redirected: u64,
    /// Logs whose runs moved to another one.
    pub swaps: u64,
    /// Mounts that went on with what the logs held.
    pub kept: u64,
    /// Mounts that believed a table of runs, and those that had one and did not.
    pub told: u64,
    pub untold: u64,
    /// Mounts that believed a snapshot of the mapping table, and those to which one was named that
    /// they did not believe.
    pub by_snapshot: u64,
    pub not_by_snapshot: u64,
    /// Cuts that lost something, where that is counted: on disks for which evictions are no
    /// certainty.
    pub lost: u64,
}

impl CaseReport {
    pub fn add(&mut self, other: CaseReport) {
        self.scripts += other.scripts;
        self.cuts += other.cuts;
        self.images += other.images;
        self.recoveries_cut += other.recoveries_cut;
        self.lives += other.lives;
        self.later_images += other.later_images;
        self.checked += other.checked;
        self.faults += other.faults;
        self.hostile += other.hostile;
        self.met += other.met;
        self.refused += other.refused;
        self.writes += other.writes;
        self.torn += other.torn;
        self.split += other.split;
        self.redirected += other.redirected;
        self.swaps += other.swaps;
        self.kept += other.kept;
        self.told += other.told;
        self.untold += other.untold;
        self.by_snapshot += other.by_snapshot;
        self.not_by_snapshot += other.not_by_snapshot;
        self.lost += other.lost;
    }
}

#[derive(Debug)]
pub struct Failure {
    pub case: Case,
    pub cut: u64,
    /// What the disk lost, as far as it is known.
    pub left: String,
    pub why: String,
}
impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Case {
            setup,
            mode,
            seed,
            scripts,
            mix,
            cache_bytes,
            fault,
            barrier,
            liar,
            hostile,
            ..
        } = &self.case;
        writeln!(f, "{} ({})", self.why, self.left)?;
        write!(
            f,
            "replay: okeanos-lab sim --mode {} --setup {} --seed {seed}",
            mode.name(),
            setup.name
        )?;
        match scripts {
            Scripts::Random { writers, steps } => {
                write!(f, " --writers {writers} --steps {steps}")?
            }
            Scripts::Given { scripts, quiet } => {
                write!(f, " --script '{}'", format_scripts(scripts))?;
                if *quiet > 0 {
                    write!(f, " --quiet {quiet}")?;
                }
            }
        }
        if let Some(mix) = mix {
            write!(f, " --mix {mix}")?;
        }
        if *cache_bytes != CACHE_BYTES {
            write!(f, " --cache {cache_bytes}")?;
        }
        if *barrier == BarrierKind::None {
            write!(f, " --barrier none")?;
        }
        if let Some(liar) = liar {
            write!(f, " {liar}")?;
        }
        match fault {
            _ if *hostile => write!(f, " --hostile"),
            Some(fault) => write!(f, " --fault {fault}"),
            None => write!(f, " --cut {}", self.cut),
        }
    }
}

/// Runs the case on a copy of `fresh` and judges every image. `only_cut` looks at one place alone.
pub fn run(case: &Case, fresh: &Disks, only_cut: Option<u64>) -> Result<CaseReport, Box<Failure>> {
    if case.hostile {
        return crate::hostile::run(case, fresh);
    }
    if let Some(fault) = case.fault {
        return crate::faults::run(case, fresh, fault);
    }
    let Recording { snapshots, moments, outcomes, redirected, swaps } =
        record(case, fresh, only_cut)?;
    let histories = case.histories(&outcomes);
    let mut report = CaseReport {
        scripts: 1,
        cuts: moments.len() as u64,
        refused: refused(&outcomes),
        redirected,
        swaps,
        ..CaseReport::default()
    };
    let (mut last_lost, mut first_torn) = (None, None);
    let (mut log, mut last_cut) = (WrittenLog::new(case, &moments), None);
    let mut turn = 0;
    for (index, snapshot) in snapshots.into_iter().enumerate() {
        let sampled = only_cut.is_some() || (index as u64).is_multiple_of(case.sample);
        let (cut, left) = (snapshot.cut, snapshot.left.clone());
        if last_lost == Some(cut) {
            continue;
        }
        turn = if last_cut == Some(cut) { turn + 1 } else { 0 };
        // Whatever other cuts have left: one cut alone is played as it was among all.
        let image = cut.wrapping_mul(IMAGES_A_CUT) + turn;
        let life = case.lives_on(image, snapshot.at_superblock && turn < TURNS_AT_SUPERBLOCK);
        let judged = match last_cut.replace(cut) {
            Some(last) if last == cut => Ok(()),
            _ => judge_stale(case, &mut log, &snapshot, &histories, &mut report),
        };
        let judged = judged.and_then(|()| {
            if let (State::Cut(disks), None) = (&snapshot.state, &case.liar) {
                log.check(cut, disks)?;
            }
            if only_cut.is_none() && life.is_none() && case.leaves_out(cut + turn) {
                return Ok(());
            }
            judge(case, snapshot, &histories, Looks { sampled, life }, &mut report)
        });
        if let Err(wrong) = judged {
            let failure = |why| Box::new(Failure { case: case.clone(), cut, left, why });
            if case.liar.as_ref().is_some_and(Liar::may_lose) {
                report.lost += 1;
                last_lost = Some(cut);
            } else if wrong.torn {
                // Counted to the end: how often says more than that.
                report.torn += 1;
                first_torn.get_or_insert_with(|| failure(wrong.why));
            } else {
                return Err(failure(wrong.why));
            }
        }
    }
    match first_torn {
        None => Ok(report),
        Some(failure) => {
            let CaseReport { torn, writes, .. } = report;
            let why = format!("{}; torn in all: {torn} of {writes} writes", failure.why);
            Err(Box::new(Failure { why, ..*failure }))
        }
    }
}

/// Where the log may have lost something, one image more of the cut.
fn judge_stale(
    case: &Case,
    log: &mut WrittenLog,
    snapshot: &Snapshot,
    histories: &[History],
    report: &mut CaseReport,
) -> Result<(), Wrong> {
    let stale = if case.liar.is_none() { log.stale(snapshot)? } else { None };
    let Some(stale) = stale else { return Ok(()) };
    let left = stale.left.clone();
    let in_image = |Wrong { why, torn }| Wrong { why: format!("{why} ({left})"), torn };
    if let State::Cut(disks) = &stale.state {
        log.check(stale.cut, disks).map_err(|why| in_image(why.into()))?;
    }
    judge(case, stale, histories, Looks::default(), report).map_err(in_image)
}

pub(crate) fn refused(outcomes: &[Vec<Outcome>]) -> u64 {
    outcomes.iter().flatten().filter(|outcome| **outcome != Outcome::Done).count() as u64
}

/// The same failure, or another, with as few steps as leaving out one after the other finds.
pub fn shrink(failure: Box<Failure>, fresh: &Disks) -> Box<Failure> {
    let mut smallest = failure;
    let mut scripts = smallest.case.scripts();
    let quiet = smallest.case.quiet_steps();
    let mut changed = true;
    while std::mem::take(&mut changed) {
        for writer in 0..scripts.len() {
            let mut step = quiet;
            while step < scripts[writer].len() {
                let mut fewer = scripts.clone();
                fewer[writer].remove(step);
                let given = Scripts::Given { scripts: fewer.clone(), quiet };
                match run(&Case { scripts: given, ..smallest.case.clone() }, fresh, None) {
                    Ok(_) => step += 1,
                    Err(failure) => (smallest, scripts, changed) = (failure, fewer, true),
                }
            }
        }
    }
    smallest
}
