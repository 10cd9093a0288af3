//! Data is written home before the transaction that makes it reachable commits.
//! (`docs/modes/ordered.md`)

use super::{Decision, Policy, Update};

pub(super) struct Ordered;

impl Policy for Ordered {
    fn decide(&self, update: &Update) -> Decision {
        update.past_log()
    }
}
