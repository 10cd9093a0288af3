//! The tables of packed transactions in `docs/ON_DISK.md`, printed from the code.

use super::header::at;
use super::{Kind, MAGIC, PackedHeader};
use std::fmt::Write;

/// Returns Markdown, one table after the other. A test finds this text in the document.
pub fn tables() -> String {
    let mut text = String::from(
        "\n#### Header of a packed transaction\n\n| byte | field | meaning |\n|---|---|---|\n",
    );
    let fields = [
        (at::MAGIC, "magic", format!("{MAGIC:#010x}")),
        (at::TRANSACTION, "transaction", "its number".to_owned()),
        (
            at::LENGTH,
            "length",
            "bytes of the records, without the first byte of each further unit".to_owned(),
        ),
        (
            at::DURABLE,
            "durable floor",
            "when this was issued, that transaction and all before it were durable".to_owned(),
        ),
        (at::TIME, "time", "be64, nanoseconds since 1970, signed".to_owned()),
        (
            at::BODY_SUM,
            "body checksum",
            "of all bytes of the run behind the header, padding included".to_owned(),
        ),
        (at::OWN_SUM, "header checksum", format!("of the {} bytes before it", at::OWN_SUM)),
    ];
    for (at, name, meaning) in fields {
        writeln!(text, "| {at} | {name} | {meaning} |").expect("strings take all writes");
    }
    let size = PackedHeader::SIZE;
    writeln!(
        text,
        "\n{size} bytes; be32 where nothing else is said.\n\n#### Kinds of packed records\n"
    )
    .expect("text");
    writeln!(text, "| kind | record | count | behind the head |\n|---|---|---|---|").expect("text");
    for kind in Kind::ALL {
        let (name, count, behind) = match kind {
            Kind::Parts => ("parts of a block", "of parts, 1 or more", "the parts"),
            Kind::BaseZero => {
                ("parts of a block whose other bytes become zero", "of parts", "the parts")
            }
            Kind::Whole => (
                "a whole block",
                "0; 1 if durability is enough for its file, in scattered logs",
                "the block",
            ),
            Kind::Revoke => ("revoke", "0", ""),
        };
        writeln!(text, "| {} | {name} | {count} | {behind} |", kind.number()).expect("text");
    }
    text
}
