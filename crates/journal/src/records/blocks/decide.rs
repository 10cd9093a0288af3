//! Meaning of a log block for the scan: yes/no facts -> decision, in one table. An end is final
//! only if nothing lies ahead that proves the opposite (`ScanPass`).
//!
//! | fact that decides (first that applies) | decision | why |
//! |---|---|---|
//! | no magic, unknown type, or another sequence number | end | never written, or of an earlier wrap of the log |
//! | descriptor or revoke block | go on | its checksum counts when the commit block is found |
//! | commit block's own checksum wrong | end | torn: the transaction was never acknowledged |
//! | transaction-wide checksum wrong | end | extended: its one write was torn. v1: as the kernel |
//! | body wrong, commit time before the last one's | end | as the kernel: a stale journal of the same volume |
//! | body wrong | damaged | a barrier stood before this commit block: what it commits was there once |
//! | none of these | committed | |

/// Facts about a log block where a header is expected, and about its transaction so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Magic and a block type that may occur in a log.
    pub known: bool,
    /// The sequence number is the one expected.
    pub sequence: bool,
    /// The block is a commit block.
    pub commit: bool,
    /// The commit block's own checksum (v2, v3) is right or not used.
    pub commit_intact: bool,
    /// The transaction-wide checksum (extended or v1) is right or not used.
    pub transaction_sum: bool,
    /// Whether every checksum of descriptors, revokes and tags of the transaction was right.
    pub body_intact: bool,
    /// The commit time lies before that of the transaction before.
    pub time_goes_back: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanDecision {
    /// The block is part of a transaction whose end is not known yet.
    GoOn,
    /// The transaction is committed.
    Committed,
    /// The log ends before this transaction.
    End,
    /// The transaction was committed and its records are no longer what they were.
    Damaged,
}

pub fn decide(facts: Facts) -> ScanDecision {
    if !facts.known || !facts.sequence {
        ScanDecision::End
    } else if !facts.commit {
        ScanDecision::GoOn
    } else if !facts.commit_intact || !facts.transaction_sum {
        ScanDecision::End
    } else if facts.body_intact {
        ScanDecision::Committed
    } else if facts.time_goes_back {
        ScanDecision::End
    } else {
        ScanDecision::Damaged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repeats the rules as sets: which combinations commit, which are damage, which go on.
    #[test]
    fn every_combination_of_facts_has_the_decision_of_the_table() {
        for bits in 0..=127u8 {
            let bit = |at: u8| bits >> at & 1 == 1;
            let facts = Facts {
                known: bit(0),
                sequence: bit(1),
                commit: bit(2),
                commit_intact: bit(3),
                transaction_sum: bit(4),
                body_intact: bit(5),
                time_goes_back: bit(6),
            };
            let expected = match bits {
                _ if bits & 0b111 == 0b011 => ScanDecision::GoOn,
                0b011_1111 | 0b111_1111 => ScanDecision::Committed,
                0b001_1111 => ScanDecision::Damaged,
                _ => ScanDecision::End,
            };
            assert_eq!(decide(facts), expected, "{facts:?}");
        }
    }
}
