//! What is known of each file that is open, dirty, or held by a token.
//!
//! 1. A file's lock is held for writing by whoever writes it, brings it to the store, or changes
//!    its token. So while a file goes to the store nothing is added to it: the store gets only
//!    states that are in the journal.
//! 2. `recalled` is set when the store has told so, before anyone else runs, and asked right before
//!    each write. From then on nobody writes until the token is back.

use crate::dirty_ranges::DirtyRanges;
use crate::error::HostError;
use crate::lock_owners::ProgramLocks;
use crate::record::Slot;
use runtime::sync::{Event, RwLock};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use store::{FileId, OpenFile, Token, Version};
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
    /// Nobody knows what the store has.
    pub failure: RefCell<Option<String>>,
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
}

impl Files {
    pub fn get(&self, id: FileId) -> Option<Rc<File>> {
        self.table.borrow().get(&id).cloned()
    }
    /// What the store may not have of a file changed.
    pub fn set_dirty(&self, file: &File, dirty: Option<Dirty>) {
        if dirty.is_none() {
            file.ranges.take();
        }
        let (now, before) =
            (usize::from(dirty.is_some()), usize::from(file.dirty.replace(dirty).is_some()));
        self.dirty.set(self.dirty.get() + now - before);
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
    /// What the store answered to a flush of it. The first counts.
    pub fn fail(&self, error: &HostError) {
        self.failure.borrow_mut().get_or_insert_with(|| error.to_string());
    }
    /// What the store buffers of it.
    pub fn held_bytes(&self) -> u64 {
        self.ranges.borrow().held_bytes()
    }
    pub async fn until_returned(&self) {
        self.returned.until(|| (!self.recalled.get()).then_some(())).await
    }
}
