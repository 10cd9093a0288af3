//! Location of an attached volume's file, and the loop device on it.

use crate::daemon::control::{Place, blocks_directory, make_directory, socket_directory};
use crate::daemon::mount_table;
use crate::disk::front_end::NAME;
use crate::error::CliError;
use crate::mount::loop_device;
use format::blocks::{BLOCKS_SUPERBLOCK_SIZE, BlocksSuperblock, SUPERBLOCK_AT, blocks_copy_at};
use format::uuid_text;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Returns the UUID of the block volume on a disk, before anything is claimed. `None`: there is
/// none.
pub fn uuid_of(source: &Path) -> io::Result<Option<[u8; 16]>> {
    let mut file = File::open(source)?;
    let size = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
    let parse = |at: u64| {
        let mut bytes = [0; BLOCKS_SUPERBLOCK_SIZE];
        file.read_exact_at(&mut bytes, at).ok()?;
        BlocksSuperblock::parse(&bytes).ok()
    };
    let found = parse(SUPERBLOCK_AT).or_else(|| blocks_copy_at(size).and_then(parse));
    Ok(found.map(|superblock| superblock.uuid))
}

impl Place {
    /// Returns the directory of a volume, attached or not.
    pub fn of(source: &Path) -> Result<Place, CliError> {
        let found = uuid_of(source).map_err(|error| CliError::system(source.display(), error))?;
        let name = source.display();
        let uuid = found.ok_or_else(|| {
            CliError::new(format!("{name}: there is no block volume"))
                .with_remedy("Make one: okeanos blocks format. It destroys what the disk holds.")
        })?;
        Ok(Place(blocks_directory().join(uuid_text(&uuid))))
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
            return Err(CliError::new(format!("{name} is attached already{at}"))
                .with_remedy(format!("Detach it first: okeanos blocks detach {name}.")));
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

/// Refuses a device on which a file system is mounted.
pub fn refuse_mounted(device: &Path) -> Result<(), CliError> {
    let mounts =
        mount_table::mounts().map_err(|error| CliError::system("/proc/self/mountinfo", error))?;
    let Some(mount) = mounts.iter().find(|mount| mount.source == device) else { return Ok(()) };
    let (name, at) = (device.display(), mount.directory.display());
    Err(CliError::new(format!("{name} is mounted on {at}"))
        .with_remedy(format!("Unmount it first: umount {at}.")))
}
