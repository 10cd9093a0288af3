//! Which block of the volume holds which block of a file: extent trees and indirect blocks behind one face.
//!
//! Whoever calls holds the inode's lock (write, where a handle is asked for).

use crate::{Error, Inode, Volume};
use engine::{Credits, Handle};
use std::rc::Rc;
use units::{FileBlock, HomeBlock};

/// Where `count` consecutive blocks of a file, from `at` on, are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    pub at: FileBlock,
    /// Blocks, at least 1.
    pub count: u32,
    pub state: MappingState,
}

/// The home is that of the mapping's first block; the others follow it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MappingState {
    Hole,
    Written(HomeBlock),
    /// Allocated, reads as zeros.
    Unwritten(HomeBlock),
}

impl Mapping {
    /// The home of the first block, unless it is a hole.
    pub fn home(&self) -> Option<HomeBlock> {
        match self.state {
            MappingState::Hole => None,
            MappingState::Written(home) | MappingState::Unwritten(home) => Some(home),
        }
    }
}

/// What [`Volume::map_or_allocate`] makes of a hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocate {
    /// File data that the caller writes in this very handle, with base zero.
    Written,
    /// Space that reads as zeros until it is written (extents only).
    Unwritten,
    /// A directory's block, which the caller creates in this very handle.
    Directory,
}

/// What [`Volume::map_or_allocate`] found or made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocated {
    pub mapping: Mapping,
    /// Whether the mapping was a hole before: what its blocks hold on the disk is worthless.
    pub fresh: bool,
}

/// How far a step of [`Volume::remove_blocks`] came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    Done,
    /// The transaction is full: store the inode, stop the handle, start another and call again.
    More,
}

/// The last mappings looked up, so that a hot append or overwrite walks no tree. Part of every [`Inode`].
#[derive(Default)]
pub struct MappingCache {}

impl Volume {
    /// What holds block `at`, and how many of the `max` blocks from there on continue it.
    pub async fn map(&self, inode: &Inode, at: FileBlock, max: u32) -> Result<Mapping, Error> {
        let _ = (inode, at, max);
        todo!()
    }

    /// As [`Volume::map`], but a hole is filled, by one contiguous run of at most `count` blocks. The caller stores the inode.
    /// The handle needs [`Volume::map_credits`].
    pub async fn map_or_allocate(
        self: &Rc<Self>,
        handle: &mut Handle,
        inode: &Inode,
        at: FileBlock,
        count: u32,
        how: Allocate,
    ) -> Result<Allocated, Error> {
        let _ = (handle, inode, at, count, how);
        todo!()
    }

    /// Credits of one [`Volume::map_or_allocate`] or one change of state.
    pub fn map_credits(&self, inode: &Inode) -> Credits {
        let _ = inode;
        todo!()
    }

    /// Frees the blocks `from .. to` of the file and what tree blocks become empty, as far as the handle's
    /// transaction allows. Consistent after every step. The caller stores the inode.
    pub async fn remove_blocks(
        self: &Rc<Self>,
        handle: &mut Handle,
        inode: &Inode,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<Progress, Error> {
        let _ = (handle, inode, from, to);
        todo!()
    }
}
