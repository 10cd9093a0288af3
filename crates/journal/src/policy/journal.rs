//! Data journaling: whole blocks, however small the update. (`docs/modes/journal.md`)

use super::{Decision, Policy, Update};

pub(super) struct Journal;

impl Policy for Journal {
    fn decide(&self, _update: &Update) -> Decision {
        Decision::LogBlock
    }
    fn logs_data(&self) -> bool {
        true
    }
}
