//! Power cuts at every kind of moment, in all modes, over several lives of one volume. What a flush
//! or a durable write promised is there, blocks are old or new, and nothing old comes back.
//!
//! One case again: `SEED=17 cargo test -p blocks --test all explorer -- --nocapture`. With
//! `OKEANOS_EXPLORED=FILE` what was played is recorded there, and a later run goes on behind it
//! (`CASES=N` plays N).

mod case;
mod client;
mod content;
mod model;

use crate::common::{Images, Life, coerce, open};
use blocks::{BlockParts, BlockVolume};
use case::{Case, SEEDS};
use client::{Client, Shared, fail};
use content::ids;
use device::{Disk, Durability, LocalFuture, Operation, World};
use disks::explored::ExploredCases;
use disks::{CrashPolicy, Fault, MemoryDisk};
use format::blocks::SUPERBLOCK_AT;
use model::{Kind, Model, SECTOR};
use runtime::{Either, SplitMix, join_all, race};
use std::cell::{Cell, RefCell};
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::time::Duration;

/// Maximum duration of a life, times the changes of a flush. A request that waits for ever is found
/// by this.
const LIMIT: Duration = Duration::from_secs(60);
/// Cases between two records: a run that is stopped loses the last ones.
const RECORD_EVERY: u64 = 1000;
/// Moments of a life at which the power might have failed as well, at most. Each costs a recovery,
/// and no life.
const OTHER_CUTS: usize = 6;

/// Reads all sectors.
async fn read_all(volume: &BlockVolume) -> Vec<u64> {
    let size = volume.geometry().size;
    let mut found = Vec::new();
    for at in (0..size).step_by(1 << 20) {
        let length = (size - at).min(1 << 20) as usize;
        found.extend(ids(&volume.read(at, length).await.expect("a read")));
    }
    found
}

/// Opens the volume of a case.
async fn open_of(case: &Case, parts: BlockParts) -> BlockVolume {
    open(if case.coerces { coerce(parts).await } else { parts }).await
}

/// Content of the disks if the power had failed at another moment, and the promises given by then.
struct OtherCut {
    images: Images,
    model: Model,
}
type OtherCuts = Rc<RefCell<Vec<OtherCut>>>;

/// Takes such images from now on, while changes of the disks start.
fn watch(case: &Rc<Case>, disks: &[MemoryDisk], model: &Shared, seed: u64) -> OtherCuts {
    let cuts = OtherCuts::default();
    let (random, every) = (Rc::new(SplitMix::new(seed)), (case.changes / 16).max(1));
    for disk in disks {
        let (case, disks, model) = (case.clone(), disks.to_vec(), model.clone());
        let (cuts, random) = (cuts.clone(), random.clone());
        disk.on_change(move |_, _, _| {
            let mut cuts = cuts.borrow_mut();
            if cuts.len() < OTHER_CUTS && random.next() % every == 0 {
                let policy = case.crash(random.next());
                let images = disks.iter().map(|disk| disk.crash(policy)).collect();
                cuts.push(OtherCut { images, model: model.borrow().clone() });
            }
        });
    }
    cuts
}

/// Runs one life with clients until its power is cut, and returns what the disks hold then, and
/// would hold after other cuts.
fn live(
    case: &Rc<Case>,
    random: &SplitMix,
    images: &Images,
    model: &Shared,
    cut: bool,
    others: &SplitMix,
) -> (Images, Vec<OtherCut>) {
    let mut images = images.clone();
    if case.grows {
        images[0].grow((1 + random.next() % 3) * (1 << 20) + random.next() % 2048 * 512);
    }
    let life = Life::new(random.next(), &images);
    case.set_disks(&life.disks);
    if cut {
        let disk = &life.disks[(random.next() % life.disks.len() as u64) as usize];
        disk.cut_at(random.next() % case.changes);
    }
    let other_cuts = watch(case, &life.disks, model, others.next());
    let parts = case.parts(&life, random);
    let seeds: Vec<u64> = (0..=case.clients).map(|_| random.next()).collect();
    let (world, model, case) = (life.world.clone(), model.clone(), case.clone());
    let policy = case.crash(random.next());
    let limit = world.now().plus(LIMIT * case.changes_a_flush() as u32);
    let disk = life.disks[0].clone();
    let failing = life.disks[(random.next() % life.disks.len() as u64) as usize].clone();
    let (timer, of_case) = (world.clone(), case.clone());
    let script = async move {
        let volume = open_of(&case, parts).await;
        if case.has_faults && !case.grows {
            fail(&failing, &SplitMix::new(!seeds[0]), case.changes);
        }
        let client = |seed: &u64| Client {
            disk: disk.clone(),
            world: world.clone(),
            volume: volume.clone(),
            model: model.clone(),
            case: case.clone(),
            random: Rc::new(SplitMix::new(*seed)),
        };
        let run = |seed| -> LocalFuture<()> { Box::pin(client(seed).run()) };
        let mut all: Vec<LocalFuture<()>> = seeds[1..].iter().map(run).collect();
        if case.grows {
            let grower = client(&seeds[0]);
            all.push(Box::pin(async move { grower.grow().await }));
        }
        join_all(all).await;
        if case.empties_log() {
            the_log_empties(&client(&seeds[0])).await;
        }
        if case.closes {
            client(&seeds[0]).close().await;
        }
    };
    let limited = async move {
        match race(Box::pin(script), timer.sleep_until(limit)).await {
            Either::Left(()) => {}
            Either::Right(()) => panic!("a request waits for ever: {of_case:?}"),
        }
    };
    let left = life.run(policy, limited).1;
    life.disks.iter().for_each(MemoryDisk::stop_watching);
    (left, other_cuts.take())
}

/// A record that stays live holds the log's tail for ever: what is logged behind it adds up.
async fn the_log_empties(client: &Client) {
    let mut used = Vec::new();
    // An eviction takes as long as its writes.
    let pause = Duration::from_millis(250) * (1 + client.case.changes_a_flush() as u32);
    for _ in 0..6 {
        client.write_as(0..1, Kind::Fresh, Durability::Durable).await;
        client.world.sleep_until(client.world.now().plus(pause)).await;
        let log = client.volume.statistics().log;
        used.push(log.blocks - log.free_blocks);
    }
    assert!(used[5] <= used[1], "a record stays in the log, {used:?}: {:?}", client.case);
}

/// Recovers and judges what a life has left; the power fails in recovery `cuts` times before.
/// Returns what the disks hold then.
fn check(
    case: &Rc<Case>,
    random: &SplitMix,
    images: Images,
    model: &Shared,
    context: &str,
    cuts: u64,
) -> Images {
    let mut images = images;
    for _ in 0..cuts {
        let life = Life::new(random.next(), &images);
        case.set_disks(&life.disks);
        let disk = &life.disks[(random.next() % life.disks.len() as u64) as usize];
        disk.cut_at(random.next() % (4 * case.changes_a_flush()));
        let parts = case.parts(&life, random);
        let of_case = case.clone();
        let opening = async move { drop(open_of(&of_case, parts).await) };
        images = life.run(case.crash(random.next()), opening).1;
    }
    let life = Life::new(random.next(), &images);
    // A disk that has grown has no copy at its end yet.
    if !case.grows && case.seed % 5 == 0 {
        let range = SUPERBLOCK_AT..SUPERBLOCK_AT + SECTOR;
        life.disks[0].inject(Fault { range, ..Fault::forever(Operation::Read) });
    }
    let parts = case.parts(&life, random);
    let atomic = Rc::new(Cell::new(None));
    let (said, of_case, must_report) =
        (atomic.clone(), case.clone(), model.borrow().error_is_recorded);
    let (found, left) = life.run(CrashPolicy::LoseAll, async move {
        let volume = open_of(&of_case, parts).await;
        said.set(Some(of_case.atomic(volume.atomic_bytes() / SECTOR)));
        let is_reported = volume.report().recovery.recorded_error != 0;
        assert!(is_reported || !must_report, "an error is forgotten: {of_case:?}");
        read_all(&volume).await
    });
    let found = found.expect("no cut");
    let atomic = atomic.get().expect("the volume was opened");
    let checked = model.borrow().check_crashed(&found, atomic);
    checked.unwrap_or_else(|error| panic!("{context}: {error}"));
    model.borrow_mut().settle(&found);
    left
}

/// Plays a case and adds it to what was explored.
fn explore(case: Case, explored: &mut ExploredCases) {
    let (suite, seed) = (format!("blocks, {:?}", case.options.data), case.seed);
    explored.add(&suite, seed, &play(case));
}

fn play(case: Case) -> [(&'static str, u64); 5] {
    let case = Rc::new(case);
    let (random, others) = (SplitMix::new(!case.seed), SplitMix::new(!case.seed ^ 1 << 32));
    let mut images = case.make();
    let model = Shared::default();
    let (mut judged, mut of_second_lives, mut recoveries_cut) = (0, 0, 0);
    for number in 0..case.lives {
        let context = format!("life {number} of {case:?}");
        let cut = number + 1 < case.lives;
        let (left, other_cuts) = live(&case, &random, &images, &model, cut, &others);
        let of_life = 1 + other_cuts.len() as u64;
        judged += of_life;
        of_second_lives += if number > 0 { of_life } else { 0 };
        for OtherCut { images, model } in other_cuts {
            let model = Shared::new(RefCell::new(model));
            let cuts = u64::from(others.next() % 8 == 0);
            check(&case, &others, images, &model, &context, cuts);
            recoveries_cut += cuts;
        }
        // The power may fail in recovery, too.
        let cuts = random.next() % 3;
        images = check(&case, &random, left, &model, &context, cuts);
        recoveries_cut += cuts;
    }
    let counts = [
        ("scripts", 1),
        ("images", judged),
        ("second lives", of_second_lives),
        ("recoveries cut", recoveries_cut),
        ("recorded errors", u64::from(model.borrow().error_is_recorded)),
    ];
    // Recovered without an engine, the exported disk is at its offset at home.
    let life = Life::new(random.next(), &images);
    let parts = case.parts(&life, &random);
    let ((data_at, size), images) = life.play(async move {
        let volume = open(parts).await;
        volume.close().await.expect("a close");
        (volume.layout().data_offset(), volume.geometry().size)
    });
    if case.making.groups.is_none() {
        let mut home = vec![0; size as usize];
        images[0].read(data_at, &mut home);
        let checked = model.borrow().check_crashed(&ids(&home), case.atomic(0));
        checked.unwrap_or_else(|error| panic!("drained {case:?}: {error}"));
    }
    counts
}

#[test]
fn what_was_promised_survives_every_power_cut() {
    let seeds = match std::env::var("SEED") {
        Ok(seed) => seed.parse().map(|seed: u64| seed..seed + 1).expect("a number"),
        Err(_) => {
            let first = disks::explored::next_seed("blocks");
            let cases =
                std::env::var("CASES").map_or(SEEDS, |cases| cases.parse().expect("a number"));
            first..first + cases
        }
    };
    let mut explored = ExploredCases::default();
    for seed in seeds {
        println!("SEED={seed}");
        explore(Case::new(seed), &mut explored);
        if (seed + 1) % RECORD_EVERY == 0 {
            std::mem::take(&mut explored).save();
        }
    }
    explored.save();
}

/// The explorer finds what such disks lose where their flushes are trusted. Some of their logs are
/// refused by recovery, and some records when they are read.
#[test]
fn disks_that_ignore_flushes_lose_what_was_promised() {
    let lost = (0..SEEDS).rev().take(36).filter(|seed| {
        let mut case = Case::new(*seed);
        case.changes = case.changes * 2 / case.changes_a_flush();
        case.coerces = false;
        let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| play(case))) else {
            return false;
        };
        let why = panic.downcast::<String>().expect("a text");
        let is_lost = why.contains("holds write") || why.contains("sectors are left");
        let is_refused = why.contains("Damaged") || why.contains("a read: Failed");
        assert!(is_lost || is_refused, "SEED={seed}: {why}");
        is_lost
    });
    assert!(lost.count() > 0, "nothing is lost");
}

#[test]
fn every_combination_of_choices_is_explored() {
    let cases: Vec<Case> = (0..SEEDS).map(Case::new).collect();
    let combinations: std::collections::BTreeSet<_> = cases.iter().map(Case::combination).collect();
    assert_eq!(combinations.len(), case::COMBINATIONS, "{combinations:?}");
}
