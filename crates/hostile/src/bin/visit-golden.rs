//! Visits the golden images that are named, in every mode and read-only, and reads all that is in
//! them. The caller limits its memory and time (`tests/all/bounds.rs`).
#![forbid(unsafe_code)]

fn main() {
    std::env::args().skip(1).for_each(|name| hostile::visit_golden(&name));
}
