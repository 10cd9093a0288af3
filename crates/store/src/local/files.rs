//! Content and attributes: how they are buffered, and how they are written to the files.

use super::buffered::{LocalBuffered, Seen};
use super::freed::is_long;
use super::held::{is_held, open_held, path_of};
use super::in_flight::{InFlight, clocks};
use super::lent_rights::{LentMode, LentRights, open_as_owner};
use super::notes::{Note, Notes, changed_ns, sync_directory, version_of};
use super::store::{Local, REPLACED_MAX};
use super::tokens::Excluded;
use crate::attributes::{
    Allocation, AttributeChange, FileAttributes, FileId, FileKind, TimeChange, Version,
};
use crate::error::{Refusal, StoreError};
use crate::event::Token;
use crate::limits::TRANSFER_BYTES_MAX;
use crate::open_file::{OpenFile, OpenMode};
use crate::overlay::Overlay;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, OFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT, fallocate,
    fcntl_getfl, seek, syncfs, utimensat,
};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use rustix::process::{Resource, geteuid, getrlimit};
use std::fs::{self, File, FileTimes, Metadata, Permissions};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, fchown};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use units::Timestamp;

/// Pauses before checking whether a thread has ended: the first and the longest.
const POLL_AFTER: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(2)];

/// Pause before a file is opened again whose lease is being ended, and attempts to open it: longer
/// than the kernel lets a program keep a lease.
const LEASE_POLL: Duration = Duration::from_millis(500);
const ATTEMPTS_MAX: u32 = 100;

/// The right to write of a file's owner.
const TO_WRITE: u32 = 0o200;

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

    pub fn handle_of(&self, open: OpenFile) -> Result<(FileId, Rc<File>), StoreError> {
        let opens = self.opens.borrow();
        let (file, open) = opens.get(open)?;
        Ok((file, open.handle.clone()))
    }

    /// Closes an open file. The last descriptor of a large one without a name is closed on a thread
    /// of its own, as the kernel frees its blocks then.
    pub async fn close(&self, open: OpenFile) -> Result<(), StoreError> {
        let handle = self.handle_of(open)?.1;
        self.opens.borrow_mut().remove(open)?;
        let Some(last) = Rc::into_inner(handle) else { return Ok(()) };
        let frees = last.metadata().is_ok_and(|found| is_long(&found) && found.nlink() == 0);
        self.close_away(frees.then_some(last)).await;
        Ok(())
    }

    /// Applies a change that only this client knows.
    fn change(
        &self,
        file: FileId,
        change: impl FnOnce(&mut LocalBuffered),
    ) -> Option<Result<FileAttributes, StoreError>> {
        let mut files = self.files.borrow_mut();
        let buffered = files.get_mut(&file)?;
        change(buffered);
        buffered.clean = false;
        let now = self.world.wall_clock();
        let ctime_ns =
            (now.seconds as u64).wrapping_mul(1_000_000_000) + u64::from(now.nanoseconds);
        let (number, size) = (buffered.attributes.version.number + 1, buffered.overlay.size());
        buffered.attributes.version = Version { number, ctime_ns, size };
        buffered.attributes.changed = now;
        buffered.attributes.links = buffered.links();
        buffered.attributes.blocks = buffered.attributes.blocks.max(size.div_ceil(512));
        Some(Ok(buffered.attributes))
    }

    pub fn read(&self, open: OpenFile, at: u64, length: usize) -> Result<Vec<u8>, StoreError> {
        let (file, handle) = self.handle_of(open)?;
        let mut base = vec![0; length.min(TRANSFER_BYTES_MAX)];
        let mut done = 0;
        while done < base.len() {
            match handle.read_at(&mut base[done..], at + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("reading", &error)),
            }
        }
        base.truncate(done);
        let now = self.world.wall_clock();
        let mut files = self.files.borrow_mut();
        let Some(buffered) = files.get_mut(&file) else { return Ok(base) };
        buffered.note_read(now);
        let base = match &buffered.flushing {
            Some(flushing) => flushing.read(at, length.min(TRANSFER_BYTES_MAX), base),
            None => base,
        };
        Ok(buffered.overlay.read(at, length.min(TRANSFER_BYTES_MAX), base))
    }

    pub fn may_end_at(&self, open: OpenFile, end: u64) -> bool {
        self.handle_of(open).is_ok_and(|(_, handle)| may_end_at(&handle, end))
    }

    /// Writes at an offset; `None`: at the end.
    pub fn write(
        &self,
        open: OpenFile,
        at: Option<u64>,
        bytes: &[u8],
    ) -> Result<FileAttributes, StoreError> {
        let (file, handle) = self.handle_of(open)?;
        let held = self.files.borrow().get(&file).map(|buffered| buffered.overlay.size());
        let from = at.or(held).unwrap_or(0);
        let end = from.checked_add(bytes.len() as u64).filter(|end| *end <= i64::MAX as u64);
        let end = end.filter(|_| bytes.len() <= TRANSFER_BYTES_MAX).ok_or(Refusal::Invalid)?;
        // Otherwise no flush of what is acknowledged could ever succeed.
        if held.is_some() && !may_end_at(&handle, end) {
            return Err(Refusal::FileTooLarge.into());
        }
        let modified = self.world.wall_clock();
        let buffered = self.change(file, |buffered| {
            buffered.overlay.write(from, bytes);
            buffered.attributes.modified = modified;
        });
        if let Some(answer) = buffered {
            return answer;
        }
        self.changed_at_once(file);
        let look = || self.look_at("writing", || handle.metadata());
        let before = look()?;
        let written = for_writing(&handle, &self.rights).and_then(|to| match at {
            Some(at) => to.write_all_at(bytes, at),
            None => append_all(&to, bytes),
        });
        let written = written.map_err(|error| self.failed("writing", &error));
        let now = look()?;
        let removed = match is_unchanged(&before, &now, &written) {
            true => Ok(()),
            false => {
                self.notes.remove(file).map_err(|error| self.failed("removing a note", &error))
            }
        };
        self.build_on(&now, written.and(removed))
    }

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

    /// Runs work that waits for the disk on its own thread.
    pub async fn away(
        &self,
        what: &str,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Result<(), StoreError> {
        self.on_thread(what, work).await?.map_err(|error| self.failed(what, &error))
    }
    pub async fn on_thread<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = channel();
        let started = std::thread::Builder::new().name("store".into()).spawn(move || {
            // The receiver may be gone, with the world.
            let _ = sender.send(work());
        });
        // There may be no memory for a thread.
        started.map_err(|error| self.failed(what, &error))?;
        let [mut wait, most] = POLL_AFTER;
        loop {
            match receiver.try_recv() {
                Ok(result) => return Ok(result),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    return Err(self.failed(what, &io::Error::other("its thread died")));
                }
            }
            self.world.sleep_until(self.world.now().plus(wait)).await;
            wait = (wait * 2).min(most);
        }
    }

    pub async fn make_durable(&self, open: OpenFile) -> Result<(), StoreError> {
        let (file, handle) = self.handle_of(open)?;
        self.flush(file).await?;
        let is_held = self.tokens.of(file) == Some(Token::ExclusiveWrite);
        match is_held && !self.is_unsynced(open) {
            true => Ok(()),
            false => self.sync_at_once(file, &handle).await,
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
    fn build_on(
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

    pub async fn allocate(
        &self,
        open: OpenFile,
        what: Allocation,
        range: Range<u64>,
    ) -> Result<FileAttributes, StoreError> {
        let (file, handle) = self.handle_of(open)?;
        self.flush(file).await?;
        let look = || self.look_at("asking for attributes", || handle.metadata());
        let before = look()?;
        let flags = match what {
            Allocation::Reserve => FallocateFlags::empty(),
            Allocation::ReserveKeepingSize => FallocateFlags::KEEP_SIZE,
            Allocation::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        };
        let away = for_writing(&handle, &self.rights);
        let away = away.map_err(|error| self.failed("allocating", &error))?;
        let allocated = self.away("allocating", move || {
            fallocate(&away, flags, range.start, range.end - range.start)?;
            away.sync_all()
        });
        let allocated = allocated.await;
        self.end_change(&before, look, allocated).await
    }

    fn writable(&self, file: FileId) -> Option<Rc<File>> {
        let opens = self.opens.borrow();
        let open = opens.of(file).find(|open| open.access == OpenMode::ReadWrite);
        open.map(|open| open.handle.clone())
    }

    pub fn removed_directory(&self, file: FileId) -> Option<Rc<File>> {
        let held = self.removed.borrow().get(&file)?.try_clone().ok()?;
        Some(Rc::new(held))
    }

    pub async fn sync_names(&self, directory: FileId) -> Result<(), StoreError> {
        let place = self.searching(|| self.places.directory(directory)).await?;
        self.away("making names durable", move || sync_directory(place.as_ref())).await
    }
    /// Syncs each directory, or the store's file system if one is not where it was: the directory
    /// may have been removed, too, from a place that is not known.
    pub async fn sync_removals(&self, directories: Option<Vec<FileId>>) -> Result<(), StoreError> {
        let what = "making removals durable";
        let open = |directory: &FileId| self.places.open_known_directory(*directory);
        let opened = directories.and_then(|all| all.iter().map(open).collect::<Option<Vec<_>>>());
        let root = self.places.root_directory().try_clone();
        let root = root.map_err(|error| self.failed(what, &error))?;
        let sync = move || match opened {
            Some(opened) => opened.iter().try_for_each(File::sync_all),
            None => Ok(syncfs(&root)?),
        };
        self.away(what, sync).await
    }
}

impl Local {
    /// Opens a file. One that another program has a lease of, or that its mode keeps from its
    /// owner, is opened on a thread: that waits until the lease has ended
    /// (`/proc/sys/fs/lease-break-time` at most), or for the disk.
    pub async fn open(&self, file: FileId, access: OpenMode) -> Result<OpenFile, StoreError> {
        let what = "opening";
        let (held, found) = self.searching(|| self.places.hold(file)).await?;
        if !found.is_file() {
            return Err(Refusal::Stale.into());
        }
        let waits = !units::fault!("store-lease-not-waited-for");
        let handle = match open_held(&held, access, libc::O_NONBLOCK) {
            Err(error) if waits && error.kind() == io::ErrorKind::WouldBlock => {
                self.on_thread(what, move || open_held(&held, access, 0)).await?
            }
            Err(error)
                if waits
                    && error.raw_os_error() == Some(libc::EACCES)
                    && found.uid() == geteuid().as_raw() =>
            {
                Ok(self.open_excluded(file, held, access).await?)
            }
            opened => opened,
        };
        let handle = handle.map_err(|error| self.failed(what, &error))?;
        Ok(self.opened(file, access, handle))
    }
    /// Opens a file that its mode keeps from its owner, this process. Its time of change becomes
    /// another one: others give up their tokens of it before, and no flush of this client runs.
    async fn open_excluded(
        &self,
        file: FileId,
        held: File,
        access: OpenMode,
    ) -> Result<File, StoreError> {
        let what = "opening";
        let held = Arc::new(held);
        for _ in 0..ATTEMPTS_MAX {
            let excluded = match units::fault!("store-opened-past-others") {
                true => Excluded::Needless,
                false => self.exclude(file, FileKind::Regular).await?,
            };
            let found = self.look_at(what, || held.metadata())?;
            let mut one = (found, excluded);
            let unflushed = self.keep_flushes_away([Some(&mut one.0), None]).await;
            if matches!(one.1, Excluded::Overtaken) || !self.are_excluded(&one) {
                continue;
            }
            let (notes, rights) = (self.notes.clone(), self.rights.clone());
            let to_open = held.clone();
            let open = move || open_as_owner(&to_open, access, &notes, &rights);
            let opened = self.on_thread(what, open);
            let opened = opened.await?;
            self.note_own_change(&one.0);
            match opened {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                opened => return opened.map_err(|error| self.failed(what, &error)),
            }
            // Nobody is kept away while the lease ends.
            drop((one, unflushed));
            self.world.sleep_until(self.world.now().plus(LEASE_POLL)).await;
        }
        Err(self.failed(what, &io::Error::from_raw_os_error(libc::EAGAIN)))
    }
}

impl Local {
    /// Gives files back the modes that a killed daemon of this host has left changed.
    pub async fn take_rights_back(&self) -> Result<(), StoreError> {
        let left = self.rights.left();
        for lent in left.map_err(|error| self.failed("looking for lent rights", &error))? {
            // What cannot be given back stays noted, for the next mount.
            if self.give_mode_back(lent).await.is_ok() {
                self.rights.forget(lent.file);
            }
        }
        Ok(())
    }
    async fn give_mode_back(&self, lent: LentMode) -> Result<(), StoreError> {
        let what = "giving a mode back";
        let held = match self.searching(|| self.places.hold(lent.file)).await {
            Err(StoreError::Refused(Refusal::Stale)) => return Ok(()),
            held => held?.0,
        };
        // Its time of change becomes another one, as when it was opened.
        let (found, _excluded) = self.exclude_found(what, || held.metadata()).await?;
        if !lent.is_lent(&found) {
            return Ok(());
        }
        let notes = self.notes.clone();
        let give_back = move || {
            notes.keep(std::slice::from_ref(&found))?;
            fs::set_permissions(path_of(&held), Permissions::from_mode(lent.mode))
        };
        self.away(what, give_back).await
    }
}

/// Returns whether a change that failed has left the file as it was.
fn is_unchanged(before: &Metadata, now: &Metadata, result: &Result<(), StoreError>) -> bool {
    let is_same = result.is_err() && changed_ns(before) == changed_ns(now);
    is_same && !units::fault!("store-failed-change-unnoted")
}

/// Returns whether the kernel takes a write that ends there: this process may write so far, and the
/// file system has files of that length. (A seek fails beyond the longest, and extends nothing. The
/// longest may differ between the files of one file system: ext4 without extents.)
fn may_end_at(handle: &File, end: u64) -> bool {
    let limit = getrlimit(Resource::Fsize).current;
    limit.is_none_or(|limit| end <= limit) && seek(handle, SeekFrom::Start(end)).is_ok()
}

/// Writes at the end. Another process may append, too: the kernel looks for the end under the lock
/// under which it writes.
fn append_all(to: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match pwritev2(to, &[IoSlice::new(bytes)], 0, ReadWriteFlags::APPEND) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns a handle to write through. That of a file whose mode forbids it to its owner, this
/// process, is for reading ([`Local::open`]): a program that made it may write to it all the same.
fn for_writing(handle: &File, rights: &LentRights) -> io::Result<File> {
    match is_for_writing(handle)? {
        true => handle.try_clone(),
        false => rights.begin(handle, TO_WRITE)?.open(0),
    }
}
fn is_for_writing(handle: &File) -> io::Result<bool> {
    let is_it = fcntl_getfl(handle)?.intersects(OFlags::WRONLY | OFlags::RDWR);
    Ok(is_it || units::fault!("store-read-only-unwritten"))
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

#[cfg(test)]
mod tests {
    use super::super::own_directory::OwnDirectory;
    use super::*;
    use crate::event::Identity;

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

    /// Runs again without the right to pass over modes where this process has it: root may write to
    /// any file.
    #[test]
    fn a_file_made_read_only_is_written_by_its_owner() {
        const AS_OWNER: &str = "OKEANOS_TEST_AS_OWNER";
        if rustix::process::geteuid().is_root() && std::env::var_os(AS_OWNER).is_none() {
            let mut again = std::process::Command::new("setpriv");
            again.args(["--bounding-set=-dac_override", "--inh-caps=-dac_override"]);
            again.arg(std::env::current_exe().expect("this program")).env(AS_OWNER, "1");
            let test = "local::files::tests::a_file_made_read_only_is_written_by_its_owner";
            let ended = again.args(["--exact", test]).output().expect("started");
            let reported = String::from_utf8_lossy(&ended.stdout);
            assert!(ended.status.success() && reported.contains("1 passed"), "{ended:?}");
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("object");
        fs::write(&path, b"old").expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o444)).expect("a mode");
        let handle = File::open(&path).expect("a handle for reading");
        let root = File::open(directory.path()).expect("its directory");
        let notes = OwnDirectory::in_root(root, "modes").expect("a place for notes");
        let rights = LentRights::new(notes, Identity("host".into()));
        for_writing(&handle, &rights).and_then(|to| to.write_all_at(b"new", 0)).expect("written");
        assert_eq!(fs::read(&path).expect("content"), b"new");
        assert_eq!(handle.metadata().expect("metadata").mode() & 0o7777, 0o444);
    }
}
