//! What is known of each file that is open, dirty, or held by a token.
//!
//! 1. A file's lock is held for writing by whoever writes it, brings it to the store, or changes
//!    its token. So while a file goes to the store nothing is added to it: the store gets only
//!    states that are in the journal.
//! 2. `recalled` is set when the store has told so, before anyone else runs, and asked right before
//!    each write. From then on nobody writes until the token is back.

use crate::dirty_ranges::DirtyRanges;
use crate::lock_owners::ProgramLocks;
use crate::record::Slot;
use runtime::sync::{Event, RwLock};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use store::{FileId, OpenFile, StoreError, Token, Version};
use units::{Instant, TransactionId};

pub(crate) struct File {
    pub id: FileId,
    pub lock: Rc<RwLock>,
    /// Descriptors of applications.
    pub opens: Cell<u64>,
    /// At the store, for reading alone if that is all it allows.
    pub open: Cell<Option<OpenFile>>,
    pub is_read_only: Cell<bool>,
    /// Of programs of this host.
    pub locks: ProgramLocks,
    pub token: Cell<Option<Token>>,
    /// How many tokens it has had: the number of this one.
    pub grant: Cell<u64>,
    /// For which of them it is known that the file has no capabilities.
    pub without_capabilities: Cell<u64>,
    /// A door's kernel may keep its attributes.
    pub kept: Cell<bool>,
    /// As the store told last.
    pub told: Cell<Version>,
    pub dirty: Cell<Option<Dirty>>,
    /// As long as it is dirty.
    pub ranges: RefCell<DirtyRanges>,
    /// Its last name went while it was open.
    pub nameless: Cell<bool>,
    pub recalled: Cell<bool>,
    /// The token is back.
    pub returned: Event,
    pub failure: RefCell<Option<Failure>>,
    /// After a failure: when the store is asked again, and how long that was put off.
    pub retry: Cell<Option<Retry>>,
    /// Its last name is being removed here. A recovery that does not find it misses nothing.
    pub is_removed: Cell<bool>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    pub at: Instant,
    pub pause: Duration,
}

/// Between a failed destage and the next try: at first, and at most. It doubles each time.
const RETRY_AFTER: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(300)];

/// Why syncs of a file fail, and changes of it.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// Others changed it, and bytes of it were set aside: until every descriptor is closed.
    SetAside(String),
    /// Programs had locks of it when the connection ended: until every descriptor is closed.
    LocksLost,
    /// What the store answered to a flush. The journal has it all.
    NotHome(StoreError),
}

impl Failure {
    /// Whether it stands until every descriptor of the file is closed.
    pub fn lasts(&self) -> bool {
        matches!(self, Failure::SetAside(_) | Failure::LocksLost)
    }
}

/// Something that the store may not have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dirty {
    pub slot: Slot,
    pub base: Version,
    pub since: Instant,
    /// When its slot was begun.
    pub slot_since: Instant,
    /// The latest transaction with anything of it.
    pub last: TransactionId,
}

#[derive(Default)]
pub(crate) struct Files {
    table: RefCell<BTreeMap<FileId, Rc<File>>>,
    /// How many of them are dirty.
    dirty: Cell<usize>,
    /// What the store buffers of all of them.
    held_bytes: Cell<u64>,
}

impl Files {
    pub fn get(&self, id: FileId) -> Option<Rc<File>> {
        self.table.borrow().get(&id).cloned()
    }
    /// What the store may not have of a file changed.
    pub fn set_dirty(&self, file: &File, dirty: Option<Dirty>) {
        if dirty.is_none() {
            self.held_bytes.set(self.held_bytes.get() - file.held_bytes());
            file.ranges.take();
        }
        let (now, before) =
            (usize::from(dirty.is_some()), usize::from(file.dirty.replace(dirty).is_some()));
        self.dirty.set(self.dirty.get() + now - before);
    }
    /// The store buffers these bytes of the file, too.
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
    pub fn get_or_new(&self, id: FileId) -> Rc<File> {
        let fresh = || {
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
                kept: Cell::new(false),
                told: Cell::default(),
                dirty: Cell::new(None),
                ranges: RefCell::default(),
                nameless: Cell::new(false),
                recalled: Cell::new(false),
                returned: Event::default(),
                failure: RefCell::default(),
                retry: Cell::new(None),
                is_removed: Cell::new(false),
            })
        };
        self.table.borrow_mut().entry(id).or_insert_with(fresh).clone()
    }
    /// Forgets a file that nobody uses and that is nowhere else known.
    pub fn forget(&self, file: &Rc<File>) {
        let is_idle =
            file.opens.get() == 0 && file.open.get().is_none() && file.dirty.get().is_none();
        // The table, and whoever asks.
        if is_idle && Rc::strong_count(file) <= 2 {
            self.table.borrow_mut().remove(&file.id);
        }
    }
    /// Dirty ones, the oldest first.
    pub fn dirty(&self) -> Vec<(Dirty, Rc<File>)> {
        let table = self.table.borrow();
        let dirty = table.values().filter_map(|file| Some((file.dirty.get()?, file.clone())));
        let mut dirty: Vec<_> = dirty.collect();
        dirty.sort_by_key(|(dirty, file)| (dirty.since, file.id));
        dirty
    }
    /// Whether more than `most` are dirty and can go to the store.
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
    /// What the store answered to a flush of it.
    pub fn fail(&self, error: StoreError, now: Instant) {
        let [first, most] = RETRY_AFTER;
        let pause = self.retry.get().map_or(first, |before| (before.pause * 2).min(most));
        self.retry.set(Some(Retry { at: now.plus(pause), pause }));
        let mut failure = self.failure.borrow_mut();
        if !failure.as_ref().is_some_and(Failure::lasts) {
            *failure = Some(Failure::NotHome(error));
        }
    }
    /// The next try comes later still.
    pub fn put_off(&self, now: Instant) {
        if let Some(Retry { pause, .. }) = self.retry.get() {
            let pause = (pause * 2).min(RETRY_AFTER[1]);
            self.retry.set(Some(Retry { at: now.plus(pause), pause }));
        }
    }
    /// The store has it now. Whether it had failed before.
    pub fn succeed(&self) -> bool {
        self.retry.set(None);
        let mut failure = self.failure.borrow_mut();
        let had_failed = matches!(*failure, Some(Failure::NotHome(_)));
        if had_failed {
            *failure = None;
        }
        had_failed
    }
    /// Nobody but those who have it open misses it.
    pub fn is_gone(&self) -> bool {
        self.is_removed.get() || self.nameless.get()
    }
    pub fn has_failed(&self) -> bool {
        matches!(*self.failure.borrow(), Some(Failure::NotHome(_)))
    }
    /// Whether the store may be asked to take it: after a failure, not before its time.
    pub fn may_go(&self, now: Instant) -> bool {
        let is_later = |retry: Retry| now >= retry.at;
        !self.has_failed() || self.retry.get().is_none_or(is_later)
    }
    /// The last descriptor is closed: who opens it now sees what is there.
    pub fn forgive(&self) {
        let mut failure = self.failure.borrow_mut();
        if self.dirty.get().is_none() || failure.as_ref().is_some_and(Failure::lasts) {
            *failure = None;
        }
    }
    /// What the store buffers of it.
    pub fn held_bytes(&self) -> u64 {
        self.ranges.borrow().held_bytes()
    }
    pub async fn until_returned(&self) {
        self.returned.until(|| (!self.recalled.get()).then_some(())).await
    }
}
