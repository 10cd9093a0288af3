//! Every deliberate fault stands in the table of mutants, with what its patch says that it breaks.

use super::sources::root;
use std::fs;

/// It makes faults possible, and is none.
const SWITCH: &str = "00-switch";

#[test]
fn every_fault_has_its_row_in_the_table_of_mutants() {
    let table = fs::read_to_string(root().join("docs/MUTANTS.md")).unwrap();
    let (mut missing, mut seen) = (Vec::new(), 0);
    for entry in fs::read_dir(root().join("mutants")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let patch = fs::read_to_string(&path).unwrap();
        let breaks = patch.lines().next().unwrap();
        seen += 1;
        if name != SWITCH && !table.contains(&format!("\n| {name} | {breaks} | ")) {
            missing.push(name);
        }
    }
    assert!(seen > 50, "the faults are not where they are looked for");
    assert!(!table.contains("**survives**"), "a fault that nothing notices");
    assert!(missing.is_empty(), "scripts/mutants.sh hunts what is missing: {missing:?}");
}
