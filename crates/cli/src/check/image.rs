//! An unmounted volume: every structure with a checksum, and who uses which block.

use super::Findings;
use crate::daemon::mount_table;
use crate::disk::open_disk::claim;
use crate::error::CliError;
use crate::inspect::reader::Reader;
use crate::text::progress::Progress;
use disks::DiskOpenError;
use format::ext4::extent::ExtentNode;
use format::ext4::inode::flags;
use format::ext4::superblock::state;
use format::ext4::{RawInode, bitmap, checksum, feature, group_flags, htree, xattr};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use units::{GroupNumber, HomeBlock, InodeNumber};

/// Inodes 1 to 10 belong to the format; of these the root directory and the journal are as others
/// are.
const FIRST_ORDINARY: u32 = 11;
const RESIZE: u32 = 7;
/// Where the pointer to the resize inode's only block of its own stands.
const RESIZE_POINTER: u32 = 13;

pub fn check(
    path: &Path,
    progress: &Progress,
    findings: &mut Findings,
) -> Result<String, CliError> {
    // Whoever has it mounted changes it as we read.
    let _claim = match claim(path) {
        Ok(claim) => Some(claim),
        // Whoever may only read can look all the same.
        Err(DiskOpenError::Open { source, .. })
            if matches!(
                source.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            None
        }
        Err(
            error @ (DiskOpenError::Mounted { .. }
            | DiskOpenError::Busy { .. }
            | DiskOpenError::Locked { .. }
            | DiskOpenError::Attached { .. }),
        ) => {
            let remedy = match mount_table::mount_of(path) {
                Some(mount) => {
                    format!("Check it there: okeanos check {}.", mount.directory.display())
                }
                None => "If it is mounted, check where it is mounted: okeanos list.".into(),
            };
            return Err(CliError::from(error).with_remedy(remedy));
        }
        Err(error) => return Err(error.into()),
    };
    let reader = Reader::open(path)?;
    let superblock = &reader.superblock;
    if superblock.features.has(feature::RECOVER) {
        return Err(CliError::new(format!("{} was not unmounted", path.display()))
            .with_remedy(format!("Recover it first: okeanos recover {}.", path.display())));
    }
    if superblock.features.has(feature::BIGALLOC) {
        return Err(
            CliError::new("bigalloc is not supported").with_remedy("Check it with e2fsck -fn.")
        );
    }
    let bytes = superblock.blocks.checked_shl(superblock.block_size.shift());
    if bytes.is_none_or(|bytes| bytes > reader.length()) {
        return Err(reader.damaged("it is shorter than its volume"));
    }
    let used = vec![0; superblock.blocks.div_ceil(8) as usize];
    let mut check =
        ImageCheck { reader: &reader, used, shared: BTreeSet::new(), inodes: 0, findings };
    check.fixed_places();
    if superblock.state & state::ERROR != 0 {
        check.findings.note(super::MARKED);
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
    Ok(format!("{} inodes and the bitmaps of {groups} groups were read", check.inodes))
}

struct ImageCheck<'a> {
    reader: &'a Reader,
    /// A bit for each block of the volume.
    used: Vec<u8>,
    /// Attribute blocks, which several inodes may have.
    shared: BTreeSet<HomeBlock>,
    inodes: u64,
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

    /// What lies where the superblock and the descriptors say.
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
            let told = descriptor.free_inodes;
            self.findings.note(format!(
                "group {}: {free} inodes are free by the bitmap, {told} by the descriptor",
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
                // What was never used is all zeros.
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
        let layout = match self.reader.layout(number, inode) {
            Ok(layout) => layout,
            Err(error) => return self.findings.note(error),
        };
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

    fn attributes(&mut self, number: InodeNumber, at: HomeBlock) {
        if !self.shared.insert(at) {
            return;
        }
        self.claim(at, 1, format_args!("{number}, attributes"));
        let Ok(block) = self.reader.block(at) else { return };
        if let Err(error) = xattr::parse_block(&block) {
            self.findings.note(format!("{number}: attributes in {at}: {error}"));
        } else if let Some(seed) = self.reader.checksum_seed()
            && !xattr::block_checksum_is_right(seed, at, &block)
        {
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
        for (_, home) in blocks {
            let Ok(block) = self.reader.block(home) else { continue };
            // An index hides behind entries that leave its room no checksum of their own.
            let is_index = inode.flags & flags::INDEX != 0
                && (htree::IndexTable::of_node(&format, &block)
                    .is_ok_and(|table| table.checksum_is_right(&block))
                    || htree::IndexTable::of_root(&format, &block)
                        .is_ok_and(|(table, _)| table.checksum_is_right(&block)));
            if is_index {
                continue;
            }
            if let Some(Err(error)) = format.entries(&block).find(|entry| entry.is_err()) {
                self.findings.note(format!("{number}: {home}, byte {}: {}", error.at, error.why));
            }
            if !format.checksum_is_right(&block) {
                self.findings
                    .note(format!("{number}: the checksum of the directory's {home} is wrong"));
            }
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
            let told = descriptor.free_blocks;
            self.findings.note(format!(
                "{name}: {} blocks are free, {told} by the descriptor",
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
