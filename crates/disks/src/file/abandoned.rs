//! Other users of a block device, by its number: daemons that write to it, and loop devices that a
//! mount holds whose daemon died.
//!
//! The kernel keeps such a mount and its device as long as a program has a file of it open, also
//! when it was unmounted lazily. No daemon answers for it any more. Once the last request of a
//! killed daemon has ended, which holds the lock of the device's node, nothing writes to the
//! device, and its file may be used without it.

use super::lockers::named;
use super::system::{WHOLE, block_device_at, range_lock_against};
use std::ffi::OsString;
use std::fs::{File, read_dir, read_link, read_to_string};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Connections of FUSE file systems, each named after its device number.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Returns whether the loop device of this number is held by a FUSE mount that no process sees and
/// no process serves. In doubt it is not: unless all processes are visible, for one.
///
/// Its daemon would have the device open. A kernel's file system has no connection of FUSE, and a
/// mount that some process sees may be served by a process that is not visible here.
pub fn is_abandoned(device: &Path, number: u64) -> bool {
    let (major, minor) = (libc::major(number), libc::minor(number));
    let connection =
        Path::new(CONNECTIONS).join((u64::from(major) << 20 | u64::from(minor)).to_string());
    if !sees_all_processes() || !connection.exists() || !is_unlocked(device) {
        return false;
    }
    let mounted = format!(" {major}:{minor} ");
    let uses = |process: &PathBuf| {
        let table = read_to_string(process.join("mountinfo"));
        let sees = match table {
            Ok(table) => table.lines().any(|line| line.contains(&mounted)),
            // The process has ended, or may not be inspected.
            Err(_) => process.exists() && !is_kernel_thread(process),
        };
        sees || has_open(process, number)
    };
    processes().is_some_and(|processes| !processes.iter().any(uses))
}

/// Returns whether a visible process but this one has the block device of this number open. In
/// doubt it has.
pub fn is_open_elsewhere(number: u64) -> bool {
    others().is_none_or(|others| others.iter().any(|process| has_open(process, number)))
}

/// Returns a visible process but this one that has the block device of this number open for
/// writing, and locked, with its name.
pub fn writer_elsewhere(number: u64) -> Option<String> {
    let writes = |process: &PathBuf| {
        let shown = |descriptor: OsString| process.join("fdinfo").join(descriptor);
        let mut opened = opened(process, number).into_iter().flatten().map(shown);
        opened.any(|shown| is_locked_for_writing(&shown))
    };
    others()?.iter().find(|process| writes(process)).map(|process| named(process))
}

/// Whether a descriptor is for writing, and locked, as a disk is that this program writes to.
/// Others keep a loop device open for writing so that it stays attached. Parses the lines `lock:`
/// and `flags:`, in octal digits, of proc(5).
fn is_locked_for_writing(shown: &Path) -> bool {
    let shown = read_to_string(shown).unwrap_or_default();
    if !shown.lines().any(|line| line.starts_with("lock:")) {
        return false;
    }
    let flags = shown.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok()).unwrap_or(0);
    flags & libc::O_PATH == 0 && flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// Returns whether this process sees all others: it is in the first process namespace, and `/proc`
/// hides no process of another user.
pub fn sees_all_processes() -> bool {
    /// PROC_PID_INIT_INO (linux/proc_ns.h).
    const FIRST: &str = "pid:[4026531836]";
    let is_first =
        read_link("/proc/self/ns/pid").is_ok_and(|namespace| namespace == Path::new(FIRST));
    is_first && Path::new("/proc/1").exists()
}

fn is_unlocked(device: &Path) -> bool {
    let lock = File::open(device).and_then(|node| range_lock_against(&node, true, &WHOLE));
    matches!(lock, Ok(None))
}

/// Returns whether the process has the block device open.
fn has_open(process: &Path, number: u64) -> bool {
    match opened(process, number) {
        Ok(mut descriptors) => descriptors.next().is_some(),
        // The process has ended, or may not be inspected.
        Err(_) => process.exists() && !is_kernel_thread(process),
    }
}

/// Returns the descriptors by which the process has the block device open, by whatever name: a
/// container has nodes of its own, and a daemon that left its namespace may have no name for it.
fn opened(process: &Path, number: u64) -> io::Result<impl Iterator<Item = OsString>> {
    let descriptors = read_dir(process.join("fd"))?.flatten();
    let is_it = move |path: PathBuf| block_device_at(&path).is_ok_and(|it| it == Some(number));
    Ok(descriptors.filter(move |it| is_it(it.path())).map(|it| it.file_name()))
}

/// Returns the visible processes but this one.
fn others() -> Option<Vec<PathBuf>> {
    let own = Path::new("/proc").join(std::process::id().to_string());
    let mut others = processes()?;
    others.retain(|process| *process != own);
    Some(others)
}

fn processes() -> Option<Vec<PathBuf>> {
    let entries = read_dir("/proc").ok()?.flatten();
    let numbered = entries.filter(|entry| entry.file_name().as_bytes()[0].is_ascii_digit());
    Some(numbered.map(|entry| entry.path()).collect())
}

/// Whether a process has no program, or has ended without having been waited for.
fn is_kernel_thread(process: &Path) -> bool {
    read_link(process.join("exe")).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}
