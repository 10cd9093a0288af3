//! What the kernel forgets, over a volume in virtual time.

use device::World;
use disks::MemoryDisk;
use ext4::{Caller, OpenParts, Volume, VolumeOptions};
use fuse::abi::{BatchForgetIn, ForgetOne, InHeader, opcode};
use fuse::{DoorOptions, FileSystem, Request, VolumeDoor};
use runtime::VirtualWorld;
use std::process::Command;
use std::rc::Rc;
use units::InodeNumber;
use zerocopy::IntoBytes;

/// No node: inode numbers have 32 bits.
const IMPOSSIBLE: u64 = 1 << 40;

fn batch(nodes: &[u64]) -> Request {
    let forgets: Vec<ForgetOne> = nodes.iter().map(|&nodeid| ForgetOne { nodeid, nlookup: 1 }).collect();
    let count = BatchForgetIn { count: nodes.len() as u32, dummy: 0 };
    let len = size_of::<InHeader>() + size_of_val(&count) + size_of_val(&forgets[..]);
    let header = InHeader { len: len as u32, opcode: opcode::BATCH_FORGET, unique: 2, ..Default::default() };
    let message = [header.as_bytes(), count.as_bytes(), forgets.as_bytes()].concat();
    Request::from_message(&message).unwrap()
}

#[test]
fn one_that_cannot_be_forgotten_keeps_none_of_the_others() {
    let image = tempfile::NamedTempFile::new().unwrap();
    let mut make = Command::new("mke2fs");
    let made = make.args(["-q", "-F", "-t", "ext4"]).arg(image.path()).arg("16M").output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let virtual_world = VirtualWorld::new(1);
    let world: Rc<dyn World> = Rc::new(virtual_world.clone());
    let disk = MemoryDisk::read_image(world.clone(), image.path()).unwrap();
    virtual_world.run(async move {
        let options = VolumeOptions::default();
        let parts = OpenParts { world, home: Rc::new(disk), journal: None, options };
        let volume = Volume::open(parts).await.unwrap();
        let report = Box::new(|_: &str| {});
        let door = VolumeDoor::new(volume.clone(), DoorOptions { synchronous_directories: false, report });
        let free = async || volume.statfs().await.unwrap().inodes_free;
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let before = free().await;
        let mut nodes = vec![IMPOSSIBLE];
        for name in ["one", "two"] {
            let caller = Caller { uid: 0, gid: 0, umask: 0 };
            let made = volume.mkdir(&root, name.as_bytes(), &caller, 0o755).await.unwrap().value;
            volume.remember(&made);
            nodes.extend([made.number.get().into(), IMPOSSIBLE]);
            drop(made);
            volume.rmdir(&root, name.as_bytes()).await.unwrap();
        }
        assert_eq!(free().await, before - 2, "the kernel still refers to them");
        door.serve(batch(&nodes)).await;
        assert_eq!(free().await, before);
        volume.close().await.unwrap();
    });
}
