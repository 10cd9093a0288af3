//! Opening a disk: its kind, its other users, its size, its sectors.

use super::claim::{
    BackingClaim, claim_behind, lock_device_node, lock_file, lock_opened_node, refuse_if_used,
    refuse_written,
};
use super::dsync::honours_dsync;
use super::refusal::{DiskOpenError, kind_of};
use super::system::{WHOLE, file_sector, is_write_protected, leave_direct, logical_sector};
use super::{DiskAccess, Kind, claims};
use device::Geometry;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(super) struct Opened {
    pub file: File,
    pub kind: Kind,
    /// Number of the device, or of that which the file is on.
    pub number: u64,
    pub geometry: Geometry,
    pub physical_sector: u32,
    pub direct: bool,
    /// Backing files of a loop device, locked.
    pub behind: Vec<BackingClaim>,
}

/// Opens the disk. `behind`: the file behind a loop device, if the caller has locked it.
pub(super) fn open(
    path: &Path,
    access: DiskAccess,
    behind: Option<&File>,
) -> Result<Opened, DiskOpenError> {
    let cannot_open = |source| DiskOpenError::Open { path: path.to_owned(), source };
    let metadata = std::fs::metadata(path).map_err(cannot_open)?;
    let kind = kind_of(path, &metadata.file_type())?;
    if access != DiskAccess::Inspect {
        refuse_if_used(path, kind, &metadata)?;
    }
    let claim = kind == Kind::Device && access != DiskAccess::Inspect;
    // A process that passes the claim to the kernel or to another program has the node locked.
    let node = claim.then(|| lock_device_node(path)).transpose()?;
    let flags = if claim { libc::O_EXCL } else { 0 };
    let open_with = |flags| options(access, flags).open(path);
    let (file, wants_direct) = match open_with(flags | libc::O_DIRECT) {
        // A file system without direct I/O.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            (open_with(flags).map_err(cannot_open)?, false)
        }
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            return Err(DiskOpenError::Busy {
                path: path.to_owned(),
                by: claims::users(metadata.rdev()),
            });
        }
        result => (result.map_err(cannot_open)?, true),
    };
    if kind == Kind::File {
        lock_file(path, &file, &WHOLE, access)?;
    }
    // The kernel opens it for writing all the same, and refuses each write.
    if kind == Kind::Device && access.opens_for_writing() && is_write_protected(&file) {
        return Err(DiskOpenError::WriteProtected { path: path.to_owned() });
    }
    let behind = match claim {
        true => {
            lock_opened_node(path, &file, access)?;
            let behind = claim_behind(path, &metadata, access, behind)?;
            refuse_written(path, metadata.rdev())?;
            behind
        }
        false => Vec::new(),
    };
    drop(node);
    let examine =
        |what| move |source| DiskOpenError::Examine { path: path.to_owned(), what, source };
    let (sector, direct) = match kind {
        Kind::Device => (logical_sector(&file).map_err(examine("the sector size"))?, wants_direct),
        Kind::File if wants_direct => file_sector(&file),
        Kind::File => (512, false),
    };
    if wants_direct && !direct {
        leave_direct(&file).map_err(examine("the flags"))?;
    }
    let size = (&file).seek(SeekFrom::End(0)).map_err(examine("the size"))?;
    let size = size - size % u64::from(sector);
    if size == 0 {
        return Err(DiskOpenError::Empty { path: path.to_owned() });
    }
    let discard = kind == Kind::File || claims::can_discard(metadata.rdev());
    let forced_unit_access = kind == Kind::Device || honours_dsync(&file);
    let geometry = Geometry { size, logical_sector: sector, discard, forced_unit_access };
    let number = if kind == Kind::Device { metadata.rdev() } else { metadata.dev() };
    let physical_sector = claims::physical_sector(number).max(sector);
    Ok(Opened { file, kind, number, geometry, physical_sector, direct, behind })
}

/// Opens the same device again, with or without the exclusive claim.
pub(super) fn reopen(
    file: &OwnedFd,
    name: &str,
    access: DiskAccess,
    flags: i32,
) -> Result<File, DiskOpenError> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let result = options(access, flags | libc::O_DIRECT).open(path);
    result.map_err(|source| DiskOpenError::Open { path: name.into(), source })
}

fn options(access: DiskAccess, flags: i32) -> OpenOptions {
    let mut options = OpenOptions::new();
    // The standard library sets O_CLOEXEC.
    options.read(true).write(access.opens_for_writing()).custom_flags(flags);
    options
}
