//! Extended attributes: those of the file itself. A change is durable when it is answered.

use super::held::{path_of, sync};
use super::store::{Local, REPLACED_MAX};
use super::tokens::Excluded;
use crate::attributes::{FileId, FileKind};
use crate::error::{Refusal, StoreError};
use crate::limits::XATTR_BYTES_MAX;
use crate::names::XattrMode;
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;
use std::fs::File;
use std::rc::Rc;

impl Local {
    fn refused(&self, error: Errno) -> StoreError {
        self.failed("an extended attribute", &error.into())
    }

    pub fn xattr(&self, file: FileId, name: &[u8]) -> Result<Vec<u8>, StoreError> {
        let (target, mut value) = (self.open_or_held(file)?, vec![0; XATTR_BYTES_MAX]);
        let length = getxattr(path_of(&target), name, &mut value[..]);
        value.truncate(length.map_err(|error| self.refused(error))?);
        Ok(value)
    }
    pub fn xattr_names(&self, file: FileId) -> Result<Vec<u8>, StoreError> {
        let (target, mut names) = (self.open_or_held(file)?, vec![0; XATTR_BYTES_MAX]);
        let length = listxattr(path_of(&target), &mut names[..]);
        names.truncate(length.map_err(|error| self.refused(error))?);
        Ok(names)
    }
    /// Returns an open file if there is one, as that works also after the file has lost its last
    /// name. Otherwise the file is held.
    fn open_or_held(&self, file: FileId) -> Result<Rc<File>, StoreError> {
        let open = self.opens.borrow().of(file).next().map(|open| open.handle.clone());
        match open.or_else(|| self.removed_directory(file)) {
            Some(open) => Ok(open),
            None => Ok(Rc::new(self.places.hold(file)?.0)),
        }
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
        let target = self.searching(|| self.open_or_held(file)).await?;
        let what = "attributes";
        let look = || self.look_at(what, || target.metadata());
        let before = look()?;
        let changed = change_at(&path_of(&target), &name[..], value);
        let changed = changed.map_err(|error| self.refused(error));
        let attributes = self.end_change(&before, look, changed).await?;
        if matches!(attributes.kind, FileKind::Regular | FileKind::Directory) {
            let both = target.try_clone().and_then(|target| {
                let root = self.places.root_directory().try_clone()?;
                Ok((target, root))
            });
            let (target, root) = both.map_err(|error| self.failed(what, &error))?;
            return self.away("making an attribute durable", move || sync(&target, &root)).await;
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

fn change_at(path: &str, name: &[u8], value: Option<(Vec<u8>, XattrMode)>) -> Result<(), Errno> {
    let flags = |mode| match mode {
        XattrMode::Set => XattrFlags::empty(),
        XattrMode::Create => XattrFlags::CREATE,
        XattrMode::Replace => XattrFlags::REPLACE,
    };
    match value {
        Some((value, mode)) => setxattr(path, name, &value, flags(mode)),
        None => removexattr(path, name),
    }
}
