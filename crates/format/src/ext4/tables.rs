//! The volume tables of `docs/ON_DISK.md`, printed from the code so that they cannot become false.

use super::features::{FEATURES, FeatureWord, Support};
use super::superblock::SUPERBLOCK_FIELDS;
use std::fmt::Write;

/// Returns Markdown. A test finds this text in the document.
pub fn tables() -> String {
    let mut text = String::new();
    features(&mut text);
    superblock(&mut text);
    text
}

fn features(text: &mut String) {
    let kinds = [
        (FeatureWord::Incompatible, "incompatible: unknown ones are refused"),
        (FeatureWord::ReadOnlyCompatible, "read-only compatible: unknown ones allow reading"),
        (FeatureWord::Compatible, "compatible: unknown ones are ignored"),
    ];
    for (word, title) in kinds {
        line(
            text,
            &format!(
                "\n#### Features, {title}\n\n| bit | name | okeanos | meaning |\n|---|---|---|---|"
            ),
        );
        for row in FEATURES.iter().filter(|row| row.feature.word == word) {
            let support = match row.support {
                Support::Full => "supported",
                Support::Ignored => "left alone",
                Support::ReadOnly => "read-only",
                Support::Refused => "refused",
            };
            line(
                text,
                &format!(
                    "| {:#x} | `{}` | {support} | {} |",
                    row.feature.bit, row.name, row.meaning
                ),
            );
        }
    }
}

fn superblock(text: &mut String) {
    line(text, "\n#### Superblock fields in use\n\n| byte | bytes | field |\n|---|---|---|");
    // Fields that are joined from halves or words.
    let joined = [
        ("blocks (low half)", 0x04, 4),
        ("reserved_blocks (low half)", 0x08, 4),
        ("free_blocks (low half)", 0x0c, 4),
        ("block_size (1024 shifted by this)", 0x18, 4),
        ("magic 0xef53", 0x38, 2),
        ("features: compatible", 0x5c, 4),
        ("features: incompatible", 0x60, 4),
        ("features: read-only compatible", 0x64, 4),
        ("blocks (high half)", 0x150, 4),
        ("reserved_blocks (high half)", 0x154, 4),
        ("free_blocks (high half)", 0x158, 4),
        ("makes the content match the checksum (`s_snapshot_id`)", 0x184, 4),
        ("checksum_seed", 0x270, 4),
        ("checksum", 0x3fc, 4),
    ];
    let mut fields: Vec<(&str, usize, usize)> = SUPERBLOCK_FIELDS.to_vec();
    fields.extend(joined);
    fields.sort_by_key(|(_, at, _)| *at);
    for (name, at, size) in fields {
        line(text, &format!("| {at:#05x} | {size} | {name} |"));
    }
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("strings take all writes");
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_document_holds_the_volume_tables_as_the_code_prints_them() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ON_DISK.md");
        let document = std::fs::read_to_string(path).unwrap_or_default();
        let tables = super::tables();
        assert!(document.contains(tables.trim()), "docs/ON_DISK.md lacks this text:\n{tables}");
    }
    #[test]
    fn no_field_of_the_superblock_overlaps_another() {
        let mut fields = super::SUPERBLOCK_FIELDS.to_vec();
        fields.sort_by_key(|(_, at, _)| *at);
        assert!(fields.windows(2).all(|pair| pair[0].1 + pair[0].2 <= pair[1].1));
    }
}
