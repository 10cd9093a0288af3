//! Tests that every figure of a workload runs, and that the same seed gives the same numbers.

use reproduce::{Context, Results, find, find_statement};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub fn quick() -> Context {
    static INTERRUPTED: AtomicBool = AtomicBool::new(false);
    Context {
        seed: 1,
        run_index: 0,
        quick: true,
        jobs: Arc::new(reproduce::Jobs::new(2)),
        progress: Arc::new(|_, _| ()),
        interrupted: &INTERRUPTED,
        trace: None,
        block_traces: None,
        varied: None,
        overrides: Arc::default(),
    }
}

/// Asserts that every row that a figure computes is announced.
pub fn announced(results: &Results) {
    for claim in &results.claims {
        assert!(find_statement(&claim.statement).is_some(), "announce {}", claim.statement);
    }
}

fn same_twice(figure: &str) {
    let figure = find(figure).expect("the figure is in the list");
    let play = || {
        let results = (figure.run)(&quick()).expect(figure.name);
        announced(&results);
        serde_json::to_string(&results).unwrap()
    };
    let (first, second) = (play(), play());
    assert!(first == second, "{}: {first}\n{second}", figure.name);
    assert!(!first.contains("null"), "{}: a number is missing: {first}", figure.name);
}

#[test]
fn figure_8c_gives_the_same_twice() {
    same_twice("8c");
}
#[test]
fn figure_10a_gives_the_same_twice() {
    same_twice("10a");
}
#[test]
fn table_1_gives_the_same_twice() {
    same_twice("table-1");
}
#[test]
fn table_1_by_scale_gives_the_same_twice() {
    same_twice("table-1-scale");
}
#[test]
fn figures_of_hosts_give_the_same_twice() {
    for name in ["arion-1", "arion-4", "arion-5", "arion-recovery"] {
        same_twice(name);
    }
}
#[test]
fn figures_of_2011_judge_the_runs_of_2013() {
    for name in ["4a", "4b", "4c", "4d", "5a", "5b", "5c", "5d"] {
        let figure = find(&format!("atc-{name}")).expect("the figure is in the list");
        let results = (figure.run)(&quick()).expect(figure.name);
        announced(&results);
        for claim in &results.claims {
            // So short a run may write nothing home, and a ratio to that is infinite. A line that
            // is not in the picture would be no number.
            assert!(!claim.ours.contains("NaN"), "{} has no value", claim.statement);
        }
        let rows = reproduce::statements().iter().filter(|it| it.figure() == figure.name);
        assert_eq!(rows.count(), results.claims.len(), "{name}: a row is not judged");
    }
}
#[test]
fn sensitivity_gives_the_same_twice() {
    same_twice("sensitivity");
}
#[test]
fn figure_10b_gives_the_same_twice() {
    same_twice("10b");
}
#[test]
fn figure_10c_gives_the_same_twice() {
    same_twice("10c");
}
#[test]
fn figure_11_gives_the_same_twice() {
    same_twice("11");
}
#[test]
fn figure_12_gives_the_same_twice() {
    same_twice("12");
}
#[test]
fn figure_14_gives_the_same_twice() {
    same_twice("14");
}
#[test]
fn discreet_figures_of_drives_give_the_same_twice() {
    for name in [
        "discreet-figure-1",
        "discreet-table-1",
        "discreet-table-2",
        "discreet-table-3",
        "discreet-table-4",
    ] {
        same_twice(name);
    }
}
#[test]
fn discreet_table_5_and_figures_5_to_8_give_the_same_twice() {
    ["table-5", "figure-5", "figure-6", "figure-7", "figure-8"]
        .into_iter()
        .for_each(|figure| same_twice(&format!("discreet-{figure}")));
}
#[test]
fn streams_on_a_drive_that_ignores_flushes_give_the_same_twice() {
    same_twice("discreet-streams");
}
