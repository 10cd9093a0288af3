//! Updates of a part of a block are logged as bytes, whole blocks as blocks.
//! (`docs/modes/wasteless.md`)

use super::{Decision, Policy, Update};

pub(super) struct Wasteless;

impl Policy for Wasteless {
    fn decide(&self, update: &Update) -> Decision {
        // A whole block in a multiwrite block would cost a copy and gain nothing (paper, section
        // 3.1).
        if update.is_whole_block() { Decision::LogBlock } else { Decision::LogBytes }
    }
    fn logs_data(&self) -> bool {
        true
    }
    fn logs_bytes(&self) -> bool {
        true
    }
    /// False: bytes are logged without the rest of the block.
    fn needs_base(&self) -> bool {
        false
    }
}
