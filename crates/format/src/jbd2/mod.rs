//! The JBD2 on-disk format, big-endian throughout, with our extension for multiwrite blocks.
//!
//! A transaction in the log is a descriptor block, the blocks of its tags, more of both, revoke
//! blocks, and a commit block. All their headers hold one sequence number. Logged blocks carry no
//! header: tags describe them.
//!
//! Source: kernel `Documentation/filesystems/ext4/journal.rst`, `include/linux/jbd2.h`; behaviour
//! of e2fsprogs' `recovery.c`. Extension and tables: `docs/ON_DISK.md`, section "Journal" (printed
//! by [`tables`]).

mod checksum;
mod commit;
mod descriptor;
mod error;
mod external;
mod fast_commit;
mod header;
mod layout;
mod packing;
mod revoke;
mod superblock;
mod tables;
mod tag;

pub use crate::seed::Seed;
pub use checksum::ancient_checksum;
pub use commit::CommitBlock;
pub use descriptor::DescriptorBlock;
pub use error::JournalFormatError;
pub use external::ExternalJournal;
pub use fast_commit::live_fast_commit;
pub use header::{BlockHeader, BlockType, escape, unescape};
pub use layout::{LogLayout, TagFormat};
pub use packing::{Packing, TagBytes};
pub use revoke::RevokeBlock;
pub use superblock::{Compatible, Incompatible, JournalSuperblock, SuperblockVersion};
pub use tables::tables;
pub use tag::{BlockTag, Fragment};

/// The first four bytes of every journal block but logged ones.
pub const MAGIC: u32 = 0xc03b_3998;
