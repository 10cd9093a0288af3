use device::Buffer;
use journal::records::*;
use journal::*;
use std::rc::Rc;
use units::{BlockRange, BlockSize, HomeBlock, TransactionId};

const MAGIC: u64 = 0x746f_7920_7265_6364;
/// Bytes of a sector: fewer than in any block of home.
const BLOCK: usize = 512;
/// Bytes of magic, id, length, durable floor, checksum.
const HEADER: usize = 8 + 4 + 4 + 4 + 8;
/// Bytes of home, start, length, flags.
const RECORD: usize = 8 + 4 + 4 + 1;
const BASE_ZERO: u8 = 1;
const REVOKE: u8 = 2;

/// HOW: one stream of byte ranges, metadata as well, with a checksum over all of it.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    pub home_block: BlockSize,
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}
fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

#[derive(Clone, Copy)]
struct Header {
    transaction: TransactionId,
    length: usize,
    floor: TransactionId,
}

impl Header {
    fn parse(block: &[u8]) -> Option<Header> {
        let length = number(block, 12) as usize;
        let known = block[..8] == MAGIC.to_le_bytes() && (HEADER..1 << 20).contains(&length);
        let (transaction, floor) =
            (TransactionId(number(block, 8)), TransactionId(number(block, 16)));
        known.then_some(Header { transaction, length, floor })
    }
    fn blocks(&self) -> u32 {
        self.length.div_ceil(BLOCK) as u32
    }
}

fn put(stream: &mut Vec<u8>, home: HomeBlock, range: BlockRange, flags: u8, bytes: &[u8]) {
    stream.extend(home.get().to_le_bytes());
    stream.extend(range.start.to_le_bytes());
    stream.extend((range.len() as u32).to_le_bytes());
    stream.push(flags);
    stream.extend(bytes);
}

/// Writes all in one step.
struct StreamWriter<'a> {
    home_block: BlockSize,
    transaction: &'a LockedTransaction,
    stamp: CommitStamp,
}

impl RecordWriter for StreamWriter<'_> {
    fn write_some(&mut self, _: Images, _: usize) -> bool {
        false
    }
    fn finish(self: Box<Self>, images: Images) -> (LogContent, WholeBlocks) {
        let StreamWriter { home_block, transaction, stamp } = *self;
        let mut stream = vec![0; HEADER];
        for home in transaction.revoked() {
            put(&mut stream, home, BlockRange::new(0, 0), REVOKE, &[]);
        }
        let mut ranges = |home: HomeBlock, ranges: &[BlockRange], base_zero: bool| {
            let image = images(home);
            for (index, range) in ranges.iter().enumerate() {
                let flags = if base_zero && index == 0 { BASE_ZERO } else { 0 };
                put(&mut stream, home, *range, flags, &image[range.as_usize()]);
            }
        };
        for (home, record) in transaction.data() {
            match record {
                Record::Whole => ranges(home, &[home_block.whole()], false),
                Record::Bytes { ranges: parts, base_zero } => {
                    ranges(home, parts.as_slice(), *base_zero)
                }
            }
        }
        for (home, changed) in transaction.metadata_ranges() {
            ranges(home, changed.as_slice(), false);
        }
        stream[..8].copy_from_slice(&MAGIC.to_le_bytes());
        stream[8..12].copy_from_slice(&transaction.id().0.to_le_bytes());
        let length = stream.len() as u32;
        stream[12..16].copy_from_slice(&length.to_le_bytes());
        stream[16..20].copy_from_slice(&stamp.durable.0.to_le_bytes());
        let whole = sum(&stream);
        stream[20..28].copy_from_slice(&whole.to_le_bytes());
        stream.resize(stream.len().next_multiple_of(BLOCK), 0);
        let block = |bytes| (BlockKind::Multiwrite, Rc::new(Buffer::copy_of(bytes)));
        (LogContent::Sealed(stream.chunks(BLOCK).map(block).collect()), WholeBlocks::new())
    }
}

impl Records for Stream {
    fn block_bytes(&self) -> usize {
        BLOCK
    }
    fn holds_parts(&self) -> bool {
        true
    }
    fn writer<'a>(
        &self,
        transaction: &'a LockedTransaction,
        stamp: &CommitStamp,
    ) -> Box<dyn RecordWriter + 'a> {
        Box::new(StreamWriter { home_block: self.home_block, transaction, stamp: *stamp })
    }
    fn metadata_coverage(&self, ranges: &RangeSet) -> Coverage {
        match ranges.covers(self.home_block.whole()) {
            true => Coverage::Whole,
            false => Coverage::Fragment,
        }
    }
    fn log_blocks_bound(&self, holdings: &Holdings) -> u32 {
        // A block changed in every other byte takes a record for each of them.
        let block = (self.home_block.bytes() * (RECORD + 1)) as u64;
        let fragments = holdings.fragments * RECORD as u64 + holdings.fragment_bytes;
        let bytes = holdings.blocks * block + fragments + holdings.revokes * RECORD as u64;
        (bytes + HEADER as u64).div_ceil(BLOCK as u64) as u32
    }
    fn revoke_blocks_bound(&self, revokes: u64) -> u32 {
        (revokes * RECORD as u64).div_ceil(BLOCK as u64) as u32 + 1
    }
    fn scanner(&self, first: TransactionId) -> Box<dyn Scanner> {
        Box::new(StreamScanner { open: first, stream: Vec::new(), start: None })
    }
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(StreamDecoder {
            home_block: self.home_block,
            stream: Vec::new(),
            counts: PassCounts::default(),
        })
    }
    fn proves_commits(&self) -> bool {
        true
    }
}

struct StreamScanner {
    open: TransactionId,
    stream: Vec<u8>,
    start: Option<(units::LogBlock, Header)>,
}

impl Scanner for StreamScanner {
    fn give(&mut self, piece: LogPiece) -> Result<ScanVerdict, RecoverError> {
        let fault =
            |what: &str| ScanVerdict::End(RecordFault { at: piece.at, what: what.to_owned() });
        let (at, header) = match self.start {
            Some(start) => start,
            None => {
                match Header::parse(piece.bytes).filter(|header| header.transaction == self.open) {
                    Some(header) => (piece.at, header),
                    None => return Ok(fault("no stream begins here")),
                }
            }
        };
        self.start = Some((at, header));
        self.stream.extend(piece.bytes);
        if self.stream.len() < header.length {
            return Ok(ScanVerdict::GoOn);
        }
        let mut stream = std::mem::take(&mut self.stream);
        stream.truncate(header.length);
        let found = stream[20..28].to_vec();
        stream[20..28].fill(0);
        self.start = None;
        if found != sum(&stream).to_le_bytes() {
            return Ok(fault("the checksum of the stream is wrong"));
        }
        self.open = self.open.next();
        let span = vec![LogSpan { at, blocks: header.blocks() }];
        Ok(ScanVerdict::Committed(FoundTransaction {
            revokes: span.clone(),
            records: span,
            ..FoundTransaction::default()
        }))
    }
    fn ahead(&self, block: &[u8]) -> Option<BlockAhead> {
        let header =
            Header::parse(block).filter(|header| header.transaction.is_after(self.open))?;
        let proves = header.floor.is_at_or_after(self.open);
        Some(BlockAhead { transaction: header.transaction, proves })
    }
}

struct StreamDecoder {
    home_block: BlockSize,
    stream: Vec<u8>,
    counts: PassCounts,
}

impl Decoder for StreamDecoder {
    fn begin(&mut self, _transaction: TransactionId) {
        self.stream.clear();
    }
    fn give(&mut self, piece: LogPiece, sink: Sink) -> Result<(), RecoverError> {
        self.stream.extend(piece.bytes);
        let length = Header::parse(&self.stream).expect("the scan read it").length;
        if self.stream.len() < length {
            return Ok(());
        }
        let mut rest = &self.stream[HEADER..length];
        while !rest.is_empty() {
            let home = HomeBlock(u64::from_le_bytes(rest[..8].try_into().unwrap()));
            let (start, length, flags) = (number(rest, 8), number(rest, 12), rest[16]);
            let bytes = &rest[RECORD..RECORD + length as usize];
            let range = BlockRange::new(start, start + length);
            sink(match (flags & REVOKE != 0, range == self.home_block.whole()) {
                (true, _) => Decoded::Revoke(home),
                (false, true) => Decoded::Whole { home, durable_only: false, bytes, place: None },
                (false, false) => {
                    Decoded::Part { home, range, bytes, base_zero: flags & BASE_ZERO != 0 }
                }
            })?;
            rest = &rest[RECORD + length as usize..];
        }
        Ok(())
    }
    fn counts(&self) -> PassCounts {
        self.counts
    }
}
