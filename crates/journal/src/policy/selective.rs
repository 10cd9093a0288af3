//! Small requests as wasteless, large ones home before commit; the first update of a block's update sequence
//! decides for the whole sequence. (`docs/modes/selective.md`; paper, sections 2.2 and 2.4)

use super::{Decision, Policy, Update, UpdateSequence, WriteThreshold, wasteless::Wasteless};

pub struct Selective {
    pub threshold: WriteThreshold,
}

impl Policy for Selective {
    fn decide(&self, update: &Update) -> Decision {
        let logged = match update.sequence {
            UpdateSequence::Journalled { .. } => true,
            UpdateSequence::Bypassed { .. } => false,
            UpdateSequence::None => update.request < self.threshold.0,
        };
        if logged { Wasteless.decide(update) } else { Decision::HomeBeforeCommit }
    }
    fn logs_data(&self) -> bool {
        true
    }
    fn logs_bytes(&self) -> bool {
        true
    }
    /// Else replay would overwrite what bypassed the log after it.
    fn keeps_sequences(&self) -> bool {
        true
    }
}
