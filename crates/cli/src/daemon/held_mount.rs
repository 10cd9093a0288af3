//! A mount, held while root acts on it: its user may exchange a directory of its path for a link.

use super::mount_table::Mount;
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The directory that has a mount's directory.
///
/// A mount's own directory is not kept open: that would keep it from being unmounted. Nor can it be
/// renamed as long as it is mounted, so that its name in the held directory leads to it.
pub struct HeldParent {
    parent: File,
    name: PathBuf,
}

impl HeldParent {
    /// # Errors
    /// NotFound if another mount, or none, is at the mount's path now; the kernel's.
    pub fn of(mount: &Mount) -> io::Result<HeldParent> {
        let (parent, name) = match (mount.directory.parent(), mount.directory.file_name()) {
            (Some(parent), Some(name)) => (parent, PathBuf::from(name)),
            _ => (Path::new("/"), PathBuf::from(".")),
        };
        let held = HeldParent { parent: open_place(parent, OFlags::empty())?, name };
        check(&open_place(held.path(), OFlags::NOFOLLOW)?, mount)?;
        Ok(held)
    }

    /// Returns a path by which this process reaches the mount; its last component must not be
    /// followed.
    pub fn path(&self) -> PathBuf {
        path_of(&self.parent).join(&self.name)
    }
}

/// Opens a mount's own directory.
///
/// # Errors
/// As of [`HeldParent::of`].
pub fn open_top(mount: &Mount) -> io::Result<File> {
    let top = open_place(&mount.directory, OFlags::NOFOLLOW)?;
    check(&top, mount)?;
    Ok(top)
}

/// Returns a path by which this process reaches an open file, whatever has become of its own.
pub fn path_of(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Opens a file for its place alone, which needs no access to it and asks its file system nothing.
///
/// Rust's own `custom_flags` drops O_PATH where the C library is musl, whose O_ACCMODE contains it.
///
/// # Errors
/// As open(2).
pub fn open_place(path: impl AsRef<Path>, more: OFlags) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | more;
    Ok(File::from(rustix::fs::open(path.as_ref(), flags, Mode::empty())?))
}

fn check(top: &File, mount: &Mount) -> io::Result<()> {
    match mount_id(Path::new("/proc"), top)? == mount.id {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::NotFound, "another mount has taken its place")),
    }
}

/// Returns the mount of an open file, from `fdinfo` below `proc` (proc_pid_fdinfo(5)).
pub fn mount_id(proc: &Path, file: &File) -> io::Result<u64> {
    let text = fs::read_to_string(proc.join(format!("self/fdinfo/{}", file.as_raw_fd())))?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or_else(|| io::ErrorKind::InvalidData.into())
}
