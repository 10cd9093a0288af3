//! Processes that have a file locked, for refusals that name them. All of it is advice.

use super::system::{Identity, identity_of};
use std::fs::{read_dir, read_to_string};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Maximum number listed; more would not help.
const LISTED_MAX: usize = 5;

/// The two kinds of locks, which do not see each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// Locked by flock(2).
    Node,
    /// Locked by fcntl(2).
    Bytes,
}

impl LockKind {
    /// Returns whether a line of `/proc/PID/fdinfo/FD` shows such a lock:
    /// `lock: 1: OFDLCK  ADVISORY  WRITE -1 00:1b:4711 0 EOF`.
    fn is_shown_by(self, line: &str) -> bool {
        let mut words = line.split_whitespace();
        words.next() == Some("lock:")
            && words.nth(1).is_some_and(|word| (word == "FLOCK") == (self == LockKind::Node))
    }
}

/// Returns the processes that this process may inspect and that hold a lock of this open file's
/// inode, as `okeanos (1234)`. fcntl(2) does not say it: a lock of an open file has no process.
pub fn lockers_of(file: &impl AsFd, kind: LockKind) -> Vec<String> {
    let own = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let Ok(locked) = identity_of(Path::new(&own)) else { return Vec::new() };
    let processes = read_dir("/proc").into_iter().flatten().flatten();
    let numbered = processes.filter(|entry| entry.file_name().as_bytes()[0].is_ascii_digit());
    numbered
        .filter(|process| has_locked(&process.path(), &locked, kind))
        .take(LISTED_MAX)
        .map(|process| named(&process.path()))
        .collect()
}

/// Returns the name and number of a process, by its directory in `/proc`.
pub fn named(process: &Path) -> String {
    let name = read_to_string(process.join("comm")).unwrap_or_default();
    // Any process chooses its name, and this text goes to terminals and logs.
    let name: String = name.trim_end().chars().filter(|char| !char.is_control()).collect();
    format!("{name} ({})", process.file_name().unwrap_or_default().to_string_lossy())
}

/// Returns whether a descriptor of the process shows a lock (proc(5)) and has the inode open.
fn has_locked(process: &Path, locked: &Identity, kind: LockKind) -> bool {
    let descriptors = read_dir(process.join("fdinfo")).into_iter().flatten().flatten();
    descriptors.into_iter().any(|descriptor| {
        let shown = read_to_string(descriptor.path()).unwrap_or_default();
        shown.lines().any(|line| kind.is_shown_by(line))
            && identity_of(&process.join("fd").join(descriptor.file_name()))
                .is_ok_and(|found| found == *locked)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::system::{Lock, lock_bytes, lock_node};

    #[test]
    fn the_process_that_has_locked_a_file_is_named() {
        let (named, other) =
            (tempfile::NamedTempFile::new().unwrap(), tempfile::tempfile().unwrap());
        let locked = named.reopen().unwrap();
        assert!(lockers_of(&locked, LockKind::Bytes).is_empty());
        lock_bytes(&locked, Lock::Exclusive, &(0..u64::MAX)).unwrap();
        assert!(lockers_of(&locked, LockKind::Node).is_empty());
        let found = lockers_of(named.as_file(), LockKind::Bytes);
        assert_eq!(found.len(), 1);
        assert!(found[0].ends_with(&format!("({})", std::process::id())), "{found:?}");
        lock_node(&other).unwrap();
        assert!(lockers_of(&other, LockKind::Bytes).is_empty());
        assert_eq!(lockers_of(&other, LockKind::Node), found);
    }
}
