//! Extended attributes: those of the file itself. A change is durable when it is answered.

use super::notes::sync_directory;
use super::store::Local;
use crate::attributes::{FileId, FileKind};
use crate::error::{Refusal, StoreError};
use crate::limits::XATTR_BYTES_MAX;
use crate::names::XattrMode;
use crate::overlay::Overlay;
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lremovexattr, lsetxattr};
use rustix::io::Errno;
use std::fs;

impl Local {
    fn refused(&self, error: Errno) -> StoreError {
        self.failed("an extended attribute", &error.into())
    }

    pub fn xattr(&self, file: FileId, name: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mut value = vec![0; XATTR_BYTES_MAX];
        let length = lgetxattr(self.places.place(file)?.as_ref(), name, &mut value[..]);
        value.truncate(length.map_err(|error| self.refused(error))?);
        Ok(value)
    }
    pub fn xattr_names(&self, file: FileId) -> Result<Vec<u8>, StoreError> {
        let mut names = vec![0; XATTR_BYTES_MAX];
        let length = llistxattr(self.places.place(file)?.as_ref(), &mut names[..]);
        names.truncate(length.map_err(|error| self.refused(error))?);
        Ok(names)
    }

    /// Without a value: removes it. The file's time of change is another then, so what is buffered
    /// goes first.
    pub async fn change_xattr(
        &self,
        file: FileId,
        name: Vec<u8>,
        value: Option<(Vec<u8>, XattrMode)>,
    ) -> Result<(), StoreError> {
        if value.as_ref().is_some_and(|(value, _)| value.len() > XATTR_BYTES_MAX) {
            return Err(Refusal::Invalid.into());
        }
        self.flush(file).await?;
        let place = self.places.place(file)?;
        self.notes.remove(file);
        let changed = match value {
            Some((value, mode)) => {
                let flags = match mode {
                    XattrMode::Set => XattrFlags::empty(),
                    XattrMode::Create => XattrFlags::CREATE,
                    XattrMode::Replace => XattrFlags::REPLACE,
                };
                lsetxattr(place.as_ref(), &name[..], &value, flags)
            }
            None => lremovexattr(place.as_ref(), &name[..]),
        };
        changed.map_err(|error| self.refused(error))?;
        let metadata =
            fs::symlink_metadata(&place).map_err(|error| self.failed("attributes", &error))?;
        let attributes = self.attributes_of(&metadata);
        if let Some(buffered) = self.files.borrow_mut().get_mut(&file) {
            (buffered.attributes, buffered.overlay) =
                (attributes, Overlay::over(attributes.version.size));
        }
        if matches!(attributes.kind, FileKind::Regular | FileKind::Directory) {
            let sync = move || sync_directory(place.as_ref());
            return self.away("making an attribute durable", sync).await;
        }
        Ok(())
    }
}
