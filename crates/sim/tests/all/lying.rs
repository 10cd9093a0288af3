//! Disks that ignore flushes. Trusted, they lose acknowledged writes, and that is found. With
//! evictions in place of flushes nothing is lost where the least recently used is replaced.

use crate::common::made;
use disks::LineReplacement;
use engine::DataMode;
use sim::lying_disk::{self, LyingDisk, TRIALS};
use sim::setup;
use sim::{Case, CaseReport, Failure};

const LRU: LineReplacement = LineReplacement::LeastRecentlyUsed;

fn run(
    case: Case,
    lying_disk: &LyingDisk,
    fresh: &setup::Disks,
) -> Result<CaseReport, Box<Failure>> {
    sim::run(&Case { lying_disk: Some(lying_disk.clone()), ..case }, fresh, None)
}

#[test]
fn a_disk_that_is_believed_loses_acknowledged_writes_in_every_mode() {
    for replacement in [LRU, LineReplacement::Random] {
        for name in ["ext4-4k", "external-1k"] {
            let (setup, fresh) = made(name);
            for mode in DataMode::ALL {
                let caught = (1..=4).find_map(|seed| {
                    let case = Case { sample: 1000, ..Case::random(setup, mode, seed, 3, 14) };
                    run(case, &LyingDisk::trusted(replacement), &fresh).err()
                });
                let failure =
                    caught.unwrap_or_else(|| panic!("{name}, {} lost nothing", mode.name()));
                assert!(failure.to_string().contains("--lying"), "{failure}");
            }
        }
    }
}

/// Random scripts on volumes of every kind, with the profile that a fingerprint of such a disk
/// finds.
#[test]
fn evictions_lose_nothing_where_the_least_recently_used_is_replaced() {
    let lying_disk = LyingDisk::coerced(LRU, TRIALS);
    let mut total = CaseReport::default();
    for (seed, name) in
        (1..).zip(["ext4-4k", "external-1k", "small-log-1k", "wrapping-external-1k"])
    {
        let (setup, fresh) = made(name);
        for mode in DataMode::ALL {
            let report = run(Case::random(setup, mode, seed, 3, 14), &lying_disk, &fresh)
                .unwrap_or_else(|failure| panic!("{failure}"));
            assert!(report.cuts > 20, "{name}: {report:?}: the disk was hardly written to");
            total.add(report);
        }
    }
    println!("{:?}: {total:?}", lying_disk.profile);
    assert!(total.lives > 40, "{total:?}: hardly a second life");
    assert_eq!(total.lost, 0);
}

/// Single sectors are lost no more often than the bound says. A share of cuts, where one lost line
/// of many is enough, is counted instead of reported as a failure.
#[test]
fn where_replacement_is_random_losses_are_counted_beside_the_bound() {
    let (setup, fresh) = made("ext4-4k");
    let lying_disk = LyingDisk::coerced(LineReplacement::Random, TRIALS);
    let profile = lying_disk.profile.clone().unwrap();
    let mut total = CaseReport::default();
    for seed in 2..4 {
        for mode in DataMode::ALL {
            let case = Case::random(setup, mode, seed, 3, 14);
            total.add(run(case, &lying_disk, &fresh).unwrap());
        }
    }
    let lost = lying_disk::lost_targets(LineReplacement::Random, &profile, 10_000);
    println!("{profile:?}: bound {}; {lost} of 10,000 sectors; {total:?}", profile.loss_bound());
    assert!(
        lost > 0 && lost as f64 / 1e4 <= profile.loss_bound(),
        "{lost} sectors of 10,000: {profile:?}"
    );
    assert!(total.lost > 0 && total.lost < total.cuts, "{total:?}");
}

#[test]
fn the_least_recently_used_loses_no_sector() {
    assert_eq!(lying_disk::lost_targets(LRU, &lying_disk::profile(LRU, TRIALS), 1000), 0);
}
