//! File systems of which a write with RWF_DSYNC is durable when it completes, however it was
//! issued.
//!
//! The kernel adds an fsync(2) to a synchronous write with RWF_DSYNC, but to an asynchronous direct
//! one (io_uring, AIO) only where the file system's own completion does so. FUSE passes the flag on
//! to its server, and adds nothing. A file system counts here only if that has been read in its
//! source, for every kernel from Linux 5.4 on.

use super::system::file_system_magic;
use std::fs::File;

/// Magic numbers (statfs(2)) of ext2, ext3 and ext4, which share one, and of XFS. Their direct
/// writes end in `iomap_dio_complete` or `dio_complete`, which call `generic_write_sync`; a write
/// that falls back to the page cache calls it before it returns.
///
/// Not listed:
/// - Btrfs: before Linux 6.1 an asynchronous write with RWF_DSYNC may complete without its fsync.
/// - F2FS: several paths of a direct write fall back to the page cache, depending on the kernel.
/// - overlayfs: what it does depends on the file system below, which statfs(2) does not report.
/// - FUSE, NFS, CIFS, 9p, CephFS: the server decides.
/// - tmpfs: nothing of it is durable.
const HONOURED: [u64; 2] = [0xef53, 0x5846_5342];

/// Returns whether RWF_DSYNC alone makes a write to this file durable.
pub fn honours_dsync(file: &File) -> bool {
    file_system_magic(file).is_ok_and(is_honoured) || units::fault!("file-dsync-believed")
}

fn is_honoured(magic: u64) -> bool {
    HONOURED.contains(&magic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dsync_is_believed_of_file_systems_read_alone() {
        // Numbers of linux/magic.h; the last two are of ZFS and of no file system.
        for (magic, name, expected) in [
            (0xef53, "ext4", true),
            (0x5846_5342, "xfs", true),
            (0x6573_5546, "fuse", false),
            (0x9123_683e, "btrfs", false),
            (0xf2f5_2010, "f2fs", false),
            (0x794c_7630, "overlayfs", false),
            (0x0102_1994, "tmpfs", false),
            (0x6969, "nfs", false),
            (0xff53_4d42, "cifs", false),
            (0x0102_1997, "9p", false),
            (0x00c3_6400, "ceph", false),
            (0x2fc1_2fc1, "zfs", false),
            (0, "none", false),
        ] {
            assert_eq!(is_honoured(magic), expected, "{name}");
        }
    }

    #[test]
    fn the_magic_is_that_of_the_files_own_file_system() {
        // procfs is mounted wherever the tests run.
        let file = File::open("/proc/self/stat").unwrap();
        assert_eq!(file_system_magic(&file).unwrap(), 0x9fa0);
        assert!(!honours_dsync(&file));
    }
}
