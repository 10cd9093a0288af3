//! Reconnection: a lost connection is made again while the host runs. What was acknowledged is in
//! the journal and is recovered as after a crash.
//!
//! 1. When the connection is lost no operation starts any more. Operations in flight end with
//!    errors of the store; those that may be repeated start again on the new connection. A change
//!    that the servers may have made is not ([`Host::once`]). A connection of which a call does not
//!    return in time is given up, which ends its calls.
//! 2. When none is in flight, the running transaction is committed and the store reconnects. Then
//!    the journal is recovered, file by file: take the token, compare, and replay or set aside.
//! 3. A new log begins, and all tokens and open files are taken anew. A file with a conflict file
//!    answers with an error until every descriptor of it is closed: its writer must learn that the
//!    bytes are not in it. So does one with bytes that went past the journal and were not synced:
//!    no sync on the new connection can promise them. Directories: `unsynced_names`.

use crate::error::HostError;
use crate::files::Failure;
use crate::host::Host;
use crate::lease::while_answered;
use crate::log::HostLog;
use crate::recover::{FileFate, FileOutcome, HostRecoveryReport, recover_noting};
use runtime::sync::WriteGuard;
use runtime::{Either, race};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use store::{FileId, StoreError};

/// Pause between two attempts to connect.
const AGAIN: Duration = Duration::from_secs(1);

/// Maximum time for calls of a lost connection to return. The host may have ended one that works,
/// and a change of names that is given up then is an error to its caller.
const CALLS_MAX: Duration = Duration::from_secs(30);

/// Time for which an unmount waits for a recovery in flight.
const RECOVERY_MAX: Duration = Duration::from_secs(240);

/// Keeps an operation counted as in flight until it is dropped.
pub(crate) struct Busy<'a>(&'a Host);
impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.set(self.0.busy.get() - 1);
        if self.0.busy.get() == 0 {
            self.0.idle.notify();
        }
    }
}

impl Host {
    pub(crate) fn check(&self) -> Result<(), HostError> {
        self.lost.borrow().clone().map_or(Ok(()), |why| Err(HostError::Lost(why)))
    }
    pub(crate) fn busy(&self) -> Busy<'_> {
        self.busy.set(self.busy.get() + 1);
        Busy(self)
    }
    /// Starts an operation: waits for a lost connection, up to the limit of the options.
    pub(crate) async fn enter(&self) -> Result<Busy<'_>, HostError> {
        if let (Err(_), Some(patience)) = (self.check(), self.options.reconnect) {
            let is_over = || (self.check().is_ok() || self.closed.get()).then_some(());
            let until = self.world.now().plus(patience);
            race(self.restored.until(is_over), self.world.sleep_until(until)).await;
        }
        self.check()?;
        Ok(self.busy())
    }
    /// Makes a change that must not be made twice, such as one of names: a name may belong to
    /// another file by the second time. `change` calls [`Host::begin_sending`] before the request.
    /// It starts again if the connection was lost before that.
    pub(crate) async fn once<T>(
        &self,
        what: &'static str,
        change: impl AsyncFn(&Cell<bool>) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        loop {
            let _busy = self.enter().await?;
            let is_sent = Cell::new(false);
            match change(&is_sent).await {
                Err(error) if error.is_lost() && is_sent.get() => {
                    return Err(self.unsure(what, &error));
                }
                Err(error) if self.is_again(&error) => {}
                result => return result,
            }
        }
    }
    /// Reports a change that may have been made: its answer was lost.
    pub(crate) fn unsure(&self, what: &'static str, error: &HostError) -> HostError {
        let unsure = HostError::Unsure { what, why: error.to_string() };
        self.report_trouble(&unsure.to_string());
        unsure
    }
    /// Records that the servers may have the request from now on.
    pub(crate) fn begin_sending(&self, is_sent: &Cell<bool>) -> Result<(), HostError> {
        self.check()?;
        is_sent.set(!units::fault!("host-change-repeated"));
        Ok(())
    }
    /// Returns whether an operation that ended with `error` may start again.
    pub(crate) fn is_again(&self, error: &HostError) -> bool {
        error.is_lost() && self.options.reconnect.is_some() && !self.closed.get()
    }
    /// Passes on a result of the store. Every error of the store goes through here: a lost
    /// connection ends everything but the journal.
    pub(crate) fn noted<T>(&self, result: Result<T, store::StoreError>) -> Result<T, HostError> {
        result.map_err(|error| {
            if error.is_lost() {
                self.lose(&error.to_string());
            }
            error.into()
        })
    }
    pub(crate) fn lose(&self, why: &str) {
        self.lost.borrow_mut().get_or_insert_with(|| why.into());
        self.log().hold_up(why);
        self.drained.notify();
        self.lease.end();
        self.ended.notify();
        // No task may wait for a token that cannot come back.
        for file in self.files.all() {
            self.invalidate_attributes(&file);
            file.recalled.set(false);
            file.returned.notify();
        }
    }
    /// Sets the function that is called after each recovery of a connection.
    pub fn on_reconnection(&self, listener: Box<dyn Fn(&HostRecoveryReport)>) {
        *self.recovery_listener.borrow_mut() = Some(listener);
    }

    /// Starts the tasks that run as long as one connection.
    pub(crate) fn start_tasks(self: &Rc<Self>) {
        self.world.spawn(Box::pin(self.clone().watch_store()));
        self.world.spawn(Box::pin(self.clone().flush_journal()));
        self.world.spawn(Box::pin(self.clone().destage_task()));
        self.world.spawn(Box::pin(self.clone().follow_departures()));
    }

    pub(crate) async fn keep_connected(self: Rc<Self>) {
        loop {
            self.ended.until(|| (self.closed.get() || self.check().is_err()).then_some(())).await;
            self.until_idle().await;
            let guard = self.restoring.write().await;
            if self.closed.get() {
                return;
            }
            match self.restore().await {
                // The unmount has not waited for it.
                Ok(_) if self.closed.get() => return,
                Ok(report) => {
                    drop(guard);
                    self.count(|counters| counters.reconnections += 1);
                    self.count_set_aside(&report);
                    *self.lost.borrow_mut() = None;
                    self.start_tasks();
                    self.restored.notify();
                    if let Some(listener) = &*self.recovery_listener.borrow() {
                        listener(&report);
                    }
                }
                // Trying again would not repair the journal.
                Err(HostError::Aborted(_) | HostError::Device(_) | HostError::Log(_)) => return,
                Err(_) => {
                    drop(guard);
                    let until = self.world.now().plus(AGAIN);
                    let closed = self.ended.until(|| self.closed.get().then_some(()));
                    race(self.world.sleep_until(until), closed).await;
                }
            }
        }
    }

    /// Waits until nothing is in flight on the lost connection. A call that does not return, as a
    /// thread of the store hangs, would keep the host from every file.
    async fn until_idle(&self) {
        let is_idle = || (self.busy.get() == 0 || self.closed.get()).then_some(());
        let until = self.world.now().plus(CALLS_MAX);
        let waited = race(self.idle.until(is_idle), self.world.sleep_until(until)).await;
        if matches!(waited, Either::Right(())) && !units::fault!("host-lost-connection-kept") {
            self.store.give_up_connection();
        }
        self.idle.until(is_idle).await;
    }

    /// Keeps the connection from being restored, for the unmount. `None`: a recovery is in flight
    /// and does not end, as the store does not answer for a file; the journal stays as it is.
    pub(crate) async fn stop_restoring(&self) -> Option<WriteGuard> {
        let until = self.world.now().plus(RECOVERY_MAX);
        match race(self.restoring.write(), self.world.sleep_until(until)).await {
            Either::Left(guard) => Some(guard),
            Either::Right(()) => {
                self.closed.set(true);
                self.ended.notify();
                self.restored.notify();
                None
            }
        }
    }

    /// Counts the files that a recovery set aside, for the statistics.
    pub fn count_set_aside(&self, report: &HostRecoveryReport) {
        let is_aside = |file: &&FileOutcome| matches!(file.outcome, FileFate::SetAside { .. });
        let aside = report.files.iter().filter(is_aside).count() as u64;
        self.count(|counters| counters.set_aside_files += aside);
    }

    async fn restore(&self) -> Result<HostRecoveryReport, HostError> {
        self.log().end().await?;
        self.store.reconnect().await?;
        let recovered = self.recover_again();
        let mut report = while_answered(&*self.world, &*self.store, recovered).await?;
        // The log is empty now. If what follows fails, only `fates` knows what became of the files.
        self.begin_lease().await?;
        let log = HostLog::open(self.world.clone(), &self.journal, self.options.records).await?;
        *self.log.borrow_mut() = log;
        let mut fates = self.fates.take();
        report.add_earlier(fates.clone());
        let why = self.lost.borrow().clone().unwrap_or_default();
        let was_lost = StoreError::Disconnected { store: self.store.name().into(), why };
        self.unsynced_names.lose();
        for file in self.files.all() {
            self.end_token(&file);
            file.open.set(None);
            self.files.set_dirty(&file, None);
            file.retry.set(None);
            file.is_removed.set(false);
            self.drained.notify();
            let before = file.failure.take();
            let is_unsynced = file.end_shared_writes() && !units::fault!("host-shared-write-lost");
            let is_open = file.opens.get() > 0 && !units::fault!("host-failure-forgotten");
            let lost = fates.remove(&file.id).and_then(|outcome| lost_with(outcome.outcome));
            // A program that has it open must not take a later sync for a promise of the bytes set
            // aside.
            *file.failure.borrow_mut() = match (lost, before) {
                (Some(why), _) if is_open => Some(Failure::SetAside(why)),
                (None, Some(lasting)) if is_open && lasting.lasts() => Some(lasting),
                (None, _) if is_open && is_unsynced => Some(Failure::Unsynced(was_lost.clone())),
                _ => None,
            };
            self.lose_locks(&file);
            self.files.forget(&file);
        }
        Ok(report)
    }

    /// Recovers the journal and keeps each outcome until a connection is restored. The next
    /// connection may be lost during the recovery, and the ledger records only that a file is
    /// finished.
    async fn recover_again(&self) -> Result<HostRecoveryReport, HostError> {
        let note = |outcome: &FileOutcome| {
            self.fates.borrow_mut().insert(FileId(outcome.file), outcome.clone());
        };
        recover_noting(&*self.world, &*self.store, &self.journal, false, &note).await
    }
}

/// Returns why synced bytes of a file are no longer in it.
fn lost_with(fate: FileFate) -> Option<String> {
    match fate {
        FileFate::SetAside { why, .. } => Some(why),
        // It had lost its last name, and only the connection kept it.
        FileFate::Removed => {
            Some("it had no name any more, and was gone with the connection".into())
        }
        FileFate::Replayed | FileFate::DoneBefore => None,
    }
}
