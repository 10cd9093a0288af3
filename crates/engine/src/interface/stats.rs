//! Counters of the engine, and the snapshot that `stats` prints.

use crate::writeback::checkpoints::CheckpointReport;
use commit::{WriteCounts, WrittenCount};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Latencies up to an hour are kept to three digits.
const LATENCY_NANOSECONDS_MAX: u64 = 3600 * 1_000_000_000;

/// Classes of latencies, in each power of ten from 1 us to 100 s: fine enough for the percentiles
/// of an interval.
const CLASSES: [u64; 10] = [100, 120, 150, 200, 250, 300, 400, 500, 600, 800];
const CLASS_DECADES: u32 = 8;

/// Classes of write requests: up to each power of two.
const REQUEST_CLASSES: usize = 33;

/// Updates of file data by write requests of one size: what a threshold would have sorted.
#[derive(Clone, Copy, Default, Debug, Serialize, PartialEq, Eq)]
pub struct RequestClass {
    /// Maximum length in bytes of a request in this class; the minimum is just above half of it.
    pub request_bytes_max: u64,
    /// Updates, each within one block.
    pub updates: u64,
    pub bytes: u64,
    /// Updates that were the first of their block in their transaction.
    pub blocks: u64,
}

/// Syncs that took at most `nanoseconds_max` and are in no lower class.
#[derive(Clone, Copy, Default, Debug, Serialize, PartialEq, Eq)]
pub struct LatencyClass {
    pub nanoseconds_max: u64,
    pub count: u64,
}

/// Counts since the engine was opened.
pub(crate) struct Counters {
    home_writes: u64,
    home_reads: u64,
    commits: u64,
    handles: u64,
    handles_per_commit_max: u64,
    payload_bytes: u64,
    checkpoints: u64,
    tail_updates: u64,
    cache_hits: u64,
    cache_misses: u64,
    redirected_reads: u64,
    swaps: u64,
    sync_latency: Histogram<u64>,
    sync_nanoseconds: u64,
    requests: [RequestClass; REQUEST_CLASSES],
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
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
            redirected_reads: 0,
            swaps: 0,
            sync_latency: Histogram::new_with_max(LATENCY_NANOSECONDS_MAX, 3)
                .expect("constant bounds"),
            sync_nanoseconds: 0,
            requests: std::array::from_fn(|class| RequestClass {
                request_bytes_max: 1 << class,
                ..RequestClass::default()
            }),
        }
    }
}

impl Counters {
    pub fn requested_home_write(&mut self) {
        self.home_writes += 1;
    }
    pub fn requested_home_read(&mut self) {
        self.home_reads += 1;
    }
    pub fn redirected_reads(&mut self, blocks: u64) {
        self.redirected_reads += blocks;
    }
    /// The cache was asked for a block.
    pub fn looked_up(&mut self, is_hit: bool) {
        match is_hit {
            true => self.cache_hits += 1,
            false => self.cache_misses += 1,
        }
    }
    pub fn checkpointed(&mut self) {
        self.checkpoints += 1;
    }
    pub fn moved_tail(&mut self) {
        self.tail_updates += 1;
    }
    pub fn swapped(&mut self) {
        self.swaps += 1;
    }
    /// Grows with whatever keeps the disk from being idle.
    pub fn activity(&self) -> u64 {
        self.commits + self.home_reads + self.cache_misses
    }
    pub fn synced(&mut self, latency: Duration) {
        let nanoseconds = latency.as_nanos() as u64;
        self.sync_latency.saturating_record(nanoseconds);
        self.sync_nanoseconds = self.sync_nanoseconds.saturating_add(nanoseconds);
    }
    /// Counts an update of `bytes` within a block, part of a request of `request` bytes.
    pub fn updated(&mut self, request: u64, bytes: u64, is_first_of_block: bool) {
        let class = (u64::BITS - request.saturating_sub(1).leading_zeros()) as usize;
        let class = &mut self.requests[class.min(REQUEST_CLASSES - 1)];
        class.updates += 1;
        class.bytes += bytes;
        class.blocks += u64::from(is_first_of_block);
    }
    pub fn committed(&mut self, handles: u64, payload: u64) {
        self.commits += 1;
        self.handles += handles;
        self.handles_per_commit_max = self.handles_per_commit_max.max(handles);
        self.payload_bytes += payload;
    }

    pub fn snapshot(&self, written: &WriteCounts, cache: CacheUse, log: LogUse) -> Statistics {
        let quantile = |q: f64| self.sync_latency.value_at_quantile(q);
        Statistics {
            log_written: written.written(false),
            home_written: written.written(true),
            flushes: written.flushes(),
            durable_writes: written.durable_writes(),
            home_writes: self.home_writes,
            home_reads: self.home_reads,
            redirected_reads: self.redirected_reads,
            swaps: self.swaps,
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
                sum_nanoseconds: self.sync_nanoseconds,
                classes: classes_of(&self.sync_latency),
            },
            requests: self.requests.into_iter().filter(|class| class.updates > 0).collect(),
            checkpoints: self.checkpoints,
            tail_updates: self.tail_updates,
            last_checkpoint: CheckpointReport::default(),
            cache: CacheUse { hits: self.cache_hits, misses: self.cache_misses, ..cache },
            log,
        }
    }
}

/// Returns all classes, so that two calls list the same ones; a latency beyond the last class
/// counts in it.
fn classes_of(latencies: &Histogram<u64>) -> Vec<LatencyClass> {
    let bounds =
        (0..CLASS_DECADES).flat_map(|decade| CLASSES.map(|class| class * 10_u64.pow(decade + 1)));
    let class = |nanoseconds_max| LatencyClass { nanoseconds_max, count: 0 };
    let mut classes: Vec<LatencyClass> = bounds.map(class).collect();
    let mut at = 0;
    for found in latencies.iter_recorded() {
        while at + 1 < classes.len() && found.value_iterated_to() > classes[at].nanoseconds_max {
            at += 1;
        }
        classes[at].count += found.count_at_value();
    }
    classes
}

/// Statistics of the engine, as `okeanos stats` prints them.
#[derive(Clone, Debug, Serialize)]
pub struct Statistics {
    /// Log writes by kind of block.
    pub log_written: BTreeMap<&'static str, WrittenCount>,
    pub home_written: BTreeMap<&'static str, WrittenCount>,
    /// Flush commands, and single writes made durable in their place.
    pub flushes: u64,
    pub durable_writes: u64,
    /// Disk requests of write-back and checkpoint.
    pub home_writes: u64,
    pub home_reads: u64,
    /// Blocks that were read from the log, because they were not home yet and no longer in memory.
    pub redirected_reads: u64,
    /// Logs whose content moved to another one (`swap_above=`); the blocks are among those written
    /// to the log.
    pub swaps: u64,
    /// Bytes of file data in committed transactions, as callers wrote them.
    pub payload_bytes: u64,
    pub commits: u64,
    pub handles: u64,
    pub handles_per_commit: f64,
    pub handles_per_commit_max: u64,
    pub sync: SyncLatency,
    /// Requests by size of the write; sizes that never came are left out.
    pub requests: Vec<RequestClass>,
    /// Rounds in which blocks were written home to free log space.
    pub checkpoints: u64,
    pub tail_updates: u64,
    /// The last one of everything.
    pub last_checkpoint: CheckpointReport,
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

#[derive(Clone, Default, Debug, Serialize)]
pub struct SyncLatency {
    pub count: u64,
    pub p50_nanoseconds: u64,
    pub p90_nanoseconds: u64,
    pub p99_nanoseconds: u64,
    pub max_nanoseconds: u64,
    pub sum_nanoseconds: u64,
    pub classes: Vec<LatencyClass>,
}

#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct CacheUse {
    pub hits: u64,
    pub misses: u64,
    pub blocks: u64,
    pub dirty_blocks: u64,
    /// Memory of all images of blocks and of what belongs to them; and the limit.
    pub bytes: u64,
    pub limit_bytes: u64,
    /// Bytes of the table of update sequences (`selective`, `adaptive`), which the bytes above
    /// include.
    pub sequence_bytes: u64,
}

#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct LogUse {
    pub blocks: u64,
    pub free_blocks: u64,
    /// The length of each.
    pub block_bytes: u64,
    /// Blocks that the log alone holds as they are now.
    pub mapped_blocks: u64,
    /// Gap that a commit leaves behind the one before it, if it follows at once.
    pub gap_bytes: u64,
    /// Record format of the transactions; empty without a log.
    pub records: &'static str,
    /// Selective mode: requests of fewer bytes are small now.
    pub threshold_bytes: Option<u64>,
    /// `threshold=auto`: it is learnt from what writes cost.
    pub threshold_is_learnt: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_and_requests_stand_in_the_class_of_their_size() {
        let mut counters = Counters::default();
        for microseconds in [7, 110, 110, 1_900_000_000] {
            counters.synced(Duration::from_micros(microseconds));
        }
        for (request, first) in
            [(0, true), (1, true), (128, true), (128, false), (129, true), (u64::MAX, true)]
        {
            counters.updated(request, 100, first);
        }
        let statistics =
            counters.snapshot(&WriteCounts::default(), CacheUse::default(), LogUse::default());
        let filled = statistics.sync.classes.iter().filter(|class| class.count > 0);
        let filled: Vec<_> = filled.map(|class| (class.nanoseconds_max, class.count)).collect();
        assert_eq!(filled, [(8_000, 1), (120_000, 2), (80_000_000_000, 1)]);
        assert_eq!(statistics.sync.sum_nanoseconds, 1_900_000_227_000);
        let requests = statistics
            .requests
            .iter()
            .map(|class| (class.request_bytes_max, class.updates, class.blocks));
        assert_eq!(
            requests.collect::<Vec<_>>(),
            [(1, 2, 2), (128, 2, 1), (256, 1, 1), (1 << 32, 1, 1)]
        );
    }
}
