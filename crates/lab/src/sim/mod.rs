//! `okeanos-lab sim`: the crash explorer on the command line, to replay one case or to run many.

mod report;
mod state;

use crate::error::CliError;
use crate::text::progress::Progress;
use clap::Args;
use disks::LineReplacement;
use engine::{BarrierKind, DataMode};
use report::{Evictions, Reports, print};
use sim::faults::{FaultPlan, KINDS};
use sim::lying_disk::{LyingDisk, TRIALS};
use sim::proof::Proof;
use sim::script::{Mix, Script};
use sim::setup::{self, Disks, SETUPS, Setup};
use sim::small_world::{self, Replay, SMALL_WORLDS, SmallBounds, SmallExplorer, SmallWorld};
use sim::{Ace, CACHE_BYTES, Case, CaseReport, Explorer, Failure, Scripts};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  okeanos-lab sim --seed 1 --rounds 20                     all modes on all kinds of volumes, seeds 1 to 20
  okeanos-lab sim --hours 8 --state ~/explored             goes on where the last run with this file stopped
  okeanos-lab sim --enumerated 3 --state ~/enumerated      small worlds, and every script of up to three letters
  okeanos-lab sim --ace 2 --state ~/ace                    ACE's workloads of two operations, in every mode
  okeanos-lab sim --proof ~/explored ~/enumerated --page docs/PROOF.md      what was explored with these state files
  okeanos-lab sim --lying lru                              disks that ignore flushes: finds what they lose
  okeanos-lab sim --lying lru --barrier coerce --rounds 20 the same with evictions, which lose nothing
  okeanos-lab sim --mode wasteless --setup ext4-1k --seed 17 --cut 42                       one power cut again
  okeanos-lab sim --mode journal --setup ext4-4k --script 'create:0 append:0+300,fsync'     a script of one's own

Volumes are in memory and time is virtual; mke2fs makes the volumes and e2fsck judges a sample of what is
recovered. A round has random scripts cut at every write, enumerated short scripts, and scripts on disks whose
reads, writes or flushes fail. With --lying no faults, but disks that acknowledge flushes and keep the data in
a cache of 128 KiB; where that replaces at random, evictions are no certainty, and losses are counted beside
the bound that the profile gives.";

/// Cut the power at every write of many scripts, or let the disk fail; recover, and check what is
/// there
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct SimArguments {
    #[arg(long, help = modes_help())]
    mode: Option<DataMode>,
    #[arg(long, value_parser = known_setup, help = setups_help())]
    setup: Option<Setup>,
    /// The first seed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seed: u64,
    /// Number of seeds, one after the other
    #[arg(long, alias = "cases", default_value_t = 1)]
    rounds: u64,
    /// Writers that run at once, each its own script
    #[arg(long, default_value_t = 3)]
    writers: usize,
    /// Actions in each script
    #[arg(long, default_value_t = 14)]
    steps: usize,
    /// Go on with further seeds for this time; fractions are allowed
    #[arg(long, value_name = "HOURS", conflicts_with = "rounds")]
    hours: Option<f64>,
    /// Small worlds exhaustively; then all scripts of up to this many letters of the alphabet, each
    /// once in every mode, instead of random ones
    #[arg(long, value_name = "LETTERS",
          conflicts_with_all = ["rounds", "seed", "script", "cut", "fault"])]
    enumerated: Option<usize>,
    /// Workloads within the bounds of ACE (CrashMonkey): all sequences of one operation or of two,
    /// with every persistence point, each once in every mode
    #[arg(long, value_name = "OPERATIONS", value_parser = clap::value_parser!(u8).range(1..=2),
          conflicts_with_all = ["rounds", "seed", "script", "cut", "fault", "enumerated"])]
    ace: Option<u8>,
    /// Operations of the scripts in small worlds, second lives included; each world has a bound of
    /// its own unless given; 0: none
    #[arg(long, value_name = "N", requires = "enumerated")]
    operations: Option<usize>,
    #[arg(long, requires = "enumerated", value_parser = known_world, help = worlds_help())]
    world: Option<&'static SmallWorld>,
    /// Play one failure of a small world again, as it was printed
    #[arg(long, value_name = "TEXT", exclusive = true)]
    again: Option<Replay>,
    /// Print what was explored with these state files, and with the tests that wrote such records
    /// ($OKEANOS_EXPLORED), as a Markdown page
    #[arg(long, value_name = "FILE", num_args = 1..,
          conflicts_with_all = ["state", "rounds", "hours", "enumerated", "ace"])]
    proof: Option<Vec<PathBuf>>,
    /// Write that page to this file
    #[arg(long, value_name = "FILE", requires = "proof")]
    page: Option<PathBuf>,
    /// Keeps the next seed, to go on from after an interruption, and counts what was explored
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Cases at the same time; as many as there are processors unless given
    #[arg(long)]
    jobs: Option<usize>,
    /// Play this script instead of random ones; needs --mode and --setup
    #[arg(long, requires_all = ["mode", "setup"], value_parser = sim::script_text::parse_scripts)]
    // Named by its whole path: for a `Vec` clap expects one value for each element.
    script: Option<std::vec::Vec<Script>>,
    /// Most frequent kind of steps in random scripts: all, overwrites, crossing, large or
    /// scattered; otherwise the seed says it
    #[arg(long, requires_all = ["mode", "setup"])]
    mix: Option<Mix>,
    /// Steps of each given script that are over before anything goes wrong
    #[arg(long, value_name = "STEPS", default_value_t = 0, requires = "script")]
    quiet: usize,
    /// Look at this power cut only; needs --mode and --setup
    #[arg(long, requires_all = ["mode", "setup"])]
    cut: Option<u64>,
    #[arg(long, requires_all = ["mode", "setup"], help = faults_help())]
    fault: Option<FaultPlan>,
    /// Let the bitmaps lie half way through; needs --mode and --setup
    #[arg(long, requires_all = ["mode", "setup"],
          conflicts_with_all = ["fault", "cut", "script", "lying"])]
    hostile: bool,
    /// Bytes of the engine's cache
    #[arg(long, default_value_t = CACHE_BYTES)]
    cache: u64,
    /// none: without barriers, which must lose data; coerce: evictions, needs --lying
    #[arg(long, value_enum, default_value = "flush")]
    barrier: SimulatedBarrier,
    /// Disks that ignore flushes, with a cache that replaces so
    #[arg(long, value_enum, value_name = "REPLACEMENT", conflicts_with = "fault")]
    lying: Option<Lying>,
    /// Trials of the profile that the evictions are from
    #[arg(long, value_name = "N", default_value_t = TRIALS, requires = "lying",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    trials: u32,
    /// After a failure, leave out steps of its script while it still fails
    #[arg(long)]
    shrink: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

fn worlds_help() -> String {
    let names: Vec<_> = SMALL_WORLDS.iter().map(|world| world.name).collect();
    format!("Only this small world: {}", names.join(", "))
}

fn known_world(name: &str) -> Result<&'static SmallWorld, String> {
    small_world::find(name).ok_or_else(worlds_help)
}

fn modes_help() -> String {
    format!("Only this mode: {}", DataMode::ALL.map(DataMode::name).join(", "))
}

fn setups_help() -> String {
    let names: Vec<_> = SETUPS.iter().map(|setup| setup.name).collect();
    format!("Only this kind of volume: {}", names.join(", "))
}

fn faults_help() -> String {
    let kinds = KINDS.map(|(operation, kind)| FaultPlan { operation, kind, place: 0 }.to_string());
    let kinds = kinds.map(|kind| kind.replace("@0", "@N"));
    format!(
        "Let the disk fail instead of cutting the power: {}; needs --mode and --setup",
        kinds.join(", ")
    )
}

fn known_setup(name: &str) -> Result<Setup, String> {
    setup::find(name).ok_or_else(|| {
        let names: Vec<_> = SETUPS.iter().map(|setup| setup.name).collect();
        format!("there is {}", names.join(", "))
    })
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum SimulatedBarrier {
    Flush,
    None,
    Coerce,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Lying {
    /// The least recently used makes room
    Lru,
    Random,
}

/// Returns the disks that the arguments request.
fn lying_disk(arguments: &SimArguments) -> Result<Option<LyingDisk>, CliError> {
    let replacement = match arguments.lying {
        Some(Lying::Lru) => LineReplacement::LeastRecentlyUsed,
        Some(Lying::Random) => LineReplacement::Random,
        None if arguments.barrier == SimulatedBarrier::Coerce => {
            return Err(CliError::new("--barrier coerce is for disks that lie")
                .with_remedy("Say how their cache replaces: --lying lru or --lying random."));
        }
        None => return Ok(None),
    };
    Ok(Some(match arguments.barrier {
        SimulatedBarrier::Coerce => LyingDisk::coerced(replacement, arguments.trials),
        SimulatedBarrier::Flush | SimulatedBarrier::None => LyingDisk::trusted(replacement),
    }))
}

/// Returns the case on the disks that the arguments request.
fn on_disks(case: Case, arguments: &SimArguments, lying_disk: &Option<LyingDisk>) -> Case {
    let barrier = match arguments.barrier {
        SimulatedBarrier::None => BarrierKind::None,
        SimulatedBarrier::Flush | SimulatedBarrier::Coerce => BarrierKind::Flush,
    };
    Case { barrier, lying_disk: lying_disk.clone(), ..case }
}

/// Letters of a script. One more has ten times as many scripts.
const LETTERS: usize = 3;

pub fn run(arguments: SimArguments) -> Result<(), CliError> {
    if let Some(files) = &arguments.proof {
        return state::print_proof(files, arguments.page.as_deref());
    }
    if let Some(replay) = &arguments.again {
        replay.run().map_err(|failure| CliError::new(failure.to_string()))?;
        return crate::text::output::print(&format_args!("nothing lost\n"));
    }
    let mut reports = Reports::new();
    let lying_disk = lying_disk(&arguments)?;
    match (arguments.mode, arguments.setup) {
        (Some(mode), Some(setup))
            if arguments.script.is_some()
                || arguments.cut.is_some()
                || arguments.fault.is_some()
                || arguments.mix.is_some()
                || arguments.hostile =>
        {
            let scripts = match &arguments.script {
                Some(scripts) => {
                    Scripts::Given { scripts: scripts.clone(), quiet: arguments.quiet }
                }
                None => Scripts::Random { writers: arguments.writers, steps: arguments.steps },
            };
            let fresh = make(setup)?;
            for seed in arguments.seed..arguments.seed.saturating_add(arguments.rounds) {
                let case = Case {
                    scripts: scripts.clone(),
                    mix: arguments.mix,
                    fault: arguments.fault,
                    hostile: arguments.hostile,
                    cache_bytes: arguments.cache,
                    ..Case::random(setup, mode, seed, 0, 0)
                };
                let case = on_disks(case, &arguments, &lying_disk);
                let report = sim::run(&case, &fresh, arguments.cut)
                    .map_err(|failure| error_of(failure, &arguments))?;
                reports.entry(mode.name()).or_default().add(report);
            }
        }
        _ => explore(&arguments, &lying_disk, &mut reports)?,
    }
    print(&reports, lying_disk.and_then(Evictions::of).as_ref(), arguments.json)?;
    // A state file includes them already.
    let stalls = sim::stalls::take();
    match arguments.json || stalls.is_empty() {
        true => Ok(()),
        false => report::print_stalls(&stalls),
    }
}

fn make(setup: Setup) -> Result<Disks, CliError> {
    setup::make(setup).map_err(|error| {
        CliError::new(format!("cannot make a volume: {error}")).with_remedy("install e2fsprogs")
    })
}

fn error_of(failure: Box<Failure>, arguments: &SimArguments) -> CliError {
    if !arguments.shrink {
        return CliError::new(failure.to_string());
    }
    match setup::make(failure.case.setup) {
        Ok(fresh) => CliError::new(sim::shrink(failure, &fresh).to_string()),
        Err(_) => CliError::new(failure.to_string()),
    }
}

fn explore(
    arguments: &SimArguments,
    lying_disk: &Option<LyingDisk>,
    reports: &mut Reports,
) -> Result<(), CliError> {
    let modes = arguments.mode.map_or(DataMode::ALL.to_vec(), |mode| vec![mode]);
    let setups = arguments.setup.map_or(SETUPS.to_vec(), |setup| vec![setup]);
    let letters = arguments.enumerated.unwrap_or(LETTERS);
    let explorer = Explorer::new(modes, setups, arguments.writers, arguments.steps, letters);
    let until =
        arguments.hours.map(|hours| Instant::now() + Duration::from_secs_f64(hours * 3600.0));
    let (mut seed, mut proof) = state::read(arguments)?;
    let ace = arguments.ace.map(|length| Ace::new(length.into()));
    let end = match arguments.enumerated.is_some() || ace.is_some() {
        false => seed.saturating_add(arguments.rounds),
        true => u64::MAX,
    };
    let progress = Progress::new();
    if arguments.enumerated.is_some() && seed == 1 {
        explore_small_worlds(arguments, &mut proof, &progress)?;
    }
    while until.map_or(seed < end, |until| Instant::now() < until) {
        let slice = seed.saturating_sub(1);
        let cases = match (arguments.enumerated, &ace) {
            (None, None) => Some(explorer.round(seed)),
            (Some(_), _) => Some(explorer.enumerated(slice)).filter(|cases| !cases.is_empty()),
            (None, Some(ace)) => explorer.ace(ace, slice),
        };
        let Some(cases) = cases else { break };
        let possible = cases
            .into_iter()
            .filter(|case| lying_disk.is_none() || case.fault.is_none() && !case.hostile);
        let cases: Vec<Case> = possible.map(|case| on_disks(case, arguments, lying_disk)).collect();
        run_all(&cases, arguments, reports, &mut proof, &progress)?;
        seed += 1;
        state::write(arguments, seed, &mut proof)?;
    }
    Ok(())
}

/// Explores on as many threads as there are jobs, each world on one.
fn explore_small_worlds(
    arguments: &SimArguments,
    proof: &mut Proof,
    progress: &Progress,
) -> Result<(), CliError> {
    let is_wanted = |small: &&SmallWorld| arguments.world.is_none_or(|world| world == *small);
    let worlds: Vec<&SmallWorld> = SMALL_WORLDS.iter().filter(is_wanted).collect();
    let next = AtomicUsize::new(0);
    let (sender, results) = mpsc::channel();
    let explored = std::thread::scope(|scope| {
        for _ in 0..jobs(arguments) {
            let (sender, next, worlds) = (sender.clone(), &next, &worlds);
            scope.spawn(move || {
                while let Some(world) = worlds.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
                    let bounds = SmallBounds::of(world, arguments.operations);
                    let explored = explore_small_world(world, bounds, progress);
                    if sender.send(explored.map(|report| (world.name, report))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        results.into_iter().collect::<Result<Vec<_>, CliError>>()
    })?;
    for (name, report) in &explored {
        proof.add_small_world(name, *report);
    }
    match arguments.json || explored.is_empty() {
        true => Ok(()),
        false => report::print_small_worlds(&explored),
    }
}

/// Explores first lives alone to the end, then with ever longer second lives: most failures need
/// few operations, in one life or in two.
fn explore_small_world(
    world: &'static SmallWorld,
    bounds: SmallBounds,
    progress: &Progress,
) -> Result<small_world::SmallReport, CliError> {
    let failed = |failure: Box<small_world::SmallFailure>| CliError::new(failure.to_string());
    let mut report = small_world::SmallReport::default();
    for second_life in 0..=bounds.second_life.min(bounds.operations.saturating_sub(1)) {
        let bounds = SmallBounds { second_life, ..bounds };
        let mut explorer = SmallExplorer::new(world, bounds).map_err(CliError::new)?;
        while explorer.step().map_err(failed)? {
            let (operations, done, all) = explorer.progress();
            let states = explorer.report.states + explorer.report.second_states;
            progress.show(format!(
                "{world}: {operations} operations, {done} of {all}; {states} states"
            ));
        }
        report = explorer.report;
    }
    Ok(report)
}

fn jobs(arguments: &SimArguments) -> usize {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    arguments.jobs.unwrap_or(available).clamp(1, 64)
}

/// Runs the cases on several threads, each with volumes of its own.
fn run_all(
    cases: &[Case],
    arguments: &SimArguments,
    reports: &mut Reports,
    proof: &mut Proof,
    progress: &Progress,
) -> Result<(), CliError> {
    let next = AtomicUsize::new(0);
    let (sender, results) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs(arguments) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                let mut volumes: Vec<(Setup, Disks)> = Vec::new();
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = run_on(&mut volumes, case, arguments);
                    let failed = result.is_err();
                    // The receiver has stopped once a case has failed.
                    if sender.send(result).is_err() || failed {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for result in results {
            let (case, report) = result?;
            proof.add(case, report);
            reports.entry(case.mode.name()).or_default().add(report);
            let images: u64 = reports.values().map(|report| report.images).sum();
            progress.show(format!(
                "{images} images; {} {} seed {}",
                case.mode.name(),
                case.setup.name,
                case.seed
            ));
        }
        Ok(())
    })
}

fn run_on<'a>(
    volumes: &mut Vec<(Setup, Disks)>,
    case: &'a Case,
    arguments: &SimArguments,
) -> Result<(&'a Case, CaseReport), CliError> {
    if !volumes.iter().any(|(setup, _)| *setup == case.setup) {
        volumes.push((case.setup, make(case.setup)?));
    }
    let (_, fresh) = volumes.iter().find(|(setup, _)| *setup == case.setup).expect("just made");
    sim::run(case, fresh, None)
        .map(|report| (case, report))
        .map_err(|failure| error_of(failure, arguments))
}
