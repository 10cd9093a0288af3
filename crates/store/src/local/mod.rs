//! A directory of this machine as a store, for hosts on this machine: the embedded default.
//!
//! 1. A client keeps buffered writes in its own memory until they are made durable or the token is
//!    returned. A client that is killed has not changed the file. (The page cache would show others
//!    states that were never reported.)
//! 2. A reported state is written to a *note* beside the file (`.okeanos/notes`) and durable there,
//!    before the first byte of it is written. While the note exists and the file has the time of
//!    change that the note says, or is being brought there, the file has that version. Otherwise it
//!    has the version that the kernel's change time makes, so changes by programs that use the
//!    directory itself are noticed. The note limits the time for bringing it there before that
//!    begins: after a crash, later changes are others'.
//! 3. A token is a lock on a file of its own (`.okeanos/tokens`), which the kernel drops when its
//!    holder ends. A client that wants one leaves a wish (`.okeanos/wishes`), for which holders
//!    look. No server can break a token: a stopped client keeps it, and the waiting client gets an
//!    error.
//! 4. A host is registered by a file in `.okeanos/hosts`, from before its first token until a clean
//!    end. The file is locked while the host runs and its journal has nothing of an earlier life.
//! 5. `.okeanos` is never shown.

mod attributes;
mod buffered;
mod change_times;
mod durability;
mod extended_attributes;
mod files;
mod flushing;
mod freed;
mod held;
mod hosts;
mod identity;
mod in_flight;
mod lent_rights;
mod listed;
mod locks;
mod names;
mod notes;
mod opening;
mod own_directory;
mod places;
mod store;
mod syncs;
mod tokens;
mod walk;

pub use store::LocalStore;

use crate::error::{Refusal, StoreError};
use std::io;

/// Name of the directory in the store's root that holds its own files.
pub(crate) const OWN_DIRECTORY: &str = ".okeanos";

/// Turns an error of the kernel into a refusal, or into a failure of the disk.
pub(crate) fn failed(store: &str, what: &str, error: &io::Error) -> StoreError {
    const EIO: i32 = 5;
    match error.raw_os_error() {
        Some(code) if code != EIO => Refusal::of_errno(code).into(),
        code => {
            StoreError::Failed { store: store.into(), what: what.into(), code: code.unwrap_or(EIO) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::notes::{Note, Notes, changed_ns};
    use super::own_directory::OwnDirectory;
    use crate::{FileId, Version};
    use std::io::Write;
    use std::ops::Range;
    use std::os::unix::fs::MetadataExt;
    use std::time::{Duration, SystemTime};

    fn within(milliseconds: u64) -> Range<SystemTime> {
        let now = SystemTime::now();
        now - Duration::from_secs(2)..now + Duration::from_millis(milliseconds)
    }

    #[test]
    fn an_interrupted_flush_hides_no_change_after_the_clock_was_set_back() {
        let directory = tempfile::tempdir().unwrap();
        let root = std::fs::File::open(directory.path()).unwrap();
        let notes = Notes(OwnDirectory::in_root(&root, "notes").unwrap());
        let path = directory.path().join("file");
        std::fs::write(&path, b"before").unwrap();
        let reported = Version { number: 7, ctime_ns: 8, size: 99 };
        let found = std::fs::metadata(&path).unwrap();
        let file = FileId(found.ino());
        let times = within(3_600_000);
        let [from, until] = [times.start, times.end].map(|time| time + Duration::from_secs(3600));
        notes.write(file, Note::in_flight(reported, &found, from..until)).unwrap();
        assert_eq!(notes.version(file, &found), reported, "its writer has not begun");
        std::thread::sleep(Duration::from_millis(20));
        std::fs::write(&path, b"theirs").unwrap();
        assert_ne!(notes.version(file, &std::fs::metadata(&path).unwrap()), reported);
    }

    #[test]
    fn an_interrupted_flush_hides_no_later_change_of_others() {
        let directory = tempfile::tempdir().unwrap();
        let root = std::fs::File::open(directory.path()).unwrap();
        let notes = Notes(OwnDirectory::in_root(&root, "notes").unwrap());
        let path = directory.path().join("file");
        std::fs::write(&path, b"half of what").unwrap();
        let reported = Version { number: 7, ctime_ns: 8, size: 99 };
        let file = FileId(std::fs::metadata(&path).unwrap().ino());
        let found = std::fs::metadata(&path).unwrap();
        notes.write(file, Note::in_flight(reported, &found, within(100))).unwrap();
        let seen = || notes.version(file, &std::fs::metadata(&path).unwrap());
        std::fs::write(&path, b"half of what is new").unwrap();
        assert_eq!(seen(), reported, "its own writes, which a crash cut short");
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(seen(), reported, "time alone changes nothing");
        std::fs::write(&path, b"theirs").unwrap();
        assert_ne!(seen(), reported);
        // Neither does another file of the noted size pass for it whose times were set back.
        let theirs = std::fs::File::options().write(true).open(&path).unwrap();
        theirs.set_len(reported.size).unwrap();
        theirs.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_ne!(seen(), reported);
    }

    /// The name changes after the time that the note gives its writer, who died.
    #[test]
    fn a_change_of_names_keeps_what_an_interrupted_flush_has_begun() {
        let directory = tempfile::tempdir().unwrap();
        let root = std::fs::File::open(directory.path()).unwrap();
        let notes = Notes(OwnDirectory::in_root(&root, "notes").unwrap());
        let [old, new] = ["old", "new"].map(|name| directory.path().join(name));
        std::fs::write(&old, b"half of what").unwrap();
        let reported = Version { number: 7, ctime_ns: 8, size: 99 };
        let found = std::fs::metadata(&old).unwrap();
        let file = FileId(found.ino());
        notes.write(file, Note::in_flight(reported, &found, within(0))).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        notes.keep(std::slice::from_ref(&found)).unwrap();
        std::fs::rename(&old, &new).unwrap();
        let renamed = std::fs::metadata(&new).unwrap();
        assert!(changed_ns(&renamed) > changed_ns(&found));
        assert_eq!(notes.version(file, &renamed), reported);
        // At once, by a program that had it open.
        let mut theirs = std::fs::File::options().append(true).open(&new).unwrap();
        theirs.write_all(b" is new").unwrap();
        assert_ne!(notes.version(file, &std::fs::metadata(&new).unwrap()), reported);
    }

    /// A note stays when its file is removed past okeanos, and the next file may get its number.
    #[test]
    fn a_note_belongs_to_the_file_that_was_there_then() {
        let directory = tempfile::tempdir().unwrap();
        let root = std::fs::File::open(directory.path()).unwrap();
        let notes = Notes(OwnDirectory::in_root(&root, "notes").unwrap());
        let [old, new] = ["old", "new"].map(|name| directory.path().join(name));
        for _ in 0..200 {
            std::fs::write(&old, b"content").unwrap();
            let found = std::fs::metadata(&old).unwrap();
            let file = FileId(found.ino());
            let reported = Version { number: 7, ctime_ns: changed_ns(&found), size: 7 };
            notes.write(file, Note::in_flight(reported, &found, within(60_000))).unwrap();
            assert_eq!(notes.version(file, &found), reported);
            std::thread::sleep(Duration::from_millis(12));
            std::fs::remove_file(&old).unwrap();
            std::fs::write(&new, b"another").unwrap();
            let found = std::fs::metadata(&new).unwrap();
            if found.ino() == file.0 {
                assert_ne!(notes.version(file, &found), reported);
                return;
            }
            std::fs::remove_file(&new).unwrap();
        }
        // Some file systems never do.
        println!("not tested: this file system used no number again");
    }
}
