//! Places of files in the tree, as far as this client knows them.
//!
//! 1. Another client may have renamed the file since, so a user of a place compares the file's
//!    number and its time of birth: numbers are reused.
//! 2. Directories are opened one by one from the root on, and no link is followed. So no user with
//!    write access to the tree can lead this client out of it, and a path may be as long as the
//!    kernel lets programs make it.
//! 3. Other file systems and subvolumes mounted in the tree are not part of the store: their
//!    numbers name other files.

use super::OWN_DIRECTORY;
use crate::attributes::FileId;
use crate::error::{Refusal, StoreError};
use rustix::fs::{Mode, OFlags, openat};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Deeper trees are refused.
const DEPTH_MAX: usize = 512;

/// A name in a directory that is held open, as a path that leads nowhere else while this lives.
pub(super) struct Place {
    path: PathBuf,
    held: OwnedFd,
}

impl Place {
    /// Creates the place of a name; `.` is the directory itself.
    fn new(directory: OwnedFd, name: &[u8]) -> Place {
        let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string());
        Place { path: path.join(OsStr::from_bytes(name)), held: directory }
    }
}

impl Place {
    /// Returns the path of the directory that has the name.
    pub fn directory(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.held.as_raw_fd().to_string())
    }
}

impl AsRef<Path> for Place {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

pub(super) struct Places {
    root: PathBuf,
    opened: fs::File,
    root_file: FileId,
    /// `st_dev` of everything that belongs to the store.
    file_system: u64,
    known: RefCell<BTreeMap<FileId, Known>>,
}

struct Known {
    parent: FileId,
    name: Vec<u8>,
    /// Time of birth, where the file system stores it.
    born: Option<SystemTime>,
}

impl Places {
    pub fn new(root: PathBuf) -> io::Result<Places> {
        let opened = fs::File::options().read(true).custom_flags(libc::O_DIRECTORY).open(&root)?;
        let found = opened.metadata()?;
        let (root_file, file_system) = (FileId(found.ino()), found.dev());
        Ok(Places { root, opened, root_file, file_system, known: RefCell::default() })
    }
    pub fn root(&self) -> FileId {
        self.root_file
    }
    pub fn root_directory(&self) -> &fs::File {
        &self.opened
    }
    /// Returns whether the file belongs to the store, and not to a file system mounted in it.
    pub fn has(&self, found: &Metadata) -> bool {
        found.dev() == self.file_system || units::fault!("store-mounts-crossed")
    }
    /// Returns whether this is the file of this number, as it was seen under its name.
    pub fn is(&self, file: FileId, found: &Metadata) -> bool {
        let born = self.known.borrow().get(&file).and_then(|known| known.born);
        let is_older = units::fault!("store-number-used-again")
            || born.is_none_or(|born| found.created().is_ok_and(|now| now == born));
        found.ino() == file.0 && self.has(found) && is_older
    }
    pub fn note(&self, file: FileId, parent: FileId, name: &[u8], found: &Metadata) {
        if file != self.root_file {
            let known = Known { parent, name: name.to_vec(), born: found.created().ok() };
            self.known.borrow_mut().insert(file, known);
        }
    }
    pub fn forget(&self, file: FileId) {
        self.known.borrow_mut().remove(&file);
    }

    /// Returns the place of `file`, if it is still there.
    pub fn place(&self, file: FileId) -> Result<Place, StoreError> {
        self.found(file, |names| match names.split_last() {
            Some((name, parents)) => Ok(Place::new(self.opened_directory(parents)?, name)),
            None => Ok(Place::new(self.opened_directory(names)?, b".")),
        })
    }
    /// Returns the place of a name in `directory`, if that is still there; the name need not exist.
    pub fn place_in(&self, directory: FileId, name: &[u8]) -> Result<Place, StoreError> {
        let place =
            self.found(directory, |names| Ok(Place::new(self.opened_directory(names)?, b".")))?;
        Ok(Place::new(place.held, name))
    }
    /// Returns a place as [`Places::place`] does; a link is no directory.
    pub fn directory(&self, directory: FileId) -> Result<Place, StoreError> {
        self.place_in(directory, b".")
    }

    /// Opens a directory where it was last. `None`: it cannot be opened there.
    pub fn open_known_directory(&self, directory: FileId) -> Option<fs::File> {
        let place = Place::new(self.opened_directory(&self.names(directory)?).ok()?, b".");
        let opened = fs::File::open(&place).ok()?;
        self.is(directory, &opened.metadata().ok()?).then_some(opened)
    }

    /// Returns one of the file's names from the root on, if one is known or found.
    pub fn path(&self, file: FileId) -> Option<Vec<u8>> {
        self.place(file).ok()?;
        Some(self.names(file)?.join(&b'/'))
    }

    fn found(
        &self,
        file: FileId,
        place: impl Fn(&[Vec<u8>]) -> io::Result<Place>,
    ) -> Result<Place, StoreError> {
        let believed = || {
            let place = place(&self.names(file)?).ok()?;
            fs::symlink_metadata(&place)
                .is_ok_and(|metadata| self.is(file, &metadata))
                .then_some(place)
        };
        believed().or_else(|| (self.search(file)).then(believed)?).ok_or(Refusal::Stale.into())
    }

    /// Returns the names from the root on.
    fn names(&self, file: FileId) -> Option<Vec<Vec<u8>>> {
        let known = self.known.borrow();
        let (mut at, mut names) = (file, Vec::new());
        while at != self.root_file {
            let Known { parent, name, .. } = known.get(&at)?;
            names.push(name.clone());
            (names.len() <= DEPTH_MAX).then_some(())?;
            at = *parent;
        }
        names.reverse();
        Some(names)
    }

    fn opened_directory(&self, names: &[Vec<u8>]) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at: OwnedFd = openat(&self.opened, ".", flags, Mode::empty())?;
        for name in names {
            at = openat(&at, &name[..], flags, Mode::empty())?;
        }
        Ok(at)
    }

    /// Searches the whole tree, as after a crash, and remembers what it sees. Returns whether
    /// `wanted` was found.
    fn search(&self, wanted: FileId) -> bool {
        let (mut waiting, mut found) = (vec![(self.root.clone(), self.root_file, 0)], false);
        while let Some((path, parent, depth)) = waiting.pop() {
            let Ok(entries) = fs::read_dir(&path) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name();
                let Ok(kind) = entry.file_type() else { continue };
                if depth == 0 && name == OWN_DIRECTORY {
                    continue;
                }
                let Ok(metadata) = entry.metadata() else { continue };
                let file = FileId(metadata.ino());
                // Another file with a known number was put there since.
                if !self.is(file, &metadata) {
                    continue;
                }
                self.note(file, parent, name.as_bytes(), &metadata);
                found |= file == wanted;
                if kind.is_dir() && depth < DEPTH_MAX {
                    waiting.push((entry.path(), file, depth + 1));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_file_systems_in_the_tree_are_not_shown() {
        let places = Places::new("/".into()).unwrap();
        let found = |path: &str| fs::symlink_metadata(path).unwrap();
        assert!(places.has(&found("/")));
        assert!(!places.has(&found("/proc")) && !places.has(&found("/proc/self/status")));
    }
}
