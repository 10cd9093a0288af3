//! Scattered logs: many short logs distributed over the volume, in a file that the file system
//! owns. Each transaction is one contiguous run in one of them.
//!
//! A log is filled from its start and begun again when nothing in it is live. A run is a *run
//! header*, alone in its log block, and the log blocks of one transaction behind it. So the runs of
//! a log follow each other from its first block on, and headers alone lead from one to the next.
//!
//! A run header is valid by its checksum and its own address in it. The checksum begins with the
//! journal's UUID and the nonce of the log's life. Transaction numbers give the order of
//! transactions. Bits in the journal superblock, one for each few logs, mark the logs that recovery
//! reads ([`ActiveLogs`]). A bit is set durably before its logs get their first run.
//!
//! The file begins with a [`LogsSuperblock`] in a block of its own. Tables: `docs/ON_DISK.md`
//! (printed by [`tables`]).

use crate::field;
use crate::seed::Seed;
use std::fmt::Write;
use units::{LogBlock, TransactionId};

/// The first four bytes of a run header: unlike JBD2's and that of packed transactions.
pub const RUN_MAGIC: u32 = 0x4f6b_5363;
pub const LOGS_MAGIC: [u8; 8] = *b"OKEANLGS";
pub const LOGS_SUPERBLOCK_SIZE: usize = 512;
const VERSION: u32 = 1;
/// Bound on the logs of a volume, for readers; no volume has space for more.
pub const LOGS_MAX: u32 = 1 << 20;
/// Shortest log, in blocks, for useful transactions.
pub const LOG_BLOCKS_MIN: u32 = 64;

/// Parameters of scattered logs in the journal superblock, while the logs may hold records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScatteredLogs {
    /// Random number, chosen whenever the log is begun.
    pub nonce: u64,
    /// Mark of the table that lists all runs written since (`mtl=`); 0: no table does.
    pub table_mark: u32,
    pub active: ActiveLogs,
    /// The snapshot of the mapping table, if one is valid.
    pub snapshot: Option<NamedSnapshot>,
    /// The first block of copies that are not valid, up to the end of their log; `None`: no runs
    /// are being moved.
    pub moving: Option<LogBlock>,
}

/// The valid snapshot, as the journal superblock names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedSnapshot {
    /// The number of the first piece, and its first block in the journal.
    pub first: u32,
    pub first_at: LogBlock,
    /// The number of the last piece.
    pub last: u32,
    /// The first transaction that no piece covers.
    pub end: TransactionId,
    /// First transaction from which on the log is read nevertheless: home lacks parts of blocks
    /// that later transactions hold.
    pub read_from: TransactionId,
    /// Bound on the log blocks of runs from `end` on, header included, except for runs that are
    /// short anyway.
    pub longest: u32,
    /// Logs that may hold runs from `end` on.
    pub since: ActiveLogs,
}

/// One bit for each few logs, so that recovery reads only the marked ones.
#[derive(Clone, PartialEq, Eq)]
pub struct ActiveLogs([u8; ActiveLogs::BYTES]);

impl ActiveLogs {
    pub const BYTES: usize = 128;
    pub const BITS: u32 = 8 * ActiveLogs::BYTES as u32;

    pub fn none() -> ActiveLogs {
        ActiveLogs([0; ActiveLogs::BYTES])
    }
    /// Parses `BYTES` bytes.
    pub fn parse(bytes: &[u8]) -> ActiveLogs {
        let mut active = ActiveLogs::none();
        active.0.copy_from_slice(bytes);
        active
    }
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
    pub fn set(&mut self, bit: u32) {
        self.0[bit as usize / 8] |= 1 << (bit % 8);
    }
    pub fn contains(&self, bit: u32) -> bool {
        self.0[bit as usize / 8] >> (bit % 8) & 1 == 1
    }
    pub fn add(&mut self, others: &ActiveLogs) {
        self.0.iter_mut().zip(others.0).for_each(|(mine, other)| *mine |= other);
    }
    pub fn includes(&self, others: &ActiveLogs) -> bool {
        self.0.iter().zip(others.0).all(|(mine, other)| other & !mine == 0)
    }
    /// Number of logs that share a bit.
    pub fn logs_a_bit(logs: u32) -> u32 {
        logs.div_ceil(ActiveLogs::BITS).max(1)
    }
}

impl std::fmt::Debug for ActiveLogs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries((0..ActiveLogs::BITS).filter(|bit| self.contains(*bit))).finish()
    }
}

/// The header of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunHeader {
    /// Address of the header itself.
    pub at: LogBlock,
    pub transaction: TransactionId,
    /// Log blocks behind it.
    pub blocks: u32,
    /// Durable floor: when the run was issued, that transaction and all before it were durable.
    pub durable: TransactionId,
}

mod at {
    pub const MAGIC: usize = 0;
    pub const AT: usize = 4;
    pub const TRANSACTION: usize = 8;
    pub const BLOCKS: usize = 12;
    pub const DURABLE: usize = 16;
    pub const OWN_SUM: usize = 20;
}

impl RunHeader {
    pub const SIZE: usize = 24;

    /// Parses a header; `None` unless its checksum is right and its address is `at`. `seed`: of the
    /// log's life ([`crate::jbd2::JournalSuperblock::scattered_seed`]).
    pub fn parse(at: LogBlock, block: &[u8], seed: Seed) -> Option<RunHeader> {
        let bytes = block.get(..Self::SIZE)?;
        let word = |at: usize| field::be32(bytes, at);
        let valid = word(at::MAGIC) == RUN_MAGIC
            && word(at::OWN_SUM) == seed.with(&bytes[..at::OWN_SUM]).0
            && word(at::AT) == at.get();
        valid.then(|| RunHeader {
            at,
            transaction: TransactionId(word(at::TRANSACTION)),
            blocks: word(at::BLOCKS),
            durable: TransactionId(word(at::DURABLE)),
        })
    }

    /// Parses a copy of a header, kept elsewhere.
    pub fn parse_copy(bytes: &[u8], seed: Seed) -> Option<RunHeader> {
        RunHeader::parse(LogBlock(field::be32(bytes.get(..Self::SIZE)?, at::AT)), bytes, seed)
    }

    /// Writes the header at the start of `block`.
    pub fn serialize(&self, seed: Seed, block: &mut [u8]) {
        let words = [RUN_MAGIC, self.at.get(), self.transaction.0, self.blocks, self.durable.0];
        for (index, word) in words.into_iter().enumerate() {
            field::put32(block, 4 * index, word);
        }
        let sum = seed.with(&block[..at::OWN_SUM]).0;
        field::put32(block, at::OWN_SUM, sum);
    }
}

/// The superblock of the logs' file: number and length of the logs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogsSuperblock {
    /// UUID of the volume.
    pub uuid: [u8; 16],
    /// The inode that owns the logs.
    pub inode: u32,
    pub logs: u32,
    /// Length of each log, in blocks of the volume.
    pub log_blocks: u32,
    /// Blocks of the volume between two logs, as requested.
    pub group_blocks: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LogsError {
    /// Not the logs' superblock: another magic.
    #[error("there are no scattered logs")]
    NoLogs,
    #[error(
        "the superblock of the scattered logs has checksum {stored:#010x} instead of \
         {computed:#010x}"
    )]
    WrongChecksum { stored: u32, computed: u32 },
    #[error("scattered logs of unknown version {0}")]
    UnknownVersion(u32),
    #[error("{logs} scattered logs of {blocks} blocks each")]
    BadSize { logs: u32, blocks: u32 },
}

const CHECKSUM_AT: usize = LOGS_SUPERBLOCK_SIZE - 4;

impl LogsSuperblock {
    pub fn parse(bytes: &[u8]) -> Result<LogsSuperblock, LogsError> {
        let bytes = bytes.get(..LOGS_SUPERBLOCK_SIZE).filter(|bytes| bytes[..8] == LOGS_MAGIC);
        let Some(bytes) = bytes else { return Err(LogsError::NoLogs) };
        let (stored, computed) =
            (field::be32(bytes, CHECKSUM_AT), crc32c::crc32c(&bytes[..CHECKSUM_AT]));
        if stored != computed {
            return Err(LogsError::WrongChecksum { stored, computed });
        }
        let version = field::be32(bytes, 8);
        if version != VERSION {
            return Err(LogsError::UnknownVersion(version));
        }
        let [inode, logs, log_blocks, group_blocks] =
            [28, 32, 36, 40].map(|at| field::be32(bytes, at));
        if logs == 0 || logs > LOGS_MAX || log_blocks < LOG_BLOCKS_MIN {
            return Err(LogsError::BadSize { logs, blocks: log_blocks });
        }
        Ok(LogsSuperblock { uuid: field::uuid(bytes, 12), inode, logs, log_blocks, group_blocks })
    }

    pub fn serialize(&self) -> [u8; LOGS_SUPERBLOCK_SIZE] {
        let mut bytes = [0; LOGS_SUPERBLOCK_SIZE];
        bytes[..8].copy_from_slice(&LOGS_MAGIC);
        bytes[12..28].copy_from_slice(&self.uuid);
        let words = [VERSION, self.inode, self.logs, self.log_blocks, self.group_blocks];
        for (at, word) in [8, 28, 32, 36, 40].into_iter().zip(words) {
            field::put32(&mut bytes, at, word);
        }
        let sum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
        field::put32(&mut bytes, CHECKSUM_AT, sum);
        bytes
    }
}

/// Returns the Markdown tables for `docs/ON_DISK.md`.
pub fn tables() -> String {
    let mut text = String::from("\n#### Run header\n\n| byte | field | meaning |\n|---|---|---|\n");
    let mut row = |at: usize, name: &str, meaning: &str| {
        writeln!(text, "| {at} | {name} | {meaning} |").expect("strings take all writes");
    };
    row(at::MAGIC, "magic", &format!("{RUN_MAGIC:#010x}"));
    row(at::AT, "place", "the log block that it lies in");
    row(at::TRANSACTION, "transaction", "its number");
    row(at::BLOCKS, "blocks", "log blocks of the transaction, behind the header's own");
    row(
        at::DURABLE,
        "durable floor",
        "when this was issued, or moved, that transaction and all before it were durable",
    );
    row(at::OWN_SUM, "checksum", &format!("of the {} bytes before it", at::OWN_SUM));
    text.push_str(
        "\n#### Superblock of the scattered logs\n\n| byte | bytes | field |\n|---|---|---|\n",
    );
    for (at, bytes, name) in [
        (0, 8, "magic `OKEANLGS`"),
        (8, 4, "version: 1; others are refused"),
        (12, 16, "UUID of the volume"),
        (28, 4, "inode that owns the logs"),
        (32, 4, "logs"),
        (36, 4, "blocks of each log"),
        (40, 4, "blocks from one log to the next, as asked for"),
        (CHECKSUM_AT, 4, "CRC-32C of all bytes before"),
    ] {
        writeln!(text, "| {at} | {bytes} | {name} |").expect("strings take all writes");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: Seed = Seed(0x1234_5678);

    #[test]
    fn a_run_header_is_read_back_only_where_and_when_it_was_written() {
        let header = RunHeader {
            at: LogBlock(70),
            transaction: TransactionId(u32::MAX),
            blocks: 9,
            durable: TransactionId(u32::MAX - 1),
        };
        let mut block = vec![0; 512];
        header.serialize(SEED, &mut block);
        assert_eq!(RunHeader::parse(LogBlock(70), &block, SEED), Some(header));
        assert_eq!(RunHeader::parse(LogBlock(71), &block, SEED), None);
        assert_eq!(RunHeader::parse(LogBlock(70), &block, Seed(1)), None);
        for at in 0..RunHeader::SIZE {
            let mut bytes = block.clone();
            bytes[at] ^= 1;
            assert_eq!(RunHeader::parse(LogBlock(70), &bytes, SEED), None, "byte {at}");
        }
        assert_eq!(RunHeader::parse(LogBlock(70), &block[..20], SEED), None);
    }

    #[test]
    fn a_superblock_of_logs_is_read_back_and_every_changed_byte_is_noticed() {
        let superblock = LogsSuperblock {
            uuid: [7; 16],
            inode: 13,
            logs: 20,
            log_blocks: 2560,
            group_blocks: 25_600,
        };
        assert_eq!(LogsSuperblock::parse(&superblock.serialize()), Ok(superblock.clone()));
        for at in 0..LOGS_SUPERBLOCK_SIZE {
            let mut bytes = superblock.serialize();
            bytes[at] ^= 1;
            assert!(LogsSuperblock::parse(&bytes).is_err(), "byte {at}");
        }
        assert_eq!(LogsSuperblock::parse(&[0; 100]), Err(LogsError::NoLogs));
        let none = LogsSuperblock { logs: 0, ..superblock };
        assert!(LogsSuperblock::parse(&none.serialize()).is_err());
    }

    #[test]
    fn few_logs_have_a_bit_each_and_many_share() {
        assert_eq!([1, 1024, 1025, 10_000].map(ActiveLogs::logs_a_bit), [1, 1, 2, 10]);
        let mut active = ActiveLogs::none();
        active.set(1023);
        assert!(active.contains(1023) && !active.contains(0));
        assert_eq!(ActiveLogs::parse(active.bytes()), active);
        assert!(active.includes(&ActiveLogs::none()) && !ActiveLogs::none().includes(&active));
    }
}
