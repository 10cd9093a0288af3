//! Reads of the first steps on a volume, by the size of the volume: counts of bytes, the same on
//! each machine.

use crate::volume::image::{Kind, TestImage, open};
use disks::{CrashPolicy, MemoryDisk};
use ext4::{Access, Caller, Volume};
use format::ext4::VolumeSuperblock;
use std::rc::Rc;
use units::InodeNumber;

const ROOT: InodeNumber = InodeNumber(2);

/// The group descriptors are read to find the journal, and again behind its replay.
const DESCRIPTORS_READ: u64 = 2;

/// Bytes that were read by
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Read {
    /// opening, beside the group descriptors,
    opening: u64,
    /// making the first directory and the first file in it,
    creating: u64,
    /// opening after a power cut behind that, beside the group descriptors.
    recovery: u64,
}

/// `files` are on the volume before.
fn read_of(arguments: &'static str, size: &'static str, files: u32) -> Read {
    let image = TestImage::of(Kind { arguments, size });
    let (virtual_world, world, first) = image.world(1);
    virtual_world.clone().run(async move {
        let volume = open(&world, &first, Access::ReadWrite).await.unwrap();
        make(&volume, "before", files).await;
        volume.close().await.unwrap();

        let disk = MemoryDisk::from_image(world.clone(), first.crash(CrashPolicy::LoseAll));
        let so_far = |disk: &MemoryDisk| disk.statistics().bytes_read;
        let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
        let opening = so_far(&disk);
        make(&volume, "first", 1).await;
        volume.sync().await.unwrap();
        let creating = so_far(&disk) - opening;
        let cut = MemoryDisk::from_image(world.clone(), disk.crash(CrashPolicy::LoseAll));
        volume.close().await.unwrap();

        let volume = open(&world, &cut, Access::ReadWrite).await.unwrap();
        let recovery = so_far(&cut);
        assert!(volume.open_report().recovery.transactions > 0);
        volume.close().await.unwrap();
        let descriptors = DESCRIPTORS_READ * descriptor_bytes(&image);
        Read { opening: opening - descriptors, creating, recovery: recovery - descriptors }
    })
}

async fn make(volume: &Rc<Volume>, name: &str, files: u32) {
    let root = volume.inode(ROOT).await.unwrap();
    let directory = volume.mkdir(&root, name.as_bytes(), &Caller::ROOT, 0o755).await.unwrap().value;
    for number in 0..files {
        let name = format!("file-{number}");
        volume.mknod(&directory, name.as_bytes(), &Caller::ROOT, 0o644, 0).await.unwrap();
    }
}

fn descriptor_bytes(image: &TestImage) -> u64 {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; 1024];
    std::fs::File::open(image.path()).unwrap().read_exact_at(&mut bytes, 1024).unwrap();
    let superblock = VolumeSuperblock::parse(&bytes).unwrap();
    u64::from(superblock.descriptor_blocks()) << superblock.block_size.shift()
}

const SMALL: &str = "-t ext4 -J size=16";

#[test]
fn larger_volumes_cost_their_descriptors_and_nothing_else() {
    let small = read_of(SMALL, "1G", 1);
    for size in ["64G", "1T"] {
        assert_eq!(read_of(SMALL, size, 1), small, "{size}");
    }
}

#[test]
fn descriptors_are_read_a_mebibyte_at_a_time() {
    let requests = |size| {
        // With two copies of them alone, of which the test reads the image sooner.
        let image = TestImage::of(Kind { arguments: "-t ext4 -J size=16 -O sparse_super2", size });
        let (virtual_world, world, disk) = image.world(1);
        virtual_world.run(async move {
            let volume = open(&world, &disk, Access::ReadOnly).await.unwrap();
            let requests = disk.statistics().reads;
            volume.close().await.unwrap();
            (requests, descriptor_bytes(&image))
        })
    };
    let ((small, _), (large, bytes)) = (requests("1G"), requests("8T"));
    let mebibytes = bytes >> 20;
    assert_eq!((mebibytes, large - small), (4, DESCRIPTORS_READ * (mebibytes - 1)));
}

#[test]
fn the_number_of_files_costs_no_mount_anything() {
    let (few, many) = (read_of(SMALL, "1G", 1), read_of(SMALL, "1G", 3000));
    assert_eq!((many.opening, many.recovery), (few.opening, few.recovery));
    // What was there before lies in other blocks.
    assert!(many.creating <= few.creating + 4096, "{many:?} {few:?}");
}

#[test]
fn a_longer_journal_costs_nothing_but_what_is_in_it() {
    assert_eq!(read_of("-t ext4 -J size=512", "4G", 1), read_of(SMALL, "4G", 1));
}
