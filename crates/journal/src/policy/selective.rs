//! Small requests as wasteless, large ones home before commit; the first update of a block's update
//! sequence decides for the whole sequence. (`docs/modes/selective.md`; paper, sections 2.2 and
//! 2.4)

use super::threshold::AutoThreshold;
use super::{Decision, Policy, Update, UpdateSequence, WriteThreshold, wasteless::Wasteless};

pub(super) struct Selective {
    small: Small,
}

enum Small {
    Below(u64),
    Learnt(Box<AutoThreshold>),
}

impl Selective {
    pub fn new(threshold: WriteThreshold) -> Selective {
        let small = match threshold {
            WriteThreshold::Fixed(bytes) => Small::Below(bytes),
            WriteThreshold::Auto => Small::Learnt(Box::default()),
        };
        Selective { small }
    }
}

impl Policy for Selective {
    fn decide(&self, update: &Update) -> Decision {
        let logged = match update.sequence {
            UpdateSequence::Journalled { .. } if !units::fault!("bypass-after-log") => true,
            UpdateSequence::Bypassed { .. } => false,
            _ => match &self.small {
                Small::Below(bytes) => update.request < *bytes,
                Small::Learnt(auto) => auto.is_small(update.request, update.sequential),
            },
        };
        if logged { Wasteless.decide(update) } else { update.past_log() }
    }
    fn logs_data(&self) -> bool {
        true
    }
    fn logs_bytes(&self) -> bool {
        true
    }
    /// True: otherwise replay would overwrite data that bypassed the log after it.
    fn keeps_sequences(&self) -> bool {
        true
    }
    fn learns(&self) -> Option<&AutoThreshold> {
        match &self.small {
            Small::Below(_) => None,
            Small::Learnt(auto) => Some(auto),
        }
    }
    fn threshold(&self) -> Option<u64> {
        Some(match &self.small {
            Small::Below(bytes) => *bytes,
            Small::Learnt(auto) => auto.present(),
        })
    }
}
