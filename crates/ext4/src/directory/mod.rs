//! One directory's names: lookup, insertion, removal, listing. Linear, or indexed by hash (htree).
//!
//! The caller holds the directory's lock: for writing where a handle is passed, else for reading.
//! Nothing read from the disk is trusted: checksums are verified, every walk is bounded by the
//! directory's size, and a contradiction ends in [`Error::Corrupt`].

mod inline;
mod insert;
mod path;
mod read;

pub(crate) use insert::{NameSlot, NewName};
pub(crate) use read::{Listing, file_type};

use crate::mapping::MappingState;
use crate::{Caller, Error, Inode, Result, Volume};
use engine::{Block, Credits, Handle};
use format::ext4::directory::{self, DirectoryError, DirectoryFormat, NamedEntry, entry_type};
use format::ext4::hash::{HashBytes, HashVersion, NameHasher};
use format::ext4::htree::{BLOCKS_MAX, IndexTable, LEVELS_MAX, LEVELS_MAX_LARGE};
use format::ext4::inode::flags;
use format::ext4::{Features, feature};
use smallvec::SmallVec;
use std::rc::Rc;
use units::Refusal;
use units::{BlockRange, BlockSize, FileBlock, InodeNumber};

/// Size limit of directories: 2 GiB (without large_dir).
const SIZE_MAX: u64 = 1 << 31;

/// A directory, for the length of one operation.
pub(crate) struct Directory<'a> {
    volume: &'a Rc<Volume>,
    inode: &'a Inode,
    format: DirectoryFormat,
    settings: Settings,
}

/// Directory settings of the superblock.
#[derive(Clone, Copy)]
struct Settings {
    features: Features,
    block_size: BlockSize,
    /// Number of blocks in the volume.
    blocks: u64,
    hash_bytes: HashBytes,
    hash_seed: [u32; 4],
    default_hash_version: u8,
}

/// An existing name.
pub(crate) struct Found {
    pub inode: InodeNumber,
    place: NameHolder,
}

enum NameHolder {
    Block(SeenBlock, NamedEntry),
    /// Stored in the directory's inode.
    Inline,
}

/// A leaf as it was when it was searched.
#[derive(Clone)]
struct SeenBlock {
    block: Block,
    version: u64,
}

impl SeenBlock {
    fn of(block: &Block) -> SeenBlock {
        SeenBlock { block: block.clone(), version: block.version() }
    }
    fn is_unchanged(&self) -> bool {
        self.block.version() == self.version || units::fault!("changed-leaf-believed")
    }
}

/// Result of a search for a name.
enum Search {
    Found(Found),
    /// The position at which the name would be put, if the blocks have space.
    Missing(Option<NameSlot>),
}

/// Kind of a directory's block, which decides where its checksum is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Leaf,
    Root,
    Node,
}

impl<'a> Directory<'a> {
    /// Opens the directory of an inode. ENOTDIR.
    pub fn of(volume: &'a Rc<Volume>, inode: &'a Inode) -> Result<Directory<'a>> {
        if !inode.is_directory() {
            return Err(Refusal::NotDirectory.into());
        }
        let superblock = volume.superblock.borrow();
        let settings = Settings {
            features: superblock.features,
            block_size: superblock.block_size,
            blocks: superblock.blocks,
            hash_bytes: HashBytes::new(superblock.flags),
            hash_seed: superblock.hash_seed,
            default_hash_version: superblock.default_hash_version,
        };
        let generation = inode.fields.borrow().generation;
        let format = DirectoryFormat {
            file_types: superblock.features.has(feature::FILETYPE),
            seed: volume.inode_checksum_seed(inode.number, generation),
            inodes: superblock.inodes,
        };
        Ok(Directory { volume, inode, format, settings })
    }

    /// The entry of `name` (not `.` or `..`).
    pub async fn find(&self, name: &[u8]) -> Result<Option<Found>> {
        Ok(match self.search(name).await? {
            Search::Found(found) => Some(found),
            Search::Missing(_) => None,
        })
    }

    /// Returns `name` as one to be added; `None` if there is an entry of that name.
    pub async fn new_name<'n>(&self, name: &'n [u8]) -> Result<Option<NewName<'n>>> {
        Ok(match self.search(name).await? {
            Search::Found(_) => None,
            Search::Missing(space) => Some(NewName { name, space }),
        })
    }

    async fn search(&self, name: &[u8]) -> Result<Search> {
        if self.is_inline() {
            return Ok(self.find_inline(name)?.map_or(Search::Missing(None), Search::Found));
        }
        if units::fault!("unlink-walks") && self.is_indexed() {
            let mut path = self.probe_by(|_| 0).await?;
            loop {
                let (_, leaf) = self.leaf(&path).await?;
                match self.search_in(&leaf, name)? {
                    Search::Missing(_) if self.advance(&mut path).await?.is_some() => {}
                    found => return Ok(found),
                }
            }
        }
        if self.is_indexed() {
            return self.search_indexed(name).await;
        }
        let mut space = None;
        for at in 0..self.blocks()? {
            let block = self.block(FileBlock(at), Kind::Leaf).await?;
            match self.search_in(&block, name)? {
                Search::Missing(slot) => space = space.or(slot),
                found => return Ok(found),
            }
            read::yield_behind(at).await;
        }
        Ok(Search::Missing(space))
    }

    async fn search_indexed(&self, name: &[u8]) -> Result<Search> {
        let mut path = self.probe(name).await?;
        let mut space = None;
        loop {
            let (_, leaf) = self.leaf(&path).await?;
            match self.search_in(&leaf, name)? {
                // A name is put into the first leaf of its hash.
                Search::Missing(slot) if path.leaves == 1 => space = slot,
                Search::Missing(_) => {}
                found => return Ok(found),
            }
            // Names of one hash may continue in the next leaf.
            match self.advance(&mut path).await? {
                Some(lowest) if lowest & !1 == path.hash => {}
                _ => return Ok(Search::Missing(space)),
            }
        }
    }

    fn search_in(&self, block: &Block, name: &[u8]) -> Result<Search> {
        let searched = self.format.search(&block.bytes(), name);
        let seen = SeenBlock::of(block);
        Ok(match searched.map_err(|error| self.damaged(block, error))? {
            directory::Search::Found(entry) => {
                Search::Found(Found { inode: entry.inode, place: NameHolder::Block(seen, entry) })
            }
            directory::Search::Missing(slot) => {
                Search::Missing(slot.map(|slot| NameSlot { seen, slot }))
            }
        })
    }

    /// The inode that `..` refers to.
    pub async fn parent(&self) -> Result<InodeNumber> {
        let Some(first) = self.first_block().await? else {
            return Ok(format::ext4::inline::parent(&self.inline_block()?.1));
        };
        let bytes = first.bytes();
        let [_, dotdot] = self.format.dots(&bytes).map_err(|error| self.damaged(&first, error))?;
        dotdot.inode.ok_or_else(|| self.corrupt("it has no parent"))
    }

    /// The inode that `.` refers to; `None` where the inode holds the names without a `.`.
    pub async fn own_entry(&self) -> Result<Option<InodeNumber>> {
        let Some(first) = self.first_block().await? else { return Ok(None) };
        let bytes = first.bytes();
        let [dot, _] = self.format.dots(&bytes).map_err(|error| self.damaged(&first, error))?;
        Ok(dot.inode)
    }

    /// The block with `.` and `..`, for [`Directory::set_parent`]; `None` where the inode holds the
    /// names.
    pub async fn first_block(&self) -> Result<Option<Block>> {
        if self.is_inline() {
            return Ok(None);
        }
        let kind = if self.is_indexed() { Kind::Root } else { Kind::Leaf };
        self.block(FileBlock(0), kind).await.map(Some)
    }

    /// Makes `..` refer to another inode. Credits: 1, the directory's first block. The caller
    /// stores the directory's inode.
    pub fn set_parent(
        &self,
        handle: &mut Handle,
        first: Option<&Block>,
        parent: InodeNumber,
    ) -> Result<()> {
        let Some(first) = first else { return self.set_parent_inline(parent) };
        let bytes = first.bytes();
        let [_, dotdot] = self.format.dots(&bytes).map_err(|error| self.damaged(first, error))?;
        let at = dotdot.at;
        let kind = if self.is_indexed() { Kind::Root } else { Kind::Leaf };
        drop(bytes);
        self.change(handle, first, kind, &directory::retarget_ranges(at), |bytes| {
            directory::retarget(&self.format, bytes, at, parent, entry_type::DIRECTORY)
        })
    }

    /// Removes the name. Credits: 1, its block. The caller stores the directory's inode.
    pub fn remove(&self, handle: &mut Handle, found: &Found, name: &[u8]) -> Result<()> {
        let NameHolder::Block(seen, entry) = &found.place else { return self.remove_inline(name) };
        let NamedEntry { at, record_length, previous, .. } = self.locate(seen, *entry, name)?;
        self.inode.listing.name_went();
        if units::fault!("listing-forgets-empty") {
            self.inode.listing.name_came();
        }
        let ranges = [directory::erase_range(at, previous)];
        self.change(handle, &seen.block, Kind::Leaf, &ranges, |bytes| {
            directory::erase(bytes, at, record_length, previous)
        })
    }

    /// Makes the name refer to another inode. Credits: 1, its block. The caller stores the
    /// directory's inode.
    pub fn replace(
        &self,
        handle: &mut Handle,
        found: &Found,
        name: &[u8],
        inode: InodeNumber,
        file_type: u8,
    ) -> Result<()> {
        let NameHolder::Block(seen, entry) = &found.place else {
            return self.replace_inline(name, inode, file_type);
        };
        let NamedEntry { at, .. } = self.locate(seen, *entry, name)?;
        self.change(handle, &seen.block, Kind::Leaf, &directory::retarget_ranges(at), |bytes| {
            directory::retarget(&self.format, bytes, at, inode, file_type)
        })
    }

    /// The entry of `name`, which was found as `entry`. Others may have been added to its block
    /// since; it still exists.
    fn locate(&self, seen: &SeenBlock, entry: NamedEntry, name: &[u8]) -> Result<NamedEntry> {
        let block = &seen.block;
        if seen.is_unchanged() {
            return Ok(entry);
        }
        let found = self.format.find(&block.bytes(), name);
        let found = found.map_err(|error| self.damaged(block, error))?;
        found.ok_or_else(|| self.corrupt("a name has vanished from its block"))
    }

    /// Makes the first block of a new directory. Credits: [`Directory::append_credits`].
    pub async fn initialize(
        &self,
        handle: &mut Handle,
        caller: &Caller<'_>,
        parent: InodeNumber,
    ) -> Result<()> {
        assert_eq!(self.inode.fields.borrow().size, 0);
        let (_, block) = self.append(handle, caller).await?;
        let dots = [(self.inode.number, &b"."[..]), (parent, b"..")];
        self.rewrite(handle, &block, Kind::Leaf, self.whole(), |bytes| {
            self.format.fill(
                bytes,
                dots.into_iter().map(|(inode, name)| (inode, entry_type::DIRECTORY, name)),
            )
        })
    }

    /// Appends a block of zeros; stores size and mapping.
    async fn append(&self, handle: &mut Handle, caller: &Caller<'_>) -> Result<(FileBlock, Block)> {
        let size = self.inode.fields.borrow().size;
        let next = size + self.settings.block_size.bytes() as u64;
        if next >= self.size_max() {
            return Err(Refusal::NoSpace.into());
        }
        let at = FileBlock((size >> self.settings.block_size.shift()) as u32);
        let how = crate::Allocate::Directory;
        // In a box, as few names need it: each request that may add one would be as long.
        let allocated = self.volume.map_or_allocate(handle, self.inode, caller, at, 1, how);
        let allocated = Box::pin(allocated).await?;
        let home =
            allocated.mapping.home().ok_or_else(|| self.corrupt("a new block has no home"))?;
        let block = handle.create(home);
        self.inode.fields.borrow_mut().size = next;
        self.volume.store(handle, self.inode).await?;
        self.inode.last_data_change.set(handle.transaction());
        Ok((at, block))
    }

    /// [`Directory::append`]: the block, its mapping with the inode.
    pub fn append_credits(&self) -> Credits {
        Credits(1) + self.volume.credits_map(self.inode)
    }

    /// Whether names are found by hash.
    fn is_indexed(&self) -> bool {
        self.settings.features.has(feature::DIR_INDEX)
            && self.inode.has_flag(flags::INDEX)
            && !self.is_inline()
    }

    /// The hash for a new index.
    fn default_hasher(&self) -> Option<NameHasher> {
        let version = HashVersion::new(self.settings.default_hash_version)?;
        self.settings.features.has(feature::DIR_INDEX).then(|| self.hasher(version))
    }
    fn hasher(&self, version: HashVersion) -> NameHasher {
        NameHasher { version, bytes: self.settings.hash_bytes, seed: self.settings.hash_seed }
    }

    fn is_large(&self) -> bool {
        self.settings.features.has(feature::LARGEDIR)
    }
    fn size_max(&self) -> u64 {
        if self.is_large() { BLOCKS_MAX << self.settings.block_size.shift() } else { SIZE_MAX }
    }
    fn levels_max(&self) -> u8 {
        if self.is_large() { LEVELS_MAX_LARGE } else { LEVELS_MAX }
    }

    /// Blocks of the directory, at least 1 (an inline one is read as a block).
    fn blocks(&self) -> Result<u32> {
        if self.is_inline() {
            return Ok(1);
        }
        let size = self.inode.fields.borrow().size;
        let block_size = self.settings.block_size.bytes() as u64;
        let blocks = size / block_size;
        if blocks == 0
            || size % block_size != 0
            || size >= self.size_max()
            || blocks > self.settings.blocks
        {
            return Err(self.corrupt(format!("a directory cannot have {size} bytes")));
        }
        Ok(blocks as u32)
    }

    /// Whether the block looks like a node of the index. To others it is unused; but a leaf without
    /// names looks like that only where it has no checksum.
    async fn is_node(&self, at: FileBlock) -> Result<bool> {
        let block = self.block_as_it_is(at).await?;
        Ok(IndexTable::of_node(&self.format, &block.bytes()).is_ok())
    }

    /// The block, not yet verified.
    async fn block_as_it_is(&self, at: FileBlock) -> Result<Block> {
        if at.get() >= self.blocks()? {
            return Err(self.corrupt(format!("its index leads to {at}, behind its end")));
        }
        let MappingState::Written(home) = self.volume.map(self.inode, at, 1).await?.state else {
            return Err(self.corrupt(format!("{at} is a hole")));
        };
        Ok(self.volume.engine().metadata(home).await?)
    }

    async fn block(&self, at: FileBlock, kind: Kind) -> Result<Block> {
        let block = self.block_as_it_is(at).await?;
        let home = block.number();
        if !block.is_verified() {
            let bytes = block.bytes();
            let right = match kind {
                Kind::Leaf => self.format.checksum_is_right(&bytes),
                Kind::Root | Kind::Node => self.table(&block, kind)?.checksum_is_right(&bytes),
            };
            if !right {
                return Err(self.corrupt(format!("{at} ({home}) has a wrong checksum")));
            }
            block.set_verified();
        }
        Ok(block)
    }

    fn table(&self, block: &Block, kind: Kind) -> Result<IndexTable> {
        let bytes = block.bytes();
        let table = match kind {
            Kind::Root => IndexTable::of_root(&self.format, &bytes).map(|(table, _)| table),
            _ => IndexTable::of_node(&self.format, &bytes),
        };
        table.map_err(|error| self.damaged(block, error))
    }

    /// Changes the given bytes of a block, and its checksum.
    #[track_caller]
    fn change(
        &self,
        handle: &mut Handle,
        block: &Block,
        kind: Kind,
        ranges: &[BlockRange],
        change: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        if kind != Kind::Leaf {
            handle.change_ranges(block, ranges, change);
            return self.store_checksum(handle, block, kind);
        }
        let checksum = self.format.checksum_range(self.settings.block_size.bytes());
        let all: SmallVec<[BlockRange; 4]> = ranges.iter().copied().chain(checksum).collect();
        handle.change_ranges(block, &all, |bytes| self.format.change(bytes, ranges, change));
        Ok(())
    }

    /// Rewrites a part of a block, and its checksum.
    #[track_caller]
    fn rewrite(
        &self,
        handle: &mut Handle,
        block: &Block,
        kind: Kind,
        range: BlockRange,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        handle.change_within(block, range, change);
        self.store_checksum(handle, block, kind)
    }

    fn store_checksum(&self, handle: &mut Handle, block: &Block, kind: Kind) -> Result<()> {
        if kind != Kind::Leaf {
            let table = self.table(block, kind)?;
            handle.change_within(block, table.range(), |bytes| table.set_checksum(bytes));
        } else if let Some(range) = self.format.checksum_range(self.settings.block_size.bytes()) {
            handle.change(block, range, |bytes| self.format.set_checksum(bytes));
        }
        Ok(())
    }

    fn whole(&self) -> BlockRange {
        self.settings.block_size.whole()
    }
    fn damaged(&self, block: &Block, error: DirectoryError) -> Error {
        self.corrupt(format!("directory {}: {error}", block.number()))
    }
    fn corrupt(&self, why: impl Into<String>) -> Error {
        self.volume.note_damage(Error::corrupt_inode(self.inode.number, why))
    }
}
