//! The directory's identity: a UUID in `.okeanos/store`, made by the first host.
//!
//! The file also records its own inode number. A file that was copied with the rest of a directory
//! has another number: the copy is another store, whose files have other numbers, too.

use super::own_directory::OwnDirectory;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const NAME: &str = "store";
const BYTES_MAX: u64 = 128;

/// Returns the identity of the store with this `root`, which keeps its own files in the directory
/// `own` there. `None`: it has none, or is a copy. Makes nothing.
pub(super) fn identity_in(root: &Path, own: &str) -> io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(CWD, root.join(own), flags, Mode::empty()) {
        Err(Errno::NOENT) => Ok(None),
        opened => identity(opened?),
    }
}

fn identity(own: impl AsFd) -> io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match openat(own, NAME, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => File::from(opened?),
    };
    let metadata = file.metadata()?;
    let mut text = String::new();
    if !metadata.is_file() || file.take(BYTES_MAX).read_to_string(&mut text).is_err() {
        return Ok(None);
    }
    let Some((uuid, number)) = text.strip_suffix('\n').and_then(|line| line.split_once(' ')) else {
        return Ok(None);
    };
    let is_uuid = uuid.len() == 32 && uuid.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_original = number.parse() == Ok(metadata.ino());
    Ok((is_uuid && is_original).then(|| format!("dir {uuid}")))
}

/// Returns the identity of a store, and durably gives it `uuid` if it has none.
pub(super) fn identity_or_new(own: &OwnDirectory, uuid: u128) -> io::Result<String> {
    if let Some(found) = identity(own.descriptor())? {
        return Ok(found);
    }
    let fresh = format!("{NAME}-{uuid:032x}");
    let mut file = own.make_new(&fresh)?;
    let number = file.metadata()?.ino();
    file.write_all(format!("{uuid:032x} {number}\n").as_bytes())?;
    file.sync_all()?;
    // Another host may have come first: its name stays, unless it is that of a copy.
    match own.link(&fresh, NAME) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Err(_) if identity(own.descriptor())?.is_none() => own.rename(&fresh, NAME)?,
        _ => own.remove(&fresh)?,
    }
    own.sync()?;
    let found = identity(own.descriptor())?;
    found.ok_or_else(|| io::Error::other("its identity was taken away again"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn own(root: &Path) -> OwnDirectory {
        OwnDirectory::in_root(File::open(root).unwrap(), "own").unwrap()
    }

    #[test]
    fn a_directory_keeps_its_identity_and_a_copy_gets_another() {
        let directory = tempfile::tempdir().unwrap();
        let [first, copy] = ["first", "copy"].map(|name| directory.path().join(name));
        [&first, &copy].iter().for_each(|path| fs::create_dir(path).unwrap());
        assert_eq!(identity_in(&first, "own").unwrap(), None);
        assert!(!first.join("own").exists());
        let made = identity_or_new(&own(&first), 7).unwrap();
        assert_eq!(identity_or_new(&own(&first), 8).unwrap(), made);
        assert_eq!(identity_in(&first, "own").unwrap(), Some(made.clone()));
        let copied = own(&copy);
        fs::copy(first.join("own").join(NAME), copy.join("own").join(NAME)).unwrap();
        assert_eq!(identity_in(&copy, "own").unwrap(), None);
        assert_ne!(identity_or_new(&copied, 9).unwrap(), made);
        assert_eq!(copied.names().unwrap(), [NAME], "nothing else is left there");
    }

    #[test]
    fn what_others_put_there_is_no_identity() {
        let directory = tempfile::tempdir().unwrap();
        let _made = own(directory.path());
        let place = directory.path().join("own").join(NAME);
        for text in ["", "\n", "x 1\n", &"0".repeat(4096)] {
            fs::write(&place, text).unwrap();
            assert_eq!(identity_in(directory.path(), "own").unwrap(), None, "{text:?}");
        }
        fs::remove_file(&place).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &place).unwrap();
        assert!(identity_in(directory.path(), "own").is_err());
    }
}
