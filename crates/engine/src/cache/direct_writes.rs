//! Large writes of file data, in flight to home past the cache.
//!
//! Invariants
//! 1. When one is issued, the cache has none of its blocks, and the log has no record of them that
//!    replay would need.
//! 2. A block that comes into the cache during one is read only when they have arrived. Its own way
//!    home is behind theirs (see `writeback::claims`).
//! 3. A commit waits for those of new blocks that were issued with its transaction or an earlier
//!    one. A sync waits for its owner's.

use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use units::{HomeBlock, Owner, TransactionId};

/// Maximum number of requests in flight at once: a disk is kept busy, and a commit waits for no
/// more than these.
const IN_FLIGHT_MAX: usize = 8;
/// Bytes of an owner that the cache takes when the disk is behind.
const CACHED_WHEN_AHEAD: u64 = 32 << 20;
/// Maximum number of owners for whom that is kept.
const AHEAD_OWNERS_MAX: usize = 1024;

#[derive(Default)]
pub(crate) struct DirectWrites {
    in_flight: RefCell<Vec<DirectWrite>>,
    /// Owners that wrote while `IN_FLIGHT_MAX` writes were in flight, and how many bytes of theirs
    /// the cache is to take yet.
    ahead: RefCell<BTreeMap<Owner, u64>>,
    begun: Cell<u64>,
    arrived: Event,
}

#[derive(Clone)]
pub(crate) struct DirectWrite {
    pub owner: Owner,
    pub blocks: Range<HomeBlock>,
    /// The transaction that makes new blocks reachable; `None`: an overwrite that no commit waits
    /// for.
    pub before: Option<TransactionId>,
    number: u64,
}

impl DirectWrites {
    /// Whether one more of `owner`, of `bytes`, may be issued. If too many are in flight, the cache
    /// takes it and what follows. A few long pieces cost a disk's arm less than many short ones in
    /// turns.
    pub fn may_issue(&self, owner: Owner, bytes: u64) -> bool {
        let mut ahead = self.ahead.borrow_mut();
        if self.in_flight.borrow().len() >= IN_FLIGHT_MAX {
            if ahead.len() >= AHEAD_OWNERS_MAX {
                ahead.clear();
            }
            ahead.insert(owner, CACHED_WHEN_AHEAD);
        }
        let Some(left) = ahead.get_mut(&owner) else { return true };
        *left = left.saturating_sub(bytes);
        if *left == 0 {
            ahead.remove(&owner);
        }
        false
    }

    pub fn begin(
        &self,
        owner: Owner,
        blocks: Range<HomeBlock>,
        before: Option<TransactionId>,
    ) -> DirectWrite {
        let number = self.begun.replace(self.begun.get() + 1);
        let write = DirectWrite { owner, blocks, before, number };
        self.in_flight.borrow_mut().push(write.clone());
        write
    }

    pub fn arrive(&self, write: &DirectWrite) {
        self.in_flight.borrow_mut().retain(|other| other.number != write.number);
        self.arrived.notify();
    }

    /// Whether a later one of this block is in flight.
    pub fn is_followed(&self, write: &DirectWrite, at: HomeBlock) -> bool {
        self.in_flight
            .borrow()
            .iter()
            .any(|other| other.number > write.number && other.blocks.contains(&at))
    }

    /// Waits for those in flight of which `concerns` is true; not for those issued later.
    pub async fn until_arrived(&self, concerns: impl Fn(&DirectWrite) -> bool) {
        let begun = self.begun.get();
        let is_one = |write: &DirectWrite| write.number < begun && concerns(write);
        self.arrived.until(|| (!self.in_flight.borrow().iter().any(is_one)).then_some(())).await;
    }

    pub async fn until_home_holds(&self, blocks: &Range<HomeBlock>) {
        let on = !units::fault!("long-write-not-read");
        self.until_arrived(|write| {
            on && write.blocks.start < blocks.end && blocks.start < write.blocks.end
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::World;
    use runtime::{Either, VirtualWorld};
    use std::pin::Pin;
    use std::time::Duration;

    const MIB: u64 = 1 << 20;

    fn blocks(from: u64) -> Range<HomeBlock> {
        HomeBlock(from)..HomeBlock(from + 16)
    }

    #[test]
    fn an_owner_ahead_of_the_disk_is_cached_for_a_while() {
        let (writes, fast, other) = (DirectWrites::default(), Owner(1), Owner(2));
        let in_flight: Vec<_> = (0..IN_FLIGHT_MAX as u64)
            .map(|at| {
                assert!(writes.may_issue(fast, MIB));
                writes.begin(fast, blocks(at * 16), None)
            })
            .collect();
        assert!(!writes.may_issue(fast, MIB));
        in_flight.iter().for_each(|write| writes.arrive(write));
        assert!(writes.may_issue(other, MIB));
        let cached = (0..).take_while(|_| !writes.may_issue(fast, MIB)).count() as u64;
        assert_eq!(cached, CACHED_WHEN_AHEAD / MIB - 1);
    }

    #[test]
    fn waiting_ends_although_later_writes_have_set_out() {
        let world = VirtualWorld::new(1);
        let clock = world.clone();
        world.run(async move {
            let writes = DirectWrites::default();
            let first = writes.begin(Owner(1), blocks(0), Some(TransactionId(7)));
            let with_its_commit =
                writes.until_arrived(|write| write.before == Some(TransactionId(7)));
            let for_its_end = writes.until_home_holds(&(HomeBlock(15)..HomeBlock(17)));
            let beside = writes.until_home_holds(&(HomeBlock(16)..HomeBlock(17)));
            beside.await;
            let both: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> =
                vec![Box::pin(with_its_commit), Box::pin(for_its_end)];
            let mut waiting = Box::pin(runtime::join_all(both));
            let a_while = clock.sleep_until(clock.now().plus(Duration::from_secs(1)));
            assert!(matches!(runtime::race(waiting.as_mut(), a_while).await, Either::Right(())));
            let _later = writes.begin(Owner(1), blocks(0), Some(TransactionId(7)));
            writes.arrive(&first);
            waiting.await;
        });
    }
}
