//! Check of an unmounted volume: every structure with a checksum, the owner of each block, and the
//! names that lead to each inode.

use super::Findings;
use crate::daemon::mount_table;
use crate::daemon::mounted::not_opened;
use crate::disk::open_disk::try_claim;
use crate::error::CliError;
use crate::health::MARKED;
use crate::inspect::reader::{Layout, Reader};
use crate::text::progress::Progress;
use crate::text::shell::word;
use disks::{Claim, DiskOpenError};
use ext4::TreeReport;
use format::ext4::directory::{DirectoryError, RawEntry};
use format::ext4::extent::ExtentNode;
use format::ext4::inode::flags;
use format::ext4::superblock::state;
use format::ext4::{
    RawInode, VolumeSuperblock, bitmap, checksum, feature, group_flags, htree, xattr,
};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use units::{GroupNumber, HomeBlock, InodeNumber};

/// First ordinary inode. Inodes 1 to 10 belong to the format; of these the root directory and the
/// journal are checked alike.
const FIRST_ORDINARY: u32 = 11;
const RESIZE: u32 = 7;
const ROOT: InodeNumber = InodeNumber(2);
/// Shift of the unit in which inodes count space: 512 bytes.
const SECTOR_SHIFT: u32 = 9;
/// Index of the pointer to the resize inode's only block of its own.
const RESIZE_POINTER: u32 = 13;

/// Claims the volume during the check: another program that has it mounted changes it.
pub fn claim_for_check(path: &Path) -> Result<Option<Claim>, CliError> {
    match try_claim(path) {
        Ok(claim) => Ok(Some(claim)),
        // A user who may only read can check all the same.
        Err(DiskOpenError::Open { source, .. })
            if matches!(
                source.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            Ok(None)
        }
        Err(
            error @ (DiskOpenError::Mounted { .. }
            | DiskOpenError::Busy { .. }
            | DiskOpenError::Locked { .. }
            | DiskOpenError::Attached { .. }),
        ) => {
            let remedy = match mount_table::mount_of(path) {
                Some(mount) => {
                    format!("Check it there: okeanos check {}.", word(&mount.directory))
                }
                None => return Err(not_opened(error)),
            };
            Err(not_opened(error).with_remedy(remedy))
        }
        Err(error) => Err(not_opened(error)),
    }
}

/// Whether the volume's journal has to be replayed first, since until then home blocks are
/// outdated; or lies on another device that was not named.
pub fn wants_journal(path: &Path, journal_device: Option<&Path>) -> bool {
    Reader::open(path).is_ok_and(|Reader { superblock, .. }| {
        superblock.features.has(feature::RECOVER) || lacks_journal(&superblock, journal_device)
    })
}

fn lacks_journal(superblock: &VolumeSuperblock, journal_device: Option<&Path>) -> bool {
    let has_journal = superblock.features.has(feature::HAS_JOURNAL);
    has_journal && superblock.journal_inode == 0 && journal_device.is_none()
}

/// Refuses an image or device that ends before its volume.
fn refuse_cut(path: &Path, reader: &Reader) -> Result<(), CliError> {
    let superblock = &reader.superblock;
    let bytes = superblock.blocks.checked_shl(superblock.block_size.shift());
    if bytes.is_none_or(|bytes| bytes > reader.length()) {
        let (name, bytes) = (path.display(), bytes.unwrap_or(u64::MAX));
        return Err(CliError::new(format!(
            "{name} is shorter than its volume: {} bytes of {bytes}",
            reader.length()
        ))
        .with_remedy(format!(
            "Was it cut, get the rest back; else give it its length, and check it then: truncate \
             -s {bytes} {}, e2fsck -f (a device: grow it).",
            word(path)
        )));
    }
    Ok(())
}

/// Checks a volume that the caller has claimed. Returns what was checked.
pub fn check(
    path: &Path,
    journal_device: Option<&Path>,
    progress: &Progress,
    findings: &mut Findings,
) -> Result<String, CliError> {
    let reader = Reader::open(path)?;
    let superblock = &reader.superblock;
    if superblock.features.has(feature::RECOVER) {
        let journal = journal_device
            .map_or(String::new(), |device| format!("--journal-device {} ", word(device)));
        return Err(CliError::new(format!("{} was not unmounted", path.display()))
            .with_remedy(format!("Recover it first: okeanos recover {journal}{}.", word(path))));
    }
    if superblock.features.has(feature::BIGALLOC) {
        return Err(
            CliError::new("bigalloc is not supported").with_remedy("Check it with e2fsck -fn.")
        );
    }
    refuse_cut(path, &reader)?;
    let has_journal = superblock.features.has(feature::HAS_JOURNAL);
    if lacks_journal(superblock, journal_device) {
        let name = path.display();
        return Err(CliError::new(format!("the journal of {name} is on another device"))
            .with_remedy(format!(
                "Name it: okeanos check --journal-device DEVICE {}.",
                word(path)
            )));
    }
    let tree = super::tree::walk(path, journal_device, findings)?;
    let used = vec![0; superblock.blocks.div_ceil(8) as usize];
    let mut check = ImageCheck {
        reader: &reader,
        used,
        blocks_left: superblock.blocks.saturating_mul(2),
        shared: BTreeSet::new(),
        inodes: 0,
        tree: tree.as_ref(),
        findings,
    };
    check.fixed_places();
    if superblock.state & state::ERROR != 0 {
        check.findings.note(MARKED);
    } else if superblock.state & state::VALID == 0 {
        check.findings.note(match has_journal {
            true => "it is marked for a check: its state is not clean, though nothing is to replay",
            false => "it was not unmounted, and has no journal that could be replayed",
        });
    }
    if superblock.last_orphan != 0 || superblock.features.has(feature::ORPHAN_PRESENT) {
        check.findings.note("inodes were being removed or cut when it was last in use");
    }
    let groups = superblock.groups();
    for group in (0..groups).map(GroupNumber) {
        progress.show(format_args!("inodes of group {} of {groups}", group.get() + 1));
        check.inodes_of(group);
    }
    for group in (0..groups).map(GroupNumber) {
        progress.show(format_args!("bitmaps of group {} of {groups}", group.get() + 1));
        check.blocks_of(group);
    }
    let names = match &tree {
        Some(tree) => format!("the names of {} directories", tree.directories),
        None => "no names".into(),
    };
    let journal = if has_journal { ", the journal" } else { "" };
    let inodes = check.inodes;
    Ok(format!("{inodes} inodes, {names}{journal} and the bitmaps of {groups} groups were read"))
}

struct ImageCheck<'a> {
    reader: &'a Reader,
    /// Bitmap of the volume's used blocks.
    used: Vec<u8>,
    /// Bound on the blocks of all inodes together: in a damaged volume each may have the same ones.
    blocks_left: u64,
    /// Attribute blocks, which several inodes may have.
    shared: BTreeSet<HomeBlock>,
    inodes: u64,
    /// Result of walking the names, if the volume could be opened.
    tree: Option<&'a TreeReport>,
    findings: &'a mut Findings,
}

impl ImageCheck<'_> {
    fn claim(&mut self, at: HomeBlock, count: u64, whose: impl std::fmt::Display) {
        let end = at.get().checked_add(count);
        if end.is_none_or(|end| end > self.reader.superblock.blocks) {
            self.findings.note(format!(
                "{whose}: {at} and {count} blocks from there do not lie in the volume"
            ));
            return;
        }
        let mut twice = 0;
        for block in at.get()..at.get() + count {
            let (byte, bit) = ((block / 8) as usize, 1 << (block % 8));
            twice += u64::from(self.used[byte] & bit != 0);
            self.used[byte] |= bit;
        }
        if twice > 0 {
            self.findings.note(format!(
                "{whose}: {twice} of {count} blocks from {at} belong to something else, too"
            ));
        }
    }

    /// Checks what lies where the superblock and the descriptors say.
    fn fixed_places(&mut self) {
        let superblock = &self.reader.superblock;
        if superblock.first_data_block == 0 && superblock.block_size.bytes() == 1024 {
            self.findings.note("superblock: it lies before the first data block");
        }
        for group in (0..superblock.groups()).map(GroupNumber) {
            let name = format!("group {}", group.get());
            let start = superblock.group_start(group);
            self.claim(
                start,
                superblock.superblock_and_descriptors(group).into(),
                format_args!("{name}, its start"),
            );
            let (descriptor, raw) = match self.reader.descriptor(group) {
                Ok(found) => found,
                Err(error) => {
                    self.findings.note(error);
                    continue;
                }
            };
            if let Err(error) = descriptor.check(&raw, group, superblock) {
                self.findings.note(format!("{name}: {error}"));
                continue;
            }
            self.claim(descriptor.block_bitmap, 1, format_args!("{name}, block bitmap"));
            self.claim(descriptor.inode_bitmap, 1, format_args!("{name}, inode bitmap"));
            let table = superblock.inode_table_blocks().into();
            self.claim(descriptor.inode_table, table, format_args!("{name}, inode table"));
        }
        if superblock.features.has(feature::MMP) {
            self.claim(HomeBlock(superblock.mmp_block), 1, "block of mmp");
        }
    }

    fn inodes_of(&mut self, group: GroupNumber) {
        let superblock = &self.reader.superblock;
        let Ok((descriptor, raw)) = self.reader.descriptor(group) else { return };
        if descriptor.check(&raw, group, superblock).is_err() {
            return;
        }
        let has_flags = superblock.features.has(feature::METADATA_CSUM)
            || superblock.features.has(feature::GDT_CSUM);
        let count = superblock.inodes_per_group;
        let (mut bits, mut looked_at) = (vec![0; superblock.block_size.bytes()], count);
        if has_flags {
            looked_at -= descriptor.unused_inodes.min(count);
        }
        if has_flags && descriptor.is(group_flags::INODE_UNINIT) {
            looked_at = 0;
        } else {
            match self.reader.block(descriptor.inode_bitmap) {
                Ok(found) => bits = found,
                Err(error) => return self.findings.note(error),
            }
            if !descriptor.inode_bitmap_matches(&bits, superblock) {
                self.findings
                    .note(format!("group {}: the inode bitmap's checksum is wrong", group.get()));
            }
        }
        let free = bitmap::count_clear(&bits, count);
        if free != descriptor.free_inodes {
            let recorded = descriptor.free_inodes;
            self.findings.note(format!(
                "group {}: {free} inodes are free by the bitmap, {recorded} by the descriptor",
                group.get()
            ));
        }
        for index in 0..looked_at {
            let number = InodeNumber(group.get() * count + index + 1);
            let is_marked = bitmap::is_set(&bits, index);
            match self.reader.inode(number) {
                Ok(inode) if is_marked => self.inode(number, &inode),
                Ok(inode)
                    if inode.links > 0
                        && inode.deletion_time == 0
                        && number.get() >= FIRST_ORDINARY =>
                {
                    self.findings.note(format!("{number} is in use and marked free"));
                }
                Ok(_) => {}
                // An unused inode is all zeros.
                Err(error) if is_marked && number.get() >= FIRST_ORDINARY => {
                    self.findings.note(error)
                }
                Err(_) => {}
            }
        }
    }

    fn inode(&mut self, number: InodeNumber, inode: &RawInode) {
        self.inodes += 1;
        if number.get() == RESIZE {
            // The rest are descriptors that are reserved for growing.
            if let Some(block) = format::ext4::indirect::pointer(&inode.block, RESIZE_POINTER) {
                self.claim(block, 1, "inode for resizing");
            }
            return;
        }
        self.names_of(number, inode);
        self.contradictions_of(number, inode);
        if self.blocks_left == 0 {
            return;
        }
        let mut layout = Layout::default();
        let laid_out = self.reader.lay_out(number, inode, &mut layout);
        if !units::fault!("check-blocks-unbounded") {
            self.blocks_left = self.blocks_left.saturating_sub(layout.blocks);
        }
        if self.blocks_left == 0 {
            return self.findings.note(
                "inodes have more than twice the blocks of the volume: of the rest no blocks were \
                 looked at",
            );
        }
        if let Err(error) = laid_out {
            return self.findings.note(error);
        }
        self.space_of(number, inode, &layout);
        for extent in &layout.extents {
            self.claim(extent.home, extent.count.into(), number);
        }
        let seed = self.reader.checksum_seed();
        for node in &layout.nodes {
            self.claim(*node, 1, format_args!("{number}, mapping"));
            if let Some(seed) = seed.filter(|_| inode.flags & flags::EXTENTS != 0) {
                let seed = checksum::inode_seed(seed, number, inode.generation);
                let block = self.reader.block(*node);
                let right = block.is_ok_and(|block| {
                    ExtentNode::parse(&block).and_then(|node| node.verify_checksum(seed)).is_ok()
                });
                if !right {
                    self.findings
                        .note(format!("{number}: the checksum of its extents in {node} is wrong"));
                }
            }
        }
        if inode.xattr_block.get() != 0 {
            self.attributes(number, inode.xattr_block);
        }
        if inode.mode & 0xf000 == 0x4000 && inode.flags & flags::INLINE_DATA == 0 {
            self.directory(number, inode);
        }
    }

    /// Compares the inode's links with the names that lead to it.
    fn names_of(&mut self, number: InodeNumber, inode: &RawInode) {
        let superblock = &self.reader.superblock;
        let Some(tree) = self.tree else { return };
        let own = [superblock.journal_inode, superblock.orphan_file_inode];
        let quotas = [
            superblock.user_quota_inode,
            superblock.group_quota_inode,
            superblock.project_quota_inode,
        ];
        let is_internal = number.get() < superblock.first_inode && number != ROOT
            || own.iter().chain(&quotas).any(|own| *own == number.get());
        // Values of attributes have references instead of names.
        if is_internal || inode.flags & flags::EA_INODE != 0 {
            return;
        }
        let is_directory = inode.mode & 0xf000 == 0x4000;
        // A link count of one: the directory has more subdirectories than links can count.
        let uncounted =
            is_directory && inode.links == 1 && superblock.features.has(feature::DIR_NLINK);
        match tree.links.get(&number).copied().unwrap_or(0) {
            0 if inode.links == 0 && superblock.last_orphan == 0 => {
                self.findings.note(format!("{number} is marked as in use and has no links"));
            }
            0 if inode.links == 0 => {}
            0 => self.findings.note(format!("{number} is in use, and no name leads to it")),
            found if uncounted || found == u32::from(inode.links) => {}
            found => {
                let stored = inode.links;
                self.findings.note(format!("{number}: {found} links lead to it, it says {stored}"));
            }
        }
    }

    /// Compares the space and the size in the inode with its blocks.
    fn space_of(&mut self, number: InodeNumber, inode: &RawInode, layout: &Layout) {
        let superblock = &self.reader.superblock;
        let of_extents: u64 = layout.extents.iter().map(|extent| u64::from(extent.count)).sum();
        let attributes = u64::from(inode.xattr_block.get() != 0);
        let blocks = of_extents + layout.nodes.len() as u64 + attributes;
        let (shift, stored) = (superblock.block_size.shift(), inode.sectors);
        let sectors = blocks << (shift - SECTOR_SHIFT);
        // An inode is charged for its attributes' values in other inodes, too.
        let is_right = match superblock.features.has(feature::EA_INODE) {
            true => sectors <= stored,
            false => sectors == stored,
        };
        if !is_right {
            self.findings
                .note(format!("{number}: its blocks take {sectors} sectors, it says {stored}"));
        }
        let written = layout.extents.iter().filter(|extent| !extent.unwritten);
        let end = written.map(|extent| u64::from(extent.at.get()) + u64::from(extent.count)).max();
        let behind = end.filter(|end| *end > inode.size.div_ceil(1 << shift));
        let is_file = inode.mode & 0xf000 == 0x8000;
        // Hashes of a file's content lie beyond its end.
        let has_hashes = superblock.features.has(feature::VERITY);
        if let Some(end) = behind.filter(|_| is_file && !has_hashes) {
            let size = inode.size;
            self.findings.note(format!("{number}: it has {size} bytes, and {end} blocks of data"));
        }
    }

    /// Checks what no inode in use may have.
    fn contradictions_of(&mut self, number: InodeNumber, inode: &RawInode) {
        let features = &self.reader.superblock.features;
        if inode.links > 0 && inode.deletion_time != 0 {
            self.findings.note(format!("{number} has links, and a time of deletion"));
        }
        if inode.flags & flags::INLINE_DATA != 0 && !features.has(feature::INLINE_DATA) {
            self.findings
                .note(format!("{number} holds its content, which the volume does not allow"));
        }
        if inode.xattr_block.get() != 0 && !features.has(feature::EXT_ATTR) {
            self.findings.note(format!("{number} has attributes, which the volume does not allow"));
        }
    }

    fn attributes(&mut self, number: InodeNumber, at: HomeBlock) {
        if !self.shared.insert(at) {
            return;
        }
        self.claim(at, 1, format_args!("{number}, attributes"));
        let Ok(block) = self.reader.block(at) else { return };
        if let Err(error) = xattr::parse_block(&block) {
            self.findings.note(format!("{number}: attributes in {at}: {error}"));
            return;
        }
        let is_wrong = |seed| !xattr::block_checksum_is_right(seed, at, &block);
        if self.reader.checksum_seed().is_some_and(is_wrong) {
            self.findings
                .note(format!("{number}: the checksum of its attributes in {at} is wrong"));
        }
    }

    fn directory(&mut self, number: InodeNumber, inode: &RawInode) {
        let format = self.reader.directory_format(number, inode);
        let blocks = match self.reader.directory_blocks(number, inode) {
            Ok(blocks) => blocks,
            Err(error) => return self.findings.note(error),
        };
        let mut names = 0;
        for (_, home) in blocks {
            let Ok(block) = self.reader.block(home) else { continue };
            // An index hides behind entries that leave no space for a checksum of their own.
            let is_index = inode.flags & flags::INDEX != 0
                && (htree::IndexTable::of_node(&format, &block)
                    .is_ok_and(|table| table.checksum_is_right(&block))
                    || htree::IndexTable::of_root(&format, &block)
                        .is_ok_and(|(table, _)| table.checksum_is_right(&block)));
            if is_index {
                continue;
            }
            let is_name = |entry: &RawEntry| entry.inode.is_some() && !is_dots(entry.name);
            for entry in format.entries(&block) {
                match entry {
                    Ok(entry) => names += u64::from(is_name(&entry)),
                    Err(DirectoryError { at, why }) => {
                        self.findings.note(format!("{number}: {home}, byte {at}: {why}"));
                    }
                }
            }
            if !format.checksum_is_right(&block) {
                self.findings
                    .note(format!("{number}: the checksum of the directory's {home} is wrong"));
            }
        }
        let indexed = self.tree.and_then(|tree| tree.indexed.get(&number));
        if let Some(listed) = indexed.filter(|listed| **listed != names) {
            self.findings.note(format!(
                "{number}: its blocks hold {names} names, its index leads to {listed}"
            ));
        }
    }

    fn blocks_of(&mut self, group: GroupNumber) {
        let superblock = &self.reader.superblock;
        let Ok((descriptor, raw)) = self.reader.descriptor(group) else { return };
        if descriptor.check(&raw, group, superblock).is_err() {
            return;
        }
        let name = format!("group {}", group.get());
        let has_flags = superblock.features.has(feature::METADATA_CSUM)
            || superblock.features.has(feature::GDT_CSUM);
        let (start, count) =
            (superblock.group_start(group).get(), superblock.blocks_in_group(group));
        let is_used = |index: u32| {
            let block = start + u64::from(index);
            self.used[(block / 8) as usize] & (1 << (block % 8)) != 0
        };
        let used = (0..count).filter(|index| is_used(*index)).count() as u32;
        if used + descriptor.free_blocks != count {
            let recorded = descriptor.free_blocks;
            self.findings.note(format!(
                "{name}: {} blocks are free, {recorded} by the descriptor",
                count - used
            ));
        }
        if has_flags && descriptor.is(group_flags::BLOCK_UNINIT) {
            return;
        }
        let bits = match self.reader.block(descriptor.block_bitmap) {
            Ok(bits) => bits,
            Err(error) => return self.findings.note(error),
        };
        let lost =
            (0..count).filter(|index| bitmap::is_set(&bits, *index) && !is_used(*index)).count();
        let taken =
            (0..count).filter(|index| !bitmap::is_set(&bits, *index) && is_used(*index)).count();
        if !descriptor.block_bitmap_matches(&bits, superblock) {
            self.findings.note(format!("{name}: the block bitmap's checksum is wrong"));
        }
        if lost > 0 {
            self.findings
                .note(format!("{name}: {lost} blocks are marked as in use, and nothing uses them"));
        }
        if taken > 0 {
            self.findings.note(format!("{name}: {taken} blocks are in use and marked free"));
        }
    }
}

fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}
