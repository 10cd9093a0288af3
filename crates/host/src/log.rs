//! The log of a host: what its transactions hold, space for them, and which slots still need which
//! transactions. Commits are those of the crate `commit`.
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
use commit::{CommitDelayPolicy, Completion, LogSuperblock, Pipeline, PlanExecutor};
use device::{Buffer, World};
use journal::records::{self, RecordFormat, Records, RecordsWanted};
use journal::{
    Checkpoint, CircularLog, CommitPlan, CommitStamp, CommittedTransaction, CommittingTransaction,
    Coverage, Holdings, LogSpace, RunningTransaction, begin_log, plan_commit, plan_empty_log,
    plan_tail_update,
};
use runtime::sync::Event;
use runtime::{Either, race};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use store::{FileAttributes, StoreError, Version};
use units::{BlockRange, HomeBlock, LogBlock, TransactionId};

/// The superblock is written when the tail can move by this part of the log.
const TAIL_SHARE: u32 = 8;
const REVOKE_SHARE: u32 = 16;
/// Time for which a commit is held for writers about to return. A disk with an arm writes what
/// follows its last write one revolution later, whenever within the revolution it was issued, so
/// there a part of that costs nothing. Commits that take less come from no disk with an arm: the
/// fastest revolution takes 4 ms.
const COMMIT_DELAY: CommitDelayPolicy =
    CommitDelayPolicy::PerCommit { part: 4, commit_min: Duration::from_millis(2) };
/// Part of the log that one transaction may fill.
const TRANSACTION_SHARE: u32 = 4;

pub struct HostLog {
    world: Rc<dyn World>,
    executor: PlanExecutor,
    pipeline: Pipeline,
    state: RefCell<State>,
    /// Ends with the task: nothing of this log is written any more.
    task: Rc<Completion>,
    /// Reason why no caller gets space any more.
    held_up: RefCell<Option<String>>,
    /// The store's error for which no caller gets space for now: files that it refuses hold the
    /// log.
    refusal: RefCell<Option<StoreError>>,
    /// Set when nothing runs and a caller waits for space: perhaps the tail can move.
    tail_wanted: Cell<bool>,
    /// Set when a transaction is committed, or callers that wait for space look again.
    progress: Event,
    /// Number of callers that wait for space.
    waiting: Cell<u32>,
    commits: Cell<u64>,
    log_bytes: Cell<u64>,
}

struct State {
    superblock: LogSuperblock,
    space: CircularLog,
    records: Rc<dyn Records>,
    /// Transactions that live slots need: a slot counts as a block of home, which is
    /// its record's.
    checkpoint: Checkpoint,
    running: RunningRecords,
    /// Log blocks reserved by writes that have begun.
    reserved: u32,
    /// Number of such writes: each may add a state to any record.
    reservations: usize,
    next_slot: u32,
    /// Slots that are not freed.
    slots: BTreeMap<Slot, LiveSlot>,
}

struct LiveSlot {
    /// The first transaction with records of it.
    first: TransactionId,
    bytes: u64,
    /// Bytes of it that the log has or will have, each counted once in each transaction.
    logged_bytes: u64,
}

/// Records of the running transaction.
#[derive(Default)]
struct RunningRecords {
    images: BTreeMap<HomeBlock, Buffer>,
    files: BTreeMap<Slot, FileRecord>,
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

/// Counts a caller that waits for space until it is dropped: callers may give up.
struct Waiting<'a>(&'a Cell<u32>);
impl Waiting<'_> {
    fn of(count: &Cell<u32>) -> Waiting<'_> {
        count.set(count.get() + 1);
        Waiting(count)
    }
}
impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !units::fault!("host-waiting-forgotten") {
            self.0.set(self.0.get() - 1);
        }
    }
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
    /// Whether the log has space for `blocks`; `running` is the content of the running transaction.
    fn has_space(&self, blocks: u32, running: &Holdings) -> bool {
        let taken = self.records.log_blocks_bound(running) + self.reserved;
        let capacity = self.space.capacity();
        let fits_transaction = taken + blocks <= capacity / TRANSACTION_SHARE;
        let fits_log = taken + blocks + capacity / REVOKE_SHARE <= self.space.free();
        // Each reservation may add a state to the same file.
        fits_transaction && fits_log && self.running.states_most + self.reservations < STATES_MAX
    }
    /// A transaction is durable in the log. The slots that it has freed are forgotten.
    fn committed(&mut self, mut committed: CommittedTransaction) {
        // A slot needs all of its records, whichever came last.
        let need = |(at, _)| Slot::of(at).1.is_none().then_some((at, Coverage::Fragment));
        committed.records = committed.records.into_iter().filter_map(need).collect();
        self.checkpoint.committed(&committed);
        for at in committed.revoked {
            self.slots.remove(&Slot::of(at).0);
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
        let executor = journal.executor(records.block_bytes());
        let state = State {
            space: CircularLog::of(&superblock),
            superblock: LogSuperblock::new(superblock, LogBlock(0), false),
            records,
            checkpoint: Checkpoint::new(next),
            running: RunningRecords::default(),
            reserved: 0,
            reservations: 0,
            next_slot: 1,
            slots: BTreeMap::new(),
        };
        let log = Rc::new(HostLog {
            executor,
            state: RefCell::new(state),
            pipeline: Pipeline::new(next, world.now(), BLOCK, COMMIT_DELAY, false),
            task: Rc::default(),
            held_up: RefCell::default(),
            refusal: RefCell::default(),
            tail_wanted: Cell::default(),
            progress: Event::default(),
            waiting: Cell::default(),
            commits: Cell::default(),
            log_bytes: Cell::default(),
            world,
        });
        let this = log.clone();
        log.world.spawn(Box::pin(async move {
            this.commit_task().await;
            this.task.complete(Ok(()));
        }));
        Ok(log)
    }

    pub fn check(&self) -> Result<(), HostError> {
        Ok(self.pipeline.check()?)
    }

    // Space

    /// Reserves space for a write of `bytes`, and waits for it. The caller must hold no file: other
    /// files may have to be destaged first.
    pub(crate) async fn reserve(
        self: &Rc<Self>,
        bytes: usize,
    ) -> Result<LogReservation, HostError> {
        let blocks = self.blocks_bound(bytes);
        let _waiting = Waiting::of(&self.waiting);
        let admitted = self.progress.until(|| match self.admit(blocks) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        });
        admitted.await.map(|()| self.take_reservation(blocks))
    }
    /// Whether there is space. If not, starts what may free some.
    fn admit(&self, blocks: u32) -> Result<bool, HostError> {
        self.check_space()?;
        if self.has_space(blocks) {
            return Ok(true);
        }
        // The running transaction may be all that is in the way; otherwise other files free space.
        if self.pipeline.has_something_to_commit() {
            self.begin_commit();
        } else if let Some(why) = self.refusal().filter(|_| !self.can_move_tail()) {
            return Err(HostError::NoRoom(why));
        } else {
            self.tail_wanted.set(true);
            self.pipeline.wake_tasks();
        }
        Ok(false)
    }
    /// Fails if nobody gets space any more.
    fn check_space(&self) -> Result<(), HostError> {
        self.check()?;
        let held_up = self.held_up.borrow();
        held_up.as_ref().map_or(Ok(()), |why| Err(HostError::Lost(why.clone())))
    }
    fn has_space(&self, blocks: u32) -> bool {
        self.state.borrow().has_space(blocks, &self.pipeline.holdings())
    }
    /// Whether moving the tail would pass a transaction.
    fn can_move_tail(&self) -> bool {
        let state = self.state.borrow();
        state.space.held_before(state.checkpoint.tail()) > 0
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
        self.check_space()?;
        let blocks = self.blocks_bound(bytes);
        Ok(self.has_space(blocks).then(|| self.take_reservation(blocks)))
    }
    /// Reserves space for a caller that holds a file, and so must not wait for others' space. At
    /// most the running transaction is committed for it.
    pub(crate) async fn try_reserve(
        self: &Rc<Self>,
        bytes: usize,
    ) -> Result<Option<LogReservation>, HostError> {
        self.check()?;
        let blocks = self.blocks_bound(bytes);
        if !self.has_space(blocks) {
            self.commit_all().await?;
        }
        Ok(self.has_space(blocks).then(|| self.take_reservation(blocks)))
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
        let used = state.space.capacity() - state.space.free();
        state.slots.get(&slot).is_some_and(|slot| {
            used - state.space.held_before(slot.first) >= state.space.capacity() / 4
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
        let (running, mut transaction) = (&mut state.running, self.pipeline.transaction());
        let id = transaction.id();
        transaction.open_handle(0);
        let before = bytes_held(&transaction);
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
            transaction.add_data_bytes(home, range, false);
            done += count;
        }
        let logged = bytes_held(&transaction) - before;
        let record = running.files.entry(slot).or_insert_with(|| FileRecord::new(base, attributes));
        record.add(attributes);
        record.is_removed = is_removed;
        running.states_most = running.states_most.max(record.states.len());
        running.bytes += bytes.len() as u64;
        // Counted as a whole block until the commit: its final content is not known yet.
        transaction.add_metadata(slot.record_at(), &[BlockRange::new(0, 1)]);
        transaction.close_handle(0);
        let fresh = LiveSlot { first: id, bytes: 0, logged_bytes: 0 };
        let live = state.slots.entry(slot).or_insert(fresh);
        live.bytes += bytes.len() as u64;
        live.logged_bytes += logged;
        id
    }

    /// Frees the slot: the store has made everything of it durable.
    pub fn free(&self, slot: Slot) -> TransactionId {
        let (state, mut transaction) = (self.state.borrow(), self.pipeline.transaction());
        debug_assert!(
            !state.running.files.contains_key(&slot),
            "{slot:?} is freed behind what was appended to it"
        );
        if state.slots.contains_key(&slot) {
            transaction.open_handle(0);
            transaction.free(slot.record_at(), true);
            transaction.close_handle(0);
        }
        transaction.id()
    }

    // Commit

    pub fn running_id(&self) -> TransactionId {
        self.pipeline.running_id()
    }
    /// Starts a commit as [`HostLog::commit_all`] does, and does not wait for it.
    pub(crate) fn begin_commit(&self) {
        self.pipeline.request(self.running_id());
    }
    /// Makes a transaction durable, and all before it.
    pub async fn commit(&self, id: TransactionId) -> Result<(), HostError> {
        self.check()?;
        if id == self.running_id() && self.pipeline.has_something_to_commit() {
            self.pipeline.note_writer_arrival();
        }
        let Some(completion) = self.pipeline.completion_of(id) else { return Ok(()) };
        let log_ends = async {
            match units::fault!("host-commit-behind-the-end") {
                true => std::future::pending().await,
                false => self.task.wait().await,
            }
        };
        match race(completion.wait(), log_ends).await {
            Either::Left(committed) => Ok(committed?),
            // Nobody commits any more what came behind the last transaction.
            Either::Right(_) if self.pipeline.committed().is_at_or_after(id) => Ok(()),
            Either::Right(_) => {
                self.check_space()?;
                Err(HostError::Closing)
            }
        }
    }
    /// Makes everything durable that was appended up to now.
    pub async fn commit_all(&self) -> Result<(), HostError> {
        self.commit(self.running_id()).await
    }

    async fn commit_task(&self) {
        let pipeline = &self.pipeline;
        loop {
            pipeline.until(|| pipeline.is_wanted() || self.tail_wanted.get()).await;
            if pipeline.has_ended() {
                return;
            }
            let result = match self.tail_wanted.replace(false) {
                true => self.move_tail().await,
                false => {
                    pipeline.delay_commit(&*self.world, || self.waiting.get() > 0).await;
                    self.commit_running().await
                }
            };
            if let Err(error) = result {
                pipeline.fail(&error, false);
                self.progress.notify();
                return;
            }
        }
    }

    async fn commit_running(&self) -> Result<(), HostError> {
        if self.pipeline.skip_empty() {
            return Ok(());
        }
        let (mut planned, transaction) = self.lock()?;
        self.executor.run(std::mem::take(&mut planned.plan)).await?;
        self.commits.set(self.commits.get() + 1);
        let committed = planned.carried_out(transaction);
        let id = committed.id;
        self.state.borrow_mut().committed(committed);
        self.pipeline.finish(id, self.world.now());
        self.progress.notify();
        self.move_tail().await
    }

    /// Takes the running transaction. Returns its plan, with its addresses in the log.
    fn lock(&self) -> Result<(CommitPlan, CommittingTransaction), HostError> {
        let state = &mut *self.state.borrow_mut();
        let mut transaction = self.pipeline.lock(self.world.now()).transaction;
        self.pipeline.end_lock();
        let RunningRecords { mut images, files, .. } = std::mem::take(&mut state.running);
        for (slot, record) in &files {
            let bytes = record.to_bytes();
            let mut image = Buffer::zeroed(BLOCK.bytes());
            image[..bytes.len()].copy_from_slice(&bytes);
            let range = BlockRange::new(0, bytes.len() as u32);
            transaction.add_metadata(slot.record_at(), &[range]);
            images.insert(slot.record_at(), image);
        }
        let id = transaction.id();
        let images: BTreeMap<HomeBlock, Rc<Buffer>> =
            images.into_iter().map(|(at, image)| (at, Rc::new(image))).collect();
        let image =
            |at: HomeBlock| images.get(&at).expect("an image of all that is logged").clone();
        let stamp =
            CommitStamp { time: self.world.wall_clock(), durable: self.pipeline.committed() };
        let locked = transaction.lock();
        let mut planned = plan_commit(&locked, &image, &mut state.space, &*state.records, &stamp)
            .map_err(|error| HostError::Aborted(error.to_string()))?;
        let runs = planned.issue(&mut state.space);
        if !state.superblock.has_begun() {
            let start = runs.start().expect("a commit has log blocks");
            let image = state.superblock.begin(|superblock| superblock.set_tail(id, start));
            begin_log(&mut planned.plan, image);
        }
        self.log_bytes.set(self.log_bytes.get() + planned.log_bytes());
        Ok((planned, locked.start_commit()))
    }

    /// Moves the tail to the oldest transaction that a slot needs, or to the next one.
    async fn move_tail(&self) -> Result<(), HostError> {
        let (tail, change) = {
            let state = self.state.borrow();
            let tail = state.checkpoint.tail();
            let gain = state.space.held_before(tail);
            let is_wanted =
                gain > 0 && (self.waiting.get() > 0 || gain >= state.space.capacity() / TAIL_SHARE);
            if !is_wanted {
                return Ok(());
            }
            let mut superblock = state.superblock.on_disk().clone();
            let start = state.space.start_of(tail).expect("the tail, or the next transaction");
            superblock.set_tail(tail, start);
            (tail, state.superblock.change(superblock))
        };
        // Home is durable already: a slot is freed only after the store's fsync.
        self.executor.run(plan_tail_update(change.image())).await?;
        let mut state = self.state.borrow_mut();
        state.superblock.arrived(change);
        state.space.release_before(tail);
        drop(state);
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
        self.pipeline.close();
        // The tail update may be in flight, and must not follow what others write.
        self.task.wait().await?;
        self.check()
    }

    /// Returns whether the store has everything of every file.
    pub fn has_no_slots(&self) -> bool {
        self.state.borrow().slots.is_empty()
    }
    /// Commits, marks the log empty if no slot is left, and ends it: nothing is accepted any more.
    pub async fn close(&self) -> Result<(), HostError> {
        self.end().await?;
        let committed = self.pipeline.committed();
        let emptied = match &*self.state.borrow() {
            state if state.slots.is_empty() => state.superblock.emptied(committed, true),
            _ => None,
        };
        match emptied {
            Some(image) => Ok(self.executor.run(plan_empty_log(Some(image))).await?),
            None => self.check(),
        }
    }
}

/// Returns the bytes of content, which do not shrink while file data is added.
fn bytes_held(transaction: &RunningTransaction) -> u64 {
    let held = transaction.holdings();
    (held.blocks << BLOCK.shift()) + held.fragment_bytes
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::HostOptions;
    use crate::recover::recover;
    use disks::MemoryDisk;
    use runtime::VirtualWorld;
    use store::{Cluster, FileId, FileKind, Identity, Network, SimulatedStore};
    use units::Timestamp;

    fn on_a_log(script: impl AsyncFnOnce(Rc<HostLog>, Rc<dyn World>, HostJournal) + 'static) {
        let virtual_world = VirtualWorld::new(1);
        let world: Rc<dyn World> = Rc::new(virtual_world.clone());
        virtual_world.run(async move {
            let disk = Rc::new(MemoryDisk::new(world.clone(), 16 << 20));
            let name = Identity("host".into());
            HostJournal::format(&*world, disk.clone(), name, "simulated cluster").await.unwrap();
            let journal = HostJournal::open(disk).await.unwrap();
            let records = HostOptions::default().records;
            let log = HostLog::open(world.clone(), &journal, records).await.unwrap();
            script(log, world, journal).await;
        });
    }
    async fn append(log: &Rc<HostLog>) -> TransactionId {
        let version = Version { number: 1, ctime_ns: 2, size: 6 };
        let time = Timestamp { seconds: 1, nanoseconds: 0 };
        let attributes = FileAttributes {
            file: FileId(7),
            kind: FileKind::Regular,
            version,
            mode: 0o644,
            links: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blocks: 1,
            accessed: time,
            modified: time,
            changed: time,
        };
        let reservation = log.try_reserve(6).await.unwrap().expect("there is space");
        let change = FileChange { is_removed: false, at: 0, bytes: b"synced" };
        log.append(&reservation, log.new_slot(), version, &attributes, change)
    }

    /// A destage that did not return in time comes back when the log has ended.
    #[test]
    fn a_commit_behind_the_end_of_the_log_fails() {
        on_a_log(async |log, world, _| {
            let committed = append(&log).await;
            log.end().await.unwrap();
            log.commit(committed).await.unwrap();
            let late = append(&log).await;
            let waits = world.sleep_until(world.now().plus(Duration::from_secs(1000)));
            match race(log.commit(late), waits).await {
                Either::Left(Err(HostError::Closing)) => {}
                Either::Left(other) => panic!("{other:?}"),
                Either::Right(()) => panic!("it waits for ever"),
            }
            log.hold_up("the store is gone");
            assert!(log.commit(late).await.unwrap_err().is_lost());
        });
    }

    /// A transaction that has bytes of a file, and does not say of which.
    #[test]
    fn bytes_without_a_record_are_damage_and_stay() {
        on_a_log(async |log, world, journal| {
            append(&log).await;
            let slot = log.new_slot();
            {
                let (mut state, mut transaction) =
                    (log.state.borrow_mut(), log.pipeline.transaction());
                let at = slot.block_at(0).unwrap();
                let image = Buffer::zeroed(BLOCK.bytes());
                state.running.images.insert(at, image);
                transaction.open_handle(0);
                transaction.add_data_bytes(at, BlockRange::new(0, 6), false);
                transaction.close_handle(0);
            }
            let id = log.running_id();
            log.end().await.unwrap();
            let cluster = Cluster::new(world.clone(), Network::default(), Vec::new(), 1);
            let store = SimulatedStore::connect(&cluster, Identity("host".into()));
            for dry_run in [true, false] {
                let error = recover(&*world, &store, &journal, dry_run).await.unwrap_err();
                let HostError::DamagedSlot { slot: found, transaction, .. } = error else {
                    panic!("{error}");
                };
                assert_eq!((found, transaction), (slot.0, id.0));
                assert!(!journal.is_clean().await.unwrap(), "nothing is given up");
            }
        });
    }

    #[test]
    fn a_caller_that_gives_up_waits_for_no_space() {
        on_a_log(async |log, world, _| {
            let waits = world.sleep_until(world.now().plus(Duration::from_millis(1)));
            assert!(matches!(race(log.reserve(1 << 30), waits).await, Either::Right(())));
            assert_eq!(log.waiting.get(), 0);
        });
    }
}
