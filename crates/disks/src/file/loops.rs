//! Loop devices (loop(4)): their backing files or devices, and the byte ranges.

use super::abandoned::is_abandoned;
use super::system::{
    DirectAlignment, LoopStatus, direct_alignment, goes_past_page_cache, loop_status,
};
use std::ffi::OsString;
use std::fs::{File, Metadata, metadata, read, read_dir, read_to_string};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Unit of sizes of block devices in sysfs, for any sector size.
const SYSFS_SECTOR: u64 = 512;

/// A loop device and its backing file.
pub struct LoopDevice {
    pub device: PathBuf,
    /// Name in sysfs. The file may be deleted, or have another name here.
    pub backing: PathBuf,
    /// The bytes of the backing file.
    pub bytes: Range<u64>,
    /// Whether the kernel passes requests on past the page cache of the backing file.
    pub direct: bool,
}

impl LoopDevice {
    /// Reads the device's directory in sysfs; `None` if nothing is attached to it.
    fn from_sysfs(node: &Path) -> Option<LoopDevice> {
        let mut name = read(node.join("loop/backing_file")).ok()?;
        if name.last() == Some(&b'\n') {
            name.pop();
        }
        let device = Path::new("/dev").join(node.file_name()?);
        let number = |file: &str| read_to_string(node.join(file)).ok()?.trim().parse::<u64>().ok();
        let offset = number("loop/offset").unwrap_or(0);
        let length = number("size").unwrap_or(u64::MAX / SYSFS_SECTOR).saturating_mul(SYSFS_SECTOR);
        let bytes = offset..offset.saturating_add(length);
        let direct = number("loop/dio") == Some(1);
        Some(LoopDevice { device, backing: PathBuf::from(OsString::from_vec(name)), bytes, direct })
    }

    fn is_abandoned(&self) -> bool {
        metadata(&self.device).is_ok_and(|found| is_abandoned(&self.device, found.rdev()))
    }

    fn status(&self) -> io::Result<LoopStatus> {
        loop_status(&File::open(&self.device)?)
    }

    /// Whether it stands on this file or block device. The name may lead to another one by now, or
    /// be from another mount namespace: it is compared only if the kernel does not say the numbers.
    pub fn stands_on(&self, below: &Metadata) -> bool {
        let is_device = below.file_type().is_block_device();
        match self.status() {
            Ok(status) if is_device => status.number == below.rdev(),
            Ok(status) => (status.device, status.inode) == (below.dev(), below.ino()),
            Err(_) => metadata(&self.backing).is_ok_and(|named| match is_device {
                true => named.file_type().is_block_device() && named.rdev() == below.rdev(),
                false => (named.dev(), named.ino()) == (below.dev(), below.ino()),
            }),
        }
    }

    /// Returns the file or device behind it, with a name that leads to it here. A device without
    /// the name that it was attached by has its usual one.
    pub fn below(&self) -> Option<(PathBuf, Metadata)> {
        let found = |name: PathBuf| {
            let below = metadata(&name).ok().filter(|below| self.stands_on(below))?;
            Some((name, below))
        };
        found(self.backing.clone()).or_else(|| {
            let node = in_sysfs(self.status().ok()?.number)?;
            found(Path::new("/dev").join(node.file_name()?))
        })
    }
}

/// The first loop device over any of these bytes of a file or block device, but for `except`, and
/// for those left by a dead mount.
pub fn loop_device_over(
    below: &Metadata,
    bytes: &Range<u64>,
    except: Option<&Path>,
) -> Option<PathBuf> {
    let devices = read_dir("/sys/block").ok()?.flatten();
    let found = devices.filter_map(|entry| LoopDevice::from_sysfs(&entry.path()));
    let over = |found: &LoopDevice| found.bytes.start < bytes.end && bytes.start < found.bytes.end;
    found
        .filter(|found| except != Some(&found.device) && over(found) && found.stands_on(below))
        .find(|found| !found.is_abandoned())
        .map(|found| found.device)
}

/// The first file or loop device under `path`, itself included, at which writes end in the page
/// cache instead of going on to a drive; `None` if there is none that the kernel knows of. `path`
/// itself counts as [`super::FileDisk`] writes to it; of files under loop devices not every kernel
/// knows: before Linux 6.1 none.
pub fn page_cache_under(path: &Path) -> Option<PathBuf> {
    /// Deepest stack of loop devices on files.
    const LEVELS_MAX: usize = 8;
    let mut found = metadata(path).ok()?;
    let mut path = path.to_owned();
    // A disk gives up direct I/O also where the kernel knows of some.
    if found.is_file() && !units::fault!("eviction-into-page-cache") && !goes_past_page_cache(&path)
    {
        return Some(path);
    }
    for _ in 0..LEVELS_MAX {
        if !found.file_type().is_block_device() {
            let alignment = File::open(&path).map(|file| direct_alignment(&file));
            if matches!(alignment, Ok(DirectAlignment::Unsupported)) {
                return Some(path);
            }
        }
        let is_device = found.file_type().is_block_device();
        let number = if is_device { found.rdev() } else { found.dev() };
        let above = behind(number)?;
        if !above.direct {
            return Some(above.device);
        }
        (path, found) = above.below()?;
    }
    None
}

/// The backing file of the block device `number`, if it is a loop device or a partition of one.
pub fn behind(number: u64) -> Option<LoopDevice> {
    let node = in_sysfs(number)?;
    if !node.join("partition").exists() {
        return LoopDevice::from_sysfs(&node);
    }
    let sectors = |file: &str| read_to_string(node.join(file)).ok()?.trim().parse::<u64>().ok();
    let (start, length) = (sectors("start")? * SYSFS_SECTOR, sectors("size")? * SYSFS_SECTOR);
    let whole = LoopDevice::from_sysfs(node.parent()?)?;
    let start = whole.bytes.start.saturating_add(start);
    Some(LoopDevice { bytes: start..start.saturating_add(length), ..whole })
}

fn in_sysfs(number: u64) -> Option<PathBuf> {
    let (major, minor) = (libc::major(number), libc::minor(number));
    std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}
