//! Decision when the log's tail moves past transactions that replay no longer needs: yes/no facts
//! -> decision, in one table.
//!
//! Two barriers are needed. Blocks that were written home must be durable before the journal
//! superblock says so, and that must be durable before their log blocks are written again. Or none:
//! where a commit's flush makes home durable, too ("covered"), blocks that were home before one
//! flush are durable after it. The superblock then goes out in front of the next.
//!
//! | request from | fact that decides (first that applies) | decision | why |
//! |---|---|---|---|
//! | a commit | nobody has wished for it | stay | the superblock is one block more to write |
//! | a commit | the superblock is in flight | stay | an older tail could overtake a newer one |
//! | a commit | nothing further back is durable at home | stay | replay would miss it |
//! | a commit | none of these | along | its own barrier is enough |
//! | write-back | covered, nobody waits, no round without a commit | leave it to a commit | it costs nothing there |
//! | write-back | the superblock is in flight | stay | the task that moves it wakes the waiters |
//! | write-back | replay still needs all that the superblock names | stay | |
//! | write-back | none of these | move | |

use commit::HomeWrites;
use units::TransactionId;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Facts {
    /// A commit asks, before it writes what comes before its last barrier. Else write-back asks.
    by_commit: bool,
    /// The log is short, or a round of write-back is over, since the tail moved.
    wished: bool,
    /// Whether a handle waits for log space.
    waited_for: bool,
    /// A commit's flush makes home durable, too.
    covered: bool,
    /// A round of write-back is over, and so was one before since the tail moved: no commit has
    /// come.
    second_round: bool,
    /// The superblock is being written.
    moving: bool,
    /// The tail would be a later one than on disk: for a commit, that of which home is known to be
    /// durable.
    ahead: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TailDecision {
    Stay,
    /// The next commit is to take it along.
    LeaveToCommit,
    /// Moves with a plan of its own.
    Move,
    /// Moves along with the commit that asks.
    Along,
}

fn decide(facts: Facts) -> TailDecision {
    let may = facts.ahead && !facts.moving;
    if facts.by_commit {
        if facts.wished && may { TailDecision::Along } else { TailDecision::Stay }
    } else if facts.covered && !facts.waited_for && !facts.second_round {
        TailDecision::LeaveToCommit
    } else if may {
        TailDecision::Move
    } else {
        TailDecision::Stay
    }
}

/// Reason for write-back's request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TailRequest {
    /// Blocks have been written back for want of log space.
    Space,
    /// A round of write-back is over.
    Round,
}

/// Urgency of moving the tail.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    #[default]
    None,
    Soon,
    /// Now: a handle waits for log space.
    Now,
}

/// A tail, and the home writes that must be durable before the superblock says so.
#[derive(Clone, Copy)]
struct Noted {
    tail: TransactionId,
    needs: HomeWrites,
}

/// State of the tail. `on_disk`, the first transaction of the log, is as the superblock **on disk**
/// has it.
pub(crate) struct Tail {
    on_disk: TransactionId,
    urgency: Urgency,
    round_over: bool,
    moving: bool,
    /// Tail that was possible when the last commit began, and the one that is possible already.
    noted: Option<Noted>,
    durable: Option<Noted>,
}

impl Tail {
    pub fn new(on_disk: TransactionId) -> Tail {
        Tail {
            on_disk,
            urgency: Urgency::None,
            round_over: false,
            moving: false,
            noted: None,
            durable: None,
        }
    }
    pub fn on_disk(&self) -> TransactionId {
        self.on_disk
    }
    /// Notes that a handle waits for log space.
    pub fn is_waited_for(&mut self) {
        self.urgency = Urgency::Now;
    }

    fn facts(&self) -> Facts {
        Facts {
            by_commit: false,
            wished: self.urgency >= Urgency::Soon,
            waited_for: self.urgency == Urgency::Now,
            covered: false,
            second_round: false,
            moving: self.moving,
            ahead: false,
        }
    }

    /// Decides a request of write-back. `tail`: where it could be; `None` if the superblock says
    /// nothing of a beginning yet.
    pub fn ask(
        &mut self,
        occasion: TailRequest,
        covered: bool,
        tail: Option<TransactionId>,
    ) -> TailDecision {
        let is_round = occasion == TailRequest::Round;
        let second_round = is_round && std::mem::replace(&mut self.round_over, true);
        let ahead = tail.is_some_and(|tail| tail != self.on_disk);
        let decision = decide(Facts { covered, second_round, ahead, ..self.facts() });
        if decision == TailDecision::LeaveToCommit {
            self.urgency = Urgency::Soon;
        }
        decision
    }

    /// A commit begins that will flush what is home now. `tail`: where it could be, once `needs`
    /// are durable. What another noted whose flush is still to come is kept: commits that overlap
    /// would put it off for ever.
    pub fn commit_begins(&mut self, tail: TransactionId, needs: HomeWrites) {
        self.noted.get_or_insert(Noted { tail, needs });
    }
    /// Promotes what the last commit noted, which a flush may have made durable.
    pub fn promote(&mut self, is_durable: impl Fn(HomeWrites) -> bool) {
        let early = units::fault!("tail-along-too-early");
        if let Some(noted) = self.noted.take_if(|noted| early || is_durable(noted.needs)) {
            self.durable = Some(noted);
        }
    }
    /// Returns the tail that a commit may take along, asked before its last phase.
    pub fn ask_by_commit(&mut self) -> Option<TransactionId> {
        let tail = self.durable?.tail;
        let ahead = tail.is_after(self.on_disk);
        let decision = decide(Facts { by_commit: true, ahead, ..self.facts() });
        (decision == TailDecision::Along).then_some(tail)
    }

    /// Forgets what was taken for durable: barriers were not kept.
    pub fn forget_notes(&mut self) {
        (self.noted, self.durable) = (None, None);
    }

    /// The superblock is in flight to the disk.
    pub fn is_moving(&self) -> bool {
        self.moving && !units::fault!("scattered-superblock-passed")
    }
    pub fn move_begins(&mut self) {
        self.moving = true;
    }
    /// Notes that the superblock has arrived and its tail is as it was.
    pub fn move_ends(&mut self) {
        self.moving = false;
    }
    /// The superblock on disk says `tail`.
    pub fn moved(&mut self, tail: TransactionId) {
        (self.on_disk, self.moving) = (tail, false);
        (self.urgency, self.round_over) = (Urgency::None, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON_DISK: TransactionId = TransactionId(5);
    const LATER: TransactionId = TransactionId(7);

    /// Checks the rules once more, stated as sets of combinations.
    #[test]
    fn every_combination_of_facts_has_the_decision_of_the_table() {
        for bits in 0..=127u8 {
            let bit = |at: u8| bits >> at & 1 == 1;
            let facts = Facts {
                by_commit: bit(0),
                wished: bit(1),
                waited_for: bit(2),
                covered: bit(3),
                second_round: bit(4),
                moving: bit(5),
                ahead: bit(6),
            };
            let expected = match bits {
                // A commit: wished, not moving, ahead.
                _ if bits & 0b110_0011 == 0b100_0011 => TailDecision::Along,
                _ if bits & 0b000_0001 == 0b000_0001 => TailDecision::Stay,
                // Covered, not waited for, no second round.
                _ if bits & 0b001_1100 == 0b000_1000 => TailDecision::LeaveToCommit,
                _ if bits & 0b110_0000 == 0b100_0000 => TailDecision::Move,
                _ => TailDecision::Stay,
            };
            assert_eq!(decide(facts), expected, "{facts:?}");
        }
    }

    #[test]
    fn the_tail_goes_along_only_past_what_was_home_before_an_earlier_flush() {
        let mut tail = Tail::new(ON_DISK);
        tail.ask(TailRequest::Space, true, Some(LATER));
        tail.commit_begins(LATER, HomeWrites::default());
        tail.promote(|_| false);
        assert_eq!(tail.ask_by_commit(), None);
        tail.promote(|_| true);
        assert_eq!(tail.ask_by_commit(), Some(LATER));
    }

    #[test]
    fn a_second_round_without_a_commit_moves_the_tail_by_itself() {
        let mut tail = Tail::new(ON_DISK);
        assert_eq!(tail.ask(TailRequest::Round, true, Some(LATER)), TailDecision::LeaveToCommit);
        assert_eq!(tail.ask(TailRequest::Space, true, Some(LATER)), TailDecision::LeaveToCommit);
        assert_eq!(tail.ask(TailRequest::Round, true, Some(LATER)), TailDecision::Move);
        tail.move_begins();
        assert_eq!(tail.ask(TailRequest::Round, true, Some(LATER)), TailDecision::Stay);
        tail.moved(LATER);
        assert_eq!(tail.ask(TailRequest::Round, true, None), TailDecision::LeaveToCommit);
        assert_eq!(tail.ask(TailRequest::Round, true, Some(LATER)), TailDecision::Stay);
    }

    #[test]
    fn a_caller_that_waits_for_space_waits_for_no_commit() {
        let mut tail = Tail::new(ON_DISK);
        tail.is_waited_for();
        assert_eq!(tail.ask(TailRequest::Space, true, Some(LATER)), TailDecision::Move);
    }
}
