//! Images by mke2fs, volumes on them in virtual time, and what e2fsprogs says about them afterwards.

use device::World;
use disks::MemoryDisk;
use engine::EngineOptions;
use ext4::{Inode, OpenParts, Volume, VolumeOptions};
use journal::DataMode;
use runtime::VirtualWorld;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::rc::Rc;
use tempfile::TempDir;
use units::InodeNumber;

/// How to make a volume.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub name: &'static str,
    /// Arguments of mke2fs.
    pub arguments: &'static [&'static str],
    pub block: u64,
    pub extents: bool,
}

pub const EXT4: Kind =
    Kind { name: "ext4", arguments: &["-t", "ext4", "-b", "4096"], block: 4096, extents: true };
pub const EXT4_1K: Kind =
    Kind { name: "ext4 of 1 KiB", arguments: &["-t", "ext4", "-b", "1024"], block: 1024, extents: true };
pub const EXT3: Kind =
    Kind { name: "ext3", arguments: &["-t", "ext3", "-b", "4096"], block: 4096, extents: false };
pub const EXT3_1K: Kind =
    Kind { name: "ext3 of 1 KiB", arguments: &["-t", "ext3", "-b", "1024"], block: 1024, extents: false };
pub const EXT4_POINTERS: Kind = Kind {
    name: "ext4 without extents",
    arguments: &["-t", "ext4", "-b", "2048", "-O", "^extents,^64bit"],
    block: 2048,
    extents: false,
};
/// Nothing tells damage but the structures themselves.
pub const UNCHECKED: Kind = Kind {
    name: "ext4 without checksums",
    arguments: &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"],
    block: 1024,
    extents: true,
};
pub const MODES: [DataMode; 5] =
    [DataMode::Writeback, DataMode::Ordered, DataMode::Journal, DataMode::Wasteless, DataMode::Selective];
pub const ALL: [Kind; 5] = [EXT4, EXT4_1K, EXT3, EXT3_1K, EXT4_POINTERS];

pub struct TestImage {
    directory: TempDir,
    pub files: usize,
}

impl TestImage {
    /// A volume of `size` (as mke2fs reads it) with empty files `f0`, `f1`, ...
    pub fn make(kind: Kind, size: &str, files: usize) -> TestImage {
        let image = TestImage { directory: tempfile::tempdir().unwrap(), files };
        let content = image.directory.path().join("content");
        std::fs::create_dir(&content).unwrap();
        for index in 0..files {
            std::fs::write(content.join(format!("f{index}")), b"").unwrap();
        }
        let mut command = Command::new("mke2fs");
        command.args(["-q", "-F"]).args(kind.arguments).arg("-d").arg(&content);
        expect_success(command.arg(image.path()).arg(size).output().unwrap(), "mke2fs");
        image
    }
    /// A place for another image, without content.
    pub fn empty() -> TestImage {
        TestImage { directory: tempfile::tempdir().unwrap(), files: 0 }
    }
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("image")
    }
    pub fn disk(&self, world: &Rc<dyn World>) -> MemoryDisk {
        MemoryDisk::read_image(world.clone(), &self.path()).unwrap()
    }
    /// The number of file `f{index}`.
    pub fn inode(&self, index: usize) -> InodeNumber {
        let text = self.debugfs(&format!("stat f{index}"));
        let number = text.split_whitespace().nth(1).expect("debugfs stat says `Inode: N`");
        InodeNumber(number.parse().unwrap())
    }
    pub fn debugfs(&self, request: &str) -> String {
        let output = Command::new("debugfs").arg("-R").arg(request).arg(self.path()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
    /// The content of file `f{index}` as debugfs reads it.
    pub fn dump(&self, index: usize) -> Vec<u8> {
        let to = self.directory.path().join("dump");
        let _ = std::fs::remove_file(&to);
        self.debugfs(&format!("dump f{index} {}", to.display()));
        std::fs::read(to).unwrap()
    }
    /// Panics with what e2fsck says unless the volume is clean.
    pub fn check(&self) {
        let mut command = Command::new("timeout");
        let output = command.args(["60", "e2fsck", "-fn"]).arg(self.path()).output().unwrap();
        expect_success(output, "e2fsck -fn");
    }
}

fn expect_success(output: Output, what: &str) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{what}: {}{}", text(&output.stdout), text(&output.stderr));
}

/// [`with_volume_in`] data mode `ordered`.
pub fn with_volume<F: Future<Output = ()> + 'static>(
    image: &TestImage,
    seed: u64,
    test: impl FnOnce(Rc<Volume>, Vec<Rc<Inode>>) -> F + 'static,
) {
    with_volume_in(DataMode::Ordered, image, seed, test);
}

/// Runs `test` on the volume in virtual time, closes it, writes the image back and has it checked.
pub fn with_volume_in<F: Future<Output = ()> + 'static>(
    mode: DataMode,
    image: &TestImage,
    seed: u64,
    test: impl FnOnce(Rc<Volume>, Vec<Rc<Inode>>) -> F + 'static,
) {
    let virtual_world = VirtualWorld::new(seed);
    let world: Rc<dyn World> = Rc::new(virtual_world.clone());
    let disk = image.disk(&world);
    let numbers: Vec<InodeNumber> = (0..image.files).map(|index| image.inode(index)).collect();
    let home = disk.clone();
    virtual_world.run(async move {
        let volume = open_in(&world, &home, mode).await.unwrap();
        let mut inodes = Vec::new();
        for number in numbers {
            inodes.push(volume.inode(number).await.unwrap());
        }
        test(volume.clone(), inodes).await;
        volume.close().await.unwrap();
    });
    disk.write_image(&image.path()).unwrap();
    image.check();
}

pub async fn open(world: &Rc<dyn World>, disk: &MemoryDisk) -> ext4::Result<Rc<Volume>> {
    open_in(world, disk, DataMode::Ordered).await
}

pub async fn open_in(world: &Rc<dyn World>, disk: &MemoryDisk, data: DataMode) -> ext4::Result<Rc<Volume>> {
    let engine = EngineOptions { data, ..EngineOptions::default() };
    let options = VolumeOptions { engine, mount_point: "/test".into(), ..VolumeOptions::default() };
    let home = Rc::new(disk.clone());
    Volume::open(OpenParts { world: world.clone(), home, journal: None, options }).await
}
