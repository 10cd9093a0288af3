//! What docs/FIGURES.md says of statements that do not agree.

use std::fs;
use std::path::Path;

/// The words of a text's bold parts.
fn bold_words(text: &str) -> Vec<&str> {
    let bold = text.split("**").skip(1).step_by(2);
    let is_in_word = |letter: char| letter.is_alphanumeric() || letter == '-';
    bold.flat_map(|part| part.split(move |letter: char| !is_in_word(letter))).collect()
}

/// The figure of a row whose verdict is not that it agrees; a bound of our own counts, too.
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
    let is_verdict =
        |cell: &str| ["agrees", "direction only", "differs", "kept"].iter().any(|it| cell.contains(it));
    let rows = judged
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.split(" | ").collect::<Vec<_>>());
    let statements =
        rows.filter(|cells| cells.get(4).is_some_and(|cell| is_verdict(cell))).map(|cells| cells[1]);
    let with_ordered: Vec<_> = statements.filter(|statement| statement.contains("ordered")).collect();
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
