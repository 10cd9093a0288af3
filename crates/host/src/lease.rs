//! Whether the store still keeps others away from the files of this connection, at the time when
//! something is promised of them.
//!
//! 1. An answer of the servers proves it for the time when the question was asked, and for the
//!    store's lease after that ([`store::Store::lease_ms`]). Both clocks count: the one stands
//!    still while the machine sleeps, the other can be set.
//! 2. While a recall is outstanding no answer extends the lease. Nobody knows when the recall was
//!    made: a process that was stopped reads of it late. What had been proven before counts.
//! 3. A sync is answered only if this holds after its journal write is complete. Else the servers
//!    are asked, and an answer to a question that was asked since is as good.

use crate::error::HostError;
use crate::host::Host;
use device::World;
use runtime::sync::RwLock;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use store::FileId;
use units::{Instant, Timestamp};

/// A moment, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    now: Instant,
    wall: Timestamp,
}

#[derive(Default)]
pub(crate) struct StoreLease {
    /// When the latest question was asked that has an answer.
    proven: Cell<Option<Asked>>,
    /// What was proven when a recall was read that is outstanding.
    recalls: RefCell<BTreeMap<FileId, Option<Asked>>>,
    asking: Rc<RwLock>,
}

impl Asked {
    fn at(world: &dyn World) -> Asked {
        Asked { now: world.now(), wall: world.wall_clock() }
    }
    fn elapsed_since(&self, earlier: Asked) -> Duration {
        let nanoseconds = |wall: Timestamp| {
            i128::from(wall.seconds) * 1_000_000_000 + i128::from(wall.nanoseconds)
        };
        let by_wall = (nanoseconds(self.wall) - nanoseconds(earlier.wall)).max(0);
        let by_wall = Duration::from_nanos(u64::try_from(by_wall).unwrap_or(u64::MAX));
        self.now.since(earlier.now).max(by_wall)
    }
}

impl StoreLease {
    pub fn begin_recall(&self, file: FileId) {
        self.recalls.borrow_mut().entry(file).or_insert(self.proven.get());
    }
    pub fn end_recall(&self, file: FileId) {
        self.recalls.borrow_mut().remove(&file);
    }
    /// The connection is lost.
    pub fn end(&self) {
        self.proven.set(None);
        self.recalls.borrow_mut().clear();
    }
    /// How much of the lease has gone at `at`; `None`: nothing is proven.
    fn elapsed(&self, at: Asked) -> Option<Duration> {
        let before_recalls = self.recalls.borrow().values().copied().collect::<Vec<_>>();
        let all = before_recalls.into_iter().chain([self.proven.get()]);
        let elapsed = all.map(|proven| proven.map(|proven| at.elapsed_since(proven)));
        elapsed.collect::<Option<Vec<_>>>()?.into_iter().max()
    }
}

impl Host {
    /// What was journaled is complete there. Returns when it is certain that no other client could
    /// have changed the files of this one before.
    pub(crate) async fn prove_lease(self: &Rc<Self>) -> Result<(), HostError> {
        self.check()?;
        let lease = Duration::from_millis(self.store.lease_ms());
        if self.store.lease_ms() == u64::MAX || units::fault!("host-sync-without-lease") {
            return Ok(());
        }
        let now = Asked::at(&*self.world);
        match self.lease.elapsed(now) {
            Some(elapsed) if elapsed < lease => {
                // So that nobody has to wait for the next answer.
                let is_early = elapsed < lease / 2 || self.lease.asking.is_written();
                if !is_early && self.lease.recalls.borrow().is_empty() {
                    let host = self.clone();
                    self.world.spawn(Box::pin(async move {
                        let _busy = host.busy();
                        // A lost connection is noted.
                        let _ = host.ask_for_lease(now).await;
                    }));
                }
                Ok(())
            }
            _ => self.ask_for_lease(now).await,
        }
    }

    /// Those who wait for an answer share the next question.
    pub(crate) async fn ask_for_lease(&self, since: Asked) -> Result<(), HostError> {
        let _turn = self.lease.asking.write().await;
        self.check()?;
        if self.lease.proven.get().is_some_and(|proven| proven.now >= since.now) {
            return Ok(());
        }
        let asked = Asked::at(&*self.world);
        self.noted(self.store.still_known().await)?;
        self.check()?;
        self.lease.proven.set(Some(asked));
        Ok(())
    }
    /// Servers that are silent end the connection within a lease; it is asked for all the time, as
    /// nobody else may ask. Ends with the connection alone.
    pub(crate) async fn watch_lease(&self) -> Result<(), HostError> {
        let lease_ms = self.store.lease_ms();
        if lease_ms == u64::MAX {
            std::future::pending::<()>().await;
        }
        loop {
            let pause = self.world.now().plus(Duration::from_millis(lease_ms / 4));
            self.world.sleep_until(pause).await;
            self.ask_for_lease(Asked::at(&*self.world)).await?;
        }
    }

    /// The first proof of a connection.
    pub(crate) async fn begin_lease(&self) -> Result<(), HostError> {
        self.lease.end();
        if self.store.lease_ms() == u64::MAX {
            return Ok(());
        }
        let asked = Asked::at(&*self.world);
        self.store.still_known().await?;
        self.lease.proven.set(Some(asked));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(now_s: u64, wall_s: i64) -> Asked {
        let wall = Timestamp { seconds: wall_s, nanoseconds: 0 };
        Asked { now: Instant(0).plus(Duration::from_secs(now_s)), wall }
    }

    #[test]
    fn the_clock_that_went_further_counts() {
        let begun = asked(10, 1000);
        for (later, elapsed) in [(asked(15, 1005), 5), (asked(11, 1060), 60), (asked(15, 900), 5)] {
            assert_eq!(later.elapsed_since(begun), Duration::from_secs(elapsed));
        }
    }

    #[test]
    fn no_answer_extends_a_lease_while_a_recall_is_outstanding() {
        let lease = StoreLease::default();
        assert_eq!(lease.elapsed(asked(0, 0)), None);
        lease.proven.set(Some(asked(10, 10)));
        lease.begin_recall(FileId(1));
        lease.proven.set(Some(asked(20, 20)));
        assert_eq!(lease.elapsed(asked(21, 21)), Some(Duration::from_secs(11)));
        lease.end_recall(FileId(1));
        assert_eq!(lease.elapsed(asked(21, 21)), Some(Duration::from_secs(1)));
    }
}
