//! Lines of at most 100 columns, one binary of tests for a crate, and the report on the language of
//! comments and pages.

use crate::dialect;
use crate::sources::{Source, Workspace};

const COLUMNS_MAX: usize = 100;

/// Words with which a doc comment must not open: fragments and pronouns.
const FRAGMENTS: &[&str] = &[
    "Of", "The same", "So many", "It", "Its", "They", "Those", "These", "Who", "Whoever", "What",
    "Where", "If", "As", "Else", "All", "Both", "None", "Nobody", "Most", "How", "When", "With",
    "In", "For", "By", "From", "After", "Only", "Not", "Nothing", "Everything", "Held", "Some",
];

/// Bound of the doc comments that open so all the same, as helps of options and good sentences do.
/// It may only shrink.
const FRAGMENTS_MAX: usize = 31;

/// Whether a line of a page may be long: a row of a table, an example, a link.
fn may_be_long(line: &str) -> bool {
    ["|", "<", "    "].iter().any(|start| line.starts_with(start)) || line.contains("](")
}

/// Checks the widths of lines, the test binaries and the openings of doc comments.
pub fn check(workspace: &Workspace, complaints: &mut Vec<String>) {
    check_openings(workspace, complaints);
    let is_wide = |line: &str| line.chars().count() > COLUMNS_MAX;
    let mut complain = |path: &str, index: usize| {
        complaints.push(format!("{path}:{}: more than {COLUMNS_MAX} columns", index + 1));
    };
    for source in &workspace.sources {
        let lines = source.text.lines().enumerate();
        // Rows of tables in comments, and macros' patterns, cannot be wrapped.
        let is_fixed = |line: &str| line.trim_start().starts_with("//! |") || line.contains("$(");
        let wide = lines.filter(|(_, line)| is_wide(line) && !is_fixed(line));
        wide.filter(|(index, _)| !source.quoted_lines.contains(&(index + 1)))
            .for_each(|(index, _)| complain(&source.path, index));
    }
    for (path, text) in &workspace.pages {
        let wide = text.lines().enumerate().filter(|(_, line)| is_wide(line) && !may_be_long(line));
        wide.for_each(|(index, _)| complain(path, index));
    }
    for name in &workspace.crates {
        let folder = format!("crates/{name}/tests/");
        let binaries = workspace.sources.iter().filter(|source| {
            let inside = source.path.strip_prefix(&folder);
            inside.is_some_and(|it| {
                !it.contains('/') || it.matches('/').count() == 1 && it.ends_with("/main.rs")
            })
        });
        // One whose allocator counts has to be alone.
        let others = binaries.filter(|source| !source.text.contains("#[global_allocator]"));
        if others.count() > 1 {
            complaints.push(format!("{folder}: linking costs more than running: add to tests/all"));
        }
    }
}

/// The first lines of doc comments.
fn openings(source: &Source) -> impl Iterator<Item = &str> {
    let lines: Vec<&str> = source.text.lines().map(str::trim_start).collect();
    let is_doc = |line: &str| line.starts_with("///") || line.starts_with("//!");
    (0..lines.len())
        .filter(|at| is_doc(lines[*at]) && (*at == 0 || !is_doc(lines[*at - 1])))
        .map(|at| lines[at][3..].trim())
        .collect::<Vec<_>>()
        .into_iter()
}

fn opens_with(text: &str, words: &str) -> bool {
    let rest = text.strip_prefix(words);
    rest.is_some_and(|rest| !rest.starts_with(|sign: char| sign.is_alphanumeric() || sign == '-'))
}

/// Returns the number of doc comments, and the opening lines of those that open with a fragment,
/// each with its file.
fn fragments(workspace: &Workspace) -> (usize, Vec<(&str, &str)>) {
    let (mut count, mut found) = (0, Vec::new());
    for source in &workspace.sources {
        for text in openings(source) {
            count += 1;
            if FRAGMENTS.iter().any(|word| opens_with(text, word)) {
                found.push((source.path.as_str(), text));
            }
        }
    }
    (count, found)
}

/// Checks that no more doc comments open with a fragment than did before.
fn check_openings(workspace: &Workspace, complaints: &mut Vec<String>) {
    let (_, found) = fragments(workspace);
    if found.len() > FRAGMENTS_MAX {
        let all = found.iter().map(|(path, text)| format!("  {path}: {text}"));
        complaints.extend(all);
        complaints.push(format!(
            "{} doc comments open with a fragment or pronoun, {FRAGMENTS_MAX} at most may",
            found.len()
        ));
    } else if found.len() < FRAGMENTS_MAX {
        complaints.push(format!("xtask/src/lines.rs: FRAGMENTS_MAX can be {}", found.len()));
    }
}

/// Prints how far language and layout are from what HACKING asks for.
pub fn report(workspace: &Workspace) -> String {
    let (docs, found) = fragments(workspace);
    let sources = workspace.sources.iter().map(|source| &source.text);
    let wide = sources
        .chain(workspace.pages.iter().map(|(_, text)| text))
        .flat_map(|text| text.lines())
        .filter(|line| line.chars().count() > COLUMNS_MAX && !line.starts_with('|'))
        .count();
    let engine = workspace.product().filter(|source| source.crate_name() == "engine");
    let engine: Vec<_> = engine.collect();
    let mut entries: Vec<_> = engine.iter().filter_map(|it| it.path.split('/').nth(3)).collect();
    entries.dedup();
    let of_engine = engine.iter().filter(|it| it.text.contains("\nimpl Engine {")).count();
    let lines: usize = workspace.sources.iter().map(|source| source.text.lines().count()).sum();
    format!(
        "doc comments that open with a fragment or pronoun: {} of {docs} ({:.1} %)\n\
         lines beyond {COLUMNS_MAX} columns, but for rows of tables: {wide}\n\
         entries in crates/engine/src: {}\nfiles with `impl Engine`: {of_engine}\n\
         lines of Rust: {lines}\n{}",
        found.len(),
        100.0 * found.len() as f64 / docs.max(1) as f64,
        entries.len(),
        dialect::report(workspace),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opening_is_a_whole_word() {
        assert!(opens_with("Of a log", "Of") && !opens_with("Offset", "Of"));
        assert!(opens_with("In a log", "In") && !opens_with("In-inode attributes", "In"));
    }
}
