//! A snapshot of the table and of the logs: a header block, and a payload of 16 bytes for each log
//! and each entry.
//!
//! Invariants: the header is written, durably, after payload and everything to which the payload
//! refers are durable. So a whole header means a whole snapshot, and a torn one means the snapshot
//! before it, whose logs have not been reused.

use crate::BLOCK;
use crate::fields::{NUMBER_MAX, begin, put, seal, sealed, u32_at, u64_at};
use crate::layout::{Layout, SNAPSHOT_ITEM};
use crate::logs::Log;
use crate::open_list::{put_regions, regions_at};
use crate::table::{Mapped, MappingTable};
use std::collections::BTreeSet;

const MAGIC: [u8; 4] = *b"OKSS";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotHeader {
    /// Grows with each snapshot.
    pub number: u64,
    /// Sequence of the last record that it covers.
    pub sequence: u64,
    pub entries: u64,
    /// CRC-32C of the payload, with the zeros that fill its last block.
    pub checksum: u32,
    /// The open list's begin: where records went while this was written.
    pub regions: BTreeSet<u32>,
}

impl SnapshotHeader {
    pub fn serialize(&self, nonce: u128) -> Vec<u8> {
        let mut bytes = begin(MAGIC, nonce);
        put(&mut bytes, 24, &self.number.to_le_bytes());
        put(&mut bytes, 32, &self.sequence.to_le_bytes());
        put(&mut bytes, 48, &self.entries.to_le_bytes());
        put(&mut bytes, 56, &self.checksum.to_le_bytes());
        put_regions(&mut bytes, 40, &self.regions);
        seal(bytes)
    }
    pub fn parse(bytes: &[u8], layout: &Layout) -> Option<SnapshotHeader> {
        let bytes = sealed(bytes, MAGIC, Some(layout.nonce()))?;
        let regions = regions_at(bytes, 40, layout)?;
        let header = SnapshotHeader {
            number: u64_at(bytes, 24),
            sequence: u64_at(bytes, 32),
            entries: u64_at(bytes, 48),
            checksum: u32_at(bytes, 56),
            regions,
        };
        let in_bounds = header.entries <= layout.entries_max()
            && header.number.max(header.sequence) <= NUMBER_MAX;
        in_bounds.then_some(header)
    }
    pub fn payload_bytes(&self, layout: &Layout) -> u64 {
        payload_bytes(layout, self.entries)
    }
}

fn payload_bytes(layout: &Layout, entries: u64) -> u64 {
    ((u64::from(layout.logs) + entries) * SNAPSHOT_ITEM).next_multiple_of(BLOCK as u64)
}

/// The payload as of now. Entries that are clean, and the records of logs in `emptied`, are left
/// out.
pub fn payload(
    layout: &Layout,
    table: &MappingTable,
    logs: &[Log],
    emptied: &BTreeSet<u32>,
) -> (u64, Vec<u8>) {
    let entries = table.iter().filter(|(_, mapped)| !mapped.clean);
    let mut bytes = Vec::with_capacity(payload_bytes(layout, table.len() as u64) as usize);
    for (log, number) in logs.iter().zip(0..) {
        let empty = log.next_life();
        let Log { epoch, fill, tag, .. } = if emptied.contains(&number) { &empty } else { log };
        bytes.extend_from_slice(&epoch.to_le_bytes());
        bytes.extend_from_slice(&fill.to_le_bytes());
        bytes.extend_from_slice(&tag.to_le_bytes());
    }
    let mut count = 0;
    for (home, mapped) in entries {
        bytes.extend_from_slice(&(home << 8 | u64::from(mapped.mask)).to_le_bytes());
        bytes.extend_from_slice(&mapped.place.to_le_bytes());
        count += 1;
    }
    bytes.resize(payload_bytes(layout, count) as usize, 0);
    (count, bytes)
}

/// Logs and table of a payload whose checksum is right; `None` where it contradicts itself.
pub fn parse_payload(
    layout: &Layout,
    entries: u64,
    bytes: &[u8],
) -> Option<(Vec<Log>, MappingTable)> {
    let mut items = bytes.chunks_exact(SNAPSHOT_ITEM as usize);
    let mut logs = Vec::new();
    for item in items.by_ref().take(layout.logs as usize) {
        let log = Log {
            epoch: u32_at(item, 0),
            fill: u32_at(item, 4),
            tag: u64_at(item, 8),
            ..Log::default()
        };
        if log.fill > layout.log_blocks() {
            return None;
        }
        logs.push(log);
    }
    let (mut table, mut next, mut count) = (MappingTable::default(), 0, 0);
    for item in items.take(entries as usize) {
        let (place, home) = (u64_at(item, 8), u64_at(item, 0) >> 8);
        let mapped = Mapped { place, mask: item[0], clean: false };
        let (log, position) = layout.log_of(place)?;
        if home < next
            || home >= layout.homes()
            || mapped.mask == 0
            || position >= logs.get(log as usize)?.fill
        {
            return None;
        }
        table.insert(home, mapped);
        logs[log as usize].live += 1;
        (next, count) = (home + 1, count + 1);
    }
    (logs.len() == layout.logs as usize && count == entries).then_some((logs, table))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sizes, Superblock};

    fn layout() -> Layout {
        let sizes = Sizes { log: 64 << 10, group: 1 << 20 };
        Layout::new(Superblock::new(64 << 20, sizes, 3, false).unwrap()).unwrap()
    }

    #[test]
    fn table_and_logs_come_back_without_what_is_clean_or_emptied() {
        let layout = layout();
        let mut logs = vec![Log::default(); layout.logs as usize];
        logs[2] = Log { epoch: 5, fill: 9, tag: 88, live: 1, ..Log::default() };
        logs[4] = Log { epoch: 6, fill: 16, tag: 89, ..Log::default() };
        let mut table = MappingTable::default();
        let place = layout.log_begin(2) + 3;
        table.insert(11, Mapped { place, mask: 0x0f, clean: false });
        table.insert(12, Mapped { place: place + 1, mask: 0xff, clean: true });
        let (count, bytes) = payload(&layout, &table, &logs, &[4].into());
        assert_eq!(count, 1);
        let (read, back) = parse_payload(&layout, count, &bytes).expect("a payload");
        assert_eq!((read[2].clone(), read[4].epoch, read[4].fill), (logs[2].clone(), 7, 0));
        assert!(back.iter().eq([(11, Mapped { place, mask: 0x0f, clean: false })]));
    }
    #[test]
    fn a_payload_that_points_outside_the_logs_is_refused() {
        let layout = layout();
        let logs = vec![Log { fill: 4, ..Log::default() }; layout.logs as usize];
        for (home, place, right) in [
            (1, layout.log_begin(1) + 3, true),
            (1, layout.log_begin(1) + 4, false),
            (1, 0, false),
            (layout.homes(), layout.log_begin(1), false),
        ] {
            let mut table = MappingTable::default();
            table.insert(home, Mapped { place, mask: 1, clean: false });
            let (count, bytes) = payload(&layout, &table, &logs, &BTreeSet::new());
            assert_eq!(
                parse_payload(&layout, count, &bytes).is_some(),
                right,
                "home {home}, place {place}"
            );
        }
        assert!(parse_payload(&layout, 5, &[0; BLOCK]).is_none());
    }
    #[test]
    fn a_header_comes_back_and_one_of_too_many_entries_does_not() {
        let layout = layout();
        let header =
            SnapshotHeader { number: 4, sequence: 5, entries: 6, checksum: 7, regions: [1].into() };
        assert_eq!(SnapshotHeader::parse(&header.serialize(3), &layout), Some(header.clone()));
        let absurd = SnapshotHeader { entries: u64::MAX, ..header };
        assert_eq!(SnapshotHeader::parse(&absurd.serialize(3), &layout), None);
    }
}
