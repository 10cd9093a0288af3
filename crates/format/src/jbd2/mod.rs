//! The JBD2 on-disk format, big-endian throughout, with our extension for multiwrite blocks.
//!
//! Source: kernel `Documentation/filesystems/ext4/journal.rst`, `include/linux/jbd2.h`; behaviour of e2fsprogs'
//! `recovery.c`. Extension: `docs/ON_DISK.md`, section "Journal".

mod checksum;
mod error;
mod superblock;

pub use checksum::Seed;
pub use error::FormatError;
pub use superblock::{Compatible, Incompatible, JournalSuperblock, SuperblockVersion, TagFormat};
