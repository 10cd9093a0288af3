//! The journal tables of `docs/ON_DISK.md`, printed from the code so that they cannot become false.

use super::header::{BlockHeader, BlockType};
use super::layout::{LogLayout, TagFormat};
use super::superblock::{Compatible, Incompatible, SIZE, USERS_AT};
use super::tag::{RANGE_BYTES, UUID_BYTES, flag};
use super::{DescriptorBlock, MAGIC, RevokeBlock};
use std::fmt::Write;
use units::BlockSize;

/// Markdown, one table after the other. A test of the workspace finds this text in the document.
pub fn tables() -> String {
    let mut text = String::new();
    block_types(&mut text);
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
    head(text, "Journal block types", &["`h_blocktype`", "block", "who writes it"]);
    let kinds = [
        (BlockType::Descriptor, "DescriptorBlock", "both"),
        (BlockType::Commit, "CommitBlock", "both"),
        (BlockType::SuperblockV1, "JournalSuperblock, version 1", "read only"),
        (BlockType::SuperblockV2, "JournalSuperblock, version 2", "both"),
        (BlockType::Revoke, "RevokeBlock", "both"),
    ];
    for (kind, name, who) in kinds {
        row(text, &[&kind.number(), &name, &who]);
    }
    let header = BlockHeader::SIZE;
    writeln!(text, "\nHeader: {header} bytes: magic {MAGIC:#010x}, type, transaction (be32 each).")
        .expect("text");
    writeln!(text, "Superblock: {SIZE} bytes, users from byte {USERS_AT:#x} on.").expect("text");
}

fn features(text: &mut String) {
    head(text, "Journal features", &["set", "bit", "feature", "okeanos"]);
    row(text, &[&"compatible", &format!("{:#x}", Compatible::CHECKSUM), &"checksum (v1)", &"read"]);
    for (bit, name) in Incompatible::NAMES {
        let ours = match bit {
            Incompatible::CHECKSUM_V2 | Incompatible::ASYNC_COMMIT => "read",
            Incompatible::FAST_COMMIT => "read when no fast commit is live; then cleared",
            Incompatible::MULTIWRITE => "written and read; set only while such records may be live",
            _ => "written and read",
        };
        row(text, &[&"incompatible", &format!("{bit:#x}"), &name, &ours]);
    }
}

fn tag_flags(text: &mut String) {
    head(text, "Tag flags", &["bit", "flag", "meaning"]);
    let flags = [
        (flag::ESCAPE, "ESCAPE", "the log block's first four bytes were the magic and are zeroed in the log"),
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
    ];
    for (bit, name, meaning) in flags {
        row(text, &[&format!("{bit:#x}"), &name, &meaning]);
    }
    writeln!(text, "\nBehind a tag: {RANGE_BYTES} bytes of range with MULTIWRITE, then {UUID_BYTES} bytes of UUID without SAME_UUID.")
        .expect("text");
}

fn sizes(text: &mut String) {
    let columns = ["tags", "block numbers", "tag bytes", "tail bytes", "tags per 4 KiB", "revokes per 4 KiB"];
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
            let count = DescriptorBlock::room(&layout) / layout.tag_bytes();
            let (tag, tail) = (layout.tag_bytes(), layout.tail_bytes());
            row(text, &[&name, &bits, &tag, &tail, &count, &RevokeBlock::capacity(&layout)]);
        }
    }
}
