//! The abstract state of a script's directory: names, types, modes, owners, sizes, contents,
//! extended attributes, link counts, and descriptors. One line for each object.

use super::player::{Actor, runs};
use rustix::fs::{lgetxattr, llistxattr};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::{File, FileType, Metadata};
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

/// Describes everything below the directory, and the actor's descriptors.
pub fn of_actor(actor: &mut Actor) -> io::Result<Vec<String>> {
    let mut lines = of_directory(&actor.directory)?;
    for (slot, file) in ["x", "y"].into_iter().zip(&mut actor.open) {
        if let Some(file) = file {
            lines.push(format!("{slot}: {}", of_descriptor(file)?));
        }
    }
    Ok(lines)
}

/// Describes everything below the directory, sorted by name. An inode is numbered by its first
/// name.
pub fn of_directory(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    list(directory, "", &mut names)?;
    names.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut inodes = BTreeMap::new();
    names
        .iter()
        .map(|(name, kind)| {
            let path = directory.join(name);
            // The content first: in front of a shared store a read brings the attributes as well.
            let content = of_content(&path, *kind)?;
            let about = path.symlink_metadata()?;
            let count = inodes.len();
            let inode = *inodes.entry(about.ino()).or_insert(count);
            let attributes = attributes(&path)?;
            Ok(format!("{name}: #{inode} {}{attributes} {content}", of_inode(&about)))
        })
        .collect()
}

fn list(directory: &Path, prefix: &str, names: &mut Vec<(String, FileType)>) -> io::Result<()> {
    for entry in directory.join(prefix).read_dir()? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            list(directory, &format!("{name}/"), names)?;
        }
        names.push((name, kind));
    }
    Ok(())
}

/// Type, mode, owners and links; the size of a directory is a matter of its file system.
fn of_inode(about: &Metadata) -> String {
    let size = if about.is_dir() { 0 } else { about.size() };
    let (mode, user, group) = (about.mode(), about.uid(), about.gid());
    format!("{mode:o} {user}:{group} links {} size {size}", about.nlink())
}

fn of_content(path: &Path, kind: FileType) -> io::Result<String> {
    if kind.is_symlink() {
        return Ok(format!("-> {}", path.read_link()?.display()));
    }
    if kind.is_dir() || kind.is_fifo() {
        return Ok(String::new());
    }
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(runs(&bytes))
}

fn attributes(path: &Path) -> io::Result<String> {
    let mut names = [0u8; 4096];
    let length = llistxattr(path, &mut names)?;
    let mut names: Vec<&[u8]> = names[..length].split_inclusive(|byte| *byte == 0).collect();
    names.sort();
    let one = |name: &[u8]| {
        let name = CStr::from_bytes_with_nul(name).map_err(io::Error::other)?;
        Ok(format!(" {}={}", name.to_string_lossy(), attribute(path, name)?))
    };
    names.into_iter().map(one).collect()
}

fn attribute(path: &Path, name: &CStr) -> io::Result<String> {
    let mut value = [0u8; 8192];
    let length = lgetxattr(path, name, &mut value)?;
    Ok(runs(&value[..length]))
}

/// Flags, offset, and what the descriptor shows of its file, which may have no name any more.
fn of_descriptor(file: &mut File) -> io::Result<String> {
    // SAFETY: F_GETFL takes no argument.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    let offset = file.stream_position()?;
    let about = file.metadata()?;
    let mut content = String::from("not for reading");
    if flags & libc::O_ACCMODE != libc::O_WRONLY && flags & libc::O_DIRECT == 0 {
        let mut bytes = vec![0; about.len() as usize];
        let count = file.read_at(&mut bytes, 0)?;
        content = runs(&bytes[..count]);
    }
    Ok(format!("flags {flags:#o} at {offset} {} {content}", of_inode(&about)))
}
