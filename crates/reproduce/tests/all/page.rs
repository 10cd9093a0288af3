//! Tests of docs/FIGURES.md: its tables are those of its results, what does not agree has its
//! cause, and no value counts twice.

use reproduce::{KeptResults, Standing, fill, find_statement, statements};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}
fn page() -> String {
    fs::read_to_string(docs().join("FIGURES.md")).unwrap()
}

/// Returns the words of a text's bold parts.
fn bold_words(text: &str) -> Vec<&str> {
    let bold = text.split("**").skip(1).step_by(2);
    let is_in_word = |letter: char| letter.is_alphanumeric() || letter == '-';
    bold.flat_map(|part| part.split(move |letter: char| !is_in_word(letter))).collect()
}

/// Returns the identifier and the cells of a row as `report` prints it.
fn row(line: &str) -> Option<Vec<&str>> {
    let cells: Vec<_> = line.strip_prefix("| ")?.split(" | ").collect();
    find_statement(cells[0]).map(|_| cells)
}

/// Returns the figure of a counted row that does not agree; a bound of our own counts, too.
fn disagreeing(line: &str) -> Option<&str> {
    let cells = row(line)?;
    let judged = cells[5].trim_matches('*');
    let disagrees =
        ["direction only", "differs", "undecided", "ours (differs)", "ours (undecided)"];
    disagrees.contains(&judged).then(|| cells[0].split('/').next().expect("a figure"))
}

#[test]
fn the_tables_are_those_of_the_results() {
    let kept = KeptResults::read(&docs().join("figures.json")).unwrap();
    let filled = fill(&page(), &kept).unwrap();
    if std::env::var_os("OKEANOS_WRITE_PAGES").is_some() {
        fs::write(docs().join("FIGURES.md"), &filled).unwrap();
    }
    assert!(
        filled == page(),
        "write them: okeanos-lab reproduce report --page docs/FIGURES.md, or this test with OKEANOS_WRITE_PAGES=1"
    );
}

#[test]
fn every_statement_has_its_row() {
    let page = page();
    let rows: BTreeSet<&str> = page.lines().filter_map(row).map(|cells| cells[0]).collect();
    // Played on traces that are given, and a curve that is not in the tables.
    let is_elsewhere = |id: &str| id.contains("/given") || id.starts_with("table-1-scale/");
    let missing: Vec<&str> = statements()
        .iter()
        .map(|statement| statement.id.as_str())
        .filter(|id| !rows.contains(id) && !is_elsewhere(id))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn statements_with_our_weak_ordered_mode_say_so() {
    let page = page();
    let with_ordered: Vec<_> = page
        .lines()
        .filter_map(row)
        .map(|cells| cells[1])
        .filter(|says| says.contains("ordered") && !says.contains("(the kernel's)"))
        .collect();
    assert!(with_ordered.len() > 60, "the tables are not found: {}", with_ordered.len());
    for says in with_ordered {
        assert!(says.ends_with(" °"), "{says}");
    }
}

#[test]
fn whatever_does_not_agree_has_its_cause_or_is_called_unknown() {
    let page = page();
    assert!(page.lines().filter_map(row).count() > 200, "the tables are not found");
    for section in page.split("\n## ") {
        let causes: Vec<_> = section.lines().filter(|line| line.starts_with("- **")).collect();
        let named: Vec<_> = causes.iter().flat_map(|line| bold_words(line)).collect();
        for figure in section.lines().filter_map(disagreeing) {
            assert!(named.contains(&figure), "nothing says why figure {figure} does not agree");
        }
    }
}

/// Rows whose values are those of another row, although the two state different things; and why.
const ALIKE: [(&str, &str); 1] = [(
    "13/scan-selective",
    "of another mode, which logs what 13/scan-wasteless logs, byte for byte",
)];

#[test]
fn a_value_counts_once() {
    let kept = KeptResults::read(&docs().join("figures.json")).unwrap();
    let mut by_values: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let all = kept.figures.iter().chain(&kept.given);
    let figures = all.filter(|(name, _)| *name != "sensitivity");
    for claim in figures.flat_map(|(_, figure)| &figure.claims) {
        if claim.standing() == Standing::Counted && !claim.values.is_empty() {
            by_values.entry(format!("{:?}", claim.values)).or_default().push(&claim.statement);
        }
    }
    assert!(by_values.len() > 60, "the rows are not found: {}", by_values.len());
    let mut exceptions = BTreeSet::from(ALIKE.map(|(row, _)| row));
    let mut twice = Vec::new();
    for mut rows in by_values.into_values().filter(|rows| rows.len() > 1) {
        rows.retain(|row| !exceptions.remove(row));
        if rows.len() > 1 {
            twice.push(rows);
        }
    }
    assert!(twice.is_empty(), "mark all but one of each as shown_only, or say why not: {twice:?}");
    assert!(exceptions.is_empty(), "these are like no other row: {exceptions:?}");
}
