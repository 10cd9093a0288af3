//! Writes the first inputs of every target from the golden images: `cargo run -p hostile --example write_corpus`.

use disks::Image;
use format::ext4::{GroupDescriptor, Superblock};
use hostile::golden;
use std::path::Path;
use units::{GroupNumber, HomeBlock};

fn main() {
    for name in ["ext4-1k", "attributes", "ext3", "ext4-no-checksums", "ext4-small-inodes", "htree"] {
        structures(name, &golden::load(name).0);
    }
    for base in 0..16u8 {
        for choice in [1, 13] {
            write("volume", &format!("whole-{base}-{choice}"), &[base, choice]);
            write("log", &format!("whole-{base}-{choice}"), &[base, choice]);
        }
    }
    for opcode in 1..55u32 {
        let mut message = vec![1];
        message.extend([100u32, opcode].map(u32::to_ne_bytes).concat());
        message.extend([0; 32]);
        message.extend([8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
        message.extend([0; 16]);
        message.extend(b"name\0other\0value");
        write("fuse", &format!("operation-{opcode}"), &message);
    }
    for name in ["dirty-wasteless-1k", "dirty-plain-kernel-data", "dirty-ext3-kernel", "revokes"] {
        log_blocks(name, &golden::load(name).0);
    }
}

fn structures(name: &str, image: &Image) {
    let superblock_bytes = read(image, 1024, 1024);
    let superblock = Superblock::parse(&superblock_bytes).unwrap();
    let shift = superblock.block_size.shift();
    let size = usize::from(superblock.descriptor_size());
    let first = read(image, superblock.descriptor_block(0).get() << shift, size);
    write("superblock", name, &superblock_bytes);
    write("group_descriptors", name, &[superblock_bytes.clone(), first.clone()].concat());
    assert_eq!(superblock.group_of_block(HomeBlock(1)).0, GroupNumber(0));
    let table = GroupDescriptor::parse(&first).inode_table.get() << shift;
    for number in [2u64, 8, 12, 13, 14, 16, 20] {
        let at = table + (number - 1) * u64::from(superblock.inode_size);
        let raw = read(image, at, superblock.inode_size.into());
        let choice = if superblock.inode_size == 128 { 0 } else { 1 };
        write("inode", &format!("{name}-{number}"), &[vec![choice], raw.clone()].concat());
        write("extents", &format!("{name}-{number}"), &raw[40..100]);
    }
    for block in 0..superblock.blocks.min(image.size() >> shift) {
        let bytes = read(image, block << shift, 1024.min(1 << shift));
        let dots = bytes[6..9] == [1, 2, b'.'] || bytes[6..9] == [1, 0, b'.'];
        if dots && block % 4 == 0 || name == "htree" && block % 97 == 0 {
            write("directory", &format!("{name}-{block}"), &bytes);
        } else if bytes[..4] == [0, 0, 2, 0xea] {
            write("xattrs", &format!("{name}-{block}"), &bytes);
        } else if bytes[..2] == [0x0a, 0xf3] {
            write("extents", &format!("{name}-block-{block}"), &bytes);
        }
    }
}

fn log_blocks(name: &str, image: &Image) {
    let mut kinds = [0; 8];
    for number in 0..image.size() / 1024 {
        let bytes = read(image, number * 1024, 1024);
        let kind = usize::from(bytes[7]);
        if bytes[..7] == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0] && kind < 8 && kinds[kind] < 2 {
            kinds[kind] += 1;
            write("log_blocks", &format!("{name}-{number}"), &[vec![3], bytes].concat());
        }
    }
}

fn read(image: &Image, at: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    image.read(at, &mut bytes);
    bytes
}

/// Without the zeros at the end, which every target puts there again.
fn write(target: &str, name: &str, bytes: &[u8]) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join(name), &bytes[..length.max(2).min(bytes.len())]).unwrap();
}
