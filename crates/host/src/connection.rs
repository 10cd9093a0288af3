//! A connection that is lost comes back while the host runs: what was answered is in the journal,
//! and goes on as after a crash.
//!
//! 1. When the connection is lost no operation begins any more. Those under way end with errors of
//!    the store; those that may be repeated begin again when the connection is back.
//! 2. When none is under way, what the journal has not yet is committed, and the store connects
//!    anew. Then the journal is recovered, file by file: the token, the comparison, the replay or
//!    the setting aside.
//! 3. A new log begins, all tokens and open files are taken anew. A file of which something was set
//!    aside answers with an error until every descriptor of it is closed. Who wrote it must learn
//!    that it is not there.

use crate::error::HostError;
use crate::files::Failure;
use crate::host::Host;
use crate::log::HostLog;
use crate::recover::{FileFate, FileOutcome, HostRecoveryReport, recover};
use runtime::race;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use store::FileId;

/// Between two tries to connect.
const AGAIN: Duration = Duration::from_secs(1);

/// An operation is under way for as long as this lives.
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
    /// Each operation begins here: waits for a lost connection, as long as it may.
    pub(crate) async fn enter(&self) -> Result<Busy<'_>, HostError> {
        if let (Err(_), Some(patience)) = (self.check(), self.options.reconnect) {
            let is_over = || (self.check().is_ok() || self.closed.get()).then_some(());
            let until = self.world.now().plus(patience);
            race(self.restored.until(is_over), self.world.sleep_until(until)).await;
        }
        self.check()?;
        Ok(self.busy())
    }
    /// Whether an operation that ended so may begin again.
    pub(crate) fn is_again(&self, error: &HostError) -> bool {
        error.is_lost() && self.options.reconnect.is_some() && !self.closed.get()
    }
    /// Every error of the store goes through here: a lost connection ends everything but the
    /// journal.
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
        // Nobody waits for a token that cannot come back.
        for file in self.files.all() {
            self.forget_kept(&file);
            file.recalled.set(false);
            file.returned.notify();
        }
    }
    /// `tell` is called after each recovery of a connection.
    pub fn on_reconnection(&self, tell: Box<dyn Fn(&HostRecoveryReport)>) {
        *self.told.borrow_mut() = Some(tell);
    }

    /// What runs beside the operations, as long as one connection.
    pub(crate) fn start_tasks(self: &Rc<Self>) {
        self.world.spawn(Box::pin(self.clone().watch_store()));
        self.world.spawn(Box::pin(self.clone().flush_journal()));
        self.world.spawn(Box::pin(self.clone().destage_task()));
        self.world.spawn(Box::pin(self.clone().follow_departures()));
    }

    pub(crate) async fn keep_connected(self: Rc<Self>) {
        loop {
            self.ended.until(|| (self.closed.get() || self.check().is_err()).then_some(())).await;
            let is_idle = || (self.busy.get() == 0 || self.closed.get()).then_some(());
            self.idle.until(is_idle).await;
            let turn = self.restoring.write().await;
            if self.closed.get() {
                return;
            }
            match self.restore().await {
                Ok(report) => {
                    drop(turn);
                    self.count(|counters| counters.reconnections += 1);
                    self.count_set_aside(&report);
                    *self.lost.borrow_mut() = None;
                    self.start_tasks();
                    self.restored.notify();
                    if let Some(tell) = &*self.told.borrow() {
                        tell(&report);
                    }
                }
                // The journal is no better next time.
                Err(HostError::Aborted(_) | HostError::Device(_) | HostError::Log(_)) => return,
                Err(_) => {
                    drop(turn);
                    let until = self.world.now().plus(AGAIN);
                    let closed = self.ended.until(|| self.closed.get().then_some(()));
                    race(self.world.sleep_until(until), closed).await;
                }
            }
        }
    }

    /// Of a recovery: for the statistics.
    pub fn count_set_aside(&self, report: &HostRecoveryReport) {
        let is_aside = |file: &&FileOutcome| matches!(file.outcome, FileFate::SetAside { .. });
        let aside = report.files.iter().filter(is_aside).count() as u64;
        self.count(|counters| counters.set_aside_files += aside);
    }

    async fn restore(&self) -> Result<HostRecoveryReport, HostError> {
        self.log().end().await?;
        self.store.reconnect().await?;
        let report = recover(&*self.world, &*self.store, &self.journal, false).await?;
        let log = HostLog::open(self.world.clone(), &self.journal, self.options.records).await?;
        self.begin_lease().await?;
        *self.log.borrow_mut() = log;
        let aside: BTreeMap<FileId, &str> = report
            .files
            .iter()
            .filter_map(|file| match &file.outcome {
                FileFate::SetAside { why, .. } => Some((FileId(file.file), &**why)),
                _ => None,
            })
            .collect();
        for file in self.files.all() {
            self.end_token(&file);
            file.open.set(None);
            self.files.set_dirty(&file, None);
            file.retry.set(None);
            file.is_removed.set(false);
            self.drained.notify();
            let before = file.failure.take();
            let is_open = file.opens.get() > 0 && !units::fault!("host-failure-forgotten");
            // Who has it open must not take a later sync for a promise of what was set aside.
            *file.failure.borrow_mut() = match (aside.get(&file.id), before) {
                (Some(why), _) => Some(Failure::SetAside((*why).into())),
                (None, Some(lasting)) if is_open && lasting.lasts() => Some(lasting),
                (None, _) => None,
            };
            self.lose_locks(&file);
            self.files.forget(&file);
        }
        Ok(report)
    }
}
