//! Tests that the figures of streams and of recovery give the same numbers for the same seed.

use crate::workloads::announced;
use reproduce::{Context, Results, find};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

static NOT_INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn play(name: &str, jobs: usize) -> Results {
    let context = Context {
        seed: 7,
        run_index: 0,
        quick: true,
        jobs: Arc::new(reproduce::Jobs::new(jobs)),
        progress: Arc::new(|_, _| ()),
        interrupted: &NOT_INTERRUPTED,
        trace: None,
        block_traces: None,
        varied: None,
        overrides: Arc::default(),
    };
    (find(name).expect("a figure").run)(&context).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn a_figure_gives_the_same_numbers_twice_and_with_more_processors() {
    for name in ["1", "7a", "7b", "7c", "8a", "8b", "9", "13", "raid-0"] {
        let (first, second) = (play(name, 1), play(name, 2));
        announced(&first);
        let text = |results: &Results| serde_json::to_string(results).expect("plain data");
        assert_eq!(text(&first), text(&second), "{name}");
        assert!(!first.pictures.is_empty() && !first.claims.is_empty(), "{name}");
        for series in &first.pictures[0].series {
            assert!(!series.points.is_empty(), "{name}: {}", series.name);
        }
    }
}
