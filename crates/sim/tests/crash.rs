//! Every mode on every kind of volume: whatever instant the power fails at, what was acknowledged is there and
//! what was not is never half there beyond what the mode's page says.

use engine::{BarrierKind, DataMode};
use sim::script::ScriptSize;
use sim::setup::{self, SETUPS};
use sim::{Case, Report};

const MODES: [DataMode; 5] =
    [DataMode::Writeback, DataMode::Ordered, DataMode::Journal, DataMode::Wasteless, DataMode::Selective];

fn explore(mode: DataMode) {
    let mut total = Report::default();
    for setup in SETUPS {
        let fresh = setup::make(*setup).unwrap();
        for seed in 1..=2 {
            let size = ScriptSize { steps: 14, files: 3, length_max: 9000 };
            let case =
                Case { setup: *setup, mode, barrier: BarrierKind::Flush, seed, writers: 3, size, sample: 24 };
            let report = sim::run(case, &fresh, None).unwrap_or_else(|failure| panic!("{failure}"));
            assert!(report.images > 20, "{report:?}: the disk was hardly written to");
            total.images += report.images;
            total.checked += report.checked;
        }
    }
    println!("{}: {} crash images, {} of them seen by e2fsck", mode.name(), total.images, total.checked);
}

#[test]
fn writeback_keeps_its_promise_at_every_crash_point() {
    explore(MODES[0]);
}
#[test]
fn ordered_keeps_its_promise_at_every_crash_point() {
    explore(MODES[1]);
}
#[test]
fn journal_keeps_its_promise_at_every_crash_point() {
    explore(MODES[2]);
}
#[test]
fn wasteless_keeps_its_promise_at_every_crash_point() {
    explore(MODES[3]);
}
#[test]
fn selective_keeps_its_promise_at_every_crash_point() {
    explore(MODES[4]);
}

/// The same tests on an engine without barriers, over a disk that needs them: the tests must notice.
#[test]
fn a_missing_barrier_is_found() {
    for mode in MODES {
        let fresh = setup::make(SETUPS[0]).unwrap();
        let size = ScriptSize { steps: 14, files: 3, length_max: 9000 };
        let caught = (1..=4).any(|seed| {
            let setup = SETUPS[0];
            let case = Case { setup, mode, barrier: BarrierKind::None, seed, writers: 3, size, sample: 1000 };
            sim::run(case, &fresh, None).is_err()
        });
        assert!(caught, "{} without barriers lost nothing in four runs", mode.name());
    }
}

#[test]
fn the_same_case_is_the_same_run() {
    let fresh = setup::make(SETUPS[0]).unwrap();
    let size = ScriptSize { steps: 8, files: 3, length_max: 5000 };
    let case = Case {
        setup: SETUPS[0],
        mode: DataMode::Wasteless,
        barrier: BarrierKind::Flush,
        seed: 7,
        writers: 3,
        size,
        sample: 1000,
    };
    let [first, second] =
        [0, 1].map(|_| sim::run(case, &fresh, None).unwrap_or_else(|failure| panic!("{failure}")));
    assert_eq!(first, second);
}
