//! A mount namespace for the daemon alone.
//!
//! A process that dies as the last of its mount namespace removes the namespace's mounts, and waits
//! for their daemons' answers. A daemon whose own mount is among them waits for itself, and every
//! sync(2) with it. So it lives in a namespace without its mount. That also lets the caller's
//! namespace end with its last process, the mount with it.

use crate::daemon::mount_table;
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null;

/// Enters a copy of the caller's namespace, in which every path leads where it did. Call it before
/// the ring is made: its workers stay where they began.
pub fn enter() -> io::Result<()> {
    // SAFETY: the call takes an integer.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    // Later mounts of the caller, the daemon's own above all, must not propagate here.
    mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE)
}

/// Removes everything from the namespace but `/proc`, so that the copies keep no file system busy.
/// `directory` is any.
pub fn empty(directory: &Path) -> io::Result<()> {
    let path = CString::new(directory.as_os_str().as_bytes())?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount(Some(c"none"), &path, Some(c"tmpfs"), flags)?;
    std::env::set_current_dir(directory)?;
    // Without it the mount helper cannot return, and a signal leaves a dead mount behind.
    if std::fs::create_dir("proc").is_ok() {
        let _ = mount(Some(c"/proc"), c"proc", None, libc::MS_BIND)
            .or_else(|_| mount(Some(c"/proc"), c"proc", None, libc::MS_BIND | libc::MS_REC));
    }
    // SAFETY: both paths end with a zero byte. The old root then lies over the new one
    // (pivot_root(2)).
    let pivoted = checked(unsafe {
        libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr())
    } as i32);
    match pivoted {
        Ok(()) => detach(Path::new("."))?,
        // The root is no mount (chroot), or the one that the kernel began with: it stays, mounts on
        // it are removed.
        Err(_) => detach_all()?,
    }
    std::env::set_current_dir("/")
}

fn detach_all() -> io::Result<()> {
    for mount in mount_table::mounts()?.iter().rev() {
        if mount.directory != Path::new("/") && mount.directory != Path::new("/proc") {
            let _ = detach(&mount.directory);
        }
    }
    Ok(())
}

/// Removes the mount on `directory`, for this namespace only.
pub fn detach(directory: &Path) -> io::Result<()> {
    let path = CString::new(directory.as_os_str().as_bytes())?;
    // SAFETY: the path ends with a zero byte.
    checked(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) })
}

fn mount(
    source: Option<&CStr>,
    target: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
) -> io::Result<()> {
    let [source, kind] = [source, kind].map(|text| text.map_or(null(), CStr::as_ptr));
    // SAFETY: each pointer is null where the call allows it, or a string that ends with a zero
    // byte.
    checked(unsafe { libc::mount(source, target.as_ptr(), kind, flags, null()) })
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
