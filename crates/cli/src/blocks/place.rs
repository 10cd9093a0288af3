//! Location of an attached volume's file, and the loop device on it.

use super::driver_device;
use crate::daemon::control::{Place, blocks_directory, make_directory, socket_directory};
use crate::daemon::mount_table;
use crate::daemon::mounted::refuse_mounted;
use crate::disk::block_volume::{VolumeOnDisk, is_log, volume_on};
use crate::disk::content::{content_of, refuse_device_logs};
use crate::disk::front_end::NAME;
use crate::disk::identity::identity_of;
use crate::error::CliError;
use crate::look::refuse_no_disk;
use crate::mount::loop_device;
use crate::text::shell::word;
use format::uuid_text;
use std::fs::metadata;
use std::path::{Path, PathBuf};

/// Returns the error for a disk that holds something else in place of a block volume.
pub fn overwritten(source: &Path, at: u64) -> CliError {
    let (name, named) = (source.display(), word(source));
    let content = content_of(source).ok().flatten();
    let content = content.unwrap_or_else(|| format!("something else at byte {at}"));
    CliError::new(format!(
        "{name} holds {content}: of a block volume only the copy of its superblock is left"
    ))
    .with_remedy(format!(
        "It was made over the volume: use it as what it is. To have back what is left of the \
         volume instead, erase the start of the disk, and look: dd if=/dev/zero of={named} bs=1M \
         count=1 conv=notrunc, okeanos check {named}."
    ))
}

/// Explains what a disk holds in place of a block volume.
pub fn no_block_volume(source: &Path) -> CliError {
    if let Err(found) = refuse_device_logs(source) {
        return found;
    }
    let name = source.display();
    match content_of(source) {
        Ok(Some(found)) => CliError::new(format!("{name} holds {found}, not a block volume"))
            .with_remedy("Name the disk of a block volume; what is attached: okeanos list."),
        _ => CliError::new(format!("{name}: there is no block volume")).with_remedy(
            "Name the disk of one; what is attached: okeanos list. How one is made: okeanos \
             blocks --help.",
        ),
    }
}

impl Place {
    /// Returns the directory of a volume, attached or not. It is named after the volume's UUID,
    /// which a copy of the disk has, too: a copy of what is attached is refused.
    pub fn of(source: &Path) -> Result<Place, CliError> {
        refuse_no_disk(source)?;
        let found = volume_on(source).map_err(|error| CliError::system(source.display(), error))?;
        match found {
            VolumeOnDisk::Found(uuid) => {
                let place = Place::of_uuid(&uuid);
                place.refuse_copy(source)?;
                driver_device::refuse_copy(&place, source)?;
                Ok(place)
            }
            VolumeOnDisk::Overwritten(at) => Err(overwritten(source, at)),
            VolumeOnDisk::None => Err(no_block_volume(source)),
        }
    }

    pub fn of_uuid(uuid: &[u8; 16]) -> Place {
        Place(blocks_directory().join(uuid_text(uuid)))
    }

    fn refuse_copy(&self, source: &Path) -> Result<(), CliError> {
        let Some(mount) = mount_table::mount_on(&self.0).ok().flatten() else { return Ok(()) };
        // The attached disk may have been moved, or not be visible from here.
        let (Ok(attached), Ok(found)) = (metadata(&mount.source), metadata(source)) else {
            return Ok(());
        };
        if identity_of(&attached) == identity_of(&found) {
            return Ok(());
        }
        let (name, original, at) = (source.display(), mount.source.display(), self.attached_as());
        let what = if is_log(source) { "the log, or a copy of the log," } else { "a copy" };
        Err(CliError::new(format!("{name} is {what} of {original}, which is attached{at}"))
            .with_remedy(format!(
                "Detach that first: okeanos blocks detach {}.",
                word(&mount.source)
            )))
    }

    pub fn make(&self) -> Result<(), CliError> {
        let above = self.0.parent().unwrap_or(&self.0);
        let usual = socket_directory();
        for directory in [usual.as_path(), above, &self.0] {
            make_directory(directory, 0o700)
                .map_err(|error| CliError::system(directory.display(), error))?;
        }
        Ok(())
    }

    pub fn file(&self) -> PathBuf {
        self.0.join(NAME)
    }

    /// Removes what an attachment has left whose daemon died: the dead mount, and the loop device
    /// on it.
    pub fn clean_up(&self) -> Result<(), CliError> {
        let mount = mount_table::mount_on(&self.0).ok().flatten();
        let Some(mount) = mount else { return Ok(()) };
        if !mount.is_dead() {
            let (name, at) = (mount.source.display(), self.attached_as());
            return Err(CliError::new(format!("{name} is attached already{at}")).with_remedy(
                format!("Detach it first: okeanos blocks detach {}.", word(&mount.source)),
            ));
        }
        if let Some(device) = self.loop_device() {
            refuse_mounted(&device)?;
            // No daemon answers; what cannot be flushed is lost already.
            let _ = loop_device::detach_dead(&device);
        }
        crate::mount::umount::unmount(&self.0, libc::MNT_DETACH)
            .map_err(|error| CliError::system(self.0.display(), error))
    }
}
