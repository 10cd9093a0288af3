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
    let options = FrontEndOptions { kernel_checks_flags, ..plain_options() };
    front_end_over_a_disk(options, |opened| work(opened.front_end, opened.volume, opened.file));
}

/// A front end, and what it stands on.
pub struct Opened {
    pub front_end: Rc<VolumeFrontEnd>,
    pub volume: Rc<Volume>,
    pub disk: MemoryDisk,
    /// A file that user 1000 owns.
    pub file: InodeNumber,
}

pub fn plain_options() -> FrontEndOptions {
    FrontEndOptions {
        synchronous: false,
        synchronous_directories: false,
        kernel_checks_flags: true,
        kernel_strips_set_group: true,
        kernel_drops_written_pages: true,
        without_open: false,
        attributes: Default::default(),
    }
}

/// Runs `work` over a fresh volume in virtual time.
pub fn front_end_over_a_disk<F: Future<Output = ()> + 'static>(
    options: FrontEndOptions,
    work: impl FnOnce(Opened) -> F + 'static,
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
        let volume = open_volume(&world, &disk).await;
        let front_end = VolumeFrontEnd::new(volume.clone(), options, Box::new(|_: &str| {}));
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let caller = Caller { uid: 1000, gid: 1000, ..Caller::ROOT };
        let made =
            volume.mknod(&root, b"file", &caller, (libc::S_IFREG | 0o644) as u16, 0).await.unwrap();
        let file = made.value.number;
        work(Opened { front_end, volume: volume.clone(), disk, file }).await;
        drop((made, root));
        volume.close().await.unwrap();
    });
}

pub async fn open_volume(world: &Rc<dyn World>, disk: &MemoryDisk) -> Rc<Volume> {
    let options = VolumeOptions::default();
    let home = Rc::new(disk.clone());
    Volume::open(OpenParts { world: world.clone(), home, journal: None, options }).await.unwrap()
}
