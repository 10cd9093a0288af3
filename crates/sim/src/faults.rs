//! Runs scripts on a disk that fails a read, a write or a flush, once or from then on, or never
//! returns from a flush. All acknowledged changes must be there after recovery. After a failed
//! write or flush every later sync fails as well, and content in memory can still be read.

use crate::case::{Case, CaseReport, Failure, refused};
use crate::crash::{Snapshot, State};
use crate::judge::{ExtraChecks, Recoveries, judge, read_back};
use crate::memory_disks::MemoryDisks;
use crate::model::{CrashGuarantee, History, Outcome};
use crate::setup::Disks;
use crate::stalls;
use crate::writer::{Progress, Writers};
use device::{Operation, World};
use disks::{Atomicity, CrashPolicy, Effect, Fault, FaultTimes};
use ext4::{Error, Volume};
use runtime::{Either, VirtualWorld, race};
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;
use std::time::Duration;
use units::Refusal;

/// The failing operation, and its number (from 0): reads by their own number, all others at that
/// write, flush or discard, whichever comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    pub operation: Operation,
    pub kind: FaultKind,
    pub place: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    Once,
    Forever,
    /// The operation never completes, nor does any later one.
    Hang,
}

/// Kinds of faults.
pub const KINDS: [(Operation, FaultKind); 7] = [
    (Operation::Read, FaultKind::Once),
    (Operation::Read, FaultKind::Forever),
    (Operation::Write, FaultKind::Once),
    (Operation::Write, FaultKind::Forever),
    (Operation::Flush, FaultKind::Once),
    (Operation::Flush, FaultKind::Forever),
    (Operation::Flush, FaultKind::Hang),
];

impl FaultPlan {
    fn fault(&self) -> Fault {
        let (times, effect) = match self.kind {
            FaultKind::Once => (FaultTimes::Once, Effect::Fail(EIO)),
            FaultKind::Forever => (FaultTimes::Forever, Effect::Fail(EIO)),
            FaultKind::Hang => (FaultTimes::Forever, Effect::Hang),
        };
        let after = if self.operation == Operation::Read { self.place } else { 0 };
        Fault { times, effect, after, ..Fault::forever(self.operation) }
    }
    /// Whether the engine can no longer know what is durable.
    fn ends_writing(&self) -> bool {
        self.operation != Operation::Read && self.kind != FaultKind::Hang
    }
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = match self.operation {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Discard => "discard",
        };
        let kind = match self.kind {
            FaultKind::Once => "once",
            FaultKind::Forever => "forever",
            FaultKind::Hang => "hang",
        };
        write!(f, "{operation}-{kind}@{}", self.place)
    }
}
impl FromStr for FaultPlan {
    type Err = String;
    fn from_str(text: &str) -> Result<FaultPlan, String> {
        let place = text.split_once('@').and_then(|(_, place)| place.parse().ok());
        let plan = place.and_then(|place| {
            let all = KINDS.map(|(operation, kind)| FaultPlan { operation, kind, place });
            all.into_iter().find(|plan| plan.to_string() == text)
        });
        plan.ok_or_else(|| "such as write-once@3, read-forever@0 or flush-hang@17".to_owned())
    }
}

/// Limit of virtual time, longer than any script takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Images that a power cut after the fault leaves.
const IMAGES: u64 = 3;
/// The error number of a failed device.
const EIO: i32 = 5;

/// Behaviour of the volume on the failing disk.
struct FaultedRun {
    progress: Vec<Progress>,
    outcomes: Vec<Vec<Outcome>>,
    /// Whether the fault came before the scripts ended.
    met: bool,
    /// Whether at least one writer met an error.
    failed: bool,
}

/// Runs the case with its fault, examines the volume while it lasts, and judges the image of a
/// power cut at that time.
pub fn run(case: &Case, fresh: &Disks, plan: FaultPlan) -> Result<CaseReport, Box<Failure>> {
    let failure = |left: String, why: String| {
        Box::new(Failure { case: case.clone(), cut: plan.place, left, why })
    };
    let world = VirtualWorld::new(case.seed);
    let disks = MemoryDisks::of(&world, fresh, case);
    let outcome = world.run({
        let (world, disks, case) = (world.clone(), disks.clone(), case.clone());
        async move { run_with_fault(&world, &disks, &case, plan).await }
    });
    disks.all().for_each(|disk| disk.heal());
    let random = CrashPolicy::Random { seed: plan.place, atomicity: Atomicity::Unit(512) };
    let images: [_; IMAGES as usize] = [CrashPolicy::LoseAll, CrashPolicy::KeepAll, random]
        .map(|policy| (policy, disks.crash(policy)));
    stalls::note(&world);
    world.end();
    disks.stop_watching();
    let outcome = outcome.map_err(|why| failure("the fault lasts".into(), why))?;
    let refused = refused(&outcome.outcomes);
    let histories = case.histories(&outcome.outcomes);
    let mut report =
        CaseReport { scripts: 1, faults: outcome.met.into(), refused, ..CaseReport::default() };
    let mut known = Recoveries::default();
    for (image, (policy, disks)) in (plan.place * IMAGES..).zip(images) {
        let left = format!("{policy:?} after the fault");
        let progress = outcome.progress.clone();
        let snapshot = Snapshot {
            cut: plan.place,
            left: left.clone(),
            at_superblock: false,
            state: State::Cut(disks),
            progress,
        };
        let sampled = outcome.failed && policy == random && plan.place % case.sample == 0;
        let extra = ExtraChecks { sampled, life: case.lives_on(image, false) };
        judge(case, snapshot, &histories, extra, &mut known, &mut report)
            .map_err(|wrong| failure(left, wrong.why))?;
    }
    Ok(report)
}

async fn run_with_fault(
    world: &VirtualWorld,
    disks: &MemoryDisks,
    case: &Case,
    plan: FaultPlan,
) -> Result<FaultedRun, String> {
    let volume =
        disks.open(world, case).await.map_err(|error| format!("before any fault: {error}"))?;
    let writers = Writers::prepare(&volume, world, case)
        .await
        .map_err(|error| format!("before any fault: {error}"))?;
    let (changes, all) = (Rc::new(Cell::new(0)), disks.clone());
    let count = changes.clone();
    let reads = || disks.all().map(|disk| disk.statistics().reads).max().unwrap_or(0);
    let reads_before = reads();
    if plan.operation == Operation::Read {
        disks.inject(&plan.fault());
    } else {
        disks.on_change(move |_, _| {
            if count.replace(count.get() + 1) == plan.place {
                all.inject(&plan.fault());
            }
        });
    }
    let (progress, outcomes) = (writers.progress.clone(), writers.outcomes.clone());
    let patience = |time: Duration| world.sleep_until(world.now().plus(time));
    let ended = race(writers.run(world), patience(PATIENCE)).await;
    let errors: Vec<Error> = match ended {
        Either::Left(ends) => ends.into_iter().filter_map(Result::err).collect(),
        Either::Right(()) if plan.kind == FaultKind::Hang => Vec::new(),
        Either::Right(()) => {
            return Err("the writers hang, although no operation of the disk does".into());
        }
    };
    for error in &errors {
        // A change that begins after the journal's end finds a read-only volume; every sync fails.
        if !matches!(error, Error::Engine(_) | Error::Refused(Refusal::ReadOnly)) {
            return Err(format!("a writer got {error} instead of a failure"));
        }
    }
    let (progress, outcomes) = (progress.borrow().clone(), outcomes.borrow().clone());
    let failed = !errors.is_empty();
    if failed && plan.ends_writing() {
        sync_fails(&volume).await?;
        // The disk has lost all writes that no flush covered. They are in memory only where nothing
        // bypasses the cache.
        if plan.operation != Operation::Flush || case.past_cache_from() != Some(0) {
            still_readable(&volume, &case.histories(&outcomes), &progress).await?;
        }
    }
    if plan.kind == FaultKind::Hang {
        // The disk reads; callers that do not wait for the flush continue.
        let root = race(volume.statfs(), patience(PATIENCE)).await;
        if !matches!(root, Either::Left(Ok(_))) {
            return Err("a flush that never returns keeps others from reading".into());
        }
    }
    let seen =
        if plan.operation == Operation::Read { reads() - reads_before } else { changes.get() };
    Ok(FaultedRun { progress, outcomes, met: seen > plan.place, failed })
}

/// Checks that syncs keep failing: an error is not forgotten once reported.
async fn sync_fails(volume: &Rc<Volume>) -> Result<(), String> {
    for _ in 0..3 {
        match volume.sync().await {
            Err(error @ Error::Engine(_)) if !error.is_read_only() => {}
            Err(error) => return Err(format!("sync after the failure: {error}")),
            Ok(()) => return Err("sync after the failure claims that all is well".into()),
        }
    }
    Ok(())
}

/// Checks that writers stopped by an error see their completed steps, and perhaps the step that
/// failed.
async fn still_readable(
    volume: &Rc<Volume>,
    histories: &[History],
    progress: &[Progress],
) -> Result<(), String> {
    let found = read_back(volume, 0..histories.len())
        .await
        .map_err(|error| format!("reading after the failure: {error}"))?;
    for (writer, (found, history)) in found.iter().zip(histories).enumerate() {
        let Progress { started, done, .. } = progress[writer];
        history
            .judge(found, done, done, started, CrashGuarantee::Version)
            .map_err(|verdict| format!("read after the failure, writer {writer}: {verdict}"))?;
    }
    Ok(())
}
