//! Plans are data: what is written where, in what order and why. The engine carries them out; the barrier
//! kind decides what each barrier costs; tests read them, cut them at every place, and ask what survives.

use crate::log_space::{LogRuns, LogSlot};
use device::Buffer;
use std::collections::BTreeMap;
use std::rc::Rc;
use units::{HomeBlock, LogBlock};

/// Why everything before must be durable before anything after. How is the barrier kind's business.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Barrier {
    /// Data home before the commit that makes it reachable (ordered, and what bypasses the log).
    DataBeforeCommit,
    /// The transaction's log blocks before its commit block. Not needed when a checksum over the whole
    /// transaction is verified while scanning.
    LogBeforeCommit,
    /// The commit block before anyone is told that the transaction is durable.
    CommitBeforeReply,
    /// Home copies before the log tail moves past the records they came from.
    HomeBeforeLogTail,
    /// Home copies before whoever reads them past the journal is told where they lie.
    HomeBeforeReply,
    /// The journal superblock's new tail before its old log blocks are written again.
    TailBeforeReuse,
}

/// What a written block is, for `stats`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BlockKind {
    Descriptor,
    Multiwrite,
    Regular,
    Revoke,
    Commit,
    Packed,
    RunHeader,
    JournalSuperblock,
    HomeData,
    HomeMetadata,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Address {
    Home(HomeBlock),
    Log(LogBlock),
    /// A block of a transaction's log whose address is not known yet: no plan is carried out before [`Plan::bind`].
    Slot(LogSlot),
}

/// Consecutive blocks, written as one request where the disk allows it.
#[derive(Clone, Debug)]
pub struct Write {
    pub at: Address,
    pub blocks: Vec<(BlockKind, Rc<Buffer>)>,
}

#[derive(Clone, Debug)]
pub enum Step {
    Write(Write),
    Barrier(Barrier),
}

/// Writes between two barriers may reach the disk in any order.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub steps: Vec<Step>,
}

impl Plan {
    pub fn write(&mut self, at: Address, blocks: Vec<(BlockKind, Rc<Buffer>)>) {
        self.steps.push(Step::Write(Write { at, blocks }));
    }
    pub fn barrier(&mut self, reason: Barrier) {
        self.steps.push(Step::Barrier(reason));
    }
    /// The log has said that the blocks of the plan's transaction lie in `runs`.
    pub fn bind(&mut self, runs: &LogRuns) {
        let mut bound = Vec::with_capacity(self.steps.len());
        for step in self.steps.drain(..) {
            match step {
                Step::Write(Write { at: Address::Slot(slot), mut blocks }) => {
                    for run in runs.part(slot.index, blocks.len() as u32) {
                        let rest = blocks.split_off(run.count as usize);
                        let at = Address::Log(run.start);
                        bound.push(Step::Write(Write { at, blocks: std::mem::replace(&mut blocks, rest) }));
                    }
                }
                step => bound.push(step),
            }
        }
        self.steps = bound;
    }
    /// Puts a block in front of the first log block.
    pub fn write_before_log(&mut self, at: LogBlock, block: (BlockKind, Rc<Buffer>)) {
        let in_log = |step: &Step| matches!(step, Step::Write(Write { at: Address::Log(_), .. }));
        let first = self.steps.iter().position(in_log).unwrap_or(self.steps.len());
        self.steps.insert(first, Step::Write(Write { at: Address::Log(at), blocks: vec![block] }));
    }
    /// Takes off what stands between the last two barriers, and the last.
    pub fn split_off_last_phase(&mut self) -> Plan {
        let before = self.steps.len().saturating_sub(1);
        let barrier = self.steps[..before].iter().rposition(|step| matches!(step, Step::Barrier(_)));
        Plan { steps: self.steps.split_off(barrier.map_or(0, |at| at + 1)) }
    }
    /// Blocks written, by kind.
    pub fn counts(&self) -> BTreeMap<BlockKind, u64> {
        let mut counts = BTreeMap::new();
        for step in &self.steps {
            if let Step::Write(write) = step {
                write.blocks.iter().for_each(|(kind, _)| *counts.entry(*kind).or_default() += 1);
            }
        }
        counts
    }
}
