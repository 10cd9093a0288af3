//! One record of a log, as a line.

use crate::text::local_time;
use std::fmt;

#[derive(serde::Serialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// One tag of a descriptor block: a whole block, or bytes `from..to` of it.
    Tag {
        transaction: u32,
        descriptor: u32,
        block: u64,
        from: u32,
        to: u32,
        whole: bool,
        base_zero: bool,
        log_block: u32,
        log_offset: usize,
        escaped: bool,
    },
    Revoke {
        transaction: u32,
        log_block: u32,
        blocks: Vec<u64>,
    },
    Commit {
        transaction: u32,
        log_block: u32,
        seconds: i64,
        nanoseconds: u32,
        whole_checksum: bool,
    },
    /// A packed transaction; its records follow.
    Packed {
        transaction: u32,
        log_block: u32,
        log_blocks: u32,
        bytes: u32,
        durable: u32,
        seconds: i64,
        nanoseconds: u32,
    },
    /// Bytes of one block: none for a block that becomes zeros.
    PackedParts {
        transaction: u32,
        block: u64,
        parts: Vec<(u32, u32)>,
        base_zero: bool,
    },
    PackedWhole {
        transaction: u32,
        block: u64,
    },
    PackedRevoke {
        transaction: u32,
        block: u64,
    },
    Damaged {
        log_block: u32,
        why: String,
    },
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Record::Tag {
                transaction,
                descriptor,
                block,
                from,
                to,
                whole,
                base_zero,
                log_block,
                log_offset,
                escaped,
            } => {
                write!(f, "T{transaction} descriptor at log block {descriptor}: ")?;
                match whole {
                    true => write!(f, "block {block} whole, in log block {log_block}")?,
                    false => write!(
                        f,
                        "bytes {from}..{to} of block {block}, in log block {log_block} at byte \
                         {log_offset}"
                    )?,
                }
                f.write_str(if *base_zero { ", the rest of it zeros" } else { "" })?;
                f.write_str(if *escaped { ", escaped" } else { "" })
            }
            Record::Revoke { transaction, log_block, blocks } => {
                let blocks: Vec<String> = blocks.iter().map(u64::to_string).collect();
                write!(
                    f,
                    "T{transaction} revoke at log block {log_block}: blocks {}",
                    blocks.join(", ")
                )
            }
            Record::Commit { transaction, log_block, seconds, nanoseconds, whole_checksum } => {
                let whole =
                    if *whole_checksum { ", with a checksum of the whole transaction" } else { "" };
                write!(
                    f,
                    "T{transaction} commit at log block {log_block}: at {}{whole}",
                    local_time::exact(*seconds, *nanoseconds)
                )
            }
            Record::Packed {
                transaction,
                log_block,
                log_blocks,
                bytes,
                durable,
                seconds,
                nanoseconds,
            } => {
                let plural = if *log_blocks == 1 { "" } else { "s" };
                write!(
                    f,
                    "T{transaction} packed at log block {log_block}: {log_blocks} log \
                     block{plural}, {bytes} bytes of records, at {}; all up to T{durable} was \
                     durable",
                    local_time::exact(*seconds, *nanoseconds)
                )
            }
            Record::PackedParts { transaction, block, parts, base_zero } => {
                let parts: Vec<String> =
                    parts.iter().map(|(from, to)| format!("{from}..{to}")).collect();
                match parts[..] {
                    [] => return write!(f, "T{transaction} block {block}, all zeros"),
                    _ => write!(f, "T{transaction} bytes {} of block {block}", parts.join(", "))?,
                }
                f.write_str(if *base_zero { ", the rest of it zeros" } else { "" })
            }
            Record::PackedWhole { transaction, block } => {
                write!(f, "T{transaction} block {block} whole")
            }
            Record::PackedRevoke { transaction, block } => {
                write!(f, "T{transaction} revoke of block {block}")
            }
            Record::Damaged { log_block, why } => write!(f, "log block {log_block}: {why}"),
        }
    }
}
