//! The disk beneath: a file, a device, or an emulated drive.

use super::NbdArguments;
use crate::disk::find;
use crate::disk::open_disk::open_disk;
use crate::error::CliError;
use device::{Disk, World};
use disks::DiskAccess;
use emulated::{DriveOptions, EmulatedDisk, SECTOR};
use runtime::RealWorld;
use std::rc::Rc;

pub fn open(
    world: &RealWorld,
    arguments: &NbdArguments,
) -> Result<(Rc<dyn Disk>, Option<EmulatedDisk>), CliError> {
    if let Some(path) = &arguments.disk {
        let access = if arguments.read_only { DiskAccess::ReadOnly } else { DiskAccess::ReadWrite };
        return Ok((Rc::new(open_disk(world, path, access)?), None));
    }
    let model = find(arguments.model.as_deref().unwrap_or_default())?;
    if let Some(size) = arguments.size
        && (size == 0 || !size.is_multiple_of(SECTOR) || size > model.size.get())
    {
        let most = model.size.get();
        return Err(CliError::new(format!(
            "--size: {size} bytes; it takes whole sectors of {SECTOR}, at most {most} bytes"
        )));
    }
    let options = DriveOptions {
        cache: arguments.cache.mode(),
        size: arguments.size,
        ..DriveOptions::default()
    };
    let in_world: Rc<dyn World> = Rc::new(world.clone());
    let drive = EmulatedDisk::new(in_world, model, options);
    Ok((Rc::new(drive.clone()), Some(drive)))
}
