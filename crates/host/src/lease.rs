//! The store's lease: whether it still keeps other clients away from the files of this connection
//! at the time a sync is acknowledged.
//!
//! 1. An answer of the servers proves it for the time the request was sent and for the store's
//!    lease after that ([`store::Store::lease_ms`]). Both clocks count: one stands still while the
//!    machine sleeps, the other can be set.
//! 2. While a recall is outstanding no answer extends the lease. When the recall was sent is
//!    unknown: a stopped process reads it late. What had been proven before counts.
//!
//! [`crate::lease_proof`] applies the lease to syncs.

use device::World;
use runtime::sync::RwLock;
use runtime::{Either, race};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use store::{FileId, Store, StoreError};
use units::{Instant, Timestamp};

/// A point in time, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedAt {
    pub now: Instant,
    wall: Timestamp,
}

#[derive(Default)]
pub(crate) struct StoreLease {
    /// Time at which the latest answered request was sent.
    pub proven: Cell<Option<AskedAt>>,
    /// The lease proven when each outstanding recall was read.
    recalls: RefCell<BTreeMap<FileId, Option<AskedAt>>>,
    pub asking: Rc<RwLock>,
}

impl AskedAt {
    pub fn at(world: &dyn World) -> AskedAt {
        AskedAt { now: world.now(), wall: world.wall_clock() }
    }
    fn elapsed_since(&self, earlier: AskedAt) -> Duration {
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
    /// Ends the lease: the connection is lost.
    pub fn end(&self) {
        self.proven.set(None);
        self.recalls.borrow_mut().clear();
    }
    pub fn has_recalls(&self) -> bool {
        !self.recalls.borrow().is_empty()
    }
    /// Returns how much of the lease has passed at `at`; `None` if nothing is proven.
    pub fn elapsed(&self, at: AskedAt) -> Option<Duration> {
        let before_recalls = self.recalls.borrow().values().copied().collect::<Vec<_>>();
        let all = before_recalls.into_iter().chain([self.proven.get()]);
        let elapsed = all.map(|proven| proven.map(|proven| at.elapsed_since(proven)));
        elapsed.collect::<Option<Vec<_>>>()?.into_iter().max()
    }
}

/// Waits for work at the store as long as the servers answer. Asks them all the time, as no sync
/// may need to.
pub async fn while_answered<T, E: From<StoreError>>(
    world: &dyn World,
    store: &dyn Store,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let lease_ms = store.lease_ms();
    if lease_ms == u64::MAX || units::fault!("host-unmount-unbounded") {
        return work.await;
    }
    let silence = async {
        loop {
            world.sleep_until(world.now().plus(Duration::from_millis(lease_ms / 4))).await;
            if let Err(error) = store.still_known().await {
                return Err(error.into());
            }
        }
    };
    let (Either::Left(result) | Either::Right(result)) = race(work, silence).await;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(now_s: u64, wall_s: i64) -> AskedAt {
        let wall = Timestamp { seconds: wall_s, nanoseconds: 0 };
        AskedAt { now: Instant(0).plus(Duration::from_secs(now_s)), wall }
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
