//! Images by mke2fs, volumes on them in virtual time, and what e2fsprogs says about them afterwards.

use device::{Disk, World};
use disks::MemoryDisk;
use ext4::{Access, OpenParts, Result, Volume, VolumeOptions};
use runtime::VirtualWorld;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::rc::Rc;
use tempfile::TempDir;

/// Arguments of mke2fs, and the volume's size.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub arguments: &'static str,
    pub size: &'static str,
}

const fn kind(arguments: &'static str, size: &'static str) -> Kind {
    Kind { arguments, size }
}

pub const EXT4: Kind = kind("-t ext4", "64M");
pub const EXT4_1K: Kind = kind("-t ext4 -b 1024 -O orphan_file", "48M");
pub const EXT3: Kind = kind("-t ext3 -b 1024", "40M");
pub const MANY_GROUPS: Kind = kind("-t ext4 -b 1024 -g 1024 -N 2048 -G 4", "20M");
pub const ALL: [Kind; 12] = [
    EXT4,
    EXT4_1K,
    kind("-t ext4 -b 2048", "64M"),
    EXT3,
    kind("-t ext3", "40M"),
    kind("-t ext4 -O ^metadata_csum", "48M"),
    kind("-t ext4 -O ^metadata_csum,^uninit_bg -b 1024", "48M"),
    kind("-t ext4 -O ^64bit -b 1024", "48M"),
    kind("-t ext4 -O ^flex_bg -b 1024", "48M"),
    kind("-t ext4 -I 128 -b 1024", "48M"),
    kind("-t ext4 -O ^resize_inode,meta_bg,metadata_csum_seed,sparse_super2 -b 1024 -g 1024", "24M"),
    MANY_GROUPS,
];

pub struct TestImage {
    directory: TempDir,
}

impl TestImage {
    pub fn make(kind: Kind) -> TestImage {
        let image = TestImage { directory: tempfile::tempdir().unwrap() };
        let mut command = Command::new("mke2fs");
        command.args(["-q", "-F"]).args(kind.arguments.split(' ')).arg(image.path()).arg(kind.size);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{kind:?}: {}", text(&output));
        image
    }
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("image")
    }
    pub fn disk(&self, world: &Rc<dyn World>) -> MemoryDisk {
        MemoryDisk::read_image(world.clone(), &self.path()).unwrap()
    }
    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }
    pub fn dumpe2fs(&self) -> String {
        text(&Command::new("dumpe2fs").arg(self.path()).output().unwrap())
    }
    pub fn debugfs(&self, request: &str) -> String {
        text(&Command::new("debugfs").args(["-w", "-R", request]).arg(self.path()).output().unwrap())
    }
    /// Panics with what e2fsck says unless the volume is clean.
    pub fn check(&self, what: &str) {
        let output = Command::new("timeout").args(["60", "e2fsck", "-fn"]).arg(self.path()).output().unwrap();
        assert!(output.status.success(), "{what}: {}", text(&output));
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

pub async fn open(world: &Rc<dyn World>, disk: &MemoryDisk, access: Access) -> Result<Rc<Volume>> {
    open_with(world, disk, None, access).await
}

pub async fn open_with(
    world: &Rc<dyn World>,
    disk: &MemoryDisk,
    journal: Option<Rc<dyn Disk>>,
    access: Access,
) -> Result<Rc<Volume>> {
    let options = VolumeOptions { access, mount_point: "/test".into(), ..VolumeOptions::default() };
    Volume::open(OpenParts { world: world.clone(), home: Rc::new(disk.clone()), journal, options }).await
}

/// Opens the image's volume in virtual time, runs `test`, closes the volume, writes the image back and has it
/// checked.
pub fn with_volume<F: Future<Output = ()> + 'static>(
    image: &TestImage,
    seed: u64,
    test: impl FnOnce(Rc<Volume>) -> F + 'static,
) {
    let virtual_world = VirtualWorld::new(seed);
    let world: Rc<dyn World> = Rc::new(virtual_world.clone());
    let disk = image.disk(&world);
    let home = disk.clone();
    virtual_world.run(async move {
        let volume = open(&world, &home, Access::ReadWrite).await.unwrap();
        test(volume.clone()).await;
        volume.close().await.unwrap();
    });
    disk.write_image(&image.path()).unwrap();
    image.check(&format!("seed {seed}"));
}
