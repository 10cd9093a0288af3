//! `okeanos blocks grow`.

use super::GrowArguments;
use super::driver_device;
use super::offline::with_parts_unless;
use crate::daemon::control::{Ask, Client, Place, no_answer};
use crate::daemon::mount_table;
use crate::error::CliError;
use crate::mount::loop_device;
use crate::text::output::{print, print_json};
use crate::text::quantity::format_size;
use blocks::{BlockVolume, BlocksError};
use disks::FileDisk;
use serde::{Deserialize, Serialize};

/// Reply of a daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Grown {
    Refused { error: String },
    Done { exported_bytes: u64 },
}

pub(super) fn run(arguments: &GrowArguments) -> Result<(), CliError> {
    let GrowArguments { source, log, json } = arguments;
    let place = match Place::behind(source) {
        Some(place) => place,
        None => Place::of(source)?,
    };
    let exported_bytes = match mount_table::mount_on(&place.0).ok().flatten() {
        Some(mount) if !mount.is_dead() => while_attached(&mount, &place)?,
        _ => {
            // The device that waits keeps its size.
            let refuse = || driver_device::refuse_waiting(&place);
            let log = log.as_deref();
            with_parts_unless(refuse, source, log, false, async |parts| blocks::grow(&parts).await)?
        }
    };
    match json {
        true => print_json(&Grown::Done { exported_bytes }),
        false => {
            let (name, size) = (source.display(), format_size(exported_bytes));
            print(&format_args!("{name}: {size} are exported ({exported_bytes} bytes)\n"))
        }
    }
}

/// Has the daemon grow the volume, and the kernel its block device. What an earlier call did not
/// complete is done now.
fn while_attached(mount: &mount_table::Mount, place: &Place) -> Result<u64, CliError> {
    driver_device::refuse_to_grow(place)?;
    let mut client = Client::connect(mount)?;
    let reply = client.ask::<Grown>(Ask::Grow).map_err(|_| no_answer(mount, None))?;
    let bytes = match reply {
        Grown::Done { exported_bytes } => exported_bytes,
        Grown::Refused { error } => return Err(CliError::new(error)),
    };
    driver_device::take_size(place, bytes)?;
    if let Some(device) = place.loop_device() {
        let system = |error| CliError::system(device.display(), error);
        // The kernel keeps the file's size until it sets it.
        let file = std::fs::OpenOptions::new().write(true).open(place.file()).map_err(system)?;
        file.set_len(bytes).map_err(system)?;
        loop_device::take_size(&device).map_err(system)?;
    }
    Ok(bytes)
}

/// The daemon's side.
pub async fn answer(disk: &FileDisk, volume: &BlockVolume) -> Grown {
    match grow(disk, volume).await {
        Ok(exported_bytes) => Grown::Done { exported_bytes },
        Err(error) => Grown::Refused { error: error.to_string() },
    }
}

async fn grow(disk: &FileDisk, volume: &BlockVolume) -> Result<u64, Box<dyn std::error::Error>> {
    let size = disk.grow()?;
    let wanted = volume.layout().superblock().disk_bytes;
    if size < wanted {
        let disk = device::Disk::name(disk).to_owned();
        return Err(BlocksError::Shrunk { disk, size, wanted }.into());
    }
    Ok(volume.grow().await?)
}
