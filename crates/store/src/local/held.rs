//! Files that are held without being opened: they stay the same file whatever is put in their
//! place. They are opened, or changed by `/proc/self/fd`, once it is known what they are. Linux has
//! no other call for a mode before 6.6, nor for times before 5.8.

use crate::open_file::OpenMode;
use rustix::fs::{CWD, Mode, OFlags, fcntl_getfl, openat, syncfs};
use rustix::process::geteuid;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Holds what is at a path, without following a link. This waits for nobody.
pub(super) fn hold(path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(openat(CWD, path, flags, Mode::empty())?))
}

/// Returns a path to a file that is held, whatever its name is.
pub(super) fn path_of(held: &File) -> String {
    format!("/proc/self/fd/{}", held.as_raw_fd())
}

/// Returns whether a file is held, and not open.
pub(super) fn is_held(file: &File) -> io::Result<bool> {
    Ok(fcntl_getfl(file)?.contains(OFlags::PATH))
}

/// Makes a regular file or directory durable that is open or held; one that may not be opened with
/// its whole file system, which has `root`. To open it may wait for a program that has a lease of
/// it.
pub(super) fn sync(file: &File, root: &File) -> io::Result<()> {
    if !is_held(file)? {
        return file.sync_all();
    }
    match File::open(path_of(file)) {
        Err(error)
            if error.kind() == io::ErrorKind::PermissionDenied
                && !units::fault!("store-made-change-refused") =>
        {
            Ok(syncfs(root)?)
        }
        opened => opened?.sync_all(),
    }
}

/// Opens a regular file that is held. Its owner, this process, gets one that his mode forbids him
/// to write for reading, and writes to it all the same: `for_writing`. Without O_NONBLOCK in
/// `flags` this waits for a program that has a lease of the file.
pub(super) fn open_held(held: &File, access: OpenMode, flags: i32) -> io::Result<File> {
    let path = path_of(held);
    let open = |write| File::options().read(true).write(write).custom_flags(flags).open(&path);
    match open(access == OpenMode::ReadWrite) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => open(false)
            .and_then(|handle| Ok((handle.metadata()?.uid() == geteuid().as_raw(), handle)))
            .and_then(|(is_own, handle)| if is_own { Ok(handle) } else { Err(error) }),
        opened => opened,
    }
}
