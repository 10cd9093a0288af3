//! Names of other users of a disk, for refusals that name them. All of it is advice: the claim
//! itself is O_EXCL or a lock.

use std::ffi::OsString;
use std::fs::{Metadata, metadata, read_dir, read_link, read_to_string};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The mount point of the device `number`, if it is mounted.
pub fn mount_point(number: u64) -> Option<PathBuf> {
    let table = read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().find_map(|line| mounted_at(line, number))
}

/// Parses a line `id parent major:minor root mount-point options... - type source options`
/// (proc(5)).
fn mounted_at(line: &str, number: u64) -> Option<PathBuf> {
    let mut fields = line.split(' ');
    let (mounted, at) = (fields.nth(2)?, fields.nth(1)?);
    let source = line.split_once(" - ")?.1.split(' ').nth(1)?;
    // Some file systems (btrfs) are mounted with a number of their own: then the source is
    // compared.
    let is_source = || metadata(unescape(source)).is_ok_and(|meta| is_device(&meta, number));
    (mounted == numbers(number) || (source.starts_with('/') && is_source())).then(|| unescape(at))
}

/// Devices (of device mapper, md, bcache) that stand on this one.
fn holders(number: u64) -> Vec<String> {
    let directory = device_in_sysfs(number).join("holders");
    let names = read_dir(directory).into_iter().flatten().flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Possible holders of the exclusive claim on a device.
pub fn users(number: u64) -> String {
    let holders = holders(number);
    if !holders.is_empty() {
        return format!("the device {}", holders.join(", "));
    }
    if is_swap(number) {
        return "the kernel as swap space".to_owned();
    }
    "another program, or by a mount in another namespace (fuser -v, lsof and findmnt may show it)"
        .to_owned()
}

fn is_swap(number: u64) -> bool {
    let table = read_to_string("/proc/swaps").unwrap_or_default();
    let mut sources = table.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    sources.any(|source| metadata(unescape(source)).is_ok_and(|meta| is_device(&meta, number)))
}

/// Whether the device can discard.
pub fn can_discard(number: u64) -> bool {
    let most = disk_in_sysfs(&device_in_sysfs(number)).join("queue/discard_max_bytes");
    let bytes = read_to_string(most).unwrap_or_default();
    bytes.trim().parse().is_ok_and(|bytes: u64| bytes > 0)
}

/// Returns the number of the disk that a partition is of; of any other device its own.
pub fn whole_disk(number: u64) -> u64 {
    let found = read_to_string(disk_in_sysfs(&device_in_sysfs(number)).join("dev")).ok();
    let parse = |text: String| {
        let (major, minor) = text.trim().split_once(':')?;
        Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
    };
    found.and_then(parse).unwrap_or(number)
}

/// Whether the kernel passes a durable write of the device on to a drive as forced unit access, and
/// makes no flush for it.
pub fn forces_unit_access(number: u64) -> bool {
    forces_unit_access_in(&device_in_sysfs(number))
}

/// Counts NVMe drives on PCI Express alone. Any other device may have the queue's flag where a
/// durable write ends with a flush: one on other devices, such as of device mapper or md, or one of
/// a server that writes and then syncs a file (NBD, ublk, iSCSI, NVMe over a network, SCSI of a
/// hypervisor). An NVMe drive that a hypervisor emulates over a file looks like any other here.
fn forces_unit_access_in(device: &Path) -> bool {
    let disk = disk_in_sysfs(device);
    let subsystem = read_link(disk.join("device/subsystem")).unwrap_or_default();
    let transport = read_to_string(disk.join("device/transport")).unwrap_or_default();
    let is_drive = subsystem.ends_with("nvme") && transport.trim() == "pcie";
    let has_flag = read_to_string(disk.join("queue/fua")).is_ok_and(|flag| flag.trim() == "1");
    has_flag && (is_drive || units::fault!("device-error-of-another"))
}

fn device_in_sysfs(number: u64) -> PathBuf {
    Path::new("/sys/dev/block").join(numbers(number))
}

/// The directory of the disk of a partition, or the device's own. A partition has the queue of its
/// disk.
fn disk_in_sysfs(device: &Path) -> PathBuf {
    let of_disk = if device.join("partition").exists() { ".." } else { "" };
    device.join(of_disk)
}

/// Bytes that the device writes as one; 4096 if unknown. For a loop device, that of its file's
/// device.
pub fn physical_sector(number: u64) -> u32 {
    const UNKNOWN: u32 = 4096;
    const LOOPS_MAX: usize = 4;
    let (mut number, mut most) = (number, 0);
    for _ in 0..LOOPS_MAX {
        let device = device_in_sysfs(number);
        let bytes = read_to_string(disk_in_sysfs(&device).join("queue/physical_block_size")).ok();
        most = most.max(bytes.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(UNKNOWN));
        let Ok(behind) = read_to_string(device.join("loop/backing_file")) else { return most };
        let Ok(behind) = metadata(behind.trim_end_matches('\n')) else { return most.max(UNKNOWN) };
        number = behind.dev();
    }
    most.max(UNKNOWN)
}

fn is_device(meta: &Metadata, number: u64) -> bool {
    meta.file_type().is_block_device() && meta.rdev() == number
}

fn numbers(number: u64) -> String {
    format!("{}:{}", libc::major(number), libc::minor(number))
}

/// The kernel writes space, tab, newline and backslash as a backslash and three octal digits.
fn unescape(field: &str) -> PathBuf {
    let mut name = Vec::new();
    let mut rest = field.as_bytes();
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        let (byte, tail) = match byte {
            Some(byte) if *first == b'\\' => (byte, &tail[3..]),
            _ => (*first, tail),
        };
        name.push(byte);
        rest = tail;
    }
    PathBuf::from(OsString::from_vec(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    #[test]
    fn only_nvme_drives_are_trusted_with_forced_unit_access() {
        let sysfs = tempfile::tempdir().unwrap();
        let devices = [
            ("nvme0n1", Some("class/nvme"), Some("pcie"), "1", true),
            ("nvme1n1", Some("class/nvme"), Some("pcie"), "0", false),
            ("nvme2n1", Some("class/nvme"), Some("tcp"), "1", false),
            ("nvme3n1", Some("class/nvme-subsystem"), None, "1", false),
            ("sda", Some("bus/scsi"), None, "1", false),
            ("vda", Some("bus/virtio"), None, "1", false),
            ("pmem0", Some("bus/nd"), None, "1", false),
            ("dm-0", None, None, "1", false),
            ("nbd0", None, None, "1", false),
        ];
        for (name, subsystem, transport, fua, expected) in devices {
            let disk = sysfs.path().join(name);
            for directory in ["queue", "device", "part1"] {
                create_dir_all(disk.join(directory)).unwrap();
            }
            write(disk.join("queue/fua"), format!("{fua}\n")).unwrap();
            write(disk.join("part1/partition"), "1\n").unwrap();
            if let Some(subsystem) = subsystem {
                symlink(Path::new("../..").join(subsystem), disk.join("device/subsystem")).unwrap();
            }
            if let Some(transport) = transport {
                write(disk.join("device/transport"), format!("{transport}\n")).unwrap();
            }
            assert_eq!(forces_unit_access_in(&disk), expected, "{name}");
            assert_eq!(forces_unit_access_in(&disk.join("part1")), expected, "{name}");
        }
        assert!(!forces_unit_access_in(&sysfs.path().join("none")));
    }

    #[test]
    fn mounts_are_found_by_number() {
        let line = "36 35 98:7 / /mnt/a\\040b rw,noatime master:1 - ext3 /dev/none rw";
        assert_eq!(mounted_at(line, libc::makedev(98, 7)), Some(PathBuf::from("/mnt/a b")));
        assert_eq!(mounted_at(line, libc::makedev(98, 8)), None);
        assert_eq!(mounted_at("no such line", 1), None);
        assert_eq!(unescape("a\\134b\\"), PathBuf::from("a\\b\\"));
    }
}
