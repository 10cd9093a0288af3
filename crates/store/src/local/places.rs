//! Places of files in the tree, as far as this client knows them.
//!
//! 1. Another client may have renamed the file since, and any user who may write to its directory
//!    may put another file in its place at any time. So what is done to a file is done to one that
//!    is held ([`Places::hold`]), of which number and time of birth were compared: numbers are
//!    reused. By a name are done only changes of names.
//! 2. Directories are opened one by one from the root on, and no link is followed. So no user with
//!    write access to the tree can lead this client out of it, and a path may be as long as the
//!    kernel lets programs make it.
//! 3. Other file systems and subvolumes mounted in the tree are not part of the store: their
//!    numbers name other files.
//! 4. A file is gone only if the whole tree was looked at, however deep: what cannot be read may
//!    have it.
//! 5. The tree is walked through on a thread of its own, once for a number: what was not met is
//!    stale until a lookup meets it.

use super::failed;
use super::held::hold;
use super::walk::{Met, Walk, Walked, is_not_there, is_on};
use crate::attributes::FileId;
use crate::error::{Refusal, StoreError};
use rustix::fs::{Mode, OFlags, openat};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Deeper trees are refused: a request for what is in them takes as long as they are deep. But any
/// user can make one, and a recovery passes over none.
const DEPTH_MAX: usize = 512;
/// Numbers remembered that no search has met. Beyond that some are searched for again.
const MISSING_MAX: usize = 1 << 16;

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
    /// Numbers that a search has not met, outside of a recovery.
    missing: RefCell<BTreeSet<FileId>>,
    /// Numbers that were met since a walk began, whose answers may be older.
    met: RefCell<Option<BTreeSet<FileId>>>,
    /// A number that a call needed, and that is not where it was last.
    wanted: Cell<Option<FileId>>,
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
            missing: RefCell::default(),
            met: RefCell::default(),
            wanted: Cell::default(),
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
        is_on(self.file_system, found)
    }
    /// Returns whether this is the file of this number, as it was seen under its name.
    pub fn is(&self, file: FileId, found: &Metadata) -> bool {
        found.ino() == file.0 && self.has(found) && self.is_born(file, found.created().ok())
    }
    fn is_born(&self, file: FileId, born: Option<SystemTime>) -> bool {
        let known = self.known.borrow().get(&file).and_then(|known| known.born);
        known.is_none() || known == born || units::fault!("store-number-used-again")
    }
    pub fn note(&self, file: FileId, parent: FileId, name: &[u8], found: &Metadata) {
        if file != self.root_file {
            let known = Known { parent, name: name.to_vec(), born: found.created().ok() };
            self.known.borrow_mut().insert(file, known);
            self.missing.borrow_mut().remove(&file);
            if let Some(met) = &mut *self.met.borrow_mut() {
                met.insert(file);
            }
        }
    }
    pub fn forget(&self, file: FileId) {
        self.known.borrow_mut().remove(&file);
        if let Some(met) = &mut *self.met.borrow_mut() {
            met.remove(&file);
        }
    }

    /// Returns the place of `file`, if it is still there. Otherwise a search may find it
    /// ([`Places::take_wanted`]), as with each place.
    pub fn place(&self, file: FileId) -> Result<Place, StoreError> {
        Ok(self.found(file, |names| seen(self.place_at(names)?))?.0)
    }
    /// Returns what `file` is. Another one that is put there at any time is not taken for it.
    pub fn metadata(&self, file: FileId) -> Result<Metadata, StoreError> {
        Ok(self.found(file, |names| seen(self.place_at(names)?))?.1)
    }
    /// Holds `file`, and returns what it is. It stays the same file whatever is put in its place.
    pub fn hold(&self, file: FileId) -> Result<(fs::File, Metadata), StoreError> {
        self.found(file, |names| {
            let place = self.place_at(names)?;
            if units::fault!("store-changed-by-path") {
                let (place, found) = seen(place)?;
                return Ok((hold(place.as_ref())?, found));
            }
            let held = hold(place.as_ref())?;
            let found = held.metadata()?;
            Ok((held, found))
        })
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
            self.found(directory, |names| seen(Place::new(self.opened_directory(names)?, b".")))?;
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

    fn found<T>(
        &self,
        file: FileId,
        look: impl Fn(&[Vec<u8>]) -> io::Result<(T, Metadata)>,
    ) -> Result<(T, Metadata), StoreError> {
        let found = self.looked(file, look);
        let found =
            found.map_err(|error| failed(&self.store_name(), "looking for a file", &error))?;
        if found.is_none() {
            self.wanted.set(Some(file));
        }
        found.ok_or(Refusal::Stale.into())
    }
    /// Returns the number for whose sake a call was refused as stale since this was asked last.
    pub fn take_wanted(&self) -> Option<FileId> {
        self.wanted.take()
    }
    /// Looks where the file was last; `None`: it is not there.
    fn looked<T>(
        &self,
        file: FileId,
        look: impl Fn(&[Vec<u8>]) -> io::Result<(T, Metadata)>,
    ) -> io::Result<Option<(T, Metadata)>> {
        let Some(names) = self.names(file) else { return Ok(None) };
        match look(&names) {
            Err(error) if is_not_there(&error) => Ok(None),
            looked => Ok(Some(looked?).filter(|(_, found)| self.is(file, found))),
        }
    }
    fn store_name(&self) -> String {
        format!("dir:{}", self.root.display())
    }

    /// Returns how many names may lead to a file. A recovery reaches all.
    fn depth_max(&self) -> usize {
        if self.is_recovering.get() { usize::MAX } else { DEPTH_MAX }
    }
    /// Returns the names from the root on.
    fn names(&self, file: FileId) -> Option<Vec<Vec<u8>>> {
        let known = self.known.borrow();
        let (mut at, mut names) = (file, Vec::new());
        while at != self.root_file {
            let Known { parent, name, .. } = known.get(&at)?;
            names.push(name.clone());
            // Others may have moved one below the other and back, as seen at different times.
            (names.len() <= self.depth_max().min(known.len())).then_some(())?;
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
        self.missing.borrow_mut().clear();
    }

    pub fn is_recovering(&self) -> bool {
        self.is_recovering.get()
    }
    /// Returns whether a search for a file is of use. A program may ask for a stale number again
    /// and again.
    pub fn may_be_found(&self, wanted: FileId) -> bool {
        match self.is_recovering.get() {
            true => !self.is_searched.get() || self.known.borrow().contains_key(&wanted),
            false => !self.missing.borrow().contains(&wanted) && !self.is_too_deep(wanted),
        }
    }
    /// Returns whether the file was seen so deep in the tree that no request reaches it.
    fn is_too_deep(&self, file: FileId) -> bool {
        let known = self.known.borrow();
        let mut at = file;
        for _ in 0..=DEPTH_MAX {
            match known.get(&at) {
                Some(Known { parent, .. }) => at = *parent,
                None => return false,
            }
        }
        true
    }
    /// Returns whether the file is where it was last.
    pub fn is_there(&self, file: FileId) -> bool {
        self.looked(file, |names| seen(self.place_at(names)?)).is_ok_and(|found| found.is_some())
    }
    /// Returns how many walks through the tree make a search: another client may move a directory
    /// from what is not read yet to what has been read.
    pub fn walks(&self) -> u32 {
        if self.is_recovering.get() && !units::fault!("store-searched-once") { 2 } else { 1 }
    }
    /// Returns a walk through the whole tree, which another thread may take.
    pub fn walk(&self) -> io::Result<Walk> {
        self.met.replace(Some(BTreeSet::new()));
        let (root, file_system) = (self.opened.try_clone()?, self.file_system);
        Ok(Walk { root, root_file: self.root_file, file_system, depth_max: self.depth_max() })
    }
    /// Records what a walk has seen. Returns whether `wanted` may be in the tree: it was met, or
    /// is in what could not be looked at.
    ///
    /// # Errors
    /// During a recovery: it was not met, and a part of the tree could not be looked at, where it
    /// may be.
    pub fn add(&self, walked: Walked, wanted: FileId) -> Result<bool, StoreError> {
        let (mut found, mut unread) = (false, walked.unread);
        let is_recovering = self.is_recovering.get();
        let met = self.met.take().unwrap_or_default();
        for Met { file, parent, name, born, is_directory } in walked.met {
            // Another file with a known number was put there since. What is in a directory would
            // be taken for gone by a recovery.
            let is_entered = is_recovering && is_directory;
            if self.is_born(file, born) || (is_entered && file != wanted) {
                found |= file == wanted;
                if !met.contains(&file) {
                    self.known.borrow_mut().insert(file, Known { parent, name, born });
                    self.missing.borrow_mut().remove(&file);
                }
            } else if is_entered {
                let stale = io::Error::from_raw_os_error(libc::ESTALE);
                unread.get_or_insert((vec![name], stale));
            }
        }
        match unread {
            _ if found => {}
            // A program looks again for what is stale, and nothing of a journal depends on it.
            Some((names, error)) if is_recovering && !units::fault!("store-unread-is-gone") => {
                let path = names.join(&b'/');
                return Err(StoreError::Failed {
                    store: self.store_name(),
                    what: format!("searching {:?} for a file", String::from_utf8_lossy(&path)),
                    code: error.raw_os_error().unwrap_or(libc::EIO),
                });
            }
            // Another search may do better.
            Some(_) => return Ok(true),
            None => {}
        }
        Ok(found)
    }
    /// Records that a search has not found a file, until a lookup does.
    pub fn note_missing(&self, wanted: FileId) {
        if self.is_recovering.get() {
            self.is_searched.set(true);
            return;
        }
        let mut missing = self.missing.borrow_mut();
        if missing.len() >= MISSING_MAX {
            missing.clear();
        }
        missing.insert(wanted);
    }
}

/// Returns a place with what is there.
fn seen(place: Place) -> io::Result<(Place, Metadata)> {
    let found = fs::symlink_metadata(&place)?;
    Ok((place, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches as [`super::super::store::Local::search`] does.
    fn searched(
        places: &Places,
        wanted: FileId,
        seen: &mut dyn FnMut(&[u8], usize),
    ) -> Result<bool, StoreError> {
        for _ in 0..places.walks() {
            if places.add(places.walk().unwrap().run(seen), wanted)? {
                return Ok(true);
            }
        }
        places.note_missing(wanted);
        Ok(false)
    }

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
            let found = searched(&places, file, &mut |name, depth| {
                if depth == 1 && !is_moved {
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

    /// A file that is gone is set aside, or forgotten with the log.
    #[test]
    fn a_recovery_finds_what_lies_deep() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join(PathBuf::from_iter(["d"; 600]));
        fs::create_dir_all(&deep).unwrap();
        // Read on the way back from the depth.
        fs::create_dir_all(root.path().join("d/d/d/e/e")).unwrap();
        for directory in [&deep, &root.path().join("d/d/d/e/e")] {
            fs::write(directory.join("file"), b"").unwrap();
            let file = FileId(fs::metadata(directory.join("file")).unwrap().ino());
            let places = Places::new(root.path().into()).unwrap();
            places.set_recovering(true);
            assert_eq!(searched(&places, file, &mut |_, _| {}), Ok(true));
            let found = fs::metadata(places.place(file).unwrap()).unwrap();
            assert_eq!(found.ino(), file.0);
        }
    }

    /// A directory was removed, and another one got its number.
    #[test]
    fn a_directory_with_a_known_number_is_searched_too() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir(at("new")).unwrap();
        fs::write(at("new/file"), b"").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(at("other"), b"").unwrap();
        let found = |name: &str| fs::metadata(at(name)).unwrap();
        let [new, file] = ["new", "new/file"].map(|name| FileId(found(name).ino()));
        let places = Places::new(root.path().into()).unwrap();
        places.note(new, places.root(), b"old", &found("other"));
        places.set_recovering(true);
        assert_eq!(searched(&places, file, &mut |_, _| {}), Ok(true));
        assert!(places.place(file).is_ok());
        // It is not there, but what has its number may not be passed over.
        places.set_recovering(true);
        places.note(new, places.root(), b"old", &found("other"));
        assert!(searched(&places, new, &mut |_, _| {}).is_err());
    }
}
