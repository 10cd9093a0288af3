//! Small scripts, cut at every write: whatever was acknowledged is there after recovery, nothing
//! half-done. A failure prints setup, script, cut and tear: all that is needed to run exactly it.

use crate::common;

use crate::common::{Cut, Layout, Rig, Script, Setup, cuts_of, run_until, verify};
use engine::{BarrierKind, recover};
use journal::DataMode;

/// Cuts `script` at every change of the disks, and each time tears what was not durable in three
/// ways. Returns the number of cuts when all writers had begun, or the first thing that is wrong
/// afterwards.
pub fn every_cut(setup: &Setup, script: Script) -> Result<u64, String> {
    let mut cuts = 0;
    for Cut { number, images, history } in cuts_of(setup, script, |cut| cut * 4..cut * 4 + 3) {
        cuts += u64::from(history.all_begun());
        for (tear, images) in images {
            verify(setup, tear, images, &history)
                .map_err(|why| format!("{setup:?} {script:?} cut {number} tear {tear}: {why}"))?;
        }
    }
    Ok(cuts)
}

/// SEEDS=n asks for more scripts.
fn seeds() -> u64 {
    std::env::var("SEEDS").map_or(1, |seeds| seeds.parse().expect("SEEDS is a number"))
}

/// Plays modes with and without checksums, with a cache that holds everything and one that holds
/// next to nothing.
#[test]
fn acknowledged_changes_survive_every_cut_in_every_mode() {
    for seed in 1..=2 * seeds() {
        for mut setup in Setup::all() {
            if seed % 2 == 0 {
                setup.options.journal_checksum = false;
                setup.options.cache_bytes = 0;
            }
            let script = Script { writers: 3, handles: 24, sync_one_in: 3, seed };
            let cuts = every_cut(&setup, script).unwrap();
            assert!(cuts > 20, "{setup:?} {script:?}: {cuts} cuts");
        }
    }
}

#[test]
fn without_barriers_the_same_cuts_lose_what_was_acknowledged() {
    for mut setup in Setup::all() {
        setup.options.barrier = BarrierKind::None;
        let lost = (1..20).any(|seed| {
            every_cut(&setup, Script { writers: 3, handles: 10, sync_one_in: 2, seed }).is_err()
        });
        assert!(lost, "{setup:?}: nothing was lost, so the test above proves nothing");
    }
}

/// Crashes while recovering from a crash, and again while recovering from that.
#[test]
fn a_crash_during_recovery_is_harmless_twice() {
    for setup in Setup::all() {
        let script = Script { writers: 3, handles: 30, sync_one_in: 3, seed: 5 };
        // Recoveries that were cut, and those after them.
        let mut cuts = [0; 2];
        for cut in (10..).step_by(17) {
            let (rig, history, ended) = run_until(&setup, script, Some(cut));
            for first in 0.. {
                let context = format!("{setup:?} {script:?} cut {cut}, recovery cut {first}");
                let once = Rig::new(&setup, cut, rig.crash(cut));
                once.cut_at(first);
                let parts = once.parts.clone();
                let done = once.run(async move { recover(&parts, false).await }).is_some();
                let twice = Rig::new(&setup, first, once.crash(first));
                twice.cut_at(first / 2);
                let parts = twice.parts.clone();
                let again = twice.run(async move { recover(&parts, false).await }).is_some();
                cuts[0] += u32::from(!done);
                cuts[1] += u32::from(!again);
                verify(&setup, 0, twice.crash(first + 1), &history.borrow())
                    .unwrap_or_else(|why| panic!("{context}: {why}"));
                if done {
                    break;
                }
            }
            if ended {
                break;
            }
        }
        assert!(cuts.iter().all(|count| *count > 10), "{setup:?}: {cuts:?} recoveries were cut");
    }
}

#[test]
fn the_same_seed_gives_the_same_operations_and_another_seed_others() {
    let operations = |setup: &Setup, seed| {
        let rig = Rig::new(setup, seed, setup.images());
        rig.disks.iter().for_each(|disk| disk.record());
        common::run_on(&rig, setup, Script { writers: 5, handles: 30, sync_one_in: 3, seed: 1 })
            .1
            .unwrap()
            .unwrap();
        rig.disks.iter().map(|disk| disk.take_log()).collect::<Vec<_>>()
    };
    for mode in DataMode::ALL {
        let setup = Setup::new(mode, Layout::Separate, 1024);
        assert_eq!(operations(&setup, 7), operations(&setup, 7), "{mode}");
        assert_ne!(operations(&setup, 7), operations(&setup, 8), "{mode}");
    }
}
