//! One change of a block at a time: a write, a trim, and whoever copies blocks claim their range first.
//!
//! Invariants: claims that are held do not overlap; who waits is served in the order of arrival among those it overlaps. Whoever holds a claim waits
//! for no other, so nobody waits in a circle.

use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

#[derive(Default)]
pub struct Claims {
    /// Held or waited for, in the order of arrival.
    ranges: RefCell<Vec<(u64, Range<u64>)>>,
    next: Cell<u64>,
    changed: Event,
}

/// A range of blocks that nobody else changes.
pub struct Claim {
    claims: Rc<Claims>,
    number: u64,
}

impl Claims {
    pub async fn claim(self: &Rc<Self>, range: Range<u64>) -> Claim {
        let claim = self.enter(range.clone());
        self.changed.until(|| (!self.is_behind(claim.number, &range)).then_some(())).await;
        claim
    }
    /// `None` where somebody has or wants a part of it.
    pub fn try_claim(self: &Rc<Self>, range: Range<u64>) -> Option<Claim> {
        let free = !self.is_behind(u64::MAX, &range);
        free.then(|| self.enter(range))
    }
    fn enter(self: &Rc<Self>, range: Range<u64>) -> Claim {
        let number = self.next.get();
        self.next.set(number + 1);
        self.ranges.borrow_mut().push((number, range));
        Claim { claims: self.clone(), number }
    }
    /// Whether an earlier one overlaps.
    fn is_behind(&self, number: u64, range: &Range<u64>) -> bool {
        let ranges = self.ranges.borrow();
        let mut earlier = ranges.iter().take_while(|(other, _)| *other < number);
        earlier.any(|(_, other)| other.start < range.end && range.start < other.end)
    }
}
impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.ranges.borrow_mut().retain(|(number, _)| *number != self.number);
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
            let first = claims.claim(0..10).await;
            drop(claims.claim(10..20).await);
            assert!(claims.try_claim(9..11).is_none());
            let behind = claims.clone();
            let second = spawn_with_result(&inner, async move { behind.claim(5..30).await });
            inner.sleep_until(units::Instant(1000)).await;
            assert!(claims.try_claim(25..26).is_none(), "nobody overtakes who waits");
            drop(first);
            drop(second.await);
            assert!(claims.try_claim(25..26).is_some());
        });
    }
}
