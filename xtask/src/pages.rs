//! Pages say what is there: the files, types, tests and rules that they quote exist, every *never*
//! of the table of layers names what holds it, every target that the Makefile declares has a rule.

use crate::faults;
use crate::layers::{Layers, quoted};
use crate::rules::RULES;
use crate::sources::Workspace;
use std::collections::BTreeSet;

/// Pages whose quoted names are checked.
const PAGES: &[&str] = &["ARCHITECTURE.md", "docs/HACKING.md", "docs/CRASH_MODEL.md"];

fn is_name(text: &str) -> bool {
    text.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_')
}

/// Checks of `tidy` besides the rules of [`RULES`], by the names that pages cite.
const CHECKS: &[&str] = &[
    "crates_stay_apart",
    "dependencies_go_down",
    "files_know_each_other_in_one_direction",
    "one_name_has_one_meaning",
    "only_these_crates_are_unsafe",
    "pages_name_what_exists",
];

/// Returns each `owner::name` in backticks.
fn names_in(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = quoted(page).filter_map(|word| word.split_once("::"));
    pairs.filter(|(owner, name)| is_name(owner) && is_name(name))
}

/// Whether `owner`, a crate or `tidy`, has a test or rule of this name.
fn is_test(workspace: &Workspace, owner: &str, name: &str) -> bool {
    if owner == "tidy" {
        return CHECKS.contains(&name) || RULES.iter().any(|rule| rule.name == name);
    }
    let mut sources = workspace.sources.iter().filter(|source| source.crate_name() == owner);
    sources
        .any(|source| faults::tests(source).any(|test| test.path.rsplit("::").next() == Some(name)))
}

/// Whether the crate has a file or folder of this name.
fn is_module(workspace: &Workspace, owner: &str, name: &str) -> bool {
    let mut sources = workspace.sources.iter().filter(|source| source.crate_name() == owner);
    sources.any(|source| source.path.split('/').any(|part| part.trim_end_matches(".rs") == name))
}

/// Whether `name` ends the path of a file or folder; `src` and `.rs` may be left out.
fn is_path(paths: &BTreeSet<Vec<&str>>, name: &str) -> bool {
    let wanted: Vec<_> = parts(name).collect();
    paths.iter().any(|path| path.ends_with(&wanted))
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| *part != "src").map(|part| part.trim_end_matches(".rs"))
}

fn paths_of(workspace: &Workspace) -> BTreeSet<Vec<&str>> {
    let mut found = BTreeSet::new();
    for source in &workspace.sources {
        let mut path: Vec<_> = parts(&source.path).collect();
        while !path.is_empty() {
            found.insert(path.clone());
            path.pop();
        }
    }
    found
}

fn declares(text: &str, name: &str) -> bool {
    ["fn ", "struct ", "trait ", "enum ", "pub "].iter().any(|word| {
        text.match_indices(&format!("{word}{name}")).any(|(at, found)| {
            let next = text[at + found.len()..].chars().next();
            next.is_some_and(|letter| !letter.is_alphanumeric() && letter != '_')
        })
    })
}

/// Checks pages and faults.
///
/// # Errors
/// A text that names a page or list that cannot be read.
pub fn check(
    workspace: &Workspace,
    layers: &Layers,
    complaints: &mut Vec<String>,
) -> Result<(), String> {
    for name in PAGES {
        for (owner, quoted) in names_in(workspace.page(name)?) {
            let is_owner = owner == "tidy" || workspace.crates.iter().any(|it| it == owner);
            if is_owner
                && !is_test(workspace, owner, quoted)
                && !is_module(workspace, owner, quoted)
            {
                complaints.push(format!("{name}: `{owner}::{quoted}` is neither module nor test"));
            }
        }
    }
    for (crates, claim) in layers.claims() {
        let by_test = names_in(claim).any(|(owner, name)| is_test(workspace, owner, name));
        let by_file =
            quoted(claim).any(|word| word.contains('/') && workspace.root.join(word).exists());
        if !by_test && !by_file && !claim.contains("`xtask/") {
            complaints.push(format!("ARCHITECTURE.md: {crates:?} never {claim}: what holds it?"));
        }
    }
    for (name, text) in &workspace.pages {
        check_tables(name, text, complaints);
    }
    check_paths(workspace, complaints)?;
    check_recipes(workspace, complaints)?;
    check_targets(workspace, complaints)
}

/// Checks that each table has its header above all rows, and no other.
fn check_tables(page: &str, text: &str, complaints: &mut Vec<String>) {
    let lines: Vec<&str> = text.lines().collect();
    let is_row = |line: usize| lines.get(line).is_some_and(|line| line.starts_with('|'));
    let is_rule = |line: usize| lines[line].starts_with("|-") || lines[line].starts_with("|:");
    for line in (0..lines.len()).filter(|line| is_row(*line)) {
        let is_second = line > 0 && is_row(line - 1) && !(line > 1 && is_row(line - 2));
        let is_alone = !(is_row(line + 1) || line > 0 && is_row(line - 1));
        if is_rule(line) != is_second || is_alone {
            let complaint = "a table begins with one header and one rule below it";
            complaints.push(format!("{page}:{}: {complaint}", line + 1));
        }
    }
}

/// Checks that the files which ARCHITECTURE names exist.
fn check_paths(workspace: &Workspace, complaints: &mut Vec<String>) -> Result<(), String> {
    let paths = paths_of(workspace);
    for name in quoted(workspace.page("ARCHITECTURE.md")?) {
        let (first, rest) = name.split_once('/').unwrap_or_default();
        let is_plain = |it: char| it.is_ascii_lowercase() || "_/.0123456789".contains(it);
        let is_ours = workspace.crates.iter().any(|it| it == first);
        if is_ours && !rest.is_empty() && rest.chars().all(is_plain) && !is_path(&paths, name) {
            complaints.push(format!("ARCHITECTURE.md: `{name}` does not exist"));
        }
    }
    Ok(())
}

/// Checks that what HACKING's recipes name exists.
fn check_recipes(workspace: &Workspace, complaints: &mut Vec<String>) -> Result<(), String> {
    let paths = paths_of(workspace);
    let hacking = workspace.page("docs/HACKING.md")?;
    let recipes = hacking.split("## Add an alternative").nth(1);
    let recipes = recipes.ok_or("docs/HACKING.md has no recipes")?.split("\n## ").next();
    for name in quoted(recipes.unwrap_or_default()) {
        let is_known = name.starts_with("--")
            || workspace.crates.iter().any(|it| it == name)
            || workspace.root.join(name).exists();
        let exists = match name.contains('/') {
            true => is_path(&paths, name),
            false => name
                .split("::")
                .all(|part| workspace.sources.iter().any(|source| declares(&source.text, part))),
        };
        if !is_known && !exists {
            complaints.push(format!("docs/HACKING.md: `{name}` does not exist"));
        }
    }
    Ok(())
}

/// Checks that each target that the Makefile declares has a rule: make takes one without for done.
fn check_targets(workspace: &Workspace, complaints: &mut Vec<String>) -> Result<(), String> {
    for name in declared_without_rule(&workspace.file("Makefile")?) {
        complaints.push(format!("Makefile: {name} is declared .PHONY and has no rule"));
    }
    Ok(())
}

fn declared_without_rule(makefile: &str) -> Vec<&str> {
    let rules = makefile.lines().filter(|line| line.starts_with(|it: char| it.is_alphabetic()));
    let rules = rules.filter_map(|line| line.split_once(':'));
    let made: BTreeSet<&str> = rules
        .filter(|(_, after)| !after.starts_with('='))
        .flat_map(|(names, _)| names.split_whitespace())
        .collect();
    let declared = makefile.lines().filter_map(|line| line.strip_prefix(".PHONY:"));
    declared.flat_map(str::split_whitespace).filter(|name| !made.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_above_a_header_are_found() {
        let complaints = |text: &str| {
            let mut complaints = Vec::new();
            check_tables("page", text, &mut complaints);
            complaints.iter().map(|it| it[..6].to_owned()).collect::<Vec<_>>()
        };
        assert!(complaints("| a | b |\n|---|---:|\n| 1 | 2 |\n\n| c |\n|---|\n").is_empty());
        assert_eq!(complaints("| 1 | 2 |\n| a | b |\n|---|---|\n"), ["page:2", "page:3"]);
        assert_eq!(complaints("text\n| 1 | 2 |\n\ntext\n"), ["page:2"]);
    }

    #[test]
    fn declared_targets_without_a_rule_are_found() {
        let makefile = ".PHONY: all soak\n.PHONY: proof\nproof := x\nall soak: deps\n\tproof: no\n";
        assert_eq!(declared_without_rule(makefile), ["proof"]);
    }
}
