//! Bitmaps show blocks and inodes in use as free, under a volume whose cache holds them. The result
//! is an error and a mark, never a panic, never two files with one content. Checksums and counts
//! are right, so only the content of memory contradicts them.

use crate::image::{open as open_volume, with_engine};
use crate::volume::image::{EXT3, EXT4, EXT4_1K, Kind, TestImage};
use device::World;
use disks::MemoryDisk;
use engine::{DataMode, EngineOptions};
use ext4::{Caller, Error, Inode, Result, SetXattr, SyncWhat, Volume, WriteFlags};
use format::ext4::superblock::state;
use format::ext4::{GroupDescriptor, VolumeSuperblock, bitmap};
use std::rc::Rc;
use units::{FileBlock, HomeBlock, InodeNumber};

pub const MODES: [DataMode; 5] = [
    DataMode::Wasteless,
    DataMode::Ordered,
    DataMode::Journal,
    DataMode::Selective,
    DataMode::Writeback,
];
const FILES: usize = 6;
const FILE_BYTES: usize = 12_000;
/// One group, so that an allocator has nowhere else to go.
const SMALL: Kind = Kind { arguments: "-t ext4 -b 1024", size: "8M" };

/// A number of small files with known content, a directory among them, and one with attributes in a
/// block of its own.
async fn populate(volume: &Rc<Volume>) {
    let root = volume.inode(InodeNumber(2)).await.unwrap();
    for index in 0..FILES {
        let name = format!("file-{index}");
        let made = volume.mknod(&root, name.as_bytes(), &Caller::ROOT, 0o100_644, 0).await.unwrap();
        volume
            .write(&made.value, &Caller::ROOT, 0, &content(index), WriteFlags::default())
            .await
            .unwrap();
        let set = SetXattr {
            name: b"user.long",
            value: &vec![b'a' + index as u8; 600],
            existence: ext4::Existence::Any,
            clear_set_group: false,
        };
        volume.set_xattr(&made.value, &Caller::ROOT, set).await.unwrap();
    }
    volume.mkdir(&root, b"directory", &Caller::ROOT, 0o755).await.unwrap();
    write_new(volume, &root, b"short-lived").await.unwrap();
}

fn content(index: usize) -> Vec<u8> {
    vec![b'A' + index as u8; FILE_BYTES]
}

async fn open(world: &Rc<dyn World>, disk: &MemoryDisk, data: DataMode) -> Result<Rc<Volume>> {
    let engine = EngineOptions { data, ..EngineOptions::default() };
    open_volume(world, disk, None, with_engine(engine)).await
}

/// Runs `with` on the image's volume; closing is part of it.
fn run<T: 'static>(
    image: &TestImage,
    data: DataMode,
    with: impl AsyncFnOnce(&Rc<Volume>) -> T + 'static,
) -> T {
    let (virtual_world, world, disk) = image.world(1);
    let home = disk.clone();
    let found = virtual_world.run(async move {
        let volume = open(&world, &home, data).await.unwrap();
        let found = with(&volume).await;
        volume.close().await.unwrap();
        found
    });
    virtual_world.end();
    disk.write_image(&image.path()).unwrap();
    found
}

fn made(kind: Kind, data: DataMode) -> TestImage {
    let image = TestImage::of(kind);
    run(&image, data, async |volume: &Rc<Volume>| populate(volume).await);
    image
}

/// Opens and reads all files: their inodes, mappings and blocks are in memory.
async fn take_into_memory(volume: &Rc<Volume>) -> Vec<Rc<Inode>> {
    let root = volume.inode(InodeNumber(2)).await.unwrap();
    let mut files = Vec::new();
    for index in 0..FILES {
        let file = volume.lookup(&root, format!("file-{index}").as_bytes()).await.unwrap();
        assert_eq!(volume.read(&file, 0, FILE_BYTES).await.unwrap().to_vec(), content(index));
        volume.get_xattr(&file, b"user.long").await.unwrap();
        volume.opened(&file);
        files.push(file);
    }
    let directory = volume.lookup(&root, b"directory").await.unwrap();
    volume.readdir(&directory, 0, 10).await.unwrap();
    files.push(directory);
    files
}

/// Makes files, directories and links until the volume is full or refuses for good; every error
/// there was.
async fn fill(volume: &Rc<Volume>) -> Vec<Error> {
    let root = volume.inode(InodeNumber(2)).await.unwrap();
    let mut errors = Vec::new();
    for index in 0..60 {
        let name = format!("new-{index}");
        let result = match index % 3 {
            0 => volume.mkdir(&root, name.as_bytes(), &Caller::ROOT, 0o755).await.map(drop),
            1 => {
                volume.symlink(&root, name.as_bytes(), &Caller::ROOT, &[b't'; 200]).await.map(drop)
            }
            _ => write_new(volume, &root, name.as_bytes()).await,
        };
        errors.extend(result.err());
    }
    errors.extend(fill_holes(volume, &root).await.err());
    errors
}

/// Writes one file that takes all free blocks, however scattered.
async fn fill_holes(volume: &Rc<Volume>, root: &Rc<Inode>) -> Result<()> {
    let file = volume.mknod(root, b"rest", &Caller::ROOT, 0o100_644, 0).await?.value;
    for piece in 0..256 {
        volume
            .write(&file, &Caller::ROOT, piece << 15, &[b'z'; 1 << 15], WriteFlags::default())
            .await?;
    }
    Ok(())
}

async fn write_new(volume: &Rc<Volume>, root: &Rc<Inode>, name: &[u8]) -> Result<()> {
    let file = volume.mknod(root, name, &Caller::ROOT, 0o100_644, 0).await?.value;
    volume.write(&file, &Caller::ROOT, 0, &[b'z'; 40_000], WriteFlags::default()).await?;
    volume.sync_file(&file, SyncWhat::All).await
}

async fn check_files(volume: &Rc<Volume>) {
    let root = volume.inode(InodeNumber(2)).await.unwrap();
    for index in 0..FILES {
        let file = volume.lookup(&root, format!("file-{index}").as_bytes()).await.unwrap();
        let found = volume.read(&file, 0, FILE_BYTES).await.unwrap().to_vec();
        assert!(found == content(index), "file-{index} holds another's content");
        let value = volume.get_xattr(&file, b"user.long").await.unwrap();
        assert!(value == vec![b'a' + index as u8; 600], "file-{index} has another's attributes");
    }
}

/// Marks inodes and blocks free, with counts and checksums that agree.
fn lie(image: &TestImage, inodes: &[u32], blocks: &[u64]) {
    let mut bytes = image.bytes();
    let superblock = VolumeSuperblock::parse(&bytes[1024..2048]).unwrap();
    let shift = superblock.block_size.shift();
    let in_inodes =
        inodes.iter().map(|number| (superblock.group_of_inode(InodeNumber(*number)), true));
    let in_blocks =
        blocks.iter().map(|block| (superblock.group_of_block(HomeBlock(*block)), false));
    for ((group, index), is_inode) in in_inodes.chain(in_blocks).collect::<Vec<_>>() {
        let table =
            superblock.descriptor_block(group.get() / superblock.descriptors_per_block()).get();
        let size = usize::from(superblock.descriptor_size());
        let at = ((table << shift) as usize)
            + (group.get() % superblock.descriptors_per_block()) as usize * size;
        let mut descriptor = GroupDescriptor::parse(&bytes[at..at + size]);
        let bitmap_at = if is_inode { descriptor.inode_bitmap } else { descriptor.block_bitmap };
        let bits =
            &mut bytes[(bitmap_at.get() << shift) as usize..][..superblock.block_size.bytes()];
        assert!(bitmap::is_set(bits, index));
        bitmap::clear(bits, index..index + 1);
        if is_inode {
            descriptor.free_inodes += 1;
            let used = superblock.inodes_per_group - descriptor.free_inodes;
            descriptor.directories = descriptor.directories.min(used);
            descriptor.inode_bitmap_checksum =
                bitmap::inode_bitmap_checksum(bits, &superblock).unwrap_or_default();
        } else {
            descriptor.free_blocks += 1;
            descriptor.block_bitmap_checksum =
                bitmap::block_bitmap_checksum(bits, &superblock).unwrap_or_default();
        }
        descriptor.serialize(&mut bytes[at..at + size], group, &superblock);
    }
    std::fs::write(image.path(), bytes).unwrap();
}

/// The bitmap is falsified before the volume is opened; `first` says whether the bitmap is in
/// memory before the files are.
fn lies_are_refused(kind: Kind, data: DataMode, inodes: &[u32], blocks: &[u64], first: bool) {
    let image = made(kind, data);
    lie(&image, inodes, blocks);
    let (errors, marked) = run(&image, data, async move |volume: &Rc<Volume>| {
        if first {
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            volume.unlink(&root, b"short-lived").await.unwrap();
        }
        let files = take_into_memory(volume).await;
        // Dirty, in a transaction that is still open.
        for (index, file) in files.iter().take(FILES).enumerate() {
            volume
                .write(file, &Caller::ROOT, 0, &content(index)[..100], WriteFlags::default())
                .await
                .unwrap();
        }
        let errors = fill(volume).await;
        check_files(volume).await;
        volume.sync().await.unwrap();
        check_files(volume).await;
        (errors, volume.superblock().state & state::ERROR != 0)
    });
    let what = format!("{kind:?} {data:?} {inodes:?} {blocks:?} {first}: {errors:?}");
    // Where there are other groups, they may have had enough space, so that the falsified one was
    // never searched.
    if kind.arguments == SMALL.arguments {
        assert!(errors.iter().any(|error| matches!(error, Error::Corrupt { .. })), "{what}");
        assert!(marked && image.dumpe2fs().contains("with errors"), "{what}");
    }
}

fn places(image: &TestImage) -> (Vec<u32>, Vec<u64>, u64, u64) {
    run(image, DataMode::Ordered, async |volume: &Rc<Volume>| {
        let files = take_into_memory(volume).await;
        let numbers = files.iter().map(|inode| inode.number.get()).collect();
        let mut blocks = Vec::new();
        for file in files.iter().take(FILES) {
            blocks.push(volume.map(file, FileBlock(0), 1).await.unwrap().home().unwrap().get());
        }
        let directory =
            volume.map(&files[FILES], FileBlock(0), 1).await.unwrap().home().unwrap().get();
        let attributes = files[0].fields.borrow().xattr_block.get();
        (numbers, blocks, directory, attributes)
    })
}

#[test]
fn an_inode_in_memory_is_not_given_out_again() {
    for kind in [SMALL, EXT3] {
        for data in MODES {
            // Chance, of which formats of the log take more or less, decides where directories lie.
            let (numbers, ..) = places(&made(kind, data));
            for number in [numbers[0], numbers[FILES]] {
                for first in [false, true] {
                    lies_are_refused(kind, data, &[number], &[], first);
                }
            }
        }
    }
}

#[test]
fn blocks_in_memory_are_not_given_out_again() {
    for kind in [SMALL, EXT3] {
        for data in MODES {
            let (_, blocks, directory, attributes) = places(&made(kind, data));
            let all: Vec<u64> = blocks.iter().flat_map(|block| *block..*block + 3).collect();
            for first in [false, true] {
                lies_are_refused(kind, data, &[], &all, first);
            }
            for block in [directory, attributes].into_iter().filter(|block| *block != 0) {
                lies_are_refused(kind, data, &[], &[block], false);
            }
        }
    }
}

#[test]
fn an_inode_in_use_that_is_not_in_memory_is_not_given_out_again() {
    for kind in [EXT4, EXT4_1K, EXT3] {
        let image = made(kind, DataMode::Ordered);
        let (numbers, ..) = places(&image);
        lie(&image, &[numbers[2]], &[]);
        let errors = run(&image, DataMode::Ordered, async |volume: &Rc<Volume>| {
            let errors = fill(volume).await;
            check_files(volume).await;
            errors
        });
        assert!(
            errors.iter().any(|error| matches!(error, Error::Corrupt { .. })),
            "{kind:?} {errors:?}"
        );
    }
}

#[test]
fn what_is_free_already_is_not_freed() {
    for data in MODES {
        let image = made(SMALL, data);
        let (numbers, blocks, ..) = places(&image);
        lie(&image, &[numbers[1]], &[blocks[0] + 1]);
        run(&image, data, async |volume: &Rc<Volume>| {
            let files = take_into_memory(volume).await;
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            for (index, file) in files.into_iter().take(2).enumerate() {
                volume.unlink(&root, format!("file-{index}").as_bytes()).await.unwrap();
                let number = file.number;
                drop(file);
                assert!(
                    matches!(volume.closed(number).await, Err(Error::Corrupt { .. })),
                    "file-{index}"
                );
            }
            volume.sync().await.unwrap();
            assert!(volume.superblock().state & state::ERROR != 0);
        });
    }
}

/// A bitmap of which nothing in memory is known to contradict it, but for a block's content.
#[test]
fn blocks_in_memory_are_not_discarded() {
    for kind in [SMALL, EXT3] {
        let image = made(kind, DataMode::Ordered);
        let (_, _, _, attributes) = places(&image);
        lie(&image, &[], &[attributes]);
        let marked = run(&image, DataMode::Ordered, async |volume: &Rc<Volume>| {
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            let file = volume.lookup(&root, b"file-0").await.unwrap();
            volume.get_xattr(&file, b"user.long").await.unwrap();
            volume.trim(0..u64::MAX, 1).await.unwrap();
            volume.needs_check()
        });
        assert!(marked, "{kind:?}");
        run(&image, DataMode::Ordered, async |volume: &Rc<Volume>| check_files(volume).await);
    }
}
