//! The owners of the engine, and of the crate `commit` below it, know each other in one direction
//! only: read from the sources.
//!
//! A file knows another if it imports from it, or if it calls a method of `Engine` that is defined
//! there. `impl Engine` stands in several files, and a call needs no import.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The path of each file below `src`, by the name of the file. A folder's `mod.rs` that holds an
/// owner has the name of the folder.
fn paths() -> BTreeMap<String, PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![here.join("src"), here.join("../commit/src")];
    let mut found = BTreeMap::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.ends_with("lib.rs") {
                continue;
            }
            let is_folder = path.file_name().is_some_and(|name| name == "mod.rs");
            let named = if is_folder { path.parent().unwrap() } else { &path };
            let name = named.file_stem().unwrap().to_str().unwrap().to_owned();
            let before = found.insert(name, path.clone());
            assert!(before.is_none(), "{} and {before:?} have one name", path.display());
        }
    }
    found
}

/// The text of each file, by name, without what its tests need. Files that only declare modules
/// are left out.
fn sources() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (name, path) in paths() {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let declares_only = code.lines().all(|line| {
            line.is_empty() || line.starts_with("//") || line.starts_with("pub(crate) mod ")
        });
        if !declares_only {
            found.insert(name, code.to_owned());
        }
    }
    assert!(
        found.len() > 60 && found.contains_key("pipeline"),
        "the sources are not where they are looked for"
    );
    found
}

/// The files that the paths of `text` lead to.
fn named_files<'a>(sources: &'a BTreeMap<String, String>, text: &'a str) -> BTreeSet<&'a str> {
    let is_end = |letter: char| !letter.is_alphanumeric() && !"_:".contains(letter);
    let paths = text.split("crate::").skip(1).filter_map(|rest| rest.split(is_end).next());
    let is_module = |part: &&str| part.starts_with(char::is_lowercase);
    let file = |path: &'a str| {
        let modules = path.split("::").take_while(is_module);
        modules.filter(|part| sources.contains_key(*part)).last()
    };
    let mut files: BTreeSet<_> = paths.filter_map(file).collect();
    let clauses = text.split("use commit::").skip(1).filter_map(|rest| rest.split(';').next());
    files.extend(clauses.flat_map(|clause| {
        let names = clause.split(|letter: char| !letter.is_alphanumeric());
        names.filter_map(|name| declaring_file(sources, name))
    }));
    files
}

/// The file that declares a type or trait.
fn declaring_file<'a>(sources: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    let declares = |text: &str| {
        ["struct ", "trait ", "enum "].iter().any(|word| names(text, word, "").contains(name))
    };
    let found = sources.iter().find(|(_, text)| !name.is_empty() && declares(text));
    found.map(|(file, _)| file.as_str())
}

/// The names that follow each `before` in `text`, if `after` stands behind them.
fn names<'a>(text: &'a str, before: &str, after: &str) -> BTreeSet<&'a str> {
    let name = |rest: &'a str| {
        let end = rest
            .find(|letter: char| !letter.is_alphanumeric() && letter != '_')
            .unwrap_or(rest.len());
        rest[end..].starts_with(after).then_some(&rest[..end])
    };
    text.split(before).skip(1).filter_map(name).collect()
}

/// Methods, each with the file that defines it, of types that borrow owners and are declared in
/// another file: a call needs no import. Names that several files define are left out.
fn methods_elsewhere(sources: &BTreeMap<String, String>) -> BTreeMap<&str, &str> {
    let mut declared: BTreeMap<&str, &str> = BTreeMap::new();
    let mut defined: BTreeMap<&str, usize> = BTreeMap::new();
    for (file, text) in sources {
        declared.extend(names(text, "struct ", "").into_iter().map(|name| (name, file.as_str())));
        // The calls of the engine have the names of what they call.
        let own = names(text, "fn ", "").into_iter().filter(|_| file != "calls");
        own.for_each(|name| *defined.entry(name).or_default() += 1);
    }
    let borrows = |part: &&str| part.split(' ').next().is_some_and(|name| name.ends_with("<'_>"));
    let mut methods = BTreeMap::new();
    for (file, text) in sources.iter().filter(|(file, _)| *file != "calls") {
        for part in text.split("\nimpl ").skip(1).filter(|part| borrows(part)) {
            let end = part.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(0);
            let (name, body) = (&part[..end], part.split("\n}\n").next().unwrap());
            if declared.get(name).is_some_and(|home| home != file) {
                let own = names(body, "fn ", "")
                    .into_iter()
                    .filter(|method| defined.get(method) == Some(&1));
                methods.extend(own.map(|method| (method, file.as_str())));
            }
        }
    }
    methods
}

/// Returns the files that each file names.
fn edges(sources: &BTreeMap<String, String>) -> BTreeMap<&str, BTreeSet<&str>> {
    let methods = methods_elsewhere(sources);
    for (method, file) in
        [("load_all", "read"), ("fetch", "mapped"), ("make_home_durable", "range")]
    {
        assert_eq!(methods.get(method), Some(&file), "{method} is not found");
    }
    let edges_of = |file: &str, text: &'static str| -> BTreeSet<&str> {
        let mut known = named_files(sources, text);
        // Others call methods of the same names, of types of other crates.
        let borrows = |name: &&str| {
            sources[*name].contains("#[derive(Clone, Copy)]\npub(crate) struct")
                && sources[*name].contains("<'a> {")
        };
        if known.contains("engine") || known.iter().chain([&file]).any(borrows) {
            let calls = names(text, ".", "(").into_iter();
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
    assert!(edges["engine"].contains("commit_task") && edges["commit_task"].contains("running"));
    // A file that knows only files in no circle is in none.
    while let Some(free) =
        edges.iter().find(|(_, known)| known.iter().all(|to| !edges.contains_key(to)))
    {
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
        (
            "pipeline",
            all(&[
                "admission_queue",
                "commit_error",
                "completion",
                "running",
                "shutdown",
                "writers",
            ]),
        ),
        ("running", all(&["completion"])),
        ("shutdown", all(&["commit_error"])),
        ("mapping", all(&["update"])),
        ("snapshot", all(&[])),
        ("block", all(&["images", "state", "update"])),
        ("range_check", all(&["block"])),
        ("images", all(&["image", "limits"])),
        ("block_cache", all(&["block", "images"])),
        ("durability", all(&["commit_error", "home", "log_area", "plan_disks"])),
        ("writers", all(&[])),
        ("tail", all(&["durability"])),
        ("superblock", all(&[])),
        ("live_records", all(&[])),
        ("dirty_queue", all(&["block", "block_cache"])),
        ("coalescing", all(&["block", "block_cache"])),
        ("claims", all(&[])),
        ("checkpoints", all(&[])),
        ("unordered_data", all(&[])),
        ("direct_writes", all(&[])),
        ("sequences", all(&[])),
    ] {
        let more: Vec<_> = edges[owner].difference(&allowed).collect();
        assert!(more.is_empty(), "{owner} knows {more:?}, too");
    }
}

/// Owners of ARCHITECTURE's table that are no part of another.
const OWNERS: [&str; 14] = [
    "pipeline",
    "block",
    "block_cache",
    "durability",
    "log_state",
    "live_records",
    "tail",
    "mapping",
    "snapshot",
    "dirty_queue",
    "checkpoints",
    "unordered_data",
    "direct_writes",
    "sequences",
];

/// A table of facts says what invariants say elsewhere.
#[test]
fn owners_begin_with_their_invariants_and_end_with_their_tests() {
    let paths = paths();
    for owner in OWNERS {
        let text = fs::read_to_string(&paths[owner]).unwrap();
        let head: Vec<_> = text.lines().take_while(|line| line.starts_with("//!")).collect();
        let says = |start: &str| head.iter().any(|line| line.starts_with(start));
        assert!(
            says("//! Invariant") || says("//! |---|"),
            "{owner} does not say what it holds to"
        );
        assert!(text.contains("#[cfg(test)]\nmod tests {"), "{owner} has no tests");
    }
}

/// The types of a file that have named fields, each with the lines that declare them.
fn types(text: &str) -> Vec<(&str, Vec<&str>)> {
    let declared = text.split("struct ").skip(1).filter_map(|rest| {
        let name = rest.split(|letter: char| !letter.is_alphanumeric()).next()?;
        let (head, body) = rest.split_once('\n')?;
        let lines = body.split("\n}").next()?.lines().map(str::trim);
        let is_field = |line: &&str| !line.starts_with("//") && line.contains(": ");
        head.ends_with('{').then(|| (name, lines.filter(is_field).collect()))
    });
    declared.collect()
}

/// Whether a method of a type changes it; those of traits aside.
fn has_changes(text: &str, name: &str) -> bool {
    let blocks = text.split("\nimpl").skip(1).filter_map(|rest| rest.split_once('\n'));
    blocks.into_iter().any(|(head, rest)| {
        let of = head.split(' ').nth(1).unwrap_or_default().split('<').next().unwrap_or_default();
        of == name
            && !head.contains(" for ")
            && rest.split("\n}").next().unwrap().contains("&mut self")
    })
}

/// A type keeps state if it can change: by a method, or in a cell. One with open fields is a record
/// of facts, and nothing changes it.
#[test]
fn types_that_keep_state_keep_their_fields_to_themselves() {
    // The methods of these stand in several files. A recovery has ended before there is an engine.
    const IN_SEVERAL_FILES: [&str; 2] = ["Engine", "Recovery"];
    let mut keep_state = BTreeSet::new();
    for (file, text) in &sources() {
        for (name, fields) in types(text) {
            // What a type borrows is its owner's.
            let is_cell = |field: &&str| {
                !field.contains("&'a ")
                    && ["Cell<", "Event"].iter().any(|kind| field.contains(kind))
            };
            if IN_SEVERAL_FILES.contains(&name)
                || !has_changes(text, name) && !fields.iter().any(is_cell)
            {
                continue;
            }
            let open: Vec<_> = fields.iter().filter(|field| field.starts_with("pub")).collect();
            assert!(open.is_empty(), "{file}: {name} opens {open:?}");
            keep_state.insert(name.to_owned());
        }
    }
    let known = [
        "Cache",
        "CachedBlock",
        "Checkpoints",
        "Counters",
        "Durability",
        "DirtyQueue",
        "Images",
        "LiveRecords",
        "LogState",
        "LogSuperblock",
        "DirectWrites",
        "UnorderedData",
        "Mapping",
        "Pipeline",
        "PlanExecutor",
        "Running",
        "Sequences",
        "Snapshot",
        "Tail",
        "Usage",
    ];
    for name in known {
        assert!(keep_state.contains(name), "{name} is not found: {keep_state:?}");
    }
}

#[test]
fn the_engine_holds_its_owners_and_what_it_was_opened_with() {
    let sources = sources();
    let (_, fields) =
        types(&sources["engine"]).into_iter().find(|(name, _)| *name == "Engine").unwrap();
    let name = |field: &&str| {
        field.trim_start_matches("pub(crate) ").split(':').next().unwrap().to_owned()
    };
    let found: BTreeSet<_> = fields.iter().map(name).collect();
    let opened_with = ["world", "home", "block_size", "options", "policy", "pacing", "commit_age"];
    let owners = [
        "pipeline",
        "cache",
        "queue",
        "claims",
        "home_bytes",
        "durability",
        "checkpoints",
        "unordered",
        "direct_writes",
        "sequences",
        "range_checks",
        "log",
    ];
    let besides = ["executor", "counters", "utilization", "begun"];
    let expected: BTreeSet<_> =
        opened_with.into_iter().chain(owners).chain(besides).map(str::to_owned).collect();
    assert_eq!(found, expected);
}

/// A block device or another store has no inodes.
#[test]
fn the_engine_knows_owners_and_no_inodes() {
    for (file, text) in sources() {
        assert!(!text.contains("InodeNumber"), "{file} knows inodes");
    }
}
