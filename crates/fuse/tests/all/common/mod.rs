//! Requests, and a front end over a fresh volume in virtual time.

use device::World;
use disks::MemoryDisk;
use ext4::{Caller, OpenParts, Volume, VolumeOptions};
use fuse::{FrontEndOptions, VolumeFrontEnd};
use fuse_session::Request;
use fuse_session::abi::InHeader;
use runtime::VirtualWorld;
use std::process::Command;
use std::rc::Rc;
use units::InodeNumber;
use zerocopy::IntoBytes;

/// Creates a request as it comes over the classic channel.
pub fn request(header: InHeader, body: &[u8]) -> Request {
    let len = (size_of::<InHeader>() + body.len()) as u32;
    let header = InHeader { len, unique: 2, ..header };
    Request::from_message(&[header.as_bytes(), body].concat()).unwrap()
}

/// Runs `work` over a fresh volume in virtual time, with the number of a file that user 1000 owns.
pub fn front_end_over_a_volume<F: Future<Output = ()> + 'static>(
    kernel_checks_flags: bool,
    work: impl FnOnce(Rc<VolumeFrontEnd>, Rc<Volume>, InodeNumber) -> F + 'static,
) {
    let image = tempfile::NamedTempFile::new().unwrap();
    let mut make = Command::new("mke2fs");
    let make = make.args(["-q", "-F", "-t", "ext4", "-O", "project"]).arg(image.path()).arg("16M");
    let made = make.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let virtual_world = VirtualWorld::new(1);
    let world: Rc<dyn World> = Rc::new(virtual_world.clone());
    let disk = MemoryDisk::read_image(world.clone(), image.path()).unwrap();
    virtual_world.run(async move {
        let options = VolumeOptions::default();
        let parts = OpenParts { world, home: Rc::new(disk), journal: None, options };
        let volume = Volume::open(parts).await.unwrap();
        let options = FrontEndOptions {
            synchronous_directories: false,
            kernel_checks_flags,
            kernel_drops_written_pages: true,
            without_open: false,
            attributes: Default::default(),
        };
        let front_end = VolumeFrontEnd::new(volume.clone(), options, Box::new(|_: &str| {}));
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let caller = Caller { uid: 1000, gid: 1000, umask: 0 };
        let made =
            volume.mknod(&root, b"file", &caller, (libc::S_IFREG | 0o644) as u16, 0).await.unwrap();
        work(front_end, volume.clone(), made.value.number).await;
        drop((made, root));
        volume.close().await.unwrap();
    });
}
