//! The choices do not know each other: read from the sources.
//!
//! Rule: below floor 7 (`cli`, `bench`, `reproduce`, `sim`, `hostile`) no file of a crate's `src` outside
//! `journal/src/policy` names a variant of `DataMode`, nor imports its variants. To pass a mode on, parse it, print it
//! or list `DataMode::ALL` is allowed everywhere: that decides nothing.

use journal::DataMode;
use std::fs;
use std::path::{Path, PathBuf};

const ABOVE: [&str; 7] = ["cli", "reproduce", "rigs", "sim", "stages", "workloads", "hostile"];

/// The sources of all crates below floor 7, with their paths from `crates/`.
fn sources() -> Vec<(PathBuf, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut folders: Vec<PathBuf> = fs::read_dir(crates)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| !ABOVE.iter().any(|above| path.ends_with(above)))
        .map(|path| path.join("src"))
        .collect();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(crates).unwrap().to_owned(), text));
            }
        }
    }
    assert!(found.len() > 100, "the sources are not where they are looked for");
    found
}

/// The lines outside `allowed` that hold one of `words`.
fn lines_with(words: &[String], allowed: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, text) in sources() {
        if allowed.iter().any(|allowed| path.starts_with(allowed)) {
            continue;
        }
        let holds = |line: &&str| words.iter().any(|word| line.contains(word));
        lines.extend(text.lines().filter(holds).map(|line| format!("{}: {}", path.display(), line.trim())));
    }
    lines
}

#[test]
fn only_policies_know_what_a_mode_means() {
    let mut words: Vec<String> = DataMode::ALL.iter().map(|mode| format!("DataMode::{mode:?}")).collect();
    words.extend(["DataMode::{", "DataMode::*"].map(str::to_owned));
    assert_eq!(lines_with(&words, &["journal/src/policy"]), [""; 0]);
}

#[test]
fn only_the_block_format_knows_how_blocks_of_the_log_look() {
    let words = [
        "DescriptorBlock",
        "RevokeBlock",
        "CommitBlock",
        "BlockTag",
        "LogLayout",
        "Packing",
        "WholeTransaction",
    ];
    assert_eq!(lines_with(&words.map(str::to_owned), &["format", "journal/src/records/blocks"]), [""; 0]);
}

#[test]
fn only_the_packed_format_knows_how_packed_transactions_look() {
    let words = ["PackedHeader", "RecordReader", "RunWriter"];
    assert_eq!(lines_with(&words.map(str::to_owned), &["format", "journal/src/records/packed"]), [""; 0]);
}

#[test]
fn nobody_tells_disks_apart_by_their_addresses_in_memory() {
    assert_eq!(lines_with(&["addr_eq".to_owned()], &[]), [""; 0]);
}

/// The engine matches on barriers, to keep them; it adds none to a plan.
#[test]
fn only_the_journal_puts_barriers_into_plans() {
    let words = [".barrier(Barrier::", "Step::Barrier(Barrier::TailBeforeReuse)"].map(str::to_owned);
    assert_eq!(lines_with(&words, &["journal/src"]), [""; 0]);
}
