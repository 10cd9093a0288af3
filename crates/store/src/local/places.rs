//! Where a file lies, as far as this client knows: others may have renamed it since, so whoever uses a path compares the file's number.

use super::OWN_DIRECTORY;
use crate::attributes::FileId;
use crate::error::{Refusal, StoreError};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Deeper trees are refused.
const DEPTH_MAX: usize = 512;

pub(super) struct Places {
    root: PathBuf,
    root_file: FileId,
    /// Parent and name.
    known: RefCell<BTreeMap<FileId, (FileId, Vec<u8>)>>,
}

impl Places {
    pub fn new(root: PathBuf) -> std::io::Result<Places> {
        let root_file = FileId(fs::metadata(&root)?.ino());
        Ok(Places { root, root_file, known: RefCell::default() })
    }
    pub fn root(&self) -> FileId {
        self.root_file
    }
    pub fn note(&self, file: FileId, parent: FileId, name: &[u8]) {
        if file != self.root_file {
            self.known.borrow_mut().insert(file, (parent, name.to_vec()));
        }
    }
    pub fn forget(&self, file: FileId) {
        self.known.borrow_mut().remove(&file);
    }

    /// The path of `file`, if it is still there.
    pub fn path(&self, file: FileId) -> Result<PathBuf, StoreError> {
        if let Some(path) = self.believed(file).filter(|path| is_at(path, file)) {
            return Ok(path);
        }
        self.search(file)?.ok_or(Refusal::Stale.into())
    }

    fn believed(&self, file: FileId) -> Option<PathBuf> {
        let known = self.known.borrow();
        let (mut at, mut names) = (file, Vec::new());
        while at != self.root_file {
            let (parent, name) = known.get(&at)?;
            names.push(name);
            (names.len() <= DEPTH_MAX).then_some(())?;
            at = *parent;
        }
        let mut path = self.root.clone();
        names.iter().rev().for_each(|name| path.push(OsStr::from_bytes(name)));
        Some(path)
    }

    /// Looks through the whole tree, as after a crash, and remembers what it sees.
    fn search(&self, wanted: FileId) -> Result<Option<PathBuf>, StoreError> {
        let (mut waiting, mut found) = (vec![(self.root.clone(), self.root_file, 0)], None);
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
                self.note(file, parent, name.as_bytes());
                if file == wanted {
                    found = Some(entry.path());
                }
                if kind.is_dir() && depth < DEPTH_MAX {
                    waiting.push((entry.path(), file, depth + 1));
                }
            }
        }
        Ok(found)
    }
}

fn is_at(path: &Path, file: FileId) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.ino() == file.0)
}
