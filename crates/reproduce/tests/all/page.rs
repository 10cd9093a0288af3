//! Tests of docs/FIGURES.md on statements that do not agree.

use reproduce::{Figure, find};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Returns the words of a text's bold parts.
fn bold_words(text: &str) -> Vec<&str> {
    let bold = text.split("**").skip(1).step_by(2);
    let is_in_word = |letter: char| letter.is_alphanumeric() || letter == '-';
    bold.flat_map(|part| part.split(move |letter: char| !is_in_word(letter))).collect()
}

/// Returns the figure of a row whose verdict is not that it agrees; a bound of our own counts, too.
fn disagreeing(row: &str) -> Option<&str> {
    let cells: Vec<_> = row.strip_prefix("| ")?.split(" | ").collect();
    let verdict = cells.get(4)?;
    let disagrees = ["direction only", "differs"].iter().any(|word| verdict.contains(word));
    disagrees.then(|| cells[0].split(',').next().expect("a name"))
}

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FIGURES.md")).unwrap()
}

#[test]
fn statements_with_our_weak_ordered_mode_say_so() {
    let page = page();
    let (_, judged) = page.split_once("\n## What holds\n").unwrap();
    let is_verdict = |cell: &str| {
        ["agrees", "direction only", "differs", "kept"].iter().any(|it| cell.contains(it))
    };
    let rows = judged
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.split(" | ").collect::<Vec<_>>());
    let statements = rows
        .filter(|cells| cells.get(4).is_some_and(|cell| is_verdict(cell)))
        .map(|cells| cells[1]);
    let with_ordered: Vec<_> =
        statements.filter(|statement| statement.contains("ordered")).collect();
    assert!(with_ordered.len() > 60, "the tables are not found: {}", with_ordered.len());
    for statement in with_ordered {
        assert!(statement.ends_with(" °"), "{statement}");
    }
}

#[test]
fn whatever_does_not_agree_has_its_cause_or_is_called_unknown() {
    let page = page();
    let mut found = 0;
    for section in page.split("\n## ") {
        let causes: Vec<_> = section.lines().filter(|line| line.starts_with("- **")).collect();
        let named: Vec<_> = causes.iter().flat_map(|line| bold_words(line)).collect();
        for figure in section.lines().filter_map(disagreeing) {
            found += 1;
            let is_named = figure.split(' ').all(|word| named.contains(&word));
            assert!(is_named, "nothing says why figure {figure} does not agree");
        }
    }
    assert!(found > 30, "the tables are not found: {found}");
}

/// Parses a row as `report` prints it: the figure, and the verdict on a statement of it.
fn judged(row: &str) -> Option<(Figure, &str)> {
    let cells: Vec<_> = row.strip_prefix("| ")?.split(" | ").collect();
    let (name, verdict) = (cells.first()?, cells.get(4)?);
    // A quick or real-time run, or a trace that was given, has rows of another kind.
    let figure = find(name).filter(|figure| !figure.real_time)?;
    let is_verdict = ["agrees", "direction only", "differs"].iter().any(|it| verdict.contains(it));
    is_verdict.then_some((figure, verdict))
}

fn paper_of(figure: &Figure) -> &'static str {
    figure.source.split(',').next().expect("a first part")
}

/// Counts of agree, direction only, differ, fitted, ours.
type Counts = [usize; 5];

#[test]
fn counts_of_each_paper_are_those_of_the_rows_below() {
    let page = page();
    let mut counted: BTreeMap<&str, Counts> = BTreeMap::new();
    for (figure, verdict) in page.lines().filter_map(judged) {
        let place = match verdict.trim_matches('*') {
            fitted if fitted.contains("(fitted: ") => 3,
            ours if ours.ends_with("(ours)") => 4,
            "agrees" => 0,
            "direction only" => 1,
            "differs" => 2,
            other => panic!("figure {}: {other}", figure.name),
        };
        counted.entry(paper_of(&figure)).or_default()[place] += 1;
    }
    let counts_of = |row: &str| -> Option<(String, Counts)> {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let counts: Vec<usize> =
            cells[1..].iter().map(|cell| cell.parse().ok()).collect::<Option<_>>()?;
        Some((cells[0].into(), counts.try_into().ok()?))
    };
    let (_, summary) =
        page.split_once("| paper | agree | direction only | differ | fitted | ours |\n").unwrap();
    let stated: BTreeMap<String, Counts> = summary.lines().skip(1).map_while(counts_of).collect();
    let counted: BTreeMap<String, Counts> =
        counted.into_iter().map(|(paper, counts)| (paper.into(), counts)).collect();
    assert_eq!(stated, counted);
}

#[test]
fn every_figure_with_statements_has_its_rows() {
    // A curve, a table that no run could make fail, and statements named by what they depend on.
    const WITHOUT: [&str; 3] = ["table-1-scale", "discreet-table-5", "sensitivity"];
    let page = page();
    let found: BTreeSet<&str> =
        page.lines().filter_map(judged).map(|(figure, _)| figure.name).collect();
    let wanted = reproduce::all().into_iter().filter(|figure| !figure.real_time);
    let wanted: BTreeSet<&str> =
        wanted.map(|figure| figure.name).filter(|name| !WITHOUT.contains(name)).collect();
    assert_eq!(found, wanted);
}
