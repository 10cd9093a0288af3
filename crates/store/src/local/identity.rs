//! Which directory this is: a UUID in `.okeanos/store`, made by the first host.
//!
//! The file also says its own number. One that was copied with the rest of a directory has another
//! number: the copy is another store, whose files have other numbers, too.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const NAME: &str = "store";
const BYTES_MAX: u64 = 128;

/// What the directory says of itself; `None`: nothing, or it is a copy.
pub(super) fn identity(own: &Path) -> io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match openat(CWD, own.join(NAME), flags, Mode::empty()) {
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

/// As [`identity`]; a directory without one gets `uuid`, durably.
pub(super) fn identity_or_new(own: &Path, uuid: u128) -> io::Result<String> {
    if let Some(found) = identity(own)? {
        return Ok(found);
    }
    let fresh = own.join(format!("{NAME}-{uuid:032x}"));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(CWD, &fresh, flags, Mode::from_raw_mode(0o644))?);
    let number = file.metadata()?.ino();
    file.write_all(format!("{uuid:032x} {number}\n").as_bytes())?;
    file.sync_all()?;
    // Another host may have come first: its name stays, unless it is that of a copy.
    let place = own.join(NAME);
    let linked = linkat(CWD, &fresh, CWD, &place, AtFlags::empty());
    let result = match linked {
        Err(Errno::EXIST) if identity(own)?.is_none() => fs::rename(&fresh, &place),
        Err(Errno::EXIST) => fs::remove_file(&fresh),
        Ok(()) => fs::remove_file(&fresh),
        Err(error) => Err(error.into()),
    };
    result?;
    File::open(own)?.sync_all()?;
    identity(own)?.ok_or_else(|| io::Error::other("its identity was taken away again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_identity_and_a_copy_gets_another() {
        let directory = tempfile::tempdir().unwrap();
        let [first, copy] = ["first", "copy"].map(|name| directory.path().join(name));
        [&first, &copy].iter().for_each(|path| fs::create_dir(path).unwrap());
        assert_eq!(identity(&first).unwrap(), None);
        let made = identity_or_new(&first, 7).unwrap();
        assert_eq!(identity_or_new(&first, 8).unwrap(), made);
        fs::copy(first.join(NAME), copy.join(NAME)).unwrap();
        assert_eq!(identity(&copy).unwrap(), None);
        assert_ne!(identity_or_new(&copy, 9).unwrap(), made);
        assert_eq!(fs::read_dir(&copy).unwrap().count(), 1, "nothing else is left there");
    }

    #[test]
    fn what_others_put_there_is_no_identity() {
        let directory = tempfile::tempdir().unwrap();
        let (own, place) = (directory.path(), directory.path().join(NAME));
        for text in ["", "\n", "x 1\n", &"0".repeat(4096)] {
            fs::write(&place, text).unwrap();
            assert_eq!(identity(own).unwrap(), None, "{text:?}");
        }
        fs::remove_file(&place).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &place).unwrap();
        assert!(identity(own).is_err());
    }
}
