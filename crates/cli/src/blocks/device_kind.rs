//! Kinds of block devices that a volume is attached as.

use super::{Via, ublk_device};
use crate::daemon::control::Place;
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
    Loop,
}

impl DeviceKind {
    /// Returns the kind to attach; with `auto`, what was refused is reported.
    pub fn choose(via: Via) -> Result<DeviceKind, CliError> {
        let probed = matches!(via, Via::Auto | Via::Ublk).then(ublk_device::probe);
        match (via, probed) {
            (_, None) => Ok(DeviceKind::Loop),
            (_, Some(Ok(()))) => Ok(DeviceKind::Ublk),
            (Via::Ublk, Some(Err(why))) => Err(ublk_device::unavailable(why)),
            (_, Some(Err(why))) => {
                complain(&format!("okeanos: no ublk device, so it becomes a loop device: {why}"));
                Ok(DeviceKind::Loop)
            }
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            DeviceKind::Ublk => "ublk",
            DeviceKind::Loop => "loop",
        }
    }

    /// Makes the block device of a daemon that is up, and prints its path.
    pub fn attach(self, (place, source): (&Place, &Path), read_only: bool) -> Result<(), CliError> {
        let attached = match self {
            DeviceKind::Ublk => ublk_device::start(place),
            DeviceKind::Loop => attach_loop(place, read_only),
        };
        match attached {
            Ok(path) => print(&format_args!("{}\n", path.display())),
            Err(error) => {
                // The device cannot be used. The daemon ends first: as long as it has the disk, the
                // device may be in use.
                let _ = super::detach::run_at(place);
                self.clean_up(place, source);
                Err(error)
            }
        }
    }

    /// Removes what a daemon has made that did not get so far as to use it.
    pub fn clean_up(self, place: &Place, source: &Path) {
        if self == DeviceKind::Ublk {
            ublk_device::remove_unstarted(place, source);
        }
    }
}

fn attach_loop(place: &Place, read_only: bool) -> Result<PathBuf, CliError> {
    let access = if read_only { DiskAccess::ReadOnly } else { DiskAccess::ReadWrite };
    let file = place.file();
    let held = loop_device::hold(&file)?;
    Ok(LoopDevice::attach(&file, &held, access, Stands::UntilDetached)?.path)
}
