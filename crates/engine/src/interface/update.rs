//! Parts of a change of blocks.

use device::Buffer;
use journal::BlockKind;
use std::rc::Rc;
use units::{BlockRange, HomeBlock, Owner};

/// An upper bound of the metadata blocks that a handle may change: what it reserves in the log. A
/// caller that states a number states the sum that led to it beside it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Credits(pub u32);

impl std::ops::Add for Credits {
    type Output = Credits;
    fn add(self, other: Credits) -> Credits {
        Credits(self.0 + other.0)
    }
}
impl std::ops::Mul<u32> for Credits {
    type Output = Credits;
    fn mul(self, count: u32) -> Credits {
        Credits(self.0 * count)
    }
}

/// Content of the bytes outside an update's range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// The content of the block's home (or newer versions in cache and log).
    Home,
    /// Zeros: the block was allocated, or turned from unwritten to written, by this very change.
    /// What the disk held before must never show.
    Zero,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    Metadata,
    Data,
}

impl Contents {
    /// Returns the kind under which the block is written home.
    pub(crate) fn at_home(self) -> BlockKind {
        match self {
            Contents::Metadata => BlockKind::HomeMetadata,
            Contents::Data => BlockKind::HomeData,
        }
    }
}

/// A write of file data within one block.
#[derive(Clone, Copy, Debug)]
pub struct FileUpdate<'a> {
    /// Owner of the block: [`crate::Engine::sync_owner`] syncs those of one.
    pub owner: Owner,
    pub home: HomeBlock,
    pub range: BlockRange,
    /// `range.len()` bytes.
    pub bytes: &'a [u8],
    pub base: Base,
    /// Length in bytes of the whole write request that this is a part of: what the write threshold
    /// looks at.
    pub request: u64,
    /// Whether the request continues a long row of requests of this transaction (for adaptive
    /// journaling).
    pub sequential: bool,
    /// Whether the file had these bytes already, and no change in flight makes them reachable: the
    /// update is one of its content alone.
    pub in_place: bool,
    /// Durability is enough for the file ([`crate::EngineOptions::durable_only`]): logged, whatever
    /// the mode, and home only if the log or memory is full, or at the end.
    pub durable_only: bool,
}

/// A write of whole blocks of file data, one beside the other.
pub struct FileRun<'a> {
    pub owner: Owner,
    pub home: HomeBlock,
    /// Content of one or more whole blocks.
    pub bytes: &'a [u8],
    /// Memory of just these bytes that may be kept until they are on the disk. Without it they are
    /// copied.
    pub memory: Option<&'a Rc<Buffer>>,
    /// Bytes of the request, see [`FileUpdate::request`].
    pub request: u64,
    /// Whether it belongs to a long sequential stream, see [`FileUpdate::sequential`].
    pub sequential: bool,
    /// Whether the data lies in place, see [`FileUpdate::in_place`].
    pub in_place: bool,
}
