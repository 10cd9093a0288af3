//! The system calls that the standard library does not have. The only unsafe code of this crate.
#![allow(unsafe_code)]

use device::Buffer;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Alignment that a file system requires for direct I/O, in bytes (statx(2), STATX_DIOALIGN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectAlignment {
    /// The kernel or the file system does not report it.
    Unknown,
    Unsupported,
    Bytes {
        memory: u32,
        offset: u32,
    },
}

pub fn direct_alignment(file: &File) -> DirectAlignment {
    // SAFETY: all zeros is a valid value of this structure of integers.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: an empty path with AT_EMPTY_PATH means the descriptor, which `file` keeps open; the
    // kernel fills `status`, which lives here.
    let code = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &mut status,
        )
    };
    if code != 0 || status.stx_mask & libc::STATX_DIOALIGN == 0 {
        DirectAlignment::Unknown
    } else if status.stx_dio_offset_align == 0 {
        DirectAlignment::Unsupported
    } else {
        DirectAlignment::Bytes {
            memory: status.stx_dio_mem_align,
            offset: status.stx_dio_offset_align,
        }
    }
}

/// Returns the unit of direct I/O on a file, and whether buffers aligned to 512 bytes suffice.
pub fn file_sector(file: &File) -> (u32, bool) {
    match direct_alignment(file) {
        DirectAlignment::Unsupported => (512, false),
        DirectAlignment::Bytes { memory, .. } if memory > 512 => (512, false),
        DirectAlignment::Bytes { offset, .. } => (offset.max(512), true),
        DirectAlignment::Unknown => {
            // Unknown: try. A read past the end is refused for its alignment all the same.
            let works = |length| file.read_at(&mut Buffer::zeroed(length)[..], 0).is_ok();
            match () {
                () if works(512) => (512, true),
                () if works(4096) => (4096, true),
                () => (512, false),
            }
        }
    }
}

/// Whether a disk that is opened on this file goes past the page cache. A file that cannot be
/// opened counts as one that does: opening the disk reports why.
pub fn goes_past_page_cache(path: &Path) -> bool {
    match OpenOptions::new().read(true).custom_flags(libc::O_DIRECT | libc::O_NONBLOCK).open(path) {
        Ok(file) => file_sector(&file).1,
        Err(error) => error.raw_os_error() != Some(libc::EINVAL),
    }
}

/// Returns the magic number of the file system that a file is on (fstatfs(2)).
pub fn file_system_magic(file: &impl AsRawFd) -> io::Result<u64> {
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open as long as `file` lives, and the kernel fills the structure
    // where it returns zero.
    unsafe {
        match libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()) {
            // 32 bits on every architecture; where the type is signed, the upper half repeats the
            // sign.
            0 => Ok(found.assume_init().f_type as u64 & u64::from(u32::MAX)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Returns the size in bytes of a file or block device.
pub fn size_of(file: &OwnedFd) -> io::Result<u64> {
    File::from(file.try_clone()?).seek(SeekFrom::End(0))
}

/// Range of all bytes of a file, of any later size.
pub const WHOLE: Range<u64> = 0..u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    Shared,
    Exclusive,
}

/// Locks bytes for this open file (fcntl(2), F_OFD_SETLK); `WouldBlock` or `PermissionDenied` if
/// another open file holds them. The lock ends when the last descriptor of the open file is closed.
pub fn lock_bytes(file: &impl AsRawFd, lock: Lock, bytes: &Range<u64>) -> io::Result<()> {
    let kind = match lock {
        Lock::Shared => libc::F_RDLCK,
        Lock::Exclusive => libc::F_WRLCK,
    };
    control_lock(file, libc::F_OFD_SETLK, kind, bytes).map(drop)
}

/// Sets a lock of the open file description: `None` removes it. EAGAIN: another lock conflicts.
pub fn lock_range(
    file: &impl AsRawFd,
    exclusive: Option<bool>,
    bytes: &Range<u64>,
) -> io::Result<()> {
    let kind = match exclusive {
        None => libc::F_UNLCK,
        Some(true) => libc::F_WRLCK,
        Some(false) => libc::F_RDLCK,
    };
    control_lock(file, libc::F_OFD_SETLK, kind, bytes).map(drop)
}

/// Returns a lock that conflicts with one of the open file description: whether it is exclusive,
/// and its bytes.
pub fn range_lock_against(
    file: &impl AsRawFd,
    exclusive: bool,
    bytes: &Range<u64>,
) -> io::Result<Option<(bool, Range<u64>)>> {
    let kind = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
    let found = control_lock(file, libc::F_OFD_GETLK, kind, bytes)?;
    if i32::from(found.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    let (start, length) = (found.l_start as u64, found.l_len as u64);
    let end = if length == 0 { 1 << 63 } else { start.saturating_add(length) };
    Ok(Some((i32::from(found.l_type) == libc::F_WRLCK, start..end)))
}

fn control_lock(
    file: &impl AsRawFd,
    command: libc::c_int,
    kind: libc::c_int,
    bytes: &Range<u64>,
) -> io::Result<libc::flock> {
    // SAFETY: all zeros is a valid value of this structure of integers.
    let mut wanted: libc::flock = unsafe { std::mem::zeroed() };
    wanted.l_type = kind as libc::c_short;
    wanted.l_whence = libc::SEEK_SET as libc::c_short;
    let most = i64::MAX as u64;
    wanted.l_start = bytes.start.min(most) as libc::off_t;
    // Zero: up to the end of the file, wherever it will be.
    wanted.l_len =
        if bytes.end > most { 0 } else { bytes.end.saturating_sub(bytes.start) as libc::off_t };
    // SAFETY: the descriptor is open as long as `file` lives, and the kernel reads and writes one
    // structure, which lives here.
    let code = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut wanted) };
    if code == 0 { Ok(wanted) } else { Err(io::Error::last_os_error()) }
}

/// Device and number of an inode.
#[derive(PartialEq, Eq, Debug)]
pub struct Identity {
    device: (u32, u32),
    inode: u64,
}

/// Returns the identity of a file as the kernel has it in memory: no file system is asked, so one
/// that does not answer delays nobody.
pub fn identity_of(path: &Path) -> io::Result<Identity> {
    let found = status_in_memory(path, libc::STATX_INO)?;
    Ok(Identity { device: (found.stx_dev_major, found.stx_dev_minor), inode: found.stx_ino })
}

/// Returns the number of the block device at `path`, if there is one. No file system is asked, as
/// by [`identity_of`].
pub fn block_device_at(path: &Path) -> io::Result<Option<u64>> {
    let found = status_in_memory(path, libc::STATX_TYPE)?;
    let is_device = u32::from(found.stx_mode) & libc::S_IFMT == libc::S_IFBLK;
    Ok(is_device.then(|| libc::makedev(found.stx_rdev_major, found.stx_rdev_minor)))
}

fn status_in_memory(path: &Path, wanted: libc::c_uint) -> io::Result<libc::statx> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut found = std::mem::MaybeUninit::<libc::statx>::uninit();
    let flags = libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
    // SAFETY: the path ends with a zero byte, and the kernel fills the structure where it returns
    // zero.
    unsafe {
        match libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, wanted, found.as_mut_ptr()) {
            0 => Ok(found.assume_init()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Locks the node of a device with flock(2), which udev honours and holds briefly, too.
pub fn lock_node(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file` lives.
    let code = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The fields of `struct loop_info64` that identify the file or device behind a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopStatus {
    pub device: u64,
    pub inode: u64,
    /// Number of the block device behind it; zero for a file.
    pub number: u64,
}

/// Calls `LOOP_GET_STATUS64` (linux/loop.h).
pub fn loop_status(device: &File) -> io::Result<LoopStatus> {
    const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
    /// `sizeof(struct loop_info64)` in units of its alignment.
    const WORDS: usize = 232 / 8;
    let mut status = [0u64; WORDS];
    // SAFETY: the kernel fills 232 bytes, which live here and are aligned.
    let code = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, status.as_mut_ptr()) };
    if code == 0 {
        Ok(LoopStatus { device: status[0], inode: status[1], number: status[2] })
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The logical sector of a block device, in bytes.
pub fn logical_sector(device: &File) -> io::Result<u32> {
    let mut sector: libc::c_int = 0;
    // SAFETY: BLKSSZGET writes one int, which lives here.
    let code = unsafe { libc::ioctl(device.as_raw_fd(), libc::BLKSSZGET, &mut sector) };
    if code == 0 { Ok(sector as u32) } else { Err(io::Error::last_os_error()) }
}

/// Whether the kernel refuses writes to a block device.
pub fn is_write_protected(device: &File) -> bool {
    let mut protected: libc::c_int = 0;
    // SAFETY: BLKROGET writes one int, which lives here.
    let code = unsafe { libc::ioctl(device.as_raw_fd(), BLKROGET, &mut protected) };
    code == 0 && protected != 0
}

/// The request `_IO(0x12, 94)` of linux/fs.h.
const BLKROGET: libc::Ioctl = 0x125e;

/// Makes a file opened O_DIRECT use the page cache from now on.
pub fn leave_direct(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file` lives; F_GETFL and F_SETFL take and give
    // integers.
    let code = unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
        if flags < 0 {
            flags
        } else {
            libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_DIRECT)
        }
    };
    if code >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The next bytes that are not in a hole, from byte `from` on, up to the hole after them. `None` if
/// only a hole is left, or nothing.
pub fn next_data(file: &File, from: u64) -> io::Result<Option<Range<u64>>> {
    let seek = |from: u64, whence| {
        let from =
            i64::try_from(from).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        // SAFETY: only numbers, and a descriptor that `file` keeps open.
        let found = unsafe { libc::lseek(file.as_raw_fd(), from, whence) };
        u64::try_from(found).map_err(|_| io::Error::last_os_error())
    };
    match seek(from, libc::SEEK_DATA) {
        Ok(start) => Ok(Some(start..seek(start, libc::SEEK_HOLE)?)),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) => Err(error),
    }
}
