//! Tests of `okeanos-lab reproduce` as a user runs it.

use std::path::Path;
use std::process::{Command, Output};

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_okeanos-lab")).args(arguments).output().unwrap()
}
fn out(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}
fn read(directory: &Path, name: &str) -> String {
    std::fs::read_to_string(directory.join(name)).unwrap()
}

#[test]
fn the_list_says_what_each_figure_does() {
    let text = out(&lab(&["reproduce", "list", "--json"]));
    let figures: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let names: Vec<&str> = figures.iter().map(|figure| figure["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"10a") && names.contains(&"kernel-10a"), "{names:?}");
    let mut once = names.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), names.len(), "no two have one name");
    assert!(figures.iter().all(|figure| figure["minutes"].as_u64().unwrap() > 0));
    assert!(figures.iter().all(|figure| figure["about"].as_str().unwrap().ends_with('.')));
}

#[test]
fn a_mistyped_figure_is_answered_with_similar_names() {
    let output = lab(&["reproduce", "fig10d", "--quick"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("\"fig10d\"") && error.contains("10a") && !error.contains("table-1"),
        "{error}"
    );
}

#[test]
fn a_figure_leaves_numbers_a_picture_and_a_page_and_is_not_run_twice() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let run = ["reproduce", "11", "--quick", "--out", path];
    assert!(!out(&lab(&run)).contains("was there"));
    let (numbers, picture) =
        (read(directory.path(), "11-1.csv"), read(directory.path(), "11-1.svg"));
    assert!(numbers.starts_with("series,of,") && numbers.contains(",ours,"));
    assert!(picture.starts_with("<svg") && read(directory.path(), "index.html").contains("<svg"));
    assert!(out(&lab(&run)).contains("was there"));
    let report = out(&lab(&["reproduce", "report", "--out", path]));
    // What --quick has shortened is not judged.
    assert!(report.contains("| row | statement |") && !report.contains("| 11/"), "{report}");

    let again = ["reproduce", "11", "--quick", "--out", path, "--again", "--jobs", "1"];
    assert!(!out(&lab(&again)).contains("was there"));
    assert_eq!(read(directory.path(), "11-1.csv"), numbers);
}
