//! A walk through the store's tree, to any depth: any user can move directories below each other.
//! Directories are opened one by one, as `places` does it, each from the one that has it where that
//! is still open.

use super::OWN_DIRECTORY;
use crate::attributes::FileId;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, makedev, openat, statx};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

/// Directories of the path to the last one that stay open.
const OPEN_MAX: usize = 64;
/// Index of the root among the directories of a walk.
const ROOT: usize = 0;

pub(super) struct Walk {
    pub root: File,
    pub root_file: FileId,
    /// `st_dev` of everything that belongs to the store.
    pub file_system: u64,
    /// Names that are farther from the root are not looked at.
    pub depth_max: usize,
}

/// A name that a walk has met.
pub(super) struct Met {
    pub file: FileId,
    pub parent: FileId,
    pub name: Vec<u8>,
    pub born: Option<SystemTime>,
    pub is_directory: bool,
}

/// The names of a directory that could not be read, and the error.
pub(super) type Unread = (Vec<Vec<u8>>, io::Error);

/// State of a walk.
pub(super) struct Walked {
    pub met: Vec<Met>,
    /// The first part that could not be looked at.
    pub unread: Option<Unread>,
}

/// A directory on the way.
struct Directory {
    file: FileId,
    parent: usize,
    name: Vec<u8>,
    depth: usize,
}

/// Directories that were met, and those that are open: each but the first is in the one before.
struct Directories {
    all: Vec<Directory>,
    open: VecDeque<(usize, OwnedFd)>,
}

impl Directories {
    /// Opens a directory, if it still has these names.
    fn open(&mut self, root: &File, directory: usize) -> io::Result<&OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (mut at, mut way) = (directory, Vec::new());
        loop {
            if let Some(place) = self.open.iter().position(|(open, _)| *open == at) {
                self.open.truncate(place + 1);
                break;
            }
            if at == ROOT {
                self.open.clear();
                self.open.push_back((ROOT, openat(root, ".", flags, Mode::empty())?));
                break;
            }
            way.push(at);
            at = self.all[at].parent;
        }
        for inner in way.into_iter().rev() {
            let (_, outer) = self.open.back().expect("the root, at least");
            let opened = openat(outer, &self.all[inner].name[..], flags, Mode::empty())?;
            self.open.push_back((inner, opened));
            if self.open.len() > OPEN_MAX {
                self.open.pop_front();
            }
        }
        Ok(&self.open.back().expect("the directory").1)
    }
    fn names(&self, directory: usize) -> Vec<Vec<u8>> {
        let (mut at, mut names) = (directory, Vec::new());
        while at != ROOT {
            names.push(self.all[at].name.clone());
            at = self.all[at].parent;
        }
        names.reverse();
        names
    }
}

impl Walk {
    /// Walks through the tree once. Calls `seen` with the name of each directory that was read, and
    /// the number of names that lead to it.
    pub fn run(&self, seen: &mut dyn FnMut(&[u8], usize)) -> Walked {
        let root = Directory { file: self.root_file, parent: ROOT, name: Vec::new(), depth: 0 };
        let mut directories = Directories { all: vec![root], open: VecDeque::new() };
        let (mut met, mut unread) = (Vec::new(), None);
        let mut waiting = vec![ROOT];
        while let Some(directory) = waiting.pop() {
            let first = met.len();
            let opened = directories.open(&self.root, directory).and_then(OwnedFd::try_clone);
            let read =
                opened.and_then(|opened| self.read(&opened, &directories.all[directory], &mut met));
            let of = &directories.all[directory];
            match read {
                Err(error) if !is_not_there(&error) && !is_lost_and_found(of, &error) => {
                    unread.get_or_insert_with(|| (directories.names(directory), error));
                }
                _ => seen(&of.name, of.depth),
            }
            let depth = of.depth + 1;
            if depth < self.depth_max {
                for Met { file, name, .. } in met[first..].iter().filter(|met| met.is_directory) {
                    waiting.push(directories.all.len());
                    let (file, name) = (*file, name.clone());
                    directories.all.push(Directory { file, parent: directory, name, depth });
                }
            }
        }
        Walked { met, unread }
    }
    /// Reads a directory, if it is this one still.
    fn read(&self, opened: &OwnedFd, of: &Directory, met: &mut Vec<Met>) -> io::Result<()> {
        let path = Path::new("/proc/self/fd").join(opened.as_raw_fd().to_string());
        let found = fs::metadata(&path)?;
        if found.ino() != of.file.0 || !is_on(self.file_system, &found) {
            return Ok(());
        }
        for entry in fs::read_dir(&path)? {
            let name = entry?.file_name();
            if of.depth == 0 && name == OWN_DIRECTORY {
                continue;
            }
            match fs::symlink_metadata(path.join(&name)) {
                Ok(found) if is_on(self.file_system, &found) => met.push(Met {
                    file: FileId(found.ino()),
                    parent: of.file,
                    name: name.as_bytes().to_vec(),
                    born: found.created().ok(),
                    is_directory: found.is_dir(),
                }),
                Ok(_) => {}
                Err(error) if is_not_there(&error) || self.is_mounted(opened, &name) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
    /// Returns whether another file system is mounted on the name: one of FUSE may refuse
    /// everything else to other users, and one whose server is gone fails.
    fn is_mounted(&self, directory: &OwnedFd, name: &OsStr) -> bool {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let found = statx(directory, name, flags, StatxFlags::empty());
        found.is_ok_and(|found| {
            makedev(found.stx_dev_major, found.stx_dev_minor) != self.file_system
        })
    }
}

/// Returns whether a file is on this file system, and not on one mounted in the tree.
pub(super) fn is_on(file_system: u64, found: &Metadata) -> bool {
    found.dev() == file_system || units::fault!("store-mounts-crossed")
}

/// Returns whether there is no such name, or not where a directory was.
pub(super) fn is_not_there(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP))
}

/// Returns whether it is a directory in which nobody but root makes files: that of `mke2fs` in the
/// root of its file system.
fn is_lost_and_found(of: &Directory, error: &io::Error) -> bool {
    of.depth == 1 && of.name == b"lost+found" && error.kind() == ErrorKind::PermissionDenied
}
