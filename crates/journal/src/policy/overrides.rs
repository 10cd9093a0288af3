//! Overrides of a mode that a mount may choose.

use super::{AutoThreshold, Decision, Policy, Update};

/// Overrides, each alone or several together.
#[derive(Clone, Copy, Default, Debug)]
pub struct PolicyOverrides {
    /// Files of which durability is enough (paper: O_DUR, section IV-D) have their data logged in
    /// every mode, whatever the size of a request. Once the log holds a block, so are all updates
    /// of it until the log holds it no more: replay would undo one that bypassed.
    pub durable_only: bool,
    /// Overwrites in place that bypass the log are written home before the commit, as in ext3. In
    /// ext4 no commit waits for them.
    pub ordered_overwrites: bool,
    /// The threshold is compared with the bytes that a request changes in one block, not with the
    /// length of the request, as in the prototype of selective journaling.
    pub threshold_per_block: bool,
}

/// A mode with its overrides.
pub(super) struct PolicyWithOverrides {
    pub mode: Box<dyn Policy>,
    pub overrides: PolicyOverrides,
}

impl Policy for PolicyWithOverrides {
    fn decide(&self, update: &Update) -> Decision {
        let PolicyOverrides { durable_only, ordered_overwrites, threshold_per_block } =
            self.overrides;
        let request = if threshold_per_block { update.range.len() as u64 } else { update.request };
        let in_place = update.in_place && !ordered_overwrites;
        match self.mode.decide(&Update { request, in_place, ..*update }) {
            decision if decision.is_logged() || !(durable_only && update.must_log) => decision,
            // Whole, to include data that bypassed the log before.
            _ => Decision::LogBlock,
        }
    }
    fn logs_data(&self) -> bool {
        self.overrides.durable_only || self.mode.logs_data()
    }
    fn logs_bytes(&self) -> bool {
        self.mode.logs_bytes()
    }
    fn keeps_sequences(&self) -> bool {
        self.mode.keeps_sequences()
    }
    fn looks_into_log(&self) -> bool {
        self.overrides.durable_only || self.mode.looks_into_log()
    }
    fn learns(&self) -> Option<&AutoThreshold> {
        self.mode.learns()
    }
    fn threshold(&self) -> Option<u64> {
        self.mode.threshold()
    }
    fn needs_base(&self) -> bool {
        self.mode.needs_base()
    }
}
