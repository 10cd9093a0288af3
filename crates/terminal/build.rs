//! The program's version: with the commit it is built from, where that is known.
//!
//! OKEANOS_COMMIT gives it where there is no git (a tarball, a package). Debug builds leave it out:
//! they would be rebuilt after each commit.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=OKEANOS_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    let given = std::env::var("OKEANOS_COMMIT").ok().filter(|commit| !commit.is_empty());
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| is_release.then(of_git).flatten());
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let version = commit.map_or(version.clone(), |commit| format!("{version} (commit {commit})"));
    println!("cargo:rustc-env=OKEANOS_VERSION={version}");
}

fn of_git() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(arguments)
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // Grows by a line with each commit and each change of branch.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo:rerun-if-changed={log}");
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let is_changed = git(&["status", "--porcelain", "--untracked-files=no"])
        .is_some_and(|text| !text.is_empty());
    Some(if is_changed { format!("{commit}, changed since") } else { commit })
}
