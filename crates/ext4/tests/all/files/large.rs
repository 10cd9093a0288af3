//! Deep trees, far offsets, full volumes.

use crate::files::image::{
    EXT3, EXT3_1K, EXT4, EXT4_1K, Kind, TestImage, open, with_volume, with_volume_in,
};
use engine::DataMode;
use ext4::{Caller, Inode, RangeMode, SeekWhat, Volume, WriteFlags};
use format::ext4::extent::ExtentNode;
use std::cell::Cell;
use std::rc::Rc;
use units::FileBlock;
use units::Refusal;

async fn write(volume: &Rc<Volume>, inode: &Rc<Inode>, offset: u64, bytes: &[u8]) {
    let written =
        volume.write(inode, &Caller::ROOT, offset, bytes, WriteFlags::default()).await.unwrap();
    assert_eq!(written.count, bytes.len());
}

fn depth(inode: &Inode) -> u16 {
    ExtentNode::parse(&inode.fields.borrow().block).unwrap().depth()
}

/// Bytes that identify their position.
fn mark(place: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&place.to_le_bytes());
    bytes[8..].copy_from_slice(&(!place).to_le_bytes());
    bytes
}

/// Returns every other block of `count`, in an order that jumps about.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    // 7919 is prime and no divisor of any count used here: every place comes once.
    (0..count).map(move |index| index * 7919 % count * 2)
}

#[test]
fn tens_of_thousands_of_scattered_extents_are_found_and_freed() {
    const COUNT: u64 = 30_000;
    let image = TestImage::of_files(EXT4_1K, "64M", 1);
    with_volume(&image, 1, |volume, inodes| async move {
        for place in scattered(COUNT) {
            write(&volume, &inodes[0], place * 1024, &mark(place)).await;
        }
        assert_eq!(depth(&inodes[0]), 3, "a tree as deep as the test wants");
    });
    image.check();
    with_volume(&image, 2, |volume, inodes| async move {
        for place in 0..COUNT {
            let found = volume.read(&inodes[0], place * 2048, 16).await.unwrap().to_vec();
            assert_eq!(found, mark(place * 2));
        }
        let listed = volume
            .extents(&inodes[0], FileBlock(0), FileBlock(u32::MAX), usize::MAX)
            .await
            .unwrap();
        assert_eq!(listed.len() as u64, COUNT);
        // Every third of the rest of the blocks, then a large hole, then all.
        for place in (0..COUNT).step_by(3) {
            let hole = (place * 2048, 1024);
            let mode = RangeMode::PunchHole;
            volume.fallocate(&inodes[0], &Caller::ROOT, mode, true, hole.0, hole.1).await.unwrap();
        }
    });
    with_volume(&image, 3, |volume, inodes| async move {
        let found = volume.read(&inodes[0], 2048, 16).await.unwrap().to_vec();
        assert_eq!(found, mark(2));
        volume.truncate(&inodes[0], 2048 * 10_000).await.unwrap();
    });
    with_volume(&image, 4, |volume, inodes| async move {
        volume.truncate(&inodes[0], 0).await.unwrap();
        assert_eq!((inodes[0].fields.borrow().sectors, depth(&inodes[0])), (0, 0));
    });
}

#[test]
fn unwritten_space_is_written_piece_by_piece() {
    const BLOCKS: u64 = 4000;
    let image = TestImage::of_files(EXT4_1K, "64M", 1);
    with_volume(&image, 1, |volume, inodes| async move {
        let mode = RangeMode::Allocate;
        volume.fallocate(&inodes[0], &Caller::ROOT, mode, false, 0, BLOCKS * 1024).await.unwrap();
        let sectors = inodes[0].fields.borrow().sectors;
        assert_eq!(sectors, BLOCKS * 2, "space for all blocks");
        for place in scattered(BLOCKS / 2) {
            write(&volume, &inodes[0], place * 1024 + 100, &mark(place)).await;
        }
        assert!(depth(&inodes[0]) >= 2);
        for place in 0..BLOCKS {
            let found = volume.read(&inodes[0], place * 1024, 1024).await.unwrap().to_vec();
            let mut expected = vec![0; 1024];
            if place % 2 == 0 {
                expected[100..116].copy_from_slice(&mark(place));
            }
            assert_eq!(found, expected, "block {place}");
        }
        for place in scattered(BLOCKS / 2) {
            write(&volume, &inodes[0], (place + 1) * 1024, &mark(place + 1)).await;
        }
        let sectors = inodes[0].fields.borrow().sectors - sectors;
        assert!(sectors < 200, "only the tree took space, {sectors} sectors");
    });
}

fn far_offsets(kind: Kind, offsets: &'static [u64]) {
    let image = TestImage::of_files(kind, "64M", 1);
    with_volume(&image, 1, move |volume, inodes| async move {
        for &offset in offsets {
            write(&volume, &inodes[0], offset - 8, &mark(offset)).await;
        }
    });
    with_volume(&image, 2, move |volume, inodes| async move {
        assert_eq!(inodes[0].fields.borrow().size, offsets.iter().max().unwrap() + 8);
        for &offset in offsets {
            assert_eq!(
                volume.read(&inodes[0], offset - 8, 16).await.unwrap().to_vec(),
                mark(offset)
            );
        }
        let mut sorted = offsets.to_vec();
        sorted.sort();
        for pair in sorted.windows(2) {
            let hole = volume.seek(&inodes[0], pair[0], SeekWhat::Hole).await.unwrap();
            let data = volume.seek(&inodes[0], hole, SeekWhat::Data).await.unwrap();
            assert!(
                hole > pair[0] && data <= pair[1] - 8 && data + 131_072 > pair[1],
                "{hole} {data} {pair:?}"
            );
        }
        volume.truncate(&inodes[0], 0).await.unwrap();
        assert_eq!(inodes[0].fields.borrow().sectors, 0);
    });
}

#[test]
fn files_beyond_four_gibibytes_are_sparse_and_whole() {
    far_offsets(EXT4, &[5 << 30, 1 << 20, 10 << 40, 4 << 30, (16 << 40) - 65_536, 3 << 35]);
}

#[test]
fn pointers_reach_through_all_three_trees() {
    // 1 KiB blocks: direct to 12 KiB, single to 268 KiB, double to 64.3 MiB, triple to 16 GiB.
    far_offsets(EXT3_1K, &[4096, 12 << 10, 268 << 10, 200 << 20, 65_804 << 10, 16 << 30, 1 << 20]);
    far_offsets(EXT3, &[20_480, 49_152, 5 << 30, (12 + 1024) * 4096, 1 << 40]);
}

#[test]
fn a_write_beyond_the_largest_file_is_refused() {
    for (kind, limit) in
        [(EXT3_1K, ((12 + 256 + 65_536 + 16_777_216) * 1024)), (EXT4_1K, 0xffff_ffff * 1024)]
    {
        let image = TestImage::of_files(kind, "16M", 1);
        with_volume(&image, 1, move |volume, inodes| async move {
            let flags = WriteFlags::default();
            let written = volume
                .write(&inodes[0], &Caller::ROOT, limit - 10, &[1; 100], flags)
                .await
                .unwrap();
            assert_eq!(written.count, 10);
            let refused = volume.write(&inodes[0], &Caller::ROOT, limit, &[1; 100], flags).await;
            assert_eq!(refused.unwrap_err().refusal(), Some(Refusal::FileTooLarge));
            assert_eq!(
                volume.truncate(&inodes[0], limit + 1).await.unwrap_err().refusal(),
                Some(Refusal::FileTooLarge)
            );
            volume.truncate(&inodes[0], 0).await.unwrap();
        });
    }
}

#[test]
fn a_full_volume_takes_what_fits_and_gives_all_back() {
    for kind in [EXT4_1K, EXT3_1K] {
        let image = TestImage::of_files(kind, "8M", 2);
        with_volume(&image, 1, |volume, inodes| async move {
            let chunk = vec![7; 300_000];
            let (mut size, flags) = (0, WriteFlags::default());
            let error = loop {
                match volume.write(&inodes[0], &Caller::ROOT, size, &chunk, flags).await {
                    Ok(written) => size += written.count as u64,
                    Err(error) => break error,
                }
            };
            assert_eq!(error.refusal(), Some(Refusal::NoSpace));
            assert_eq!(inodes[0].fields.borrow().size, size);
            assert!(size > 2_000_000, "{size} bytes fitted");
            assert!(
                volume
                    .read(&inodes[0], 0, usize::MAX)
                    .await
                    .unwrap()
                    .to_vec()
                    .iter()
                    .all(|byte| *byte == 7)
            );
            volume.truncate(&inodes[0], 10).await.unwrap();
            // What was just freed can be used at once, by a commit.
            let written = volume
                .write(&inodes[1], &Caller::ROOT, 0, &vec![8; 1_000_000], flags)
                .await
                .unwrap();
            assert_eq!(written.count, 1_000_000);
        });
    }
}

#[test]
fn a_truncate_cut_off_after_its_first_step_is_finished_by_the_next_mount() {
    for kind in [EXT4, EXT3_1K] {
        let image = TestImage::of_files(kind, "16M", 1);
        let (virtual_world, world, disk) = image.world(1);
        let number = image.inode(0);
        let home = disk.clone();
        virtual_world.run(async move {
            let volume = open(&world, &home).await.unwrap();
            let inode = volume.inode(number).await.unwrap();
            write(&volume, &inode, 0, &[5; 500_000]).await;
            // What the first handle of a long truncate leaves: the new size, and an orphan.
            let credits = volume.credits_orphan() + volume.credits_inode();
            let mut handle = volume.engine().start(credits).await.unwrap();
            inode.fields.borrow_mut().size = 100_000;
            volume.orphan_add(&mut handle, &inode);
            volume.store(&mut handle, &inode).await.unwrap();
            handle.stop();
            volume.close().await.unwrap();
        });
        disk.write_image(&image.path()).unwrap();
        with_volume(&image, 2, |volume, inodes| async move {
            let after = volume.getattr(&inodes[0]);
            assert_eq!(after.size, 100_000);
            assert!((196..212).contains(&after.sectors), "{} sectors", after.sectors);
            assert_eq!(
                volume.read(&inodes[0], 0, usize::MAX).await.unwrap().to_vec(),
                vec![5; 100_000]
            );
        });
    }
}

/// The log has records of all blocks of one extent: each is revoked when it is freed. A hole is cut
/// first, and the blocks behind it stay.
#[test]
fn a_file_with_a_record_of_each_block_is_freed_in_steps() {
    for (kind, mode) in
        [(EXT4, DataMode::Journal), (EXT4_1K, DataMode::Wasteless), (EXT3_1K, DataMode::Journal)]
    {
        let image = TestImage::of_files(kind, "64M", 1);
        with_volume_in(mode, &image, 1, |volume, inodes| async move {
            let block = volume.block_size().bytes() as u64;
            let bytes: Vec<u8> = (0..3000 * block).map(|at| (at / block) as u8 | 1).collect();
            for at in (0..bytes.len()).step_by(256 << 10) {
                let piece = &bytes[at..bytes.len().min(at + (256 << 10))];
                write(&volume, &inodes[0], at as u64, piece).await;
            }
            volume.sync().await.unwrap();
            let hole = (10 * block, 2000 * block);
            let mode = RangeMode::PunchHole;
            volume.fallocate(&inodes[0], &Caller::ROOT, mode, true, hole.0, hole.1).await.unwrap();
            let found = volume.read(&inodes[0], 0, bytes.len()).await.unwrap().to_vec();
            let hole = hole.0 as usize..(hole.0 + hole.1) as usize;
            assert!(found[hole.clone()].iter().all(|byte| *byte == 0));
            assert_eq!(
                (&found[..hole.start], &found[hole.end..]),
                (&bytes[..hole.start], &bytes[hole.end..])
            );
            volume.truncate(&inodes[0], 5 * block).await.unwrap();
            volume.sync().await.unwrap();
            assert_eq!(inodes[0].fields.borrow().sectors, 5 * (block / 512));
        });
        image.check();
    }
}

/// Others run between the pieces of a removal, and of an allocation.
#[test]
fn a_file_of_many_extents_is_freed_in_many_steps() {
    const EXTENTS: u64 = 1500;
    let image = TestImage::of_files(EXT4_1K, "64M", 1);
    with_volume(&image, 1, |volume, inodes| async move {
        for place in scattered(EXTENTS) {
            write(&volume, &inodes[0], place * 2048, &mark(place)).await;
        }
        volume.sync().await.unwrap();
        let steps = Rc::new(Cell::new(0));
        let (counted, world) = (steps.clone(), volume.engine().world().clone());
        // As many steps as the other task lets it take, and no more than time allows.
        world.spawn(Box::pin(async move {
            for step in 0..EXTENTS {
                runtime::yield_now().await;
                counted.set(step);
            }
        }));
        volume.truncate(&inodes[0], 0).await.unwrap();
        assert!(steps.get() > EXTENTS / 4, "{} steps of another task", steps.get());
    });
}

/// Space for a large file, its removal, and a hole in it: no step of a task takes the processor
/// for long. Each took seconds, in one step, when each block was visited.
#[test]
fn two_hundred_gibibytes_come_and_go_in_short_steps() {
    const SIZE: u64 = 200 << 30;
    const ARGUMENTS: &[&str] =
        &["-t", "ext4", "-b", "4096", "-J", "size=16", "-N", "65536", "-E", "lazy_itable_init=1"];
    let image = TestImage::of_files(Kind { arguments: ARGUMENTS, ..EXT4 }, "420G", 2);
    with_volume(&image, 1, |volume, inodes| async move {
        for inode in &inodes {
            let mode = RangeMode::Allocate;
            volume.fallocate(inode, &Caller::ROOT, mode, false, 0, SIZE).await.unwrap();
        }
        volume.sync().await.unwrap();
        let mode = RangeMode::PunchHole;
        volume.fallocate(&inodes[0], &Caller::ROOT, mode, true, 4096, SIZE / 2).await.unwrap();
        volume.truncate(&inodes[1], 0).await.unwrap();
        volume.sync().await.unwrap();
        let long = volume.engine().world().long_steps();
        let longest = long.first().map_or(std::time::Duration::ZERO, |steps| steps.longest);
        assert!(longest < std::time::Duration::from_millis(200), "{long:?}");
    });
}

/// The seek reads nothing from the disk, so nothing else would let another task run.
#[test]
fn a_seek_over_many_runs_lets_others_run() {
    const RUNS: u64 = 600;
    let image = TestImage::of_files(EXT4_1K, "16M", 1);
    with_volume(&image, 1, |volume, files| async move {
        let (file, block) = (&files[0], 1024);
        for run in 0..RUNS {
            let (mode, at) = (RangeMode::Allocate, 2 * run * block);
            volume.fallocate(file, &Caller::ROOT, mode, false, at, block).await.unwrap();
        }
        let first = volume.seek(file, 0, SeekWhat::Data).await;
        assert_eq!(first.unwrap_err().refusal(), Some(Refusal::BeyondEnd));
        let other = Rc::new(Cell::new(false));
        let ran = other.clone();
        volume.engine().world().spawn(Box::pin(async move { ran.set(true) }));
        volume.seek(file, 0, SeekWhat::Data).await.unwrap_err();
        assert!(other.get(), "no other task ran");
    });
}
