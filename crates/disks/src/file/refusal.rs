//! Reasons for which a disk cannot be used.

use super::Kind;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Reason for which a disk cannot be used. Each message names the problem, the disk, and what to
/// do.
#[derive(Debug, thiserror::Error)]
pub enum DiskOpenError {
    #[error("cannot open {path}: {source}{}", advice(source))]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot find out {what} of {path}: {source}")]
    Examine { path: PathBuf, what: &'static str, source: io::Error },
    #[error("{path} is {kind}: give an image file or a block device")]
    NotADisk { path: PathBuf, kind: &'static str },
    #[error("{path} is mounted at {at}: unmount it first")]
    Mounted { path: PathBuf, at: PathBuf },
    #[error("{path} is in use by {by}: end that use first")]
    Busy { path: PathBuf, by: String },
    #[error("{path} is in use by {}", locked_by(path, by))]
    Locked {
        path: PathBuf,
        /// Names and numbers of the processes, as far as they are visible.
        by: Vec<String>,
    },
    #[error(
        "{path} is attached to {device}: use {device} instead, or detach it with losetup -d {device}"
    )]
    Attached { path: PathBuf, device: PathBuf },
    #[error(
        "{below}, which is behind {path}, is attached to {device} as well: two devices over one file are two caches \
         over one disk; detach the other with losetup -d {device}"
    )]
    AttachedTwice { path: PathBuf, below: PathBuf, device: PathBuf },
    #[error("{path} is write-protected: make it writable first")]
    WriteProtected { path: PathBuf },
    #[error("{path} is empty: make a volume on it first")]
    Empty { path: PathBuf },
}

fn locked_by(path: &Path, by: &[String]) -> String {
    match by {
        [] => format!(
            "another process that has locked it: end that process first (see who: fuser -v {})",
            path.display()
        ),
        by => format!("{}, which has locked it: wait for its end, or end it first", by.join(", ")),
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => " (are you root, or may you write to it?)",
        Some(libc::EROFS) => " (it is write-protected: make it writable first)",
        _ => "",
    }
}

pub(super) fn kind_of(path: &Path, kind: &std::fs::FileType) -> Result<Kind, DiskOpenError> {
    let other = match kind {
        kind if kind.is_block_device() => return Ok(Kind::Device),
        kind if kind.is_file() => return Ok(Kind::File),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_char_device() => "a character device",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "neither file nor device",
    };
    Err(DiskOpenError::NotADisk { path: path.to_owned(), kind: other })
}
