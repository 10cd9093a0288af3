//! A sector of a file's content cannot be read, and the log holds a part of it.

use crate::image::{TestImage, in_mode, open};
use device::{Operation, World};
use disks::{CrashPolicy, Fault, MemoryDisk};
use engine::DataMode;
use ext4::{Caller, OpenParts, Volume, WriteFlags};
use format::ext4::superblock::state;
use runtime::VirtualWorld;
use std::rc::Rc;
use units::FileBlock;

const BLOCK: u64 = 4096;

#[test]
fn a_recovery_may_leave_out_what_cannot_be_read_and_says_which_file() {
    let image = TestImage::filled(&["-t", "ext4", "-b", "4096"], "32M", |source| {
        std::fs::create_dir(source.join("logs")).unwrap();
        std::fs::write(source.join("logs/harmed"), [b'a'; 3 * BLOCK as usize]).unwrap();
        std::fs::write(source.join("sound"), [b'b'; BLOCK as usize]).unwrap();
    });
    let (harmed, sound) = (image.number("logs/harmed"), image.number("sound"));
    let virtual_world = VirtualWorld::new(1);
    let world: Rc<dyn World> = Rc::new(virtual_world.clone());
    let disk = MemoryDisk::from_image(world.clone(), image.read());
    let (begun, on_it) = (world.clone(), disk.clone());
    let block = virtual_world.run(async move {
        let volume = open(&begun, &on_it, None, in_mode(DataMode::Wasteless)).await.unwrap();
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
    let virtual_world = VirtualWorld::new(2);
    let world: Rc<dyn World> = Rc::new(virtual_world.clone());
    let disk = MemoryDisk::from_image(world.clone(), disk.crash(CrashPolicy::LoseAll));
    let range = block.get() * BLOCK..(block.get() + 1) * BLOCK;
    disk.inject(Fault { range, ..Fault::forever(Operation::Read) });
    let mut parts = OpenParts {
        world,
        home: Rc::new(disk.clone()),
        journal: None,
        options: in_mode(DataMode::Wasteless),
    };
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
