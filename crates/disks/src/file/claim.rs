//! The claim on a disk: only its holder writes.
//!
//! A block device is opened O_EXCL. A file has its bytes locked (fcntl(2), locks of the open file),
//! which programs that look for locks honour, and the kernel does not. The backing file of a loop
//! device is claimed as well: two loop devices over the same bytes are one disk. While the kernel
//! or mke2fs takes the exclusive claim on a device, its node is locked with flock(2), as udev does,
//! so that no other Okeanos process takes it.
//!
//! The node of a device is locked like a file, too, as long as a process has the disk. The kernel's
//! exclusive claim on a mounted device ends with the mount, and the daemon writes on after a mount
//! that was taken away by force.

use super::abandoned::writer_elsewhere;
use super::lockers::{LockKind, lockers_of};
use super::refusal::{DiskOpenError, kind_of};
use super::system::{Lock, WHOLE, lock_bytes, lock_node, range_lock_against};
use super::{DiskAccess, Kind, claims, loops};
use std::fs::{File, Metadata, OpenOptions, metadata};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Deepest stack of loop devices on loop devices.
const LOOPS_MAX: u32 = 8;

/// A claim held for another program that opens the disk itself (mke2fs): no Okeanos command uses
/// the disk in that time.
pub struct Claim {
    /// Open files hold locks.
    _held: Vec<File>,
}

impl Claim {
    /// Claims the file or block device at `path`, and its backing files.
    pub fn take(path: &Path) -> Result<Claim, DiskOpenError> {
        let cannot_open = |source| DiskOpenError::Open { path: path.to_owned(), source };
        let metadata = metadata(path).map_err(cannot_open)?;
        let kind = kind_of(path, &metadata.file_type())?;
        refuse_if_used(path, kind, &metadata)?;
        let mut held = Vec::new();
        match kind {
            Kind::File => {
                let file = options(DiskAccess::ReadWrite).open(path).map_err(cannot_open)?;
                lock_file(path, &file, &WHOLE, DiskAccess::ReadWrite)?;
                held.push(file);
            }
            Kind::Device => {
                held.push(lock_device_node(path)?);
                // Only a check: the other program claims the device itself.
                drop(open_exclusively(path, &metadata)?);
                // Readers keep writers off as well.
                let node = open_node(path)?;
                lock_opened_node(path, &node, DiskAccess::ReadOnly)?;
                held.push(node);
                let behind = claim_behind(path, &metadata, DiskAccess::ReadWrite, None)?;
                held.extend(behind.into_iter().map(|behind| behind.file));
                refuse_written(path, metadata.rdev())?;
            }
        }
        Ok(Claim { _held: held })
    }
}

/// Refuses a disk that is mounted or has a loop device on it, with that reason. The claim itself
/// comes later.
pub(super) fn refuse_if_used(
    path: &Path,
    kind: Kind,
    metadata: &Metadata,
) -> Result<(), DiskOpenError> {
    let path = path.to_owned();
    if kind == Kind::Device {
        if let Some(at) = claims::mount_point(metadata.rdev()) {
            return Err(DiskOpenError::Mounted { path, at });
        }
    }
    match loops::loop_device_over(metadata, &WHOLE, None) {
        Some(device) => Err(DiskOpenError::Attached { path, device }),
        None => Ok(()),
    }
}

/// Refuses a claimed device that another process has open for writing, and locked. After a mount
/// that was taken away by force a daemon holds a lock of its own node alone, and a container has
/// other nodes.
pub(super) fn refuse_written(path: &Path, number: u64) -> Result<(), DiskOpenError> {
    match writer_elsewhere(number).filter(|_| !units::fault!("device-writers-not-looked-for")) {
        Some(by) => Err(DiskOpenError::Busy { path: path.to_owned(), by }),
        None => Ok(()),
    }
}

/// A backing file or device of a block device, claimed as long as it is open.
pub(super) struct BackingClaim {
    file: File,
    /// Locked bytes, if it is a file.
    locked: Option<Range<u64>>,
}

impl BackingClaim {
    pub fn lock(&self, path: &Path, access: DiskAccess) -> Result<(), DiskOpenError> {
        self.locked.as_ref().map_or(Ok(()), |bytes| lock_file(path, &self.file, bytes, access))
    }
}

/// Locks the node of a block device through the open file that requests go through. A request that
/// a killed process has left in flight holds the lock, as it holds the open file, and nobody
/// recovers the disk before it has ended.
pub(super) fn lock_opened_node(
    path: &Path,
    opened: &impl AsFd,
    access: DiskAccess,
) -> Result<(), DiskOpenError> {
    if units::fault!("device-node-not-locked") {
        return Ok(());
    }
    lock_file(path, opened, &WHOLE, access)
}

/// Claims the backing files of a block device, as far down as there are loop devices. `given`: the
/// first file behind it, which the caller has locked; its lock is taken over.
pub(super) fn claim_behind(
    path: &Path,
    device: &Metadata,
    access: DiskAccess,
    given: Option<&File>,
) -> Result<Vec<BackingClaim>, DiskOpenError> {
    let mut held = Vec::new();
    let (mut number, mut given) = (device.rdev(), given);
    for _ in 0..LOOPS_MAX {
        let Some(above) = loops::behind(number) else { break };
        let given = given.take().and_then(|file| file.try_clone().ok());
        let found = match &given {
            Some(file) => {
                let below = file.metadata().ok().filter(|below| above.stands_on(below));
                below.map(|below| (above.backing.clone(), below))
            }
            None => above.below(),
        };
        // A file that was deleted, or is not visible from here. The device itself is claimed.
        let Some((name, below)) = found else { break };
        if let Some(device) = loops::loop_device_over(&below, &above.bytes, Some(&above.device)) {
            return Err(DiskOpenError::AttachedTwice {
                path: path.to_owned(),
                below: name,
                device,
            });
        }
        if below.file_type().is_block_device() {
            held.push(BackingClaim { file: open_exclusively(&name, &below)?, locked: None });
            refuse_written(&name, below.rdev())?;
            number = below.rdev();
            continue;
        }
        // A user of the device need not have a right to its file.
        let open = || options(access).open(&name).ok();
        let Some(file) = given.or_else(open) else { break };
        match lock_file(&name, &file, &above.bytes, access) {
            // A file system without locks.
            Err(DiskOpenError::Open { .. }) => held.push(BackingClaim { file, locked: None }),
            Ok(()) => held.push(BackingClaim { file, locked: Some(above.bytes) }),
            Err(error) => return Err(error),
        }
        break;
    }
    Ok(held)
}

/// Locks the node of a block device, or a file, with flock(2) for as long as the result lives.
pub(super) fn lock_device_node(path: &Path) -> Result<File, DiskOpenError> {
    let node = open_node(path)?;
    lock_node_of(path, &node)?;
    Ok(node)
}

/// Opens a file or node for a lock. One that was open for writing is probed by udev when it is
/// closed.
fn open_node(path: &Path) -> Result<File, DiskOpenError> {
    let opened = options(DiskAccess::ReadOnly).custom_flags(libc::O_NONBLOCK).open(path);
    opened.map_err(|source| DiskOpenError::Open { path: path.to_owned(), source })
}

/// Returns the open file or device, if no process has it locked, in whatever namespace: no daemon
/// of Okeanos has the disk. Commands that ask this wait for one another while the result lives.
pub fn hold_unlocked(path: &Path) -> Result<File, DiskOpenError> {
    let node = lock_device_node(path)?;
    match range_lock_against(&node, true, &WHOLE) {
        Ok(None) => Ok(node),
        Ok(Some(_)) => {
            let by = lockers_of(&node, LockKind::Bytes);
            Err(DiskOpenError::Locked { path: path.to_owned(), by })
        }
        Err(source) => Err(DiskOpenError::Open { path: path.to_owned(), source }),
    }
}

pub(super) fn lock_node_of(path: &Path, node: &File) -> Result<(), DiskOpenError> {
    lock_node(node).map_err(|error| refusal_of(path, node, LockKind::Node, error))
}

/// Locks bytes of a file: others may read them under a shared lock.
pub(super) fn lock_file(
    path: &Path,
    file: &impl AsFd,
    bytes: &Range<u64>,
    access: DiskAccess,
) -> Result<(), DiskOpenError> {
    let wanted = match access {
        DiskAccess::ReadWrite => Lock::Exclusive,
        DiskAccess::ReadOnly | DiskAccess::ReadFirst => Lock::Shared,
        DiskAccess::Inspect => return Ok(()),
    };
    lock_bytes(&file.as_fd(), wanted, bytes)
        .map_err(|error| refusal_of(path, file, LockKind::Bytes, error))
}

fn refusal_of(path: &Path, locked: &impl AsFd, kind: LockKind, source: io::Error) -> DiskOpenError {
    match source.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::PermissionDenied => {
            DiskOpenError::Locked { path: path.to_owned(), by: lockers_of(locked, kind) }
        }
        _ => DiskOpenError::Open { path: path.to_owned(), source },
    }
}

fn open_exclusively(path: &Path, metadata: &Metadata) -> Result<File, DiskOpenError> {
    let opened = options(DiskAccess::ReadOnly).custom_flags(libc::O_EXCL).open(path);
    opened.map_err(|source| match source.raw_os_error() {
        Some(libc::EBUSY) => {
            DiskOpenError::Busy { path: path.to_owned(), by: claims::users(metadata.rdev()) }
        }
        _ => DiskOpenError::Open { path: path.to_owned(), source },
    })
}

fn options(access: DiskAccess) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(access.opens_for_writing());
    options
}
