//! Processes that keep a mount busy. Only links in `/proc` are read, so a file system that does not
//! answer delays nobody.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number listed; more would not help.
const LISTED_MAX: usize = 5;

/// Returns the processes that this process may inspect and that use something below `directory`:
/// `sleep (1234) in /mnt/a/b`. This process is not listed.
pub fn users_of(directory: &Path) -> Vec<String> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers =
        processes.flatten().filter(|entry| entry.file_name().as_bytes()[0].is_ascii_digit());
    let ourselves = std::process::id().to_string();
    let mut users: Vec<String> = numbers
        .filter(|process| process.file_name().as_bytes() != ourselves.as_bytes())
        .filter_map(|process| {
            let path = process.path();
            let used = used_by(&path, directory)?;
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            let number = process.file_name();
            Some(format!("{} ({}) {used}", name.trim_end(), number.to_string_lossy()))
        })
        .take(LISTED_MAX + 1)
        .collect();
    if users.len() > LISTED_MAX {
        users[LISTED_MAX] = "and others".into();
    }
    users
}

/// Returns the first path below `directory` that a process uses, and how.
fn used_by(process: &Path, directory: &Path) -> Option<String> {
    let below = |path: &PathBuf| path.starts_with(directory);
    let link = |name: &str| fs::read_link(process.join(name)).ok().filter(below);
    if let Some(path) = link("cwd").or_else(|| link("root")) {
        return Some(format!("in {}", path.display()));
    }
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let mapped = fs::read_dir(process.join("map_files")).into_iter().flatten().flatten();
    let mut files = open.chain(mapped).filter_map(|entry| fs::read_link(entry.path()).ok());
    files.find(below).map(|path| format!("with {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_an_open_file_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        assert!(users_of(&path).is_empty());
        let file = fs::File::create(path.join("file")).unwrap();
        assert!(users_of(&path).is_empty(), "this process does not name itself");
        let mut sleeper =
            std::process::Command::new("sleep").arg("1000").stdin(file).spawn().unwrap();
        let users = users_of(&path);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert_eq!(users.len(), 1);
        let (number, file_path) = (sleeper.id(), path.join("file"));
        assert!(
            users[0].ends_with(&format!("({number}) with {}", file_path.display())),
            "{users:?}"
        );
    }
}
