//! Names: each call is done by the kernel before it answers.

use super::OWN_DIRECTORY;
use super::files::set_mode;
use super::places::Place;
use super::store::Local;
use crate::attributes::{FileAttributes, FileId};
use crate::error::{Refusal, StoreError};
use crate::limits::{LISTING_ENTRIES_MAX, NAME_BYTES_MAX, TARGET_BYTES_MAX};
use crate::names::{Creator, Entry, Found, Listing, NewNode, RenameOver};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, lchown, symlink};
use std::path::Path;

impl Local {
    fn place_of(&self, parent: FileId, name: &[u8]) -> Result<Place, StoreError> {
        match name {
            [] | b"." | b".." => return Err(Refusal::Invalid.into()),
            name if name.contains(&b'/') || name.contains(&0) => {
                return Err(Refusal::Invalid.into());
            }
            name if name.len() > NAME_BYTES_MAX => return Err(Refusal::NameTooLong.into()),
            name if parent == self.places.root() && name == OWN_DIRECTORY.as_bytes() => {
                return Err(Refusal::NotFound.into());
            }
            _ => {}
        }
        self.places.place_in(parent, name)
    }

    pub fn lookup(&self, parent: FileId, name: &[u8]) -> Result<Found, StoreError> {
        let place = self.place_of(parent, name)?;
        let metadata =
            fs::symlink_metadata(place).map_err(|error| self.failed("looking up", &error))?;
        let file = FileId(metadata.ino());
        self.places.note(file, parent, name);
        let buffered = self.files.borrow().get(&file).map(|buffered| buffered.attributes);
        let attributes = match buffered {
            // Others may have linked it.
            Some(buffered) => FileAttributes { links: metadata.nlink() as u32, ..buffered },
            None => self.attributes_of(&metadata),
        };
        Ok(Found { file, attributes })
    }

    pub fn make(
        &self,
        parent: FileId,
        name: &[u8],
        node: NewNode,
        caller: Creator,
    ) -> Result<Found, StoreError> {
        let place = self.place_of(parent, name)?;
        make_at(place.as_ref(), &node, caller).map_err(|error| self.failed("making", &error))?;
        self.lookup(parent, name)
    }

    pub fn link(
        &self,
        file: FileId,
        parent: FileId,
        name: &[u8],
    ) -> Result<FileAttributes, StoreError> {
        let (from, to) = (self.places.place(file)?, self.place_of(parent, name)?);
        fs::hard_link(from, to).map_err(|error| self.failed("linking", &error))?;
        Ok(self.lookup(parent, name)?.attributes)
    }

    pub fn unlink(&self, parent: FileId, name: &[u8]) -> Result<(), StoreError> {
        let place = self.place_of(parent, name)?;
        let metadata =
            fs::symlink_metadata(&place).map_err(|error| self.failed("unlinking", &error))?;
        if metadata.is_dir() {
            return Err(Refusal::IsDirectory.into());
        }
        fs::remove_file(place).map_err(|error| self.failed("unlinking", &error))?;
        let file = FileId(metadata.ino());
        self.places.forget(file);
        if metadata.nlink() == 1 && !self.files.borrow().contains_key(&file) {
            self.notes.remove(file);
        }
        Ok(())
    }

    pub fn remove_directory(&self, parent: FileId, name: &[u8]) -> Result<(), StoreError> {
        let place = self.place_of(parent, name)?;
        fs::remove_dir(place).map_err(|error| self.failed("removing a directory", &error))
    }

    pub fn rename(
        &self,
        from: (FileId, &[u8]),
        to: (FileId, &[u8]),
        mode: RenameOver,
    ) -> Result<(), StoreError> {
        let (old, new) = (self.place_of(from.0, from.1)?, self.place_of(to.0, to.1)?);
        // Another may make the name between: a directory has no server that could tell.
        if mode == RenameOver::NoReplace && fs::symlink_metadata(&new).is_ok() {
            return Err(Refusal::Exists.into());
        }
        fs::rename(&old, &new).map_err(|error| self.failed("renaming", &error))?;
        let metadata =
            fs::symlink_metadata(&new).map_err(|error| self.failed("renaming", &error))?;
        self.places.note(FileId(metadata.ino()), to.0, to.1);
        Ok(())
    }

    pub fn read_link(&self, file: FileId) -> Result<Vec<u8>, StoreError> {
        let target = fs::read_link(self.places.place(file)?)
            .map_err(|error| self.failed("reading a link", &error))?;
        Ok(target.into_os_string().into_vec())
    }

    /// A listing is taken as a whole when it begins, and goes on from there.
    pub fn list(&self, directory: FileId, cursor: u64) -> Result<Listing, StoreError> {
        if cursor == 0 || !self.listings.borrow().contains_key(&directory) {
            let entries = self.read_directory(directory)?;
            self.listings.borrow_mut().insert(directory, entries);
        }
        let mut listings = self.listings.borrow_mut();
        let entries = listings.get(&directory).map(Vec::as_slice).unwrap_or_default();
        let rest = entries.get(cursor as usize..).unwrap_or_default();
        let entries: Vec<Entry> = rest.iter().take(LISTING_ENTRIES_MAX).cloned().collect();
        let is_end = entries.len() == rest.len();
        if entries.is_empty() {
            listings.remove(&directory);
        }
        Ok(Listing { entries, is_end })
    }

    fn read_directory(&self, directory: FileId) -> Result<Vec<Entry>, StoreError> {
        let place = self.places.directory(directory)?;
        let mut entries = Vec::new();
        for entry in fs::read_dir(&place).map_err(|error| self.failed("listing", &error))? {
            let entry = entry.map_err(|error| self.failed("listing", &error))?;
            let name = entry.file_name();
            if directory == self.places.root() && name == OWN_DIRECTORY {
                continue;
            }
            // Gone since: it is not there.
            let Ok(metadata) = entry.metadata() else { continue };
            let kind = self.attributes_of(&metadata).kind;
            let (file, cursor) = (FileId(metadata.ino()), entries.len() as u64 + 1);
            self.places.note(file, directory, name.as_bytes());
            entries.push(Entry { name: name.into_vec(), file, kind, cursor });
        }
        Ok(entries)
    }
}

fn make_at(path: &Path, node: &NewNode, caller: Creator) -> io::Result<()> {
    let mode = match node {
        NewNode::Regular { mode } => {
            OpenOptions::new().write(true).create_new(true).mode(*mode).open(path)?;
            Some(*mode)
        }
        NewNode::Directory { mode } => {
            DirBuilder::new().mode(*mode).create(path)?;
            Some(*mode)
        }
        NewNode::Symlink { target } if target.len() <= TARGET_BYTES_MAX => {
            symlink(OsStr::from_bytes(target), path)?;
            None
        }
        NewNode::Symlink { .. } => return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG)),
        NewNode::Special { kind, mode, rdev } => {
            let (kind, permissions) = (FileType::from_raw_mode(*kind), Mode::from_raw_mode(*mode));
            mknodat(CWD, path, kind, permissions, u64::from(*rdev))?;
            Some(*mode)
        }
    };
    let made = fs::symlink_metadata(path)?;
    if (made.uid(), made.gid()) != (caller.uid, caller.gid) {
        lchown(path, Some(caller.uid), Some(caller.gid))?;
    }
    // This process's umask is not the caller's; and a change of owner takes set-id bits away.
    match mode {
        Some(mode) => set_mode(path, mode),
        None => Ok(()),
    }
}
