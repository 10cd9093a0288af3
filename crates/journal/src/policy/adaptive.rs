//! Small and random requests join the transaction as whole blocks, sequential ones are written home
//! before the commit. The first update of a block's update sequence decides for the whole sequence.
//! (`docs/modes/adaptive.md`)

use super::{Decision, LOGGED_WRITE_SIZE, Policy, Update, UpdateSequence};

pub struct Adaptive {
    /// Longest request, in bytes, that is logged (Manylogs paper, section V-A: LoggedWriteSize).
    logged_write_size: u64,
}

impl Default for Adaptive {
    fn default() -> Adaptive {
        Adaptive { logged_write_size: LOGGED_WRITE_SIZE }
    }
}

impl Policy for Adaptive {
    fn decide(&self, update: &Update) -> Decision {
        let logged = match update.sequence {
            UpdateSequence::Journalled { .. } => true,
            UpdateSequence::Bypassed { .. } => false,
            UpdateSequence::None => update.request <= self.logged_write_size && !update.sequential,
        };
        if logged { Decision::LogBlock } else { update.past_log() }
    }
    fn set_logged_write_size(&mut self, bytes: u64) {
        self.logged_write_size = bytes;
    }
    fn logs_data(&self) -> bool {
        true
    }
    /// True: otherwise replay would overwrite data that bypassed the log after it.
    fn keeps_sequences(&self) -> bool {
        true
    }
}
