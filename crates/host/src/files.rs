//! The state of each file that is open, dirty, or held by a token.
//!
//! 1. A task holds a file's lock for writing while it writes the file, destages it, or changes its
//!    token. So nothing is added to a file while it is destaged: the store gets only states that
//!    are in the journal.
//! 2. `recalled` is set as soon as the store reports the recall, before any other task runs, and
//!    checked right before each write. From then on no task writes until the token is back. After a
//!    write `recalls` is compared: no replay may build on a write that met a recall.

use crate::dirty_ranges::DirtyRanges;
use crate::lock_owners::ProgramLocks;
use crate::record::Slot;
use crate::removals::Removal;
use runtime::sync::{Event, RwLock};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::rc::Rc;
use std::time::Duration;
use store::{FileId, OpenFile, StoreError, Token, Version};
use units::{Instant, TransactionId};

pub(crate) struct File {
    pub id: FileId,
    pub lock: Rc<RwLock>,
    /// Number of applications' descriptors.
    pub opens: Cell<u64>,
    /// The open file at the store, for reading only if that is all it allows.
    pub open: Cell<Option<OpenFile>>,
    pub is_read_only: Cell<bool>,
    /// Locks of programs on this host.
    pub locks: ProgramLocks,
    pub token: Cell<Option<Token>>,
    /// Number of tokens that the file has had, which identifies the present one.
    pub grant: Cell<u64>,
    /// The token for which it is known that the file has no capabilities.
    pub without_capabilities: Cell<u64>,
    /// Whether the front end's kernel may cache its attributes.
    pub cached_by_kernel: Cell<bool>,
    /// The version that the store reported last.
    pub reported: Cell<Version>,
    /// Whether the journal of a host that died may have changes of the file, and the store has
    /// nothing yet of what this host has changed under its token.
    pub was_taken_over: Cell<bool>,
    /// Whether its token stays behind the last close.
    pub is_kept: Cell<bool>,
    /// Number of writes past the journal, and how many of them the store has made durable.
    pub shared_writes: Cell<u64>,
    pub synced_writes: Cell<u64>,
    pub dirty: Cell<Option<Dirty>>,
    /// Dirty ranges; empty while the file is clean.
    pub ranges: RefCell<DirtyRanges>,
    /// Whether its last name was removed while it was open.
    pub nameless: Cell<bool>,
    pub recalled: Cell<bool>,
    /// Number of recalls. A lost connection ends a recall, and not what the recall has allowed
    /// another client.
    pub recalls: Cell<u64>,
    /// Set when the token is back.
    pub returned: Event,
    pub failure: RefCell<Option<Failure>>,
    /// Next attempt at the store after a failure, and the pause before it.
    pub retry: Cell<Option<Retry>>,
    /// Whether its token went to another client though the store refuses the file: what was synced
    /// is in the journal alone.
    pub is_given_up: Cell<bool>,
    /// Time since when a task destages it.
    pub destaging: Cell<Option<Instant>>,
    /// Whether that takes too long, and was reported.
    pub is_stuck: Cell<bool>,
    /// Whether its last name is being removed here. A recovery that does not find the file then
    /// loses nothing.
    pub is_removed: Cell<bool>,
    /// The removal of what may have been its last name here.
    pub last_removal: Cell<Removal>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    pub at: Instant,
    pub pause: Duration,
}

/// Pauses between a failed destage and the next attempt: the first and the longest. Each is twice
/// the one before.
const RETRY_AFTER: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(300)];

/// The reason why syncs and changes of a file fail.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// Changed by another client, and bytes were set aside; lasts until every descriptor is closed.
    SetAside(String),
    /// Programs held locks of it when the connection ended; lasts until every descriptor is closed.
    LocksLost,
    /// The store's error for a flush. The journal has everything.
    NotDestaged(StoreError),
    /// The store's error for a sync of what went there past the journal, or that came with the
    /// return of a token. What the store has is unknown, and a later success proves nothing; lasts
    /// until every descriptor is closed, so that each reports it.
    Unsynced(StoreError),
}

impl Failure {
    /// Returns whether the failure lasts until every descriptor of the file is closed.
    pub fn lasts(&self) -> bool {
        !matches!(self, Failure::NotDestaged(_))
    }
}

/// Changes of a file that the store may lack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dirty {
    pub slot: Slot,
    pub base: Version,
    pub since: Instant,
    /// Time at which its slot was begun.
    pub slot_since: Instant,
    /// The latest transaction with records of it.
    pub last: TransactionId,
}

/// A file that an operation keeps known, though nobody may have it open: others on this host wait
/// for its lock. Forgotten when this is dropped, if nothing else needs it.
pub(crate) struct KnownFile<'a> {
    files: &'a Files,
    file: Rc<File>,
}
impl Deref for KnownFile<'_> {
    type Target = Rc<File>;
    fn deref(&self) -> &Rc<File> {
        &self.file
    }
}
impl Drop for KnownFile<'_> {
    fn drop(&mut self) {
        self.files.forget(&self.file);
    }
}

#[derive(Default)]
pub(crate) struct Files {
    table: RefCell<BTreeMap<FileId, Rc<File>>>,
    /// Number of dirty files.
    dirty: Cell<usize>,
    /// Bytes that the store buffers of all files.
    held_bytes: Cell<u64>,
}

impl Files {
    pub fn get(&self, id: FileId) -> Option<Rc<File>> {
        self.table.borrow().get(&id).cloned()
    }
    /// Sets what the store may lack of a file.
    pub fn set_dirty(&self, file: &File, dirty: Option<Dirty>) {
        if dirty.is_none() {
            file.is_given_up.set(false);
            self.held_bytes.set(self.held_bytes.get() - file.held_bytes());
            file.ranges.take();
        }
        let (now, before) =
            (usize::from(dirty.is_some()), usize::from(file.dirty.replace(dirty).is_some()));
        self.dirty.set(self.dirty.get() + now - before);
    }
    /// Adds bytes that the store buffers of the file.
    pub fn hold(&self, file: &File, range: Range<u64>) {
        let before = file.held_bytes();
        file.ranges.borrow_mut().insert(range);
        self.held_bytes.set(self.held_bytes.get() + file.held_bytes() - before);
    }
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.get()
    }
    pub fn failed(&self) -> Vec<Rc<File>> {
        self.table.borrow().values().filter(|file| file.has_failed()).cloned().collect()
    }
    /// Returns the files that the store does not take in time.
    pub fn stuck(&self) -> Vec<Rc<File>> {
        self.table.borrow().values().filter(|file| file.is_stuck.get()).cloned().collect()
    }
    /// Returns a file that is to stay known while an operation on it runs.
    pub fn known(&self, id: FileId) -> KnownFile<'_> {
        let file = match units::fault!("store-own-token-overlooked") {
            true => self.get(id).unwrap_or_else(|| File::new(id)),
            false => self.get_or_new(id),
        };
        self.keep(file)
    }
    /// Forgets a file when the result is dropped, if nothing else needs it then.
    pub fn keep(&self, file: Rc<File>) -> KnownFile<'_> {
        KnownFile { files: self, file }
    }
    pub fn get_or_new(&self, id: FileId) -> Rc<File> {
        self.table.borrow_mut().entry(id).or_insert_with(|| File::new(id)).clone()
    }
    /// Forgets a file that is idle and that no other owner refers to.
    pub fn forget(&self, file: &Rc<File>) {
        let mut table = self.table.borrow_mut();
        // It may have been forgotten and made known anew.
        let is_known = table.get(&file.id).is_some_and(|known| Rc::ptr_eq(known, file));
        // The table's reference and the caller's.
        if !file.is_in_use() && is_known && Rc::strong_count(file) <= 2 {
            table.remove(&file.id);
        }
    }
    /// Returns the files of which the store may have to get or close something, or which programs
    /// have open.
    pub fn in_use(&self) -> Vec<Rc<File>> {
        self.table.borrow().values().filter(|file| file.is_in_use()).cloned().collect()
    }
    /// Returns the dirty files, oldest first.
    pub fn dirty(&self) -> Vec<(Dirty, Rc<File>)> {
        let table = self.table.borrow();
        let dirty = table.values().filter_map(|file| Some((file.dirty.get()?, file.clone())));
        let mut dirty: Vec<_> = dirty.collect();
        dirty.sort_by_key(|(dirty, file)| (dirty.since, file.id));
        dirty
    }
    /// Returns whether more than `most` dirty files can be destaged.
    pub fn has_more_dirty(&self, most: usize) -> bool {
        let can_go =
            |file: &&Rc<File>| file.dirty.get().is_some() && file.failure.borrow().is_none();
        self.dirty.get() > most && self.table.borrow().values().filter(can_go).count() > most
    }
    pub fn all(&self) -> Vec<Rc<File>> {
        self.table.borrow().values().cloned().collect()
    }
}

impl File {
    fn new(id: FileId) -> Rc<File> {
        Rc::new(File {
            id,
            lock: Rc::default(),
            opens: Cell::new(0),
            open: Cell::new(None),
            is_read_only: Cell::new(false),
            locks: ProgramLocks::default(),
            token: Cell::new(None),
            grant: Cell::new(0),
            without_capabilities: Cell::new(0),
            cached_by_kernel: Cell::new(false),
            reported: Cell::default(),
            was_taken_over: Cell::new(false),
            is_kept: Cell::new(false),
            shared_writes: Cell::new(0),
            synced_writes: Cell::new(0),
            dirty: Cell::new(None),
            ranges: RefCell::default(),
            nameless: Cell::new(false),
            recalled: Cell::new(false),
            recalls: Cell::new(0),
            returned: Event::default(),
            failure: RefCell::default(),
            retry: Cell::new(None),
            is_given_up: Cell::new(false),
            destaging: Cell::new(None),
            is_stuck: Cell::new(false),
            is_removed: Cell::new(false),
            last_removal: Cell::default(),
        })
    }
    /// Records the store's error for a flush of the file.
    pub fn fail(&self, error: StoreError, now: Instant) {
        let [first, most] = RETRY_AFTER;
        let pause = self.retry.get().map_or(first, |before| (before.pause * 2).min(most));
        self.retry.set(Some(Retry { at: now.plus(pause), pause }));
        let mut failure = self.failure.borrow_mut();
        if !failure.as_ref().is_some_and(Failure::lasts) {
            *failure = Some(Failure::NotDestaged(error));
        }
    }
    /// Records the error of a sync of bytes that the journal does not have.
    pub fn fail_for_good(&self, error: StoreError) {
        let mut failure = self.failure.borrow_mut();
        // A failed destage says the same, and must not be forgotten with the last descriptor.
        if self.opens.get() > 0 && failure.is_none() {
            *failure = Some(Failure::Unsynced(error));
        }
    }
    /// Doubles the pause before the next attempt.
    pub fn put_off(&self, now: Instant) {
        if let Some(Retry { pause, .. }) = self.retry.get() {
            let pause = (pause * 2).min(RETRY_AFTER[1]);
            self.retry.set(Some(Retry { at: now.plus(pause), pause }));
        }
    }
    /// Records that the store has the file. Returns whether it had failed before.
    pub fn succeed(&self) -> bool {
        self.retry.set(None);
        let mut failure = self.failure.borrow_mut();
        let had_failed = matches!(*failure, Some(Failure::NotDestaged(_)));
        if had_failed {
            *failure = None;
        }
        had_failed
    }
    /// Ends what is known of writes past the journal: their connection is lost. Returns whether
    /// some were not made durable, and nothing on another connection can promise them.
    pub fn end_shared_writes(&self) -> bool {
        self.synced_writes.replace(self.shared_writes.get()) < self.shared_writes.get()
    }
    fn is_in_use(&self) -> bool {
        self.opens.get() > 0 || self.open.get().is_some() || self.dirty.get().is_some()
    }
    /// Returns whether nothing keeps the file open at the store.
    pub fn is_idle(&self) -> bool {
        let is_used = self.opens.get() > 0 || self.dirty.get().is_some();
        !is_used && !self.recalled.get() && !self.keeps_token()
    }
    /// Returns whether only programs that have the file open can still reach it.
    pub fn is_gone(&self) -> bool {
        self.is_removed.get() || self.nameless.get()
    }
    pub fn has_failed(&self) -> bool {
        matches!(*self.failure.borrow(), Some(Failure::NotDestaged(_)))
    }
    /// Returns whether the file may be destaged: after a failure, not before its pause has ended.
    pub fn may_go(&self, now: Instant) -> bool {
        let is_later = |retry: Retry| now >= retry.at;
        !self.has_failed() || self.retry.get().is_none_or(is_later)
    }
    /// Forgets a lasting failure when the last descriptor is closed: a later open sees the store's
    /// state.
    pub fn forgive(&self) {
        let mut failure = self.failure.borrow_mut();
        if self.dirty.get().is_none() || failure.as_ref().is_some_and(Failure::lasts) {
            *failure = None;
        }
    }
    /// Returns the bytes that the store buffers of the file.
    pub fn held_bytes(&self) -> u64 {
        self.ranges.borrow().held_bytes()
    }
    /// Returns whether the file was recalled since it had had `recalls` recalls.
    pub fn met_recall(&self, recalls: u64) -> bool {
        match units::fault!("host-recall-forgotten") {
            true => self.recalled.get(),
            false => self.recalls.get() != recalls,
        }
    }
    pub async fn until_returned(&self) {
        self.returned.until(|| (!self.recalled.get()).then_some(())).await
    }
}
