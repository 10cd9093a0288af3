//! A loop device for an image file, so that it can be mounted as a block device (linux/loop.h,
//! loop(4)).
//!
//! Direct I/O: no second page cache, and a flush reaches the disk under the file. Autoclear: the
//! kernel detaches the device when its last user ends, however the daemon ends.

use crate::daemon::held_mount::open_place;
use crate::disk::open_disk;
use crate::error::CliError;
use disks::DiskAccess;
use rustix::fs::OFlags;
use rustix::process::geteuid;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const LOOP_CLR_FD: libc::Ioctl = 0x4c01;
const LOOP_SET_CAPACITY: libc::Ioctl = 0x4c07;
const READ_ONLY: u32 = 1;
const AUTOCLEAR: u32 = 4;
const DIRECT_IO: u32 = 16;
const NAME_SIZE: usize = 64;
/// Attempts: others may take the free device first, but not that often by chance.
const ATTEMPTS: u32 = 64;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; NAME_SIZE],
    crypt_name: [u8; NAME_SIZE],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}
const _: () = assert!(size_of::<LoopInfo>() == 232);

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    /// Logical sector size; zero lets the kernel choose.
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}
const _: () = assert!(size_of::<LoopConfig>() == 304);

/// A loop device that exists as long as this is held, or another process has it open or mounted.
/// The image stays locked, so that nobody mounts it without a loop device.
pub struct LoopDevice {
    pub path: PathBuf,
    _device: File,
    /// The locked image.
    pub image: File,
}

/// Lifetime of a loop device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stands {
    UntilLastUser,
    /// Exists until [`detach`].
    UntilDetached,
}

impl LoopDevice {
    /// Attaches the image `held`, named `image`. The kernel shows the path of `held`, as long as
    /// the mount namespace exists in which it was opened.
    pub fn attach(
        image: &Path,
        held: &File,
        access: DiskAccess,
        stands: Stands,
    ) -> Result<LoopDevice, CliError> {
        let subject = || format!("loop device for {}", image.display());
        let system = |error| {
            let remedy = match stands {
                Stands::UntilLastUser => {
                    "Load the loop module (modprobe loop), or mount with -o noloop."
                }
                Stands::UntilDetached if !geteuid().is_root() => open_disk::NEEDS_ROOT,
                Stands::UntilDetached => {
                    "Load the loop module (modprobe loop), or attach it with --via nbd."
                }
            };
            CliError::system(subject(), error).with_remedy(remedy)
        };
        let read_only = access == DiskAccess::ReadOnly;
        let open = |path: &Path| OpenOptions::new().read(true).write(!read_only).open(path);
        let open_anew = |file: &File| {
            open(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))
                .map_err(|error| CliError::system(format!("open {}", image.display()), error))
        };
        let backing = open_anew(held)?;
        open_disk::lock_image(image, &backing, access)?;
        // Opened anew: a lock belongs to the open file, and the kernel may keep this one's loop
        // device long after the daemon has died.
        let for_kernel = open_anew(&backing)?;
        let control =
            OpenOptions::new().read(true).write(true).open("/dev/loop-control").map_err(system)?;
        let mut info = empty();
        let until_last_user = if stands == Stands::UntilLastUser { AUTOCLEAR } else { 0 };
        info.flags = until_last_user | DIRECT_IO | if read_only { READ_ONLY } else { 0 };
        let name = image.as_os_str().as_encoded_bytes();
        let shown = name.len().min(NAME_SIZE - 1);
        info.file_name[..shown].copy_from_slice(&name[..shown]);
        let config =
            LoopConfig { fd: for_kernel.as_raw_fd() as u32, block_size: 0, info, reserved: [0; 8] };
        for _ in 0..ATTEMPTS {
            // SAFETY: the request takes no argument.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            if number < 0 {
                return Err(system(io::Error::last_os_error()));
            }
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = open(&path).map_err(system)?;
            // SAFETY: the argument is a live structure of the size that the request expects.
            if unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) } == 0 {
                return Ok(LoopDevice { path, _device: device, image: backing });
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EBUSY) {
                return Err(system(error));
            }
        }
        Err(CliError::new(format!("{}: others took every free device first", subject())))
    }
}

/// Opens a file for its place alone, which keeps its file system busy.
pub fn hold(image: &Path) -> Result<File, CliError> {
    let opened = open_place(image, OFlags::empty());
    opened.map_err(|error| CliError::system(image.display(), error))
}

/// Flushes a loop device, and detaches it when its last user ends.
pub fn detach(device: &Path) -> io::Result<()> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(device)
        .or_else(|error| {
            // A read-only one has nothing to flush.
            if error.raw_os_error() == Some(libc::EROFS) { File::open(device) } else { Err(error) }
        })?
        .sync_all()?;
    detach_dead(device)
}

/// Gives a loop device the size that its file has now.
pub fn take_size(device: &Path) -> io::Result<()> {
    let file = File::open(device)?;
    // SAFETY: the request takes no argument.
    match unsafe { libc::ioctl(file.as_raw_fd(), LOOP_SET_CAPACITY) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Detaches a loop device whose file no longer answers, when its last user ends.
pub fn detach_dead(device: &Path) -> io::Result<()> {
    let file = File::open(device)?;
    // SAFETY: the request takes no argument.
    match unsafe { libc::ioctl(file.as_raw_fd(), LOOP_CLR_FD) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns a loop device on this file: two of them would be two caches over one disk.
pub fn device_on(image: &Path) -> io::Result<Option<PathBuf>> {
    Ok(disks::loop_device_over(&std::fs::metadata(image)?, &(0..u64::MAX), None))
}

fn empty() -> LoopInfo {
    LoopInfo {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: 0,
        file_name: [0; NAME_SIZE],
        crypt_name: [0; NAME_SIZE],
        encrypt_key: [0; 32],
        init: [0; 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attach(image: &Path) -> LoopDevice {
        let held = hold(image).unwrap();
        LoopDevice::attach(image, &held, DiskAccess::ReadWrite, Stands::UntilLastUser)
            .unwrap_or_else(|error| panic!("needs root: {error}"))
    }

    #[test]
    fn an_image_whose_last_user_is_just_going_is_waited_for() {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(1 << 20).unwrap();
        let held = image.reopen().unwrap();
        disks::lock_image(image.path(), &held, DiskAccess::ReadWrite).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(200));
                drop(held);
            });
            attach(image.path());
        });
    }

    #[test]
    fn a_file_under_a_loop_device_is_found_and_detached() {
        let mut image = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut image, &[7; 1 << 20]).unwrap();
        assert_eq!(device_on(image.path()).unwrap(), None);
        let device = attach(image.path());
        assert_eq!(device_on(image.path()).unwrap().as_ref(), Some(&device.path));
        assert_eq!(std::fs::read(&device.path).unwrap().len(), 1 << 20);
        drop(device);
        // A process that just scanned all devices keeps it open for a moment.
        while device_on(image.path()).unwrap().is_some() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}
