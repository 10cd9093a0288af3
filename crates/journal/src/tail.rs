//! Beginning of the log in the journal superblock, and when it may be changed.
//!
//! 1. Before the first block of a log that counted as empty is written, the superblock records
//!    where the log begins.
//! 2. The tail passes a transaction only when all blocks that it logs are durable at home. Log
//!    blocks before the tail are overwritten only when the superblock that moved it is durable.
//! 3. Before the first block of a scattered log is written, the superblock names that log.
//! 4. A log is called empty only when everything is durable at home.
//! 5. A log that a restart keeps continues with the first id that no committed transaction has.
//!    Headers of that id and of later ones belong to torn runs. They are overwritten before,
//!    durably, so that they are not found in place of new transactions.
//! 6. Transactions that recovery has found are durable in the log, and can be found there without a
//!    table, before any of them is written home. Recovery after the next power cut finds them
//!    again.

use crate::plan::{Address, Barrier, BlockKind, Plan, Step, Write};
use device::Buffer;
use std::rc::Rc;
use units::LogBlock;

/// The journal superblock, a whole block, and its address.
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

/// Inserts, in front of the log's first commit, the superblock of a log that is no longer empty.
pub fn begin_log(first: &mut Plan, superblock: SuperblockImage) {
    first.steps.splice(0..0, [superblock.write(), Step::Barrier(Barrier::TailBeforeReuse)]);
}

/// Plans a tail update on its own.
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

/// Moves the tail with a commit: `last` holds the writes of the commit before its last barrier,
/// which takes the place of `TailBeforeReuse`. Records that the tail passes must already be durable
/// at home.
pub fn take_tail_along(last: &mut Plan, superblock: SuperblockImage) {
    assert!(matches!(last.steps.last(), Some(Step::Barrier(_))), "a commit ends with a barrier");
    last.steps.insert(0, superblock.write());
}

/// Plans the superblock with what recovery must know before more is written to the log.
pub fn plan_announcement(superblock: SuperblockImage) -> Plan {
    let mut plan = Plan::default();
    plan.steps.push(superblock.write());
    plan.barrier(Barrier::TailBeforeReuse);
    plan
}

/// Plans the flush of blocks written home: for a sync of data that no log holds, and for readers of
/// the home blocks.
pub fn plan_home_durable() -> Plan {
    let mut plan = Plan::default();
    plan.barrier(Barrier::HomeBeforeReply);
    plan
}

/// Plans the barrier with which a mount begins: nothing is written before.
pub fn plan_flush_on_open() -> Plan {
    let mut plan = Plan::default();
    plan.barrier(Barrier::FoundBeforeWrite);
    plan
}

/// Plans a log that stays as recovery found it; blocks that it does not hold whole are home.
/// `headers`: blocks to write over those that must not be found again.
pub fn plan_retained_log(headers: Vec<(LogBlock, Rc<Buffer>)>) -> Plan {
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

/// Plans the end of a log all of whose blocks are home: at unmount, and after recovery.
/// `superblock` marks the log empty; `None` without a log, or if it is marked so already.
pub fn plan_empty_log(superblock: Option<SuperblockImage>) -> Plan {
    let mut plan = Plan::default();
    plan.barrier(Barrier::HomeBeforeLogTail);
    if let Some(superblock) = superblock {
        plan.steps.push(superblock.write());
        plan.barrier(Barrier::TailBeforeReuse);
    }
    plan
}
