//! Mounting again where a dead mount of the same source lies.
//!
//! A mount is dead when its connection is cut: its daemon has ended, or somebody aborted the
//! connection, and the daemon is still writing. Only the former may be taken away without a word.
//! A daemon has its disk locked to its end, and the lock is seen from every process namespace.

use crate::daemon::control::{Client, Place, died};
use crate::daemon::mount_table::{self, Mount};
use crate::disk::open_disk::hold_unlocked;
use crate::error::CliError;
use crate::look::open_to_look;
use crate::mount::umount;
use crate::text::shell::word;
use disks::DiskOpenError;
use host::HostJournal;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Takes dead mounts of `source` on `at` away, so that it can be mounted there anew. `source` is an
/// absolute path without links.
///
/// # Errors
/// A dead mount of another source lies there, or its daemon may be alive.
pub fn take_dead_away(at: &Path, source: &Path) -> Result<(), CliError> {
    take_own_away(at, source, |mount| mount.image() == source || mount.source == source)
}

/// Takes dead mounts of a host on `at` away as [`take_dead_away`] does. `store` is the store's full
/// name, `journal` an absolute path without links: a host has its journal locked to its end. A
/// journal that is still to be made is not the dead one's, which may hold synced data.
pub fn take_dead_host_away(at: &Path, store: &str, journal: &Path) -> Result<(), CliError> {
    let mut start = [0; 12];
    let read = open_to_look(journal).and_then(|mut file| file.read_exact(&mut start));
    let is_journal = read.is_ok() && HostJournal::is_head(&start);
    take_own_away(at, journal, |mount| is_journal && mount.source == Path::new(store))
}

/// Takes away an own dead mount; `source` is what its daemon has locked.
fn take_own_away(
    at: &Path,
    source: &Path,
    is_own: impl Fn(&Mount) -> bool,
) -> Result<(), CliError> {
    let mut held = None;
    // Who takes a mount away may not meet the new one of another command.
    while let Some(mount) = dead_mount_on(at)? {
        if !is_own(&mount) || Place::of_mount(&mount).is_some() {
            return Err(died(&mount));
        }
        match held {
            Some(_) => umount::make_room(&mount)?,
            None => held = Some(refuse_a_living_daemon(&mount, source)?),
        }
    }
    Ok(())
}

fn dead_mount_on(at: &Path) -> Result<Option<Mount>, CliError> {
    let mounts =
        mount_table::mounts().map_err(|error| CliError::system("/proc/self/mountinfo", error))?;
    let top = mounts.into_iter().rfind(|mount| mount.directory == at);
    let top = top.filter(|_| !units::fault!("dead-mount-in-the-way"));
    Ok(top.filter(|mount| mount.is_okeanos() && mount.is_dead()))
}

/// Returns the source, held against other commands that take its mount away.
fn refuse_a_living_daemon(mount: &Mount, source: &Path) -> Result<File, CliError> {
    let (name, at) = (source.display(), mount.directory.display());
    let lives = |who: &str| {
        CliError::new(format!("the connection of {name} on {at} was cut, but {who}"))
            .with_remedy(
                "It writes home what it has, and ends. Then mount again; if it does not, end it.",
            )
            .specific()
    };
    let held = hold_unlocked(source).map_err(|error| match error {
        DiskOpenError::Locked { by, .. } if by.is_empty() => lives(
            "a process that is not visible from here, perhaps in another container, still has it",
        ),
        DiskOpenError::Locked { by, .. } => {
            lives(&format!("its daemon has not ended: {}", by.join(", ")))
        }
        error => CliError::new(error.to_string()),
    })?;
    if Client::connect(mount).is_ok() {
        return Err(lives("its daemon has not ended"));
    }
    let found = held.metadata().map_err(|error| CliError::system(source.display(), error))?;
    if found.file_type().is_block_device() {
        // A container may have a node of its own for the device, with locks of its own.
        if !disks::sees_all_processes() {
            let error = lives("its daemon may be a process that is not visible from here");
            return Err(error.with_remedy(format!(
                "If it has ended, take the dead mount away: okeanos umount {}. Then mount again.",
                word(&mount.directory)
            )));
        }
        if disks::is_open_elsewhere(found.rdev()) {
            return Err(lives("a process still has the device open (see who: fuser -v)"));
        }
    }
    Ok(held)
}
