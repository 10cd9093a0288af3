use super::Decision;
use units::TransactionId;

/// Position of a block in its update sequence (paper, section 2.4). Kept per cached block; dropped
/// only when [`UpdateSequence::current`] says so, or when the block is freed (its records are then
/// revoked).
///
/// Once an update is in the log, replay would overwrite whatever reached home past the log. Once
/// one has bypassed, replay of a later fragment is harmless only when the metadata is home too. So
/// the first decides.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum UpdateSequence {
    /// The next update is the first.
    #[default]
    None,
    /// Updates are in the log, the last one in transaction `last`.
    Journalled { last: TransactionId },
    /// Updates were written home past the log, the last one before transaction `last` committed.
    Bypassed { last: TransactionId },
}

impl UpdateSequence {
    /// Returns the state to decide by: `None` if the sequence has ended. It has ended iff the block
    /// is `clean`, its latest content written home, and the last update is out of the log. That is:
    /// `log_tail`, the first transaction of the log **on disk**, is after the last update's. A
    /// flush need not have followed the write; what was acknowledged has had its own.
    #[must_use]
    pub fn current(self, clean: bool, log_tail: TransactionId) -> UpdateSequence {
        match self {
            UpdateSequence::Journalled { last } | UpdateSequence::Bypassed { last }
                if !(clean
                    && (log_tail.is_after(last) || units::fault!("sequence-ends-early"))) =>
            {
                self
            }
            _ => UpdateSequence::None,
        }
    }

    /// Returns the state after `decision` was taken for an update in `transaction`. `self` is the
    /// current state.
    #[must_use]
    pub fn after(self, decision: Decision, transaction: TransactionId) -> UpdateSequence {
        if decision.is_logged() {
            UpdateSequence::Journalled { last: transaction }
        } else {
            UpdateSequence::Bypassed { last: transaction }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_ends_once_home_clean_and_log_passed() {
        let last = TransactionId(u32::MAX); // the wrap must not matter
        for state in [UpdateSequence::Journalled { last }, UpdateSequence::Bypassed { last }] {
            assert_eq!(state.current(false, last.next()), state);
            assert_eq!(state.current(true, last), state);
            assert_eq!(state.current(true, last.previous()), state);
            assert_eq!(state.current(true, last.next()), UpdateSequence::None);
        }
    }

    #[test]
    fn each_update_prolongs_the_sequence() {
        let (first, second) = (TransactionId(1), TransactionId(2));
        let state =
            UpdateSequence::None.after(Decision::LogBytes, first).after(Decision::LogBlock, second);
        assert_eq!(state, UpdateSequence::Journalled { last: second });
        let state = UpdateSequence::None.after(Decision::HomeBeforeCommit, first);
        assert_eq!(state, UpdateSequence::Bypassed { last: first });
    }
}
