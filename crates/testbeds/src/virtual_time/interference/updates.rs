//! A writer that changes a block of each of several files and syncs.

use super::sequential_file::mapped_file;
use super::{Scene, Waits, tenant};
use device::World;
use ext4::{Caller, Error, Inode, SyncWhat, Volume, WriteFlags};
use runtime::{SplitMix, spawn_with_result};
use std::rc::Rc;
use std::time::Duration;

const FILE: u64 = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Updates {
    /// Updates per second; a sync follows each [`Updates::FILES`] updates.
    pub per_second: u32,
    /// Bytes of an update, at most a block.
    pub bytes: usize,
    pub order: HomeOrder,
    /// Whether committed blocks are home before a sync returns. So does sync(2) of Linux where the
    /// journal is ext3's own. Committed blocks are dirty ones of the device, and it ends with
    /// writing these (`__sync_blockdev`). With data journaling, Linux writes the data with the next
    /// sync.
    pub home_with_sync: bool,
}

/// Order in which unlogged data is written home: `ordered` alone has such.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HomeOrder {
    /// Written with the commit, all files together, sorted by place: as the engine does.
    ByPlace,
    /// Written before the commit, one file after the other in the order in which they were written;
    /// all issued at once. So does sync(2) of Linux 3.4.
    ByFile,
    /// Written as by `ByFile`, but a file waits until the one before is home.
    ByFileInTurn,
}

impl Updates {
    /// Number of files, each in a directory of its own, so that they lie all over the disk.
    pub const FILES: u32 = 20;

    pub(super) async fn make(self, volume: &Rc<Volume>) -> Result<Vec<Rc<Inode>>, Error> {
        let mut files = Vec::new();
        for number in 0..Updates::FILES {
            let directory = tenant(volume, number).await?;
            let file = mapped_file(volume, &directory, b"file", FILE).await?;
            // Blocks that are written in part need not be read first.
            volume.read(&file, 0, FILE as usize).await?;
            files.push(file);
        }
        Ok(files)
    }

    pub(super) async fn play(self, scene: &Scene, files: &[Rc<Inode>]) -> Result<Waits, Error> {
        let Scene { world, volume, end, seed } = scene;
        let period = Duration::from_secs(1) * Updates::FILES / self.per_second;
        let rng = SplitMix::new(*seed);
        let (mut count, mut waited) = (0, Duration::ZERO);
        let mut due = world.now().plus(period);
        while due < *end {
            world.sleep_until(due).await;
            for file in files {
                let at =
                    rng.next() % (FILE / 4096) * 4096 + rng.next() % (4097 - self.bytes as u64);
                let bytes = vec![rng.next() as u8; self.bytes];
                volume.write(file, &Caller::ROOT, at, &bytes, WriteFlags::default()).await?;
            }
            let begun = world.now();
            self.send_home(scene, files).await?;
            volume.sync().await?;
            if self.home_with_sync {
                volume.engine().write_back_committed().await?;
            }
            waited += world.now().since(begun);
            count += 1;
            // A writer that is late does not make up for it.
            due = due.plus(period).max(world.now());
        }
        Ok(Waits { count, mean_ms: waited.as_secs_f64() * 1e3 / count.max(1) as f64 })
    }

    async fn send_home(self, scene: &Scene, files: &[Rc<Inode>]) -> Result<(), Error> {
        if self.order == HomeOrder::ByPlace {
            return Ok(());
        }
        let mut under_way = Vec::new();
        for file in files {
            let (volume, file) = (scene.volume.clone(), file.clone());
            let sent = async move { volume.sync_file(&file, SyncWhat::Data).await };
            let sent = spawn_with_result(&scene.world, sent);
            match self.order {
                HomeOrder::ByFileInTurn => sent.await.expect("it runs to its end")?,
                _ => under_way.push(sent),
            }
        }
        for sent in under_way {
            sent.await.expect("it runs to its end")?;
        }
        Ok(())
    }
}
