//! Comparison of `docs/ON_DISK.md` with the code.

#[test]
fn the_document_holds_the_tables_as_the_code_prints_them() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ON_DISK.md");
    let document = std::fs::read_to_string(path).unwrap_or_default();
    let journal = [
        format::jbd2::tables(),
        format::packed::tables(),
        format::scattered::tables(),
        format::snapshot::tables(),
        format::blocks::tables(),
    ];
    for tables in journal.into_iter().chain([format::flush_zone::table()]) {
        assert!(document.contains(tables.trim()), "docs/ON_DISK.md lacks this text:\n{tables}");
    }
}
