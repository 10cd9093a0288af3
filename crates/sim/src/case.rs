//! One case: writers run their scripts on a volume; at every write, flush and discard the disk is asked what a
//! power cut would leave; each such image is recovered and judged.

use crate::crash::record;
use crate::faults::FaultPlan;
use crate::judge::judge;
use crate::model::History;
use crate::script::{Script, ScriptSize, make_scripts};
use crate::script_text::format_scripts;
use crate::setup::{Disks, Setup};
use device::Operation;
use engine::{BarrierKind, DataMode};

/// Everything that decides a run: the same case is the same run.
#[derive(Clone, Debug)]
pub struct Case {
    pub setup: Setup,
    pub mode: DataMode,
    pub barrier: BarrierKind,
    pub seed: u64,
    pub scripts: Scripts,
    /// Bytes of blocks in the engine's cache.
    pub cache_bytes: u64,
    /// Of this many images one is given to e2fsck, and is recovered a second time with two crashes on the way.
    pub sample: u64,
    /// What fails, instead of the power.
    pub fault: Option<FaultPlan>,
}

/// Where the scripts come from.
#[derive(Clone, Debug)]
pub enum Scripts {
    /// From the case's seed.
    Random { writers: usize, steps: usize },
    /// Word for word. Crashes begin after the first step of each.
    Given(Vec<Script>),
}

pub const CACHE_BYTES: u64 = 256 << 20;
/// Small enough that blocks are evicted all the time.
pub const SMALL_CACHE: u64 = 128 << 10;

impl Case {
    /// A case of random scripts, without faults.
    pub fn random(setup: Setup, mode: DataMode, seed: u64, writers: usize, steps: usize) -> Case {
        Case {
            setup,
            mode,
            barrier: BarrierKind::Flush,
            seed,
            scripts: Scripts::Random { writers, steps },
            cache_bytes: CACHE_BYTES,
            sample: 24,
            fault: None,
        }
    }
    pub fn given(setup: Setup, mode: DataMode, seed: u64, scripts: Vec<Script>) -> Case {
        Case { scripts: Scripts::Given(scripts), ..Case::random(setup, mode, seed, 0, 0) }
    }

    /// A failing read needs a cache that does not hold everything. A failed write or flush may leave old content on
    /// the disk, so then only what is cached can be read: a cache that holds everything.
    pub fn with_fault(self, fault: FaultPlan) -> Case {
        let cache_bytes = if fault.operation == Operation::Read { SMALL_CACHE } else { CACHE_BYTES };
        Case { fault: Some(fault), cache_bytes, ..self }
    }

    pub fn scripts(&self) -> Vec<Script> {
        match &self.scripts {
            Scripts::Given(scripts) => scripts.clone(),
            Scripts::Random { writers, steps } => {
                let extents = self.setup.has_extents();
                let size = ScriptSize { steps: *steps, files: 3, length_max: 9000, extents };
                make_scripts(self.seed, *writers, size)
            }
        }
    }
    /// Steps of each script that are over before anything goes wrong.
    pub fn quiet_steps(&self) -> usize {
        match self.scripts {
            Scripts::Given(_) => 1,
            Scripts::Random { .. } => 0,
        }
    }
    pub(crate) fn histories(&self) -> Vec<History> {
        self.scripts().iter().enumerate().map(|(writer, script)| History::of(writer, script)).collect()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// Sets of scripts run to their end.
    pub scripts: u64,
    /// Writes, flushes and discards of the runs, each a place to cut.
    pub cuts: u64,
    /// Crash images recovered and judged, those of the next two counts included.
    pub images: u64,
    pub recoveries_cut: u64,
    /// Seen by e2fsck.
    pub checked: u64,
    pub faults: u64,
}

impl Report {
    pub fn add(&mut self, other: Report) {
        self.scripts += other.scripts;
        self.cuts += other.cuts;
        self.images += other.images;
        self.recoveries_cut += other.recoveries_cut;
        self.checked += other.checked;
        self.faults += other.faults;
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
        let Case { setup, mode, seed, scripts, cache_bytes, fault, barrier, .. } = &self.case;
        writeln!(f, "{} ({})", self.why, self.left)?;
        write!(f, "replay: okeanos sim --mode {} --setup {} --seed {seed}", mode.name(), setup.name)?;
        match scripts {
            Scripts::Random { writers, steps } => write!(f, " --writers {writers} --steps {steps}")?,
            Scripts::Given(scripts) => write!(f, " --script '{}'", format_scripts(scripts))?,
        }
        if *cache_bytes != CACHE_BYTES {
            write!(f, " --cache {cache_bytes}")?;
        }
        if *barrier == BarrierKind::None {
            write!(f, " --barrier none")?;
        }
        match fault {
            Some(fault) => write!(f, " --fault {fault}"),
            None => write!(f, " --cut {}", self.cut),
        }
    }
}

/// Runs the case on a copy of `fresh` and judges every image. `only_cut` looks at one place alone.
pub fn run(case: &Case, fresh: &Disks, only_cut: Option<u64>) -> Result<Report, Box<Failure>> {
    if let Some(fault) = case.fault {
        return crate::faults::run(case, fresh, fault);
    }
    let histories = case.histories();
    let (snapshots, cuts) = record(case, fresh, only_cut)?;
    let mut report = Report { scripts: 1, cuts, ..Report::default() };
    for (index, snapshot) in snapshots.into_iter().enumerate() {
        let sampled = only_cut.is_some() || (index as u64).is_multiple_of(case.sample);
        let (cut, left) = (snapshot.cut, snapshot.left.clone());
        judge(case, snapshot, &histories, sampled, &mut report).map_err(|why| Failure {
            case: case.clone(),
            cut,
            left,
            why,
        })?;
    }
    Ok(report)
}

/// The same failure, or another, with as few steps as leaving out one after the other finds.
pub fn shrink(failure: Box<Failure>, fresh: &Disks) -> Box<Failure> {
    let mut smallest = failure;
    let mut scripts = smallest.case.scripts();
    // Random scripts crash from their first step on; the first step of given ones is spared.
    if smallest.case.quiet_steps() == 0 {
        let first = crate::script::ScriptStep {
            action: crate::script::Action::MakeDirectory { number: 3 },
            sync: crate::script::Sync::None,
        };
        scripts.iter_mut().for_each(|script| script.insert(0, first.clone()));
    }
    let mut changed = true;
    while std::mem::take(&mut changed) {
        for writer in 0..scripts.len() {
            let mut step = 1;
            while step < scripts[writer].len() {
                let mut fewer = scripts.clone();
                fewer[writer].remove(step);
                let case = Case { scripts: Scripts::Given(fewer.clone()), ..smallest.case.clone() };
                match run(&case, fresh, None) {
                    Ok(_) => step += 1,
                    Err(failure) => (smallest, scripts, changed) = (failure, fewer, true),
                }
            }
        }
    }
    smallest
}
