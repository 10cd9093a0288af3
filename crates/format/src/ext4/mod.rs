//! The ext4 on-disk format (kernel: `Documentation/filesystems/ext4/`). Little-endian throughout.

pub mod acl;
pub mod bitmap;
pub mod checksum;
pub mod directory;
pub mod extent;
pub mod features;
pub mod group;
pub mod hash;
pub mod htree;
pub mod indirect;
pub mod inline;
pub mod inode;
pub mod mmp;
pub mod orphan;
pub mod superblock;
mod tables;
pub mod xattr;

pub use features::{Feature, FeatureWord, Features, feature};
pub use group::{GroupDescriptor, GroupError, group_flags};
pub use inode::{InodeError, InodeLayout, RawInode};
pub use superblock::{SUPERBLOCK_OFFSET, SuperblockError, VolumeSuperblock};
pub use tables::tables;
