//! The snapshot of the mapping table (`log=scattered`): a compact record of the contents of the
//! runs in the logs. It lies in the journal's own blocks, of which scattered logs use none but the
//! superblock.
//!
//! A snapshot is a sequence of *pieces*, each a whole number of blocks. A piece has a header and
//! items of 16 bytes. It covers consecutive transactions, starting with the one after the last of
//! the piece before. The journal superblock names the first piece and the last
//! ([`crate::scattered::NamedSnapshot`]). Other pieces are not valid.
//!
//! Checksums begin with the journal's UUID, the nonce of the log's life, and the number of the
//! piece. So pieces of another volume, of an earlier life of the log or of an earlier wrap are not
//! valid. The first byte of each block distinguishes it from blocks of any log. Tables:
//! `docs/ON_DISK.md` (printed by [`tables`]).

use crate::field;
use crate::seed::Seed;
use std::fmt::Write;
use units::{HomeBlock, LogBlock, TransactionId, arrays};

/// The first four bytes of a piece: unlike those of JBD2, of a run and of a packed transaction.
pub const PIECE_MAGIC: u32 = 0x4f6b_536e;
/// Bytes of an item. The header takes the place of two items.
pub const ITEM_BYTES: usize = 16;
pub const PIECE_HEADER_BYTES: usize = 2 * ITEM_BYTES;
/// End of home addresses, which have seven bytes: more than any volume has blocks for.
pub const HOME_END: u64 = 1 << 56;

/// The header of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PieceHeader {
    pub number: u32,
    /// First transaction covered; the piece covers those before `end`.
    pub from: TransactionId,
    pub end: TransactionId,
    pub items: u32,
    /// Number of transactions from `end` on that were committed when the piece was written.
    pub backlog: u32,
}

/// An item of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotItem {
    /// Address of the log blocks of a transaction, behind the header of their run. The next items
    /// belong to that transaction.
    Run { transaction: TransactionId, start: LogBlock, blocks: u32 },
    /// The run, from its byte `offset` on, holds a block whole. `sum`: checksum of its content.
    /// `durable_only`: durability is enough for its file.
    Whole { home: HomeBlock, durable_only: bool, offset: u32, sum: u32 },
    /// The run holds parts of a block, or an obsolete copy. A later transaction has the block
    /// whole, home has it, or `read_from` is no later.
    Other { home: HomeBlock },
    /// Records of the block in earlier transactions are revoked.
    Revoke { home: HomeBlock },
    /// The run of a transaction covered before has moved.
    Moved { transaction: TransactionId, start: LogBlock },
}

mod tag {
    pub const RUN: u8 = 1;
    pub const WHOLE: u8 = 2;
    pub const DURABLE_ONLY: u8 = 3;
    pub const OTHER: u8 = 4;
    pub const REVOKE: u8 = 5;
    pub const MOVED: u8 = 6;
}

mod at {
    pub const MAGIC: usize = 0;
    pub const NUMBER: usize = 4;
    pub const FROM: usize = 8;
    pub const END: usize = 12;
    pub const ITEMS: usize = 16;
    pub const ITEMS_SUM: usize = 20;
    pub const BACKLOG: usize = 24;
    pub const OWN_SUM: usize = 28;
}

impl SnapshotItem {
    pub fn parse(bytes: &[u8; ITEM_BYTES]) -> Option<SnapshotItem> {
        let [first, second, third] = [4, 8, 12].map(|at| field::be32(bytes, at));
        let home = HomeBlock(field::be64(bytes, 0) & (HOME_END - 1));
        let item = match bytes[0] {
            tag::RUN => SnapshotItem::Run {
                transaction: TransactionId(first),
                start: LogBlock(second),
                blocks: third,
            },
            tag::WHOLE | tag::DURABLE_ONLY => SnapshotItem::Whole {
                home,
                durable_only: bytes[0] == tag::DURABLE_ONLY,
                offset: second,
                sum: third,
            },
            tag::OTHER => SnapshotItem::Other { home },
            tag::REVOKE => SnapshotItem::Revoke { home },
            tag::MOVED => {
                SnapshotItem::Moved { transaction: TransactionId(first), start: LogBlock(second) }
            }
            _ => return None,
        };
        // Other encodings are not valid.
        (item.serialize() == *bytes).then_some(item)
    }

    pub fn serialize(&self) -> [u8; ITEM_BYTES] {
        let mut bytes = [0; ITEM_BYTES];
        let mut put = |at: usize, word: u32| field::put32(&mut bytes, at, word);
        let (tag, home) = match *self {
            SnapshotItem::Run { transaction, start, blocks } => {
                put(8, start.get());
                put(12, blocks);
                (tag::RUN, u64::from(transaction.0))
            }
            SnapshotItem::Whole { home, durable_only, offset, sum } => {
                put(8, offset);
                put(12, sum);
                (if durable_only { tag::DURABLE_ONLY } else { tag::WHOLE }, home.get())
            }
            SnapshotItem::Other { home } => (tag::OTHER, home.get()),
            SnapshotItem::Revoke { home } => (tag::REVOKE, home.get()),
            SnapshotItem::Moved { transaction, start } => {
                put(8, start.get());
                (tag::MOVED, u64::from(transaction.0))
            }
        };
        field::put64(&mut bytes, 0, u64::from(tag) << 56 | home & (HOME_END - 1));
        bytes
    }
}

impl PieceHeader {
    /// Bytes of a piece with `items` items, before its last block is filled.
    pub fn bytes_with(items: usize) -> usize {
        PIECE_HEADER_BYTES + items * ITEM_BYTES
    }

    /// Parses a header; `None` unless the block begins with the header of piece `number`. `seed`:
    /// [`crate::jbd2::JournalSuperblock::scattered_seed`].
    pub fn parse(block: &[u8], number: u32, seed: Seed) -> Option<PieceHeader> {
        let bytes = block.get(..PIECE_HEADER_BYTES)?;
        let word = |at: usize| field::be32(bytes, at);
        let number = match units::fault!("snapshot-any-number") {
            true => word(at::NUMBER),
            false => number,
        };
        let seed = seed_of(seed, number);
        let is_whole = word(at::MAGIC) == PIECE_MAGIC
            && word(at::OWN_SUM) == seed.with(&bytes[..at::OWN_SUM]).0
            && word(at::NUMBER) == number;
        is_whole.then(|| PieceHeader {
            number,
            from: TransactionId(word(at::FROM)),
            end: TransactionId(word(at::END)),
            items: word(at::ITEMS),
            backlog: word(at::BACKLOG),
        })
    }

    /// Returns the last transaction that was committed when the piece was written. Addresses of
    /// runs are those of that moment: a copy with a later durable floor was made afterwards, any
    /// other before.
    pub fn committed(&self) -> TransactionId {
        TransactionId(self.end.0.wrapping_add(self.backlog).wrapping_sub(1))
    }

    /// The items of the piece at the start of `piece`, whose bytes include the header. `None` if
    /// any is damaged.
    pub fn items(&self, piece: &[u8], seed: Seed) -> Option<Vec<SnapshotItem>> {
        let count = usize::try_from(self.items).ok()?;
        let bytes = piece.get(PIECE_HEADER_BYTES..)?.get(..count.checked_mul(ITEM_BYTES)?)?;
        if seed_of(seed, self.number).with(bytes).0 != field::be32(piece, at::ITEMS_SUM) {
            return None;
        }
        let (items, _) = arrays::<ITEM_BYTES>(bytes);
        items.map(SnapshotItem::parse).collect()
    }

    /// Serializes header and items, without the filling of the last block.
    pub fn serialize(&self, items: &[SnapshotItem], seed: Seed) -> Vec<u8> {
        let mut bytes = vec![0; PIECE_HEADER_BYTES];
        bytes.reserve_exact(items.len() * ITEM_BYTES);
        items.iter().for_each(|item| bytes.extend_from_slice(&item.serialize()));
        let seed = seed_of(seed, self.number);
        let sum = seed.with(&bytes[PIECE_HEADER_BYTES..]).0;
        for (at, word) in [
            (at::MAGIC, PIECE_MAGIC),
            (at::NUMBER, self.number),
            (at::FROM, self.from.0),
            (at::END, self.end.0),
            (at::ITEMS, self.items),
            (at::BACKLOG, self.backlog),
            (at::ITEMS_SUM, sum),
        ] {
            field::put32(&mut bytes, at, word);
        }
        let own = seed.with(&bytes[..at::OWN_SUM]).0;
        field::put32(&mut bytes, at::OWN_SUM, own);
        bytes
    }
}

fn seed_of(seed: Seed, number: u32) -> Seed {
    seed.with(&number.to_be_bytes())
}

/// Returns the Markdown tables for `docs/ON_DISK.md`.
pub fn tables() -> String {
    let mut text = String::from(
        "\n#### Header of a piece of a snapshot\n\n| byte | field | meaning |\n|---|---|---|\n",
    );
    let mut row = |cells: &[&dyn std::fmt::Display]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.to_string()).collect();
        writeln!(text, "| {} |", cells.join(" | ")).expect("strings take all writes");
    };
    row(&[&at::MAGIC, &"magic", &format!("{PIECE_MAGIC:#010x}")]);
    row(&[&at::NUMBER, &"number", &"of the piece"]);
    row(&[&at::FROM, &"from", &"the first transaction that it covers"]);
    row(&[&at::END, &"end", &"the first behind those; the next piece begins with it"]);
    row(&[&at::ITEMS, &"items", &format!("how many, of {ITEM_BYTES} bytes each")]);
    row(&[&at::ITEMS_SUM, &"checksum of the items", &"CRC-32C"]);
    row(&[
        &at::BACKLOG,
        &"backlog",
        &"how many transactions from `end` on were committed when this was written",
    ]);
    row(&[&at::OWN_SUM, &"checksum", &format!("of the {} bytes before it", at::OWN_SUM)]);
    text.push_str(
        "\n#### Items of a snapshot\n\n| byte 0 | item | bytes 1-7 | 8-11 | 12-15 |\n|---|---|---|---|---|\n",
    );
    let mut row = |tag: u8, cells: [&str; 4]| {
        writeln!(text, "| {tag} | {} |", cells.join(" | ")).expect("strings take all writes");
    };
    row(
        tag::RUN,
        [
            "a run; the items behind it are of its transaction",
            "transaction",
            "its first log block behind the header",
            "log blocks",
        ],
    );
    row(
        tag::WHOLE,
        [
            "a block that the run holds whole",
            "home block",
            "at which byte of the run",
            "CRC-32C of its content",
        ],
    );
    row(
        tag::DURABLE_ONLY,
        [
            "the same, of a file for which durability is enough",
            "home block",
            "the same",
            "the same",
        ],
    );
    row(tag::OTHER, ["a block of which the run holds something", "home block", "0", "0"]);
    row(tag::REVOKE, ["a block that the transaction has freed", "home block", "0", "0"]);
    row(
        tag::MOVED,
        ["a run covered before has moved", "transaction", "its first log block there", "0"],
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: Seed = Seed(0x1234_5678);

    fn items() -> Vec<SnapshotItem> {
        let (transaction, start) = (TransactionId(u32::MAX), LogBlock(70));
        let home = HomeBlock(HOME_END - 1);
        vec![
            SnapshotItem::Run { transaction, start, blocks: 9 },
            SnapshotItem::Whole { home, durable_only: false, offset: 4096, sum: 5 },
            SnapshotItem::Whole {
                home: HomeBlock(1),
                durable_only: true,
                offset: 0,
                sum: u32::MAX,
            },
            SnapshotItem::Other { home },
            SnapshotItem::Revoke { home: HomeBlock(0) },
            SnapshotItem::Moved { transaction, start },
        ]
    }
    fn header() -> PieceHeader {
        let (from, end) = (TransactionId(u32::MAX), TransactionId(1));
        PieceHeader { number: 7, from, end, items: items().len() as u32, backlog: 3 }
    }

    #[test]
    fn a_piece_is_read_back_and_every_changed_byte_is_noticed() {
        let bytes = header().serialize(&items(), SEED);
        assert_eq!(bytes.len(), PieceHeader::bytes_with(items().len()));
        let read = |bytes: &[u8]| {
            let header = PieceHeader::parse(bytes, 7, SEED)?;
            Some((header, header.items(bytes, SEED)?))
        };
        assert_eq!(read(&bytes), Some((header(), items())));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(read(&changed), None, "byte {at}");
            assert_eq!(read(&bytes[..at]), None, "{at} bytes");
        }
    }

    #[test]
    fn a_piece_counts_only_under_its_number_and_in_its_life() {
        let bytes = header().serialize(&items(), SEED);
        assert_eq!(PieceHeader::parse(&bytes, 8, SEED), None);
        assert_eq!(PieceHeader::parse(&bytes, 7, Seed(1)), None);
    }

    #[test]
    fn items_that_no_writer_produces_are_refused() {
        for bytes in [[0; 16], [7; 16], [tag::OTHER; 16], [tag::MOVED; 16]] {
            assert_eq!(SnapshotItem::parse(&bytes), None);
        }
    }
}
