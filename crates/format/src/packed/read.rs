use super::Kind;
use super::varint::{MalformedRun, decode};
use units::{BlockRange, BlockSize, HomeBlock};

/// Content of a run for one home block, or for one part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item<'a> {
    Revoke(HomeBlock),
    /// A whole block. `at`: offset in the bytes of all records at which the image begins
    /// ([`super::PackedHeader::place_of`]). `durable_only`: durability is enough for the block's
    /// file.
    Whole {
        home: HomeBlock,
        durable_only: bool,
        bytes: &'a [u8],
        at: u64,
    },
    /// A part of a block. `base_zero`: all other bytes of the block are zeros. The range is empty
    /// for a block of zeros.
    Part {
        home: HomeBlock,
        range: BlockRange,
        bytes: &'a [u8],
        base_zero: bool,
    },
}

/// Reads records from pieces of a run, cut anywhere. Holds one unfinished record at most.
#[derive(Debug)]
pub struct RecordReader {
    block_size: BlockSize,
    /// Bytes of records that have not been given.
    left: u64,
    /// Bytes parsed.
    done: u64,
    /// Bytes given, and not yet parsed.
    pending: Vec<u8>,
    previous: u64,
    open: Option<Open>,
}

/// A record with parts to come.
#[derive(Clone, Copy, Debug)]
struct Open {
    home: HomeBlock,
    parts: u64,
    end: u64,
    base_zero: bool,
}

impl RecordReader {
    /// Creates a reader. `length`: bytes of all records. `block_size`: of home blocks.
    pub fn new(block_size: BlockSize, length: u32) -> RecordReader {
        RecordReader {
            block_size,
            left: length.into(),
            done: 0,
            pending: Vec::new(),
            previous: 0,
            open: None,
        }
    }

    /// Parses the next bytes of the run; bytes behind the last record are skipped.
    pub fn give<E: From<MalformedRun>>(
        &mut self,
        bytes: &[u8],
        sink: &mut dyn FnMut(Item) -> Result<(), E>,
    ) -> Result<(), E> {
        let taken = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= taken as u64;
        self.pending.extend_from_slice(&bytes[..taken]);
        let pending = std::mem::take(&mut self.pending);
        let mut at = 0;
        while let Some(length) = self.item(&pending[at..], sink)? {
            at += length;
            self.done += length as u64;
        }
        self.pending = pending;
        self.pending.drain(..at);
        Ok(())
    }

    /// Whether all records have been parsed, the last one to its end.
    pub fn is_complete(&self) -> bool {
        self.left == 0 && self.pending.is_empty() && self.open.is_none()
    }

    /// Passes the next item to `sink`. Returns its length in bytes; `None` if it is incomplete.
    fn item<E: From<MalformedRun>>(
        &mut self,
        bytes: &[u8],
        sink: &mut dyn FnMut(Item) -> Result<(), E>,
    ) -> Result<Option<usize>, E> {
        match self.open {
            Some(open) => self.part(open, bytes, sink),
            None => self.record(bytes, sink),
        }
    }

    fn record<E: From<MalformedRun>>(
        &mut self,
        bytes: &[u8],
        sink: &mut dyn FnMut(Item) -> Result<(), E>,
    ) -> Result<Option<usize>, E> {
        let mut at = 0;
        let Some(distance) = decode(bytes, &mut at)? else { return Ok(None) };
        let Some(what) = decode(bytes, &mut at)? else { return Ok(None) };
        let kind = Kind::ALL[(what & ((1 << Kind::BITS) - 1)) as usize];
        let (count, block) = (what >> Kind::BITS, self.block_size.bytes());
        let home = HomeBlock(self.previous.wrapping_add(distance));
        match kind {
            Kind::Revoke | Kind::Whole if count > u64::from(kind == Kind::Whole) => {
                return Err(MalformedRun("a record without parts that counts some").into());
            }
            Kind::Revoke => sink(Item::Revoke(home))?,
            Kind::Whole => {
                let Some(image) = bytes.get(at..at + block) else { return Ok(None) };
                sink(Item::Whole {
                    home,
                    durable_only: count == 1,
                    bytes: image,
                    at: self.done + at as u64,
                })?;
                at += block;
            }
            Kind::Parts if count == 0 => return Err(MalformedRun("a record of no part").into()),
            Kind::BaseZero if count == 0 => {
                let range = BlockRange::new(0, 0);
                sink(Item::Part { home, range, bytes: &[], base_zero: true })?
            }
            Kind::Parts | Kind::BaseZero if count > block as u64 => {
                return Err(MalformedRun("a record of more parts than its block has bytes").into());
            }
            Kind::Parts | Kind::BaseZero => {
                let base_zero = kind == Kind::BaseZero;
                self.open = Some(Open { home, parts: count, end: 0, base_zero });
            }
        }
        self.previous = home.get();
        Ok(Some(at))
    }

    fn part<E: From<MalformedRun>>(
        &mut self,
        open: Open,
        bytes: &[u8],
        sink: &mut dyn FnMut(Item) -> Result<(), E>,
    ) -> Result<Option<usize>, E> {
        let mut at = 0;
        let Some(gap) = decode(bytes, &mut at)? else { return Ok(None) };
        let Some(length) = decode(bytes, &mut at)? else { return Ok(None) };
        let block = self.block_size.bytes() as u64;
        let end = open.end.checked_add(gap).and_then(|start| start.checked_add(length));
        let Some(end) = end.filter(|end| *end <= block && length > 0) else {
            return Err(MalformedRun("a part that is empty, or outside its block").into());
        };
        let Some(content) = bytes.get(at..at + length as usize) else { return Ok(None) };
        let Open { home, base_zero, .. } = open;
        let range = BlockRange::new((end - length) as u32, end as u32);
        sink(Item::Part { home, range, bytes: content, base_zero })?;
        // Only the first part starts from zeros; otherwise it would erase those before it.
        let rest = Open { parts: open.parts - 1, end, base_zero: false, ..open };
        self.open = (rest.parts > 0).then_some(rest);
        Ok(Some(at + length as usize))
    }
}
