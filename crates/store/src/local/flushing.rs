//! Flushes: how what is buffered of a file is written to it.

use super::attributes::system_time;
use super::buffered::Seen;
use super::in_flight::{InFlight, clocks};
use super::lent_rights::{LentRights, TO_WRITE, is_for_writing};
use super::notes::{Note, Notes};
use super::store::Local;
use crate::attributes::{FileAttributes, FileId};
use crate::error::StoreError;
use crate::overlay::Overlay;
use std::fs::{File, FileTimes, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use units::Timestamp;

/// A file's new state, to be written by another thread. Other programs may change the file at any
/// time. Each change of it follows a look at what the file has: what differs from what this client
/// left there is another program's, and is not written over.
struct Flush {
    file: File,
    notes: Notes,
    rights: LentRights,
    attributes: FileAttributes,
    overlay: Overlay,
    /// The file as this client left it, its own changes of this flush included.
    seen: Seen,
    /// Metadata of the file at the beginning.
    found: Metadata,
    in_flight: Option<InFlight>,
}

/// Reason why a file could not be flushed.
enum Unflushed {
    ChangedPast,
    Failed(io::Error),
}

impl From<io::Error> for Unflushed {
    fn from(error: io::Error) -> Unflushed {
        Unflushed::Failed(error)
    }
}

impl Flush {
    /// Returns what the file has afterwards as far as this client changed it, also after an error.
    fn run(mut self) -> (Seen, Result<(), Unflushed>) {
        let flushed = self.try_run();
        (self.seen, flushed)
    }
    fn try_run(&mut self) -> Result<(), Unflushed> {
        let FileAttributes { file: id, version, modified, accessed, mode, uid, gid, .. } =
            self.attributes;
        // First without a note: it would make another program's change look like this client's.
        self.check_unchanged()?;
        let (given, rights) = (self.file.try_clone()?, self.rights.clone());
        let file = match is_for_writing(&given)? {
            true => given,
            false => {
                // Its note takes time: it comes before that of the flush.
                let loan = rights.begin(&given, TO_WRITE)?;
                self.change(|| loan.open(0))?
            }
        };
        let overlay = std::mem::take(&mut self.overlay);
        if overlay.base_end() < file.metadata()?.size() {
            self.change(|| file.set_len(overlay.base_end()))?;
        }
        for (at, bytes) in overlay.pieces() {
            self.change(|| file.write_all_at(bytes, at))?;
        }
        self.change(|| file.set_len(version.size))?;
        let now = file.metadata()?;
        if (now.uid(), now.gid()) != (uid, gid) {
            self.change(|| fchown(&file, Some(uid), Some(gid)))?;
        }
        if now.mode() & 0o7777 != mode {
            self.change(|| file.set_permissions(Permissions::from_mode(mode)))?;
        }
        let times = FileTimes::new()
            .set_modified(system_time(modified))
            .set_accessed(system_time(accessed));
        self.change(|| file.set_times(times))?;
        file.sync_all()?;
        // Its time of change is durable with it.
        let kept = self.check_unchanged()?;
        Ok(self.notes.write(id, Note::reached(version, &kept))?)
    }

    /// Changes the file, behind a note that is valid for long enough.
    fn change<T>(&mut self, change: impl FnOnce() -> io::Result<T>) -> Result<T, Unflushed> {
        let (id, version) = (self.attributes.file, self.attributes.version);
        let (notes, found) = (&self.notes, &self.found);
        let write = |times| notes.write(id, Note::in_flight(version, found, times));
        self.in_flight = Some(InFlight::renewed(self.in_flight, clocks, write)?);
        self.check_unchanged()?;
        let changed = change();
        // Also after an error: a part of it may be done.
        self.seen = Seen::of(&self.file.metadata()?);
        Ok(changed?)
    }
    /// Returns what the file has, if nothing of it is another program's.
    fn check_unchanged(&self) -> Result<Metadata, Unflushed> {
        let found = self.file.metadata()?;
        let is_ours = Seen::of(&found) == self.seen;
        if is_ours || units::fault!("store-foreign-change-overwritten") {
            return Ok(found);
        }
        if !units::fault!("store-foreign-change-noted") {
            // A recovery would take that change for this client's while a note is valid.
            self.notes.remove(self.attributes.file)?;
        }
        Err(Unflushed::ChangedPast)
    }
}

impl Local {
    /// Writes the file in the state that was reported last.
    pub async fn flush(&self, file: FileId) -> Result<(), StoreError> {
        let Some(flush_lock) =
            self.files.borrow().get(&file).map(|buffered| buffered.flush_lock.clone())
        else {
            return Ok(());
        };
        let is_open = self.opens.borrow().is_open(file);
        let is_nameless =
            || self.files.borrow().get(&file).is_some_and(|buffered| buffered.links() == 0);
        if !is_open && is_nameless() && !self.has_other_hosts() {
            // No client will read it.
            return Ok(());
        }
        let _guard = flush_lock.write().await;
        let flush = {
            let mut files = self.files.borrow_mut();
            let Some(buffered) = files.get_mut(&file).filter(|buffered| !buffered.clean) else {
                return Ok(());
            };
            // First, as it may fail: nothing of the buffer has moved then.
            let held = buffered.handle.try_clone().and_then(|file| Ok((file.metadata()?, file)));
            let (found, file) = held.map_err(|error| {
                buffered.clean |= units::fault!("store-descriptor-last");
                self.failed("flushing", &error)
            })?;
            let fresh = Overlay::over(buffered.overlay.size());
            let overlay = std::mem::replace(&mut buffered.overlay, fresh);
            buffered.flushing = Some(overlay.clone());
            buffered.clean = true;
            buffered.was_noted = true;
            Flush {
                file,
                notes: self.notes.clone(),
                rights: self.rights.clone(),
                attributes: buffered.attributes,
                overlay,
                seen: buffered.seen,
                found,
                in_flight: None,
            }
        };
        let (reported, step) = (flush.attributes.changed, self.next_step());
        let what = "making durable";
        let ended = self.on_thread(what, move || flush.run()).await;
        let seen = ended.as_ref().ok().map(|(seen, _)| *seen);
        let flushed = ended.and_then(|(_, flushed)| {
            flushed.map_err(|error| match error {
                Unflushed::ChangedPast => StoreError::ChangedPast { store: self.name.clone() },
                Unflushed::Failed(error) => self.failed(what, &error),
            })
        });
        if flushed.is_ok() {
            self.synced_until(file, step);
        }
        if let Some(buffered) = self.files.borrow_mut().get_mut(&file) {
            buffered.seen = seen.unwrap_or(buffered.seen);
            if let (Ok(()), Ok(now)) = (&flushed, buffered.handle.metadata()) {
                let (seconds, nanoseconds) = (now.ctime(), now.ctime_nsec() as u32);
                self.change_times.note(file, Timestamp { seconds, nanoseconds }, reported);
            }
            if let Some(given) = buffered.flushing.take() {
                if flushed.is_err() {
                    // The next flush writes all of it again.
                    buffered.overlay.put_over(given);
                    buffered.clean = false;
                }
            }
        }
        flushed
    }
}

#[cfg(test)]
mod tests {
    use super::super::own_directory::OwnDirectory;
    use super::*;
    use crate::attributes::{FileKind, Version};
    use crate::event::Identity;
    use std::fs;

    /// A valid note of a change in flight would make the change count as this client's.
    #[test]
    fn anothers_change_amid_a_flush_takes_the_note() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("object");
        fs::write(&path, b"before").expect("a file");
        let root = File::open(directory.path()).expect("its directory");
        let notes = Notes(OwnDirectory::in_root(root, "notes").expect("a place for notes"));
        let file = File::options().read(true).write(true).open(&path).expect("a handle");
        let found = file.metadata().expect("metadata");
        let (id, time) = (FileId(found.ino()), Timestamp { seconds: 0, nanoseconds: 0 });
        let version = Version { number: 7, ctime_ns: 7, size: 6 };
        let attributes = FileAttributes {
            file: id,
            kind: FileKind::Regular,
            version,
            mode: 0o600,
            links: 1,
            uid: found.uid(),
            gid: found.gid(),
            rdev: 0,
            blocks: 0,
            accessed: time,
            modified: time,
            changed: time,
        };
        let (overlay, seen) = (Overlay::over(6), Seen::of(&found));
        let known = notes.clone();
        let rights = LentRights::new(notes.0.clone(), Identity("host".into()));
        let mut flush =
            Flush { file, notes, rights, attributes, overlay, seen, found, in_flight: None };
        assert!(flush.change(|| Ok(())).is_ok());
        let noted = || known.version(id, &fs::metadata(&path).expect("metadata"));
        assert_eq!(noted(), version);
        fs::write(&path, b"theirs, longer").expect("written");
        assert!(matches!(flush.check_unchanged(), Err(Unflushed::ChangedPast)));
        assert_ne!(noted(), version);
    }
}
