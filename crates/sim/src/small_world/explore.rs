//! The exploration: every script within the bounds, shortest first, every order of completions,
//! every cut, every second life, and its cuts.
//!
//! Scripts that begin alike share their exploration: of each script only the cuts within its last
//! operation count, for those before belong to a shorter one. An operation that changes nothing on
//! disk is not followed by others. A disk with the same content and the same expectation is
//! recovered once.

use super::cut::SurvivingWrites;
use super::life::{Life, LifeProgress, LifeResult, recovered};
use super::operation::SmallOperation;
use super::replay::{PowerCut, Replay};
use super::transactions::{Content, State, StateHistory, allows};
use super::world::{SmallWorld, Snapshots};
use crate::counts::counts;
use disks::{Image, MemoryDisk};
use engine::{BarrierKind, LogKind};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use xxhash_rust::xxh64::Xxh64;

/// Bounds of the exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallBounds {
    /// Operations of both lives together.
    pub operations: usize,
    /// Operations of a second life.
    pub second_life: usize,
    /// Requests that later ones overtake, in the first life.
    pub delayed: usize,
}

impl SmallBounds {
    /// Returns the bounds of a world. `operations`: instead of its own.
    pub fn of(small: &SmallWorld, operations: Option<usize>) -> SmallBounds {
        let operations = operations.unwrap_or(small.operations);
        SmallBounds { operations, second_life: 3, delayed: 1 }
    }
}

counts! {
    /// Counts of the exploration.
    pub struct SmallReport {
        /// First lives, orders of completions counted apart, and those of them with a swap.
        pub lives: u64,
        pub swapped: u64,
        /// Places to cut.
        pub cuts: u64,
        /// Images that cuts may leave, and those that were not known yet and were recovered.
        pub images: u64,
        pub states: u64,
        /// Second lives, counted likewise.
        pub second_lives: u64,
        pub second_images: u64,
        pub second_states: u64,
    }
}

/// Image of a cut, and the states that may be found there.
struct Crashed {
    left: SurvivingWrites,
    change: u64,
    image: Image,
    history: Rc<StateHistory>,
    acknowledged: usize,
    hash: u64,
}

/// Start of a first life.
#[derive(Clone)]
struct Start {
    image: Image,
    begun: (State, u32),
}

/// Explores one small world, script after script.
pub struct SmallExplorer {
    small: &'static SmallWorld,
    bounds: SmallBounds,
    start: Start,
    /// Scripts whose last operation changed something, of the length that was explored last.
    scripts: Vec<Vec<SmallOperation>>,
    length: usize,
    /// The next of the scripts to extend.
    next: usize,
    longer: Vec<Vec<SmallOperation>>,
    /// Hashes of disks and of what is expected of them, with the length of the second lives that
    /// were played on them.
    seen: HashMap<u64, usize>,
    pub report: SmallReport,
}

/// Operations of the second lives.
const SECOND_ALPHABET: [SmallOperation; 4] =
    [SmallOperation::Near, SmallOperation::Far, SmallOperation::Large, SmallOperation::Rest];
const SECOND_CIRCULAR: [SmallOperation; 3] =
    [SmallOperation::Near, SmallOperation::Large, SmallOperation::Rest];
const SECOND_REUSE: [SmallOperation; 4] =
    [SmallOperation::Make, SmallOperation::Free, SmallOperation::Data, SmallOperation::Rest];

impl SmallExplorer {
    pub fn new(small: &'static SmallWorld, bounds: SmallBounds) -> Result<SmallExplorer, String> {
        Ok(SmallExplorer {
            small,
            bounds,
            start: Start::of(small)?,
            scripts: vec![Vec::new()],
            length: 0,
            next: 0,
            longer: Vec::new(),
            seen: HashMap::new(),
            report: SmallReport::default(),
        })
    }

    /// Explores all scripts that are one longer than the next one. False: all are explored.
    pub fn step(&mut self) -> Result<bool, Box<SmallFailure>> {
        if self.next == self.scripts.len() {
            self.scripts = std::mem::take(&mut self.longer);
            (self.length, self.next) = (self.length + 1, 0);
        }
        if self.length >= self.bounds.operations || self.scripts.is_empty() {
            return Ok(false);
        }
        let script = self.scripts[self.next].clone();
        self.next += 1;
        for operation in self.small.alphabet {
            let longer = [&script[..], &[*operation]].concat();
            if self.explore(&longer)? {
                self.longer.push(longer);
            }
        }
        Ok(true)
    }

    /// Returns the length of the scripts that are explored now, and how many of how many are
    /// extended.
    pub fn progress(&self) -> (usize, usize, usize) {
        (self.length + 1, self.next, self.scripts.len())
    }

    /// Explores a script. Returns whether its last operation changed anything.
    fn explore(&mut self, script: &[SmallOperation]) -> Result<bool, Box<SmallFailure>> {
        let lived = self.first_life(script, &[])?;
        if lived.last_changes == 0 {
            return Ok(false);
        }
        if self.bounds.delayed > 0 {
            // A request delayed in an earlier operation belongs to a shorter script, as far as that
            // is concerned; its effect on later operations is seen here.
            for change in 0..lived.changes {
                self.first_life(script, &[change])?;
            }
        }
        Ok(true)
    }

    fn first_life(
        &mut self,
        script: &[SmallOperation],
        delayed: &[u64],
    ) -> Result<LifeResult, Box<SmallFailure>> {
        let second = self.bounds.second_life.min(self.bounds.operations - script.len());
        let start = self.start.clone();
        let life = Life {
            small: self.small,
            snapshots: self.small.snapshots,
            barrier: BarrierKind::Flush,
            image: &start.image,
            script,
            delayed,
            begun: start.begun,
        };
        let base = Replay {
            world: self.small,
            script: script.to_vec(),
            delayed: delayed.to_vec(),
            cut: None,
            second: Vec::new(),
            cut_again: None,
        };
        let (lived, crashed) = play(&life).map_err(|why| base.fails(why))?;
        self.report.lives += 1;
        self.report.swapped += u64::from(lived.swaps > 0);
        let mut last = None;
        for crashed in crashed {
            self.report.images += 1;
            self.report.cuts += u64::from(last.replace(crashed.change) != Some(crashed.change));
            if !self.is_new(crashed.hash, second) {
                continue;
            }
            self.report.states += 1;
            let cut = PowerCut { change: crashed.change, left: crashed.left };
            let replay = Replay { cut: Some(cut), ..base.clone() };
            let found = judge(self.small, &crashed).map_err(|why| replay.fails(why))?;
            self.second_lives(&crashed, found, second, &replay)?;
        }
        Ok(lived)
    }

    /// Whether no such state was followed by second lives of `second` operations. Records that it
    /// is now.
    fn is_new(&mut self, hash: u64, second: usize) -> bool {
        let known = self.seen.insert(hash, second);
        match known.filter(|known| *known >= second) {
            Some(longer) => {
                self.seen.insert(hash, longer);
                false
            }
            None => true,
        }
    }

    /// Plays second lives of up to `most` operations.
    fn second_lives(
        &mut self,
        crashed: &Crashed,
        found: State,
        most: usize,
        replay: &Replay,
    ) -> Result<(), Box<SmallFailure>> {
        let alphabet: &[SmallOperation] = match self.small.log {
            _ if self.small.reuses() => &SECOND_REUSE,
            LogKind::Scattered => &SECOND_ALPHABET,
            LogKind::Circular => &SECOND_CIRCULAR,
        };
        let mut scripts = vec![Vec::new()];
        for _ in 0..most {
            let mut longer = Vec::new();
            for script in &scripts {
                for operation in alphabet {
                    let script = [&script[..], &[*operation]].concat();
                    if self.second_life(crashed, found, &script, replay)? {
                        longer.push(script);
                    }
                }
            }
            scripts = longer;
        }
        Ok(())
    }

    /// Plays a second life. Returns whether its last operation changed anything.
    fn second_life(
        &mut self,
        crashed: &Crashed,
        found: State,
        script: &[SmallOperation],
        replay: &Replay,
    ) -> Result<bool, Box<SmallFailure>> {
        let life = Life {
            small: self.small,
            snapshots: self.small.snapshots,
            barrier: self.small.later_barrier,
            image: &crashed.image,
            script,
            delayed: &[],
            begun: (found, crashed.history.next),
        };
        let replay = Replay { second: script.to_vec(), ..replay.clone() };
        let (lived, again) = play(&life).map_err(|why| replay.fails(why))?;
        self.report.second_lives += 1;
        for again in again {
            self.report.second_images += 1;
            if !self.is_new(again.hash, 0) {
                continue;
            }
            self.report.second_states += 1;
            let cut_again = Some(PowerCut { change: again.change, left: again.left });
            judge(self.small, &again)
                .map_err(|why| Replay { cut_again, ..replay.clone() }.fails(why))?;
        }
        Ok(lived.last_changes > 0)
    }
}

/// Plays a life, and takes all images that each cut within its last operation may leave. Of a life
/// of one operation the cuts of its recovery count, too.
fn play(life: &Life) -> Result<(LifeResult, Vec<Crashed>), String> {
    let crashed = Rc::new(RefCell::new(Vec::new()));
    let last = life.script.len().saturating_sub(1);
    let lived = life.play({
        let crashed = crashed.clone();
        move |disk, change, progress| {
            if progress.operation.get().unwrap_or(0) == last {
                take(disk, change, progress, &mut crashed.borrow_mut());
            }
        }
    })?;
    Ok((lived, crashed.take()))
}

fn take(disk: &MemoryDisk, change: u64, progress: &LifeProgress, crashed: &mut Vec<Crashed>) {
    let history = Rc::new(progress.history.borrow().clone());
    let acknowledged = progress.acknowledged.get();
    let expected = expectation(&history, acknowledged);
    for left in SurvivingWrites::all(disk) {
        let image = left.of(disk);
        let hash = hash(&image, expected);
        let history = history.clone();
        crashed.push(Crashed { left, change, image, history, acknowledged, hash });
    }
}

/// Returns the hash of the states that may be found.
fn expectation(history: &StateHistory, acknowledged: usize) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    history.states[acknowledged..].hash(&mut hasher);
    history.next.hash(&mut hasher);
    hasher.finish()
}

/// Returns the hash of the disk's content. Time and random numbers are the same in all lives, so
/// equal states have equal bytes.
fn hash(image: &Image, expected: u64) -> u64 {
    let mut hasher = Xxh64::new(expected);
    for (at, page) in image.pages() {
        hasher.update(&at.to_le_bytes());
        hasher.update(page);
    }
    hasher.digest()
}

/// Recovers the image of a cut. Returns the state that a mount finds: one from the last
/// acknowledged one on.
fn judge(small: &SmallWorld, crashed: &Crashed) -> Result<State, String> {
    let Crashed { image, history, acknowledged, .. } = crashed;
    let found = recovered(small, image, small.snapshots, history.next)?;
    let states = &history.states[*acknowledged..];
    if let Some(state) = states.iter().find(|state| allows(state, &found)) {
        return Ok(*state);
    }
    let differs = |((_, found), state): &((i32, Content), &Content)| !state.allows(*found);
    let wrong = (0..).zip(found).zip(&states[0]).find(differs);
    let ((block, found), expected) = wrong.expect("a state that differs");
    Err(format!(
        "block {block} holds {found:?} instead of {expected:?}, or of one of {} later states",
        states.len() - 1
    ))
}

impl Start {
    /// Returns a fresh disk; or that of an earlier life that wrote a snapshot.
    fn of(small: &SmallWorld) -> Result<Start, String> {
        let (image, stale) = (small.fresh(), small.begun());
        if small.snapshots != Snapshots::OfSwaps {
            return Ok(Start { image, begun: (stale, 1) });
        }
        let left = Rc::new(RefCell::new(None));
        let life = Life {
            small,
            snapshots: Snapshots::Each,
            barrier: BarrierKind::Flush,
            image: &image,
            script: &[SmallOperation::Keep, SmallOperation::Near],
            delayed: &[],
            begun: (stale, 1),
        };
        let lived = life.play({
            let left = left.clone();
            // At the end, when the first one is in a snapshot that the superblock names.
            move |disk, _, progress| {
                if progress.operation.get() == Some(1) {
                    *left.borrow_mut() = Some(disk.crash(disks::CrashPolicy::LoseAll));
                }
            }
        })?;
        let image = left.take().ok_or("the earlier life changed nothing")?;
        let begun = (*lived.history.last(), lived.history.next);
        Ok(Start { image, begun })
    }
}

/// A failure, and how to reproduce it.
#[derive(Debug)]
pub struct SmallFailure {
    pub replay: Replay,
    pub why: String,
}

impl std::fmt::Display for SmallFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.why)?;
        write!(f, "replay: okeanos-lab sim --again '{}'", self.replay)
    }
}

impl Replay {
    fn fails(&self, why: String) -> Box<SmallFailure> {
        Box::new(SmallFailure { replay: self.clone(), why })
    }

    /// Plays these lives alone, up to the last of these cuts.
    pub fn run(&self) -> Result<(), Box<SmallFailure>> {
        let start = Start::of(self.world).map_err(|why| self.fails(why))?;
        let life = Life {
            small: self.world,
            snapshots: self.world.snapshots,
            barrier: BarrierKind::Flush,
            image: &start.image,
            script: &self.script,
            delayed: &self.delayed,
            begun: start.begun,
        };
        let Some(crashed) = self.crash(&life, self.cut)? else { return Ok(()) };
        let found = judge(self.world, &crashed).map_err(|why| self.fails(why))?;
        if self.second.is_empty() {
            return Ok(());
        }
        let life = Life {
            barrier: self.world.later_barrier,
            image: &crashed.image,
            script: &self.second,
            delayed: &[],
            begun: (found, crashed.history.next),
            ..life
        };
        match self.crash(&life, self.cut_again)? {
            Some(again) => judge(self.world, &again).map(drop).map_err(|why| self.fails(why)),
            None => Ok(()),
        }
    }

    /// Returns the image that one cut leaves of a life; `None`: it is not cut.
    fn crash(
        &self,
        life: &Life,
        cut: Option<PowerCut>,
    ) -> Result<Option<Crashed>, Box<SmallFailure>> {
        let taken = Rc::new(RefCell::new(None));
        let played = life.play({
            let taken = taken.clone();
            move |disk, change, progress| {
                let Some(cut) = cut.filter(|cut| cut.change == change) else { return };
                let history = Rc::new(progress.history.borrow().clone());
                let (left, image) = (cut.left, cut.left.of(disk));
                let acknowledged = progress.acknowledged.get();
                let hash = hash(&image, expectation(&history, acknowledged));
                *taken.borrow_mut() =
                    Some(Crashed { left, change, image, history, acknowledged, hash });
            }
        });
        played.map_err(|why| self.fails(why))?;
        match (cut, taken.take()) {
            (Some(cut), None) => Err(self.fails(format!("there is no change {}", cut.change))),
            (_, taken) => Ok(taken),
        }
    }
}
