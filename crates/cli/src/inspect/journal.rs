//! The log, record by record.

use super::log_reader::LogReader;
use super::packed;
use super::record::Record;
use crate::error::CliError;
use format::jbd2::{
    BlockHeader, BlockType, CommitBlock, DescriptorBlock, Incompatible, JournalSuperblock,
    LogLayout, Packing, RevokeBlock, TagFormat,
};
use format::uuid_text;
use journal::{LogRing, Pass, ScanPass};
use std::fmt;
use units::{LogBlock, TransactionId};

#[derive(serde::Serialize)]
pub struct JournalReport {
    place: String,
    uuid: String,
    block_size: usize,
    /// Bytes, shorter with packed transactions.
    log_block_size: usize,
    log_blocks: u32,
    features: Vec<&'static str>,
    clean: bool,
    first_transaction: u32,
    /// First block; 0 if the log is empty, or marked so.
    start: u32,
    /// Transactions that a recovery would replay, or the reason why there are none.
    verdict: String,
    records: Vec<Record>,
}

/// Reports the live part of the log, or with `all` every record that is left in it.
pub fn report(log: &LogReader, all: bool) -> Result<JournalReport, CliError> {
    let superblock = &log.superblock;
    if !all && (superblock.is_clean() || superblock.scattered.is_some()) {
        return report_of(log, Vec::new());
    }
    if superblock.packed.is_some() {
        return report_of(log, packed::records(log, all)?);
    }
    let mut walk = JournalWalk { log, layout: superblock.layout(), records: Vec::new() };
    // A clean superblock no longer describes old records.
    walk.layout.multiwrite |= all;
    match all {
        true => walk.everything()?,
        false => walk.live()?,
    }
    report_of(log, walk.records)
}

fn report_of(log: &LogReader, records: Vec<Record>) -> Result<JournalReport, CliError> {
    let superblock = &log.superblock;
    let log_blocks = superblock.log_blocks();
    Ok(JournalReport {
        place: log.place(),
        uuid: uuid_text(&superblock.uuid),
        block_size: superblock.block_size.bytes(),
        log_block_size: superblock.log_block_bytes(),
        log_blocks: log_blocks.end.get() - log_blocks.start.get(),
        features: features(superblock),
        clean: superblock.is_clean() && !superblock.is_forgotten(),
        first_transaction: superblock.sequence.0,
        start: superblock.start.get(),
        verdict: verdict(log)?,
        records,
    })
}

fn features(superblock: &JournalSuperblock) -> Vec<&'static str> {
    let mut names = match superblock.tag_format() {
        TagFormat::Plain => vec![],
        TagFormat::ChecksumV2 => vec!["checksums v2"],
        TagFormat::ChecksumV3 => vec!["checksums v3"],
    };
    let bits = [
        (Incompatible::REVOKE, "revoke"),
        (Incompatible::WIDE, "64bit"),
        (Incompatible::ASYNC_COMMIT, "async commit"),
        (Incompatible::FAST_COMMIT, "fast commit"),
        (Incompatible::MULTIWRITE, "multiwrite"),
        (Incompatible::PACKED, "packed"),
        (Incompatible::SCATTERED, "scattered"),
        (Incompatible::SNAPSHOT, "snapshot"),
        (Incompatible::GAPS, "gaps"),
        (Incompatible::XXH64, "xxh64"),
        (Incompatible::MOVING, "moving"),
    ];
    names.extend(
        bits.into_iter().filter(|(bit, _)| superblock.has_incompatible(*bit)).map(|(_, name)| name),
    );
    names
}

/// Runs the scan of a recovery, which verifies every checksum.
fn verdict(log: &LogReader) -> Result<String, CliError> {
    if log.superblock.is_forgotten() {
        return Ok("it is called empty: okeanos recover --find-log remembers where it began".into());
    }
    if log.superblock.is_clean() {
        return Ok("nothing to replay".into());
    }
    if log.superblock.scattered.is_some() {
        return Ok(in_scattered_logs(&log.superblock));
    }
    let scan = || -> Result<String, Box<dyn std::error::Error>> {
        let mut scan = ScanPass::new(&log.superblock)?;
        while let Some(at) = scan.wants() {
            match log.unit(at) {
                Ok(unit) => scan.give(&unit)?,
                Err(_) if scan.pass_over()? => {}
                Err(error) => return Err(error.into()),
            }
        }
        let scanned = scan.finish();
        let (first, end) = (scanned.first, scanned.end);
        Ok(match first == end {
            true => format!("{first:?} was never committed: nothing to replay"),
            false => {
                format!("{first:?} to {:?} are committed and would be replayed", end.previous())
            }
        })
    };
    Ok(scan().unwrap_or_else(|error| format!("recovery would refuse: {error}")))
}

/// Reports the logs: the journal's own blocks hold no transactions.
fn in_scattered_logs(superblock: &JournalSuperblock) -> String {
    let snapshot = superblock.named_snapshot().map_or(String::new(), |named| {
        let pieces = named.last.wrapping_sub(named.first).wrapping_add(1);
        format!(", and {pieces} pieces of a snapshot here cover all before {:?}", named.end)
    });
    format!("it lies in scattered logs, which okeanos inspect logs lists{snapshot}")
}

struct JournalWalk<'a> {
    log: &'a LogReader,
    layout: LogLayout,
    records: Vec<Record>,
}

impl JournalWalk<'_> {
    /// Reads from the log's start on, as long as the sequence numbers go on.
    fn live(&mut self) -> Result<(), CliError> {
        let superblock = &self.log.superblock;
        let mut at = superblock.start;
        let mut expected = superblock.sequence;
        let mut left = superblock.log_end().get() - superblock.first.get();
        while left > 0 {
            let block = self.log.block(at)?;
            let Some(header) =
                BlockHeader::parse(&block).filter(|header| header.transaction == expected)
            else {
                break;
            };
            let blocks = self.record(at, &block, &header).min(left);
            left -= blocks;
            at = self.further(at, blocks);
            if header.kind == Some(BlockType::Commit) {
                expected = expected.next();
            }
        }
        Ok(())
    }

    /// Reads every block that looks like a record, wherever it is in the log.
    fn everything(&mut self) -> Result<(), CliError> {
        let superblock = &self.log.superblock;
        for at in (superblock.first.get()..superblock.log_end().get()).map(LogBlock) {
            let block = self.log.block(at)?;
            if let Some(header) = BlockHeader::parse(&block) {
                self.record(at, &block, &header);
            }
        }
        Ok(())
    }

    /// Notes a block with a header; returns how many log blocks it and the blocks it describes
    /// take.
    fn record(&mut self, at: LogBlock, block: &[u8], header: &BlockHeader) -> u32 {
        let damaged = |why: String| Record::Damaged { log_block: at.get(), why };
        match header.kind {
            Some(BlockType::Descriptor) if !self.layout.is_intact(block) => {
                self.records.push(damaged("the checksum of a descriptor block is wrong".into()));
            }
            Some(BlockType::Descriptor) => match DescriptorBlock::parse(block, &self.layout, at) {
                Ok(descriptor) => return 1 + self.tags(at, &descriptor),
                Err(error) => self.records.push(damaged(error.to_string())),
            },
            Some(BlockType::Revoke) => match RevokeBlock::parse(block, &self.layout, at) {
                Ok(revoke) => self.records.push(Record::Revoke {
                    transaction: header.transaction.0,
                    log_block: at.get(),
                    blocks: revoke.blocks.iter().map(|block| block.get()).collect(),
                }),
                Err(error) => self.records.push(damaged(error.to_string())),
            },
            Some(BlockType::Commit) => match CommitBlock::parse(block, &self.layout) {
                Some(commit) => self.records.push(Record::Commit {
                    transaction: header.transaction.0,
                    log_block: at.get(),
                    seconds: commit.time.seconds,
                    nanoseconds: commit.time.nanoseconds,
                    whole_checksum: commit.whole.is_some(),
                }),
                None => {
                    self.records.push(damaged("a commit block did not reach the disk whole".into()))
                }
            },
            _ => self.records.push(damaged("a block with a header of an unexpected type".into())),
        }
        1
    }

    fn tags(&mut self, at: LogBlock, descriptor: &DescriptorBlock) -> u32 {
        let mut packing = Packing::new(self.layout.block_size);
        let whole = self.layout.block_size.whole();
        for tag in &descriptor.tags {
            let place = packing.place(tag);
            let range = tag.fragment.map_or(whole, |fragment| fragment.range);
            self.records.push(Record::Tag {
                transaction: descriptor.transaction.0,
                descriptor: at.get(),
                block: tag.home.get(),
                from: range.start,
                to: range.end,
                whole: tag.fragment.is_none(),
                base_zero: tag.fragment.is_some_and(|fragment| fragment.base_zero),
                log_block: self.further(at, 1 + place.block).get(),
                log_offset: place.offset,
                escaped: tag.escaped,
            });
        }
        packing.blocks()
    }

    /// Returns the log block `count` further on; after the last comes the first.
    fn further(&self, at: LogBlock, count: u32) -> LogBlock {
        LogRing::of(&self.log.superblock).advance(at, count)
    }
}

impl fmt::Display for JournalReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "journal {}, {}: {} log blocks of {} bytes{}",
            self.place,
            self.uuid,
            self.log_blocks,
            self.log_block_size,
            if self.features.is_empty() {
                String::new()
            } else {
                format!("; {}", self.features.join(", "))
            }
        )?;
        match self.clean {
            true => writeln!(f, "the log is empty")?,
            false if self.start == 0 => {
                writeln!(f, "the log may hold records, but {}", self.verdict)?
            }
            false => {
                let first = TransactionId(self.first_transaction);
                writeln!(
                    f,
                    "the log begins with {first:?} at log block {}; {}",
                    self.start, self.verdict
                )?;
            }
        }
        self.records.iter().try_for_each(|record| writeln!(f, "{record}"))
    }
}
