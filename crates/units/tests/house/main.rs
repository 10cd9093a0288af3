//! What ARCHITECTURE.md and docs/HACKING.md say of the house, read from the sources.

mod below;
mod choices;
mod circles;
mod faults;
mod floors;
mod names;
mod recipes;
mod reports;
mod sources;

use sources::{crates, root, sources};
use std::fs;

/// Crates that talk to the kernel or to programs of others, and may.
const UNSAFE: [&str; 7] = ["ceph", "cli", "disks", "fuse", "rigs", "runtime", "workloads"];

#[test]
fn only_crates_that_talk_to_the_kernel_may_be_unsafe() {
    for name in crates() {
        let library = root().join("crates").join(&name).join("src/lib.rs");
        let forbids =
            fs::read_to_string(library).is_ok_and(|text| text.contains("forbid(unsafe_code)"));
        assert_eq!(forbids, !UNSAFE.contains(&name.as_str()), "crate {name}");
    }
}

/// `crate::room` and `crate::name_of_a_test`, in backticks.
fn names_in(document: &str) -> Vec<(&str, &str)> {
    let is_name =
        |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let quoted = document.split('`').skip(1).step_by(2);
    let pairs = quoted.filter_map(|word| word.split_once("::"));
    pairs.filter(|(owner, test)| is_name(owner) && is_name(test)).collect()
}

#[test]
fn rooms_and_tests_that_documents_name_exist() {
    for name in ["ARCHITECTURE.md", "docs/HACKING.md", "docs/CRASH_MODEL.md"] {
        let document = fs::read_to_string(root().join(name)).unwrap();
        for (owner, test) in names_in(&document) {
            if !crates().iter().any(|name| name == owner) {
                continue;
            }
            let is_room = sources(root().join("crates").join(owner)).iter().any(|(path, _)| {
                path.file_stem().is_some_and(|stem| stem == test)
                    || path.parent().is_some_and(|room| room.ends_with(test))
            });
            assert!(
                is_room || declares_test(owner, test),
                "{name} speaks of `{owner}::{test}`, which is neither a room nor a test"
            );
        }
    }
}

fn declares_test(owner: &str, test: &str) -> bool {
    let declaration = format!("fn {test}(");
    sources(root().join("crates").join(owner))
        .iter()
        .any(|(_, text)| text.match_indices(&declaration).any(|(at, _)| is_test(&text[..at])))
}

/// Whether the function that begins behind `before` has the attribute of a test.
fn is_test(before: &str) -> bool {
    let line_of = |line: &&str| !line.trim_start().starts_with("//") && !line.trim().is_empty();
    before
        .lines()
        .rev()
        .filter(line_of)
        .find(|line| !line.trim_end().ends_with("async"))
        .is_some_and(|line| line.contains("#[test]"))
}

#[test]
fn the_journal_waits_for_nothing_and_touches_no_disk() {
    for (path, text) in sources(root().join("crates/journal/src")) {
        for word in ["async ", ".await", "dyn Disk", "dyn World"] {
            assert!(!text.contains(word), "{}: {word:?}", path.display());
        }
    }
}

/// Linking a binary costs more than running what is in it. One whose allocator counts has to be
/// alone.
#[test]
fn a_crate_has_one_binary_of_tests() {
    for name in crates() {
        let Ok(entries) = fs::read_dir(root().join("crates").join(&name).join("tests")) else {
            continue;
        };
        let counts = |path: &std::path::Path| {
            fs::read_to_string(path).is_ok_and(|text| text.contains("#[global_allocator]"))
        };
        let others = entries.map(|entry| entry.unwrap().path()).filter(|path| !counts(path));
        assert!(others.count() <= 1, "{name}: add a module to tests/all instead");
    }
}
