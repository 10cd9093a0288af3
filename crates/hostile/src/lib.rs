//! Hostile bytes for everything that reads. For any bytes the result is success or an error, never
//! a panic, an endless loop or memory without bound.
//!
//! The targets are plain functions. `fuzz/` gives them to cargo-fuzz; the tests of this crate run
//! the committed corpus and a fixed number of mutations on stable Rust.
#![forbid(unsafe_code)]

mod block_volume;
pub mod golden;
mod log;
mod mutate;
mod nbd_client;
mod packed;
mod parse;
mod patches;
mod scattered;
mod seal;
mod volume;

pub use log::journal_runs;
pub use mutate::mutate;
pub use patches::random_input;
pub use volume::{lie_in_bitmaps, visit_golden};

/// A reader, and the function that calls it.
pub struct Target {
    /// Name, also of its folder in `fuzz/corpus` and of its cargo-fuzz target.
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Whether the input is a list of patches to a golden image, not bytes of a disk.
    pub takes_patches: bool,
    /// Number of mutations in a short run.
    pub rounds: u64,
}

const fn bytes(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run, takes_patches: false, rounds: 20_000 }
}
const fn patches(name: &'static str, run: fn(&[u8]), rounds: u64) -> Target {
    Target { name, run, takes_patches: true, rounds }
}

pub const TARGETS: &[Target] = &[
    bytes("superblock", parse::superblock),
    bytes("group_descriptors", parse::group_descriptors),
    bytes("inode", parse::inode),
    bytes("extents", parse::extents),
    bytes("directory", parse::directory),
    bytes("xattrs", parse::xattrs),
    bytes("log_blocks", parse::log_blocks),
    bytes("fuse", parse::fuse),
    bytes("packed", packed::run),
    bytes("scattered", scattered::run),
    bytes("block_volume", block_volume::run),
    Target { rounds: 1_000, ..bytes("nbd", nbd_client::run) },
    patches("log", log::run, 3_000),
    patches("volume", volume::run, 600),
];

pub fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).expect("a target of this name")
}
