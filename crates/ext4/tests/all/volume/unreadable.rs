//! A sector of a file's content cannot be read, and the log holds a part of it.

use crate::image::{TestImage, in_mode, open};
use device::{Operation, World};
use disks::{CrashPolicy, Fault, Image, MemoryDisk};
use engine::DataMode;
use ext4::{Caller, OpenParts, Volume, WriteFlags};
use format::ext4::superblock::state;
use format::ext4::{VolumeSuperblock, feature};
use runtime::{Either, VirtualWorld, race};
use std::rc::Rc;
use units::{FileBlock, HomeBlock, InodeNumber};

const BLOCK: u64 = 4096;

/// A volume after a power cut, whose log holds parts of a block of two files.
struct CutVolume {
    image: Image,
    /// A file, and its first block, which can no longer be read.
    harmed: InodeNumber,
    block: HomeBlock,
    sound: InodeNumber,
}

impl CutVolume {
    fn make() -> CutVolume {
        let image = TestImage::filled(&["-t", "ext4", "-b", "4096"], "32M", |source| {
            std::fs::create_dir(source.join("logs")).unwrap();
            std::fs::write(source.join("logs/harmed"), [b'a'; 3 * BLOCK as usize]).unwrap();
            std::fs::write(source.join("sound"), [b'b'; BLOCK as usize]).unwrap();
        });
        let (harmed, sound) = (image.number("logs/harmed"), image.number("sound"));
        let (virtual_world, world, disk) = image.world(1);
        let on_it = disk.clone();
        let block = virtual_world.run(async move {
            let volume = open(&world, &on_it, None, in_mode(DataMode::Wasteless)).await.unwrap();
            for number in [harmed, sound] {
                let file = volume.inode(number).await.unwrap();
                let flags = WriteFlags::default();
                volume.write(&file, &Caller::ROOT, BLOCK / 2, b"new", flags).await.unwrap();
            }
            volume.sync().await.unwrap();
            let file = volume.inode(harmed).await.unwrap();
            volume.map(&file, FileBlock(0), 1).await.unwrap().home().unwrap()
        });
        virtual_world.end();
        CutVolume { image: disk.crash(CrashPolicy::LoseAll), harmed, block, sound }
    }

    /// The disk with `image`, of which one block cannot be read, and how to open it.
    fn parts(&self, world: &VirtualWorld, image: &Image) -> (MemoryDisk, OpenParts) {
        let world: Rc<dyn World> = Rc::new(world.clone());
        let disk = MemoryDisk::from_image(world.clone(), image.clone());
        let range = self.block.get() * BLOCK..(self.block.get() + 1) * BLOCK;
        disk.inject(Fault { range, ..Fault::forever(Operation::Read) });
        let options = in_mode(DataMode::Wasteless);
        let parts = OpenParts { world, home: Rc::new(disk.clone()), journal: None, options };
        (disk, parts)
    }

    /// Returns the disk after a recovery that leaves out the block, cut at change `cut`, and
    /// whether it finished.
    fn recover_until(&self, cut: u64, policy: CrashPolicy) -> (Image, bool) {
        let virtual_world = VirtualWorld::new(2);
        let (disk, mut parts) = self.parts(&virtual_world, &self.image);
        parts.options.engine.skip_unreadable = true;
        disk.cut_at(cut);
        let power = disk.clone();
        let ended = virtual_world.run(async move {
            let recover = async move { ext4::recover(&parts, false).await.unwrap() };
            matches!(race(power.power_lost(), recover).await, Either::Right(_))
        });
        virtual_world.end();
        (disk.crash(policy), ended)
    }
}

fn counts_damage(superblock: &VolumeSuperblock) -> bool {
    superblock.state & state::ERROR != 0 && superblock.error_count != 0
}

#[test]
fn a_recovery_may_leave_out_what_cannot_be_read_and_says_which_file() {
    let volume = CutVolume::make();
    let virtual_world = VirtualWorld::new(2);
    let (_, mut parts) = volume.parts(&virtual_world, &volume.image);
    let CutVolume { harmed, block, sound, .. } = volume;
    virtual_world.run(async move {
        let refused = ext4::recover(&parts, false).await.unwrap_err().to_string();
        assert!(refused.contains("--skip-unreadable"), "{refused}");
        parts.options.engine.skip_unreadable = true;
        let report = ext4::recover(&parts, false).await.unwrap();
        assert_eq!(report.skipped_blocks, [block.get()]);
        let superblock = ext4::read_superblock(&*parts.home).await.unwrap();
        assert_ne!(superblock.state & state::ERROR, 0, "e2fsck is not asked for");
        let volume = Volume::open(parts).await.unwrap();
        let owners = volume.owners_of(&[block]).await.unwrap();
        let found: Vec<_> = owners.iter().map(|owner| (owner.inode, &owner.path[..])).collect();
        assert_eq!(found, [(harmed, &b"/logs/harmed"[..])]);
        let file = volume.inode(sound).await.unwrap();
        assert_eq!(volume.read(&file, BLOCK / 2, 3).await.unwrap().to_vec(), b"new");
        volume.close().await.unwrap();
    });
}

#[test]
fn an_interrupted_recovery_that_left_blocks_out_demands_a_check() {
    let volume = CutVolume::make();
    for policy in [CrashPolicy::LoseAll, CrashPolicy::KeepAll] {
        for cut in 0.. {
            let (image, ended) = volume.recover_until(cut, policy);
            let what = format!("{policy:?} at change {cut}");
            // The log was emptied, or else the next opening reports the block.
            check_next_start(&volume, &image, &what);
            check_next_recovery(&volume, &image, &what);
            if ended {
                break;
            }
            assert!(cut < 100, "a recovery of two blocks writes little");
        }
    }
}

fn check_next_start(volume: &CutVolume, image: &Image, what: &str) {
    let virtual_world = VirtualWorld::new(3);
    let (_, parts) = volume.parts(&virtual_world, image);
    let what = what.to_owned();
    virtual_world.run(async move {
        match Volume::open(parts).await {
            Ok(volume) => assert!(counts_damage(&volume.superblock()), "{what}: it is trusted"),
            Err(error) => {
                let refused = error.to_string();
                assert!(refused.contains("--skip-unreadable"), "{what}: {refused}");
            }
        }
    });
    virtual_world.end();
}

fn check_next_recovery(volume: &CutVolume, image: &Image, what: &str) {
    let virtual_world = VirtualWorld::new(4);
    let (disk, mut parts) = volume.parts(&virtual_world, image);
    parts.options.engine.skip_unreadable = true;
    let what = what.to_owned();
    virtual_world.run(async move {
        ext4::recover(&parts, false).await.unwrap();
        let superblock = ext4::read_superblock(&*parts.home).await.unwrap();
        assert!(counts_damage(&superblock), "{what}: e2fsck is not asked for");
        assert!(!superblock.features.has(feature::RECOVER), "{what}");
        let again = ext4::recover(&parts, false).await.unwrap();
        assert!(again.clean, "{what}");
    });
    drop(disk);
    virtual_world.end();
}
