//! The files that the daemon refers to, by their numbers.

use super::gate::Gate;
use super::recent_lookups::{RecentLookups, watched};
use crate::library::{DropDetector, Errno, Handle, Inode, Mount, SessionLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use store::{FileId, Token};

pub struct Files {
    pub mount: &'static Mount,
    pub session: SessionLock,
    pub drop_detector: DropDetector,
    root: FileId,
    table: Mutex<BTreeMap<FileId, Arc<File>>>,
    /// Grants, by the number that identifies their recall.
    pub(super) grants: Mutex<BTreeMap<u64, Arc<File>>>,
    pub(super) last_grant: AtomicU64,
    /// Directories to which names of theirs were moved since their last sync, and the
    /// number of the last such rename.
    moved_to: Mutex<BTreeMap<FileId, BTreeMap<FileId, u64>>>,
    renames: AtomicU64,
    pub gate: Arc<Gate>,
}

pub struct File {
    pub id: FileId,
    pub inode: Arc<Inode>,
    state: Mutex<State>,
    /// Lock held by the thread that returns a token.
    pub(super) returning: Mutex<()>,
}

#[derive(Default)]
pub struct State {
    /// One handle for every opener: the library grants a token only while the file is open once.
    pub handle: Option<Arc<Handle>>,
    pub writes: bool,
    pub opens: u32,
    pub held: Option<HeldToken>,
    /// The errno of a sync. T4: the library forgets it and reports success for the next.
    pub failure: Option<Errno>,
    /// Number of calls of this file that are in the library.
    pub busy: usize,
    /// Number of calls that make its states durable: the daemon's journal has all of them.
    pub(super) syncing: usize,
    /// Number of changes that have begun or ended, and how many of those the latest sync had seen.
    pub changes: u64,
    pub synced: u64,
    /// Number of times the library had dropped content before the first change that is not synced.
    pub drops: Option<u64>,
    pub recent_lookups: RecentLookups,
    /// Owners of locks, which belong to the handle.
    lockers: BTreeSet<u64>,
    /// Whether a call writes, which may extend the file, and whether it has the lock for that.
    /// Changed under `returning`.
    pub(super) extends: bool,
    pub(super) has_extension_lock: bool,
    /// Whether it has lost its last name.
    pub is_gone: bool,
    /// Whether it is to be closed after the answer.
    ends: bool,
}

impl State {
    pub(super) fn is_settled(&self) -> bool {
        self.failure.is_none() && self.changes == self.synced
    }
}

/// A token, until it is returned.
#[derive(Clone)]
pub struct HeldToken {
    pub token: Token,
    pub number: u64,
    pub handle: Arc<Handle>,
    /// Whether the daemon recovers the file.
    pub to_recover: bool,
    pub recalled: Option<Instant>,
    /// Whether the daemon's journal has the reported states.
    pub is_acknowledged: bool,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl File {
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
    pub fn is_recalled(&self) -> bool {
        self.state().held.as_ref().is_some_and(|held| held.recalled.is_some())
    }
    /// Returns whether the daemon recovers the file.
    pub fn is_recovered(&self) -> bool {
        self.state().held.as_ref().is_some_and(|held| held.to_recover)
    }
    /// Returns whether it is recalled, and has reported states that the daemon's journal may not
    /// have.
    pub fn is_unacknowledged(&self) -> bool {
        self.state()
            .held
            .as_ref()
            .is_some_and(|held| held.recalled.is_some() && !held.is_acknowledged)
    }
    /// Runs a lookup of the file, or of a name in it.
    pub fn look<T>(&self, look: impl FnOnce() -> T) -> T {
        let (answer, has_waited) = watched(look);
        self.state().recent_lookups.note(has_waited);
        answer
    }
    /// Returns whether the servers have acknowledged everything.
    pub fn is_settled(&self) -> bool {
        self.state().is_settled()
    }
    /// Begins the last close of a file without a name. Returns whether something is buffered of it.
    pub fn begin_end(&self) -> bool {
        let mut state = self.state();
        state.ends = state.is_gone && !state.is_settled();
        state.ends
    }
    pub fn ends(&self) -> bool {
        std::mem::take(&mut self.state().ends)
    }
    pub fn has(&self, token: Token) -> bool {
        self.state().held.as_ref().is_some_and(|held| held.token == token)
    }

    pub fn open(&self, write: bool) -> Result<(), Errno> {
        self.handle(write)?;
        self.state().opens += 1;
        Ok(())
    }

    /// Returns the open file, for writing if `write`. One that cannot write is replaced by one that
    /// can.
    pub fn handle(&self, write: bool) -> Result<Arc<Handle>, Errno> {
        {
            let state = self.state();
            if let Some(handle) = &state.handle {
                if state.writes || !write {
                    return Ok(handle.clone());
                }
            }
        }
        self.reopen(write)
    }

    /// Returns the open file that is to carry a token. The library grants none for reading while
    /// the file is open for writing, even by this client. A file that cannot be reopened, such as
    /// one without a name, keeps its handle; other clients' requests then count as usual.
    pub fn handle_for(&self, token: Token) -> Result<Arc<Handle>, Errno> {
        let handle = self.handle(token == Token::ExclusiveWrite)?;
        match token {
            Token::SharedRead if self.state().writes && self.state().lockers.is_empty() => {
                self.reopen(false).or(Ok(handle))
            }
            _ => Ok(handle),
        }
    }

    /// Opens for writing before there are locks: they would be lost when the file is reopened
    /// later.
    pub fn handle_for_locks(&self) -> Result<Arc<Handle>, Errno> {
        let is_locked = !self.state().lockers.is_empty();
        self.handle(!is_locked).or_else(|_| self.handle(false))
    }
    pub fn note_lock(&self, owner: u64, is_set: bool, is_whole: bool) {
        let lockers = &mut self.state().lockers;
        match is_set {
            true => drop(lockers.insert(owner)),
            false if is_whole => drop(lockers.remove(&owner)),
            false => {}
        }
    }

    fn reopen(&self, write: bool) -> Result<Arc<Handle>, Errno> {
        let handle = Arc::new(self.inode.open(write)?);
        let mut state = self.state();
        state.writes = write;
        let former = state.handle.replace(handle.clone());
        drop(state);
        // Closed without the lock, as closing is a call.
        drop(former);
        Ok(handle)
    }

    /// Returns whether no opener is left.
    pub fn close(&self) -> bool {
        let mut state = self.state();
        state.opens = state.opens.saturating_sub(1);
        state.opens == 0
    }
    /// Closes after the last opener. The failure of a sync is dropped with the open file.
    pub fn release(&self) {
        let mut state = self.state();
        let former = state.handle.take();
        (state.writes, state.failure, state.drops) = (false, None, None);
        state.lockers.clear();
        drop(state);
        drop(former);
    }
}

impl Files {
    /// Creates the table of a connection that serves `root`, whose number is `id`.
    pub fn new(
        mount: &'static Mount,
        (session, drop_detector): (SessionLock, DropDetector),
        (root, id): (Inode, FileId),
        gate: Arc<Gate>,
    ) -> Files {
        let files = Files {
            mount,
            session,
            drop_detector,
            root: id,
            table: Mutex::default(),
            grants: Mutex::default(),
            last_grant: AtomicU64::new(0),
            moved_to: Mutex::default(),
            renames: AtomicU64::new(0),
            gate,
        };
        files.keep(root, id);
        files
    }

    /// Keeps a file to which a call gave a reference.
    pub fn keep(&self, inode: Inode, id: FileId) -> Arc<File> {
        let mut table = lock(&self.table);
        let entry = table.entry(id);
        let mut spare = Some(inode);
        let file = entry.or_insert_with(|| {
            let inode = Arc::new(spare.take().expect("not yet taken"));
            Arc::new(File { id, inode, state: Mutex::default(), returning: Mutex::default() })
        });
        let file = file.clone();
        drop(table);
        // The surplus reference is returned without the lock.
        drop(spare);
        file
    }

    /// Returns whether a held file is recalled, or is about to be.
    pub fn meets_recall(&self, file: &File) -> bool {
        let state = file.state();
        let is_met = |held: &HeldToken| held.recalled.is_some() || self.gate.keeps(held.number);
        state.held.as_ref().is_some_and(is_met)
    }

    /// Records that the daemon's journal has every reported state of a recalled file.
    pub fn acknowledge_recall(&self, id: FileId) {
        let Some(file) = self.known(id) else { return };
        let mut state = file.state();
        if let Some(held) = state.held.as_mut().filter(|held| held.recalled.is_some()) {
            held.is_acknowledged = true;
            self.gate.open(held.number);
        }
    }

    pub fn known(&self, id: FileId) -> Option<Arc<File>> {
        lock(&self.table).get(&id).cloned()
    }
    pub fn all(&self) -> Vec<Arc<File>> {
        lock(&self.table).values().cloned().collect()
    }

    /// Returns a file, also one that this connection never looked up, as after a crash.
    pub fn get(&self, id: FileId) -> Result<Arc<File>, Errno> {
        if let Some(file) = self.known(id) {
            return Ok(file);
        }
        let inode = self.mount.find(id.0)?;
        Ok(self.keep(inode, id))
    }

    /// Records a rename.
    pub fn note_move(&self, from: FileId, to: FileId) {
        if from != to && !units::fault!("ceph-rename-of-one-directory") {
            let number = self.renames.fetch_add(1, Ordering::Relaxed);
            lock(&self.moved_to).entry(from).or_default().insert(to, number);
        }
    }
    /// Makes the names of a directory durable, and that those which moved are elsewhere. T15: the
    /// library takes a rename for a change of the new directory alone.
    pub fn sync_names(&self, directory: FileId) -> Result<(), Errno> {
        let moved_to = lock(&self.moved_to).get(&directory).cloned().unwrap_or_default();
        for (other, number) in moved_to {
            match self.get(other).and_then(|other| other.inode.sync()) {
                // Removed since, and only an empty directory can be.
                Err(Errno(libc::ESTALE | libc::ENOENT)) => {}
                synced => synced?,
            }
            // Only now: another sync of this directory waits for the same.
            let mut moves = lock(&self.moved_to);
            if let Some(moved_to) = moves.get_mut(&directory) {
                moved_to.retain(|to, last| (*to, *last) != (other, number));
                if moved_to.is_empty() {
                    moves.remove(&directory);
                }
            }
        }
        self.get(directory)?.inode.sync()
    }

    pub fn forget(&self, id: FileId) {
        if id == self.root {
            return;
        }
        let mut table = lock(&self.table);
        let is_idle = table.get(&id).is_some_and(|file| {
            let state = file.state();
            state.opens == 0 && state.held.is_none() && state.busy == 0
        });
        let forgotten = is_idle.then(|| table.remove(&id));
        drop(table);
        drop(forgotten);
    }
}
