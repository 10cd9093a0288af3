//! Files of which durability is enough (paper: O_DUR, section IV-D): their data is logged in every mode, whatever the size of a
//! request. Once the log holds a block, so are all updates of it until the log holds it no more: replay would undo one
//! that bypassed.

use super::{AutoThreshold, Decision, Policy, Update};

/// A mode, and such files.
pub(super) struct DurableOnly(pub Box<dyn Policy>);

impl Policy for DurableOnly {
    fn decide(&self, update: &Update) -> Decision {
        match self.0.decide(update) {
            decision if decision.is_logged() || !update.must_log => decision,
            // Whole: what went home past the log before is in it, too.
            _ => Decision::LogBlock,
        }
    }
    fn logs_data(&self) -> bool {
        true
    }
    fn logs_bytes(&self) -> bool {
        self.0.logs_bytes()
    }
    fn keeps_sequences(&self) -> bool {
        self.0.keeps_sequences()
    }
    fn looks_into_log(&self) -> bool {
        true
    }
    fn learns(&self) -> Option<&AutoThreshold> {
        self.0.learns()
    }
    fn threshold(&self) -> Option<u64> {
        self.0.threshold()
    }
    fn needs_base(&self) -> bool {
        self.0.needs_base()
    }
}
