//! The block cache: images of blocks, reads, and writes that bypass it.

pub(crate) mod block;
pub(crate) mod block_cache;
pub(crate) mod direct_write;
pub(crate) mod direct_writes;
pub(crate) mod image;
pub(crate) mod images;
pub(crate) mod in_memory;
pub(crate) mod mapped;
pub(crate) mod mapping;
pub(crate) mod read;
pub(crate) mod reader;
pub(crate) mod state;
