//! Data journaling: whole blocks, however small the update. (`docs/modes/journal.md`)

use super::{DataMode, Decision, Policy, Update};

pub struct Journal;

impl Policy for Journal {
    fn mode(&self) -> DataMode {
        DataMode::Journal
    }
    fn decide(&self, _update: &Update) -> Decision {
        Decision::LogBlock
    }
}
