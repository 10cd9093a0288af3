//! Lines of at most 100 columns, one binary of tests for a crate, and the report on the language of
//! comments and pages.

use crate::dialect;
use crate::sources::{Source, Workspace};
use std::collections::{BTreeMap, BTreeSet};

const COLUMNS_MAX: usize = 100;

/// Words with which a doc comment must not open: fragments and pronouns.
const FRAGMENTS: &[&str] = &[
    "Of",
    "The same",
    "So many",
    "It",
    "Its",
    "They",
    "Those",
    "These",
    "Who",
    "Whoever",
    "What",
    "Where",
    "If",
    "As",
    "Else",
    "All",
    "Both",
    "None",
    "Nobody",
    "Most",
    "How",
    "When",
    "With",
    "In",
    "For",
    "By",
    "From",
    "After",
    "Only",
    "Not",
    "Nothing",
    "Everything",
    "Held",
    "Some",
];

/// Bound of the doc comments that open so all the same, as helps of options and good sentences do.
/// It may only shrink.
const FRAGMENTS_MAX: usize = 31;

/// Bounds of the lines beyond [`COLUMNS_MAX`] that a text in quotes touches, for each tree that has
/// such lines: rows of tables, help with its own layout, texts in quotes within scripts. They may
/// only shrink.
const QUOTED_MAX: &[(&str, usize)] = &[
    ("crates/blocks/src", 4),
    ("crates/ceph/src", 1),
    ("crates/cli/src", 40),
    ("crates/cli/tests", 168),
    ("crates/commit/src", 1),
    ("crates/device/src", 1),
    ("crates/disks/src", 2),
    ("crates/emulated/src", 3),
    ("crates/engine/src", 10),
    ("crates/eviction/src", 13),
    ("crates/ext4/src", 3),
    ("crates/ext4/tests", 15),
    ("crates/format/src", 13),
    ("crates/fuse_session/src", 1),
    ("crates/hostile/tests", 2),
    ("crates/journal/src", 1),
    ("crates/journal/tests", 2),
    ("crates/lab/src", 59),
    ("crates/lab/tests", 1),
    ("crates/reproduce/src", 292),
    ("crates/reproduce/tests", 1),
    ("crates/sim/src", 2),
    ("crates/testbeds/examples", 1),
    ("crates/testbeds/src", 1),
    ("crates/testbeds/tests", 4),
    ("crates/units/src", 2),
    ("crates/workloads/src", 3),
];

/// Whether a line of a page may be long: a row of a table, an example, a link.
fn may_be_long(line: &str) -> bool {
    ["|", "<", "    "].iter().any(|start| line.starts_with(start)) || line.contains("](")
}

/// Checks the widths of lines, the test binaries and the openings of doc comments.
pub fn check(workspace: &Workspace, complaints: &mut Vec<String>) {
    check_openings(workspace, complaints);
    let mut quoted_counts = BTreeMap::new();
    let mut complain = |path: &str, index: usize| {
        complaints.push(format!("{path}:{}: more than {COLUMNS_MAX} columns", index + 1));
    };
    for source in &workspace.sources {
        let lines = source.text.lines().enumerate();
        for (index, line) in lines.filter(|(_, line)| is_wide(line)) {
            // Rows of tables in comments, and macros' patterns, cannot be wrapped.
            let is_fixed = line.trim_start().starts_with("//! |") || line.contains("$(");
            if source.quoted_lines.contains(&(index + 1)) {
                *quoted_counts.entry(tree_of(&source.path)).or_default() += 1;
            } else if !is_fixed {
                complain(&source.path, index);
            }
        }
    }
    for (path, text) in &workspace.pages {
        let wide = text.lines().enumerate().filter(|(_, line)| is_wide(line) && !may_be_long(line));
        wide.for_each(|(index, _)| complain(path, index));
    }
    check_quoted(&quoted_counts, QUOTED_MAX, complaints);
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

fn is_wide(line: &str) -> bool {
    line.chars().count() > COLUMNS_MAX
}

/// The part of a path that names a tree: `crates/NAME/src`, `crates/NAME/tests`, `xtask`.
fn tree_of(path: &str) -> &str {
    let parts = if path.starts_with("crates/") { 3 } else { 1 };
    path.match_indices('/').nth(parts - 1).map_or(path, |(end, _)| &path[..end])
}

/// Checks that each tree has exactly as many wide lines with texts in quotes as its bound says.
fn check_quoted(
    counts: &BTreeMap<&str, usize>,
    bounds: &[(&str, usize)],
    complaints: &mut Vec<String>,
) {
    let bounds: BTreeMap<&str, usize> = bounds.iter().copied().collect();
    let trees: BTreeSet<&str> = counts.keys().chain(bounds.keys()).copied().collect();
    for tree in trees {
        let of = |numbers: &BTreeMap<&str, usize>| numbers.get(tree).copied().unwrap_or_default();
        let (count, bound) = (of(counts), of(&bounds));
        if count > bound {
            complaints.push(format!(
                "{tree}: {count} lines with texts in quotes have more than {COLUMNS_MAX} columns, \
                 {bound} at most may"
            ));
        } else if count < bound {
            complaints.push(format!("xtask/src/lines.rs: QUOTED_MAX of {tree} can be {count}"));
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

    #[test]
    fn wide_quoted_lines_only_shrink() {
        let complaints = |counts: &[(&'static str, usize)]| {
            let mut complaints = Vec::new();
            check_quoted(&counts.iter().copied().collect(), &[("a", 2)], &mut complaints);
            complaints.join("\n")
        };
        assert_eq!(complaints(&[("a", 2)]), "");
        assert!(complaints(&[("a", 3)]).starts_with("a: 3 lines"));
        assert!(complaints(&[("a", 1)]).ends_with("QUOTED_MAX of a can be 1"));
        assert!(complaints(&[]).ends_with("QUOTED_MAX of a can be 0"));
        assert!(complaints(&[("a", 2), ("b", 1)]).starts_with("b: 1 lines"));
        assert_eq!(tree_of("crates/cli/tests/all/main.rs"), "crates/cli/tests");
        assert_eq!(tree_of("xtask/src/lines.rs"), "xtask");
    }
}
