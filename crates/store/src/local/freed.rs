//! Large files whose blocks the kernel frees when they are closed: their last names are gone.

use rustix::fs::{CWD, Mode, OFlags, openat};
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Length of a file, in units of 512 bytes, whose blocks are freed while other requests wait.
const FREED_AT_ONCE: u64 = (16 << 20) / 512;

pub(super) fn is_long(found: &Metadata) -> bool {
    found.is_file() && found.blocks() >= FREED_AT_ONCE
}

/// Holds a large file that is about to lose its last name. The kernel frees its blocks, which takes
/// seconds for hundreds of GiB, when this is closed, and not within the call that removes the name.
pub(super) fn held_long(place: &Path, found: &Metadata) -> Option<File> {
    let frees = is_long(found) && found.nlink() == 1;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = frees.then(|| openat(CWD, place, flags, Mode::empty()).ok()).flatten();
    held.filter(|_| !units::fault!("store-freed-at-once")).map(File::from)
}
