//! What the journal superblock says of the log's beginning, and when it may say so.
//!
//! 1. Before the first block of a log that counted as empty is written, the superblock says where
//!    the log begins.
//! 2. The tail passes a transaction only when all that it brings home is durable there. What lies
//!    before the tail is overwritten only when the superblock that says so is durable.
//! 3. Before the first block of a scattered log is written, the superblock says that it is to be
//!    looked at.
//! 4. A log is called empty only when everything is durable at home.
//! 5. A log that a restart keeps goes on with the first id that no committed transaction has.
//!    Headers of that id, and of later ones, are torn runs'. They are overwritten before, durably,
//!    and so are not found in place of what comes.
//! 6. What recovery has found is durable in the log, and can be found there without a table, before
//!    any of it goes home. Whoever recovers after the next power cut finds it again.

use crate::plan::{Address, Barrier, BlockKind, Plan, Step, Write};
use device::Buffer;
use std::rc::Rc;
use units::LogBlock;

/// The journal superblock, a whole block, and where it lies.
#[derive(Clone, Debug)]
pub struct SuperblockImage {
    pub at: LogBlock,
    pub image: Rc<Buffer>,
}

impl SuperblockImage {
    pub(crate) fn write(self) -> Step {
        let blocks = vec![(BlockKind::JournalSuperblock, self.image)];
        Step::Write(Write { at: Address::Log(self.at), blocks })
    }
}

/// Puts in front of the log's first commit what says that the log is no longer empty.
pub fn begin_log(first: &mut Plan, superblock: SuperblockImage) {
    first.steps.splice(0..0, [superblock.write(), Step::Barrier(Barrier::TailBeforeReuse)]);
}

/// Moves the tail by itself.
pub fn plan_tail_update(superblock: SuperblockImage) -> Plan {
    let mut plan = Plan::default();
    if !units::fault!("tail-before-home") {
        plan.barrier(Barrier::HomeBeforeLogTail);
    }
    plan.steps.push(superblock.write());
    if !units::fault!("tail-before-reuse") {
        plan.barrier(Barrier::TailBeforeReuse);
    }
    plan
}

/// Moves the tail with a commit: `last` is what the commit writes before its last barrier, which
/// takes the place of `TailBeforeReuse`. What the tail passes must be durable at home already.
pub fn take_tail_along(last: &mut Plan, superblock: SuperblockImage) {
    assert!(matches!(last.steps.last(), Some(Step::Barrier(_))), "a commit ends with a barrier");
    last.steps.insert(0, superblock.write());
}

/// Says of the log what recovery must know before more is written to it.
pub fn plan_announcement(superblock: SuperblockImage) -> Plan {
    let mut plan = Plan::default();
    plan.steps.push(superblock.write());
    plan.barrier(Barrier::TailBeforeReuse);
    plan
}

/// Makes durable what has been written home: for a sync of data that no log holds, and for whoever
/// reads it there.
pub fn plan_home_durable() -> Plan {
    let mut plan = Plan::default();
    plan.barrier(Barrier::HomeBeforeReply);
    plan
}

/// A mount begins with it: nothing is written before.
pub fn plan_found_log() -> Plan {
    let mut plan = Plan::default();
    plan.barrier(Barrier::FoundBeforeWrite);
    plan
}

/// The log stays as recovery found it, and what it does not hold whole is home. `headers`: what
/// stands in the place of those that must not be found again.
pub fn plan_kept_log(headers: Vec<(LogBlock, Rc<Buffer>)>) -> Plan {
    let mut plan = Plan::default();
    for (at, header) in headers {
        if units::fault!("kept-torn-header") {
            break;
        }
        plan.write(Address::Log(at), vec![(BlockKind::RunHeader, header)]);
    }
    plan.barrier(Barrier::HomeBeforeLogTail);
    plan
}

/// Everything is home: at unmount, and after recovery. `superblock` says that the log is empty;
/// there is none without a log, or if it says so already.
pub fn plan_empty_log(superblock: Option<SuperblockImage>) -> Plan {
    let mut plan = Plan::default();
    plan.barrier(Barrier::HomeBeforeLogTail);
    if let Some(superblock) = superblock {
        plan.steps.push(superblock.write());
        plan.barrier(Barrier::TailBeforeReuse);
    }
    plan
}
