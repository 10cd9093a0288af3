//! Loop devices (loop(4)): which of them stand on a file or device, and over which bytes of it.

use super::abandoned::is_abandoned;
use super::system::loop_status;
use std::ffi::OsString;
use std::fs::{File, Metadata, metadata, read, read_dir, read_to_string};
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The kernel counts sizes of block devices in these, whatever their sectors are.
const SYSFS_SECTOR: u64 = 512;

/// What a loop device stands on.
pub struct LoopDevice {
    pub device: PathBuf,
    /// As the kernel tells it. It may be gone, or be seen under another name from here.
    pub backing: PathBuf,
    /// The bytes of the backing file.
    pub bytes: Range<u64>,
}

impl LoopDevice {
    /// By its directory in sysfs; `None` if nothing is attached to it.
    fn told(node: &Path) -> Option<LoopDevice> {
        let mut name = read(node.join("loop/backing_file")).ok()?;
        name.pop_if(|last| *last == b'\n');
        let device = Path::new("/dev").join(node.file_name()?);
        let number = |file: &str| read_to_string(node.join(file)).ok()?.trim().parse::<u64>().ok();
        let offset = number("loop/offset").unwrap_or(0);
        let length = number("size").unwrap_or(u64::MAX / SYSFS_SECTOR).saturating_mul(SYSFS_SECTOR);
        let bytes = offset..offset.saturating_add(length);
        Some(LoopDevice { device, backing: PathBuf::from(OsString::from_vec(name)), bytes })
    }

    fn is_abandoned(&self) -> bool {
        metadata(&self.device).is_ok_and(|found| is_abandoned(&self.device, found.rdev()))
    }

    /// Whether it stands on this file or block device.
    pub fn stands_on(&self, below: &Metadata) -> bool {
        let named = metadata(&self.backing).ok();
        if below.file_type().is_block_device() {
            return named.is_some_and(|named| {
                named.file_type().is_block_device() && named.rdev() == below.rdev()
            });
        }
        if named.is_some_and(|named| (named.dev(), named.ino()) == (below.dev(), below.ino())) {
            return true;
        }
        // The name is of another mount namespace, perhaps. Who may open the device learns the
        // file's number.
        let status = File::open(&self.device).and_then(|device| loop_status(&device));
        status.is_ok_and(|status| (status.device, status.inode) == (below.dev(), below.ino()))
    }
}

/// The first loop device over any of these bytes of a file or block device, but for `except`, and
/// for those that a dead mount has left.
pub fn loop_device_over(
    below: &Metadata,
    bytes: &Range<u64>,
    except: Option<&Path>,
) -> Option<PathBuf> {
    let devices = read_dir("/sys/block").ok()?.flatten();
    let found = devices.filter_map(|entry| LoopDevice::told(&entry.path()));
    let over = |found: &LoopDevice| found.bytes.start < bytes.end && bytes.start < found.bytes.end;
    found
        .filter(|found| except != Some(&found.device) && over(found) && found.stands_on(below))
        .find(|found| !found.is_abandoned())
        .map(|found| found.device)
}

/// What is behind the block device `number`, if it is a loop device or a partition of one.
pub fn behind(number: u64) -> Option<LoopDevice> {
    let (major, minor) = (libc::major(number), libc::minor(number));
    let node = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    if !node.join("partition").exists() {
        return LoopDevice::told(&node);
    }
    let sectors = |file: &str| read_to_string(node.join(file)).ok()?.trim().parse::<u64>().ok();
    let (start, length) = (sectors("start")? * SYSFS_SECTOR, sectors("size")? * SYSFS_SECTOR);
    let whole = LoopDevice::told(node.parent()?)?;
    let start = whole.bytes.start.saturating_add(start);
    Some(LoopDevice { bytes: start..start.saturating_add(length), ..whole })
}
