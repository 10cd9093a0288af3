//! The last line that a failure prints reproduces it, with both cuts.

use crate::common::made;
use engine::{BarrierKind, DataMode};
use sim::small_world::{BROKEN, Replay, SmallBounds, SmallExplorer};
use sim::{Case, setup};

/// Explores until something is lost.
fn explore() -> sim::small_world::SmallFailure {
    let bounds = SmallBounds { operations: 2, second_life: 1, delayed: 0 };
    let mut explorer = SmallExplorer::new(BROKEN, bounds).unwrap();
    loop {
        match explorer.step() {
            Ok(more) => assert!(more, "no barriers in the second life, and nothing is lost"),
            Err(failure) => return *failure,
        }
    }
}

#[test]
fn a_failure_of_a_second_life_in_a_small_world_is_played_again() {
    let failure = explore();
    let printed = failure.to_string();
    let line = printed.lines().last().unwrap();
    let text = line.strip_prefix("replay: okeanos-lab sim --again '").unwrap().strip_suffix('\'');
    let replay: Replay = text.unwrap().parse().unwrap();
    assert!(replay.cut.is_some() && replay.cut_again.is_some(), "{line}");
    assert_eq!(replay.run().unwrap_err().to_string(), printed);
    // Without the second cut, nothing is lost.
    assert!(Replay { cut_again: None, ..replay }.run().is_ok());
}

/// Returns the word behind `name` in a line of arguments.
fn argument<'a>(line: &'a str, name: &str) -> &'a str {
    let words = line.split_whitespace();
    words.skip_while(|word| *word != name).nth(1).unwrap_or_else(|| panic!("{name}: {line}"))
}

/// Returns the case of a printed line, without its cause of failure.
fn case_of(line: &str) -> (Case, u64) {
    let number = |name| argument(line, name).parse::<u64>().unwrap();
    let mode = DataMode::ALL.into_iter().find(|mode| mode.name() == argument(line, "--mode"));
    let setup = setup::find(argument(line, "--setup")).unwrap();
    let (writers, steps) = (number("--writers") as usize, number("--steps") as usize);
    (Case::random(setup, mode.unwrap(), number("--seed"), writers, steps), number("--cut"))
}

#[test]
fn a_failure_of_a_second_life_on_a_volume_is_played_again() {
    let (setup, fresh) = made("ext4-4k");
    let later_barrier = BarrierKind::None;
    let failing = |seed| {
        let random = Case::random(setup, DataMode::Journal, seed, 2, 8);
        sim::run(&Case { later_barrier, ..random }, &fresh, None).err()
    };
    let failure = (1..20).find_map(failing).expect("no barriers in later lives, and nothing lost");
    let printed = failure.to_string();
    assert!(printed.contains("cut again at"), "{printed}");
    let (case, cut) = case_of(printed.lines().last().unwrap());
    let again = sim::run(&Case { later_barrier, ..case }, &fresh, Some(cut)).unwrap_err();
    assert_eq!(again.to_string(), printed);
}
