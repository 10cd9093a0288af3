//! Places of files in the tree, as far as this client knows them.
//!
//! 1. Another client may have renamed the file since, so a user of a place compares the file's
//!    number and its time of birth: numbers are reused.
//! 2. Directories are opened one by one from the root on, and no link is followed. So no user with
//!    write access to the tree can lead this client out of it, and a path may be as long as the
//!    kernel lets programs make it.
//! 3. Other file systems and subvolumes mounted in the tree are not part of the store: their
//!    numbers name other files.
//! 4. A file is gone only if the whole tree was looked at: what cannot be read may have it.

use super::{OWN_DIRECTORY, failed};
use crate::attributes::FileId;
use crate::error::{Refusal, StoreError};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, makedev, openat, statx};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
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
    is_recovering: Cell<bool>,
    /// Whether everything in the tree is known, or was during this recovery.
    is_searched: Cell<bool>,
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
        Ok(Places {
            root,
            opened,
            root_file,
            file_system,
            known: RefCell::default(),
            is_recovering: Cell::default(),
            is_searched: Cell::default(),
        })
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
        Ok(self.found(file, |names| self.place_at(names))?.0)
    }
    /// Returns what `file` is. Another one that is put there at any time is not taken for it.
    pub fn metadata(&self, file: FileId) -> Result<Metadata, StoreError> {
        Ok(self.found(file, |names| self.place_at(names))?.1)
    }
    fn place_at(&self, names: &[Vec<u8>]) -> io::Result<Place> {
        match names.split_last() {
            Some((name, parents)) => Ok(Place::new(self.opened_directory(parents)?, name)),
            None => Ok(Place::new(self.opened_directory(names)?, b".")),
        }
    }
    /// Returns the place of a name in `directory`, if that is still there; the name need not exist.
    pub fn place_in(&self, directory: FileId, name: &[u8]) -> Result<Place, StoreError> {
        let place =
            self.found(directory, |names| Ok(Place::new(self.opened_directory(names)?, b".")))?;
        Ok(Place::new(place.0.held, name))
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
    ) -> Result<(Place, Metadata), StoreError> {
        let look = || {
            self.looked(file, &place)
                .map_err(|error| failed(&self.store_name(), "looking for a file", &error))
        };
        let found = match look()? {
            None if self.search(file)? => look()?,
            found => found,
        };
        found.ok_or(Refusal::Stale.into())
    }
    /// Returns the place where the file was last; `None`: it is not there.
    fn looked(
        &self,
        file: FileId,
        place: impl Fn(&[Vec<u8>]) -> io::Result<Place>,
    ) -> io::Result<Option<(Place, Metadata)>> {
        let Some(names) = self.names(file) else { return Ok(None) };
        let look = || {
            let place = place(&names)?;
            let found = fs::symlink_metadata(&place)?;
            Ok(self.is(file, &found).then_some((place, found)))
        };
        look().or_else(|error| if is_not_there(&error) { Ok(None) } else { Err(error) })
    }
    fn store_name(&self) -> String {
        format!("dir:{}", self.root.display())
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

    /// Records that a recovery begins or ends. A number that a search has not met during one is
    /// not searched for again: no file without a name gets one.
    pub fn set_recovering(&self, is_recovering: bool) {
        self.is_recovering.set(is_recovering);
        self.is_searched.set(false);
    }

    /// Searches the whole tree, as after a crash, and remembers what it sees. Returns whether
    /// `wanted` was found.
    ///
    /// # Errors
    /// During a recovery: it was not found, and a part of the tree could not be looked at, where it
    /// may be.
    fn search(&self, wanted: FileId) -> Result<bool, StoreError> {
        if self.is_searched.get() && !self.known.borrow().contains_key(&wanted) {
            return Ok(false);
        }
        self.search_watched(wanted, &mut |_| {})
    }
    /// Searches as [`Places::search`] does. Calls `seen` with each directory that was read.
    fn search_watched(
        &self,
        wanted: FileId,
        seen: &mut dyn FnMut(&[Vec<u8>]),
    ) -> Result<bool, StoreError> {
        let is_recovering = self.is_recovering.get();
        // Another client may move a directory from what is not read yet to what has been read.
        let walks = if is_recovering && !units::fault!("store-searched-once") { 2 } else { 1 };
        for _ in 0..walks {
            let (found, unread) = self.walk(wanted, seen);
            match unread {
                _ if found => return Ok(true),
                // A program looks again for what is stale, and nothing of a journal depends on it.
                Some((names, error)) if is_recovering && !units::fault!("store-unread-is-gone") => {
                    let path = names.join(&b'/');
                    return Err(StoreError::Failed {
                        store: self.store_name(),
                        what: format!("searching {:?} for a file", String::from_utf8_lossy(&path)),
                        code: error.raw_os_error().unwrap_or(libc::EIO),
                    });
                }
                _ => {}
            }
        }
        self.is_searched.set(is_recovering);
        Ok(false)
    }
    /// Walks through the tree once. Returns whether `wanted` was found, and the first part that
    /// could not be looked at.
    fn walk(&self, wanted: FileId, seen: &mut dyn FnMut(&[Vec<u8>])) -> (bool, Option<Unread>) {
        let (mut found, mut unread) = (false, None);
        let mut waiting = vec![(Vec::new(), self.root_file)];
        while let Some((names, directory)) = waiting.pop() {
            let mut each = |name: &[u8], metadata: &Metadata| {
                let file = FileId(metadata.ino());
                // Another file with a known number was put there since.
                if !self.is(file, metadata) {
                    return;
                }
                self.note(file, directory, name, metadata);
                found |= file == wanted;
                if metadata.is_dir() && names.len() < DEPTH_MAX {
                    waiting.push(([&names[..], &[name.to_vec()]].concat(), file));
                }
            };
            match self.read_entries(&names, directory, &mut each) {
                Err(error) if !is_not_there(&error) && !is_lost_and_found(&names, &error) => {
                    unread.get_or_insert((names, error));
                }
                _ => seen(&names),
            }
        }
        (found, unread)
    }
    /// Reads a directory if it still has these names.
    fn read_entries(
        &self,
        names: &[Vec<u8>],
        directory: FileId,
        each: &mut dyn FnMut(&[u8], &Metadata),
    ) -> io::Result<()> {
        let place = Place::new(self.opened_directory(names)?, b".");
        if !self.is(directory, &fs::metadata(&place)?) {
            return Ok(());
        }
        for entry in fs::read_dir(&place)? {
            let name = entry?.file_name();
            if names.is_empty() && name == OWN_DIRECTORY {
                continue;
            }
            let inner = place.directory().join(&name);
            match fs::symlink_metadata(inner) {
                Ok(metadata) => each(name.as_bytes(), &metadata),
                Err(error) if is_not_there(&error) || self.is_mounted(&place, &name) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
    /// Returns whether another file system is mounted on the name: one of FUSE may refuse
    /// everything else to other users, and one whose server is gone fails.
    fn is_mounted(&self, place: &Place, name: &OsStr) -> bool {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let found = statx(&place.held, name, flags, StatxFlags::empty());
        found.is_ok_and(|found| {
            makedev(found.stx_dev_major, found.stx_dev_minor) != self.file_system
        })
    }
}

/// A directory that could not be read.
type Unread = (Vec<Vec<u8>>, io::Error);

/// Returns whether there is no such name, or not where a directory was.
fn is_not_there(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP))
}

/// Returns whether it is a directory in which nobody but root makes files: that of `mke2fs` in the
/// root of its file system.
fn is_lost_and_found(names: &[Vec<u8>], error: &io::Error) -> bool {
    matches!(names, [name] if name == b"lost+found") && error.kind() == ErrorKind::PermissionDenied
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

    /// Another client moves a directory behind the walk.
    #[test]
    fn a_directory_that_moves_during_a_search_is_found() {
        for wanted in ["a", "b"] {
            let root = tempfile::tempdir().unwrap();
            for name in ["a", "b"] {
                fs::create_dir_all(root.path().join(name).join("moved")).unwrap();
                fs::write(root.path().join(name).join("moved/file"), b"").unwrap();
            }
            let places = Places::new(root.path().into()).unwrap();
            places.set_recovering(true);
            let file = root.path().join(wanted).join("moved/file");
            let file = FileId(fs::metadata(file).unwrap().ino());
            let mut is_moved = false;
            let found = places.search_watched(file, &mut |names| {
                if let ([name], false) = (names, is_moved) {
                    is_moved = true;
                    let other = if name == b"a" { "b" } else { "a" };
                    let to = root.path().join(OsStr::from_bytes(name)).join("moved there");
                    fs::rename(root.path().join(other).join("moved"), to).unwrap();
                }
            });
            assert_eq!(found, Ok(true), "{wanted}");
            assert!(is_moved && places.place(file).is_ok());
        }
    }
}
