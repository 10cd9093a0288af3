use super::PackedRecords;
use crate::pass_outcome::{PassCounts, RecoverError};
use crate::records::{
    BlockAhead, FoundTransaction, LogPiece, LogSpan, RecordFault, ScanVerdict, Scanner,
};
use format::WholeTransaction;
use format::jbd2::JournalFormatError;
use format::packed::{Item, MalformedRun, PackedHeader, RecordReader};
use units::{LogBlock, TransactionId};

/// Holds one unfinished record of the open transaction, and counts.
pub(super) struct PackedScanner {
    records: PackedRecords,
    open: TransactionId,
    run: Option<OpenRun>,
}

/// The run of the open transaction, as far as it has been read.
struct OpenRun {
    at: LogBlock,
    header: PackedHeader,
    units_left: u32,
    sum: WholeTransaction,
    reader: RecordReader,
    /// Counts only if the checksum is right: then the run is not damaged.
    malformed: Option<MalformedRun>,
    counts: PassCounts,
    has_revokes: bool,
}

impl PackedScanner {
    pub fn new(records: PackedRecords, first: TransactionId) -> PackedScanner {
        PackedScanner { records, open: first, run: None }
    }

    fn begin(&self, piece: LogPiece) -> Option<OpenRun> {
        let PackedRecords { unit, block_size, seed, sums } = self.records;
        let header = PackedHeader::parse(piece.bytes, seed)?;
        (header.transaction == self.open).then(|| OpenRun {
            at: piece.at,
            header,
            units_left: header.units(unit),
            sum: WholeTransaction::new(sums, seed),
            reader: RecordReader::new(block_size, header.length),
            malformed: None,
            counts: PassCounts::default(),
            has_revokes: false,
        })
    }
}

impl OpenRun {
    fn add(&mut self, is_first: bool, unit: &[u8]) {
        let body = if is_first { &unit[PackedHeader::SIZE..] } else { unit };
        self.sum.add(body);
        if self.malformed.is_some() {
            return;
        }
        let (counts, has_revokes) = (&mut self.counts, &mut self.has_revokes);
        let given = self.reader.give(PackedHeader::records_in(is_first, unit), &mut |item| {
            match item {
                Item::Revoke(_) => *has_revokes = true,
                Item::Whole { .. } => counts.whole_records += 1,
                Item::Part { .. } => counts.fragment_records += 1,
            }
            Ok::<(), MalformedRun>(())
        });
        self.malformed = given.err();
    }

    fn verdict(self, open: TransactionId, blocks: u32) -> Result<ScanVerdict, RecoverError> {
        let OpenRun { at, .. } = self;
        if self.sum.sum() != self.header.body_sum && !units::fault!("packed-torn") {
            let what = "the checksum of the whole transaction is wrong".to_owned();
            return Ok(ScanVerdict::End(RecordFault { at, what }));
        }
        let complete = if self.reader.is_complete() {
            None
        } else {
            Some(MalformedRun("a record without end"))
        };
        if let Some(MalformedRun(what)) = self.malformed.or(complete) {
            let why = format!("{open} holds {what}");
            return Err(JournalFormatError::Block { at, what: "packed transaction", why }.into());
        }
        let span = LogSpan { at, blocks };
        let revokes = if self.has_revokes { vec![span] } else { Vec::new() };
        Ok(ScanVerdict::Committed(FoundTransaction {
            revokes,
            records: vec![span],
            counts: self.counts,
        }))
    }
}

impl Scanner for PackedScanner {
    fn give(&mut self, piece: LogPiece) -> Result<ScanVerdict, RecoverError> {
        let (is_first, mut run) = match self.run.take() {
            Some(run) => (false, run),
            None => match self.begin(piece) {
                Some(run) => (true, run),
                None => {
                    let what = "no packed transaction with its number begins here".to_owned();
                    return Ok(ScanVerdict::End(RecordFault { at: piece.at, what }));
                }
            },
        };
        run.add(is_first, piece.bytes);
        run.units_left -= 1;
        if run.units_left > 0 {
            self.run = Some(run);
            return Ok(ScanVerdict::GoOn);
        }
        let (open, blocks) = (self.open, run.header.units(self.records.unit));
        let verdict = run.verdict(open, blocks)?;
        if matches!(verdict, ScanVerdict::Committed(_)) {
            self.open = open.next();
        }
        Ok(verdict)
    }

    fn begins(&self, block: &[u8]) -> bool {
        let header = PackedHeader::parse(block, self.records.seed);
        header.is_some_and(|header| header.transaction == self.open)
    }

    /// Examines a block ahead. A later transaction proves an earlier one durable only as far as its
    /// floor says so. It may have been issued while that one was in flight.
    fn ahead(&self, block: &[u8]) -> Option<BlockAhead> {
        let header = PackedHeader::parse(block, self.records.seed)?;
        let transaction = header.transaction;
        let proves = units::fault!("packed-floor-ignored")
            || header.durable.is_at_or_after(self.open) && transaction.is_after(header.durable);
        transaction.is_after(self.open).then_some(BlockAhead { transaction, proves })
    }
}
