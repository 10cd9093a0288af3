//! One case: writers run their scripts on a volume. At every write, flush and discard the disk
//! gives the images that a power cut would leave. Each such image is recovered and judged.

use crate::counts::counts;
use crate::crash::{Recording, Snapshot, State, record};
use crate::faults::FaultPlan;
use crate::judge::{ExtraChecks, Recoveries, Violation, judge};
use crate::lying_disk::LyingDisk;
use crate::model::{History, Outcome, WriteBounds};
use crate::script::{Action, Mix, Script, ScriptSize, add_requests, add_rests, make_scripts};
use crate::script_text::format_scripts;
use crate::setup::{Disks, JournalStart, Setup};
use crate::stalls;
use crate::written_log::WrittenLog;
use device::Operation;
use engine::{BarrierKind, CheckpointTimes, DataMode, Statistics};
use runtime::SplitMix;

/// Parameters that decide a run: the same case is the same run.
#[derive(Clone, Debug)]
pub struct Case {
    pub setup: Setup,
    pub mode: DataMode,
    pub barrier: BarrierKind,
    /// Barrier in the life after a cut. A different one is for tests of the writes that must be
    /// found.
    pub later_barrier: BarrierKind,
    pub seed: u64,
    pub scripts: Scripts,
    /// Most frequent kind of steps in random scripts; `None`: the seed decides.
    pub mix: Option<Mix>,
    /// Bytes of blocks in the engine's cache.
    pub cache_bytes: u64,
    /// One in this many images is given to e2fsck, and is recovered a second time with two crashes
    /// during recovery.
    pub sample: u64,
    /// Injected fault, instead of a power cut.
    pub fault: Option<FaultPlan>,
    /// The disks ignore flushes. Not with a fault.
    pub lying_disk: Option<LyingDisk>,
    /// Half way through, the bitmaps begin to lie. Instead of all other faults.
    pub hostile: bool,
    /// 0 in the first life of the disks; otherwise it chooses scripts, paces and the like of a
    /// later one.
    pub life: u64,
}

/// Origin of the scripts.
#[derive(Clone, Debug)]
pub enum Scripts {
    /// Scripts made from the case's seed.
    Random { writers: usize, steps: usize },
    /// Scripts given verbatim. The first `quiet` steps of each end before any fault.
    Given { scripts: Vec<Script>, quiet: usize },
}

pub const CACHE_BYTES: u64 = 256 << 20;
/// Cache bytes, so few that blocks are evicted all the time.
pub const SMALL_CACHE: u64 = 128 << 10;
/// Cache of as many blocks as the engine must have: no block stays in memory unless it is held.
pub const LEAST_CACHE: u64 = 0;
/// Writers, and steps of each, in the life behind a cut.
const LATER_SCRIPTS: (usize, usize) = (2, 7);
/// Bound of the images that one cut leaves.
const IMAGES_A_CUT: u64 = 16;
/// One in this many images that a cut leaves is continued after its recovery.
const IMAGES_A_LIFE: u64 = 4;
/// Scattered logs: images taken always when the superblock was to record that logs are swapped, or
/// which snapshot counts.
const IMAGES_AT_SUPERBLOCK: u64 = 4;
/// One in this many images is not judged: its time goes to the lives after others.
const IMAGES_A_LEFT_OUT: u64 = 3;
const SCATTERED_CHANGES_A_CUT: u64 = 5;
/// KiB of scattered logs that scripts fill.
const SHORT_LOGS: u64 = 512;

impl Case {
    /// Creates a case of random scripts, without faults.
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
            lying_disk: None,
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

    /// Adds a fault. A failing read needs a cache that does not hold everything. A failed write or
    /// flush may leave old content on the disk, so then only cached blocks can be read, and the
    /// cache holds everything.
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
                    add_rests(&mut scripts, &SplitMix::new(seed), self.intervals().writeback);
                }
                scripts
            }
        }
    }
    /// Returns how many steps of each script end before any fault.
    pub fn quiet_steps(&self) -> usize {
        match self.scripts {
            Scripts::Given { quiet, .. } => quiet,
            Scripts::Random { steps, .. } if self.hostile => steps / 2,
            Scripts::Random { .. } => 0,
        }
    }

    /// Returns the case of the life after a cut: short scripts of its own in the same mode.
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

    /// Returns the life that follows the recovery of an image, if any. `always`: regardless of the
    /// random number generator.
    pub(crate) fn lives_on(&self, image: u64, always: bool) -> Option<u64> {
        // A remainder would always choose the same of the images of a cut.
        let drawn = SplitMix::new(self.seed ^ image << 32).below(IMAGES_A_LIFE);
        let is_drawn = always || drawn == 0;
        is_drawn.then_some(1 + image)
    }

    /// Whether an image is not judged, for the sake of later lives.
    fn leaves_out(&self, image: u64) -> bool {
        self.lying_disk.is_none()
            && !self.setup.is_tight()
            && (image + self.seed) % IMAGES_A_LEFT_OUT == 1
    }

    pub(crate) fn has_short_log(&self) -> bool {
        matches!(self.setup.journal, JournalStart::Blocks(_))
            || self.setup.logs.is_some_and(|logs| logs.each < SHORT_LOGS)
    }
    pub(crate) fn is_scattered(&self) -> bool {
        self.mix == Some(Mix::Scattered)
    }
    /// Returns the number of writes, flushes and discards per cut. Losses on scattered blocks are
    /// permanent, and there are many of them.
    pub(crate) fn changes_a_cut(&self) -> u64 {
        if self.is_scattered() { SCATTERED_CHANGES_A_CUT } else { 1 }
    }
    /// Returns the guarantees of single writes, and how the kernel passes them on.
    pub(crate) fn write_bounds(&self) -> WriteBounds {
        WriteBounds { page: self.splits_at_page(), ..self.setup.write_bounds() }
    }

    /// Returns the histories of the writers. `outcomes`: the outcomes of each writer's actions.
    pub(crate) fn histories(&self, outcomes: &[Vec<Outcome>]) -> Vec<History> {
        self.histories_from(0, outcomes)
    }

    /// Returns the histories of writers whose numbers begin with `first`.
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
counts! {
    pub struct CaseReport {
        /// Sets of scripts run to their end.
        pub scripts: u64,
        /// Writes, flushes and discards of the runs, each a possible cut.
        pub cuts: u64,
        /// Crash images recovered and judged, those of the next two counts included.
        pub images: u64,
        /// Recoveries of images, but for those of a later life. Of an image that differs in no byte
        /// that an earlier recovery read, the outcome is known.
        pub recoveries: u64,
        pub recoveries_cut: u64,
        /// Images that were continued and cut again, and the images that these later lives left.
        pub lives: u64,
        pub later_images: u64,
        /// Images checked by e2fsck.
        pub checked: u64,
        pub faults: u64,
        /// Scripts on volumes whose bitmaps lie, and those of them in which a lie was met.
        pub hostile: u64,
        pub met: u64,
        /// Actions for which the volume had no space.
        pub refused: u64,
        /// Writes across a block boundary that were in progress at the cut of an image. Only where
        /// the mode promises that they are there whole or not at all.
        pub writes: u64,
        /// Number of these writes that were partially applied.
        pub torn: u64,
        /// Images with a part of a write that is longer than the promised length.
        pub split: u64,
        /// Blocks that had left memory before they were home, and were read from the log.
        pub redirected: u64,
        /// Logs whose runs moved to another one.
        pub swaps: u64,
        /// Mounts that went on with what the logs held.
        pub kept: u64,
        /// Mounts that accepted a table of runs, and those that refused one. State files of earlier
        /// releases have them under other names.
        #[serde(alias = "told")]
        pub by_table: u64,
        #[serde(alias = "untold")]
        pub not_by_table: u64,
        /// Mounts that accepted a snapshot of the mapping table, and those that refused one that
        /// was named.
        pub by_snapshot: u64,
        pub not_by_snapshot: u64,
        /// Cuts that lost something, where that is counted: on disks for which evictions are no
        /// certainty.
        pub lost: u64,
        /// Scripts that discarded free space, and that asked where a file lies.
        pub trimmed: u64,
        pub located: u64,
        /// Runs with a gap between transactions, on two disks of unequal sectors, and with a
        /// `checkpoint=` other than by age.
        pub gaps: u64,
        pub unequal_disks: u64,
        pub other_checkpoints: u64,
    }
}

#[derive(Debug)]
pub struct Failure {
    pub case: Case,
    pub cut: u64,
    /// Known losses of the disk.
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
            lying_disk,
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
        if let Some(lying_disk) = lying_disk {
            write!(f, " {lying_disk}")?;
        }
        match fault {
            _ if *hostile => write!(f, " --hostile"),
            Some(fault) => write!(f, " --fault {fault}"),
            None => write!(f, " --cut {}", self.cut),
        }
    }
}

/// Runs the case on a copy of `fresh` and judges every image. `only_cut`: the only cut to judge.
pub fn run(case: &Case, fresh: &Disks, only_cut: Option<u64>) -> Result<CaseReport, Box<Failure>> {
    let judged = play(case, fresh, only_cut);
    let in_time = stalls::check();
    let report = judged?;
    match in_time {
        Ok(()) => Ok(report),
        Err(why) => {
            let (case, left) = (case.clone(), "everything".into());
            Err(Box::new(Failure { case, cut: only_cut.unwrap_or(0), left, why }))
        }
    }
}

fn play(case: &Case, fresh: &Disks, only_cut: Option<u64>) -> Result<CaseReport, Box<Failure>> {
    if case.hostile {
        return crate::hostile::run(case, fresh);
    }
    if let Some(fault) = case.fault {
        return crate::faults::run(case, fresh, fault);
    }
    let Recording { snapshots, at_cuts, outcomes, statistics } = record(case, fresh, only_cut)?;
    let histories = case.histories(&outcomes);
    let mut report = CaseReport {
        cuts: at_cuts.len() as u64,
        refused: refused(&outcomes),
        ..report_of_run(case, &statistics)
    };
    let (mut last_lost, mut first_torn) = (None, None);
    let (mut log, mut last_cut) = (WrittenLog::new(case, &at_cuts), None);
    let (mut nth, mut known) = (0, Recoveries::default());
    for (index, snapshot) in snapshots.into_iter().enumerate() {
        let sampled = only_cut.is_some() || (index as u64) % case.sample == 0;
        let (cut, left) = (snapshot.cut, snapshot.left.clone());
        if last_lost == Some(cut) {
            continue;
        }
        nth = if last_cut == Some(cut) { nth + 1 } else { 0 };
        // Independent of the images of other cuts: one cut alone is played as it was among all.
        let image = cut.wrapping_mul(IMAGES_A_CUT) + nth;
        let life = case.lives_on(image, snapshot.at_superblock && nth < IMAGES_AT_SUPERBLOCK);
        let judged = match last_cut.replace(cut) {
            Some(last) if last == cut => Ok(()),
            _ => judge_stale(case, &mut log, &snapshot, &histories, &mut known, &mut report),
        };
        let judged = judged.and_then(|()| {
            if let (State::Cut(disks), None) = (&snapshot.state, &case.lying_disk) {
                log.check(cut, disks)?;
            }
            if only_cut.is_none() && life.is_none() && case.leaves_out(cut + nth) {
                return Ok(());
            }
            let extra = ExtraChecks { sampled, life };
            judge(case, snapshot, &histories, extra, &mut known, &mut report)
        });
        if let Err(wrong) = judged {
            let failure = |why| Box::new(Failure { case: case.clone(), cut, left, why });
            if case.lying_disk.as_ref().is_some_and(LyingDisk::may_lose) {
                report.lost += 1;
                last_lost = Some(cut);
            } else if wrong.torn {
                // Counted to the end: the number says more than the fact.
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

/// Returns the report of a run that has ended, without what its cuts have left.
fn report_of_run(case: &Case, statistics: &Statistics) -> CaseReport {
    let scripts = case.scripts();
    let has = |is: fn(&Action) -> bool| scripts.iter().flatten().any(|step| is(&step.action));
    CaseReport {
        scripts: 1,
        redirected: statistics.redirected_reads,
        swaps: statistics.swaps,
        trimmed: has(|action| matches!(action, Action::Trim { .. })).into(),
        located: has(|action| matches!(action, Action::Address { .. })).into(),
        gaps: (statistics.log.gap_bytes > 0).into(),
        unequal_disks: case.long_sectors().is_some().into(),
        other_checkpoints: (case.checkpoint() != CheckpointTimes::ByAge).into(),
        ..CaseReport::default()
    }
}

/// Judges one more image of the cut, where the log may have lost something.
fn judge_stale(
    case: &Case,
    log: &mut WrittenLog,
    snapshot: &Snapshot,
    histories: &[History],
    known: &mut Recoveries,
    report: &mut CaseReport,
) -> Result<(), Violation> {
    let stale = if case.lying_disk.is_none() { log.stale(snapshot)? } else { None };
    let Some(stale) = stale else { return Ok(()) };
    let left = stale.left.clone();
    let in_image = |Violation { why, torn }| Violation { why: format!("{why} ({left})"), torn };
    if let State::Cut(disks) = &stale.state {
        log.check(stale.cut, disks).map_err(|why| in_image(why.into()))?;
    }
    judge(case, stale, histories, ExtraChecks::default(), known, report).map_err(in_image)
}

pub(crate) fn refused(outcomes: &[Vec<Outcome>]) -> u64 {
    outcomes.iter().flatten().filter(|outcome| **outcome != Outcome::Done).count() as u64
}

/// Shrinks a failure to as few steps as leaving out one after the other finds; it may become
/// another failure.
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
