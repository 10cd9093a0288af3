//! `okeanos blocks format`.

use super::zones::NewZones;
use super::{FormatArguments, driver_device, failed};
use crate::daemon::control::Place;
use crate::disk::block_volume::{VolumeOnDisk, volume_on};
use crate::disk::content::refuse_to_overwrite;
use crate::disk::open_disk::open_disk;
use crate::error::CliError;
use crate::text::output::print;
use crate::text::quantity::format_size;
use blocks::{BlocksFormatOptions, GroupBytes, NewDisk};
use device::World;
use disks::{DiskAccess, FileDisk};
use runtime::RealWorld;
use std::path::Path;

pub fn run(arguments: &FormatArguments) -> Result<(), CliError> {
    crate::daemon::mounted::refuse_if_its_daemon_died(&arguments.target)?;
    let zones = NewZones::new(arguments)?;
    let world = RealWorld::new().map_err(CliError::no_ring)?;
    let open = |path: &Path| open_disk(&world, path, DiskAccess::ReadWrite);
    let disk = open(&arguments.target)?;
    let log = arguments.log.as_deref().map(open).transpose()?;
    // Behind the claim: another command may have made something while this one waited, and a daemon
    // may have died.
    for path in std::iter::once(&arguments.target).chain(&arguments.log) {
        if let Ok(VolumeOnDisk::Found(uuid)) = volume_on(path) {
            driver_device::refuse_waiting(&Place::of_uuid(&uuid))?;
        }
        refuse_to_overwrite(path, arguments.force, "okeanos blocks format --force")?;
    }
    let uuid = || {
        let mut uuid = [world.random(), world.random()].map(u64::to_be_bytes).concat();
        // Version 4, as in RFC 9562.
        (uuid[6], uuid[8]) = (uuid[6] & 0x0f | 0x40, uuid[8] & 0x3f | 0x80);
        <[u8; 16]>::try_from(uuid).expect("sixteen bytes")
    };
    let options = BlocksFormatOptions {
        block_size: arguments.block_size,
        uuid: uuid(),
        journal_uuid: log.is_some().then(uuid),
        journal_bytes: arguments.journal_size,
        groups: arguments
            .scattered_logs
            .map(|sizes| GroupBytes { log: sizes.log, group: sizes.group }),
        now: world.wall_clock().seconds.try_into().unwrap_or(0),
    };
    let made = world.run(make(disk, log, options, zones));
    world.end();
    let layout = made.map_err(|error| failed(&arguments.target, &error))?;
    let size = layout.blocks() << layout.block_size().shift();
    print(&format_args!(
        "{}: a block volume of {}\n",
        arguments.target.display(),
        format_size(size)
    ))
}

async fn make(
    disk: FileDisk,
    log: Option<FileDisk>,
    options: BlocksFormatOptions,
    zones: NewZones,
) -> Result<blocks::BlocksLayout, blocks::BlocksError> {
    let volume = NewDisk { disk: &disk, zone: zones.home.as_ref() };
    let journal = log.as_ref().map(|disk| NewDisk { disk, zone: zones.journal.as_ref() });
    blocks::format(volume, journal, &options).await
}
