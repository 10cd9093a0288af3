//! Each deliberate fault stands once in the source, in `scripts/faults.toml`, and in the table of
//! docs/FAULTS.md.

use super::sources::{root, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The names in `scripts/faults.toml`, with what each fault breaks.
fn listed() -> BTreeMap<String, String> {
    let list = fs::read_to_string(root().join("scripts/faults.toml")).unwrap();
    let mut found = BTreeMap::new();
    for block in list.split("\n[").skip(1) {
        let (name, fields) = block.split_once("]\n").unwrap();
        let breaks = fields.lines().find_map(|line| line.strip_prefix("breaks = \"")).expect(name);
        let breaks = breaks.strip_suffix('"').unwrap().replace("\\\"", "\"");
        assert!(found.insert(name.to_owned(), breaks).is_none(), "{name} is listed twice");
    }
    assert!(found.len() > 50, "the faults are not where they are looked for");
    found
}

/// The names of all injection points.
fn injected() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (path, text) in sources(root().join("crates")) {
        if path.ends_with("units/src/faults.rs")
            || path.components().any(|part| part.as_os_str() == "tests")
        {
            continue;
        }
        for rest in text.split("fault!(").skip(1) {
            found.insert(rest.split('"').nth(1).unwrap().to_owned());
        }
    }
    found
}

#[test]
fn every_fault_is_listed_and_injected() {
    let listed: BTreeSet<String> = listed().into_keys().collect();
    assert_eq!(listed, injected());
}

#[test]
fn every_fault_has_its_row_in_the_table() {
    let table = fs::read_to_string(root().join("docs/FAULTS.md")).unwrap();
    assert!(!table.contains("**survives**"), "a fault that nothing notices");
    let listed = listed();
    let missing: Vec<_> = listed
        .iter()
        .filter(|(name, breaks)| !table.contains(&format!("\n| {name} | {breaks} | ")))
        .collect();
    assert!(missing.is_empty(), "scripts/hunt-faults.sh hunts what is missing: {missing:?}");
}
