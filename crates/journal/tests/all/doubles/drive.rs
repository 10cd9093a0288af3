use super::HomeAddresses;
use crate::simulation::Disk;
use journal::*;
use std::collections::BTreeSet;
use std::rc::Rc;
use units::{HomeBlock, SplitMix};

/// Maximum number of blocks in the cache of which each subset is tried.
const EXHAUSTIVE_MAX: usize = 5;
/// Number of random subsets beyond that.
const SAMPLES: usize = 8;
/// Blocks that the cache of a drive which ignores flushes holds.
const CACHE_BLOCKS: usize = 12;

/// HOW: a kind of barrier, with the disk that it is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BarrierCase {
    /// Does nothing: the cache survives a power cut.
    Nothing,
    /// Flushes everything.
    Flush,
    /// Makes durable, by itself, what the barrier's reason names, file by file where home has
    /// files, and nothing else.
    DurableWrites,
    /// Ignores flushes. Enough is written to a zone that all else leaves the cache, oldest first.
    Evictions,
    /// Does nothing, though the cache is lost: this one must lose acknowledged writes.
    Missing,
}

impl BarrierCase {
    pub const ALL: [BarrierCase; 4] = [
        BarrierCase::Nothing,
        BarrierCase::Flush,
        BarrierCase::DurableWrites,
        BarrierCase::Evictions,
    ];
}

/// Start of its write, index of the block in that, and its bytes.
type Block = (Address, usize, Rc<[u8]>);

/// A disk, its cache, and how barriers are kept on it.
#[derive(Clone)]
pub struct Drive {
    pub durable: Disk,
    barrier: BarrierCase,
    addresses: HomeAddresses,
    /// Blocks that a power cut may take, oldest first.
    cached: Vec<Block>,
}

impl Drive {
    pub fn new(durable: Disk, barrier: BarrierCase, addresses: HomeAddresses) -> Drive {
        Drive { durable, barrier, addresses, cached: Vec::new() }
    }

    /// Carries `plan` out. `check` is shown what a power cut may leave at each barrier, while it is
    /// kept, and at the end, with the barriers that have been passed.
    pub fn run(&mut self, plan: &Plan, rng: &SplitMix, mut check: impl FnMut(Disk, &[Barrier])) {
        let mut passed = Vec::new();
        for step in &plan.steps {
            match step {
                Step::Write(write) => self.write(write),
                Step::Barrier(reason) => {
                    self.cuts(rng, |disk| check(disk, &passed));
                    self.keep(*reason, rng, |disk| check(disk, &passed));
                    passed.push(*reason);
                }
            }
        }
        self.cuts(rng, |disk| check(disk, &passed));
        if self.barrier == BarrierCase::Nothing {
            self.flush();
        }
    }

    /// Writes outside every plan: write-back, which no barrier need follow.
    pub fn write(&mut self, write: &Write) {
        // A buffer may hold several blocks.
        let length = match write.at {
            Address::Home(_) => self.durable.home[0].len(),
            _ => self.durable.log[0].len(),
        };
        let blocks = write.blocks.iter().flat_map(|(_, buffer)| buffer.chunks(length)).enumerate();
        self.cached.extend(blocks.map(|(index, block)| (write.at, index, block.into())));
        if self.barrier == BarrierCase::Evictions {
            self.evict_to(CACHE_BLOCKS);
        }
    }

    pub fn flush(&mut self) {
        self.settle(|_| true);
    }

    /// Overwrites a home block durably, whatever was in flight to it.
    pub fn overwrite(&mut self, home: HomeBlock, byte: u8) {
        self.settle(|at| at == Address::Home(home));
        self.durable.home[(self.durable.index_of)(home)].fill(byte);
    }

    fn keep(&mut self, reason: Barrier, rng: &SplitMix, mut check: impl FnMut(Disk)) {
        let of_home = match reason {
            Barrier::DataBeforeCommit
            | Barrier::HomeBeforeLogTail
            | Barrier::HomeBeforeReply
            | Barrier::SnapshotBeforeSuperblock
            | Barrier::FoundBeforeWrite => true,
            Barrier::LogBeforeCommit
            | Barrier::CommitBeforeReply
            | Barrier::TailBeforeReuse
            | Barrier::TableBeforeRun
            | Barrier::WipedBeforeRun
            | Barrier::CopyBeforeHeader => false,
        };
        match self.barrier {
            BarrierCase::Nothing | BarrierCase::Flush => self.flush(),
            BarrierCase::Missing => {}
            BarrierCase::Evictions => {
                self.evict_to(CACHE_BLOCKS / 2);
                self.cuts(rng, &mut check);
                self.evict_to(0);
            }
            BarrierCase::DurableWrites if of_home => {
                let addresses = self.addresses;
                let file = move |at: Address| match at {
                    Address::Home(home) => Some(addresses.file(home)),
                    _ => None,
                };
                let files: BTreeSet<u64> =
                    self.cached.iter().filter_map(|(at, ..)| file(*at)).collect();
                for this in files {
                    self.cuts(rng, &mut check);
                    self.settle(|at| file(at) == Some(this));
                }
            }
            BarrierCase::DurableWrites => self.settle(|at| matches!(at, Address::Log(_))),
        }
    }

    fn settle(&mut self, which: impl Fn(Address) -> bool) {
        let (settled, cached) = self.cached.drain(..).partition(|(at, ..)| which(*at));
        self.cached = cached;
        put(&mut self.durable, settled);
    }
    fn evict_to(&mut self, count: usize) {
        let leave = self.cached.len().saturating_sub(count);
        let left = self.cached.drain(..leave).collect();
        put(&mut self.durable, left);
    }

    /// Checks states in which each cached block is there, lost or torn.
    fn cuts(&self, rng: &SplitMix, mut check: impl FnMut(Disk)) {
        let count = self.cached.len();
        let is_exhaustive = count <= EXHAUSTIVE_MAX && self.barrier == BarrierCase::Flush;
        let subsets = if is_exhaustive { 1 << count } else { SAMPLES.min(1 << count.min(8)) };
        for subset in 0..subsets {
            let mut crashed = self.durable.clone();
            for (number, (at, index, block)) in self.cached.iter().enumerate() {
                let kept = match is_exhaustive {
                    true => subset >> number & 1 == 1,
                    false => subset == 1 || subset > 1 && rng.below(8) != 0,
                };
                let torn = rng.below(12) == 0 && subset > 1;
                for sector in 0..block.len() / Disk::SECTOR {
                    if kept != (torn && rng.below(2) == 0) {
                        crashed.write(*at, *index, block, sector..sector + 1);
                    }
                }
            }
            check(crashed);
        }
    }
}

fn put(disk: &mut Disk, blocks: Vec<Block>) {
    for (at, index, block) in blocks {
        disk.write(at, index, &block, 0..block.len() / Disk::SECTOR);
    }
}
