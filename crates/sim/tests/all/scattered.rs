//! Scattered logs at every crash point, in every mode and both record formats.

use crate::common::{in_each_mode, made, run};
use disks::{CrashPolicy, MemoryDisk};
use engine::{DataMode, EngineOptions, LogKind, RecordFormat};
use ext4::{Caller, OpenParts, Volume, VolumeOptions, WriteFlags};
use runtime::{SplitMix, VirtualWorld};
use sim::script::{Action, Offset, Sync};
use sim::{Case, CaseReport, LEAST_CACHE, SNAPSHOT_EACH_RUN, setup};
use std::rc::Rc;
use units::InodeNumber;

/// Seeds of which a third has packed records.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=9;
/// Cases with pauses: among them all paces at which logs move.
const PAUSE_CASES: usize = 8;
const PAUSES: u64 = 14;

fn explore(mode: DataMode) {
    let mut total = CaseReport::default();
    let mut with_snapshots = CaseReport::default();
    for name in ["scattered-4k", "scattered-1k"] {
        let (setup, fresh) = made(name);
        setup::check(&fresh).unwrap();
        for seed in SEEDS {
            let case = Case { sample: 48, ..Case::random(setup, mode, seed, 2, 12) };
            let report = run(&case, &fresh);
            if case.snapshot_after() == Some(SNAPSHOT_EACH_RUN) {
                with_snapshots.add(report);
            }
            total.add(report);
        }
    }
    println!("{}: {total:?}", mode.name());
    assert!(total.images >= 1000, "{}: only {} images", mode.name(), total.images);
    assert!(total.swaps >= 12, "{}: hardly a log was swapped: {total:?}", mode.name());
    // Mounts of later images are counted nowhere else.
    let first_images = |report: &CaseReport| report.images - report.later_images;
    assert!(
        total.kept * 2 > first_images(&total),
        "{}: hardly a mount went on with the logs: {total:?}",
        mode.name()
    );
    let CaseReport { by_snapshot, not_by_snapshot, .. } = with_snapshots;
    let images = first_images(&with_snapshots);
    assert!(
        by_snapshot * 2 > images && not_by_snapshot * 8 > images,
        "{}: snapshots were hardly accepted, or hardly refused: {with_snapshots:?}",
        mode.name()
    );
    let [accepted, refused] =
        [total.by_table, total.not_by_table].map(|mounts| mounts * 8 > first_images(&total));
    assert!(
        accepted && refused,
        "{}: tables of runs were hardly accepted, or hardly refused: {total:?}",
        mode.name()
    );
}

in_each_mode!(
    explore: writeback_keeps_its_promise_in_scattered_logs,
    ordered_keeps_its_promise_in_scattered_logs,
    journal_keeps_its_promise_in_scattered_logs,
    wasteless_keeps_its_promise_in_scattered_logs,
    selective_keeps_its_promise_in_scattered_logs,
    adaptive_keeps_its_promise_in_scattered_logs
);

/// Uses hardly any memory, so that blocks that the log holds whole leave it before they are home.
#[test]
fn what_has_left_memory_before_it_is_home_survives_every_cut() {
    let mut total = CaseReport::default();
    for name in ["scattered-4k", "scattered-1k"] {
        let (setup, fresh) = made(name);
        for (mode, seed) in DataMode::ALL.into_iter().zip(1..) {
            let random = Case::random(setup, mode, seed, 3, 16);
            let case = Case { sample: 64, cache_bytes: LEAST_CACHE, ..random };
            total.add(run(&case, &fresh));
        }
    }
    println!("{total:?}");
    assert!(total.redirected > 20, "hardly any reads of the log: {total:?}");
}

/// Synced writes between pauses in which logs move: of another length each, so that some writes
/// meet the beginning of a swap.
#[test]
fn what_is_synced_when_logs_begin_to_move_survives_every_cut() {
    let mut total = CaseReport::default();
    let (setup, fresh) = made("scattered-4k");
    let given = |seed| {
        let rng = SplitMix::new(seed);
        let step = |number: u64| {
            let wait = Action::Wait { file: 0, micros: 300 + rng.below(8000) };
            let place = Offset::At(number % 5 * 4096);
            let write = Action::Write { file: 0, place, length: 3000 + 100 * number as usize };
            [wait.then(Sync::None), write.then(Sync::File)]
        };
        let created = Action::Create { file: 0 }.then(Sync::File);
        let script = [created].into_iter().chain((0..PAUSES).flat_map(step)).collect();
        Case { sample: 64, ..Case::given(setup, DataMode::Journal, seed, vec![script], 0) }
    };
    for case in (1..).map(given).filter(Case::has_run_table).take(PAUSE_CASES) {
        println!("seed {}", case.seed);
        total.add(run(&case, &fresh));
    }
    println!("{total:?}");
    assert!(total.swaps > 40, "hardly a log was swapped: {total:?}");
    assert!(total.by_table > 1000, "tables of runs were hardly accepted: {total:?}");
}

/// Long scripts over short logs, so that all of them are full again and again.
#[test]
fn full_logs_neither_deadlock_nor_lose_anything() {
    let (setup, fresh) = made("scattered-1k");
    for mode in DataMode::ALL {
        for seed in [5, 6] {
            let case = Case { sample: 64, ..Case::random(setup, mode, seed, 2, 40) };
            let report = run(&case, &fresh);
            assert!(report.cuts > 20, "{report:?}: hardly a commit");
        }
    }
}

/// The kernel and e2fsck must not take a log for empty that lies elsewhere than they look.
#[test]
fn a_live_scattered_log_is_refused_by_others_and_found_by_any_mount() {
    let (_, fresh) = made("scattered-4k");
    for (data, records) in
        [(DataMode::Ordered, RecordFormat::Blocks), (DataMode::Wasteless, RecordFormat::Packed)]
    {
        let world = VirtualWorld::new(1);
        let disk = MemoryDisk::from_image(Rc::new(world.clone()), fresh.home.clone());
        let open = |image: MemoryDisk, log: LogKind| {
            let engine =
                EngineOptions { data, records: Some(records), log, ..EngineOptions::default() };
            let options = VolumeOptions { engine, ..VolumeOptions::default() };
            let world = Rc::new(world.clone());
            Volume::open(OpenParts { world, home: Rc::new(image), journal: None, options })
        };
        let images =
            |disk: &MemoryDisk| setup::Disks { home: disk.image(), journal: None, table: None };
        let opened = open(disk.clone(), LogKind::Scattered);
        world.run(async move {
            let volume = opened.await.unwrap();
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            for name in ["one", "two", "three"] {
                let made = volume
                    .mknod(&root, name.as_bytes(), &Caller::ROOT, 0o100_644, 0)
                    .await
                    .unwrap();
                volume
                    .write(&made.value, &Caller::ROOT, 0, name.as_bytes(), WriteFlags::default())
                    .await
                    .unwrap();
                volume.sync().await.unwrap();
            }
        });
        let crashed =
            setup::Disks { home: disk.crash(CrashPolicy::LoseAll), journal: None, table: None };
        let said = setup::check(&crashed).unwrap_err();
        assert!(said.contains("unsupported feature") || said.contains("unknown"), "{said}");

        let after = MemoryDisk::from_image(Rc::new(world.clone()), crashed.home);
        let opened = open(after.clone(), LogKind::Circular);
        world.run(async move {
            let volume = opened.await.unwrap();
            let recovery = volume.open_report().recovery;
            assert!(recovery.logs_read > 0 && recovery.transactions >= 3, "{recovery:?}");
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            let three = volume.lookup(&root, b"three").await.unwrap();
            assert_eq!(volume.read(&three, 0, 100).await.unwrap().to_vec(), b"three");
            volume.close().await.unwrap();
        });
        setup::check(&images(&after)).unwrap();
        world.end();
    }
}
