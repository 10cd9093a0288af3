//! Bitmaps that call free what is in use, under volumes that have it in memory.

use crate::common::{made, run};
use engine::DataMode;
use sim::{Case, CaseReport};

/// Refused and reported where memory knows better; never a panic, a hang, or a file with another's
/// content.
#[test]
fn bitmaps_that_lie_under_a_live_cache_mix_no_files() {
    let mut total = CaseReport::default();
    for name in ["ext4-1k", "ext3-4k", "external-4k", "tight-1k"] {
        let (setup, fresh) = made(name);
        for mode in DataMode::ALL {
            for seed in 1..=4 {
                let case = Case { hostile: true, ..Case::random(setup, mode, seed, 3, 30) };
                total.add(run(&case, &fresh));
            }
        }
    }
    println!("{total:?}");
    assert!(total.met > 10, "{total:?}: hardly a lie was met");
}
