//! Runs the scripts of a case to their end, and collects the images that power cuts during the run
//! would have left: every subset of few volatile writes, random ones of many, and always a few torn
//! at single sectors.

use crate::case::{Case, Failure};
use crate::earlier_life;
use crate::lying_disk::{LyingDisk, with_zones};
use crate::memory_disks::MemoryDisks;
use crate::model::Outcome;
use crate::run_table::{self, spoiled};
use crate::setup::{Disks, journal_blocks};
use crate::snapshot;
use crate::stalls;
use crate::writer::{Progress, Writers, check_memory};
use device::{Disk, Operation};
use disks::{Atomicity, CrashPolicy, Image};
use engine::Statistics;
use ext4::{Error, Volume};
use runtime::{SplitMix, VirtualWorld};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

pub struct Snapshot {
    pub cut: u64,
    pub left: String,
    /// The cut came when the journal's superblock was to be written.
    pub at_superblock: bool,
    pub state: State,
    pub progress: Vec<Progress>,
}

pub enum State {
    /// The power was cut.
    Cut(Disks),
    /// The daemon was killed. Caches of disks go on holding what they hold.
    Killed(MemoryDisks),
}

/// Maximum number of subsets that are enumerated; of more, random ones are drawn.
const SUBSETS_MAX: u64 = 8;

/// One in this many writes of evictions is a cut: they have little to show.
const EVICTION_WRITES_A_CUT: u64 = 4;
/// One in this many cuts also kills the daemon.
const CUTS_A_KILL: u64 = 3;
/// Images that most cuts leave: images are numbered by it independently of other cuts, so
/// that one cut alone leaves the same.
const USUAL_IMAGES_A_CUT: u64 = 3;

/// Content of the disks at a cut.
pub struct CutContent {
    /// Disks with only what is durable.
    pub durable: Disks,
    /// Disks with all that was written, in flight included.
    pub written: Disks,
}

/// Result of a run.
pub struct Recording {
    pub snapshots: Vec<Snapshot>,
    /// Moments of the cuts.
    pub at_cuts: Vec<CutContent>,
    /// Outcomes of each writer's actions.
    pub outcomes: Vec<Vec<Outcome>>,
    /// The engine's counts at the end.
    pub statistics: Statistics,
}

pub fn record(
    case: &Case,
    fresh: &Disks,
    only_cut: Option<u64>,
) -> Result<Recording, Box<Failure>> {
    let unexpected = |error: Error, cut: u64| {
        let (case, why) = (case.clone(), format!("without any crash: {error}"));
        Box::new(Failure { case, cut, left: "everything".into(), why })
    };
    let lived = match case.had_earlier_life() {
        true => Some(earlier_life::cut(case, fresh).map_err(|error| unexpected(error, 0))?),
        false => None,
    };
    // Only scattered logs have snapshots, in the journal's own blocks.
    let journal = match case.setup.logs {
        Some(_) => journal_blocks(fresh).expect("mke2fs has made a journal"),
        None => Vec::new(),
    };
    let world = VirtualWorld::new(case.seed);
    let begun = run_table::with_memory(case, lived.as_ref().unwrap_or(fresh));
    let disks = match case.had_unflushed_life() {
        true => earlier_life::unflushed(case, &begun)
            .map_err(|error| unexpected(error, 0))?
            .go_on(&world, case),
        false => MemoryDisks::of(&world, &with_zones(case, &begun), case),
    };
    let snapshots = Rc::new(RefCell::new(Vec::new()));
    let at_cuts = Rc::new(RefCell::new(Vec::new()));
    let outcome = world.run({
        let (world, disks) = (world.clone(), disks.clone());
        let (snapshots, at_cuts) = (snapshots.clone(), at_cuts.clone());
        let case = case.clone();
        async move {
            let volume = disks.open(&world, &case).await?;
            let writers = Writers::prepare(&volume, &world, &case).await?;
            let progress = writers.progress.clone();
            watch(
                &disks,
                &volume,
                &case,
                Watched {
                    older_table: begun.table,
                    journal,
                    only_cut,
                    snapshots,
                    progress,
                    at_cuts,
                },
            );
            let outcomes = writers.outcomes.clone();
            for ended in writers.run(&world).await {
                ended?;
            }
            volume.close().await?;
            let statistics = volume.engine().statistics();
            Ok::<_, Error>((outcomes.take(), statistics))
        }
    });
    stalls::note(&world);
    world.end();
    disks.stop_watching();
    match outcome {
        Ok((outcomes, statistics)) => {
            let (snapshots, at_cuts) = (snapshots.take(), at_cuts.take());
            Ok(Recording { snapshots, at_cuts, outcomes, statistics })
        }
        Err(error) => Err(unexpected(error, at_cuts.borrow().len() as u64)),
    }
}

/// State of the observer of a run, and what it collects.
struct Watched {
    /// The table of runs that the mount before has left.
    older_table: Option<Image>,
    /// The journal's blocks, where snapshots may be.
    journal: Vec<u64>,
    /// The only cut that is wanted; `None`: all.
    only_cut: Option<u64>,
    snapshots: Rc<RefCell<Vec<Snapshot>>>,
    progress: Rc<RefCell<Vec<Progress>>>,
    at_cuts: Rc<RefCell<Vec<CutContent>>>,
}

/// Takes crash images from now on whenever something starts on either disk, but only at some of the
/// writes of evictions. Also checks the memory that is held then.
fn watch(disks: &MemoryDisks, volume: &Rc<Volume>, case: &Case, watched: Watched) {
    let Watched { older_table, journal, only_cut, snapshots, progress, at_cuts } = watched;
    let (all, volume, seed, setup) = (disks.clone(), volume.clone(), case.seed, case.setup);
    let zone = case.lying_disk.as_ref().map_or(0, LyingDisk::zone_size);
    let (evicting, changes, changes_a_cut) =
        (Cell::new(0u64), Cell::new(0u64), case.changes_a_cut());
    disks.on_change(move |disk, logged| {
        check_memory(&volume);
        if logged.operation == Operation::Write && logged.at >= disk.geometry().size - zone {
            evicting.set(evicting.get() + 1);
            if evicting.get() % EVICTION_WRITES_A_CUT != 0 {
                return;
            }
        }
        if changes.replace(changes.get() + 1) % changes_a_cut != 0 {
            return;
        }
        let cut = at_cuts.borrow().len() as u64;
        let [durable, written] =
            [CrashPolicy::LoseAll, CrashPolicy::KeepAll].map(|policy| all.crash(policy));
        at_cuts.borrow_mut().push(CutContent { durable, written });
        if only_cut.is_some_and(|only| only != cut) {
            return;
        }
        let mut snapshots = snapshots.borrow_mut();
        let at_superblock = logged.operation == Operation::Write
            && journal.first().is_some_and(|block| block * setup.block_size() == logged.at);
        let mut add = |left, state| {
            let progress = progress.borrow().clone();
            snapshots.push(Snapshot { cut, left, at_superblock, state, progress });
        };
        let images = images(&all, seed.wrapping_mul(0x9e37_79b9).wrapping_add(cut));
        for (number, (left, disks)) in (cut * USUAL_IMAGES_A_CUT..).zip(images) {
            let (left, disks) = spoiled(left, disks, older_table.as_ref(), number);
            let (left, disks) = snapshot::spoiled(left, disks, setup, &journal, number);
            add(left, State::Cut(disks));
        }
        if cut % CUTS_A_KILL == 0 {
            add("the daemon was killed".to_owned(), State::Killed(all.fork()));
        }
    });
}

/// Returns the images that a power cut may leave now, without repetitions.
fn images(disks: &MemoryDisks, seed: u64) -> Vec<(String, Disks)> {
    let mut images: Vec<(String, Disks)> = Vec::new();
    let mut add = |left: String, image: Disks| {
        if images.iter().all(|(_, other)| *other != image) {
            images.push((left, image));
        }
    };
    let mut subset = Subset::default();
    let mut count = 0;
    loop {
        subset.begin();
        let image = disks
            .crash_by(|disk| disk.crash_by(Atomicity::Write, &mut |limit| subset.choose(limit)));
        if subset.total() > SUBSETS_MAX {
            break;
        }
        add(format!("of the volatile writes {:?} are left", subset.digits), image);
        count += 1;
        if !subset.advance() {
            break;
        }
    }
    if count == 0 {
        add("only what is durable".into(), disks.crash(CrashPolicy::LoseAll));
        add("everything".into(), disks.crash(CrashPolicy::KeepAll));
        let seed = seed ^ 0x5eed;
        let rng = SplitMix::new(seed);
        let policy = |disk: &disks::MemoryDisk| {
            disk.crash_by(Atomicity::Write, &mut |limit| (rng.next() % limit as u64) as usize)
        };
        add(format!("whole writes chosen by seed {seed}"), disks.crash_by(policy));
    }
    let torn = CrashPolicy::Random { seed, atomicity: Atomicity::Unit(512) };
    add(format!("{torn:?}"), disks.crash(torn));
    if let Some((sector, image)) = all_but_one_sector(disks, seed) {
        add(format!("all but the newest of sector {sector} of those that are volatile"), image);
    }
    images
}

/// Returns an image in which one sector has its old content, which checksums must detect. Random
/// images hardly ever have that.
fn all_but_one_sector(disks: &MemoryDisks, seed: u64) -> Option<(u64, Disks)> {
    let crash = |lost: Option<u64>| {
        let mut sectors = 0;
        let image = disks.crash_by(|disk| {
            disk.crash_by(Atomicity::Unit(512), &mut |contents| {
                sectors += 1;
                contents - if lost == Some(sectors - 1) { 2 } else { 1 }
            })
        });
        (sectors, image)
    };
    let (sectors, _) = crash(None);
    let lost = (sectors > 0).then(|| SplitMix::new(seed).below(sectors))?;
    Some((lost, crash(Some(lost)).1))
}

/// A counter through all choices, the first choice fastest.
#[derive(Default)]
struct Subset {
    digits: Vec<usize>,
    limits: Vec<usize>,
    at: usize,
}
impl Subset {
    fn begin(&mut self) {
        self.at = 0;
    }
    fn choose(&mut self, limit: usize) -> usize {
        if self.at == self.digits.len() {
            self.digits.push(0);
            self.limits.push(limit);
        }
        self.at += 1;
        self.digits[self.at - 1]
    }
    /// Returns the number of combinations.
    fn total(&self) -> u64 {
        self.limits.iter().fold(1u64, |total, limit| total.saturating_mul(*limit as u64))
    }
    /// Advances; false when all have been seen.
    fn advance(&mut self) -> bool {
        for (digit, limit) in self.digits.iter_mut().zip(&self.limits) {
            *digit += 1;
            if *digit < *limit {
                return true;
            }
            *digit = 0;
        }
        false
    }
}
