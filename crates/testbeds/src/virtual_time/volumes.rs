//! Fresh volumes, made by the real mke2fs; flush zones, made as `okeanos mkfs --flush-zone` makes
//! them.

use crate::virtual_time::error::StageError;
use crate::virtual_time::options::{LogSizes, StageOptions, VolumeLayout};
use disks::{Image, MemoryDisk};
use eviction::{EvictionWorkload, FlushZone};
use ext4::{Caller, OpenParts, Volume, VolumeOptions};
use runtime::VirtualWorld;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use units::InodeNumber;
use volume_images::{ImageRequest, Images, Journal};

/// Number of cached volumes.
const MADE_MAX: usize = 2;

thread_local! {
    /// Cache of the last volumes that were made, and their parameters: mke2fs takes seconds for one
    /// as large as the papers'.
    static MADE: RefCell<VecDeque<(String, Images)>> = const { RefCell::new(VecDeque::new()) };
}

pub(crate) fn make(options: &StageOptions, size: u64) -> Result<Images, StageError> {
    let mebibytes = format!("size={}", options.journal_size >> 20);
    let mut mke2fs: Vec<&str> = match options.layout {
        VolumeLayout::Ext3Paper => vec!["-t", "ext3", "-I", "128"],
        VolumeLayout::Ext4 => vec!["-t", "ext4"],
    };
    let journal = match &options.journal {
        Some(_) => Journal::Outside { size: options.journal_size },
        None => {
            mke2fs.extend(["-J", &mebibytes]);
            Journal::Inside
        }
    };
    let block_size = options.block_size.into();
    let request = &ImageRequest { options: &mke2fs, block_size, size, journal, stale: None };
    let directory_seed = options.directory.then_some(options.seed);
    let name = format!("{request:?} {:?} {:?} {directory_seed:?}", options.eviction, options.logs);
    let known = |made: &VecDeque<(String, Images)>| {
        made.iter().find(|it| it.0 == name).map(|it| it.1.clone())
    };
    if let Some(images) = MADE.with_borrow(known) {
        return Ok(images);
    }
    let mut images = volume_images::make(request)?;
    if let Some(workload) = options.eviction {
        images.home = with_flush_zone(images.home, workload)?;
    }
    if let Some(LogSizes { log, group }) = options.logs {
        let make =
            async move |volume: Rc<Volume>| volume.make_scattered_logs(log, group).await.map(drop);
        images.home = changed(images.home, 0, make)?;
    }
    if let Some(seed) = directory_seed {
        images.home = with_directory(images.home, seed)?;
    }
    MADE.with_borrow_mut(|made| {
        made.push_front((name, images.clone()));
        made.truncate(MADE_MAX);
    });
    Ok(images)
}

fn with_flush_zone(home: Image, workload: EvictionWorkload) -> Result<Image, ext4::Error> {
    changed(home, 0, async move |volume| {
        let block = volume.block_size().bytes() as u32;
        let (room, write) = (FlushZone::size(&workload, block), workload.write_size(block));
        volume.make_flush_zone(workload.superblock(), room, write).await
    })
}

/// Name of a stage's directory of its own.
pub(crate) const DIRECTORY: &str = "work";

fn with_directory(home: Image, seed: u64) -> Result<Image, ext4::Error> {
    changed(home, seed, async move |volume| {
        let root = volume.inode(InodeNumber(2)).await?;
        volume.mkdir(&root, DIRECTORY.as_bytes(), &Caller::ROOT, 0o755).await.map(drop)
    })
}

/// Changes the volume, in no time of the stage's world.
fn changed(
    home: Image,
    seed: u64,
    change: impl AsyncFnOnce(Rc<Volume>) -> Result<(), ext4::Error> + 'static,
) -> Result<Image, ext4::Error> {
    let world = VirtualWorld::new(seed);
    let disk = MemoryDisk::from_image(Rc::new(world.clone()), home);
    let parts = OpenParts {
        world: Rc::new(world.clone()),
        home: Rc::new(disk.clone()),
        journal: None,
        options: VolumeOptions::default(),
    };
    let made = world.run(async move {
        let volume = Volume::open(parts).await?;
        change(volume.clone()).await?;
        volume.close().await
    });
    world.end();
    made.map(|()| disk.image())
}
