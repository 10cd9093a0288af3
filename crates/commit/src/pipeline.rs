//! The commit pipeline: the running transaction, those in flight, the last committed; who may join,
//! who waits for which.
//!
//! Invariants
//! 1. Ids have no gaps: last committed, those in flight in order, running.
//! 2. While the running transaction is being locked nobody joins; it is locked when its open
//!    handles have stopped.
//! 3. Transactions become committed in order. A caller that waits for one waits for all before it.
//! 4. What fails, fails everything after it: all that is not committed ends with the first error,
//!    and so does whatever is wished later.
//! 5. Those who wait to join do so first come, first served.
//!
//! Nothing here writes: a commit task does, and reports to it.

use crate::admission_queue::AdmissionQueue;
use crate::commit_error::CommitError;
use crate::completion::Completion;
use crate::running::{Freed, Running, RunningContent};
use crate::shutdown::Shutdown;
use crate::writers::{CommitDelay, CommitDelayPolicy, Writers};
use device::World;
use journal::{Holdings, RunningTransaction};
use runtime::race;
use runtime::sync::{Event, RwLock, WriteGuard};
use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::fmt::Display;
use std::rc::Rc;
use units::{BlockSize, HomeBlock, Instant, TransactionId};

/// Maximum number of transactions in flight to the disk at once, in order.
pub const IN_FLIGHT_MAX: usize = 2;
const _: () = assert!(
    IN_FLIGHT_MAX <= journal::IN_FLIGHT_MAX as usize,
    "recovery looks ahead for as many as that"
);

/// A transaction that no handle can join any more, in flight to the disk.
struct InFlight {
    id: TransactionId,
    completion: Rc<Completion>,
    locked: Instant,
}

pub struct Pipeline {
    block_size: BlockSize,
    running: RefCell<Running>,
    /// Oldest first.
    in_flight: RefCell<VecDeque<InFlight>>,
    committed: Cell<TransactionId>,
    /// Time at which it was committed.
    committed_at: Cell<Instant>,
    /// Commit everything up to this one.
    wanted: Cell<TransactionId>,
    locking: Cell<bool>,
    writers: Writers,
    joiners: AdmissionQueue,
    /// Something changed that the tasks wait for.
    work: Event,
    shutdown: Shutdown,
    /// Whether changes are barred now: the log is empty, and everything is home.
    quiesced: Cell<bool>,
    /// Lock held for writing while the log is emptied.
    emptying: Rc<RwLock>,
}

impl Pipeline {
    /// Creates a pipeline; `next` is its first transaction. `quiesced`: nobody joins yet.
    pub fn new(
        next: TransactionId,
        now: Instant,
        block_size: BlockSize,
        delay: CommitDelayPolicy,
        quiesced: bool,
    ) -> Pipeline {
        Pipeline {
            block_size,
            running: RefCell::new(Running::new(next, now, block_size)),
            in_flight: RefCell::default(),
            committed: Cell::new(next.previous()),
            committed_at: Cell::new(now),
            wanted: Cell::new(next.previous()),
            locking: Cell::default(),
            writers: Writers::new(delay),
            joiners: AdmissionQueue::default(),
            work: Event::default(),
            shutdown: Shutdown::default(),
            quiesced: Cell::new(quiesced),
            emptying: Rc::default(),
        }
    }

    pub fn committed(&self) -> TransactionId {
        self.committed.get()
    }
    /// Returns the time at which the last transaction was committed.
    pub fn committed_at(&self) -> Instant {
        self.committed_at.get()
    }
    pub fn running_id(&self) -> TransactionId {
        self.running.borrow().id()
    }
    /// Returns the running transaction, which open handles change.
    pub fn transaction(&self) -> RefMut<'_, RunningTransaction> {
        RefMut::map(self.running.borrow_mut(), Running::transaction)
    }
    pub fn holdings(&self) -> Holdings {
        self.running.borrow().holdings()
    }
    /// Returns whether nobody has joined the running transaction yet.
    pub fn is_unused(&self) -> bool {
        self.running.borrow().is_unused()
    }

    /// Returns whether a commit would write something: the running transaction has changes, or an
    /// open handle may still make some.
    pub fn has_something_to_commit(&self) -> bool {
        let running = self.running.borrow();
        !running.is_empty() || running.has_handles()
    }

    // How it ends.

    /// The error that every sync gets after an abort.
    pub fn check(&self) -> Result<(), CommitError> {
        self.shutdown.check()
    }
    pub fn has_failed(&self) -> bool {
        self.shutdown.has_failed()
    }
    pub fn is_closed(&self) -> bool {
        self.shutdown.is_closed()
    }
    pub fn has_ended(&self) -> bool {
        self.shutdown.has_ended()
    }
    /// Whether nobody joins for now.
    pub fn is_quiesced(&self) -> bool {
        self.quiesced.get()
    }
    pub fn set_quiesced(&self, quiesced: bool) {
        self.quiesced.set(quiesced);
    }
    /// Begins to empty the log: when the guard is dropped, the log is empty and everything durable
    /// at home, or else the pipeline has failed.
    pub async fn begin_emptying(&self) -> WriteGuard {
        self.emptying.write().await
    }
    /// Waits until the log is empty, if it is being emptied.
    pub async fn until_emptied(&self) {
        drop(self.emptying.read().await);
    }
    /// Whether it has failed on purpose.
    pub fn was_shut_down(&self) -> bool {
        self.shutdown.was_shut_down()
    }
    /// Closes the pipeline: nobody joins any more.
    pub fn close(&self) {
        self.shutdown.close();
        self.wake_all();
    }
    /// Fails all transactions that are not committed, oldest first, and all later ones.
    /// `on_purpose`: somebody asked for it.
    pub fn fail(&self, cause: &dyn Display, on_purpose: bool) {
        self.shutdown.fail(cause, on_purpose);
        let error = self.check();
        for (index, failed) in self.in_flight.take().into_iter().enumerate() {
            let spared = units::fault!("overlap-failure-alone") && index > 0;
            failed.completion.complete(if spared { Ok(()) } else { error.clone() });
        }
        let completion = self.running.borrow().completion().clone();
        completion.complete(error);
        self.wake_all();
    }
    fn wake_all(&self) {
        self.wake_tasks();
        self.wake_joiners();
    }
    pub fn wake_tasks(&self) {
        self.work.notify();
    }
    /// The first of those who wait to join looks again.
    pub fn wake_joiners(&self) {
        self.joiners.wake_first();
    }

    // Who joins.

    /// Waits in order of arrival, and until `admit` lets it in.
    pub async fn enter<T>(&self, admit: impl FnMut() -> Option<T>) -> T {
        self.joiners.enter(admit).await
    }
    /// Whether nothing happened in the running transaction, and nothing can.
    pub fn is_idle(&self) -> bool {
        self.running.borrow().is_idle()
    }
    pub fn is_locking(&self) -> bool {
        self.locking.get()
    }
    /// Lets a handle join with `credits`, which may write `home` blocks of data past the log.
    pub fn join(&self, credits: u32, home: u32, now: Instant) {
        let is_first = self.running.borrow_mut().join(credits, home, now);
        if is_first {
            self.work.notify();
        }
    }
    /// Lets a handle leave, and takes back the credits that it has not used.
    pub fn leave(&self, credits: u32, home: u32) {
        self.running.borrow_mut().leave(credits, home);
        if self.locking.get() {
            self.work.notify();
        }
        self.joiners.wake_first();
    }
    /// Uses credits of an open handle that writes blocks of data past the log.
    pub fn use_home_credits(&self, count: u32) {
        self.running.borrow_mut().use_home_credits(count);
    }
    /// Images that open handles may still make; `None` if there are no handles.
    pub fn images_to_come(&self) -> Option<usize> {
        self.running.borrow().images_to_come()
    }
    /// Blocks that are worthless once the running transaction is committed.
    pub fn free(&self, at: HomeBlock, count: u64) {
        self.running.borrow_mut().free(at, count);
    }

    // Who waits for which.

    pub fn request(&self, transaction: TransactionId) {
        if transaction.is_after(self.wanted.get()) {
            self.wanted.set(transaction);
            self.work.notify();
        }
    }
    /// Requests the commit of `transaction` and returns its completion; `None` if `transaction` and
    /// all before it are durable.
    pub fn completion_of(&self, transaction: TransactionId) -> Option<Rc<Completion>> {
        if self.committed.get().is_at_or_after(transaction)
            || (units::fault!("answer-too-early") && self.committed.get().next() == transaction)
        {
            return None;
        }
        let in_flight = self.in_flight.borrow();
        if let Some(found) = in_flight.iter().find(|one| one.id.is_at_or_after(transaction)) {
            return Some(found.completion.clone());
        }
        let running = self.running.borrow();
        if running.is_idle() {
            return in_flight.back().map(|last| last.completion.clone());
        }
        self.request(running.id());
        Some(running.completion().clone())
    }
    /// Returns the completion after which everything now in flight is committed; `None` if nothing
    /// is in flight.
    pub fn last_in_flight(&self) -> Option<Rc<Completion>> {
        self.in_flight.borrow().back().map(|last| last.completion.clone())
    }
    /// Notes that one of the writers answered by the last commit is back; a held commit waits for
    /// the last of them.
    pub fn note_writer_arrival(&self) {
        if self.writers.note_arrival() {
            self.work.notify();
        }
    }

    // What the commit task does.

    /// Whether somebody wants the running transaction committed.
    pub fn is_wanted(&self) -> bool {
        self.wanted.get().is_at_or_after(self.running_id())
    }
    /// Waits shortly for the writers that the last commit answered: if they come back, they share
    /// this one. `is_urgent` ends the wait.
    pub async fn delay_commit(&self, world: &dyn World, is_urgent: impl Fn() -> bool) {
        let waiting = self.running.borrow().completion().waiters();
        let Some(CommitDelay { until, is_worth_polling }) = self.writers.commit_delay(waiting)
        else {
            return;
        };
        if world.now() < until {
            if is_worth_polling {
                world.expect_soon(true);
            }
            let arrived = self.until(|| is_urgent() || self.writers.all_arrived());
            race(arrived, world.sleep_until(until)).await;
            if is_worth_polling {
                world.expect_soon(false);
            }
        }
        self.writers.give_up();
    }
    /// Lets nobody join, and waits until the open handles have stopped, or all is over.
    pub async fn stop_handles(&self) {
        self.locking.set(true);
        let have_stopped = || self.has_ended() || !self.running.borrow().has_handles();
        self.work.until(|| have_stopped().then_some(())).await
    }
    /// Takes the blocks that the running transaction freed, if it has nothing to log: then nothing
    /// holds them any more. The log has no records of them, and no transaction is in flight.
    pub fn freed_without_log(&self) -> Vec<Freed> {
        let mut running = self.running.borrow_mut();
        if running.is_empty() { running.take_freed() } else { Vec::new() }
    }
    /// Skips the running transaction if nothing happened in it: it goes on, and its waiters are
    /// answered.
    pub fn skip_empty(&self) -> bool {
        let mut running = self.running.borrow_mut();
        if !running.is_empty() {
            return false;
        }
        let completion = running.restart();
        self.wanted.set(running.id().previous());
        drop(running);
        self.locking.set(false);
        completion.complete(Ok(()));
        self.joiners.wake_first();
        self.work.notify();
        true
    }
    /// Takes the running transaction, in which no handle is open, and puts a new one in its place.
    pub fn lock(&self, now: Instant) -> RunningContent {
        let taken = self.running.borrow_mut().take(now, self.block_size);
        let mut in_flight = self.in_flight.borrow_mut();
        assert!(in_flight.len() < IN_FLIGHT_MAX, "more transactions in flight than there may be");
        in_flight.push_back(InFlight {
            id: taken.transaction.id(),
            completion: taken.completion.clone(),
            locked: now,
        });
        taken
    }
    /// Ends the lock: the images are taken, and others may join the new transaction.
    pub fn end_lock(&self) {
        self.locking.set(false);
        self.joiners.wake_first();
        self.work.notify();
    }
    /// Whether few enough wait for a commit to make staying awake for the disk worth while.
    pub fn is_worth_polling(&self, completion: &Completion) -> bool {
        self.writers.is_worth_polling(completion.waiters())
    }
    /// Notes that `transaction`, the oldest in flight, is durable.
    pub fn finish(&self, transaction: TransactionId, now: Instant) {
        let oldest = self.in_flight.borrow_mut().pop_front().expect("a transaction in flight");
        assert_eq!(oldest.id, transaction, "transactions become committed in order");
        self.committed.set(transaction);
        self.committed_at.set(now);
        self.writers.answered(oldest.completion.waiters(), now.since(oldest.locked), now);
        oldest.completion.complete(Ok(()));
        self.joiners.wake_first();
        self.work.notify();
    }
    /// Returns the number of transactions in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.borrow().len()
    }
    /// Waits until `ready`, which is asked again when a transaction is committed, or all is over.
    pub async fn until(&self, ready: impl Fn() -> bool) {
        self.work.until(|| (self.has_ended() || ready()).then_some(())).await
    }
    /// Waits until all before `transaction` are committed: it is the oldest in flight.
    pub async fn until_oldest(&self, transaction: TransactionId) -> Result<(), CommitError> {
        if units::fault!("overlap-answered-early") {
            let in_flight = self.in_flight.borrow();
            in_flight
                .iter()
                .filter(|one| one.id == transaction)
                .for_each(|one| one.completion.complete(Ok(())));
        }
        let is_oldest =
            || self.in_flight.borrow().front().is_some_and(|oldest| oldest.id == transaction);
        self.work.until(|| (self.has_failed() || is_oldest()).then_some(())).await;
        self.check()
    }

    // What the timer does.

    /// Waits until a handle has joined the running transaction; says which, and when.
    pub async fn until_begun(&self) -> Option<(TransactionId, Instant)> {
        let begun = || match self.has_ended() {
            true => Some(None),
            false => self.running.borrow().begun().map(Some),
        };
        self.work.until(begun).await
    }
    /// Whether that was another one, or all is over.
    pub fn is_replaced(&self, begun: (TransactionId, Instant)) -> bool {
        self.has_ended() || self.running.borrow().begun() != Some(begun)
    }
    pub async fn until_replaced(&self, begun: (TransactionId, Instant)) {
        self.work.until(|| self.is_replaced(begun).then_some(())).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use units::BlockRange;

    fn pipeline() -> Pipeline {
        let delay = CommitDelayPolicy::PerWriter { once: Duration::ZERO, each: Duration::ZERO };
        Pipeline::new(TransactionId(1), Instant(0), BlockSize::new(1024).unwrap(), delay, false)
    }
    /// A handle that changes a block.
    fn change(pipeline: &Pipeline, at: u64) -> TransactionId {
        pipeline.join(1, 0, Instant(5));
        assert!(pipeline.transaction().add_metadata(HomeBlock(at), &[BlockRange::new(0, 4)]));
        pipeline.transaction().use_credits(1);
        pipeline.leave(0, 0);
        pipeline.running_id()
    }
    fn lock(pipeline: &Pipeline) -> RunningContent {
        let taken = pipeline.lock(Instant(7));
        pipeline.end_lock();
        taken
    }
    fn is_same(left: &Option<Rc<Completion>>, right: &Rc<Completion>) -> bool {
        left.as_ref().is_some_and(|left| Rc::ptr_eq(left, right))
    }

    #[test]
    fn waiting_for_a_transaction_awaits_the_one_that_makes_it_durable() {
        let pipeline = pipeline();
        let first = change(&pipeline, 5);
        let asked = pipeline.completion_of(first);
        assert_eq!(pipeline.wanted.get(), first);
        let taken = lock(&pipeline);
        assert!(
            is_same(&asked, &taken.completion)
                && is_same(&pipeline.completion_of(first), &taken.completion)
        );
        // Nothing has happened since: the one in flight will do.
        assert!(is_same(&pipeline.completion_of(first.next()), &taken.completion));
        let second = change(&pipeline, 5);
        assert!(!is_same(&pipeline.completion_of(second), &taken.completion));
        pipeline.finish(first, Instant(9));
        assert_eq!((second, pipeline.committed()), (first.next(), first));
        assert!(
            pipeline.completion_of(first).is_none() && pipeline.completion_of(second).is_some()
        );
    }

    #[test]
    #[should_panic(expected = "committed in order")]
    fn no_transaction_is_committed_before_the_one_in_front_of_it() {
        let pipeline = pipeline();
        change(&pipeline, 5);
        lock(&pipeline);
        pipeline.finish(TransactionId(2), Instant(9));
    }

    #[test]
    fn a_failure_fails_all_that_is_not_committed_and_all_that_comes() {
        let pipeline = pipeline();
        change(&pipeline, 5);
        let first = lock(&pipeline);
        let second = pipeline.completion_of(change(&pipeline, 6)).unwrap();
        pipeline.fail(&"shut down", true);
        for completion in [&first.completion, &second] {
            assert!(matches!(completion.result(), Some(Err(CommitError::Aborted { .. }))));
        }
        pipeline.fail(&"read-only", false);
        let Err(CommitError::Aborted { cause }) = pipeline.check() else { panic!("no failure") };
        assert_eq!(cause, "shut down");
        assert!(pipeline.has_ended());
    }

    #[test]
    fn an_empty_transaction_goes_on_and_those_who_waited_are_done() {
        let pipeline = pipeline();
        pipeline.join(3, 2, Instant(5));
        assert_eq!(pipeline.images_to_come(), Some(5));
        let waited = pipeline.completion_of(TransactionId(1)).unwrap();
        pipeline.use_home_credits(1);
        pipeline.leave(3, 1);
        assert_eq!(pipeline.images_to_come(), None);
        assert!(pipeline.skip_empty());
        assert!(matches!(waited.result(), Some(Ok(()))));
        assert_eq!(
            (pipeline.running_id(), pipeline.committed()),
            (TransactionId(1), TransactionId(0))
        );
        assert!(
            pipeline.wanted.get() != TransactionId(1)
                && pipeline.running.borrow().begun().is_none()
        );
        change(&pipeline, 5);
        assert!(!pipeline.skip_empty());
    }

    #[test]
    fn the_age_of_a_transaction_is_that_of_its_first_handle() {
        let pipeline = pipeline();
        let first = change(&pipeline, 5);
        let begun = pipeline.running.borrow().begun().unwrap();
        assert_eq!(begun, (first, Instant(5)));
        pipeline.join(0, 0, Instant(6));
        pipeline.leave(0, 0);
        assert!(!pipeline.is_replaced(begun));
        lock(&pipeline);
        assert!(pipeline.is_replaced(begun));
    }
}
