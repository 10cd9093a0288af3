//! The journal tables of `docs/ON_DISK.md`, printed from the code so that they cannot become false.

use super::commit;
use super::header::{BlockHeader, BlockType};
use super::layout::{LogLayout, TagFormat};
use super::superblock::{Compatible, Incompatible, SIZE, at};
use super::tag::{RANGE_BYTES, UUID_BYTES, flag};
use super::{DescriptorBlock, MAGIC, RevokeBlock};
use std::fmt::Write;
use units::BlockSize;

/// Returns Markdown, one table after the other. A test finds this text in the document.
pub fn tables() -> String {
    let mut text = String::new();
    block_types(&mut text);
    superblock(&mut text);
    commit_block(&mut text);
    features(&mut text);
    tag_flags(&mut text);
    sizes(&mut text);
    text
}

fn row(text: &mut String, cells: &[&dyn std::fmt::Display]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.to_string()).collect();
    writeln!(text, "| {} |", cells.join(" | ")).expect("strings take all writes");
}

fn head(text: &mut String, title: &str, cells: &[&str]) {
    writeln!(text, "\n#### {title}\n\n| {} |\n|{}", cells.join(" | "), "---|".repeat(cells.len()))
        .expect("strings take all writes");
}

fn block_types(text: &mut String) {
    head(text, "Journal block types", &["`h_blocktype`", "block", "okeanos"]);
    let kinds = [
        (BlockType::Descriptor, "DescriptorBlock", "written and read"),
        (BlockType::Commit, "CommitBlock", "written and read"),
        (BlockType::SuperblockV1, "JournalSuperblock, version 1", "read"),
        (BlockType::SuperblockV2, "JournalSuperblock, version 2", "written and read"),
        (BlockType::Revoke, "RevokeBlock", "written and read"),
    ];
    for (kind, name, who) in kinds {
        row(text, &[&kind.number(), &name, &who]);
    }
    let header = BlockHeader::SIZE;
    writeln!(text, "\nHeader: {header} bytes: magic {MAGIC:#010x}, type, transaction (be32 each).")
        .expect("text");
}

fn superblock(text: &mut String) {
    head(text, "Journal superblock", &["byte", "field", "meaning"]);
    let fields = [
        (0, "`s_header`", "header, transaction 0"),
        (at::BLOCK_SIZE, "`s_blocksize`", "bytes of a block, as the volume's"),
        (at::LENGTH, "`s_maxlen`", "blocks of the journal, this one included"),
        (at::FIRST, "`s_first`", "first block of the log"),
        (at::SEQUENCE, "`s_sequence`", "first transaction expected in the log"),
        (at::START, "`s_start`", "where the log begins; 0: it is empty"),
        (
            at::ERRNO,
            "`s_errno`",
            "a negative errno after an abort: -5 (`EIO`) of a failed write or flush, -117 \
             (`EFSCORRUPTED`) where damage was found, or where a recovery left out what was \
             committed",
        ),
        (at::COMPATIBLE, "`s_feature_compat`", "from here on version 2 only"),
        (at::INCOMPATIBLE, "`s_feature_incompat`", "see the features"),
        (at::READ_ONLY_COMPATIBLE, "`s_feature_ro_compat`", "none is known"),
        (at::UUID, "`s_uuid`", "16 bytes; seeds all checksums of the log"),
        (at::USER_COUNT, "`s_nr_users`", "volumes that share an external journal"),
        (at::DYNAMIC_SUPERBLOCK, "`s_dynsuper`", "kept"),
        (
            at::MAX_TRANSACTION,
            "`s_max_transaction`",
            "where 0x05c says so, no transaction of the log takes more log blocks than this; else \
             kept",
        ),
        (at::MAX_TRANSACTION_DATA, "`s_max_trans_data`", "kept"),
        (at::CHECKSUM_TYPE, "`s_checksum_type`", "1 byte: 4 is CRC-32C"),
        (
            at::FAST_COMMIT_BLOCKS,
            "`s_num_fc_blks`",
            "blocks behind the log for fast commits; 0: 256",
        ),
        (
            at::SCATTERED_TABLE_MARK,
            "ours",
            "the mark of the table of runs, with scattered logs and `mtl=`; else 0",
        ),
        (
            at::MAX_TRANSACTION_SINCE,
            "ours",
            "`s_sequence` inverted, while `s_max_transaction` is ours; else 0",
        ),
        (
            at::SCATTERED_NONCE,
            "ours",
            "be64: the nonce of scattered logs; be32 with the feature gaps: most units between two \
             transactions; else 0",
        ),
        (at::SCATTERED_ACTIVE, "ours", "128 bytes: which scattered logs recovery looks at; else 0"),
        (at::PACKED_NONCE, "ours", "be64: the nonce of a log of packed transactions; else 0"),
        (at::PACKED_UNIT, "ours", "bytes of its units, in which `s_start` counts; else 0"),
        (
            at::KEPT_SEQUENCE,
            "ours",
            "`s_sequence` once more, while a feature of ours is set; else 0",
        ),
        (
            at::KEPT_START,
            "ours",
            "`s_start` once more, likewise; both lie in what the kernel leaves unused",
        ),
        (
            at::CHECKSUM,
            "`s_checksum`",
            "CRC-32C of the superblock with this field 0, under checksum v2 and v3",
        ),
        (at::USERS, "`s_users`", "48 UUIDs of volumes that share an external journal"),
        (at::SNAPSHOT_FIRST, "ours", "with the feature snapshot: the number of its first piece"),
        (at::SNAPSHOT_FIRST_AT, "ours", "likewise: the block of the journal in which that begins"),
        (at::SNAPSHOT_LAST, "ours", "likewise: the number of its last piece"),
        (at::SNAPSHOT_END, "ours", "likewise: the first transaction that it does not cover"),
        (
            at::SNAPSHOT_READ_FROM,
            "ours",
            "likewise: the first transaction that is read from the log all the same",
        ),
        (
            at::SNAPSHOT_LONGEST,
            "ours",
            "likewise: no later run has more log blocks, its header included, or they have less \
             than 64 KiB",
        ),
        (
            at::SCATTERED_MOVING,
            "ours",
            "with the feature moving: the log block from which on, up to the end of its log, \
             copies do not count",
        ),
        (
            at::SNAPSHOT_SINCE,
            "ours",
            "with the feature snapshot, 128 bytes: the logs that may hold runs that it does not \
             cover",
        ),
    ];
    for (at, name, meaning) in fields {
        row(text, &[&format!("{at:#05x}"), &name, &meaning]);
    }
    writeln!(text, "\n{SIZE} bytes; all other bytes, and the rest of the block, are zero.")
        .expect("text");
}

fn commit_block(text: &mut String) {
    head(text, "Commit block", &["byte", "field", "meaning"]);
    let fields = [
        (0, "header", "type, transaction"),
        (
            commit::CHECKSUM_TYPE,
            "`h_chksum_type`",
            "1 byte: 1 CRC-32 (checksum v1), 4 ours: a whole-transaction checksum",
        ),
        (commit::CHECKSUM_SIZE, "`h_chksum_size`", "1 byte: 4 with a type, else 0"),
        (
            commit::OWN_CHECKSUM,
            "`h_chksum[0]`",
            "v2, v3: of this block, with this field 0; v1: of the transaction",
        ),
        (
            commit::WHOLE_CHECKSUM,
            "`h_chksum[1]`",
            "ours: of UUID, transaction and all its other log blocks in order",
        ),
        (commit::SECONDS, "`h_commit_sec`", "be64, seconds since 1970"),
        (commit::NANOSECONDS, "`h_commit_nsec`", "nanoseconds"),
    ];
    for (at, name, meaning) in fields {
        row(text, &[&at, &name, &meaning]);
    }
}

fn features(text: &mut String) {
    head(text, "Journal features", &["set", "bit", "feature", "okeanos"]);
    row(text, &[&"compatible", &format!("{:#x}", Compatible::CHECKSUM), &"checksum (v1)", &"read"]);
    for (bit, name) in Incompatible::NAMES {
        let ours = match bit {
            Incompatible::CHECKSUM_V2 | Incompatible::ASYNC_COMMIT => "read",
            Incompatible::FAST_COMMIT => "read when no fast commit is live; then cleared",
            Incompatible::MULTIWRITE
            | Incompatible::PACKED
            | Incompatible::SCATTERED
            | Incompatible::GAPS
            | Incompatible::XXH64 => "written and read; set only while such records may be live",
            Incompatible::SNAPSHOT => "written and read; set only while a snapshot counts",
            Incompatible::MOVING => {
                "written and read; set only while runs move to another scattered log"
            }
            _ => "written and read",
        };
        row(text, &[&"incompatible", &format!("{bit:#x}"), &name, &ours]);
    }
}

fn tag_flags(text: &mut String) {
    head(text, "Tag flags", &["bit", "flag", "meaning"]);
    let flags = [
        (
            flag::ESCAPE,
            "ESCAPE",
            "the log block's first four bytes were the magic and are zeroed in the log",
        ),
        (flag::SAME_UUID, "SAME_UUID", "no UUID follows the tag"),
        (flag::DELETED, "DELETED", "the block was freed by this transaction (never written)"),
        (flag::LAST, "LAST_TAG", "the last tag of its descriptor"),
        (
            flag::MULTIWRITE,
            "MULTIWRITE",
            "ours: be16 offset and be16 length in the home block follow the tag",
        ),
        (
            flag::BASE_ZERO,
            "BASE_ZERO",
            "ours, with MULTIWRITE: all other bytes of the home block become zero",
        ),
        (
            flag::DURABLE_ONLY,
            "DURABLE_ONLY",
            "ours, in scattered logs, of a whole block: durability is enough for its file",
        ),
    ];
    for (bit, name, meaning) in flags {
        row(text, &[&format!("{bit:#x}"), &name, &meaning]);
    }
    writeln!(
        text,
        "\nBehind a tag: {RANGE_BYTES} bytes of range with MULTIWRITE, then {UUID_BYTES} bytes of \
         UUID without SAME_UUID."
    )
    .expect("text");
}

fn sizes(text: &mut String) {
    let columns =
        ["tags", "block numbers", "tag bytes", "tail bytes", "tags per 4 KiB", "revokes per 4 KiB"];
    head(text, "Tag formats", &columns);
    let formats = [
        (TagFormat::Plain, "plain, checksum v1"),
        (TagFormat::ChecksumV2, "checksum v2"),
        (TagFormat::ChecksumV3, "checksum v3"),
    ];
    let block_size = BlockSize::new(4096).expect("a power of two");
    for (tags, name) in formats {
        for wide in [false, true] {
            let layout = LogLayout { wide, ..LogLayout::new(block_size, tags, [0; 16]) };
            let bits = if wide { "64 bit" } else { "32 bit" };
            let count = DescriptorBlock::capacity(&layout) / layout.tag_bytes();
            let (tag, tail) = (layout.tag_bytes(), layout.tail_bytes());
            row(text, &[&name, &bits, &tag, &tail, &count, &RevokeBlock::capacity(&layout)]);
        }
    }
}
