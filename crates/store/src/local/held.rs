//! Files that are held without being opened: they stay the same file whatever is put in their
//! place, and are opened once it is known what they are.

use super::notes::Notes;
use super::store::Local;
use crate::attributes::{FileId, FileKind};
use crate::error::{Refusal, StoreError};
use crate::open_file::{OpenFile, OpenMode};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::geteuid;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
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

/// Opens a file. Its owner, this process, gets one that his mode forbids him to write for reading,
/// and writes to it all the same: `for_writing`.
pub(super) fn open_at(path: &Path, access: OpenMode, flags: i32) -> io::Result<File> {
    let open = |write| File::options().read(true).write(write).custom_flags(flags).open(path);
    match open(access == OpenMode::ReadWrite) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => open(false)
            .and_then(|handle| Ok((handle.metadata()?.uid() == geteuid().as_raw(), handle)))
            .and_then(|(is_own, handle)| if is_own { Ok(handle) } else { Err(error) }),
        opened => opened,
    }
}

/// Opens a regular file that is held. Waits for a program that has a lease of it. Its owner, this
/// process, gets it also if he may not read it: a program that made it so may write to it, and what
/// it has synced must get there. The file's state stays the one that journals build on.
fn open_held(held: &File, access: OpenMode, notes: &Notes) -> io::Result<File> {
    let path = path_of(held);
    let opened = open_at(Path::new(&path), access, 0);
    let found = held.metadata()?;
    let is_forbidden =
        matches!(&opened, Err(error) if error.kind() == io::ErrorKind::PermissionDenied);
    if !is_forbidden || found.uid() != geteuid().as_raw() {
        return opened;
    }
    notes.keep(std::slice::from_ref(&found))?;
    let mode = found.mode() & 0o7777;
    fs::set_permissions(&path, Permissions::from_mode(mode | 0o600))?;
    let opened = File::options().read(true).write(true).open(&path);
    fs::set_permissions(&path, Permissions::from_mode(mode))?;
    opened
}

impl Local {
    /// Opens a file as [`Local::open`] does. One that another program has a lease of, or that its
    /// mode keeps from its owner, is opened on a thread: that waits until the lease has ended
    /// (`/proc/sys/fs/lease-break-time` at most), or for the disk.
    pub async fn open_or_wait(
        &self,
        file: FileId,
        access: OpenMode,
    ) -> Result<OpenFile, StoreError> {
        let opened = self.searching(|| self.open(file, access)).await;
        let waits = matches!(
            opened,
            Err(StoreError::Refused(Refusal::AccessDenied | Refusal::Other(libc::EWOULDBLOCK)))
        );
        if !waits || units::fault!("store-lease-not-waited-for") {
            return opened;
        }
        let what = "opening";
        let held = self.searching(|| {
            hold(self.places.place(file)?.as_ref()).map_err(|error| self.failed(what, &error))
        });
        let held = held.await?;
        let found = held.metadata().map_err(|error| self.failed(what, &error))?;
        let is_it = self.places.is(file, &found);
        if !is_it || self.attributes_of(&found).kind != FileKind::Regular {
            return Err(Refusal::Stale.into());
        }
        let notes = self.notes.clone();
        let handle = self.on_thread(what, move || open_held(&held, access, &notes)).await?;
        let handle = handle.map_err(|error| self.failed(what, &error))?;
        Ok(self.opened(file, access, handle))
    }
}
