//! Files and directories over journaled blocks: an ext4 volume.
#![forbid(unsafe_code)]

mod caller;
mod error;
mod file;
mod inode;
mod mapping;
mod volume;

pub use caller::Caller;
pub use error::Error;
pub use file::{
    Attributes, Content, Piece, RangeMode, SeekWhat, SetAttributes, SetTime, WriteFlags, Written,
};
pub use inode::Inode;
pub use mapping::{Allocate, Allocated, Mapping, MappingCache, MappingState, Progress};
pub use volume::Volume;
