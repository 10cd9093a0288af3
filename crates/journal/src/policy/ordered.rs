//! Data goes home before the transaction that makes it reachable commits. (`docs/modes/ordered.md`)

use super::{DataMode, Decision, Policy, Update};

pub struct Ordered;

impl Policy for Ordered {
    fn mode(&self) -> DataMode {
        DataMode::Ordered
    }
    fn decide(&self, _update: &Update) -> Decision {
        Decision::HomeBeforeCommit
    }
}
