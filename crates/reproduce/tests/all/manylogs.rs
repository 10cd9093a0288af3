//! Tests that every figure of the Manylogs paper runs, and that the same seed gives the same
//! numbers.

use crate::workloads::{announced, quick};
use reproduce::{Context, Standing, find};

fn play(name: &str) -> String {
    let results = (find(name).expect("the figure is in the list").run)(&quick()).expect(name);
    assert!(!results.pictures.is_empty() && !results.claims.is_empty(), "{name}");
    for series in results.pictures.iter().flat_map(|picture| &picture.series) {
        assert!(!series.points.is_empty(), "{name}: {}", series.name);
    }
    announced(&results);
    let text = serde_json::to_string(&results).expect("plain data");
    assert!(!text.contains("null"), "{name}: a number is missing: {text}");
    text
}

#[test]
fn the_traces_beside_one_another_give_the_same_twice() {
    assert_eq!(play("manylogs-6"), play("manylogs-6"));
}
#[test]
fn checkpoints_take_time_on_plain_and_on_shingled_drives() {
    play("manylogs-7");
    play("manylogs-8");
}
#[test]
fn a_writer_beside_syncs_gives_the_same_twice() {
    assert_eq!(play("manylogs-2b"), play("manylogs-2b"));
}
#[test]
fn logs_and_servers_beside_a_reader_run() {
    play("manylogs-5");
    play("manylogs-4");
}
#[test]
fn a_reader_on_four_disks_runs() {
    play("manylogs-3");
}
#[test]
fn a_writer_on_four_disks_and_with_more_memory_runs() {
    play("manylogs-3b");
    play("manylogs-2b-memory");
}
#[test]
fn logs_are_counted_with_the_same_numbers_twice() {
    assert_eq!(play("manylogs-logs"), play("manylogs-logs"));
}

/// Returns a directory with a short trace.
fn given_trace() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let mut text = "time_us,op,offset_bytes,size_bytes\n".to_owned();
    for request in 0..600u64 {
        let (time, op) = (request * 100_000, if request % 3 == 0 { 'R' } else { 'W' });
        // A prime number of blocks apart, within 50 GB.
        let at = request * 1_000_003 % 12_000_000 * 4096;
        text += &format!("{time},{op},{at},{}\n", 4096 << (request % 3));
    }
    std::fs::write(directory.path().join("hour.csv"), text).expect("a trace");
    directory
}

#[test]
fn rows_of_given_traces_count() {
    let directory = given_trace();
    let context = Context { block_traces: Some(directory.path().into()), ..quick() };
    for (name, counted) in [("manylogs-6", 12), ("manylogs-7", 2)] {
        let results = (find(name).expect("the figure is in the list").run)(&context).expect(name);
        announced(&results);
        for claim in &results.claims {
            assert!(claim.statement.starts_with(&format!("{name}/given-")), "{}", claim.statement);
        }
        let counts = results.claims.iter().filter(|it| it.standing() == Standing::Counted).count();
        assert_eq!(counts, counted, "{name}");
        assert!(results.pictures.iter().all(|it| it.title.ends_with(" (given traces)")), "{name}");
        assert!(results.notes[0].starts_with("Given traces "), "{name}");
    }
}
