//! An open volume.

use crate::{Caller, Inode, Result};
use device::{Disk, World};
use engine::Engine;
use format::ext4::{Feature, Superblock};
use std::cell::RefCell;
use std::rc::Rc;
use units::{BlockSize, GroupNumber, HomeBlock, InodeNumber, Timestamp};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    ReadOnly,
    ReadWrite,
}

/// How to mount.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    pub access: Access,
    pub atime: crate::Atime,
    /// Kept in the superblock as the last place of mounting.
    pub mount_point: String,
}

/// What an open volume stands on.
pub struct OpenParts {
    pub world: Rc<dyn World>,
    pub home: Rc<dyn Disk>,
    /// The external journal, where the volume has one.
    pub journal: Option<Rc<dyn Disk>>,
    pub options: VolumeOptions,
}

/// As `statfs(2)`, in blocks and inodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statfs {
    pub block_size: u32,
    pub blocks: u64,
    pub blocks_free: u64,
    /// Without those reserved for root.
    pub blocks_available: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    pub name_length: u32,
}

/// An open ext4 volume.
pub struct Volume {
    engine: Rc<Engine>,
    superblock: RefCell<Superblock>,
}

impl Volume {
    /// Reads, recovers if need be, cleans up orphans.
    pub async fn open(_parts: OpenParts) -> Result<Rc<Volume>> {
        todo!()
    }
    /// Everything home, journal empty, superblock clean. Nothing may be under way.
    pub async fn close(self: &Rc<Self>) -> Result<()> {
        todo!()
    }

    pub fn engine(&self) -> &Rc<Engine> {
        &self.engine
    }
    pub fn block_size(&self) -> BlockSize {
        self.engine.block_size()
    }
    pub fn blocks_per_group(&self) -> u32 {
        self.superblock.borrow().blocks_per_group
    }
    pub fn has(&self, feature: Feature) -> bool {
        self.superblock.borrow().features.has(feature)
    }
    /// Bytes of an inode in the table: 128 and more.
    pub fn inode_size(&self) -> u16 {
        self.superblock.borrow().inode_size
    }
    /// A copy of the superblock as it is now.
    pub fn superblock(&self) -> Superblock {
        self.superblock.borrow().clone()
    }
    pub fn now(&self) -> Timestamp {
        self.engine.world().wall_clock()
    }
    /// Where checksums of metadata begin; `None` without metadata_csum.
    pub fn checksum_seed(&self) -> Option<u32> {
        let superblock = self.superblock.borrow();
        superblock.features.has(format::ext4::feature::METADATA_CSUM).then_some(superblock.checksum_seed)
    }
    /// Where checksums of an inode's own blocks (extents, directories) begin; `None` without metadata_csum.
    pub fn inode_checksum_seed(&self, number: InodeNumber, generation: u32) -> Option<u32> {
        self.checksum_seed().map(|seed| format::ext4::checksum::inode_seed(seed, number, generation))
    }
    pub fn group_of_inode(&self, number: InodeNumber) -> GroupNumber {
        GroupNumber((number.get() - 1) / self.superblock.borrow().inodes_per_group)
    }
    /// Whether files may own these blocks: inside the volume and free of superblocks, descriptors, bitmaps,
    /// inode tables and the journal. An extent that points elsewhere is corruption.
    pub fn block_is_usable(&self, _start: HomeBlock, _count: u64) -> bool {
        todo!()
    }
    /// Whether the caller may take the blocks reserved for root.
    pub fn may_use_reserve(&self, caller: &Caller) -> bool {
        let superblock = self.superblock.borrow();
        caller.uid == 0
            || caller.uid == u32::from(superblock.reserved_uid)
            || superblock.reserved_gid != 0 && caller.gid == u32::from(superblock.reserved_gid)
    }
    pub async fn statfs(&self) -> Result<Statfs> {
        todo!()
    }
    /// Makes everything done before the call durable: `sync`, `syncfs`.
    pub async fn sync(self: &Rc<Self>) -> Result<()> {
        todo!()
    }
}
