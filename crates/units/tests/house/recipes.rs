//! HACKING's recipes name rooms, types and functions that exist.

use super::sources::{crates, root, sources};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Whether `name` is the end of `path`: `src` and `.rs` may be left out.
fn is_end_of(name: &str, path: &Path) -> bool {
    let parts = |path: &Path| -> Vec<String> {
        let all = path.components().filter(|part| *part != Component::Normal("src".as_ref()));
        all.map(|part| part.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned())
            .collect()
    };
    parts(path).ends_with(&parts(Path::new(name)))
}

fn declares(text: &str, name: &str) -> bool {
    let before = ["fn ", "struct ", "trait ", "enum ", "pub "];
    before.iter().any(|word| {
        text.match_indices(&format!("{word}{name}")).any(|(at, found)| {
            let next = text[at + found.len()..].chars().next();
            next.is_some_and(|letter| !letter.is_alphanumeric() && letter != '_')
        })
    })
}

/// All sources and the folders that hold them.
fn paths_of(sources: &[(PathBuf, String)]) -> Vec<PathBuf> {
    let folders = sources.iter().flat_map(|(path, _)| path.ancestors().map(Path::to_owned));
    let mut paths: Vec<PathBuf> = folders.collect();
    paths.sort();
    paths.dedup();
    paths
}

#[test]
fn files_that_architecture_names_exist() {
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let paths = paths_of(&sources(root().join("crates")));
    let names = architecture.split('`').skip(1).step_by(2).filter(|name| {
        let (room, rest) = name.split_once('/').unwrap_or_default();
        let is_path =
            |letter: char| letter.is_ascii_lowercase() || "_/.0123456789".contains(letter);
        !rest.is_empty() && rest.chars().all(is_path) && crates().iter().any(|found| found == room)
    });
    let mut seen = 0;
    for name in names {
        seen += 1;
        assert!(paths.iter().any(|path| is_end_of(name, path)), "ARCHITECTURE speaks of `{name}`");
    }
    assert!(seen > 40, "the files are not where they are looked for");
}

#[test]
fn what_the_recipes_name_exists() {
    let hacking = fs::read_to_string(root().join("docs/HACKING.md")).unwrap();
    let recipes =
        hacking.split("## Add an alternative").nth(1).unwrap().split("\n## ").next().unwrap();
    let all = sources(root().join("crates"));
    let paths = paths_of(&all);
    let mut seen = 0;
    for name in recipes.split('`').skip(1).step_by(2) {
        if name.starts_with("--")
            || crates().iter().any(|found| found == name)
            || root().join(name).exists()
        {
            continue;
        }
        seen += 1;
        let found = match name.contains('/') {
            true => paths.iter().any(|path| is_end_of(name, path)),
            false => name.split("::").all(|part| all.iter().any(|(_, text)| declares(text, part))),
        };
        assert!(found, "a recipe speaks of `{name}`, which does not exist");
    }
    assert!(seen > 20, "the recipes are not where they are looked for");
}
