//! Power cuts: what reached the medium stays, the sector under the head is torn, the cache is lost.

use super::EmulatedDisk;
use crate::SECTOR;
use crate::run::Direction;
use disks::Image;
use std::collections::BTreeSet;

/// What a drive holds after its power failed.
#[derive(Clone, Debug)]
pub struct CrashImage {
    /// The torn sector holds half of each content here.
    pub image: Image,
    /// Sectors that give EIO until they are written again.
    pub unreadable: BTreeSet<u64>,
}

impl CrashImage {
    /// All sectors are readable.
    pub fn whole(image: Image) -> CrashImage {
        CrashImage { image, unreadable: BTreeSet::new() }
    }
}

impl EmulatedDisk {
    /// All bytes as reads would give them now.
    pub fn image(&self) -> Image {
        let mut image = self.0.image.borrow().clone();
        self.0.cache.borrow().contents(0..u64::MAX).for_each(|piece| piece.write_to(&mut image));
        image
    }

    /// What the drive would hold if its power failed now, or since [`EmulatedDisk::power_off`]. The
    /// drive goes on.
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
