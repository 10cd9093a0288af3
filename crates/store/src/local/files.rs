//! Content: how it is read, written past a buffer, and made durable.

use super::attributes::is_unchanged;
use super::buffered::LocalBuffered;
use super::freed::is_long;
use super::lent_rights::for_writing;
use super::notes::sync_directory;
use super::store::Local;
use crate::attributes::{Allocation, FileAttributes, FileId, Version};
use crate::error::{Refusal, StoreError};
use crate::event::Token;
use crate::limits::TRANSFER_BYTES_MAX;
use crate::open_file::OpenFile;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek, syncfs};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::rc::Rc;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::Duration;

/// Pauses before checking whether a thread has ended: the first and the longest.
const POLL_AFTER: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(2)];

impl Local {
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
    pub fn change(
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
