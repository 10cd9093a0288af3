//! An unreliable wall clock.

use crate::files::image::{EXT4, TestImage, open};
use device::{LocalFuture, World};
use ext4::{Caller, SyncWhat, WriteFlags};
use runtime::VirtualWorld;
use std::cell::Cell;
use std::rc::Rc;
use units::{Instant, Timestamp};

/// Leaps back by days whenever it is looked at, to before 1970 and on.
struct BackwardClock {
    world: VirtualWorld,
    seconds: Cell<i64>,
}

impl World for BackwardClock {
    fn now(&self) -> Instant {
        self.world.now()
    }
    fn wall_clock(&self) -> Timestamp {
        self.seconds.set(self.seconds.get() - 1_000_000);
        Timestamp { seconds: self.seconds.get(), nanoseconds: 0 }
    }
    fn sleep_until(&self, at: Instant) -> LocalFuture<()> {
        self.world.sleep_until(at)
    }
    fn spawn(&self, task: LocalFuture<()>) {
        self.world.spawn(task);
    }
    fn random(&self) -> u64 {
        self.world.random()
    }
}

#[test]
fn a_clock_that_goes_backwards_harms_nothing() {
    let image = TestImage::of_files(EXT4, "32M", 1);
    let number = image.inode(0);
    let virtual_world = VirtualWorld::new(1);
    let seconds = Cell::new(1_000_000_000);
    let world: Rc<dyn World> = Rc::new(BackwardClock { world: virtual_world.clone(), seconds });
    let disk = image.disk(&world);
    let home = disk.clone();
    virtual_world.run(async move {
        for round in 0..3u64 {
            let volume = open(&world, &home).await.unwrap();
            let file = volume.inode(number).await.unwrap();
            let mut last = i64::MAX;
            for step in 0..500u64 {
                let place = (round * 500 + step) * 8;
                let bytes = place.to_le_bytes();
                volume
                    .write(&file, &Caller::ROOT, place, &bytes, WriteFlags::default())
                    .await
                    .unwrap();
                let modified = volume.getattr(&file).modified.seconds;
                assert!(modified <= last, "the clock's word is taken as it is");
                last = modified;
                if step % 10 == 0 {
                    volume.sync_file(&file, SyncWhat::All).await.unwrap();
                }
            }
            for place in (0..(round + 1) * 4000).step_by(8) {
                assert_eq!(
                    volume.read(&file, place, 8).await.unwrap().to_vec(),
                    place.to_le_bytes()
                );
            }
            volume.close().await.unwrap();
        }
    });
    disk.write_image(&image.path()).unwrap();
    image.check();
}
