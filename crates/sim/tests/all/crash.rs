//! Every mode on every kind of volume. Whatever instant the power fails at, acknowledged writes are
//! there. Others are never partially applied beyond what the mode's page says.

use crate::common::{in_each_mode, made, run};
use engine::{BarrierKind, DataMode};
use sim::enumerate;
use sim::script::{Action, Mix, Script};
use sim::setup::{self, Disks, SETUPS, Setup};
use sim::{Case, CaseReport, Scripts};

const MODES: [DataMode; 6] = DataMode::ALL;

fn volumes() -> Vec<(Setup, Disks)> {
    SETUPS.iter().map(|setup| (*setup, setup::make(*setup).unwrap())).collect()
}

/// Runs random scripts of three writers on every volume, and every script of two letters on some
/// volume. Together they are to give at least 5,000 images in all modes.
fn explore(mode: DataMode) {
    let mut total = CaseReport::default();
    let volumes = volumes();
    for (setup, fresh) in &volumes {
        let report = run(&Case::random(*setup, mode, 1, 3, 14), fresh);
        assert!(report.images > 20, "{}: {report:?}: the disk was hardly written to", setup.name);
        total.add(report);
    }
    for (index, script) in enumerate::scripts(2).into_iter().enumerate() {
        let (setup, fresh) = &volumes[index % volumes.len()];
        if setup.has_extents() || !allocates(&script) {
            total.add(run(&Case::given(*setup, mode, 1, vec![script], 1), fresh));
        }
    }
    println!("{}: {total:?}", mode.name());
    assert!(total.images >= 1000, "{}: only {} images", mode.name(), total.images);
}

fn allocates(script: &Script) -> bool {
    script.iter().any(|step| matches!(step.action, Action::Allocate { .. }))
}

in_each_mode!(
    explore: writeback_keeps_its_promise_at_every_crash_point,
    ordered_keeps_its_promise_at_every_crash_point,
    journal_keeps_its_promise_at_every_crash_point,
    wasteless_keeps_its_promise_at_every_crash_point,
    selective_keeps_its_promise_at_every_crash_point,
    adaptive_keeps_its_promise_at_every_crash_point
);

/// Long enough that transaction numbers begin again at 0 while the log is in use, and that a small
/// log is full many times.
#[test]
fn numbers_that_wrap_and_a_full_log_lose_nothing() {
    for name in ["wrapping-4k", "wrapping-external-1k", "small-log-1k"] {
        let (setup, fresh) = made(name);
        for mode in MODES {
            let report = run(&Case { sample: 48, ..Case::random(setup, mode, 5, 2, 40) }, &fresh);
            assert!(report.cuts > 20, "{name}: {report:?}: hardly a commit");
        }
    }
}

/// The smallest cache evicts all it may while scripts run.
#[test]
fn a_cache_that_is_too_small_loses_nothing() {
    let fresh = setup::make(SETUPS[0]).unwrap();
    for mode in MODES {
        run(&Case { cache_bytes: 64 << 10, ..Case::random(SETUPS[0], mode, 3, 4, 20) }, &fresh);
    }
}

/// Volumes that are full before the scripts end: actions without space change nothing, and
/// everything else is kept.
#[test]
fn a_full_volume_loses_nothing() {
    for name in ["tight-1k", "tight-external-4k"] {
        let (setup, fresh) = made(name);
        let mut lives = 0;
        for mode in MODES {
            let report = run(&Case { sample: 12, ..Case::random(setup, mode, 1, 3, 16) }, &fresh);
            assert!(
                report.refused > 0,
                "{name}, {}: {report:?}: the volume was never full",
                mode.name()
            );
            lives += report.lives;
        }
        assert!(lives > 0, "{name}: no second life");
    }
}

/// Runs the crash tests on an engine without barriers, over a disk that needs them: the tests must
/// notice.
#[test]
fn a_missing_barrier_is_found() {
    let setup = SETUPS[0];
    let fresh = setup::make(setup).unwrap();
    for mode in MODES {
        let caught = (1..=4).any(|seed| {
            let case = Case { sample: 1000, ..Case::random(setup, mode, seed, 3, 14) };
            sim::run(&Case { barrier: BarrierKind::None, ..case }, &fresh, None).is_err()
        });
        assert!(caught, "{} without barriers lost nothing in four runs", mode.name());
    }
}

#[test]
fn a_failing_script_is_shrunk_to_few_steps_that_still_fail() {
    let setup = SETUPS[0];
    let fresh = setup::make(setup).unwrap();
    let failing = |seed| {
        let case = Case::random(setup, DataMode::Journal, seed, 2, 10);
        sim::run(&Case { barrier: BarrierKind::None, sample: 1000, ..case }, &fresh, None).err()
    };
    let failure = (1..=9).find_map(failing).expect("no barriers, no safety");
    let small = sim::shrink(failure, &fresh);
    let steps: usize = small.case.scripts().iter().map(Vec::len).sum();
    assert!(steps < 12, "{small}");
    assert!(sim::run(&small.case, &fresh, Some(small.cut)).is_err(), "{small}");
}

/// A failure must not be shrunk to another kind of run.
#[test]
fn random_scripts_given_word_for_word_are_the_same_run() {
    let fresh = setup::make(SETUPS[0]).unwrap();
    let random = Case::random(SETUPS[0], DataMode::Selective, 9, 3, 8);
    let given = Case::given(SETUPS[0], DataMode::Selective, 9, random.scripts(), 0);
    assert!(matches!(given.scripts, Scripts::Given { .. }));
    assert_eq!(run(&given, &fresh), run(&random, &fresh));
}

#[test]
fn the_same_case_is_the_same_run() {
    let fresh = setup::make(SETUPS[0]).unwrap();
    let case = Case::random(SETUPS[0], DataMode::Wasteless, 7, 3, 8);
    assert_eq!(run(&case, &fresh), run(&case, &fresh));
}

/// Writes across block boundaries, by several writers at once, in a log that is short of space and
/// on volumes that are full. Each is there whole or not at all.
#[test]
fn no_write_is_torn_in_modes_that_log_data() {
    for (name, seed) in
        [("small-log-1k", 1), ("small-log-1k", 3), ("tight-1k", 1), ("tight-external-4k", 1)]
    {
        let (setup, fresh) = made(name);
        for mode in [DataMode::Journal, DataMode::Wasteless] {
            // Of writes that the page cache splits less is promised.
            let mut random = (seed..).map(|seed| Case::random(setup, mode, seed, 4, 30));
            let whole = random.find(|case| case.splits_at_page().is_none()).expect("three in 4");
            let report = run(&Case { sample: 1000, ..whole }, &fresh);
            assert!(report.writes > 20, "{name}: {report:?}: hardly a write was judged");
        }
    }
}

/// Commits of more scattered blocks than disks are given at once, while others go on writing and
/// write-back runs.
#[test]
fn scattered_blocks_lose_nothing_while_write_back_meets_commits() {
    for (name, seed) in [("ext4-4k", 1), ("external-1k", 2), ("small-log-1k", 3)] {
        let (setup, fresh) = made(name);
        for mode in MODES {
            let case = Case { mix: Some(Mix::Scattered), ..Case::random(setup, mode, seed, 3, 14) };
            let report = run(&case, &fresh);
            println!("{name} {}: {report:?}", mode.name());
        }
    }
}

/// Plays cases in which the choices besides the scripts have every effect.
#[test]
fn requests_gaps_sectors_and_checkpoints_are_played() {
    let (setup, fresh) = made("external-1k");
    let mut total = CaseReport::default();
    // Cases with packed records, which alone have gaps.
    for seed in 5..9 {
        let case = Case::random(setup, DataMode::Selective, seed, 2, 4);
        total.add(run(&Case { sample: 1000, ..case }, &fresh));
    }
    let CaseReport { trimmed, located, gaps, unequal_disks, other_checkpoints, .. } = total;
    let played = [trimmed, located, gaps, unequal_disks, other_checkpoints];
    assert!(played.iter().all(|cases| *cases > 0), "{total:?}");
}

/// Follows `fuse_fill_write_pages` in Linux with writes through the page cache.
#[test]
fn a_write_that_the_kernel_splits_survives_in_order() {
    let mut split = 0;
    for name in ["ext4-4k", "small-log-1k", "tight-1k"] {
        let (setup, fresh) = made(name);
        for mode in [DataMode::Journal, DataMode::Wasteless, DataMode::Ordered] {
            let mut random = (1..).map(|seed| Case::random(setup, mode, seed, 4, 30));
            let splitting = random.find(|case| case.splits_at_page().is_some()).expect("one in 4");
            split += run(&Case { sample: 1000, ..splitting }, &fresh).split;
        }
    }
    assert!(split > 0, "no power cut came between the two requests of a write");
}
