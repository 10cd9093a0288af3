//! Power cuts: content on the medium stays, the sector under the head is torn, the cache is lost.

use super::EmulatedDisk;
use crate::SECTOR;
use crate::run::Direction;
use disks::Image;
use std::collections::BTreeSet;

/// Content of a drive after a power cut.
#[derive(Clone, Debug)]
pub struct CrashImage {
    /// The content, in which the torn sector has half of each version.
    pub image: Image,
    /// Sectors that give EIO until they are written again.
    pub unreadable: BTreeSet<u64>,
}

impl CrashImage {
    /// An image whose sectors are all readable.
    pub fn whole(image: Image) -> CrashImage {
        CrashImage { image, unreadable: BTreeSet::new() }
    }
}

impl EmulatedDisk {
    /// Returns all bytes as reads would return them now.
    pub fn image(&self) -> Image {
        let mut image = self.0.image.borrow().clone();
        self.0.cache.borrow().contents(0..u64::MAX).for_each(|piece| piece.write_to(&mut image));
        image
    }

    /// The content after a power cut now, or at the time of [`EmulatedDisk::power_off`]. The drive
    /// continues.
    pub fn crash(&self) -> CrashImage {
        let now = self.0.off_at.get().unwrap_or(self.0.world.now()).0;
        let mut left = CrashImage {
            image: self.0.image.borrow().clone(),
            unreadable: self.0.unreadable.borrow().clone(),
        };
        let in_service = self.0.in_service.borrow();
        for service in in_service.iter().filter(|service| service.direction == Direction::Write) {
            for run in &service.runs {
                let reached = run.sector + run.done(now);
                for piece in
                    service.pieces.iter().filter_map(|piece| piece.within(&(run.sector..reached)))
                {
                    piece.write_to(&mut left.image);
                    piece.sectors.clone().for_each(|sector| {
                        left.unreadable.remove(&sector);
                    });
                }
                let is_under_head = run.start_ns + (reached - run.sector) as f64 * run.each_ns
                    < now as f64
                    && reached < run.sector + run.count;
                let torn =
                    service.pieces.iter().find_map(|piece| piece.within(&(reached..reached + 1)));
                if let Some(piece) = torn.filter(|_| is_under_head) {
                    left.image.write(reached * SECTOR, &piece.bytes()[..SECTOR as usize / 2]);
                    left.unreadable.extend(self.0.model.physical(&(reached..reached + 1)));
                }
            }
        }
        left
    }

    /// Cuts the power now: no operation completes any more.
    pub fn power_off(&self) {
        if self.0.off_at.get().is_none() {
            self.0.off_at.set(Some(self.0.world.now()));
        }
    }
    pub fn is_off(&self) -> bool {
        self.0.off_at.get().is_some()
    }
    pub(super) async fn hang_if_off(&self) {
        if self.is_off() {
            std::future::pending::<()>().await;
        }
    }
}
