//! `records=packed` in every mode: what is promised of the papers' records is promised of these.

use engine::DataMode;
use sim::Case;
use sim::setup::{self, SETUPS};

/// Seeds of which the explorer makes cases with packed transactions: on disks without and with FUA, and in units of 512 and 1024 bytes.
const SEEDS: std::ops::Range<u64> = 4..8;

fn explore(mode: DataMode) {
    let mut images = 0;
    for (index, setup) in SETUPS.iter().enumerate() {
        let fresh = setup::make(*setup).unwrap();
        let seed = SEEDS.start + index as u64 % (SEEDS.end - SEEDS.start);
        let case = Case::random(*setup, mode, seed, 3, 14);
        images += sim::run(&case, &fresh, None).unwrap_or_else(|failure| panic!("{failure}")).images;
    }
    assert!(images >= 500, "{}: only {images} images", mode.name());
}

#[test]
fn packed_writeback_keeps_its_promise_at_every_crash_point() {
    explore(DataMode::Writeback);
}
#[test]
fn packed_ordered_keeps_its_promise_at_every_crash_point() {
    explore(DataMode::Ordered);
}
#[test]
fn packed_journal_keeps_its_promise_at_every_crash_point() {
    explore(DataMode::Journal);
}
#[test]
fn packed_wasteless_keeps_its_promise_at_every_crash_point() {
    explore(DataMode::Wasteless);
}
#[test]
fn packed_selective_keeps_its_promise_at_every_crash_point() {
    explore(DataMode::Selective);
}
#[test]
fn packed_adaptive_keeps_its_promise_at_every_crash_point() {
    explore(DataMode::Adaptive);
}
