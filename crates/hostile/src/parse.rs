//! Targets of one structure each: bytes to struct, and every method of the struct.

use format::ext4::acl::Acl;
use format::ext4::directory::DirectoryFormat;
use format::ext4::extent::ExtentNode;
use format::ext4::hash::{HashBytes, HashVersion, NameHasher};
use format::ext4::htree::IndexTable;
use format::ext4::mmp::MmpBlock;
use format::ext4::superblock::JournalDevice;
use format::ext4::{GroupDescriptor, InodeLayout, RawInode, VolumeSuperblock};
use format::ext4::{bitmap, inline, orphan, xattr};
use format::jbd2::{
    BlockHeader, CommitBlock, DescriptorBlock, ExternalJournal, JournalSuperblock, LogLayout,
    Packing, RevokeBlock, TagFormat, live_fast_commit,
};
use fuse_session::Request;
use fuse_session::abi::InHeader;
use std::hint::black_box;
use units::{BlockSize, FileBlock, GroupNumber, InodeNumber, LogBlock, TransactionId};

const BLOCK: usize = 1024;

/// The input as a block of 1 KiB.
fn block(bytes: &[u8]) -> Vec<u8> {
    let mut block = bytes.to_vec();
    block.resize(BLOCK, 0);
    block
}

pub fn superblock(bytes: &[u8]) {
    mmp(bytes);
    let mut bytes = block(bytes);
    for sealed in [false, true] {
        if sealed {
            crate::seal::superblock(&mut bytes);
        }
        let _ = JournalDevice::parse(&bytes);
        let Ok(parsed) = VolumeSuperblock::parse(&bytes) else { continue };
        black_box((parsed.features.refused(), parsed.features.read_only(), parsed.serialize()));
        let groups = parsed.groups();
        for group in [0, 1, groups / 2, groups.saturating_sub(1)].map(GroupNumber) {
            if group.get() < groups {
                black_box((parsed.group_start(group), parsed.blocks_in_group(group)));
                black_box((parsed.has_superblock(group), parsed.superblock_and_descriptors(group)));
            }
        }
        for index in [0, parsed.descriptor_blocks().saturating_sub(1)] {
            black_box(parsed.descriptor_block(index));
        }
        black_box((
            parsed.inodes_per_block(),
            parsed.inode_table_blocks(),
            parsed.descriptors_per_block(),
        ));
    }
}

/// Group descriptors: the first kibibyte is the superblock, if it is valid; descriptors follow.
pub fn group_descriptors(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_at_checked(BLOCK) else { return };
    let mut first = first.to_vec();
    crate::seal::superblock(&mut first);
    let Ok(superblock) = VolumeSuperblock::parse(&first) else { return };
    let size = usize::from(superblock.descriptor_size());
    for (group, raw) in (0..superblock.groups()).map(GroupNumber).zip(rest.chunks_exact(size)) {
        let mut raw = raw.to_vec();
        let descriptor = GroupDescriptor::parse(&raw);
        let _ = descriptor.check(&raw, group, &superblock);
        descriptor.serialize(&mut raw, group, &superblock);
        if descriptor.check(&raw, group, &superblock).is_ok() {
            let bits = vec![0xa5; superblock.block_size.bytes()];
            black_box(descriptor.block_bitmap_matches(&bits, &superblock));
            black_box(descriptor.inode_bitmap_matches(&bits, &superblock));
            black_box(bitmap::next_clear_run(&bits, 0..superblock.blocks_in_group(group)));
        }
    }
}

pub fn inode(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let size = [128u16, 256, 512, 1024][usize::from(choice) % 4];
    let mut raw = rest.to_vec();
    raw.resize(size.into(), 0);
    let number = InodeNumber(12);
    for seed in [None, Some(7)] {
        let layout = InodeLayout {
            inode_size: size,
            block_size: BlockSize::new(BLOCK as u32).expect("a power of two"),
            huge_file: choice & 4 != 0,
            large_dir: choice & 8 != 0,
            checksum_seed: seed,
        };
        crate::seal::inode(&mut raw, number, seed);
        if let Ok(parsed) = RawInode::parse(&raw, number, &layout) {
            let _ = xattr::parse_area(&parsed.xattr_area);
            inline_content(&parsed);
            let _ = ExtentNode::parse(&parsed.block).map(ask_extents);
            parsed.serialize(&mut raw, number, &layout);
        }
    }
}

/// Content within the inode, as that of a directory and of a file that leaves it.
fn inline_content(inode: &RawInode) {
    let Ok(mut content) = inline::content(inode) else { return };
    for seed in [None, Some(7)] {
        let format = DirectoryFormat { file_types: true, seed, inodes: 1000 };
        let Ok(block) = inline::directory_block(&format, InodeNumber(12), &content, BLOCK) else {
            continue;
        };
        for entry in format.entries(&block).skip(2) {
            let entry = entry.expect("what was checked is a chain");
            inline::retarget(&format, &mut content, entry.at, InodeNumber(13), 1);
            inline::erase(&mut content.clone(), entry.at, None);
        }
    }
    let mut changed = inode.clone();
    if inline::set_content(&mut changed, &content).is_ok() {
        assert_eq!(inline::content(&changed).as_ref(), Ok(&content), "what was put is found");
    }
    let _ = inline::leave(&mut changed, true);
}

/// An extent node: the root in an inode, or a block.
pub fn extents(bytes: &[u8]) {
    let mut root = bytes.to_vec();
    root.resize(60, 0);
    let _ = ExtentNode::parse(&root).map(ask_extents);
    let mut node = block(bytes);
    crate::seal::extent_node(&mut node, 7);
    let _ = ExtentNode::parse(&node).map(ask_extents);
    for index in 0..BLOCK as u32 / 4 {
        black_box(format::ext4::indirect::pointer(&node, index));
    }
}
fn ask_extents(node: ExtentNode<'_>) {
    let _ = node.verify_checksum(7);
    black_box((node.depth(), node.capacity(), node.entries()));
    for at in [0, 1, 1000, u32::MAX].map(FileBlock) {
        black_box(node.find(at).map(|index| node.entry(index)));
    }
}

/// The block of multiple mount protection.
fn mmp(bytes: &[u8]) {
    let mut block = block(bytes);
    block[..4].copy_from_slice(&[0x50, 0x4d, 0x4d, 0]);
    for seed in [None, Some(7)] {
        if let Some(seed) = seed {
            let sum = format::ext4::checksum::crc32c(seed, &block[..0x3fc]);
            block[0x3fc..0x400].copy_from_slice(&sum.to_le_bytes());
        }
        if let Ok(parsed) = MmpBlock::parse(&block, seed) {
            parsed.serialize(&mut block, seed);
            assert_eq!(MmpBlock::parse(&block, seed), Ok(parsed), "what was put is found");
        }
    }
}

/// Blocks of a directory: a leaf, the root of an index, a node of it; and a block of the orphan
/// file.
pub fn directory(bytes: &[u8]) {
    for seed in [None, Some(7)] {
        let mut block = block(bytes);
        let format = DirectoryFormat { file_types: true, seed, inodes: 1000 };
        black_box(format.entries(&block).count());
        let _ = (format.find(&block, b"name").is_ok(), format.dots(&block).is_ok());
        let mut full = block.clone();
        if let Ok(Some(slot)) = format.slot(&full, 4) {
            format.put(&mut full, slot, InodeNumber(12), 1, b"name");
            assert!(matches!(format.find(&full, b"name"), Ok(Some(_))), "what was put is found");
        }
        let table = IndexTable::of_root(&format, &block).map(|(table, _)| table);
        for mut table in table.into_iter().chain(IndexTable::of_node(&format, &block)) {
            black_box(table.checksum_is_right(&block));
            for hash in [0, 2, 0x8000_0000, u32::MAX - 1] {
                let index = table.find(&block, hash);
                black_box((table.hash(&block, index), table.block(&block, index)));
            }
            if !table.is_full() {
                table.insert(&mut block, 0, 4, FileBlock(3));
                table.set_checksum(&mut block);
                assert!(table.checksum_is_right(&block));
            }
        }
        let _ = orphan::check(&block, units::HomeBlock(9), seed);
        let hashes = (0..6).filter_map(HashVersion::new);
        for version in hashes {
            for bytes in [HashBytes::new(1), HashBytes::new(2)] {
                black_box(NameHasher { version, bytes, seed: [1, 2, 3, 4] }.hash(&block[..255]));
            }
        }
    }
}

pub fn xattrs(bytes: &[u8]) {
    if let Ok(attributes) = xattr::parse_area(bytes) {
        black_box(xattr::serialize_area(&attributes, bytes.len()));
    }
    let block = block(bytes);
    if let Ok(parsed) = xattr::parse_block(&block) {
        black_box(xattr::serialize_block(&parsed, BLOCK));
        for attribute in &parsed.attributes {
            black_box(xattr::entry_hash(attribute));
            let _ = Acl::from_disk(&attribute.value);
        }
    }
    if let Ok(acl) = Acl::from_disk(bytes) {
        black_box((acl.mode(), acl.to_call()));
        assert_eq!(Acl::from_disk(&acl.to_disk()).as_ref(), Ok(&acl));
    }
    let _ = Acl::from_call(bytes).map(|acl| acl.map(|acl| acl.to_disk()));
}

/// Descriptors in every format of tags, revokes, commits, superblocks.
pub fn log_blocks(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let size = BlockSize::new(BLOCK as u32).expect("a power of two");
    let mut block = block(rest);
    let _ = JournalSuperblock::parse(&block, size, 1024);
    crate::seal::journal_superblock(&mut block);
    if let Ok(superblock) = JournalSuperblock::parse(&block, size, 1024) {
        black_box((superblock.layout(), superblock.log_end(), superblock.fast_commit_start()));
        black_box((superblock.log_blocks(), superblock.shortest_unit(), superblock.packed_seed()));
        black_box((superblock.serialize(), superblock.next_transaction()));
    }
    let _ = ExternalJournal::parse(&[block.clone(), block.clone()].concat());
    black_box((BlockHeader::parse(&block), live_fast_commit(&block, TransactionId(5))));
    let tags = [TagFormat::Plain, TagFormat::ChecksumV2, TagFormat::ChecksumV3];
    for tags in tags {
        let wide = choice & 1 != 0;
        let multiwrite = choice & 2 != 0;
        let layout = LogLayout { wide, multiwrite, ..LogLayout::new(size, tags, [3; 16]) };
        black_box(layout.is_intact(&block));
        let mut packing = Packing::new(size);
        let parsed = DescriptorBlock::parse(&block, &layout, LogBlock(9));
        for tag in parsed.iter().flat_map(|parsed| &parsed.tags) {
            let place = packing.place(tag);
            assert!(place.offset + place.length <= BLOCK, "{place:?}");
        }
        let _ = RevokeBlock::parse(&block, &layout, LogBlock(9));
        crate::seal::commit_block(&mut block, &layout);
        black_box(CommitBlock::parse(&block, &layout));
    }
}

/// A FUSE request: the first byte chooses the transport, the others are the message.
pub fn fuse(bytes: &[u8]) {
    let Some((&choice, message)) = bytes.split_first() else { return };
    let mut message = message.to_vec();
    if choice & 1 != 0 && message.len() >= 4 {
        let length = message.len() as u32;
        message[..4].copy_from_slice(&length.to_ne_bytes());
    }
    let Ok(request) = Request::from_message(&message) else { return };
    black_box(request.wants_reply());
    let _ = request.operation().map(|operation| black_box(format!("{operation:?}").len()));
    let body = &message[size_of::<InHeader>()..];
    let fixed = body.len().min(128);
    if let Ok(parts) = Request::from_parts(request.header, &body[..fixed], &body[fixed..]) {
        let _ = parts.operation().map(|operation| black_box(format!("{operation:?}").len()));
    }
}
