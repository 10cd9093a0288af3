//! What the engine counts, and the snapshot that `stats` prints.

use hdrhistogram::Histogram;
use journal::BlockKind;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Latencies up to an hour are told apart to three digits.
const LATENCY_NANOSECONDS_MAX: u64 = 3600 * 1_000_000_000;

const KINDS: [(BlockKind, &str); 10] = [
    (BlockKind::Descriptor, "descriptor"),
    (BlockKind::Multiwrite, "multiwrite"),
    (BlockKind::Regular, "regular"),
    (BlockKind::Revoke, "revoke"),
    (BlockKind::Commit, "commit"),
    (BlockKind::Packed, "packed"),
    (BlockKind::RunHeader, "run_header"),
    (BlockKind::JournalSuperblock, "journal_superblock"),
    (BlockKind::HomeData, "data"),
    (BlockKind::HomeMetadata, "metadata"),
];

#[derive(Clone, Copy, Default, Debug, Serialize, PartialEq, Eq)]
pub struct Written {
    pub blocks: u64,
    pub bytes: u64,
}

/// Counts since the engine was opened.
pub(crate) struct Counters {
    written: [Written; KINDS.len()],
    pub flushes: u64,
    pub durable_writes: u64,
    pub home_writes: u64,
    pub home_reads: u64,
    pub commits: u64,
    pub handles: u64,
    pub handles_per_commit_max: u64,
    pub payload_bytes: u64,
    pub checkpoints: u64,
    pub tail_updates: u64,
    pub cache_hits: u64,
    pub cache_misses: u64,
    sync_latency: Histogram<u64>,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            written: Default::default(),
            flushes: 0,
            durable_writes: 0,
            home_writes: 0,
            home_reads: 0,
            commits: 0,
            handles: 0,
            handles_per_commit_max: 0,
            payload_bytes: 0,
            checkpoints: 0,
            tail_updates: 0,
            cache_hits: 0,
            cache_misses: 0,
            sync_latency: Histogram::new_with_max(LATENCY_NANOSECONDS_MAX, 3).expect("constant bounds"),
        }
    }
}

impl Counters {
    pub fn wrote(&mut self, kind: BlockKind, bytes: u64) {
        let written = &mut self.written[kind as usize];
        written.blocks += 1;
        written.bytes += bytes;
    }
    pub fn synced(&mut self, latency: Duration) {
        self.sync_latency.saturating_record(latency.as_nanos() as u64);
    }
    pub fn committed(&mut self, handles: u64, payload: u64) {
        self.commits += 1;
        self.handles += handles;
        self.handles_per_commit_max = self.handles_per_commit_max.max(handles);
        self.payload_bytes += payload;
    }

    pub fn snapshot(&self, cache: CacheUse, log: LogUse) -> Statistics {
        let written = |home: bool| {
            let kinds = KINDS.into_iter().filter(|(kind, _)| is_home(*kind) == home);
            kinds.map(|(kind, name)| (name, self.written[kind as usize])).collect()
        };
        let quantile = |q: f64| self.sync_latency.value_at_quantile(q);
        Statistics {
            log_written: written(false),
            home_written: written(true),
            flushes: self.flushes,
            durable_writes: self.durable_writes,
            home_writes: self.home_writes,
            home_reads: self.home_reads,
            payload_bytes: self.payload_bytes,
            commits: self.commits,
            handles: self.handles,
            handles_per_commit: self.handles as f64 / self.commits.max(1) as f64,
            handles_per_commit_max: self.handles_per_commit_max,
            sync: SyncLatency {
                count: self.sync_latency.len(),
                p50_nanoseconds: quantile(0.5),
                p90_nanoseconds: quantile(0.9),
                p99_nanoseconds: quantile(0.99),
                max_nanoseconds: self.sync_latency.max(),
            },
            checkpoints: self.checkpoints,
            tail_updates: self.tail_updates,
            cache: CacheUse { hits: self.cache_hits, misses: self.cache_misses, ..cache },
            log,
        }
    }
}

fn is_home(kind: BlockKind) -> bool {
    matches!(kind, BlockKind::HomeData | BlockKind::HomeMetadata)
}

/// What `okeanos stats` shows of the engine.
#[derive(Clone, Debug, Serialize)]
pub struct Statistics {
    /// By kind of block.
    pub log_written: BTreeMap<&'static str, Written>,
    pub home_written: BTreeMap<&'static str, Written>,
    /// Flush commands, and single writes made durable in their place.
    pub flushes: u64,
    pub durable_writes: u64,
    /// Disk requests of write-back and checkpoint.
    pub home_writes: u64,
    pub home_reads: u64,
    /// Bytes of file data in committed transactions, as callers wrote them.
    pub payload_bytes: u64,
    pub commits: u64,
    pub handles: u64,
    pub handles_per_commit: f64,
    pub handles_per_commit_max: u64,
    pub sync: SyncLatency,
    /// Rounds in which blocks were written home to free log space.
    pub checkpoints: u64,
    pub tail_updates: u64,
    pub cache: CacheUse,
    pub log: LogUse,
}

impl Statistics {
    pub fn log_bytes(&self) -> u64 {
        self.log_written.values().map(|written| written.bytes).sum()
    }
    pub fn home_bytes(&self) -> u64 {
        self.home_written.values().map(|written| written.bytes).sum()
    }
}

#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct SyncLatency {
    pub count: u64,
    pub p50_nanoseconds: u64,
    pub p90_nanoseconds: u64,
    pub p99_nanoseconds: u64,
    pub max_nanoseconds: u64,
}

#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct CacheUse {
    pub hits: u64,
    pub misses: u64,
    pub blocks: u64,
    pub dirty_blocks: u64,
    /// All images of blocks, with what goes with them in memory; and how many there may be.
    pub bytes: u64,
    pub limit_bytes: u64,
}

#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct LogUse {
    pub blocks: u64,
    pub free_blocks: u64,
    /// The length of each.
    pub block_bytes: u64,
    /// How transactions are written; empty without a log.
    pub records: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_counted_under_its_own_name() {
        let mut counters = Counters::default();
        for (times, (kind, _)) in KINDS.into_iter().enumerate() {
            (0..=times).for_each(|_| counters.wrote(kind, 1024));
        }
        let snapshot = counters.snapshot(CacheUse::default(), LogUse::default());
        for (times, (kind, name)) in KINDS.into_iter().enumerate() {
            let of = if is_home(kind) { &snapshot.home_written } else { &snapshot.log_written };
            assert_eq!(of[name], Written { blocks: times as u64 + 1, bytes: 1024 * (times as u64 + 1) });
        }
        assert_eq!(snapshot.log_bytes() + snapshot.home_bytes(), 45 * 1024);
    }
}
