//! A store whose calls a test watches and delays.

use device::LocalFuture;
use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::rc::Rc;
use store::{
    Allocation, Answer, AttributeChange, Created, Creator, FileAttributes, FileId, FileLock, Found,
    HostPhase, Identity, Listing, NewNode, OpenFile, OpenMode, Refusal, RenameOver, Space, Store,
    StoreError, StoreEvent, Token, XattrMode,
};

pub struct WatchedStore {
    inner: Rc<dyn Store>,
    /// Whether the store answers that failed writes stay.
    pub keeps_failed_writes: bool,
    watch: Watch,
}

/// Calls that a test watches and delays.
#[derive(Default)]
pub struct Watch {
    /// Calls that make a file durable or set its attributes, in order.
    pub calls: RefCell<Vec<&'static str>>,
    /// Whether another client keeps each file from being held exclusively.
    pub others_keep_files: Cell<bool>,
    /// A file that another client keeps so.
    pub kept: Cell<Option<FileId>>,
    /// Number of opens that another client's token prevents.
    pub prevented_opens: Cell<u64>,
    /// Whether another client extends files, so that no write without an exclusive token does.
    pub is_extended: Cell<bool>,
    /// Number of writes that are answered as if it extended the file.
    pub extended_writes: Cell<u64>,
    /// The size that the store says a file has after an append.
    pub false_size: Cell<Option<u64>>,
    /// A file of which an exclusive token is not reported before the calls are released.
    pub slow_token: Cell<Option<FileId>>,
    /// Whether syncs of files, and those of returned tokens, fail after they were carried out.
    pub failing_syncs: Cell<bool>,
    pub failing_returns: Cell<bool>,
    /// Whether changes of attributes fail so.
    pub failing_changes: Cell<bool>,
    /// Whether programs of other clients may read files without a name.
    pub others_read_removed: Cell<bool>,
    /// Writes at this offset wait, before they reach the store.
    pub slow_write: Cell<Option<u64>>,
    /// Answers to creations wait.
    pub slow_creations: Cell<bool>,
    /// Number of creations that have no answer yet, and of recalls that came during one.
    creations: Rc<Cell<u64>>,
    pub recalls_during_creations: Rc<Cell<u64>>,
    pub changed: Rc<Event>,
    /// Number of calls that wait, or waited.
    pub waiting_calls: Rc<Cell<u64>>,
    is_released: Rc<Cell<bool>>,
    /// Whether it reports no space.
    pub is_full: Cell<bool>,
    /// Whether the end of the connection does not return.
    pub never_disconnects: Cell<bool>,
    /// Whether removals of names do not become durable before the calls are released.
    pub slow_removals: Cell<bool>,
    /// The directories in which removals were made durable, of each call.
    pub durable_removals: RefCell<Vec<Option<Vec<FileId>>>>,
    /// Whether no name is removed, and whether that is answered once the calls are released.
    pub refusing_removals: Cell<bool>,
    pub slow_refusals: Cell<bool>,
    /// Number of connections that were given up.
    pub given_up: Rc<Cell<u64>>,
    /// A file of which no sync returns until the connection is given up.
    pub stuck: Cell<Option<FileId>>,
    /// A file of which no sending of content returns.
    pub sends_nothing: Cell<Option<FileId>>,
    /// Whether the attributes of all files were sent.
    pub attributes_sent: Cell<bool>,
    opens: Rc<RefCell<BTreeMap<OpenFile, FileId>>>,
}

impl Deref for WatchedStore {
    type Target = Watch;
    fn deref(&self) -> &Watch {
        &self.watch
    }
}

impl WatchedStore {
    fn is(&self, file: Option<FileId>, open: OpenFile) -> bool {
        file.is_some() && file == self.opens.borrow().get(&open).copied()
    }
    pub fn new(inner: Rc<dyn Store>) -> WatchedStore {
        let keeps_failed_writes = inner.keeps_failed_writes();
        WatchedStore { inner, keeps_failed_writes, watch: Watch::default() }
    }
    /// Returns a call that ends with its connection alone.
    fn never_returning<T: 'static>(&self) -> Answer<T> {
        let (changed, given_up) = (self.changed.clone(), self.given_up.clone());
        let before = given_up.get();
        Box::pin(async move {
            changed.until(|| (given_up.get() != before).then_some(())).await;
            Err(StoreError::Disconnected { store: "watched".into(), why: "it is given up".into() })
        })
    }
    pub fn take_calls(&self) -> Vec<&'static str> {
        self.calls.take()
    }
    pub fn open_files(&self) -> usize {
        self.opens.borrow().len()
    }
    pub fn release_calls(&self) {
        self.is_released.set(true);
        self.changed.notify();
    }
}

/// Ends a call with an error of the servers' disks.
fn failing<T: 'static>(call: Answer<T>, fails: bool) -> Answer<T> {
    let failed = || StoreError::Failed { store: "watched".into(), what: "syncing".into(), code: 5 };
    Box::pin(async move {
        let answer = call.await?;
        if fails { Err(failed()) } else { Ok(answer) }
    })
}

macro_rules! passed_on {
    ($($name:ident($($given:ident: $kind:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&self, $($given: $kind),*) -> $answer { self.inner.$name($($given),*) })*
    };
}

impl Store for WatchedStore {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn keeps_failed_writes(&self) -> bool {
        self.keeps_failed_writes
    }
    fn set_attributes(&self, file: FileId, change: AttributeChange) -> Answer<FileAttributes> {
        self.calls.borrow_mut().push("set_attributes");
        failing(self.inner.set_attributes(file, change), self.failing_changes.get())
    }
    fn make_durable(&self, open: OpenFile) -> Answer<()> {
        self.calls.borrow_mut().push("make_durable");
        if self.is(self.stuck.get(), open) {
            return self.never_returning();
        }
        failing(self.inner.make_durable(open), self.failing_syncs.get())
    }
    fn send_content(&self, open: OpenFile) -> Answer<()> {
        match self.is(self.sends_nothing.get(), open) {
            true => Box::pin(std::future::pending()),
            false => self.inner.send_content(open),
        }
    }
    fn give_up_connection(&self) {
        self.inner.give_up_connection();
        self.given_up.set(self.given_up.get() + 1);
        self.changed.notify();
    }
    fn send_attributes(&self) -> Answer<()> {
        self.attributes_sent.set(true);
        self.inner.send_attributes()
    }
    fn return_token(&self, file: FileId) -> Answer<()> {
        failing(self.inner.return_token(file), self.failing_returns.get())
    }
    fn disconnect(&self) -> Answer<()> {
        match self.never_disconnects.get() {
            true => Box::pin(std::future::pending()),
            false => self.inner.disconnect(),
        }
    }
    fn unlink(&self, parent: FileId, name: &[u8]) -> Answer<()> {
        if !self.refusing_removals.get() {
            return self.inner.unlink(parent, name);
        }
        let (changed, is_released) = (self.changed.clone(), self.is_released.clone());
        let is_slow = self.slow_refusals.get();
        Box::pin(async move {
            if is_slow {
                changed.until(|| is_released.get().then_some(())).await;
            }
            Err(StoreError::Refused(Refusal::NotPermitted))
        })
    }
    fn make_removals_durable(&self, directories: Option<Vec<FileId>>) -> Answer<()> {
        self.durable_removals.borrow_mut().push(directories.clone());
        self.changed.notify();
        let made = self.inner.make_removals_durable(directories);
        let (changed, is_released) = (self.changed.clone(), self.is_released.clone());
        let is_slow = self.slow_removals.get();
        Box::pin(async move {
            if is_slow {
                changed.until(|| is_released.get().then_some(())).await;
            }
            made.await
        })
    }
    fn others_read_removed(&self) -> bool {
        self.others_read_removed.get()
    }
    fn open(&self, file: FileId, access: OpenMode) -> Answer<OpenFile> {
        if let Some(left) = self.prevented_opens.get().checked_sub(1) {
            self.prevented_opens.set(left);
            return Box::pin(async { Err(StoreError::TokenHeld) });
        }
        let (opened, opens) = (self.inner.open(file, access), self.opens.clone());
        Box::pin(async move {
            let open = opened.await?;
            opens.borrow_mut().insert(open, file);
            Ok(open)
        })
    }
    fn close(&self, open: OpenFile) -> Answer<()> {
        self.opens.borrow_mut().remove(&open);
        self.inner.close(open)
    }
    fn create(&self, parent: FileId, name: &[u8], mode: u32, caller: Creator) -> Answer<Created> {
        let (created, opens) = (self.inner.create(parent, name, mode, caller), self.opens.clone());
        let (changed, is_released) = (self.changed.clone(), self.is_released.clone());
        let is_slow = self.slow_creations.get();
        let creations = self.creations.clone();
        Box::pin(async move {
            creations.set(creations.get() + 1);
            let created = created.await;
            if is_slow && created.is_ok() {
                changed.until(|| is_released.get().then_some(())).await;
            }
            creations.set(creations.get() - 1);
            let created = created?;
            opens.borrow_mut().extend(created.open.map(|open| (open, created.found.file)));
            Ok(created)
        })
    }
    fn next_event(&self) -> LocalFuture<StoreEvent> {
        let (next, creations) = (self.inner.next_event(), self.creations.clone());
        let recalls = self.recalls_during_creations.clone();
        Box::pin(async move {
            let event = next.await;
            let is_early = matches!(event, StoreEvent::Recall { .. }) && creations.get() > 0;
            recalls.set(recalls.get() + u64::from(is_early));
            event
        })
    }
    fn space(&self) -> Answer<Space> {
        let (asked, is_full) = (self.inner.space(), self.is_full.get());
        Box::pin(async move {
            let space = asked.await?;
            Ok(if is_full { Space { blocks_available: 0, ..space } } else { space })
        })
    }
    fn take_token(&self, open: OpenFile, token: Token) -> Answer<FileAttributes> {
        let is_kept = self.others_keep_files.get() || self.is(self.kept.get(), open);
        if token == Token::ExclusiveWrite && is_kept {
            return Box::pin(async { Err(StoreError::TokenHeld) });
        }
        let taken = self.inner.take_token(open, token);
        if token != Token::ExclusiveWrite || !self.is(self.slow_token.get(), open) {
            return taken;
        }
        let (changed, is_released) = (self.changed.clone(), self.is_released.clone());
        self.waiting_calls.set(self.waiting_calls.get() + 1);
        Box::pin(async move {
            let taken = taken.await;
            changed.until(|| is_released.get().then_some(())).await;
            taken
        })
    }
    fn take_token_to_recover(&self, open: OpenFile) -> Answer<FileAttributes> {
        if self.others_keep_files.get() || self.is(self.kept.get(), open) {
            return Box::pin(async { Err(StoreError::TokenHeld) });
        }
        self.inner.take_token_to_recover(open)
    }
    fn write(&self, open: OpenFile, at: u64, bytes: &[u8]) -> Answer<FileAttributes> {
        if let Some(left) = self.extended_writes.get().checked_sub(1) {
            self.extended_writes.set(left);
            return Box::pin(async { Err(StoreError::TokenHeld) });
        }
        if self.slow_write.get() != Some(at) || self.is_released.get() {
            return self.inner.write(open, at, bytes);
        }
        let write = self.inner.write(open, at, bytes);
        let (changed, is_released) = (self.changed.clone(), self.is_released.clone());
        self.waiting_calls.set(self.waiting_calls.get() + 1);
        Box::pin(async move {
            changed.until(|| is_released.get().then_some(())).await;
            write.await
        })
    }
    fn append(&self, open: OpenFile, bytes: &[u8]) -> Answer<FileAttributes> {
        match self.is_extended.get() {
            true => Box::pin(async { Err(StoreError::TokenHeld) }),
            false => {
                let (appended, said) = (self.inner.append(open, bytes), self.false_size.get());
                Box::pin(async move {
                    let mut attributes = appended.await?;
                    attributes.version.size = said.unwrap_or(attributes.version.size);
                    Ok(attributes)
                })
            }
        }
    }
    passed_on! {
        identity() -> Identity;
        store_identity() -> String;
        hold_ms() -> u64;
        held_below(size: u64) -> u64;
        counts_every_change() -> bool;
        reuses_numbers() -> bool;
        wants_files_closed() -> bool;
        lease_ms() -> u64;
        still_known() -> Answer<()>;
        fence(former: &Identity) -> Answer<()>;
        reconnect() -> Answer<()>;
        root() -> FileId;
        lookup(parent: FileId, name: &[u8]) -> Answer<Found>;
        find(file: FileId) -> Answer<Found>;
        path_of(file: FileId) -> Answer<Option<Vec<u8>>>;
        forget(file: FileId) -> ();
        make(parent: FileId, name: &[u8], node: NewNode, caller: Creator) -> Answer<Found>;
        link(file: FileId, parent: FileId, name: &[u8]) -> Answer<FileAttributes>;
        remove_directory(parent: FileId, name: &[u8]) -> Answer<()>;
        rename(one: FileId, old: &[u8], other: FileId, new: &[u8], mode: RenameOver) -> Answer<()>;
        read_link(file: FileId) -> Answer<Vec<u8>>;
        list(directory: FileId, cursor: u64) -> Answer<Listing>;
        sync_directory(directory: FileId) -> Answer<()>;
        attributes(file: FileId) -> Answer<FileAttributes>;
        xattr(file: FileId, name: &[u8]) -> Answer<Vec<u8>>;
        xattr_names(file: FileId) -> Answer<Vec<u8>>;
        set_xattr(file: FileId, name: &[u8], value: &[u8], mode: XattrMode) -> Answer<()>;
        remove_xattr(file: FileId, name: &[u8]) -> Answer<()>;
        read(open: OpenFile, at: u64, length: usize) -> Answer<Vec<u8>>;
        allocate(open: OpenFile, what: Allocation, range: Range<u64>) -> Answer<FileAttributes>;
        is_unsynced(open: OpenFile) -> bool;
        discard(file: FileId) -> Answer<()>;
        acknowledge_recall(file: FileId) -> Answer<()>;
        register_host(phase: HostPhase) -> Answer<()>;
        unregister_host() -> Answer<()>;
        expect_searches(are_expected: bool) -> ();
        may_have_dead_owner(file: FileId) -> Answer<bool>;
        lock(open: OpenFile, lock: FileLock) -> Answer<()>;
        test_lock(open: OpenFile, lock: FileLock) -> Answer<Option<FileLock>>;
    }
}
