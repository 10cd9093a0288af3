//! What a mount, alive or dead, keeps others from.

use super::control;
use super::mount_table::{self, Mount};
use crate::error::CliError;
use disks::DiskOpenError;
use std::path::Path;

/// A dead mount would hide the new one's directory, or be what a second mount of its device
/// attaches to.
pub fn refuse_dead(mount: Option<&Mount>) -> Result<(), CliError> {
    match mount {
        Some(mount) if mount.is_okeanos() && mount.is_dead() => Err(control::died(mount)),
        _ => Ok(()),
    }
}

/// For commands that need a volume to themselves: `path` is one whose daemon has died, or its
/// mount's directory.
pub fn refuse_if_its_daemon_died(path: &Path) -> Result<(), CliError> {
    refuse_dead(mount_table::mount_of(path).as_ref())
}

/// What keeps `source` from being used: a mount, alive or dead.
pub fn is_mounted(mount: &Mount, source: &Path) -> CliError {
    if let Err(died) = refuse_dead(Some(mount)) {
        return died;
    }
    let at = mount.directory.display();
    let program = if mount.is_okeanos() { "okeanos umount" } else { "umount" };
    CliError::new(format!("{} is in use: it is mounted on {at}", source.display()))
        .with_remedy(format!("Unmount it first: {program} {at}."))
}

impl From<DiskOpenError> for CliError {
    /// Names the mount that is in the way, where it is one of ours.
    fn from(error: DiskOpenError) -> CliError {
        let told = CliError::new(error.to_string());
        match error {
            DiskOpenError::Mounted { path, .. }
            | DiskOpenError::Busy { path, .. }
            | DiskOpenError::Locked { path }
            | DiskOpenError::Attached { path, .. } => {
                mount_table::mount_of(&path).map_or(told, |mount| is_mounted(&mount, &path))
            }
            _ => told,
        }
    }
}
