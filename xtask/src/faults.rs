//! Deliberate faults: each stands in the source, in the list and in the table, and what hunts it is
//! there. A filter that no test matches would pass, and a fault of that row would be taken for
//! found.

use crate::sources::{Source, Workspace};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

const LIST: &str = "scripts/faults.toml";
const TABLE: &str = "docs/FAULTS.md";

/// Checks the list of faults, its table, and the tests that both name.
///
/// # Errors
/// A text that names a page or list that cannot be read.
pub fn check(workspace: &Workspace, complaints: &mut Vec<String>) -> Result<(), String> {
    let list_text = workspace.file(LIST)?;
    let list: BTreeMap<String, BTreeMap<String, String>> =
        toml::from_str(&list_text).map_err(|error| format!("{LIST}: {error}"))?;
    let table = workspace.page(TABLE)?;
    let mut injected = BTreeSet::new();
    for source in workspace.product() {
        for window in source.tokens.windows(4) {
            if let [name, sign, open, literal] = window
                && (&*name.text, &*sign.text, &*open.text) == ("fault", "!", "(")
            {
                injected.insert(literal.text.trim_matches('"').to_owned());
            }
        }
    }
    for name in injected.iter().filter(|name| !list.contains_key(*name)) {
        complaints.push(format!("{LIST}: fault {name} of the source is missing"));
    }
    let tests = tests_of(workspace);
    for (name, fields) in &list {
        if !injected.contains(name) {
            complaints.push(format!("{LIST}: fault {name} stands nowhere in the source"));
        }
        let breaks = fields.get("breaks").map_or("", String::as_str);
        if breaks.is_empty() || !table.contains(&format!("\n| {name} | {breaks} | ")) {
            complaints.push(format!("{TABLE}: fault {name} has no row: hunt it"));
        }
        if let Some(hunt) = fields.get("test")
            && !tests.iter().any(|test| is_hunted_by(hunt, test))
        {
            complaints.push(format!("{LIST}: fault {name}: no test matches {hunt}"));
        }
    }
    for (name, test) in table_tests(table).filter(|(_, test)| !is_declared(&tests, test)) {
        complaints.push(format!("{TABLE}: fault {name}: there is no test {test}"));
    }
    if table.contains("**survives**") {
        complaints.push(format!("{TABLE}: a fault survives"));
    }
    let heads = list_text.lines().filter_map(|line| line.strip_prefix('[')?.strip_suffix(']'));
    check_order(LIST, &heads.collect::<Vec<_>>(), complaints);
    let rows = fault_rows(table);
    check_order(TABLE, &rows, complaints);
    for name in rows.iter().filter(|name| !list.contains_key(**name)) {
        complaints.push(format!("{TABLE}: {name} is in no list of faults"));
    }
    Ok(())
}

/// A test: its crate, the name of its test program (`None` for those of the library), and its path
/// there, without the names of modules within a file.
pub(crate) struct Test {
    owner: String,
    program: Option<String>,
    pub(crate) path: String,
}

fn tests_of(workspace: &Workspace) -> Vec<Test> {
    let sources = workspace.sources.iter().filter(|source| !source.crate_name().is_empty());
    sources.flat_map(tests).collect()
}

/// The tests of a file.
pub(crate) fn tests(source: &Source) -> impl Iterator<Item = Test> {
    let mut parts = source.path.split('/').skip(2).map(|part| part.trim_end_matches(".rs"));
    let is_library = parts.next() == Some("src");
    let program = if is_library { None } else { parts.next().map(str::to_owned) };
    let modules = parts.filter(|part| !matches!(*part, "mod" | "lib" | "main"));
    let module = modules.map(|part| format!("{part}::")).collect::<String>();
    let owner = source.crate_name().to_owned();
    let marked = source.text.split("#[test]").skip(1);
    let marked = marked.filter_map(|after| Some(after.split_once("fn ")?.1.split_once('(')?.0));
    // What these macros make tests of: they list names.
    let lists = ["over_both!(", "in_each_mode!("].map(|list| source.text.split(list).skip(1));
    let listed = lists.into_iter().flatten().filter_map(|it| it.split_once(')'));
    let listed = listed.flat_map(|(names, _)| names.split([',', ':']).map(str::trim));
    marked.chain(listed).map(move |name| {
        let path = format!("{module}{name}");
        Test { owner: owner.clone(), program: program.clone(), path }
    })
}

/// Whether `cargo test` with these words carries out the test.
fn is_hunted_by(hunt: &str, test: &Test) -> bool {
    let mut words = hunt.split_whitespace();
    let (mut owners, mut is_its, mut filters) = (Vec::new(), true, Vec::new());
    while let Some(word) = words.next() {
        match word {
            "-p" | "--package" => owners.extend(words.next()),
            "--lib" => is_its &= test.program.is_none(),
            "--test" => is_its &= words.next() == test.program.as_deref(),
            "--" => {}
            filter => filters.push(filter),
        }
    }
    let (module, name) = test.path.rsplit_once("::").unwrap_or(("", &test.path));
    let inner = format!("{module}::tests::{name}");
    let matches = |filter: &&str| test.path.contains(*filter) || inner.contains(*filter);
    let is_its = is_its && owners.contains(&&*test.owner);
    is_its && (filters.is_empty() || filters.iter().any(matches))
}

/// The tests that the table says find a fault.
fn table_tests(table: &str) -> impl Iterator<Item = (&str, &str)> {
    let rows = table.lines().filter_map(|row| row.strip_prefix("| ")?.split_once(" | "));
    rows.filter_map(|(name, rest)| {
        let found = rest.split("cargo test ").nth(1)?.split('`').nth(1)?;
        let is_path = |it: char| it.is_ascii_alphanumeric() || "_:".contains(it);
        (found.contains("::") && found.chars().all(is_path)).then_some((name, found))
    })
}

fn is_declared(tests: &[Test], path: &str) -> bool {
    let name = path.rsplit("::").next();
    tests.iter().any(|test| test.path.rsplit("::").next() == name)
}

/// The faults that the table has rows of.
fn fault_rows(table: &str) -> Vec<&str> {
    let rows = table.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    rows.filter_map(|row| Some(row.strip_prefix("| ")?.split_once(" |")?.0)).collect()
}

/// Checks that names stand in the order of the alphabet, each once: two branches that add one name
/// then conflict.
fn check_order(page: &str, names: &[&str], complaints: &mut Vec<String>) {
    for pair in names.windows(2) {
        match pair[0].cmp(pair[1]) {
            Ordering::Less => {}
            Ordering::Equal => complaints.push(format!("{page}: {} is there twice", pair[0])),
            Ordering::Greater => {
                complaints.push(format!("{page}: {} stands before {}", pair[0], pair[1]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_matches_tests_of_its_program_alone() {
        let test = |program: Option<&str>, path: &str| Test {
            owner: "engine".into(),
            program: program.map(Into::into),
            path: path.into(),
        };
        let inner = test(None, "claims::in_order");
        assert!(is_hunted_by("--package engine --lib claims::", &inner));
        assert!(is_hunted_by("-p engine --lib claims::tests::in", &inner));
        assert!(!is_hunted_by("--package commit --lib claims::", &inner));
        assert!(!is_hunted_by("--package engine --test all claims::", &inner));
        let outer = test(Some("all"), "stalls::a_long_one");
        assert!(is_hunted_by("--package engine --test all -- swap:: stalls::", &outer));
        assert!(!is_hunted_by("--package engine --test all swap::", &outer));
        let rows = "| a | b | cargo test -p x | `m::it_holds` | 1 |\n\
                    | c | d | cargo test -p x | `signal: 11, SIGSEGV` | 1 |\n";
        assert_eq!(table_tests(rows).collect::<Vec<_>>(), [("a", "m::it_holds")]);
    }

    #[test]
    fn doubled_and_misplaced_faults_are_found() {
        let table = "| fault | breaks |\n|---|---|\n| a | x |\n| c | x |\n| c | x |\n| b | x |\n";
        let rows = fault_rows(table);
        assert_eq!(rows, ["a", "c", "c", "b"]);
        let mut complaints = Vec::new();
        check_order("page", &rows, &mut complaints);
        assert_eq!(complaints, ["page: c is there twice", "page: c stands before b"]);
    }
}
