//! Identity of the program for results: a checksum over the sources of every crate of the workspace
//! that a figure is played by, and the commit they are from. Statements, records of parameters, and
//! what makes pages and pictures of results are not part of it: a report has its own.
//!
//! Debug builds leave the commit out: they would be rebuilt after each commit.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use xxhash_rust::xxh64::Xxh64;

/// The parts of a crate that decide results, with data that is compiled in.
const PARTS: [&str; 6] = ["Cargo.toml", "src", "models", "data", "traces", "profiles"];
/// Those of this crate.
const OWN_PARTS: [&str; 6] = [
    "Cargo.toml",
    "src/figures",
    "src/context.rs",
    "src/seeds.rs",
    "src/claim.rs",
    "src/statement/bound.rs",
];

fn main() {
    let own = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let crates = own.parent().expect("a crate lies beside others");
    let mut sum = Xxh64::new(0);
    for name in dependencies(crates, "reproduce") {
        let root = crates.join(&name);
        let parts = if name == "reproduce" { &OWN_PARTS[..] } else { &PARTS[..] };
        for part in parts {
            println!("cargo:rerun-if-changed={}", root.join(part).display());
            add(&mut sum, &root.join(part), crates);
        }
    }
    add(&mut sum, &crates.with_file_name("Cargo.lock"), crates);
    println!("cargo:rustc-env=OKEANOS_FIGURES_PROGRAM={:016x}", sum.digest());
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=OKEANOS_COMMIT");
    let given = std::env::var("OKEANOS_COMMIT").ok().filter(|commit| !commit.is_empty());
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| is_release.then(of_git).flatten()).unwrap_or_default();
    println!("cargo:rustc-env=OKEANOS_FIGURES_COMMIT={commit}");
}

/// Returns a crate and those of the workspace that it depends on, sorted.
fn dependencies(crates: &Path, name: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::from([name.to_owned()]);
    let mut open = vec![name.to_owned()];
    while let Some(one) = open.pop() {
        let text = std::fs::read_to_string(crates.join(&one).join("Cargo.toml"))
            .unwrap_or_else(|error| panic!("{one}: {error}"));
        let (_, list) = text.split_once("\n[dependencies]\n").unwrap_or_default();
        let list = list.split("\n[").next().unwrap_or_default();
        for line in list.lines() {
            let dependency = line.split(['.', ' ']).next().unwrap_or_default();
            if crates.join(dependency).join("Cargo.toml").is_file()
                && found.insert(dependency.to_owned())
            {
                open.push(dependency.to_owned());
            }
        }
    }
    found
}

/// Adds the names and contents of all files of a tree.
fn add(sum: &mut Xxh64, path: &Path, base: &Path) {
    if let Ok(entries) = std::fs::read_dir(path) {
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths.iter().for_each(|path| add(sum, path, base));
    } else if let Ok(content) = std::fs::read(path) {
        let name = path.strip_prefix(base).unwrap_or(path);
        sum.update(name.to_string_lossy().as_bytes());
        sum.update(&(content.len() as u64).to_le_bytes());
        sum.update(&content);
    }
}

fn of_git() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    };
    // Grows by a line with each commit and each change of branch.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo:rerun-if-changed={log}");
    let commit = git(&["show", "-s", "--format=%h of %cs", "--abbrev=12", "HEAD"])?;
    let is_changed = git(&["status", "--porcelain", "--untracked-files=no"])
        .is_some_and(|text| !text.is_empty());
    Some(if is_changed { format!("{commit}, changed since") } else { commit })
}
