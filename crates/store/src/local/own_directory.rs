//! The store's own directories. A user who may write to the store's root may put anything in their
//! place, or a link into them. So each is opened once, without following links, and everything in
//! it is opened beneath the held descriptor.

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RawMode, Stat, fchmod, fstat, fsync, linkat, mkdirat,
    openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

const ROOT_USER: u32 = 0;
const PRIVATE: RawMode = 0o700;
const WRITABLE_BY_OTHERS: RawMode = 0o022;

/// A directory that is held open. Clones share the descriptor.
#[derive(Clone)]
pub(super) struct OwnDirectory {
    held: Arc<OwnedFd>,
    /// Users whose files are trusted: root, this process's user, the owner of the store's root.
    owners: [u32; 3],
}

impl OwnDirectory {
    /// Makes `name` in the store's root, or opens the existing one. EPERM: it belongs to another
    /// user, or others may write to it.
    pub fn in_root(root: impl AsFd, name: &str) -> io::Result<OwnDirectory> {
        let owners = [ROOT_USER, geteuid().as_raw(), fstat(&root)?.st_uid];
        OwnDirectory::make(root, name, owners)
    }
    pub fn inner(&self, name: &str) -> io::Result<OwnDirectory> {
        OwnDirectory::make(&*self.held, name, self.owners)
    }

    /// Returns a descriptor that opens files in it without this type's checks of owner and names.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.held.as_fd()
    }

    fn make(parent: impl AsFd, name: &str, owners: [u32; 3]) -> io::Result<OwnDirectory> {
        match mkdirat(&parent, name, Mode::from_raw_mode(PRIVATE)) {
            // The files in it count after a crash only if the directory exists.
            Ok(()) => fsync(&parent)?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let follows = if units::fault!("store-own-directory-followed") {
            OFlags::empty()
        } else {
            OFlags::NOFOLLOW
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | follows | OFlags::CLOEXEC;
        let held = openat(&parent, name, flags, Mode::empty())?;
        let found = fstat(&held)?;
        let is_ours = found.st_uid == geteuid().as_raw();
        if !owners.contains(&found.st_uid) || (!is_ours && found.st_mode & WRITABLE_BY_OTHERS != 0)
        {
            return Err(Errno::PERM.into());
        }
        // Other users can lock any file that they can open.
        if is_ours && found.st_mode & 0o7777 != PRIVATE {
            fchmod(&held, Mode::from_raw_mode(PRIVATE))?;
        }
        Ok(OwnDirectory { held: Arc::new(held), owners })
    }

    /// Creates a file that must not exist.
    pub fn make_new(&self, name: &str) -> io::Result<File> {
        let safe = match units::fault!("store-note-follows-links") {
            true => OFlags::TRUNC,
            false => OFlags::EXCL | OFlags::NOFOLLOW,
        };
        let flags = OFlags::WRONLY | OFlags::CREATE | safe;
        let mode = Mode::from_raw_mode(0o600);
        Ok(openat(&*self.held, name, flags | OFlags::CLOEXEC, mode)?.into())
    }
    /// Gives a file this content, at once and durably.
    pub fn put(&self, name: &str, text: &str) -> io::Result<()> {
        let fresh = format!("{name}.new");
        let mut to = match self.make_new(&fresh) {
            // Left over from a crash.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.remove(&fresh)?;
                self.make_new(&fresh)?
            }
            made => made?,
        };
        to.write_all(text.as_bytes())?;
        to.sync_all()?;
        self.rename(&fresh, name)?;
        self.sync()
    }
    /// Opens or creates a regular file with one name and a trusted owner, for reading and writing.
    pub fn open_or_make(&self, name: &str) -> io::Result<File> {
        self.open(name, OFlags::RDWR | OFlags::CREATE)
    }
    /// Opens a file as [`OwnDirectory::open_or_make`] does. Returns whether it was there.
    pub fn open_and_look(&self, name: &str) -> io::Result<(File, bool)> {
        match self.open(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.open_or_make(name).map(|file| (file, true))
            }
            made => made.map(|file| (file, false)),
        }
    }
    pub fn open_to_write(&self, name: &str) -> io::Result<File> {
        self.open(name, OFlags::RDWR)
    }
    fn open(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let safe = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&*self.held, name, flags | safe, Mode::from_raw_mode(0o600))?;
        let found = fstat(&opened)?;
        let is_regular = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        if !is_regular || found.st_nlink > 1 || !self.owners.contains(&found.st_uid) {
            return Err(Errno::PERM.into());
        }
        Ok(opened.into())
    }
    /// Returns the content of a file of at most `bytes_max` bytes. `None`: there is none, or it is
    /// longer.
    pub fn read(&self, name: &str, bytes_max: u64) -> Option<String> {
        let file = self.open(name, OFlags::RDONLY).ok()?;
        let mut text = String::new();
        file.take(bytes_max + 1).read_to_string(&mut text).ok()?;
        (text.len() as u64 <= bytes_max).then_some(text)
    }
    pub fn metadata(&self, name: &str) -> io::Result<Stat> {
        Ok(statat(&*self.held, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }
    /// Returns whether `file` still has this name.
    pub fn is_at(&self, name: &str, file: &File) -> bool {
        match (self.metadata(name), fstat(file)) {
            (Ok(there), Ok(here)) => (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino),
            _ => false,
        }
    }
    /// Gives a file a further name. `AlreadyExists`: there is one.
    pub fn link(&self, name: &str, new_name: &str) -> io::Result<()> {
        Ok(linkat(&*self.held, name, &*self.held, new_name, AtFlags::empty())?)
    }
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&*self.held, name, AtFlags::empty())?)
    }
    pub fn rename(&self, name: &str, new_name: &str) -> io::Result<()> {
        Ok(renameat(&*self.held, name, &*self.held, new_name)?)
    }
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&*self.held)? {
            let name = entry?.file_name().to_str().map(str::to_owned);
            names.extend(name.ok().filter(|name| name != "." && name != ".."));
        }
        Ok(names)
    }
    pub fn sync(&self) -> io::Result<()> {
        Ok(fsync(&*self.held)?)
    }
}
