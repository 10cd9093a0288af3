//! Attributes: how they are read, and changed at a file that is open or held.

use super::buffered::Seen;
use super::held::{is_held, path_of};
use super::lent_rights::{LentRights, for_writing};
use super::notes::{changed_ns, version_of};
use super::store::{Local, REPLACED_MAX};
use super::tokens::Excluded;
use crate::attributes::{AttributeChange, FileAttributes, FileId, FileKind, TimeChange};
use crate::error::{Refusal, StoreError};
use crate::open_file::OpenMode;
use crate::overlay::Overlay;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};
use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use units::Timestamp;

impl Local {
    pub fn attributes_of(&self, metadata: &Metadata) -> FileAttributes {
        let file = FileId(metadata.ino());
        let time =
            |seconds: i64, nanoseconds: i64| Timestamp { seconds, nanoseconds: nanoseconds as u32 };
        let kind = match metadata.mode() & libc::S_IFMT {
            libc::S_IFREG => FileKind::Regular,
            libc::S_IFDIR => FileKind::Directory,
            libc::S_IFLNK => FileKind::Symlink,
            other => FileKind::Special(other),
        };
        let changed = time(metadata.ctime(), metadata.ctime_nsec());
        let (version, changed) = match kind {
            FileKind::Regular => {
                (self.notes.version(file, metadata), self.change_times.shown(file, changed))
            }
            _ => (version_of(metadata), changed),
        };
        FileAttributes {
            file,
            kind,
            version,
            mode: metadata.mode() & 0o7777,
            links: metadata.nlink() as u32,
            uid: metadata.uid(),
            gid: metadata.gid(),
            rdev: metadata.rdev() as u32,
            blocks: metadata.blocks(),
            accessed: time(metadata.atime(), metadata.atime_nsec()),
            modified: time(metadata.mtime(), metadata.mtime_nsec()),
            changed,
        }
    }

    pub fn attributes(&self, file: FileId) -> Result<FileAttributes, StoreError> {
        if let Some(buffered) = self.files.borrow().get(&file) {
            return Ok(FileAttributes { links: buffered.links(), ..buffered.attributes });
        }
        let metadata = match self.open_or_removed(file) {
            Some(found) => found.map_err(|error| self.failed("asking for attributes", &error))?,
            None => self.places.metadata(file)?,
        };
        Ok(self.attributes_of(&metadata))
    }

    /// Returns the metadata of a file or directory that is held open here, whatever its name is
    /// now.
    fn open_or_removed(&self, file: FileId) -> Option<io::Result<Metadata>> {
        let open = self.opens.borrow().of(file).next().map(|open| open.handle.clone());
        match open {
            Some(handle) => Some(handle.metadata()),
            None => self.removed.borrow().get(&file).map(File::metadata),
        }
    }

    pub async fn set_attributes(
        &self,
        file: FileId,
        change: AttributeChange,
    ) -> Result<FileAttributes, StoreError> {
        let now = self.world.wall_clock();
        for _ in 0..REPLACED_MAX {
            let size = self.files.borrow().get(&file).map(|buffered| buffered.overlay.size());
            if size.is_some_and(|size| change.size.is_none_or(|wanted| wanted == size)) {
                let changed =
                    self.change(file, |buffered| change.apply_to(&mut buffered.attributes, now));
                return changed.unwrap_or(Err(Refusal::Stale.into()));
            }
            self.flush(file).await?;
            let kind = self.searching(|| self.attributes(file)).await?.kind;
            let excluded = self.exclude(file, kind).await?;
            if !matches!(excluded, Excluded::Overtaken) {
                return self.set_attributes_at_once(file, change, now).await;
            }
        }
        Err(StoreError::TokenHeld)
    }
    /// Sets attributes at the file itself. The caller keeps others from it, and has flushed it.
    async fn set_attributes_at_once(
        &self,
        file: FileId,
        change: AttributeChange,
        now: Timestamp,
    ) -> Result<FileAttributes, StoreError> {
        self.changed_at_once(file);
        let what = "setting attributes";
        // A handle works also after the file has lost its last name.
        let target = match self.writable(file).or_else(|| self.removed_directory(file)) {
            Some(open) => open,
            None => Rc::new(self.searching(|| self.places.hold(file)).await?.0),
        };
        let look = || self.look_at(what, || target.metadata());
        let before = look()?;
        let applied = match change.size {
            // It may free much, and nobody else has the file.
            Some(_) => {
                let target = target.try_clone().map_err(|error| self.failed(what, &error))?;
                let rights = self.rights.clone();
                self.away(what, move || {
                    // First, as it may fail: nothing of the change is made then.
                    let to_cut = to_cut(&target, &rights)?;
                    apply(&target, Some(&to_cut), &change, now)?;
                    to_cut.sync_all()
                })
                .await
            }
            None => apply(&target, None, &change, now).map_err(|error| self.failed(what, &error)),
        };
        self.end_change(&before, look, applied).await
    }

    pub fn look_at(
        &self,
        what: &str,
        look: impl Fn() -> io::Result<Metadata>,
    ) -> Result<Metadata, StoreError> {
        look().map_err(|error| self.failed(what, &error))
    }
    /// Ends a change that went to a file past any buffer, or has failed: its note is removed,
    /// durably, unless the file is as it was, and what is buffered from now on builds on what the
    /// file has. Returns that, or the error. Until then nobody else has the file; after a crash
    /// before this a change of attributes that was not answered does not count.
    pub async fn end_change(
        &self,
        before: &Metadata,
        look: impl Fn() -> Result<Metadata, StoreError>,
        result: Result<(), StoreError>,
    ) -> Result<FileAttributes, StoreError> {
        let now = look()?;
        let removed = match is_unchanged(before, &now, &result) {
            true => Ok(()),
            false => {
                let (notes, file) = (self.notes.clone(), FileId(now.ino()));
                self.away("removing a note", move || notes.remove(file)).await
            }
        };
        self.build_on(&look()?, result.and(removed))
    }
    /// Records the state that data buffered from now on builds on. TokenHeld: something was
    /// buffered beside the change, and stays: its flush takes the change for another program's.
    pub fn build_on(
        &self,
        now: &Metadata,
        result: Result<(), StoreError>,
    ) -> Result<FileAttributes, StoreError> {
        let attributes = self.attributes_of(now);
        if let Some(buffered) = self.files.borrow_mut().get_mut(&attributes.file) {
            let is_settled = buffered.clean && buffered.flushing.is_none();
            if !is_settled && !units::fault!("store-own-token-overlooked") {
                return result.and(Err(StoreError::TokenHeld));
            }
            buffered.attributes = attributes;
            buffered.overlay = Overlay::over(attributes.version.size);
            buffered.seen = Seen::of(now);
        }
        result.map(|()| attributes)
    }

    fn writable(&self, file: FileId) -> Option<Rc<File>> {
        let opens = self.opens.borrow();
        let open = opens.of(file).find(|open| open.access == OpenMode::ReadWrite);
        open.map(|open| open.handle.clone())
    }
}

/// Returns whether a change that failed has left the file as it was.
pub(super) fn is_unchanged(
    before: &Metadata,
    now: &Metadata,
    result: &Result<(), StoreError>,
) -> bool {
    let is_same = result.is_err() && changed_ns(before) == changed_ns(now);
    is_same && !units::fault!("store-failed-change-unnoted")
}

/// Changes a file that is open or held, a symbolic link itself; its size through `to_cut`. Nothing
/// else is opened: opening a pipe waits for its writer, and a device may do anything.
fn apply(
    file: &File,
    to_cut: Option<&File>,
    change: &AttributeChange,
    now: Timestamp,
) -> io::Result<()> {
    let path = path_of(file);
    if change.uid.is_some() || change.gid.is_some() {
        chown(&path, change.uid, change.gid)?;
    }
    if let (Some(size), Some(to_cut)) = (change.size, to_cut) {
        to_cut.set_len(size)?;
    }
    if let Some(mode) = change.mode {
        // A link's own mode has no meaning.
        if !file.metadata()?.is_symlink() {
            fs::set_permissions(&path, Permissions::from_mode(mode))?;
        }
    }
    if change.accessed.is_none() && change.modified.is_none() {
        return Ok(());
    }
    let time = |change| match change {
        Some(TimeChange::Now) => timespec(now),
        Some(TimeChange::To(time)) => timespec(time),
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    };
    let times =
        Timestamps { last_access: time(change.accessed), last_modification: time(change.modified) };
    Ok(utimensat(CWD, &path, &times, AtFlags::empty())?)
}

/// Returns a handle to truncate a regular file that is open or held. This waits for nobody.
fn to_cut(file: &File, rights: &LentRights) -> io::Result<File> {
    if !is_held(file)? {
        return for_writing(file, rights);
    }
    if !file.metadata()?.is_file() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    File::options().write(true).custom_flags(libc::O_NONBLOCK).open(path_of(file))
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() }
}

pub(super) fn system_time(time: Timestamp) -> SystemTime {
    let part = Duration::from_nanos(time.nanoseconds.into());
    match u64::try_from(time.seconds) {
        Ok(seconds) => UNIX_EPOCH + Duration::from_secs(seconds) + part,
        Err(_) => UNIX_EPOCH - Duration::from_secs(time.seconds.unsigned_abs()) + part,
    }
}
