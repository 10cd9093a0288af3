//! Volumes with empty files.

use crate::image::{in_mode, open as open_volume};
use device::World;
use disks::MemoryDisk;
use ext4::{Inode, Volume};
use journal::DataMode;
use std::rc::Rc;
use units::InodeNumber;

pub use crate::image::{MODES, TestImage};

/// Parameters of a volume to make.
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
pub const EXT4_1K: Kind = Kind {
    name: "ext4 of 1 KiB",
    arguments: &["-t", "ext4", "-b", "1024"],
    block: 1024,
    extents: true,
};
pub const EXT3: Kind =
    Kind { name: "ext3", arguments: &["-t", "ext3", "-b", "4096"], block: 4096, extents: false };
pub const EXT3_1K: Kind = Kind {
    name: "ext3 of 1 KiB",
    arguments: &["-t", "ext3", "-b", "1024"],
    block: 1024,
    extents: false,
};
pub const EXT4_POINTERS: Kind = Kind {
    name: "ext4 without extents",
    arguments: &["-t", "ext4", "-b", "2048", "-O", "^extents,^64bit"],
    block: 2048,
    extents: false,
};
/// A volume without checksums: damage shows only in the structures themselves.
pub const UNCHECKED: Kind = Kind {
    name: "ext4 without checksums",
    arguments: &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"],
    block: 1024,
    extents: true,
};
pub const ALL: [Kind; 5] = [EXT4, EXT4_1K, EXT3, EXT3_1K, EXT4_POINTERS];

impl TestImage {
    /// A volume of `size` (as mke2fs reads it) with empty files `f0`, `f1`, ...
    pub fn of_files(kind: Kind, size: &str, files: usize) -> TestImage {
        TestImage::filled(kind.arguments, size, |source| {
            (0..files)
                .for_each(|index| std::fs::write(source.join(format!("f{index}")), b"").unwrap());
        })
    }
    /// The number of file `f{index}`.
    pub fn inode(&self, index: usize) -> InodeNumber {
        self.number(&format!("f{index}"))
    }
    /// The content of file `f{index}` as debugfs reads it.
    pub fn dump(&self, index: usize) -> Vec<u8> {
        let to = self.path_of("dump");
        let _ = std::fs::remove_file(&to);
        self.debugfs(&format!("dump f{index} {}", to.display()));
        std::fs::read(to).unwrap()
    }
}

/// [`with_volume_in`] data mode `ordered`.
pub fn with_volume<F: Future<Output = ()> + 'static>(
    image: &TestImage,
    seed: u64,
    test: impl FnOnce(Rc<Volume>, Vec<Rc<Inode>>) -> F + 'static,
) {
    with_volume_in(DataMode::Ordered, image, seed, test);
}

/// Plays `test` on the volume and its files.
pub fn with_volume_in<F: Future<Output = ()> + 'static>(
    mode: DataMode,
    image: &TestImage,
    seed: u64,
    test: impl FnOnce(Rc<Volume>, Vec<Rc<Inode>>) -> F + 'static,
) {
    let files = std::fs::read_dir(image.source()).unwrap().count();
    let numbers: Vec<InodeNumber> = (0..files).map(|index| image.inode(index)).collect();
    image.play(seed, in_mode(mode), |volume| async move {
        let mut inodes = Vec::new();
        for number in numbers {
            inodes.push(volume.inode(number).await.unwrap());
        }
        test(volume, inodes).await;
    });
}

pub async fn open(world: &Rc<dyn World>, disk: &MemoryDisk) -> ext4::Result<Rc<Volume>> {
    open_in(world, disk, DataMode::Ordered).await
}

pub async fn open_in(
    world: &Rc<dyn World>,
    disk: &MemoryDisk,
    data: DataMode,
) -> ext4::Result<Rc<Volume>> {
    open_volume(world, disk, None, in_mode(data)).await
}
