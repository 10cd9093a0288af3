//! `records=packed` in every mode: it keeps the guarantees of the papers' records.

use crate::common::{in_each_mode, made, run};
use disks::LineReplacement;
use engine::DataMode;
use sim::faults::{FaultPlan, KINDS};
use sim::lying_disk::{LyingDisk, TRIALS};
use sim::setup::{self, SETUPS};
use sim::{Case, CaseReport};

/// Seeds from which the explorer makes cases with packed transactions.
const SEEDS: std::ops::Range<u64> = 4..8;

fn explore(mode: DataMode) {
    let mut images = 0;
    for (index, setup) in SETUPS.iter().enumerate() {
        let fresh = setup::make(*setup).unwrap();
        let seed = SEEDS.start + index as u64 % (SEEDS.end - SEEDS.start);
        let case = Case::random(*setup, mode, seed, 3, 14);
        images += run(&case, &fresh).images;
    }
    assert!(images >= 500, "{}: only {images} images", mode.name());
}

in_each_mode!(
    explore: packed_writeback_keeps_its_promise_at_every_crash_point,
    packed_ordered_keeps_its_promise_at_every_crash_point,
    packed_journal_keeps_its_promise_at_every_crash_point,
    packed_wasteless_keeps_its_promise_at_every_crash_point,
    packed_selective_keeps_its_promise_at_every_crash_point,
    packed_adaptive_keeps_its_promise_at_every_crash_point
);

const MODES: [DataMode; 2] = [DataMode::Wasteless, DataMode::Selective];

/// Plays each kind of fault, on every kind of volume in turn.
#[test]
fn packed_loses_nothing_acknowledged_on_a_failing_disk() {
    let mut total = CaseReport::default();
    for (index, setup) in SETUPS.iter().enumerate() {
        let fresh = setup::make(*setup).unwrap();
        for (place, (operation, kind)) in KINDS.into_iter().enumerate() {
            let case_index = index + place;
            let seed = SEEDS.start + case_index as u64 % (SEEDS.end - SEEDS.start);
            let case =
                Case { sample: 6, ..Case::random(*setup, MODES[case_index % 2], seed, 3, 30) };
            let place = (case_index * 5 % 24) as u64;
            total.add(run(&case.with_fault(FaultPlan { operation, kind, place }), &fresh));
        }
    }
    assert!(total.faults > 40, "{total:?}: hardly a fault came in time");
}

#[test]
fn packed_loses_nothing_on_disks_that_ignore_flushes_where_evictions_stand_for_them() {
    let lying_disk = LyingDisk::coerced(LineReplacement::LeastRecentlyUsed, TRIALS);
    let mut total = CaseReport::default();
    for (seed, name) in
        SEEDS.zip(["external-1k", "small-log-1k", "ext4-4k", "wrapping-external-1k"])
    {
        let (setup, fresh) = made(name);
        for mode in MODES {
            total.add(run(
                &Case {
                    lying_disk: Some(lying_disk.clone()),
                    ..Case::random(setup, mode, seed, 3, 14)
                },
                &fresh,
            ));
        }
    }
    assert!(total.images > 100 && total.lost == 0, "{total:?}");
}

#[test]
fn packed_mixes_no_files_under_bitmaps_that_lie() {
    let mut total = CaseReport::default();
    for name in ["ext4-1k", "external-4k", "tight-1k"] {
        let (setup, fresh) = made(name);
        for (seed, mode) in SEEDS.flat_map(|seed| MODES.map(|mode| (seed, mode))) {
            total.add(run(
                &Case { hostile: true, ..Case::random(setup, mode, seed, 3, 30) },
                &fresh,
            ));
        }
    }
    assert!(total.met > 3, "{total:?}: hardly a lie was met");
}
