//! One name of a type has one meaning: read from the sources.
//!
//! 1. Within a crate no two types have one name.
//! 2. Nor have two types that crates offer others. `cli`, `reproduce` and `rigs` offer none.
//!
//! A name that is allowed twice means the same wherever it stands. The reason is in the list below.

use super::sources::{crates, root, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Crates at the top, of which nobody imports a type of its own.
const TOP: [&str; 3] = ["cli", "reproduce", "rigs"];

/// Several in one crate. Each is private to a file, or to a folder whose files tell of nothing
/// else.
const IN_ONE_CRATE: [(&str, &str); 3] = [
    ("Cell", "one run of a figure: each figure has its own settings"),
    ("Played", "a cell of a figure, and what it gave"),
    ("State", "what the clones of a handle share"),
];

/// A type that a crate declares.
struct Type {
    name: String,
    /// Whether others can name it.
    is_offered: bool,
}

/// The name that a line declares, and whether it is `pub` without a bound.
fn declared(line: &str) -> Option<(&str, bool)> {
    let line = line.trim_start();
    let (is_public, line) = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => (false, rest.split_once(") ")?.1),
        Some(rest) => (true, rest.strip_prefix(' ')?),
        None => (false, line),
    };
    let name = ["struct ", "enum ", "trait "].iter().find_map(|kind| line.strip_prefix(kind))?;
    let end = name.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(name.len());
    // A macro's `$name` is none.
    name.starts_with(char::is_uppercase).then_some((&name[..end], is_public))
}

/// The words behind each `before` of `text`, up to the next semicolon.
fn words_after<'a>(text: &'a str, before: &str) -> BTreeSet<&'a str> {
    let clauses = text.split(before).skip(1).filter_map(|rest| rest.split(';').next());
    clauses
        .flat_map(|clause| clause.split(|letter: char| !letter.is_alphanumeric() && letter != '_'))
        .collect()
}

fn types_of(crate_name: &str) -> Vec<Type> {
    let folder = root().join("crates").join(crate_name).join("src");
    let library = fs::read_to_string(folder.join("lib.rs")).unwrap_or_default();
    let (reexported, modules) =
        (words_after(&library, "pub use "), words_after(&library, "pub mod "));
    let mut found = Vec::new();
    for (path, text) in sources(folder.clone()) {
        let inside = path.strip_prefix(&folder).unwrap().with_extension("");
        let is_open =
            inside.iter().next().is_some_and(|room| modules.contains(room.to_str().unwrap()));
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        found.extend(code.lines().filter_map(declared).map(|(name, is_public)| Type {
            name: name.to_owned(),
            is_offered: is_public && (is_open || reexported.contains(name)),
        }));
    }
    found
}

fn assert_only(found: &BTreeMap<String, Vec<String>>, allowed: &[(&str, &str)]) {
    let twice: Vec<_> = found.iter().filter(|(_, crates)| crates.len() > 1).collect();
    for (name, crates) in &twice {
        let is_allowed = allowed.iter().any(|(one, _)| one == name);
        assert!(
            is_allowed,
            "{name} has several meanings, in {crates:?}: use the field's word for each"
        );
    }
    for (name, _) in allowed {
        assert!(twice.iter().any(|(one, _)| one == name), "{name} stands once: it needs no leave");
    }
}

#[test]
fn no_two_types_of_a_crate_have_one_name() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in crates() {
        let mut here: BTreeMap<String, usize> = BTreeMap::new();
        types_of(&name).into_iter().for_each(|one| *here.entry(one.name).or_default() += 1);
        for (one, _) in here.into_iter().filter(|(_, count)| *count > 1) {
            found.entry(one).or_default().extend([name.clone(), name.clone()]);
        }
    }
    assert_only(&found, &IN_ONE_CRATE);
}

#[test]
fn no_two_crates_offer_types_of_one_name() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in crates().into_iter().filter(|name| !TOP.contains(&name.as_str())) {
        let offered: BTreeSet<_> =
            types_of(&name).into_iter().filter(|one| one.is_offered).map(|one| one.name).collect();
        offered.into_iter().for_each(|one| found.entry(one).or_default().push(name.clone()));
    }
    assert!(found.contains_key("Engine") && found.contains_key("CommitPlan"), "no types are found");
    assert_only(&found, &[]);
}
