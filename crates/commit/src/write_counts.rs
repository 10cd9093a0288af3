//! Counts of what plans wrote, by kind of block.

use journal::BlockKind;
use serde::Serialize;
use std::collections::BTreeMap;

const KINDS: [(BlockKind, &str); 12] = [
    (BlockKind::Descriptor, "descriptor"),
    (BlockKind::Multiwrite, "multiwrite"),
    (BlockKind::Regular, "regular"),
    (BlockKind::Revoke, "revoke"),
    (BlockKind::Commit, "commit"),
    (BlockKind::Packed, "packed"),
    (BlockKind::RunHeader, "run_header"),
    (BlockKind::Swapped, "swapped"),
    (BlockKind::Snapshot, "snapshot"),
    (BlockKind::JournalSuperblock, "journal_superblock"),
    (BlockKind::HomeData, "data"),
    (BlockKind::HomeMetadata, "metadata"),
];

#[derive(Clone, Copy, Default, Debug, Serialize, PartialEq, Eq)]
pub struct WrittenCount {
    pub blocks: u64,
    pub bytes: u64,
}

/// Counts since the journal was opened.
#[derive(Default)]
pub struct WriteCounts {
    written: [WrittenCount; KINDS.len()],
    issued: u64,
    flushes: u64,
    durable_writes: u64,
}

impl WriteCounts {
    /// Counts written blocks, and their bytes in all.
    pub(crate) fn wrote(&mut self, kind: BlockKind, blocks: u64, bytes: u64) {
        let written = &mut self.written[kind as usize];
        written.blocks += blocks;
        written.bytes += bytes;
    }
    pub(crate) fn issued(&mut self) {
        self.issued += 1;
    }
    pub(crate) fn flushed(&mut self) {
        self.flushes += 1;
    }
    /// Counts a single durable write in place of a flush.
    pub(crate) fn wrote_durably(&mut self) {
        self.durable_writes += 1;
    }

    /// Returns the number of writes that were given to the disks.
    pub fn writes(&self) -> u64 {
        self.issued
    }
    pub fn flushes(&self) -> u64 {
        self.flushes
    }
    pub fn durable_writes(&self) -> u64 {
        self.durable_writes
    }
    /// Returns the blocks written home, or to the log, by the name of their kind.
    pub fn written(&self, home: bool) -> BTreeMap<&'static str, WrittenCount> {
        let kinds = KINDS.into_iter().filter(|(kind, _)| is_home(*kind) == home);
        kinds.map(|(kind, name)| (name, self.written[kind as usize])).collect()
    }
    /// Returns the bytes written to the log.
    pub fn log_bytes(&self) -> u64 {
        self.written(false).values().map(|written| written.bytes).sum()
    }
}

fn is_home(kind: BlockKind) -> bool {
    matches!(kind, BlockKind::HomeData | BlockKind::HomeMetadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_counted_under_its_own_name() {
        let mut counts = WriteCounts::default();
        for (times, (kind, _)) in KINDS.into_iter().enumerate() {
            (0..=times).for_each(|_| counts.wrote(kind, 1, 1024));
        }
        let (home, log) = (counts.written(true), counts.written(false));
        for (times, (kind, name)) in KINDS.into_iter().enumerate() {
            let of = if is_home(kind) { &home } else { &log };
            assert_eq!(
                of[name],
                WrittenCount { blocks: times as u64 + 1, bytes: 1024 * (times as u64 + 1) }
            );
        }
        let all = home.values().chain(log.values()).map(|written| written.bytes);
        assert_eq!((all.sum::<u64>(), home.len() + log.len()), (78 * 1024, KINDS.len()));
    }
}
