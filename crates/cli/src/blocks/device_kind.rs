//! Kinds of block devices that a volume is attached as.

use super::{Via, driver_device, nbd_device, ublk_device};
use crate::daemon::control::{DriverDevice, Place};
use crate::daemon::reporter::complain;
use crate::error::CliError;
use crate::mount::loop_device::{self, LoopDevice, Stands};
use crate::text::output::print;
use disks::DiskAccess;
use std::path::{Path, PathBuf};

/// Kind of block device that a volume is attached as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceKind {
    Ublk,
    Nbd,
    Loop,
}

impl DeviceKind {
    /// Returns the kind to attach. With `auto` that is the kind of the device that waits for this
    /// daemon; else what was refused is reported.
    pub fn choose(via: Via, waiting: Option<DriverDevice>) -> Result<DeviceKind, CliError> {
        match (via, waiting) {
            (Via::Loop, _) => Ok(DeviceKind::Loop),
            (Via::Ublk, _) | (Via::Auto, Some(DriverDevice::Ublk(_))) => {
                ublk_device::probe().map_err(ublk_device::unavailable).map(|()| DeviceKind::Ublk)
            }
            (Via::Nbd, _) | (Via::Auto, Some(DriverDevice::Nbd(_))) => {
                nbd_device::probe().map_err(nbd_device::unavailable).map(|()| DeviceKind::Nbd)
            }
            (Via::Auto, None) => Ok(DeviceKind::best()),
        }
    }

    fn best() -> DeviceKind {
        let Err(no_ublk) = ublk_device::probe() else { return DeviceKind::Ublk };
        complain(&format!("okeanos: no ublk device, so it becomes a loop device: {no_ublk}"));
        DeviceKind::Loop
    }

    /// Whether a waiting device is of this kind.
    pub fn is_of(self, device: DriverDevice) -> bool {
        match device {
            DriverDevice::Ublk(_) => self == DeviceKind::Ublk,
            DriverDevice::Nbd(_) => self == DeviceKind::Nbd,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            DeviceKind::Ublk => "ublk",
            DeviceKind::Nbd => "nbd",
            DeviceKind::Loop => "loop",
        }
    }

    /// Makes the block device of a daemon that is up, and prints its path. `waited`: the device
    /// waited for this daemon.
    pub fn attach(
        self,
        (place, source): (&Place, &Path),
        read_only: bool,
        waited: bool,
    ) -> Result<(), CliError> {
        let attached = match self {
            DeviceKind::Ublk | DeviceKind::Nbd => driver_device::start(place),
            DeviceKind::Loop => attach_loop(place, read_only),
        };
        match attached {
            Ok(path) => print(&format_args!("{}\n", path.display())),
            Err(error) => {
                // The device cannot be used. The daemon ends first: as long as it has the disk, the
                // device may be in use.
                let _ = super::detach::run_at(place);
                self.clean_up((place, source), waited);
                Err(error)
            }
        }
    }

    /// Removes what a daemon has made that did not get so far as to use it.
    pub fn clean_up(self, (place, source): (&Place, &Path), waited: bool) {
        if self != DeviceKind::Loop {
            driver_device::remove_unstarted(place, source, waited);
        }
    }
}

fn attach_loop(place: &Place, read_only: bool) -> Result<PathBuf, CliError> {
    let access = if read_only { DiskAccess::ReadOnly } else { DiskAccess::ReadWrite };
    let file = place.file();
    let held = loop_device::hold(&file)?;
    Ok(LoopDevice::attach(&file, &held, access, Stands::UntilDetached)?.path)
}
