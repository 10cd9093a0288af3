//! Data that an earlier mount left in the disk's cache is durable before the first sync of the
//! next.

use crate::image::{open as open_volume, with_engine};
use crate::volume::image::{EXT4, EXT4_1K, Kind, TestImage};
use device::World;
use disks::{CrashPolicy, MemoryDisk};
use engine::{BarrierKind, DataMode, EngineOptions};
use ext4::{Access, Caller, Inode, SyncWhat, Volume, WriteFlags};
use std::rc::Rc;
use units::InodeNumber;

const ROOT: InodeNumber = InodeNumber(2);
const PLAIN: Kind = Kind { arguments: "-t ext4 -O ^has_journal", size: "16M" };
const BLOCK: usize = 4096;

/// A volume and its disk, through several lives.
struct Lives {
    world: Rc<dyn World>,
    disk: MemoryDisk,
    data: DataMode,
}

impl Lives {
    async fn begin(&self, barrier: BarrierKind, access: Access) -> Rc<Volume> {
        let engine = EngineOptions { data: self.data, barrier, ..EngineOptions::default() };
        let mut options = with_engine(engine);
        options.access = access;
        open_volume(&self.world, &self.disk, None, options).await.unwrap()
    }
    /// Begins a life that keeps barriers; one of two ways leads over a read-only mount.
    async fn begin_flushing(&self, remounts: bool) -> Rc<Volume> {
        let access = if remounts { Access::ReadOnly } else { Access::ReadWrite };
        let volume = self.begin(BarrierKind::Flush, access).await;
        volume.allow_changes().await.unwrap();
        volume
    }
    fn lose_power(&mut self) {
        let left = self.disk.crash(CrashPolicy::LoseAll);
        self.disk = MemoryDisk::from_image(self.world.clone(), left);
    }
}

async fn find(volume: &Rc<Volume>, name: &[u8]) -> Rc<Inode> {
    let root = volume.inode(ROOT).await.unwrap();
    volume.lookup(&root, name).await.unwrap()
}
async fn content(volume: &Rc<Volume>, name: &[u8]) -> Vec<u8> {
    let file = find(volume, name).await;
    volume.read(&file, 0, BLOCK).await.unwrap().to_vec()
}

async fn write(volume: &Rc<Volume>, file: &Rc<Inode>, bytes: &[u8]) {
    volume.write(file, &Caller::ROOT, 0, bytes, WriteFlags::default()).await.unwrap();
}

async fn make(volume: &Rc<Volume>, name: &[u8], bytes: &[u8]) {
    let root = volume.inode(ROOT).await.unwrap();
    let file = volume.mknod(&root, name, &Caller::ROOT, 0o100_644, 0).await.unwrap().value;
    write(volume, &file, bytes).await;
    volume.sync().await.unwrap();
}

fn in_lives(kind: Kind, data: DataMode, play: impl AsyncFn(&mut Lives) + 'static) {
    let image = TestImage::of(kind);
    let (virtual_world, world, disk) = image.world(1);
    virtual_world.run(async move { play(&mut Lives { world, disk, data }).await });
}

/// The journal's superblock on the medium would say that the log holds transactions, and what they
/// replay would be older than what was synced.
#[test]
fn a_log_emptied_without_barriers_brings_nothing_old_back() {
    for (kind, remounts) in [(EXT4, false), (EXT4, true), (EXT4_1K, false)] {
        in_lives(kind, DataMode::Selective, async move |lives| {
            let volume = lives.begin(BarrierKind::Flush, Access::ReadWrite).await;
            make(&volume, b"file", &[1; BLOCK]).await;
            volume.close().await.unwrap();

            let volume = lives.begin(BarrierKind::None, Access::ReadWrite).await;
            // Short enough for the log.
            write(&volume, &find(&volume, b"file").await, &[2; 100]).await;
            volume.sync().await.unwrap();
            volume.close().await.unwrap();

            let volume = lives.begin_flushing(remounts).await;
            let file = find(&volume, b"file").await;
            write(&volume, &file, &[3; BLOCK]).await;
            volume.sync_file(&file, SyncWhat::Data).await.unwrap();
            lives.lose_power();

            let volume = lives.begin(BarrierKind::Flush, Access::ReadWrite).await;
            assert!(content(&volume, b"file").await == [3; BLOCK], "{kind:?}, {remounts}");
        });
    }
}

/// Follows a database that syncs all its files when it starts after a crash of the program.
#[test]
fn a_sync_covers_what_a_killed_mount_had_only_written() {
    for (kind, remounts) in [(PLAIN, false), (PLAIN, true), (EXT4, false)] {
        in_lives(kind, DataMode::Ordered, async move |lives| {
            // Killed between its writes and their flush.
            let volume = lives.begin(BarrierKind::None, Access::ReadWrite).await;
            make(&volume, b"file", &[1; BLOCK]).await;
            drop(volume);

            let volume = lives.begin_flushing(remounts).await;
            let file = find(&volume, b"file").await;
            volume.sync_file(&file, SyncWhat::All).await.unwrap();
            lives.lose_power();

            let volume = lives.begin(BarrierKind::Flush, Access::ReadWrite).await;
            assert!(content(&volume, b"file").await == [1; BLOCK], "{kind:?}, {remounts}");
        });
    }
}
