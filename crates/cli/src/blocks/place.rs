//! Location of an attached volume's file, and the loop device on it.

use crate::daemon::control::{Place, blocks_directory, make_directory, socket_directory};
use crate::daemon::mount_table;
use crate::disk::content::content_of;
use crate::disk::front_end::NAME;
use crate::error::CliError;
use crate::mount::loop_device;
use format::blocks::{
    BLOCKS_SUPERBLOCK_SIZE, BlocksSuperblock, RESERVED_BYTES, SUPERBLOCK_AT, blocks_copy_at,
};
use format::uuid_text;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A block volume on a disk, found before anything is claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VolumeOnDisk {
    None,
    /// UUID of the volume, or of that to which a journal device belongs.
    Found([u8; 16]),
    /// Only the copy of the superblock is left: this byte holds something else.
    Overwritten(u64),
}

/// Bytes read as one where a disk may have sectors that cannot be read.
const PAGE: usize = 4096;

/// Looks for a block volume as [`blocks::find_superblock`] does.
pub fn volume_on(source: &Path) -> io::Result<VolumeOnDisk> {
    let mut file = File::open(source)?;
    let size = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
    let parse = |at: u64| {
        let mut bytes = [0; BLOCKS_SUPERBLOCK_SIZE];
        file.read_exact_at(&mut bytes, at).ok()?;
        BlocksSuperblock::parse(&bytes).ok()
    };
    if let Some(superblock) = parse(SUPERBLOCK_AT) {
        return Ok(VolumeOnDisk::Found(superblock.uuid));
    }
    let copy = blocks_copy_at(size).and_then(|at| parse(at).map(|copy| (at, copy)));
    let copy = copy.filter(|(at, copy)| blocks_copy_at(copy.disk_bytes) == Some(*at));
    let Some((_, copy)) = copy else { return Ok(VolumeOnDisk::None) };
    let mut start = vec![0; RESERVED_BYTES as usize];
    for (page, at) in start.chunks_mut(PAGE).zip((0..).step_by(PAGE)) {
        if file.read_exact_at(page, at).is_err() {
            page.fill(0);
        }
    }
    let overwritten = copy.overwritten_at(&start);
    Ok(overwritten.map_or(VolumeOnDisk::Found(copy.uuid), VolumeOnDisk::Overwritten))
}

/// Returns the error for a disk that holds something else in place of a block volume.
pub fn overwritten(source: &Path, at: u64) -> CliError {
    let name = source.display();
    let content = content_of(source).ok().flatten();
    let content = content.unwrap_or_else(|| format!("something else at byte {at}"));
    CliError::new(format!(
        "{name} holds {content}: of a block volume only the copy of its superblock is left"
    ))
    .with_remedy(format!(
        "It was made over the volume: use it as what it is. To have back what is left of the \
         volume instead, erase the start of the disk, and look: dd if=/dev/zero of={name} bs=1M \
         count=1 conv=notrunc, okeanos check {name}."
    ))
}

impl Place {
    /// Returns the directory of a volume, attached or not.
    pub fn of(source: &Path) -> Result<Place, CliError> {
        let found = volume_on(source).map_err(|error| CliError::system(source.display(), error))?;
        let name = source.display();
        match found {
            VolumeOnDisk::Found(uuid) => Ok(Place(blocks_directory().join(uuid_text(&uuid)))),
            VolumeOnDisk::Overwritten(at) => Err(overwritten(source, at)),
            VolumeOnDisk::None => Err(CliError::new(format!("{name}: there is no block volume"))
                .with_remedy("Make one: okeanos blocks format. It destroys what the disk holds.")),
        }
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
