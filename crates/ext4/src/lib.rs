//! Files and directories over journaled blocks: an ext4 volume.
#![forbid(unsafe_code)]

mod error;
mod inode;
mod volume;

pub use error::Error;
pub use inode::Inode;
pub use volume::Volume;
