//! `okeanos blocks detach`.

use super::{PATIENCE, driver_device, holds_volume};
use crate::daemon::control::Place;
use crate::daemon::mount_table;
use crate::daemon::mounted::refuse_mounted;
use crate::error::CliError;
use crate::mount::loop_device;
use crate::mount::umount;
use crate::text::shell::word;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

pub fn run(device: &Path, force: bool) -> Result<(), CliError> {
    let place = match Place::behind(device) {
        Some(place) => place,
        None if device.to_string_lossy().starts_with("/dev/loop") && !holds_volume(device) => {
            return Err(not_attached(device));
        }
        None => Place::of(device)?,
    };
    let is_mounted = mount_table::mount_on(&place.0).ok().flatten().is_some();
    // A driver's device may wait for the next daemon.
    if !is_mounted && place.driver_device().is_none() {
        return Err(not_attached(device));
    }
    driver_device::take_away(&place, force)?;
    if let Some(attached) = place.loop_device() {
        refuse_mounted(&attached)?;
        let system = |error| CliError::system(attached.display(), error);
        match loop_device::detach(&attached) {
            // The daemon died.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                loop_device::detach_dead(&attached).map_err(system)?
            }
            result => result.map_err(system)?,
        }
        let begun = Instant::now();
        while place.loop_device().is_some() {
            if begun.elapsed() > PATIENCE {
                let name = attached.display();
                return Err(CliError::new(format!("{name} is in use"))
                    .with_remedy(format!("See who uses it: fuser -v {}.", word(&attached))));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    run_at(&place)
}

fn not_attached(device: &Path) -> CliError {
    CliError::new(format!("{} is not attached", device.display()))
        .with_remedy("See what is attached: okeanos list.")
}

/// Detaches the loop device on the volume's file in `directory`, unless somebody uses it. Returns
/// whether it is gone.
pub fn detach_unless_used(directory: &Path) -> bool {
    /// Time for udev, which may have it open for a moment, to close it.
    const PATIENCE: Duration = Duration::from_secs(1);
    let place = Place(directory.to_owned());
    let Some(device) = place.loop_device() else { return true };
    // Refused where the device is mounted, or another program has claimed it.
    let claim = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&device);
    if claim.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
        return false;
    }
    let begun = Instant::now();
    let _ = loop_device::detach(&device);
    while place.loop_device().is_some() && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    place.loop_device().is_none()
}

/// Ends the daemon of a volume that has no block device.
pub fn run_at(place: &Place) -> Result<(), CliError> {
    let system = |error| CliError::system(place.0.display(), error);
    if let Some(mount) = mount_table::mount_on(&place.0).map_err(system)? {
        umount::end(&mount, false)?;
    }
    // The next attachment makes it again.
    let _ = std::fs::remove_dir(&place.0);
    Ok(())
}
