//! Two commits in flight at once: the later never counts before the earlier.

use crate::common::{Layout, Rig, Setup, recovered, write_byte};
use device::Operation;
use disks::{CrashPolicy, Effect, Fault, Image, Latency, MemoryDisk};
use engine::{Credits, Engine, EngineError, RecordFormat};
use journal::{DataMode, LogKind};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use units::{HomeBlock, TransactionId};

const EARLIER: u64 = 5;
const LATER: u64 = 6;

const fn latency(micros: u64) -> Latency {
    Latency { least: Duration::from_micros(micros), spread: Duration::ZERO }
}
const SLOW: Latency = latency(1000);
const QUICK: Latency = latency(20);

fn setup(mode: DataMode) -> Setup {
    let mut setup = Setup::new(mode, Layout::Separate, 4096);
    let long = Duration::from_secs(5);
    setup.options.records = Some(RecordFormat::Packed);
    setup.options.commits_in_flight = 2;
    (setup.options.commit, setup.options.writeback, setup.options.expire) = (long, long, long);
    setup
}

type Answer = (TransactionId, Result<(), EngineError>);

#[derive(Clone)]
struct Bench {
    engine: Rc<Engine>,
    home: MemoryDisk,
    log: MemoryDisk,
    /// Answers in the order in which they came.
    answers: Rc<RefCell<Vec<Answer>>>,
}

impl Bench {
    /// The log has begun, and its disk is slow.
    async fn of(parts: engine::EngineParts, home: MemoryDisk, log: MemoryDisk) -> Bench {
        let engine = Rig::open(parts).await;
        engine.commit(write_byte(&engine, 1, 3, 1).await).await.unwrap();
        log.set_latency(SLOW);
        Bench { engine, home, log, answers: Rc::default() }
    }
    fn commit(&self, transaction: TransactionId) {
        let bench = self.clone();
        self.engine.world().spawn(Box::pin(async move {
            let answer = bench.engine.commit(transaction).await;
            bench.answers.borrow_mut().push((transaction, answer));
        }));
    }
    async fn pause(&self, micros: u64) {
        let world = self.engine.world();
        world.sleep_until(world.now().plus(Duration::from_micros(micros))).await;
    }
    async fn until_answered(&self, count: usize) {
        while self.answers.borrow().len() < count {
            self.pause(50).await;
        }
    }
    /// Issues two commits, of which the later is quick; both are in flight, and the later has
    /// arrived if it may be issued.
    async fn two(&self) -> [TransactionId; 2] {
        let earlier = write_byte(&self.engine, 1, EARLIER, 5).await;
        self.commit(earlier);
        self.pause(50).await;
        self.log.set_latency(QUICK);
        let later = write_byte(&self.engine, 1, LATER, 6).await;
        self.commit(later);
        self.pause(400).await;
        assert!(later.is_after(earlier), "they are one transaction");
        [earlier, later]
    }
}

/// Runs `script` on a fresh volume.
fn run<T: 'static>(setup: &Setup, script: impl AsyncFnOnce(Bench) -> T + 'static) -> T {
    let rig = Rig::new(setup, 1, setup.images());
    let (parts, home, log) = (rig.parts.clone(), rig.disks[0].clone(), rig.disks[1].clone());
    rig.run(async move { script(Bench::of(parts, home, log).await).await }).expect("power")
}

/// The first bytes of what the two wrote, as recovery leaves them.
fn after(setup: &Setup, images: [Image; 2]) -> Result<[u8; 2], String> {
    let rig = recovered(setup, 1, images.into())?;
    Ok([EARLIER, LATER].map(|at| rig.home_block(at)[0]))
}
const NEITHER: [u8; 2] = [crate::common::STALE; 2];

#[test]
fn a_later_commit_that_arrives_first_is_answered_last_and_proves_nothing() {
    let setup = setup(DataMode::Wasteless);
    let [cut, end] = run(&setup, async move |bench| {
        let writes = bench.log.statistics().writes;
        let ids = bench.two().await;
        assert_eq!(bench.log.statistics().writes, writes + 2, "they do not overlap");
        assert!(bench.answers.borrow().is_empty(), "the later was answered first");
        assert!(ids[0].is_after(bench.engine.committed()));
        let lost =
            |bench: &Bench| [&bench.home, &bench.log].map(|disk| disk.crash(CrashPolicy::LoseAll));
        let cut = lost(&bench);
        bench.until_answered(2).await;
        assert!(bench.answers.borrow().iter().all(|(_, answer)| answer.is_ok()));
        [cut, lost(&bench)]
    });
    assert_eq!(
        after(&setup, cut),
        Ok(NEITHER),
        "the later commit is there, and the earlier is not"
    );
    assert_eq!(after(&setup, end), Ok([5, 6]));
}

#[test]
fn only_a_later_commit_proves_that_both_were_there() {
    let setup = setup(DataMode::Wasteless);
    for third in [false, true] {
        let images = run(&setup, async move |bench| {
            let place = Rc::new(Cell::new(None));
            let seen = place.clone();
            bench.log.on_change(move |_, _, logged| {
                seen.set(seen.get().or(Some((logged.at, logged.length))))
            });
            bench.two().await;
            bench.until_answered(2).await;
            if third {
                bench.engine.commit(write_byte(&bench.engine, 1, 7, 7).await).await.unwrap();
            }
            let mut images = [&bench.home, &bench.log].map(|disk| disk.crash(CrashPolicy::LoseAll));
            let (at, length) = place.get().expect("a write");
            images[1].fill(at, length, 0);
            images
        });
        match after(&setup, images) {
            Ok(found) => assert!(!third && found == NEITHER, "{found:?}"),
            Err(why) => assert!(third && why.contains("damaged"), "{why}"),
        }
    }
}

#[test]
fn a_commit_that_fails_fails_the_one_behind_it() {
    let setup = setup(DataMode::Wasteless);
    let images = run(&setup, async move |bench| {
        bench.log.inject(Fault { effect: Effect::Fail(5), ..Fault::once(Operation::Write) });
        bench.two().await;
        assert!(bench.answers.borrow().is_empty(), "the later was answered first");
        bench.until_answered(2).await;
        for (id, answer) in &*bench.answers.borrow() {
            assert!(matches!(answer, Err(EngineError::Aborted { .. })), "{id}: {answer:?}");
        }
        [&bench.home, &bench.log].map(|disk| disk.crash(CrashPolicy::LoseAll))
    });
    assert_eq!(after(&setup, images), Ok(NEITHER));
}

#[test]
fn a_later_commit_that_fails_leaves_nobody_waiting() {
    run(&setup(DataMode::Wasteless), async move |bench| {
        bench.log.inject(Fault { after: 1, ..Fault::once(Operation::Write) });
        bench.two().await;
        bench.until_answered(2).await;
        assert!(bench.answers.borrow().iter().all(|(_, answer)| answer.is_err()));
        assert!(bench.engine.check().is_err());
    });
}

#[test]
fn waiting_for_an_empty_transaction_awaits_those_before_it() {
    run(&setup(DataMode::Wasteless), async move |bench| {
        let earlier = write_byte(&bench.engine, 1, EARLIER, 5).await;
        bench.commit(earlier);
        bench.pause(50).await;
        let handle = bench.engine.start(Credits(1)).await.unwrap();
        let empty = handle.transaction();
        assert!(empty.is_after(earlier));
        bench.commit(empty);
        bench.pause(50).await;
        handle.stop();
        bench.pause(300).await;
        assert!(
            bench.answers.borrow().is_empty(),
            "answered before what lies before it is durable"
        );
        bench.until_answered(2).await;
        assert!(bench.engine.committed().is_at_or_after(earlier));
    });
}

#[test]
fn a_commit_that_brings_data_home_waits_and_nothing_passes_it() {
    run(&setup(DataMode::Ordered), async move |bench| {
        let block = |at: u64| {
            let engine = bench.engine.clone();
            async move {
                let mut handle = engine.start(Credits(1)).await.unwrap();
                handle.create(HomeBlock(at));
                handle.stop()
            }
        };
        let (at_home, in_log) = (bench.home.statistics().writes, bench.log.statistics().writes);
        bench.commit(block(EARLIER).await);
        bench.pause(50).await;
        bench.home.set_latency(SLOW);
        bench.commit(write_byte(&bench.engine, 1, LATER, 6).await);
        bench.pause(500).await;
        let writes =
            || (bench.home.statistics().writes - at_home, bench.log.statistics().writes - in_log);
        assert_eq!(writes(), (0, 1), "it was issued beside the one before");
        // Others may join it as long as it waits.
        bench.commit(block(7).await);
        bench.until_answered(1).await;
        bench.commit(block(8).await);
        bench.pause(500).await;
        assert_eq!(writes(), (1, 1), "something passed it");
        bench.until_answered(4).await;
    });
}

#[test]
fn formats_that_do_not_say_what_was_durable_commit_one_by_one() {
    for (records, log, expected) in [
        (RecordFormat::Blocks, LogKind::Circular, 1),
        (RecordFormat::Packed, LogKind::Scattered, 1),
        (RecordFormat::Packed, LogKind::Circular, 0),
    ] {
        let mut setup = setup(DataMode::Wasteless);
        (setup.options.records, setup.options.log) = (Some(records), log);
        let warnings = Rig::new(&setup, 1, setup.images()).parts.warnings();
        assert_eq!(warnings.len(), expected, "{warnings:?}");
        assert!(
            warnings.iter().all(|warning| warning.contains("commits_in_flight=2")),
            "{warnings:?}"
        );
    }
    let mut blocks = setup(DataMode::Wasteless);
    blocks.options.records = Some(RecordFormat::Blocks);
    run(&blocks, async move |bench| {
        let writes = bench.log.statistics().writes;
        bench.two().await;
        assert_eq!(bench.log.statistics().writes, writes + 1, "they overlap");
        bench.until_answered(2).await;
    });
}

/// A block in both, and changed once more since: each commit has its own image, and home gets the
/// committed one.
#[test]
fn a_block_changed_in_both_is_as_of_each() {
    let setup = setup(DataMode::Wasteless);
    let images = run(&setup, async move |bench| {
        let lost =
            |bench: &Bench| [&bench.home, &bench.log].map(|disk| disk.crash(CrashPolicy::LoseAll));
        let mut images = Vec::new();
        for (number, slow) in [(1, SLOW), (2, latency(1500)), (3, SLOW)] {
            bench.log.set_latency(slow);
            let id = write_byte(&bench.engine, 1, EARLIER, number).await;
            if number < 3 {
                bench.commit(id);
                bench.pause(50).await;
            }
        }
        images.push(lost(&bench));
        bench.until_answered(1).await;
        images.push(lost(&bench));
        bench.until_answered(2).await;
        images.push(lost(&bench));
        images
    });
    let found = images.into_iter().map(|images| after(&setup, images).map(|[found, _]| found));
    assert_eq!(found.collect::<Result<Vec<_>, _>>(), Ok(vec![NEITHER[0], 1, 2]));
}

/// Each commit notes where the tail could be after its flush, and the next would forget it before
/// that.
#[test]
fn commits_that_overlap_take_the_tail_along_all_the_same() {
    let mut setup = setup(DataMode::Wasteless);
    (setup.layout, setup.forced_unit_access, setup.log_blocks) = (Layout::Internal, false, 256);
    setup.options.log_unit = Some(4096);
    let rig = Rig::new(&setup, 1, setup.images());
    let statistics = rig.try_play(async move |engine| {
        let writers = (0..4).map(|writer| -> device::LocalFuture<()> {
            let engine = engine.clone();
            Box::pin(async move {
                for number in 0..2000u64 {
                    let id =
                        write_byte(&engine, writer, writer * 20 + number % 20, number as u8).await;
                    engine.commit(id).await.unwrap();
                }
            })
        });
        runtime::join_all(writers.collect()).await;
        engine.statistics()
    });
    let statistics = statistics.expect("power");
    assert!(
        statistics.tail_updates > 3,
        "{} tails, {} commits",
        statistics.tail_updates,
        statistics.commits
    );
    let of_their_own = statistics.flushes.saturating_sub(1 + statistics.commits);
    assert!(of_their_own <= 1, "{of_their_own} barriers for {} tails", statistics.tail_updates);
}

/// The later has taken its room in the log before the earlier is done, so the head is behind both.
#[test]
fn a_tail_that_passes_the_earlier_commit_begins_with_the_later() {
    let mut setup = setup(DataMode::Wasteless);
    (setup.options.writeback, setup.options.expire) = (Duration::from_micros(300), Duration::ZERO);
    let images = run(&setup, async move |bench| {
        let moves = || bench.engine.statistics().tail_updates;
        bench.commit(write_byte(&bench.engine, 1, EARLIER, 5).await);
        bench.pause(50).await;
        bench.log.set_latency(latency(5000));
        bench.commit(write_byte(&bench.engine, 1, LATER, 6).await);
        bench.pause(50).await;
        bench.log.set_latency(QUICK);
        bench.until_answered(1).await;
        let moved = moves();
        while moves() == moved {
            bench.pause(50).await;
        }
        assert_eq!(bench.answers.borrow().len(), 1, "the tail has waited for the later");
        bench.until_answered(2).await;
        assert_eq!(moves(), moved + 1, "the tail has moved past the later, too");
        [&bench.home, &bench.log].map(|disk| disk.crash(CrashPolicy::LoseAll))
    });
    assert_eq!(after(&setup, images), Ok([5, 6]));
}
