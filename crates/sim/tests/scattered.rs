//! Scattered logs at every crash point, in every mode and both record formats.

use engine::DataMode;
use sim::{Case, Report, setup};

/// Seeds of which a third has packed records, half has FUA.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=9;

fn explore(mode: DataMode) {
    let mut total = Report::default();
    for name in ["scattered-4k", "scattered-1k"] {
        let setup = setup::find(name).unwrap();
        let fresh = setup::make(setup).unwrap();
        setup::check(&fresh).unwrap();
        for seed in SEEDS {
            let case = Case { sample: 48, ..Case::random(setup, mode, seed, 2, 12) };
            total.add(sim::run(&case, &fresh, None).unwrap_or_else(|failure| panic!("{failure}")));
        }
    }
    println!("{}: {total:?}", mode.name());
    assert!(total.images >= 1000, "{}: only {} images", mode.name(), total.images);
}

#[test]
fn writeback_keeps_its_promise_in_scattered_logs() {
    explore(DataMode::Writeback);
}
#[test]
fn ordered_keeps_its_promise_in_scattered_logs() {
    explore(DataMode::Ordered);
}
#[test]
fn journal_keeps_its_promise_in_scattered_logs() {
    explore(DataMode::Journal);
}
#[test]
fn wasteless_keeps_its_promise_in_scattered_logs() {
    explore(DataMode::Wasteless);
}
#[test]
fn selective_keeps_its_promise_in_scattered_logs() {
    explore(DataMode::Selective);
}
#[test]
fn adaptive_keeps_its_promise_in_scattered_logs() {
    explore(DataMode::Adaptive);
}

/// Long scripts over short logs, so that all of them are full again and again.
#[test]
fn full_logs_neither_deadlock_nor_lose_anything() {
    let setup = setup::find("scattered-1k").unwrap();
    let fresh = setup::make(setup).unwrap();
    for mode in DataMode::ALL {
        for seed in [5, 6] {
            let case = Case { sample: 64, ..Case::random(setup, mode, seed, 2, 40) };
            let report = sim::run(&case, &fresh, None).unwrap_or_else(|failure| panic!("{failure}"));
            assert!(report.cuts > 20, "{report:?}: hardly a commit");
        }
    }
}
