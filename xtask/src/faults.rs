//! Deliberate faults: each stands in the source and in the table, and what hunts it is there. A
//! filter that no test matches would pass, and a fault of that row would be taken for found.

use crate::sources::{Source, Workspace};
use std::cmp::Ordering;
use std::collections::BTreeSet;

const TABLE: &str = "docs/FAULTS.md";
/// Words of the column "hunted by": one of the first three, which the others qualify.
const WAYS: [&str; 6] = ["cargo test ", "small worlds ", "modes ", "setups ", "rounds ", "disks "];

/// A row of the table.
struct Row<'a> {
    name: &'a str,
    breaks: &'a str,
    hunted_by: Vec<&'a str>,
    found: &'a str,
}

impl Row<'_> {
    /// Returns the arguments of `cargo test` for a fault that tests find.
    fn tests(&self) -> Option<&str> {
        self.hunted_by.iter().find_map(|way| way.strip_prefix(WAYS[0]))
    }
    /// Returns the path of the test that found the fault.
    fn found_by(&self) -> Option<&str> {
        let found = self.found.split('`').nth(1)?;
        let is_path = |it: char| it.is_ascii_alphanumeric() || "_:".contains(it);
        (self.tests().is_some() && found.contains("::") && found.chars().all(is_path))
            .then_some(found)
    }
}

fn rows(table: &str) -> Vec<Row<'_>> {
    let lines = table.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows = lines.filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let mut next = || cells.next().unwrap_or_default();
        let (name, breaks, hunted_by, found) = (next(), next(), next(), next());
        Some(Row { name, breaks, hunted_by: hunted_by.split("; ").collect(), found })
    });
    rows.collect()
}

/// Checks the table of faults, and the tests that it names.
///
/// # Errors
/// The table cannot be read.
pub fn check(workspace: &Workspace, complaints: &mut Vec<String>) -> Result<(), String> {
    let rows = rows(workspace.page(TABLE)?);
    check_order(&rows, complaints);
    let injected = injected(workspace);
    for name in injected.iter().filter(|name| rows.iter().all(|row| row.name != **name)) {
        complaints.push(format!("{TABLE}: fault {name} of the source has no row"));
    }
    let tests = tests_of(workspace);
    for row in &rows {
        let mut complain = |text: &str| {
            complaints.push(format!("{TABLE}: fault {}: {text}", row.name));
        };
        if !injected.contains(row.name) {
            complain("it stands nowhere in the source");
        }
        if row.breaks.is_empty() {
            complain("what does it break?");
        }
        let is_way = |way: &&str| WAYS.iter().any(|words| way.starts_with(words));
        let hunts = |way: &&str| WAYS[..3].iter().any(|words| way.starts_with(words));
        if !row.hunted_by.iter().all(is_way) || !row.hunted_by.iter().any(hunts) {
            complain("scripts/hunt-faults.sh does not know how to hunt it");
        }
        if let Some(hunt) = row.tests()
            && !tests.iter().any(|test| is_hunted_by(hunt, test))
        {
            complain(&format!("no test matches {hunt}"));
        }
        if let Some(test) = row.found_by().filter(|test| !is_declared(&tests, test)) {
            complain(&format!("there is no test {test}"));
        }
        if row.found.contains("**survives**") {
            complain("it survives");
        }
    }
    Ok(())
}

/// The names of all faults in the source.
fn injected(workspace: &Workspace) -> BTreeSet<String> {
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
    injected
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

fn is_declared(tests: &[Test], path: &str) -> bool {
    let name = path.rsplit("::").next();
    tests.iter().any(|test| test.path.rsplit("::").next() == name)
}

/// Checks that names stand in the order of the alphabet, each once: two branches that add one name
/// then conflict.
fn check_order(rows: &[Row], complaints: &mut Vec<String>) {
    for (one, next) in rows.iter().zip(rows.iter().skip(1)).map(|(a, b)| (a.name, b.name)) {
        match one.cmp(next) {
            Ordering::Less => {}
            Ordering::Equal => complaints.push(format!("{TABLE}: {one} is there twice")),
            Ordering::Greater => complaints.push(format!("{TABLE}: {one} stands before {next}")),
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
    }

    #[test]
    fn rows_name_what_hunts_and_what_found() {
        let table = "|---|\n\
                     | a | b | cargo test -p x; modes y | `m::it_holds` | 1 |\n\
                     | c | d | cargo test -p x | `signal: 11, SIGSEGV` | 1 |\n\
                     | e | f | modes y | y, seed 1: `m::it_holds` | 1 |\n";
        let found: Vec<_> = rows(table).iter().map(|row| row.found_by().is_some()).collect();
        assert_eq!(found, [true, false, false]);
        let [row, ..] = &rows(table)[..] else { panic!("no row") };
        assert_eq!((row.name, row.breaks, row.tests()), ("a", "b", Some("-p x")));
        assert_eq!(row.hunted_by, ["cargo test -p x", "modes y"]);
    }

    #[test]
    fn doubled_and_misplaced_faults_are_found() {
        let table = "| fault | breaks |\n|---|---|\n| a | x |\n| c | x |\n| c | x |\n| b | x |\n";
        let mut complaints = Vec::new();
        check_order(&rows(table), &mut complaints);
        let expected =
            [format!("{TABLE}: c is there twice"), format!("{TABLE}: c stands before b")];
        assert_eq!(complaints, expected);
    }
}
