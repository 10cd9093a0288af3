use super::PackedRecords;
use crate::pass_outcome::{PassCounts, RecoverError};
use crate::records::{Decoded, Decoder, LogPiece, Sink, WholeBlockLocation};
use format::WholeTransaction;
use format::packed::{Item, MalformedRun, PackedHeader, RecordReader};
use units::{LogBlock, TransactionId};

/// Reads the runs that a scan has found, unit by unit.
pub(super) struct PackedDecoder {
    records: PackedRecords,
    transaction: TransactionId,
    run: Option<ReadRun>,
}

struct ReadRun {
    at: LogBlock,
    units_left: u32,
    body_sum: u32,
    sum: WholeTransaction,
    reader: RecordReader,
}

/// Reason why decoding of a record stopped: the record itself, or the sink.
enum Refused {
    Malformed,
    By(RecoverError),
}
impl From<MalformedRun> for Refused {
    fn from(_: MalformedRun) -> Refused {
        Refused::Malformed
    }
}

impl PackedDecoder {
    pub fn new(records: PackedRecords) -> PackedDecoder {
        PackedDecoder { records, transaction: TransactionId(0), run: None }
    }

    fn changed(&self, at: LogBlock) -> RecoverError {
        let what = "it is no longer what the scan read".to_owned();
        RecoverError::Damaged { at, transaction: self.transaction, what }
    }
}

impl Decoder for PackedDecoder {
    fn begin(&mut self, transaction: TransactionId) {
        self.transaction = transaction;
        self.run = None;
    }

    fn give(&mut self, piece: LogPiece, sink: Sink) -> Result<(), RecoverError> {
        let PackedRecords { unit, block_size, seed, sums } = self.records;
        let is_first = self.run.is_none();
        let mut run = match self.run.take() {
            Some(run) => run,
            None => {
                let header = PackedHeader::parse(piece.bytes, seed);
                let header = header.filter(|header| header.transaction == self.transaction);
                let Some(header) = header else { return Err(self.changed(piece.at)) };
                ReadRun {
                    at: piece.at,
                    units_left: header.units(unit),
                    body_sum: header.body_sum,
                    sum: WholeTransaction::new(sums, seed),
                    reader: RecordReader::new(block_size, header.length),
                }
            }
        };
        let begin = run.at;
        run.sum.add(if is_first { &piece.bytes[PackedHeader::SIZE..] } else { piece.bytes });
        let given = run.reader.give(PackedHeader::records_in(is_first, piece.bytes), &mut |item| {
            let decoded = match item {
                Item::Revoke(home) => Decoded::Revoke(home),
                Item::Whole { home, durable_only, bytes, at } => {
                    let (index, offset) = PackedHeader::place_of(at, unit);
                    let place = WholeBlockLocation { at: begin.plus(index), offset: offset as u16 };
                    Decoded::Whole { home, durable_only, bytes, place: Some(place) }
                }
                Item::Part { home, range, bytes, base_zero } => {
                    Decoded::Part { home, range, bytes, base_zero }
                }
            };
            sink(decoded).map_err(Refused::By)
        });
        match given {
            Ok(()) => {}
            Err(Refused::Malformed) => return Err(self.changed(run.at)),
            Err(Refused::By(error)) => return Err(error),
        }
        run.units_left -= 1;
        if run.units_left > 0 {
            self.run = Some(run);
        } else if run.sum.sum() != run.body_sum || !run.reader.is_complete() {
            return Err(self.changed(run.at));
        }
        Ok(())
    }

    fn counts(&self) -> PassCounts {
        PassCounts::default()
    }
}
