//! Data is written home at any time by write-back; only metadata is logged.
//! (`docs/modes/writeback.md`)

use super::{Decision, Policy, Update};

pub(super) struct Writeback;

impl Policy for Writeback {
    fn decide(&self, _update: &Update) -> Decision {
        Decision::HomeWhenever
    }
}
