//! Reader of a volume's structures, which may be damaged: everything is bounds-checked and bounded.

use crate::disk::content::no_volume;
use crate::error::CliError;
use crate::look::{open_to_look, refuse_no_disk};
use format::ext4::directory::DirectoryFormat;
use format::ext4::extent::{Extent, ExtentEntry, ExtentNode};
use format::ext4::inode::{InodeLayout, flags};
use format::ext4::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use format::ext4::{GroupDescriptor, RawInode, VolumeSuperblock, checksum, feature, indirect};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use units::{FileBlock, GroupNumber, HomeBlock, InodeNumber};

pub struct Reader {
    path: PathBuf,
    file: File,
    pub superblock: VolumeSuperblock,
}

/// Location of an inode's content.
#[derive(Default)]
pub struct Layout {
    /// Extents in order of the file, none over another; holes are left out.
    pub extents: Vec<Extent>,
    /// Blocks of the extent tree or of pointers.
    pub nodes: BTreeSet<HomeBlock>,
    /// Blocks of both: at most those of the volume.
    pub blocks: u64,
}

/// Maximum number of blocks read of a directory.
const DIRECTORY_BLOCKS_MAX: u32 = 1 << 20;

impl Reader {
    pub fn open(path: &Path) -> Result<Reader, CliError> {
        let file = open_to_look(path).map_err(|error| CliError::system(path.display(), error))?;
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        refuse_no_disk(path)?;
        file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).map_err(|_| {
            CliError::new(format!("{} is too small to hold an ext4 volume", path.display()))
        })?;
        let superblock =
            VolumeSuperblock::parse(&bytes).map_err(|error| no_volume(path, &error))?;
        Ok(Reader { path: path.to_owned(), file, superblock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Returns the bytes of the image or device.
    pub fn length(&self) -> u64 {
        (&self.file).seek(SeekFrom::End(0)).unwrap_or(0)
    }
    pub fn block(&self, at: HomeBlock) -> Result<Vec<u8>, CliError> {
        if at.get() >= self.superblock.blocks {
            let blocks = self.superblock.blocks;
            return Err(self.damaged(format!("{at} lies outside the volume of {blocks} blocks")));
        }
        let mut bytes = vec![0; self.superblock.block_size.bytes()];
        let place = at.get() << self.superblock.block_size.shift();
        self.file.read_exact_at(&mut bytes, place).map_err(|error| {
            CliError::system(format!("{at} of {}", self.path.display()), error).with_remedy(
                "If the image is shorter than its volume, it was truncated: fetch it again.",
            )
        })?;
        Ok(bytes)
    }

    pub fn descriptor(&self, group: GroupNumber) -> Result<(GroupDescriptor, Vec<u8>), CliError> {
        let per_block = self.superblock.descriptors_per_block();
        let block = self.block(self.superblock.descriptor_block(group.get() / per_block))?;
        let size = usize::from(self.superblock.descriptor_size());
        let raw = block[(group.get() % per_block) as usize * size..][..size].to_vec();
        Ok((GroupDescriptor::parse(&raw), raw))
    }

    pub fn inode(&self, number: InodeNumber) -> Result<RawInode, CliError> {
        if number.get() == 0 || number.get() > self.superblock.inodes {
            let inodes = self.superblock.inodes;
            return Err(CliError::new(format!(
                "{number} does not exist: the volume has inodes 1 to {inodes}"
            )));
        }
        let (group, index) = self.superblock.group_of_inode(number);
        let (descriptor, _) = self.descriptor(group)?;
        let features = &self.superblock.features;
        let used = self.superblock.inodes_per_group.saturating_sub(descriptor.unused_inodes);
        if (features.has(feature::METADATA_CSUM) || features.has(feature::GDT_CSUM))
            && index >= used
        {
            // An unused inode's place in the table may hold anything.
            return Err(never_used(number));
        }
        let per_block = self.superblock.inodes_per_block();
        let place = descriptor.inode_table.get().saturating_add(u64::from(index / per_block));
        let block = self.block(HomeBlock(place))?;
        let layout = InodeLayout {
            inode_size: self.superblock.inode_size,
            block_size: self.superblock.block_size,
            huge_file: self.superblock.features.has(feature::HUGE_FILE),
            large_dir: self.superblock.features.has(feature::LARGEDIR),
            checksum_seed: self.checksum_seed(),
        };
        let size = usize::from(layout.inode_size);
        let raw = &block[(index % per_block) as usize * size..][..size];
        if raw.iter().all(|byte| *byte == 0) {
            return Err(never_used(number));
        }
        RawInode::parse(raw, number, &layout)
            .map_err(|error| self.damaged(format!("{number}: {error}")))
    }

    pub fn checksum_seed(&self) -> Option<u32> {
        let features = &self.superblock.features;
        features.has(feature::METADATA_CSUM).then_some(self.superblock.checksum_seed)
    }

    /// Returns the location of an inode's content. Empty for inodes whose block field is no map.
    pub fn layout(&self, number: InodeNumber, inode: &RawInode) -> Result<Layout, CliError> {
        let mut layout = Layout::default();
        self.lay_out(number, inode, &mut layout)?;
        Ok(layout)
    }

    /// Adds the location of an inode's content to an empty layout. What was read before an error
    /// was found stays in it.
    pub fn lay_out(
        &self,
        number: InodeNumber,
        inode: &RawInode,
        layout: &mut Layout,
    ) -> Result<(), CliError> {
        let kind = inode.mode & 0xf000;
        let is_fast_symlink =
            kind == 0xa000 && inode.size < 60 && inode.flags & flags::EXTENTS == 0;
        if inode.flags & flags::INLINE_DATA != 0 {
            return Ok(());
        }
        if !matches!(kind, 0x8000 | 0x4000 | 0xa000) || is_fast_symlink {
            return Ok(());
        }
        if inode.flags & flags::EXTENTS != 0 {
            self.extent_node(number, &inode.block, None, layout)?;
        } else {
            let shift = self.superblock.block_size.shift();
            for index in 0..indirect::DIRECT + 3 {
                let level = index.saturating_sub(indirect::DIRECT - 1);
                let first = match level {
                    0 => u64::from(index),
                    _ => first_indirect(level, shift),
                };
                if let Some(home) = indirect::pointer(&inode.block, index) {
                    self.pointers(home, level, first, layout)?;
                }
            }
        }
        Ok(())
    }

    /// Counts blocks of one file, which cannot have more than the volume.
    fn count(&self, layout: &mut Layout, blocks: u32) -> Result<(), CliError> {
        layout.blocks += u64::from(blocks);
        match layout.blocks > self.superblock.blocks {
            true => Err(self.damaged("one file has more blocks than the volume")),
            false => Ok(()),
        }
    }

    fn extent_node(
        &self,
        number: InodeNumber,
        bytes: &[u8],
        depth: Option<u16>,
        layout: &mut Layout,
    ) -> Result<(), CliError> {
        let damaged = |why: String| self.damaged(format!("extent tree of {number}: {why}"));
        let node = ExtentNode::parse(bytes).map_err(|error| damaged(error.to_string()))?;
        if depth.is_some_and(|depth| node.depth() != depth) {
            return Err(damaged("a node is not as deep as its parent says".into()));
        }
        for entry in node.entries() {
            match entry {
                ExtentEntry::Extent(extent) => {
                    // A node checks its own entries, and knows no other node.
                    if layout.extents.last().is_some_and(|it| end(it) > extent.at.get().into()) {
                        let at = extent.at;
                        return Err(damaged(format!("{at} is in it twice, or not in order")));
                    }
                    self.count(layout, extent.count)?;
                    layout.extents.push(extent);
                }
                ExtentEntry::Index(index) => {
                    // Each node once: a tree with a cycle would never end.
                    if !layout.nodes.insert(index.child) {
                        return Err(damaged(format!("{} is in it twice", index.child)));
                    }
                    self.count(layout, 1)?;
                    let block = self.block(index.child)?;
                    self.extent_node(number, &block, Some(node.depth() - 1), layout)?;
                }
            }
        }
        Ok(())
    }

    /// Adds the blocks below a pointer: itself at level 0, otherwise those to which the block of
    /// pointers leads.
    fn pointers(
        &self,
        home: HomeBlock,
        level: u32,
        first: u64,
        layout: &mut Layout,
    ) -> Result<(), CliError> {
        self.count(layout, 1)?;
        if level == 0 {
            return match u32::try_from(first) {
                Ok(at) => {
                    append(&mut layout.extents, FileBlock(at), home);
                    Ok(())
                }
                Err(_) => {
                    Err(self
                        .damaged(format!("{home} belongs to file block {first}, which cannot be")))
                }
            };
        }
        if !layout.nodes.insert(home) {
            return Err(
                self.damaged(format!("{home} is twice among the indirect blocks of one file"))
            );
        }
        let block = self.block(home)?;
        let shift = self.superblock.block_size.shift();
        for index in 0..1 << (shift - 2) {
            if let Some(child) = indirect::pointer(&block, index) {
                let step = 1u64 << ((shift - 2) * (level - 1));
                self.pointers(child, level - 1, first + u64::from(index) * step, layout)?;
            }
        }
        Ok(())
    }

    /// Returns the blocks of a directory, in order.
    pub fn directory_blocks(
        &self,
        number: InodeNumber,
        inode: &RawInode,
    ) -> Result<Vec<(FileBlock, HomeBlock)>, CliError> {
        if inode.mode & 0xf000 != 0x4000 {
            return Err(CliError::new(format!("{number} is no directory")));
        }
        let (mut blocks, mut homes) = (Vec::new(), BTreeSet::new());
        let size = inode.size.div_ceil(self.superblock.block_size.bytes() as u64);
        for extent in self.layout(number, inode)?.extents {
            let wanted = (0..extent.count)
                .map(|index| (extent.at.get() + index, extent.home.plus(index.into())));
            let wanted =
                wanted.take_while(|(at, _)| u64::from(*at) < size && *at < DIRECTORY_BLOCKS_MAX);
            for (at, home) in wanted {
                // Else its names would take memory without end.
                if !homes.insert(home) {
                    return Err(self.damaged(format!("{home} is twice in {number}")));
                }
                blocks.push((FileBlock(at), home));
            }
        }
        Ok(blocks)
    }

    pub fn directory_format(&self, number: InodeNumber, inode: &RawInode) -> DirectoryFormat {
        DirectoryFormat {
            file_types: self.superblock.features.has(feature::FILETYPE),
            seed: self
                .checksum_seed()
                .map(|seed| checksum::inode_seed(seed, number, inode.generation)),
            inodes: self.superblock.inodes,
        }
    }

    /// Returns the inode of a number or a path. Symbolic links are not followed.
    pub fn find(&self, what: impl AsRef<OsStr>) -> Result<InodeNumber, CliError> {
        const ROOT: InodeNumber = InodeNumber(2);
        let what = what.as_ref();
        if let Some(number) = what.to_str().and_then(|text| text.parse().ok()) {
            return Ok(InodeNumber(number));
        }
        if !what.as_bytes().starts_with(b"/") {
            return Err(CliError::new(format!("{what:?} is neither an inode number nor a path"))
                .with_remedy("Write paths from the volume's root: /mail/queue."));
        }
        let mut number = ROOT;
        let names = what.as_bytes().split(|byte| *byte == b'/');
        for name in names.filter(|name| !name.is_empty()) {
            number = self.entry(number, name)?.ok_or_else(|| {
                CliError::new(format!(
                    "{} holds no {}: there is no {:?}",
                    self.path.display(),
                    Path::new(what).display(),
                    OsStr::from_bytes(name)
                ))
            })?;
        }
        Ok(number)
    }

    fn entry(&self, directory: InodeNumber, name: &[u8]) -> Result<Option<InodeNumber>, CliError> {
        let inode = self.inode(directory)?;
        let format = self.directory_format(directory, &inode);
        for (_, home) in self.directory_blocks(directory, &inode)? {
            let block = self.block(home)?;
            // Blocks of the index look like one empty entry; a damaged block hides its own entries
            // only.
            let found = format.entries(&block).flatten().find(|entry| entry.name == name);
            if let Some(number) = found.and_then(|entry| entry.inode) {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    pub fn damaged(&self, why: impl std::fmt::Display) -> CliError {
        CliError::new(format!("{}: {why}", self.path.display())).with_remedy("Run e2fsck on it.")
    }
}

/// Returns the first file block that the tree with `level` levels of pointers maps.
fn first_indirect(level: u32, shift: u32) -> u64 {
    let pointers = 1u64 << (shift - 2);
    u64::from(indirect::DIRECT) + (1..level).map(|below| pointers.pow(below)).sum::<u64>()
}

/// Returns the file block behind an extent.
fn end(extent: &Extent) -> u64 {
    u64::from(extent.at.get()) + u64::from(extent.count)
}

/// Joins a block to the extent before it where it continues it.
fn append(extents: &mut Vec<Extent>, at: FileBlock, home: HomeBlock) {
    match extents.last_mut() {
        Some(last)
            if last.at.get().checked_add(last.count) == Some(at.get())
                && last.home.get().checked_add(last.count.into()) == Some(home.get()) =>
        {
            last.count += 1;
        }
        _ => extents.push(Extent { at, count: 1, home, unwritten: false }),
    }
}

fn never_used(number: InodeNumber) -> CliError {
    CliError::new(format!("{number} was never used: there is nothing to report"))
}
