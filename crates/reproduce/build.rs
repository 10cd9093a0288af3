//! Identity of the program for results: for each folder of figures a checksum over the sources of
//! every crate of the workspace that plays them, and the commit they are from. Statements, records
//! of parameters, and what makes pages and pictures of results are not part of it: a report has its
//! own.
//!
//! Debug builds leave the commit out: they would be rebuilt after each commit.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use xxhash_rust::xxh64::Xxh64;

/// The parts of a crate that decide results, with data that is compiled in.
const PARTS: [&str; 6] = ["Cargo.toml", "src", "models", "data", "traces", "profiles"];
/// Parts of this crate that concern all figures; each folder of figures is added to its own
/// checksum.
const OWN_PARTS: [&str; 7] = [
    "Cargo.toml",
    "src/figures/common",
    "src/context.rs",
    "src/overrides.rs",
    "src/seeds.rs",
    "src/claim.rs",
    "src/statement/bound.rs",
];

/// The folder whose figures are played in real time: by all that a daemon is made of.
const IN_REAL_TIME: &str = "kernel";
/// The folder whose figures have hosts. No other one makes any.
const WITH_HOSTS: &str = "arion";
const HOSTS: [&str; 2] = ["host", "store"];
const STAGES_OF_HOSTS: &str = "testbeds/src/virtual_time/shared_files";
/// The folder whose figures are other views of another folder's runs.
const VIEWS: (&str, &str) = ("atc", "okeanos");
/// Crates that run in real time only.
const REAL_TIME: [&str; 5] = [
    "disks/src/file",
    "runtime/src/heap",
    "runtime/src/ring",
    "runtime/src/real_world.rs",
    "testbeds/src/real_time",
];

fn main() {
    let own = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let crates = own.parent().expect("a crate lies beside others");
    let figures = own.join("src/figures");
    let folders = std::fs::read_dir(&figures).expect("it is there").flatten();
    let mut folders: Vec<String> = folders
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name != "common")
        .collect();
    folders.sort();
    let sums = folders
        .iter()
        .map(|folder| format!("{folder}={:016x}", checksum(crates, folder, &figures.join(folder))));
    println!("cargo:rustc-env=OKEANOS_FIGURES_PROGRAMS={}", sums.collect::<Vec<_>>().join(" "));
    println!("cargo:rerun-if-changed={}", crates.display());
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=OKEANOS_COMMIT");
    let given = std::env::var("OKEANOS_COMMIT").ok().filter(|commit| !commit.is_empty());
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| is_release.then(of_git).flatten()).unwrap_or_default();
    println!("cargo:rustc-env=OKEANOS_FIGURES_COMMIT={commit}");
}

/// Returns the checksum for a folder of figures.
fn checksum(crates: &Path, folder: &str, figures: &Path) -> u64 {
    let is_real = folder == IN_REAL_TIME;
    let mut names = dependencies(crates, if is_real { "lab" } else { "reproduce" });
    names.retain(|name| is_real || folder == WITH_HOSTS || !HOSTS.contains(&name.as_str()));
    let mut without: Vec<PathBuf> = match is_real {
        true => Vec::new(),
        false => REAL_TIME.iter().map(|path| crates.join(path)).collect(),
    };
    if !is_real && folder != WITH_HOSTS {
        without.push(crates.join(STAGES_OF_HOSTS));
    }
    // Names must not depend on where the sources lie.
    let base = crates.parent().expect("the crates lie in the workspace");
    let mut tree = Tree { sum: Xxh64::new(0), base, without };
    for name in names {
        let parts = if name == "reproduce" { &OWN_PARTS[..] } else { &PARTS[..] };
        parts.iter().for_each(|part| tree.add(&crates.join(&name).join(part)));
    }
    tree.add(figures);
    if folder == VIEWS.0 {
        tree.add(&figures.with_file_name(VIEWS.1));
    }
    tree.add(&base.join("Cargo.lock"));
    tree.sum.digest()
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

struct Tree<'a> {
    sum: Xxh64,
    base: &'a Path,
    without: Vec<PathBuf>,
}

impl Tree<'_> {
    /// Adds the names and contents of all files of a tree.
    fn add(&mut self, path: &Path) {
        if self.without.iter().any(|left_out| left_out == path) {
            return;
        }
        if let Ok(entries) = std::fs::read_dir(path) {
            let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            paths.sort();
            paths.iter().for_each(|path| self.add(path));
        } else if let Ok(content) = std::fs::read(path) {
            let name = path.strip_prefix(self.base).expect("all are of the workspace");
            self.sum.update(name.to_string_lossy().as_bytes());
            self.sum.update(&(content.len() as u64).to_le_bytes());
            self.sum.update(&content);
        }
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
