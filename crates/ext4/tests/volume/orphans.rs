//! Orphans across a crash.

use crate::allocation::create;
use crate::image::{ALL, TestImage, open, with_volume};
use device::World;
use ext4::Access;
use runtime::{SplitMix, VirtualWorld};
use std::rc::Rc;
use units::InodeNumber;

#[test]
fn orphans_left_by_a_crash_are_freed_at_the_next_opening() {
    for (index, kind) in ALL.into_iter().enumerate() {
        let seed = index as u64;
        println!("{kind:?} seed {seed}");
        let image = TestImage::make(kind);
        let before = image.dumpe2fs();
        let virtual_world = VirtualWorld::new(seed);
        let world: Rc<dyn World> = Rc::new(virtual_world.clone());
        let disk = image.disk(&world);
        let home = disk.clone();
        let left = virtual_world.run(async move {
            let volume = open(&world, &home, Access::ReadWrite).await.unwrap();
            let left = make_and_free_some(&volume, seed).await;
            volume.sync().await.unwrap();
            left
        });
        // No close: the image is what a crash leaves.
        disk.write_image(&image.path()).unwrap();
        with_volume(&image, seed, move |volume| async move {
            assert_eq!(volume.open_report().orphans.freed, left);
            assert_eq!(volume.open_report().orphans.damaged, 0);
        });
        let free =
            |text: &str| text.lines().find(|line| line.starts_with("Free inodes:")).unwrap().to_owned();
        assert_eq!(free(&before), free(&image.dumpe2fs()), "{kind:?}");
    }
}

/// Makes orphans and frees some from the midst; tells how many are left.
async fn make_and_free_some(volume: &Rc<ext4::Volume>, seed: u64) -> u32 {
    let dice = SplitMix::new(seed);
    let root = volume.inode(InodeNumber(2)).await.unwrap();
    let mut orphans = Vec::new();
    for _ in 0..40 {
        orphans.push(create(volume, &root, 0o100_600).await.unwrap());
        if dice.next().is_multiple_of(3) {
            let inode = orphans.swap_remove(dice.next() as usize % orphans.len());
            volume.free_if_unused(&inode).await.unwrap();
        }
    }
    orphans.len() as u32
}

#[test]
fn orphans_still_open_at_unmount_are_freed() {
    for kind in ALL {
        let image = TestImage::make(kind);
        with_volume(&image, 3, |volume| async move {
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            for _ in 0..5 {
                let inode = create(&volume, &root, 0o100_600).await.unwrap();
                volume.opened(&inode);
                volume.remember(&inode);
            }
        });
    }
}
