//! Small and random requests join the transaction as whole blocks, sequential ones go home before the commit; the first
//! update of a block's update sequence decides for the whole sequence. (`docs/modes/adaptive.md`)

use super::{Decision, Policy, Update, UpdateSequence};

/// Longest request, in bytes, that is logged (Manylogs paper, section V-A: LoggedWriteSize).
const LOGGED_WRITE_MAX: u64 = 32 << 10;

pub(super) struct Adaptive;

impl Policy for Adaptive {
    fn decide(&self, update: &Update) -> Decision {
        let logged = match update.sequence {
            UpdateSequence::Journalled { .. } => true,
            UpdateSequence::Bypassed { .. } => false,
            UpdateSequence::None => update.request <= LOGGED_WRITE_MAX && !update.sequential,
        };
        if logged { Decision::LogBlock } else { Decision::HomeBeforeCommit }
    }
    fn logs_data(&self) -> bool {
        true
    }
    /// Else replay would overwrite what bypassed the log after it.
    fn keeps_sequences(&self) -> bool {
        true
    }
}
