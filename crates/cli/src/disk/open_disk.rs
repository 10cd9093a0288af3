//! Opening and claiming image files and devices.

use crate::daemon::file_size::refuse_longer_than_limit;
use crate::daemon::mounted::not_opened;
use crate::error::CliError;
use disks::{Claim, DiskAccess, DiskOpenError, FileDisk};
use runtime::RealWorld;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time limit: the kernel releases a killed daemon's resources (ring, loop device) a little after
/// the daemon's end.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);

/// Remedy where an ordinary user attaches a block device.
pub const NEEDS_ROOT: &str = "A block device needs root. An ordinary user can serve NBD clients, \
     such as qemu: okeanos blocks attach --via nbd --socket PATH.";

/// Opens a disk; waits a little while another process has it. Blocks the thread: for the start of a
/// program.
pub fn open_disk(world: &RealWorld, path: &Path, access: DiskAccess) -> Result<FileDisk, CliError> {
    open_disk_over(world, path, access, None)
}

/// Opens a disk on a loop device whose file the caller has locked.
pub fn open_disk_over(
    world: &RealWorld,
    path: &Path,
    access: DiskAccess,
    behind: Option<&File>,
) -> Result<FileDisk, CliError> {
    if access == DiskAccess::ReadWrite {
        refuse_longer_than_limit(path)?;
    }
    patiently(|| FileDisk::open_over(world.ring(), path, access, behind)).map_err(not_opened)
}

/// Returns the computer's name, which a volume with the feature mmp shows to others.
pub fn node_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| String::new(), |name| name.trim().into())
}

/// Refuses one file or device in both roles, of the volume and of its journal.
pub fn refuse_same(volume: &Path, journal: &Path) -> Result<(), CliError> {
    let number = |path: &Path| {
        let found = std::fs::metadata(path).ok()?;
        Some(match found.file_type().is_block_device() {
            true => (0, found.rdev()),
            false => (found.dev(), found.ino()),
        })
    };
    // An image that is still to be made has a name alone.
    let is_same = volume == journal || number(volume).is_some_and(|it| number(journal) == Some(it));
    match is_same {
        true => Err(CliError::new(format!(
            "{} is given twice: as the volume and as its journal",
            volume.display()
        ))
        .with_remedy("Name another file or device for the journal, or leave it out.")),
        false => Ok(()),
    }
}

/// Claims a disk for another program, which opens it itself. No command of Okeanos uses it as long
/// as the claim lives.
pub fn claim(path: &Path) -> Result<Claim, CliError> {
    try_claim(path).map_err(not_opened)
}

/// Claims as [`claim`], for a caller who handles the error.
pub fn try_claim(path: &Path) -> Result<Claim, DiskOpenError> {
    patiently(|| Claim::take(path))
}

/// Returns the open disk, if no daemon of Okeanos has it; other commands that ask wait for the end
/// of the result.
pub fn hold_unlocked(path: &Path) -> Result<File, DiskOpenError> {
    patiently(|| disks::hold_unlocked(path))
}

/// Locks an image file for a loop device.
pub fn lock_image(path: &Path, image: &File, access: DiskAccess) -> Result<(), CliError> {
    patiently(|| disks::lock_image(path, image, access)).map_err(not_opened)
}

fn patiently<T>(mut attempt: impl FnMut() -> Result<T, DiskOpenError>) -> Result<T, DiskOpenError> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(
                DiskOpenError::Busy { .. }
                | DiskOpenError::Locked { .. }
                | DiskOpenError::Attached { .. }
                | DiskOpenError::AttachedTwice { .. },
            ) if begun.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
}
