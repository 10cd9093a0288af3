//! Files and directories over journaled blocks: an ext4 volume.
#![forbid(unsafe_code)]

mod allocate;
mod caller;
mod credits;
mod directory;
mod durable_only;
mod error;
mod file;
mod groups;
mod inode;
mod inode_table;
mod mapping;
mod namespace;
mod orphan;
mod tree_check;
mod volume;
mod xattr;

pub use allocate::{AllocationRequest, Purpose, Run};
pub use caller::{Caller, SecurityLabel};
pub use durable_only::DurableOnly;
pub use error::Error;
pub use file::{
    Attributes, Content, FileRange, KernelPages, KillPrivileges, PageAccess, Piece, RangeMode,
    SeekWhat, SetAttributes, SetTime, SyncWhat, WriteData, WriteFlags, WriteOrigin, Written,
};
pub use format::ext4::inode::flags;
pub use inode::Inode;
pub use inode_table::{Atime, NewInode};
pub use mapping::{Allocate, Allocated, Mapping, MappingCache, MappingState, RemovalProgress};
pub use namespace::{DirectoryEntry, FileType, RenameMode, Stamped};
pub use orphan::OrphanReport;
pub use tree_check::{TreeFindings, TreeReport};
pub use volume::{
    Access, BlockOwner, FLUSH_ZONE_NAME, FlushZoneResult, FoundFlushZone, LOGS_NAME, LiveOptions,
    OnError, OpenParts, OpenReport, Statfs, Volume, VolumeOptions, check_unused, find_flush_zones,
    make_journal_flush_zone, read_superblock, recover, replay_preview, was_closed,
};
pub use xattr::{Existence, SetXattr};

pub type Result<T> = std::result::Result<T, Error>;
