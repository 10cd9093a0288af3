//! Inspection of the logs of a disk. It reads as a restart does, and writes nothing.

use crate::BLOCK;
use crate::checkpoint::{CheckpointRequests, requests};
use crate::layout::Layout;
use crate::logs::Log;
use crate::record::{Header, RecordEntry};
use crate::restart::{OpenError, Reader, identify};
use crate::table::{Mapped, MappingTable};
use device::Disk;
use std::collections::BTreeMap;
use std::rc::Rc;
use units::Instant;

#[derive(Clone, Debug)]
pub struct LogsState {
    pub layout: Layout,
    /// The newest record that the snapshot knows, and the newest of all.
    pub snapshot: u64,
    pub newest: u64,
    /// Requests of a checkpoint of all logs.
    pub checkpoint: CheckpointRequests,
    /// Logs that are not empty.
    pub logs: Vec<LogState>,
}

#[derive(Clone, Debug)]
pub struct LogState {
    pub log: u32,
    /// Its begin, in blocks of the disk below.
    pub begin: u64,
    /// Bytes up to the end of its last record. All of them, if that is not whole.
    pub bytes_used: u64,
    pub records: u64,
    /// Records that hold the newest content of some block, and their first and last number.
    pub live_records: u64,
    pub live_first: u64,
    pub live_last: u64,
    /// Blocks of which the newest lies here.
    pub live_blocks: u64,
    /// Requests of a checkpoint of this log alone.
    pub checkpoint: CheckpointRequests,
}

/// Reads what the logs hold. If another program changes the disk during that, the results may not
/// fit together.
pub async fn inspect(
    main: &Rc<dyn Disk>,
    meta: Option<&Rc<dyn Disk>>,
) -> Result<LogsState, OpenError> {
    let layout = identify(main, meta).await?;
    let mut reader = Reader::new(main, meta.unwrap_or(main), layout);
    let inner = reader.restore(Instant(0)).await?;
    let batch: Vec<(u64, Mapped)> = inner.table.iter().collect();
    let mut batches: BTreeMap<u32, Vec<(u64, Mapped)>> = BTreeMap::new();
    for (home, mapped) in &batch {
        if let Some((log, _)) = layout.log_of(mapped.place) {
            batches.entry(log).or_default().push((*home, *mapped));
        }
    }
    let mut logs = Vec::new();
    for (number, log) in (0..).zip(&inner.logs).filter(|(_, log)| log.fill > 0) {
        let batch = batches.remove(&number).unwrap_or_default();
        let records = reader.records_of(number, log).await?;
        let live = records.iter().filter(|(place, header)| is_live(&inner.table, *place, header));
        let live: Vec<u64> = live.map(|(_, header)| header.sequence).collect();
        logs.push(LogState {
            log: number,
            begin: layout.log_begin(number),
            bytes_used: u64::from(log.fill) * BLOCK as u64,
            records: records.len() as u64,
            live_records: live.len() as u64,
            live_first: live.iter().min().copied().unwrap_or(0),
            live_last: live.iter().max().copied().unwrap_or(0),
            live_blocks: batch.len() as u64,
            checkpoint: requests(&layout, &batch),
        });
    }
    let checkpoint = requests(&layout, &batch);
    Ok(LogsState {
        layout,
        snapshot: reader.snapshot_sequence,
        newest: inner.assigned,
        checkpoint,
        logs,
    })
}

/// Returns whether the record with its header there holds the newest content of some block.
fn is_live(table: &MappingTable, place: u64, header: &Header) -> bool {
    let data = header.entries.iter().filter_map(|entry| match entry {
        RecordEntry::Data { home, .. } => Some(*home),
        RecordEntry::Drop { .. } => None,
    });
    (place + 1..)
        .zip(data)
        .any(|(at, home)| table.get(home).is_some_and(|mapped| mapped.place == at))
}

impl Reader<'_> {
    /// The headers of a log, and where they lie.
    async fn records_of(
        &mut self,
        number: u32,
        log: &Log,
    ) -> Result<Vec<(u64, Header)>, OpenError> {
        let layout = self.layout;
        let (begin, mut at, mut gap) = (layout.log_begin(number), 0, layout.gap());
        let mut records = Vec::new();
        while at < log.fill {
            let bytes = self.read(self.main, begin + u64::from(at), BLOCK).await?;
            let is_here = |header: &Header| {
                (header.log, header.epoch, header.position) == (number, log.epoch, at)
            };
            match Header::parse(&bytes, layout.nonce(), layout.homes()).filter(is_here) {
                Some(header) => {
                    let blocks = header.data_blocks() as u32;
                    records.push((begin + u64::from(at), header));
                    (at, gap) = (at + 1 + blocks, layout.gap());
                }
                None if gap > 0 => (at, gap) = (at + 1, gap - 1),
                None => break,
            }
        }
        Ok(records)
    }
}
