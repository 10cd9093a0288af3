//! What the superblock records of a volume's state outlives crashes and unmounts.

use crate::volume::image::{EXT4, Kind, TestImage, open};
use device::World;
use disks::{CrashPolicy, MemoryDisk};
use ext4::{Access, Caller, Volume, WriteFlags};
use format::ext4::superblock::state;
use runtime::VirtualWorld;
use std::rc::Rc;
use units::InodeNumber;

const ROOT: InodeNumber = InodeNumber(2);
const PLAIN: Kind = Kind { arguments: "-t ext4 -O ^has_journal", size: "16M" };

async fn write_file(volume: &Rc<Volume>, name: &[u8]) {
    let root = volume.inode(ROOT).await.unwrap();
    let file = volume.mknod(&root, name, &Caller::ROOT, 0o100_644, 0).await.unwrap().value;
    volume.write(&file, &Caller::ROOT, 0, &[7; 9000], WriteFlags::default()).await.unwrap();
    volume.sync().await.unwrap();
}

async fn is_valid(disk: &MemoryDisk) -> bool {
    ext4::read_superblock(disk).await.unwrap().state & state::VALID != 0
}

/// Without a journal a crash leaves what only e2fsck repairs; with one, the mark is a request of
/// e2fsck or tune2fs.
#[test]
fn a_volume_found_unchecked_is_not_closed_as_checked() {
    for kind in [PLAIN, EXT4] {
        let image = TestImage::of(kind);
        let virtual_world = VirtualWorld::new(1);
        let world: Rc<dyn World> = Rc::new(virtual_world.clone());
        let has_journal = kind.arguments == EXT4.arguments;
        if has_journal {
            image.debugfs_write("set_super_value state 0");
        }
        let mut disk = image.disk(&world);
        virtual_world.run(async move {
            if !has_journal {
                let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
                write_file(&volume, b"first").await;
                disk = MemoryDisk::from_image(world.clone(), disk.crash(CrashPolicy::LoseAll));
            }
            for round in 0..2 {
                let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
                let warnings = volume.open_report().warnings;
                assert!(warnings.iter().any(|it| it.contains("run e2fsck")), "{warnings:?}");
                write_file(&volume, format!("later {round}").as_bytes()).await;
                volume.forbid_changes().await.unwrap();
                assert!(!is_valid(&disk).await, "{kind:?}: read-only in round {round}");
                volume.allow_changes().await.unwrap();
                volume.close().await.unwrap();
                assert!(!is_valid(&disk).await, "{kind:?}: closed in round {round}");
            }
        });
    }
}

#[test]
fn a_volume_found_checked_is_closed_as_checked() {
    for kind in [PLAIN, EXT4] {
        let image = TestImage::of(kind);
        let virtual_world = VirtualWorld::new(1);
        let world: Rc<dyn World> = Rc::new(virtual_world.clone());
        let disk = image.disk(&world);
        virtual_world.run(async move {
            let volume = open(&world, &disk, Access::ReadWrite).await.unwrap();
            write_file(&volume, b"one").await;
            volume.forbid_changes().await.unwrap();
            assert!(is_valid(&disk).await, "{kind:?}: read-only");
            volume.allow_changes().await.unwrap();
            write_file(&volume, b"two").await;
            volume.close().await.unwrap();
            assert!(is_valid(&disk).await, "{kind:?}: closed");
        });
    }
}
