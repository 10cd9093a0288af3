//! The ext4 on-disk format (kernel: `Documentation/filesystems/ext4/`). Little-endian throughout.

pub mod inode;

pub use inode::Inode;
