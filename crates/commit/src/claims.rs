//! Home blocks to which a write is in flight. Two writes of one block wait for each other, because
//! a disk may carry out in any order what it was given at once. They go out in the order in which
//! they were asked for.

use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use units::{BlockMap, HomeBlock};

#[derive(Clone, Default)]
pub struct HomeClaims(Rc<State>);

#[derive(Default)]
struct State {
    claimed: RefCell<BlockMap<Queue>>,
    tickets: Cell<u64>,
    released: Event,
}

/// Claims of a block: the one that is granted, and those behind it. A claim enters the queues of
/// all its blocks at once, so no two wait for each other.
struct Queue {
    first: u64,
    behind: VecDeque<u64>,
}

/// The right to write these blocks, until dropped.
pub struct HomeClaim {
    claims: HomeClaims,
    ticket: u64,
    start: HomeBlock,
    count: u64,
}

impl HomeClaims {
    /// Waits until nobody who came before writes any of the blocks, or waits to.
    pub async fn claim(&self, start: HomeBlock, count: u64) -> HomeClaim {
        let claim = self.enqueue(start, count);
        claim.granted().await;
        claim
    }

    /// Waits until nobody writes any of the blocks, or waits to.
    pub async fn until_unclaimed(&self, start: HomeBlock, count: u64) {
        let is_claimed = || {
            let claimed = self.0.claimed.borrow();
            claimed.keys().any(|at| *at >= start && at.get() - start.get() < count)
        };
        self.0.released.until(|| (!is_claimed()).then_some(())).await;
    }

    /// Takes the next place in the queues of the blocks. They may be written when it is
    /// [`HomeClaim::turn`].
    pub fn enqueue(&self, start: HomeBlock, count: u64) -> HomeClaim {
        let ticket = self.0.tickets.replace(self.0.tickets.get() + 1);
        let claim = HomeClaim { claims: self.clone(), ticket, start, count };
        let mut claimed = self.0.claimed.borrow_mut();
        for block in claim.blocks() {
            claimed
                .entry(block)
                .and_modify(|queue| queue.behind.push_back(ticket))
                .or_insert_with(|| Queue { first: ticket, behind: VecDeque::new() });
        }
        drop(claimed);
        claim
    }
}

impl HomeClaim {
    pub async fn granted(&self) {
        let passes = || self.is_first() || units::fault!("writes-pass");
        self.claims.0.released.until(|| passes().then_some(())).await;
    }
    fn blocks(&self) -> impl Iterator<Item = HomeBlock> + use<> {
        let start = self.start;
        (0..self.count).map(move |index| start.plus(index))
    }
    fn is_first(&self) -> bool {
        let claimed = self.claims.0.claimed.borrow();
        self.blocks()
            .all(|block| claimed.get(&block).is_some_and(|queue| queue.first == self.ticket))
    }
}

impl Drop for HomeClaim {
    fn drop(&mut self) {
        let mut claimed = self.claims.0.claimed.borrow_mut();
        for block in self.blocks() {
            let Some(queue) = claimed.get_mut(&block) else { continue };
            if queue.first != self.ticket {
                // It gave up before its turn came.
                queue.behind.retain(|ticket| *ticket != self.ticket);
                continue;
            }
            let next = match units::fault!("claims-out-of-order") {
                true => queue.behind.pop_back(),
                false => queue.behind.pop_front(),
            };
            match next {
                Some(next) => queue.first = next,
                None => drop(claimed.remove(&block)),
            }
        }
        drop(claimed);
        self.claims.0.released.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_of_a_block_go_out_in_the_order_of_their_requests() {
        let claims = HomeClaims::default();
        let first = claims.enqueue(HomeBlock(5), 2);
        let second = claims.enqueue(HomeBlock(6), 2);
        let third = claims.enqueue(HomeBlock(7), 1);
        let fourth = claims.enqueue(HomeBlock(5), 3);
        let turns = || [&second, &third, &fourth].map(HomeClaim::is_first);
        assert!(first.is_first());
        // The third would be free to go if it did not overtake the second.
        assert_eq!(turns(), [false; 3]);
        drop(first);
        assert_eq!(turns(), [true, false, false]);
        drop(third);
        assert!(!fourth.is_first());
        drop(second);
        assert!(fourth.is_first());
        drop(fourth);
        assert!(claims.0.claimed.borrow().is_empty());
    }
}
