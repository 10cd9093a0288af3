//! The log of a host: the running transaction, group commit, and which slots still need which
//! transactions.
//!
//! 1. Everything appended between two waits is in one transaction, so a write(2) is in the log
//!    whole or not at all.
//! 2. One transaction is in flight at a time; all callers that arrive during that time share the
//!    next. So do those that it answers, if they return soon.
//! 3. A slot is freed when the transaction with its revoke is durable. The tail passes a
//!    transaction when every slot in it is freed; its space is reused when the superblock that says
//!    so is durable.
//! 4. A write reserves space before it begins, holds no file while it waits for space, and no space
//!    while it waits for a file or for another client. A sixteenth of the log is for revokes alone,
//!    so that files can always be freed.
//! 5. After a failed write nothing is acknowledged any more: everything that waits, and every later
//!    call, fails.

use crate::error::HostError;
use crate::record::{BLOCK, FileRecord, STATES_MAX, Slot};
use crate::superblock::HostJournal;
use commit::{HoldTime, Runner, Writers};
use device::{Buffer, World};
use format::jbd2::JournalSuperblock;
use journal::records::{self, RecordFormat, Records, RecordsWanted};
use journal::{
    CircularLog, CommitStamp, Holdings, LogSpace, RunningTransaction, SuperblockImage, begin_log,
    plan_commit, plan_empty_log, plan_tail_update,
};
use runtime::race;
use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use store::{FileAttributes, StoreError, Version};
use units::{BlockRange, HomeBlock, LogBlock, TransactionId};

/// The superblock is written when the tail can move by this part of the log.
const TAIL_SHARE: u32 = 8;
const REVOKE_SHARE: u32 = 16;
/// How long a commit is held for writers about to return. A disk with an arm writes what follows
/// its last write one revolution later, whenever within the revolution it was issued, so there a
/// part of that costs nothing. Commits that take less come from no disk with an arm: the fastest
/// revolution takes 4 ms.
const HOLD: HoldTime = HoldTime::PerCommit { part: 4, commit_min: Duration::from_millis(2) };
/// Part of the log that one transaction may fill.
const TRANSACTION_SHARE: u32 = 4;

pub struct HostLog {
    world: Rc<dyn World>,
    runner: Runner,
    state: RefCell<State>,
    committed: Cell<TransactionId>,
    wanted: Cell<TransactionId>,
    failure: RefCell<Option<String>>,
    closed: Cell<bool>,
    /// Set when the task has ended: nothing of this log is written any more.
    ended: Cell<bool>,
    /// Why no caller gets space any more.
    held_up: RefCell<Option<String>>,
    /// Why no caller gets space for now: files that the store refuses hold the log.
    refusal: RefCell<Option<StoreError>>,
    /// Set when a caller wants a commit.
    work: Event,
    /// Set when a transaction is committed, space was freed, or the log failed.
    progress: Event,
    /// Number of callers that wait for space.
    waiting: Cell<u32>,
    /// Set when nothing runs and a caller waits for space: perhaps the tail can move.
    tail_wanted: Cell<bool>,
    writers: Writers,
    /// Number of writers that wait for the running transaction.
    writers_waiting: Cell<usize>,
    commits: Cell<u64>,
    log_bytes: Cell<u64>,
}

struct State {
    superblock: JournalSuperblock,
    space: CircularLog,
    records: Rc<dyn Records>,
    started: bool,
    running: Running,
    /// Log blocks reserved by writes that have begun.
    reserved: u32,
    /// Number of such writes: each may add a state to any record.
    reservations: usize,
    next_slot: u32,
    /// For each slot that is not freed: the transactions with records of it, and their bytes.
    slots: BTreeMap<Slot, LiveSlot>,
    /// Committed and committing transactions, oldest first, each with its number of slots that are
    /// not freed.
    live: VecDeque<(TransactionId, usize)>,
}

#[derive(Default)]
struct LiveSlot {
    transactions: Vec<TransactionId>,
    bytes: u64,
    /// Bytes of it that the log has or will have, each counted once in each transaction.
    logged_bytes: u64,
}

struct Running {
    transaction: RunningTransaction,
    images: BTreeMap<HomeBlock, Buffer>,
    records: BTreeMap<Slot, FileRecord>,
    freed: Vec<Slot>,
    bytes: u64,
    /// Number of states in the record that has the most.
    states_most: usize,
}

/// Fields of a file record besides the store's attributes, and the bytes that come with it.
#[derive(Clone, Copy)]
pub(crate) struct FileChange<'a> {
    pub is_removed: bool,
    pub at: u64,
    /// The new bytes, or none if only attributes change.
    pub bytes: &'a [u8],
}

/// Space for one write, returned when dropped.
pub(crate) struct LogReservation {
    log: Rc<HostLog>,
    blocks: u32,
}

/// Usage of the log, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HostLogUse {
    pub capacity: u64,
    pub used: u64,
    /// File data that is not in the log yet.
    pub running_bytes: u64,
    /// File data in the log that the store does not have yet.
    pub live_bytes: u64,
}

impl State {
    fn has_space(&self, blocks: u32) -> bool {
        let taken =
            self.records.log_blocks_bound(&self.running.transaction.holdings()) + self.reserved;
        let capacity = self.space.capacity();
        let fits_transaction = taken + blocks <= capacity / TRANSACTION_SHARE;
        let fits_log = taken + blocks + capacity / REVOKE_SHARE <= self.space.free();
        // Each reservation may add a state to the same file.
        fits_transaction && fits_log && self.running.states_most + self.reservations < STATES_MAX
    }
}

impl State {
    /// Returns whether moving the tail would pass a transaction.
    fn can_move_tail(&self, committed: TransactionId) -> bool {
        match self.live.front() {
            Some((id, slots)) => *slots == 0 && committed.is_at_or_after(*id),
            None => self.space.held_before(self.running.transaction.id()) > 0,
        }
    }
}

impl Running {
    fn new(id: TransactionId, world: &dyn World) -> Running {
        Running {
            transaction: RunningTransaction::new(id, world.now(), BLOCK),
            images: BTreeMap::new(),
            records: BTreeMap::new(),
            freed: Vec::new(),
            bytes: 0,
            states_most: 0,
        }
    }
}

impl HostLog {
    /// Opens a log that is clean: recover it first.
    pub async fn open(
        world: Rc<dyn World>,
        journal: &HostJournal,
        format: RecordFormat,
    ) -> Result<Rc<HostLog>, HostError> {
        let mut superblock = journal.read_superblock().await?;
        if !superblock.is_clean() {
            return Err(HostError::Aborted(
                "the log holds records that nobody has recovered".into(),
            ));
        }
        let next = superblock.next_transaction();
        let unit = journal.disk.physical_sector().min(BLOCK.bytes() as u32);
        let wanted = RecordsWanted {
            format,
            unit,
            bytes: true,
            checksums: true,
            transaction_checksum: true,
            wide: true,
            gap_bytes: 0,
        };
        let records = records::begin(&mut superblock, wanted, || world.random());
        let runner = journal.runner(records.block_bytes());
        let state = State {
            space: CircularLog::of(&superblock),
            superblock,
            records,
            started: false,
            running: Running::new(next, &*world),
            reserved: 0,
            reservations: 0,
            next_slot: 1,
            slots: BTreeMap::new(),
            live: VecDeque::new(),
        };
        let log = Rc::new(HostLog {
            runner,
            state: RefCell::new(state),
            committed: Cell::new(next.previous()),
            wanted: Cell::new(next.previous()),
            failure: RefCell::default(),
            closed: Cell::default(),
            ended: Cell::default(),
            held_up: RefCell::default(),
            refusal: RefCell::default(),
            work: Event::default(),
            progress: Event::default(),
            waiting: Cell::default(),
            tail_wanted: Cell::default(),
            writers: Writers::new(HOLD),
            writers_waiting: Cell::default(),
            commits: Cell::default(),
            log_bytes: Cell::default(),
            world,
        });
        let task = log.clone();
        log.world.spawn(Box::pin(async move {
            task.commit_task().await;
            task.ended.set(true);
            task.progress.notify();
        }));
        Ok(log)
    }

    pub fn check(&self) -> Result<(), HostError> {
        self.failure.borrow().clone().map_or(Ok(()), |why| Err(HostError::Aborted(why)))
    }
    fn fail(&self, error: &HostError) {
        self.failure.borrow_mut().get_or_insert_with(|| error.to_string());
        self.progress.notify();
    }

    // Space

    /// Reserves space for a write of `bytes`, and waits for it. The caller must hold no file: other
    /// files may have to be destaged first.
    pub(crate) async fn reserve(
        self: &Rc<Self>,
        bytes: usize,
    ) -> Result<LogReservation, HostError> {
        let blocks = self.blocks_bound(bytes);
        self.waiting.set(self.waiting.get() + 1);
        let result = self.progress.until(|| {
            if let Err(error) = self.check() {
                return Some(Err(error));
            }
            if let Some(why) = &*self.held_up.borrow() {
                return Some(Err(HostError::Lost(why.clone())));
            }
            let state = self.state.borrow();
            if state.has_space(blocks) {
                return Some(Ok(()));
            }
            let id =
                (!state.running.transaction.is_empty()).then(|| state.running.transaction.id());
            let can_move = state.can_move_tail(self.committed.get());
            drop(state);
            // The running transaction may be all that is in the way; otherwise other files free
            // space.
            match id {
                Some(id) => self.want(id),
                None => {
                    if let Some(why) = self.refusal().filter(|_| !can_move) {
                        return Some(Err(why.into()));
                    }
                    self.tail_wanted.set(true);
                    self.work.notify();
                }
            }
            None
        });
        let result = result.await;
        self.waiting.set(self.waiting.get() - 1);
        result?;
        Ok(self.take_reservation(blocks))
    }
    /// Waits until there is space, without reserving it: for a caller that holds no file, and
    /// reserves it with the file.
    pub(crate) async fn until_space(self: &Rc<Self>, bytes: usize) -> Result<(), HostError> {
        self.reserve(bytes).await.map(drop)
    }
    /// Reserves space if there is some, for a caller that holds a file.
    pub(crate) fn reserve_at_once(
        self: &Rc<Self>,
        bytes: usize,
    ) -> Result<Option<LogReservation>, HostError> {
        self.check()?;
        if let Some(why) = &*self.held_up.borrow() {
            return Err(HostError::Lost(why.clone()));
        }
        let blocks = self.blocks_bound(bytes);
        let has_space = self.state.borrow().has_space(blocks);
        Ok(has_space.then(|| self.take_reservation(blocks)))
    }
    /// Reserves space for a caller that holds a file, and so must not wait for others' space. At
    /// most the running transaction is committed for it.
    pub(crate) async fn try_reserve(
        self: &Rc<Self>,
        bytes: usize,
    ) -> Result<Option<LogReservation>, HostError> {
        self.check()?;
        let blocks = self.blocks_bound(bytes);
        if !self.state.borrow().has_space(blocks) {
            self.commit_all().await?;
        }
        let has_space = self.state.borrow().has_space(blocks);
        Ok(has_space.then(|| self.take_reservation(blocks)))
    }
    /// Makes callers that wait for space, and find none, fail with this error. `None`: space will
    /// come.
    pub fn refuse(&self, why: Option<StoreError>) {
        *self.refusal.borrow_mut() = why;
        self.progress.notify();
    }
    pub fn refusal(&self) -> Option<StoreError> {
        self.refusal.borrow().clone()
    }
    /// Returns whether a quarter of the log was written since the slot was begun.
    pub fn is_old(&self, slot: Slot) -> bool {
        let state = self.state.borrow();
        let first = state.slots.get(&slot).and_then(|live| live.transactions.first());
        let used = state.space.capacity() - state.space.free();
        first.is_some_and(|first| {
            used - state.space.held_before(*first) >= state.space.capacity() / 4
        })
    }

    fn blocks_bound(&self, bytes: usize) -> u32 {
        let fragments = (bytes >> BLOCK.shift()) as u64 + 2;
        let wanted = Holdings { blocks: 1, fragments, fragment_bytes: bytes as u64, revokes: 0 };
        self.state.borrow().records.log_blocks_bound(&wanted)
    }
    fn take_reservation(self: &Rc<Self>, blocks: u32) -> LogReservation {
        let mut state = self.state.borrow_mut();
        state.reserved += blocks;
        state.reservations += 1;
        LogReservation { log: self.clone(), blocks }
    }
    /// Returns whether the log is so full that files should be destaged.
    pub fn is_short(&self) -> bool {
        let state = self.state.borrow();
        state.space.free() < state.space.capacity() / 2
    }
    /// Waits until [`HostLog::is_short`]; checks again when a transaction is committed.
    pub async fn until_short(&self) {
        self.progress.until(|| self.is_short().then_some(())).await
    }
    pub fn usage(&self) -> HostLogUse {
        let state = self.state.borrow();
        let unit = state.records.block_bytes() as u64;
        let capacity = u64::from(state.space.capacity());
        HostLogUse {
            capacity: capacity * unit,
            used: (capacity - u64::from(state.space.free())) * unit,
            running_bytes: state.running.bytes,
            live_bytes: state
                .slots
                .values()
                .map(|slot| slot.bytes)
                .sum::<u64>()
                .saturating_sub(state.running.bytes),
        }
    }
    pub fn commits(&self) -> (u64, u64) {
        (self.commits.get(), self.log_bytes.get())
    }

    // What is logged

    /// Returns the bytes of the slot's file data that the log has or will have, each counted once
    /// in each transaction.
    pub fn logged_bytes(&self, slot: Slot) -> u64 {
        self.state.borrow().slots.get(&slot).map_or(0, |slot| slot.logged_bytes)
    }
    pub fn new_slot(&self) -> Slot {
        let mut state = self.state.borrow_mut();
        // Numbers wrap after 2^32; revokes hide only what came before them.
        while state.slots.contains_key(&Slot(state.next_slot)) {
            state.next_slot = state.next_slot.wrapping_add(1);
        }
        let slot = Slot(state.next_slot);
        state.next_slot = slot.0.wrapping_add(1);
        slot
    }

    /// Logs a change of a file, of which the store has reported these attributes, and returns the
    /// transaction that has it. The caller must hold a [`LogReservation`] that is large enough.
    pub(crate) fn append(
        &self,
        _reservation: &LogReservation,
        slot: Slot,
        base: Version,
        attributes: &FileAttributes,
        FileChange { is_removed, at, bytes }: FileChange,
    ) -> TransactionId {
        let state = &mut *self.state.borrow_mut();
        let running = &mut state.running;
        let id = running.transaction.id();
        running.transaction.open_handle(0);
        let before = bytes_held(&running.transaction);
        let mut done = 0;
        while done < bytes.len() {
            let from = at + done as u64;
            let within = (from & (BLOCK.bytes() as u64 - 1)) as usize;
            let count = (bytes.len() - done).min(BLOCK.bytes() - within);
            let home = slot
                .block_at(from >> BLOCK.shift())
                .expect("no write lies so far: the file system checks");
            let image = running.images.entry(home).or_insert_with(|| Buffer::zeroed(BLOCK.bytes()));
            image[within..within + count].copy_from_slice(&bytes[done..done + count]);
            let range = BlockRange::new(within as u32, (within + count) as u32);
            running.transaction.add_data_bytes(home, range, false);
            done += count;
        }
        let logged = bytes_held(&running.transaction) - before;
        let record =
            running.records.entry(slot).or_insert_with(|| FileRecord::new(base, attributes));
        record.add(attributes);
        record.is_removed = is_removed;
        running.states_most = running.states_most.max(record.states.len());
        running.bytes += bytes.len() as u64;
        // Counted as a whole block until the commit: its final content is not known yet.
        running.transaction.add_metadata(slot.record_at(), &[BlockRange::new(0, 1)]);
        running.transaction.close_handle(0);
        let live = state.slots.entry(slot).or_default();
        live.bytes += bytes.len() as u64;
        live.logged_bytes += logged;
        if live.transactions.last() != Some(&id) {
            live.transactions.push(id);
        }
        id
    }

    /// Frees the slot: the store has made everything of it durable.
    pub fn free(&self, slot: Slot) -> TransactionId {
        let state = &mut *self.state.borrow_mut();
        let running = &mut state.running;
        let id = running.transaction.id();
        debug_assert!(
            !running.records.contains_key(&slot),
            "{slot:?} is freed behind what was appended to it"
        );
        if state.slots.contains_key(&slot) {
            running.transaction.open_handle(0);
            running.transaction.free(slot.record_at(), true);
            running.transaction.close_handle(0);
            running.freed.push(slot);
        }
        id
    }

    // Commit

    pub fn running_id(&self) -> TransactionId {
        self.state.borrow().running.transaction.id()
    }
    fn want(&self, id: TransactionId) {
        if id.is_after(self.wanted.get()) {
            self.wanted.set(id);
            self.work.notify();
        }
    }
    /// Starts a commit as [`HostLog::commit_all`] does, and does not wait for it.
    pub(crate) fn begin_commit(&self) {
        self.want(self.running_id());
    }
    /// Makes a transaction durable, and all before it.
    pub async fn commit(&self, id: TransactionId) -> Result<(), HostError> {
        if self.state.borrow().running.transaction.is_empty() && id == self.running_id() {
            // It is still empty, but the one before may be in flight.
            return self.until_committed(id.previous()).await;
        }
        if id == self.running_id() {
            self.writers_waiting.set(self.writers_waiting.get() + 1);
            self.writers.came_back();
            if self.writers.are_back() {
                self.work.notify();
            }
        }
        self.want(id);
        self.until_committed(id).await
    }
    async fn until_committed(&self, id: TransactionId) -> Result<(), HostError> {
        let done = || match self.check() {
            Err(error) => Some(Err(error)),
            Ok(()) => self.committed.get().is_at_or_after(id).then_some(Ok(())),
        };
        self.progress.until(done).await
    }
    /// Makes everything durable that was appended up to now.
    pub async fn commit_all(&self) -> Result<(), HostError> {
        self.commit(self.running_id()).await
    }

    async fn commit_task(&self) {
        loop {
            let is_due = || self.wanted.get().is_at_or_after(self.running_id());
            let wanted = || (self.closed.get() || is_due() || self.tail_wanted.get()).then_some(());
            self.work.until(wanted).await;
            if self.closed.get() || self.check().is_err() {
                return;
            }
            let result = match self.tail_wanted.replace(false) {
                true => self.move_tail().await,
                false => {
                    self.gather().await;
                    self.commit_running().await
                }
            };
            if let Err(error) = result {
                self.fail(&error);
                return;
            }
        }
    }

    /// Waits for the writers that the last commit answered. A caller that waits for space ends the
    /// wait.
    async fn gather(&self) {
        let may_begin = || {
            let is_over = self.closed.get() || self.check().is_err();
            (is_over || self.waiting.get() > 0 || self.writers.are_back()).then_some(())
        };
        if let Some(hold) = self.writers.hold(self.writers_waiting.get()) {
            race(self.work.until(may_begin), self.world.sleep_until(hold.until)).await;
        }
    }

    async fn commit_running(&self) -> Result<(), HostError> {
        self.writers.give_up();
        let (count, begun) = (self.writers_waiting.take(), self.world.now());
        let (id, freed, plan) = {
            let state = &mut *self.state.borrow_mut();
            if state.running.transaction.is_empty() {
                // Wanted by a caller whose records are committed already.
                self.wanted.set(state.running.transaction.id().previous());
                return Ok(());
            }
            let next = Running::new(state.running.transaction.id().next(), &*self.world);
            let mut taken = std::mem::replace(&mut state.running, next);
            for (slot, record) in &taken.records {
                let bytes = record.to_bytes();
                let mut image = Buffer::zeroed(BLOCK.bytes());
                image[..bytes.len()].copy_from_slice(&bytes);
                taken
                    .transaction
                    .add_metadata(slot.record_at(), &[BlockRange::new(0, bytes.len() as u32)]);
                taken.images.insert(slot.record_at(), image);
            }
            let id = taken.transaction.id();
            let images: BTreeMap<HomeBlock, Rc<Buffer>> =
                taken.images.into_iter().map(|(at, image)| (at, Rc::new(image))).collect();
            let image =
                |at: HomeBlock| images.get(&at).expect("an image of all that is logged").clone();
            let stamp =
                CommitStamp { time: self.world.wall_clock(), durable: self.committed.get() };
            let locked = taken.transaction.lock();
            let mut planned =
                plan_commit(&locked, &image, &mut state.space, &*state.records, &stamp)
                    .map_err(|error| HostError::Aborted(error.to_string()))?;
            state.live.push_back((id, taken.records.len()));
            let runs = planned.issue(&mut state.space);
            if !state.started {
                state.started = true;
                let start = runs.start().expect("a commit has log blocks");
                state.superblock.set_tail(id, start);
                begin_log(&mut planned.plan, image_of(&state.superblock));
            }
            self.log_bytes.set(self.log_bytes.get() + planned.log_bytes());
            (id, taken.freed, planned.plan)
        };
        self.runner.run(plan).await?;
        self.commits.set(self.commits.get() + 1);
        self.committed.set(id);
        let now = self.world.now();
        self.writers.answered(count, now.since(begun), now);
        self.forget(&freed);
        self.progress.notify();
        self.move_tail().await
    }

    /// Forgets the freed slots; their revokes are durable.
    fn forget(&self, freed: &[Slot]) {
        let state = &mut *self.state.borrow_mut();
        for slot in freed {
            let Some(live) = state.slots.remove(slot) else { continue };
            for id in live.transactions {
                let front = state.live.front().map_or(id, |(front, _)| *front);
                let index = id.0.wrapping_sub(front.0) as usize;
                state
                    .live
                    .get_mut(index)
                    .expect("a transaction with a live slot is in the log")
                    .1 -= 1;
            }
        }
    }

    /// Moves the tail to the oldest transaction that a slot needs, or to the next one.
    async fn move_tail(&self) -> Result<(), HostError> {
        let moved =
            {
                let state = &mut *self.state.borrow_mut();
                while state.live.front().is_some_and(|(id, slots)| {
                    *slots == 0 && self.committed.get().is_at_or_after(*id)
                }) {
                    state.live.pop_front();
                }
                let next = state.running.transaction.id();
                let tail = state.live.front().map_or(next, |(id, _)| *id);
                let gain = state.space.held_before(tail);
                let is_wanted = gain > 0
                    && (self.waiting.get() > 0 || gain >= state.space.capacity() / TAIL_SHARE);
                if !is_wanted {
                    return Ok(());
                }
                let mut superblock = state.superblock.clone();
                superblock.set_tail(
                    tail,
                    state.space.start_of(tail).expect("the tail, or the next transaction"),
                );
                (tail, superblock)
            };
        let (tail, superblock) = moved;
        // Home is durable already: a slot is freed only after the store's fsync.
        self.runner.run(plan_tail_update(image_of(&superblock))).await?;
        let state = &mut *self.state.borrow_mut();
        state.superblock = superblock;
        state.space.release_before(tail);
        self.progress.notify();
        Ok(())
    }

    /// Fails the callers that wait for space: the store is out of reach, so that none will come.
    pub fn hold_up(&self, why: &str) {
        self.held_up.borrow_mut().get_or_insert_with(|| why.into());
        self.progress.notify();
    }
    /// Commits, and ends the log for its recovery: nothing is written any more.
    pub async fn end(&self) -> Result<(), HostError> {
        self.commit_all().await?;
        self.closed.set(true);
        self.work.notify();
        // The tail update may be in flight, and must not follow what others write.
        self.progress.until(|| self.ended.get().then_some(())).await;
        self.check()
    }

    /// Returns whether the store has everything of every file.
    pub fn has_no_slots(&self) -> bool {
        self.state.borrow().slots.is_empty()
    }
    /// Commits, marks the log empty if no slot is left, and ends it: nothing is accepted any more.
    pub async fn close(&self) -> Result<(), HostError> {
        self.end().await?;
        let superblock = {
            let state = self.state.borrow();
            if !state.slots.is_empty() || !state.started {
                return self.check();
            }
            let mut superblock = state.superblock.clone();
            superblock.set_clean(self.committed.get());
            records::clear(&mut superblock, true);
            superblock
        };
        Ok(self.runner.run(plan_empty_log(Some(image_of(&superblock)))).await?)
    }
}

/// Returns the bytes of content, which do not shrink while file data is added.
fn bytes_held(transaction: &RunningTransaction) -> u64 {
    let held = transaction.holdings();
    (held.blocks << BLOCK.shift()) + held.fragment_bytes
}

pub(crate) fn image_of(superblock: &JournalSuperblock) -> SuperblockImage {
    SuperblockImage { at: LogBlock(0), image: Rc::new(Buffer::copy_of(&superblock.serialize())) }
}

impl Drop for LogReservation {
    fn drop(&mut self) {
        let mut state = self.log.state.borrow_mut();
        state.reserved -= self.blocks;
        state.reservations -= 1;
        drop(state);
        if self.log.waiting.get() > 0 {
            self.log.progress.notify();
        }
    }
}
