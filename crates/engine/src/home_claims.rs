//! Home blocks that a write is under way to. Two writes of one block wait for each other, because a disk may
//! carry out in any order what it was given at once.

use runtime::sync::Event;
use std::cell::RefCell;
use std::rc::Rc;
use units::{BlockMap, HomeBlock};

#[derive(Clone, Default)]
pub(crate) struct HomeClaims(Rc<State>);

#[derive(Default)]
struct State {
    claimed: RefCell<BlockMap<()>>,
    released: Event,
}

/// The right to write these blocks, until dropped.
pub(crate) struct Claim {
    claims: HomeClaims,
    start: HomeBlock,
    count: u64,
}

impl HomeClaims {
    /// Waits until nobody writes any of the blocks.
    pub async fn claim(&self, start: HomeBlock, count: u64) -> Claim {
        let blocks = || (0..count).map(|index| start.plus(index));
        let free = || {
            let mut claimed = self.0.claimed.borrow_mut();
            let free = !blocks().any(|block| claimed.contains_key(&block));
            if free {
                claimed.extend(blocks().map(|block| (block, ())));
            }
            free.then_some(())
        };
        self.0.released.until(free).await;
        Claim { claims: self.clone(), start, count }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claimed = self.claims.0.claimed.borrow_mut();
        for index in 0..self.count {
            claimed.remove(&self.start.plus(index));
        }
        drop(claimed);
        self.claims.0.released.notify();
    }
}
