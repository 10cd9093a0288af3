//! Small worlds within the time limit of every run of the tests; `okeanos-lab sim --enumerated`
//! goes further.

use sim::small_world::{SMALL_WORLDS, SmallBounds, SmallExplorer, SmallReport};

const BOUNDS: SmallBounds = SmallBounds { operations: 2, second_life: 1, delayed: 1 };

#[test]
fn nothing_is_lost_in_two_lives_of_two_operations() {
    for small in SMALL_WORLDS {
        let mut explorer = SmallExplorer::new(small, BOUNDS).unwrap();
        while explorer.step().unwrap_or_else(|failure| panic!("{failure}")) {}
        let SmallReport { states, second_states, .. } = explorer.report;
        println!("{small}: {:?}", explorer.report);
        assert!(states > 25 && second_states > 100, "{small}: {:?}", explorer.report);
        let swaps = small.log == engine::LogKind::Scattered;
        assert_eq!(explorer.report.swapped > 0, swaps, "{small}: {:?}", explorer.report);
    }
}
