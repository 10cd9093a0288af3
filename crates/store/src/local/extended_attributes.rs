//! Extended attributes: those of the file itself. A change is durable when it is answered.

use super::held::{hold, path_of};
use super::store::{Local, REPLACED_MAX};
use super::tokens::Excluded;
use crate::attributes::{FileId, FileKind};
use crate::error::{Refusal, StoreError};
use crate::limits::XATTR_BYTES_MAX;
use crate::names::XattrMode;
use rustix::fs::{
    XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr, lgetxattr, llistxattr,
    lremovexattr, lsetxattr,
};
use rustix::io::Errno;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

impl Local {
    fn refused(&self, error: Errno) -> StoreError {
        self.failed("an extended attribute", &error.into())
    }

    pub fn xattr(&self, file: FileId, name: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mut value = vec![0; XATTR_BYTES_MAX];
        let length = match self.any_handle(file) {
            Some(handle) => fgetxattr(&*handle, name, &mut value[..]),
            None => lgetxattr(self.places.place(file)?.as_ref(), name, &mut value[..]),
        };
        value.truncate(length.map_err(|error| self.refused(error))?);
        Ok(value)
    }
    pub fn xattr_names(&self, file: FileId) -> Result<Vec<u8>, StoreError> {
        let mut names = vec![0; XATTR_BYTES_MAX];
        let length = match self.any_handle(file) {
            Some(handle) => flistxattr(&*handle, &mut names[..]),
            None => llistxattr(self.places.place(file)?.as_ref(), &mut names[..]),
        };
        names.truncate(length.map_err(|error| self.refused(error))?);
        Ok(names)
    }
    /// Works also after the file has lost its last name.
    fn any_handle(&self, file: FileId) -> Option<Rc<File>> {
        let open = self.opens.borrow().of(file).next().map(|open| open.handle.clone());
        open.or_else(|| self.removed_directory(file))
    }

    /// Sets an attribute, or removes it without a value. This changes the file's time of change, so
    /// the buffer is flushed first.
    pub async fn change_xattr(
        &self,
        file: FileId,
        name: Vec<u8>,
        value: Option<(Vec<u8>, XattrMode)>,
    ) -> Result<(), StoreError> {
        if value.as_ref().is_some_and(|(value, _)| value.len() > XATTR_BYTES_MAX) {
            return Err(Refusal::Invalid.into());
        }
        let _excluded = self.flush_and_exclude(file).await?;
        let handle = self.any_handle(file);
        let place = match handle {
            Some(_) => None,
            None => Some(self.searching(|| self.places.place(file)).await?),
        };
        let path = place.as_ref().map_or(Path::new(""), AsRef::as_ref);
        let look = || {
            self.look_at("attributes", || {
                handle.as_ref().map_or_else(|| fs::symlink_metadata(path), |open| open.metadata())
            })
        };
        let before = look()?;
        let changed = change_at(handle.as_deref(), path, &name[..], value);
        let changed = changed.map_err(|error| self.refused(error));
        let attributes = self.end_change(&before, look, changed).await?;
        if matches!(attributes.kind, FileKind::Regular | FileKind::Directory) {
            let open = handle.map(|handle| handle.try_clone()).transpose();
            let open = open.map_err(|error| self.failed("attributes", &error))?;
            let sync = move || match (open, place) {
                (Some(open), _) => open.sync_all(),
                (None, Some(place)) => open_same(place.as_ref(), &before)?.sync_all(),
                (None, None) => Ok(()),
            };
            return self.away("making an attribute durable", sync).await;
        }
        Ok(())
    }
}

impl Local {
    /// Flushes a file, and keeps others from it. Another call of this client may buffer something
    /// while this one waits: that is flushed, too.
    async fn flush_and_exclude(&self, file: FileId) -> Result<Excluded, StoreError> {
        for _ in 0..REPLACED_MAX {
            self.flush(file).await?;
            let kind = self.searching(|| self.attributes(file)).await?.kind;
            let excluded = self.exclude(file, kind).await?;
            if !matches!(excluded, Excluded::Overtaken) {
                return Ok(excluded);
            }
        }
        Err(StoreError::TokenHeld)
    }
}

/// Opens the regular file or directory that was seen at a path. Waits for a program that has a
/// lease of the file: call it on a thread of its own. Another user may have put anything there
/// since, a pipe that has no writer among others: what is not the same file is not opened.
fn open_same(path: &Path, seen: &Metadata) -> io::Result<File> {
    let held = hold(path)?;
    let found = held.metadata()?;
    match (found.dev(), found.ino()) == (seen.dev(), seen.ino()) {
        true => File::open(path_of(&held)),
        false => Err(io::Error::from_raw_os_error(libc::ESTALE)),
    }
}

fn change_at(
    handle: Option<&File>,
    path: &Path,
    name: &[u8],
    value: Option<(Vec<u8>, XattrMode)>,
) -> Result<(), Errno> {
    let flags = |mode| match mode {
        XattrMode::Set => XattrFlags::empty(),
        XattrMode::Create => XattrFlags::CREATE,
        XattrMode::Replace => XattrFlags::REPLACE,
    };
    match (handle, value) {
        (Some(file), Some((value, mode))) => fsetxattr(file, name, &value, flags(mode)),
        (Some(file), None) => fremovexattr(file, name),
        (None, Some((value, mode))) => lsetxattr(path, name, &value, flags(mode)),
        (None, None) => lremovexattr(path, name),
    }
}
