//! The records of a log of packed transactions.

use super::log_reader::LogReader;
use super::record::Record;
use crate::error::CliError;
use format::WholeTransaction;
use format::packed::{Item, MalformedRun, PackedHeader, RecordReader};
use journal::{LogRing, LogWalk};
use units::{LogBlock, TransactionId};

/// Reads from the log's start on, as long as the numbers go on; with `all` every transaction of
/// this log that begins anywhere.
pub fn records(log: &LogReader, all: bool) -> Result<Vec<Record>, CliError> {
    let superblock = &log.superblock;
    let (seed, ring) = (superblock.packed_seed(), LogRing::of(superblock));
    let mut walk = PackedWalk { log, ring, records: Vec::new() };
    let (mut at, mut expected) = (superblock.start, superblock.sequence);
    let mut left = ring.blocks();
    if all {
        at = superblock.log_blocks().start;
    }
    while left > 0 {
        let taken = match all {
            true => {
                if let Some(header) = PackedHeader::parse(&log.unit(at)?, seed) {
                    walk.transaction(at, header, left)?;
                }
                // Others may begin within a torn one.
                1
            }
            false => {
                let Some((gap, header)) = walk.begin_of(expected, at, left)? else { break };
                expected = expected.next();
                gap + walk.transaction(ring.advance(at, gap), header, left - gap)?
            }
        };
        left -= taken;
        at = ring.advance(at, taken);
    }
    Ok(walk.records)
}

struct PackedWalk<'a> {
    log: &'a LogReader,
    ring: LogRing,
    records: Vec<Record>,
}

impl PackedWalk<'_> {
    /// Finds the beginning of `transaction`, from `at` on, as recovery does: returns the number of
    /// units before it. They need not be readable.
    fn begin_of(
        &self,
        transaction: TransactionId,
        at: LogBlock,
        left: u32,
    ) -> Result<Option<(u32, PackedHeader)>, CliError> {
        let superblock = &self.log.superblock;
        let gap_max = superblock.gap_max();
        for gap in 0..=gap_max.min(left - 1) {
            let unit = match self.log.unit(self.ring.advance(at, gap)) {
                Err(error) if gap_max == 0 => return Err(error),
                unit => unit.unwrap_or_default(),
            };
            let header = PackedHeader::parse(&unit, superblock.packed_seed());
            if let Some(header) = header.filter(|header| header.transaction == transaction) {
                return Ok(Some((gap, header)));
            }
        }
        Ok(None)
    }

    /// Returns the number of units of the transaction, `left` at most.
    fn transaction(
        &mut self,
        at: LogBlock,
        header: PackedHeader,
        left: u32,
    ) -> Result<u32, CliError> {
        let superblock = &self.log.superblock;
        let unit = superblock.log_block_bytes();
        let PackedHeader { transaction, length, durable, time, body_sum } = header;
        self.records.push(Record::Packed {
            transaction: transaction.0,
            log_block: at.get(),
            log_blocks: header.units(unit),
            bytes: length,
            durable: durable.0,
            seconds: time.seconds,
            nanoseconds: time.nanoseconds,
        });
        let mut sum =
            WholeTransaction::new(superblock.transaction_sums(), superblock.packed_seed());
        let mut reader = RecordReader::new(superblock.block_size, length);
        let (units, first, mut refused) = (header.units(unit).min(left), self.records.len(), None);
        for index in 0..units {
            let bytes = self.log.unit(self.ring.advance(at, index))?;
            sum.add(&bytes[if index == 0 { PackedHeader::SIZE } else { 0 }..]);
            let records = &mut self.records;
            let given = reader.give(PackedHeader::records_in(index == 0, &bytes), &mut |item| {
                add(records, transaction, item);
                Ok::<(), MalformedRun>(())
            });
            if let Err(error) = given {
                refused.get_or_insert(error);
                break;
            }
        }
        let why = match refused {
            _ if units < header.units(unit) => "a transaction longer than the log",
            _ if sum.sum() != body_sum => {
                "a transaction did not reach the disk whole: its checksum is wrong"
            }
            Some(MalformedRun(what)) => what,
            None if !reader.is_complete() => "a record without end",
            None => return Ok(units),
        };
        self.records.truncate(first);
        self.records.push(Record::Damaged { log_block: at.get(), why: why.to_owned() });
        Ok(units)
    }
}

/// Adds one record for each block: its parts come one by one.
fn add(records: &mut Vec<Record>, transaction: TransactionId, item: Item) {
    let transaction = transaction.0;
    let record = match item {
        Item::Revoke(home) => Record::PackedRevoke { transaction, block: home.get() },
        Item::Whole { home, .. } => Record::PackedWhole { transaction, block: home.get() },
        Item::Part { home, range, base_zero, .. } => {
            let part = (!range.is_empty()).then_some((range.start, range.end));
            if let Some(Record::PackedParts { transaction: of, block, parts, .. }) =
                records.last_mut()
            {
                if (*of, *block) == (transaction, home.get()) {
                    parts.extend(part);
                    return;
                }
            }
            Record::PackedParts {
                transaction,
                block: home.get(),
                parts: Vec::from_iter(part),
                base_zero,
            }
        }
    };
    records.push(record);
}
