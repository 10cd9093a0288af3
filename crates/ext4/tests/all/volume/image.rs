//! Volumes of many kinds.

use crate::image::{open as open_volume, with_engine};
use device::{Disk, World};
use disks::MemoryDisk;
use engine::EngineOptions;
use ext4::{Access, Result, Volume, VolumeOptions};
use std::rc::Rc;

pub use crate::image::TestImage;

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
    kind(
        "-t ext4 -O ^resize_inode,meta_bg,metadata_csum_seed,sparse_super2 -b 1024 -g 1024",
        "24M",
    ),
    MANY_GROUPS,
];

impl TestImage {
    pub fn of(kind: Kind) -> TestImage {
        TestImage::make(&kind.arguments.split(' ').collect::<Vec<_>>(), kind.size)
    }
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
    let options = VolumeOptions { access, ..with_engine(EngineOptions::default()) };
    open_volume(world, disk, journal, options).await
}

pub fn with_volume<F: Future<Output = ()> + 'static>(
    image: &TestImage,
    seed: u64,
    test: impl FnOnce(Rc<Volume>) -> F + 'static,
) {
    image.play(seed, with_engine(EngineOptions::default()), test);
}
