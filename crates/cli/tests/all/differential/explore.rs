//! Explores all scripts up to a depth in two worlds, breadth first. A script goes on only from a
//! state that no shorter one has reached.

use super::alphabet::{Call, Kind};
use super::player::Actor;
use super::state;
use super::worlds::World;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::PathBuf;

/// Scripts between two unmounts: their directories must look the same afterwards.
const BATCH: usize = 1000;
/// Scripts played at the same time: they mostly wait for each other's processes.
const THREADS: usize = 4;

/// A call of one actor. Scripts are lists of these.
#[derive(Clone, Copy)]
pub struct Step {
    pub actor: usize,
    pub call: &'static Call,
}

/// A difference that docs/POSIX.md has a row about.
pub struct KnownDifference {
    /// Words of the row.
    pub row: &'static str,
    /// Whether it is this one, by the calls of the script and what differed.
    pub is_this: fn(&[Step], &str) -> bool,
}

/// Counts of what was explored, and the differences.
#[derive(Default)]
pub struct Exploration {
    pub scripts: usize,
    pub states: usize,
    pub differences: Vec<String>,
    /// Scripts that ended in each known difference.
    pub known: BTreeMap<&'static str, usize>,
}

/// Outcome of a script: the values of its calls, and the state seen by each actor.
#[derive(PartialEq)]
struct Outcome {
    values: Vec<String>,
    states: Vec<Vec<String>>,
    /// Whether something may wait for write-back.
    dirty: bool,
    /// Whether the last call changed something.
    changed: bool,
}

impl Outcome {
    /// Whether a lock was refused. The descriptors of a test are open in a process that another
    /// test starts, until that executes its program.
    fn is_refused_lock(&self) -> bool {
        self.values.iter().any(|value| value.contains("os error 11"))
    }
    fn differs(&self, other: &Outcome) -> Option<String> {
        let states = self.states.iter().zip(&other.states);
        let lines = states.filter_map(|(here, there)| differing(here, there));
        let values = self.values.last().zip(other.values.last()).filter(|(one, two)| one != two);
        let values = values.map(|(here, there)| format!("{here} instead of {there}"));
        let all: Vec<String> = values.into_iter().chain(lines).collect();
        (!all.is_empty()).then(|| all.join("\n      "))
    }
}

/// Returns the lines that only one of the two has.
fn differing(here: &[String], there: &[String]) -> Option<String> {
    let only = |these: &[String], those: &[String]| {
        these.iter().filter(|line| !those.contains(line)).cloned().collect::<Vec<_>>().join("; ")
    };
    let (ours, theirs) = (only(here, there), only(there, here));
    (here != there).then(|| format!("{ours} instead of {theirs}"))
}

/// Returns the directory of a script as the first actor sees it.
fn directory(world: &dyn World, number: usize) -> PathBuf {
    world.roots().swap_remove(0).join(number.to_string())
}

/// Plays a script in both worlds; again if a lock was refused, which may be another test's doing.
fn play_both(worlds: [&dyn World; 2], number: usize, script: &[Step]) -> [Outcome; 2] {
    let mut repeated = 0;
    loop {
        let outcomes = worlds.map(|world| play(world, number, script).unwrap());
        let is_refused = outcomes.iter().any(Outcome::is_refused_lock);
        repeated += 1;
        if repeated == 3 || !is_refused || outcomes[0].differs(&outcomes[1]).is_none() {
            return outcomes;
        }
        for world in worlds {
            std::fs::remove_dir_all(directory(world, number)).unwrap();
        }
    }
}

fn play(world: &dyn World, number: usize, script: &[Step]) -> io::Result<Outcome> {
    let directories: Vec<PathBuf> =
        world.roots().into_iter().map(|root| root.join(number.to_string())).collect();
    std::fs::create_dir(&directories[0])?;
    std::fs::write(directories[0].join("a"), [b'a'; 5000])?;
    std::fs::create_dir(directories[0].join("d"))?;
    let mut actors: Vec<Actor> = directories.into_iter().map(Actor::new).collect();
    let (mut dirty, mut changed) = (true, false);
    let mut values = Vec::new();
    for Step { actor, call } in script {
        let value = (call.make)(&mut actors[*actor]);
        changed = value.is_ok() && call.kind == Kind::Dirties;
        dirty = changed || dirty && (value.is_err() || call.kind != Kind::Syncs);
        values.push(value.unwrap_or_else(|error| error.to_string()));
    }
    let look = |actor: &mut Actor| {
        let mut lines = state::of_actor(actor).unwrap_or_else(|error| vec![error.to_string()]);
        lines.push(format!("locks {:?}", actor.locks));
        lines
    };
    let states = actors.iter_mut().map(look).collect();
    Ok(Outcome { values, states, dirty, changed })
}

/// Explores a world beside its reference.
pub struct Explorer<'a> {
    pub here: &'a mut dyn World,
    pub there: &'a mut dyn World,
    pub alphabet: Vec<Step>,
    pub known: &'static [KnownDifference],
    pub found: Exploration,
    seen: HashSet<(Vec<Vec<String>>, bool)>,
}

impl<'a> Explorer<'a> {
    pub fn new(
        here: &'a mut dyn World,
        there: &'a mut dyn World,
        alphabet: Vec<Step>,
        known: &'static [KnownDifference],
    ) -> Explorer<'a> {
        let (found, seen) = (Exploration::default(), HashSet::new());
        Explorer { here, there, alphabet, known, found, seen }
    }

    pub fn explore(&mut self, depth: usize) {
        let mut last: Vec<Vec<Step>> = vec![Vec::new()];
        for _ in 0..depth {
            let longer = |script: &Vec<Step>| {
                let longer = |step: &Step| [&script[..], &[*step]].concat();
                self.alphabet.iter().map(longer).collect::<Vec<_>>()
            };
            let scripts: Vec<Vec<Step>> = last.iter().flat_map(longer).collect();
            last = scripts.chunks(BATCH).flat_map(|batch| self.batch(batch)).collect();
        }
        self.found.states = self.seen.len();
    }

    /// Plays scripts; returns those that reach new states.
    fn batch(&mut self, scripts: &[Vec<Step>]) -> Vec<Vec<Step>> {
        self.found.scripts += scripts.len();
        let outcomes = self.play_all(scripts);
        let mut fresh = Vec::new();
        let mut kept = Vec::new();
        for (number, (script, [here, there])) in scripts.iter().zip(outcomes).enumerate() {
            if let Some(what) = here.differs(&there) {
                self.judge(script, what);
                continue;
            }
            let changed = here.changed;
            let is_new = self.seen.insert((here.states, here.dirty));
            if is_new {
                fresh.push(script.clone());
            }
            if is_new || changed {
                kept.push((number, script));
            }
        }
        self.here.reopen();
        for (number, script) in kept {
            let [here, there] = [&*self.here, &*self.there].map(|world| {
                state::of_directory(&directory(world, number))
                    .unwrap_or_else(|error| vec![error.to_string()])
            });
            if let Some(what) = differing(&here, &there) {
                self.report(script, format!("after the next mount: {what}"));
            }
        }
        for world in [&*self.here, &*self.there] {
            for number in 0..scripts.len() {
                std::fs::remove_dir_all(directory(world, number)).unwrap();
            }
        }
        fresh
    }

    /// Plays scripts in both worlds, some at the same time.
    fn play_all(&self, scripts: &[Vec<Step>]) -> Vec<[Outcome; 2]> {
        let worlds = [&*self.here, &*self.there];
        let play_part = |first: usize, part: &[Vec<Step>]| -> Vec<[Outcome; 2]> {
            let play = |(script, number): (&Vec<Step>, usize)| play_both(worlds, number, script);
            part.iter().zip(first..).map(play).collect()
        };
        let length = scripts.len().div_ceil(THREADS);
        std::thread::scope(|scope| {
            let parts = scripts.chunks(length).enumerate();
            let threads: Vec<_> = parts
                .map(|(index, part)| scope.spawn(move || play_part(index * length, part)))
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Counts a difference that is known, and reports any other.
    fn judge(&mut self, script: &[Step], what: String) {
        let known = self.known.iter().find(|known| (known.is_this)(script, &what));
        match known {
            Some(known) => *self.found.known.entry(known.row).or_default() += 1,
            None => self.report(script, what),
        }
    }

    fn report(&mut self, script: &[Step], what: String) {
        let steps: Vec<String> =
            script.iter().map(|step| format!("{}: {}", step.actor, step.call.text)).collect();
        self.found.differences.push(format!("  {}\n      {what}", steps.join("\n  ")));
    }
}
