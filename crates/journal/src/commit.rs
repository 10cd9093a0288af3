//! From a locked transaction to everything that must be written for it, in order and with reasons.

use crate::log_space::{LogFull, LogRuns, LogSpace};
use crate::plan::{BlockKind, Plan};
use crate::transaction::LockedTransaction;
use device::Buffer;
use std::collections::BTreeMap;
use std::rc::Rc;
use units::{BlockSize, HomeBlock, Timestamp};

/// How the log of this mount is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FormatOptions {
    pub block_size: BlockSize,
    /// Checksums v3 in tags, descriptors, revokes and commit blocks (`journal_checksum`).
    pub checksums: bool,
    /// 64-bit block numbers in tags and revokes (the journal's 64BIT feature).
    pub wide: bool,
    /// Multiwrite blocks are allowed; with `checksums`, commit blocks carry a checksum of the whole transaction.
    pub extended: bool,
    /// The journal's UUID: seeds every checksum and stands beside the first tag.
    pub uuid: [u8; 16],
    pub commit_time: Timestamp,
}

#[derive(Debug)]
pub struct CommitPlan {
    pub plan: Plan,
    /// The log blocks taken. Empty if there was nothing to log.
    pub runs: LogRuns,
    /// Blocks written, by kind.
    pub counts: BTreeMap<BlockKind, u64>,
    /// Bytes of file data that callers wrote, logged or home.
    pub payload: u64,
}

/// `images` gives the content of a block as of the locking of the transaction; for a block recorded as bytes,
/// only those bytes need be right. Takes log blocks from `log`.
pub fn plan_commit(
    transaction: &LockedTransaction,
    images: &dyn Fn(HomeBlock) -> Rc<Buffer>,
    log: &mut dyn LogSpace,
    options: &FormatOptions,
) -> Result<CommitPlan, LogFull> {
    let _ = (transaction, images, log, options);
    todo!()
}
