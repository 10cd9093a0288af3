//! Listings of directories, each taken as a whole.

use crate::attributes::{FileId, FileKind};
use crate::listing::cursor_of;
use crate::names::Entry;
use runtime::sync::RwLock;
use std::cell::RefCell;
use std::fs::{FileType, ReadDir};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirEntryExt, FileTypeExt};
use std::rc::Rc;

/// Names of a directory that are read while other requests wait: less than a millisecond.
pub(super) const LISTED_AT_ONCE: usize = 1024;

/// The listing of one directory.
#[derive(Default)]
pub(super) struct Listed {
    /// The lock of a reading.
    pub reading: Rc<RwLock>,
    /// The entries read last; `None` before that.
    pub taken: RefCell<Option<Rc<Vec<Entry>>>>,
}

/// Reads `most` entries. Returns whether it has come to the end.
pub(super) fn read_entries(
    opened: &mut ReadDir,
    most: usize,
    seed: u64,
    entries: &mut Vec<Entry>,
) -> io::Result<bool> {
    for _ in 0..most {
        let Some(entry) = opened.next().transpose()? else { return Ok(true) };
        // Removed since, where the directory does not say what it is.
        let Ok(kind) = entry.file_type() else { continue };
        let name = entry.file_name().into_vec();
        let cursor = cursor_of(seed, &name);
        entries.push(Entry { file: FileId(entry.ino()), kind: kind_of(kind), name, cursor });
    }
    Ok(false)
}

fn kind_of(kind: FileType) -> FileKind {
    match kind {
        kind if kind.is_file() => FileKind::Regular,
        kind if kind.is_dir() => FileKind::Directory,
        kind if kind.is_symlink() => FileKind::Symlink,
        kind if kind.is_fifo() => FileKind::Special(libc::S_IFIFO),
        kind if kind.is_char_device() => FileKind::Special(libc::S_IFCHR),
        kind if kind.is_block_device() => FileKind::Special(libc::S_IFBLK),
        _ => FileKind::Special(libc::S_IFSOCK),
    }
}
