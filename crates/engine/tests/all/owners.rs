//! The engine's owners know each other in one direction only: read from the sources.
//!
//! A file knows another if it imports from it, or if it calls a method of `Engine` that is defined there.
//! `impl Engine` stands in several files, and a call needs no import.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// By name, without what its tests need.
fn sources() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        found.insert(name, code.to_owned());
    }
    assert!(
        found.len() > 20 && found.contains_key("pipeline"),
        "the sources are not where they are looked for"
    );
    found.remove("lib");
    found
}

/// The names that follow each `before` in `text`, if `after` stands behind them.
fn names<'a>(text: &'a str, before: &str, after: &str) -> BTreeSet<&'a str> {
    let name = |rest: &'a str| {
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
        rest[end..].starts_with(after).then_some(&rest[..end])
    };
    text.split(before).skip(1).filter_map(name).collect()
}

/// Which files each file knows.
fn edges(sources: &BTreeMap<String, String>) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut methods: BTreeMap<&str, &str> = BTreeMap::new();
    for (file, text) in sources {
        for part in text.split("\nimpl Engine {").skip(1) {
            let body = part.split("\n}\n").next().unwrap();
            methods.extend(names(body, "fn ", "").into_iter().map(|method| (method, file.as_str())));
        }
    }
    assert!(methods.get("commit_task") == Some(&"commit"), "the engine's methods are not found");
    let edges_of = |file: &str, text: &'static str| -> BTreeSet<&str> {
        let mut known: BTreeSet<&str> = names(text, "crate::", "::");
        let receivers = ["self.", "engine.", "engine.clone().", "self.clone().", "self.engine."];
        if known.contains("engine") || file == "engine" {
            let calls = receivers.iter().flat_map(|receiver| names(text, receiver, "("));
            known.extend(calls.filter_map(|method| methods.get(method).copied()));
        }
        known.remove(file);
        known
    };
    let leak = |text: &String| -> &'static str { Box::leak(text.clone().into_boxed_str()) };
    sources.iter().map(|(file, text)| (file.as_str(), edges_of(file, leak(text)))).collect()
}

#[test]
fn no_files_of_the_engine_know_each_other_in_a_circle() {
    let sources = sources();
    let mut edges = edges(&sources);
    assert!(edges["open"].contains("commit") && edges["commit"].contains("running"));
    // Whoever knows only files that are in no circle is in none.
    while let Some(free) = edges.iter().find(|(_, known)| known.iter().all(|to| !edges.contains_key(to))) {
        let free = *free.0;
        edges.remove(free);
    }
    assert!(edges.is_empty(), "in circles, or above one: {edges:#?}");
}

#[test]
fn owners_know_no_engine_and_few_of_each_other() {
    let sources = sources();
    let edges = edges(&sources);
    let all = |allowed: &[&'static str]| allowed.iter().copied().collect::<BTreeSet<&str>>();
    for (owner, allowed) in [
        ("pipeline", all(&["completion", "ending", "error", "gate", "limits", "running", "writers"])),
        ("running", all(&["completion"])),
        ("ending", all(&["error"])),
        ("mapping", all(&["update"])),
        ("block", all(&["images", "promise", "state", "update", "Handle"])),
        ("images", all(&["image", "limits"])),
        ("cache", all(&["block", "images"])),
        ("durability", all(&["error", "whose"])),
        ("tail", all(&["durability"])),
        ("home_queue", all(&["block", "cache"])),
        ("home_runs", all(&["block", "cache"])),
        ("home_claims", all(&[])),
        ("checkpoints", all(&[])),
        ("loose", all(&[])),
        ("sequences", all(&[])),
    ] {
        let more: Vec<_> = edges[owner].difference(&allowed).collect();
        assert!(more.is_empty(), "{owner} knows {more:?}, too");
    }
}

#[test]
fn architecture_says_what_each_file_holds() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let page = fs::read_to_string(page).unwrap();
    let inside = page.split("## Inside the engine").nth(1).unwrap().split("\n## ").next().unwrap();
    let named: BTreeSet<&str> = inside.split('`').skip(1).step_by(2).collect();
    for file in sources().keys().filter(|file| *file != "engine") {
        assert!(named.contains(file.as_str()), "ARCHITECTURE does not say what {file} holds");
    }
}

/// A block device or another store has no inodes.
#[test]
fn the_engine_knows_owners_and_no_inodes() {
    for (file, text) in sources() {
        assert!(!text.contains("InodeNumber"), "{file} knows inodes");
    }
}
