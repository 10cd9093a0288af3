//! The ext4 on-disk format (kernel: `Documentation/filesystems/ext4/`). Little-endian throughout.

pub mod acl;
pub mod checksum;
pub mod directory;
pub mod extent;
pub mod features;
pub mod hash;
pub mod htree;
pub mod indirect;
pub mod inode;
pub mod superblock;
pub mod xattr;

pub use features::{Feature, FeatureWord, Features, feature};
pub use inode::Inode;
pub use superblock::{Superblock, SuperblockError};
