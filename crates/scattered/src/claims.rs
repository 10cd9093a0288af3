//! Claims on blocks: a write, a trim, and a task that copies blocks claim their range first.
//!
//! Invariants: overlapping claims that are held all go to logs (their records' order decides), or
//! are all written home with no sector in common. Waiting claims are served in the order of arrival
//! among those that exclude each other. A holder of a claim waits for no other, so there is no
//! deadlock.

use crate::{BLOCK, SECTOR};
use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// The kind of change made under a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A write to a log.
    Logged,
    /// A write to the blocks' homes. Writes of one stream share blocks at their ends where requests
    /// are not whole blocks.
    Home,
    /// Everything else.
    Alone,
}

struct Wanted {
    number: u64,
    change: Change,
    sectors: Range<u64>,
}

#[derive(Default)]
pub struct Claims {
    /// Held or waited for, in the order of arrival.
    wanted: RefCell<Vec<Wanted>>,
    next: Cell<u64>,
    changed: Event,
}

pub struct Claim {
    claims: Rc<Claims>,
    number: u64,
}

const BLOCK_SECTORS: u64 = (BLOCK / SECTOR) as u64;

/// The sectors of whole blocks.
pub fn sectors_of(blocks: &Range<u64>) -> Range<u64> {
    blocks.start * BLOCK_SECTORS..blocks.end * BLOCK_SECTORS
}
/// The blocks around sectors, in sectors.
pub fn whole_blocks(sectors: &Range<u64>) -> Range<u64> {
    sectors.start / BLOCK_SECTORS * BLOCK_SECTORS..sectors.end.next_multiple_of(BLOCK_SECTORS)
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
fn exclude((one, of_one): (Change, &Range<u64>), (other, of_other): (Change, &Range<u64>)) -> bool {
    match (one, other) {
        (Change::Logged, Change::Logged) => false,
        (Change::Home, Change::Home) => overlap(of_one, of_other),
        _ => overlap(&whole_blocks(of_one), &whole_blocks(of_other)),
    }
}

impl Claims {
    pub async fn claim(self: &Rc<Self>, change: Change, sectors: Range<u64>) -> Claim {
        let claim = self.enter(change, sectors.clone());
        self.changed
            .until(|| (!self.is_behind(claim.number, change, &sectors)).then_some(()))
            .await;
        claim
    }
    /// Claims a range; `None` where another task has or wants a part of it.
    pub fn try_claim(self: &Rc<Self>, change: Change, sectors: Range<u64>) -> Option<Claim> {
        let free = !self.is_behind(u64::MAX, change, &sectors);
        free.then(|| self.enter(change, sectors))
    }
    fn enter(self: &Rc<Self>, change: Change, sectors: Range<u64>) -> Claim {
        let number = self.next.get();
        self.next.set(number + 1);
        self.wanted.borrow_mut().push(Wanted { number, change, sectors });
        Claim { claims: self.clone(), number }
    }
    /// Returns whether an earlier claim excludes it.
    fn is_behind(&self, number: u64, change: Change, sectors: &Range<u64>) -> bool {
        let wanted = self.wanted.borrow();
        let mut earlier = wanted.iter().take_while(|other| other.number < number);
        earlier.any(|other| exclude((other.change, &other.sectors), (change, sectors)))
    }
}
impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.wanted.borrow_mut().retain(|wanted| wanted.number != self.number);
        self.claims.changed.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::World;
    use runtime::{VirtualWorld, spawn_with_result};

    #[test]
    fn overlapping_claims_come_one_after_the_other_and_others_at_once() {
        let world = VirtualWorld::new(1);
        let inner = world.clone();
        world.run(async move {
            let claims = Rc::new(Claims::default());
            let first = claims.claim(Change::Alone, 0..80).await;
            drop(claims.claim(Change::Logged, 80..160).await);
            assert!(claims.try_claim(Change::Alone, 79..81).is_none());
            let behind = claims.clone();
            let second =
                spawn_with_result(
                    &inner,
                    async move { behind.claim(Change::Alone, 40..240).await },
                );
            inner.sleep_until(units::Instant(1000)).await;
            assert!(
                claims.try_claim(Change::Logged, 200..201).is_none(),
                "nobody overtakes who waits"
            );
            drop(first);
            drop(second.await);
            assert!(claims.try_claim(Change::Alone, 200..201).is_some());
        });
    }
    #[test]
    fn logged_writes_share_blocks_and_home_writes_share_blocks_but_no_sector() {
        let claims = Rc::new(Claims::default());
        let may = |change, sectors| claims.try_claim(change, sectors).is_some();
        let logged = claims.try_claim(Change::Logged, 3..20).expect("free");
        assert!(may(Change::Logged, 0..8));
        assert!(
            !may(Change::Home, 0..3) && !may(Change::Alone, 23..24) && may(Change::Home, 24..25)
        );
        drop(logged);
        let _home = claims.try_claim(Change::Home, 3..20).expect("free");
        assert!(may(Change::Home, 0..3) && may(Change::Home, 20..28) && !may(Change::Home, 19..20));
        assert!(!may(Change::Logged, 0..3) && !may(Change::Alone, 20..21));
    }
}
