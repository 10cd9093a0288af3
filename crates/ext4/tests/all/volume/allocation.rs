//! Inodes and blocks, taken and given back.

use crate::image::{play_on, with_engine};
use crate::volume::image::{ALL, EXT3, EXT4, EXT4_1K, MANY_GROUPS, TestImage, with_volume};
use disks::Latency;
use engine::{Contents, Credits, EngineOptions, RecordFormat};
use ext4::{AllocationRequest, Caller, Error, Inode, NewInode, Purpose, Run, Volume, WriteFlags};
use runtime::SplitMix;
use runtime::sync::Event;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use units::Refusal;
use units::{FileBlock, InodeNumber, TransactionId};

pub async fn create(volume: &Rc<Volume>, parent: &Inode, mode: u16) -> ext4::Result<Rc<Inode>> {
    let credits = volume.credits_create_inode() + volume.credits_orphan();
    let mut handle = volume.engine().start(credits).await?;
    let new = NewInode { parent, mode, uid: 0x1_0002, gid: 7, rdev: 0 };
    let inode = volume.create_inode(&mut handle, new).await;
    // Without a name it must not outlive a crash.
    if let Ok(inode) = &inode {
        inode.fields.borrow_mut().links = 0;
        volume.orphan_add(&mut handle, inode);
        volume.store(&mut handle, inode).await?;
    }
    handle.stop();
    inode
}

async fn allocate(
    volume: &Rc<Volume>,
    inode: &Inode,
    at: u32,
    last: Option<Run>,
    count: u32,
) -> ext4::Result<Run> {
    let mut handle = volume.engine().start(volume.credits_allocate(1)).await?;
    let goal = last.map(|run| run.start.plus(run.count.into()));
    let request = AllocationRequest {
        inode,
        goal,
        count,
        at: FileBlock(at),
        purpose: Purpose::Data,
        use_reserve: true,
    };
    let run = volume.allocate_blocks(&mut handle, request).await;
    handle.stop();
    run
}

async fn free(volume: &Rc<Volume>, run: Run) -> TransactionId {
    let credits = volume.credits_free(1, run.count.into());
    let mut handle = volume.engine().start(credits).await.unwrap();
    volume.free_blocks(&mut handle, run.start, run.count.into(), Contents::Data).await.unwrap();
    handle.stop()
}

/// Allocates every free block, in runs.
async fn take_all(volume: &Rc<Volume>, inode: &Inode) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    loop {
        match allocate(volume, inode, 0, runs.last().copied(), 5000).await {
            Ok(run) => runs.push(run),
            Err(Error::Refused(Refusal::NoSpace)) => return runs,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Creates and frees inodes, and takes and gives back their blocks, at random; in the end all is
/// free again.
async fn churn(volume: Rc<Volume>, seed: u64) {
    let random = SplitMix::new(seed);
    let root = volume.inode(InodeNumber(2)).await.unwrap();
    let mut files: Vec<(Rc<Inode>, Vec<Run>)> = Vec::new();
    let mut taken = BTreeSet::new();
    for step in 0..400 {
        let pick = random.next() as usize % files.len().max(1);
        match random.next() % 10 {
            0..3 => {
                let mode = if random.next() % 4 == 0 { 0o040_755 } else { 0o100_644 };
                let inode = create(&volume, &root, mode).await.unwrap();
                assert!(files.iter().all(|(other, _)| other.number != inode.number));
                files.push((inode, Vec::new()));
            }
            3..8 if !files.is_empty() => {
                let (inode, runs) = &mut files[pick];
                let at = runs.iter().map(|run| run.count).sum();
                let count = 1 + (random.next() % 50) as u32;
                let run = match allocate(&volume, inode, at, runs.last().copied(), count).await {
                    Err(Error::Refused(Refusal::NoSpace)) => continue,
                    run => run.unwrap(),
                };
                assert!((1..=count).contains(&run.count));
                for block in 0..u64::from(run.count) {
                    assert!(
                        taken.insert(run.start.plus(block)),
                        "seed {seed} step {step}: given twice"
                    );
                }
                runs.push(run);
            }
            8 if !files.is_empty() => {
                if let Some(run) = files[pick].1.pop() {
                    (0..u64::from(run.count))
                        .for_each(|block| assert!(taken.remove(&run.start.plus(block))));
                    free(&volume, run).await;
                }
            }
            9 if !files.is_empty() => {
                let (inode, runs) = files.swap_remove(pick);
                for run in runs {
                    (0..u64::from(run.count))
                        .for_each(|block| assert!(taken.remove(&run.start.plus(block))));
                    free(&volume, run).await;
                }
                volume.free_if_unused(&inode).await.unwrap();
            }
            _ => volume.sync().await.unwrap(),
        }
    }
    for (inode, runs) in files {
        for run in runs {
            free(&volume, run).await;
        }
        volume.free_if_unused(&inode).await.unwrap();
    }
}

#[test]
fn e2fsck_is_content_after_inodes_and_blocks_were_taken_and_given_back() {
    for kind in ALL {
        let image = TestImage::of(kind);
        for seed in 0..3 {
            println!("{kind:?} seed {seed}");
            let before = image.dumpe2fs();
            with_volume(&image, seed, move |volume| churn(volume, seed));
            let free = |text: &str| {
                let line = text.lines().find(|line| line.starts_with("Free blocks:")).unwrap();
                line.to_owned()
            };
            assert_eq!(free(&before), free(&image.dumpe2fs()));
        }
    }
}

#[test]
fn tasks_that_allocate_at_the_same_time_never_get_the_same() {
    for kind in [EXT4_1K, MANY_GROUPS] {
        let image = TestImage::of(kind);
        for seed in 0..3 {
            println!("{kind:?} seed {seed}");
            with_volume(&image, seed, move |volume| async move {
                let left = Rc::new(Cell::new(6));
                let all_done = Rc::new(Event::default());
                for task in 0..left.get() {
                    let (volume, left, all_done) = (volume.clone(), left.clone(), all_done.clone());
                    volume.engine().world().clone().spawn(Box::pin(async move {
                        // Taking what is taken already would trip the volume's own assertions.
                        churn(volume, seed * 100 + task).await;
                        left.set(left.get() - 1);
                        all_done.notify();
                    }));
                }
                all_done.until(|| (left.get() == 0).then_some(())).await;
            });
        }
    }
}

#[test]
fn files_appended_alternately_are_not_interleaved_block_by_block() {
    let image = TestImage::of(EXT4);
    with_volume(&image, 1, |volume| async move {
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let mut files: Vec<(Rc<Inode>, Vec<Run>)> = Vec::new();
        for _ in 0..100 {
            files.push((create(&volume, &root, 0o100_644).await.unwrap(), Vec::new()));
        }
        for at in 0..32 {
            for (inode, runs) in &mut files {
                let run = allocate(&volume, inode, at, runs.last().copied(), 1).await.unwrap();
                runs.push(run);
            }
        }
        for (_, runs) in &files {
            let extents =
                1 + runs.windows(2).filter(|pair| pair[0].start.plus(1) != pair[1].start).count();
            // Windows of 8, 8 and 16 blocks.
            assert!(extents <= 3, "{extents} extents");
        }
        for (inode, runs) in files {
            for run in runs {
                free(&volume, run).await;
            }
            volume.free_if_unused(&inode).await.unwrap();
        }
    });
}

#[test]
fn a_large_request_gets_contiguous_blocks() {
    let image = TestImage::of(EXT4);
    with_volume(&image, 1, |volume| async move {
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let inode = create(&volume, &root, 0o100_644).await.unwrap();
        let run = allocate(&volume, &inode, 0, None, 2000).await.unwrap();
        assert_eq!(run.count, 2000);
        free(&volume, run).await;
        volume.free_if_unused(&inode).await.unwrap();
    });
}

#[test]
fn freed_blocks_are_not_given_out_before_their_transaction_is_committed() {
    // Without extents nothing is kept for their trees.
    let image = TestImage::of(EXT3);
    with_volume(&image, 1, |volume| async move {
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let inode = create(&volume, &root, 0o100_644).await.unwrap();
        let mut runs = take_all(&volume, &inode).await;
        assert_eq!(volume.statfs().await.unwrap().blocks_free, 0);
        volume.sync().await.unwrap();
        assert!(!volume.retry_allocation(0).await.unwrap(), "nothing was freed");
        let last = runs.pop().unwrap();
        free(&volume, last).await;
        let refused = allocate(&volume, &inode, 0, None, 1).await;
        assert!(matches!(refused, Err(Error::Refused(Refusal::NoSpace))));
        assert!(volume.retry_allocation(0).await.unwrap());
        let again = allocate(&volume, &inode, 0, None, last.count).await.unwrap();
        assert_eq!(again, last);
        for run in runs.into_iter().chain([again]) {
            free(&volume, run).await;
        }
        volume.free_if_unused(&inode).await.unwrap();
    });
}

#[test]
fn blocks_freed_by_a_pending_commit_are_not_allocated() {
    let options = EngineOptions {
        records: Some(RecordFormat::Packed),
        commits_in_flight: 2,
        ..EngineOptions::default()
    };
    let image = TestImage::of(EXT4_1K);
    let slow = Some(Latency { least: Duration::from_micros(100), spread: Duration::ZERO });
    let (left, ()) =
        play_on(image.read(), 1, slow, with_engine(options), |volume, world| async move {
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            let inode = create(&volume, &root, 0o100_644).await.unwrap();
            let mut runs = take_all(&volume, &inode).await;
            volume.sync().await.unwrap();
            let (engine, last) = (volume.engine().clone(), runs.pop().unwrap());
            let freed = free(&volume, last).await;
            let committing = engine.clone();
            let commit =
                runtime::spawn_with_result(&world, async move { committing.commit(freed).await });
            // Until a handle that starts is of the next transaction: the one that freed is in
            // flight.
            while engine.start(Credits(0)).await.unwrap().stop() == freed {
                runtime::yield_now().await;
            }
            assert!(freed.is_after(engine.committed()), "it has arrived already");
            let refused = allocate(&volume, &inode, 0, None, 1).await;
            assert!(matches!(refused, Err(Error::Refused(Refusal::NoSpace))), "{refused:?}");
            commit.await.unwrap().unwrap();
            runs.push(allocate(&volume, &inode, 0, None, last.count).await.unwrap());
            for run in runs {
                free(&volume, run).await;
            }
            volume.free_if_unused(&inode).await.unwrap();
        });
    left.write_file(&image.path()).unwrap();
    image.check();
}

#[test]
fn reserved_blocks_are_kept_for_root() {
    let image = TestImage::of(EXT4);
    with_volume(&image, 1, |volume| async move {
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let inode = create(&volume, &root, 0o100_644).await.unwrap();
        let mut runs: Vec<Run> = Vec::new();
        loop {
            let mut handle = volume.engine().start(volume.credits_allocate(1)).await.unwrap();
            let goal = runs.last().map(|run| run.start.plus(run.count.into()));
            let request = AllocationRequest {
                inode: &inode,
                goal,
                count: 9999,
                at: FileBlock(0),
                purpose: Purpose::Data,
                use_reserve: false,
            };
            let run = volume.allocate_blocks(&mut handle, request).await;
            handle.stop();
            match run {
                Ok(run) => runs.push(run),
                Err(error) => break assert_eq!(error.refusal(), Some(Refusal::NoSpace)),
            }
        }
        let space = volume.statfs().await.unwrap();
        let superblock = volume.superblock();
        // What is kept for extent trees is root's neither.
        let kept = superblock.reserved_blocks + superblock.blocks / 50;
        assert_eq!((space.blocks_available, space.blocks_free), (0, kept));
        assert!(space.blocks_free > 0);
        for run in runs {
            free(&volume, run).await;
        }
        volume.free_if_unused(&inode).await.unwrap();
    });
}

#[test]
fn directories_are_spread_and_files_stay_with_their_directory() {
    let image = TestImage::of(MANY_GROUPS);
    with_volume(&image, 5, |volume| async move {
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let mut made = Vec::new();
        let mut groups = BTreeSet::new();
        for _ in 0..8 {
            let directory = create(&volume, &root, 0o040_755).await.unwrap();
            let file = create(&volume, &directory, 0o100_644).await.unwrap();
            assert_eq!(volume.group_of_inode(directory.number), volume.group_of_inode(file.number));
            groups.insert(volume.group_of_inode(directory.number));
            made.extend([directory, file]);
        }
        assert!(groups.len() >= 6, "{groups:?}");
        for inode in made {
            volume.free_if_unused(&inode).await.unwrap();
        }
    });
}

#[test]
fn every_inode_of_the_volume_can_be_used() {
    let image = TestImage::of(MANY_GROUPS);
    with_volume(&image, 1, |volume| async move {
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let mut made = Vec::new();
        let full = loop {
            match create(&volume, &root, 0o100_644).await {
                Ok(inode) => made.push(inode),
                Err(error) => break error,
            }
        };
        assert_eq!(full.refusal(), Some(Refusal::NoSpace));
        // All but the ten reserved ones and lost+found.
        assert_eq!(made.len() as u32, volume.superblock().inodes - 11);
        for inode in made {
            volume.free_if_unused(&inode).await.unwrap();
        }
    });
}

#[test]
fn who_only_frees_keeps_no_list_of_what_is_committed() {
    const FILES: u32 = 600;
    const SYNCED: u32 = 50;
    let image = TestImage::of(EXT4_1K);
    with_volume(&image, 1, |volume| async move {
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        for index in 0..FILES {
            let name = format!("file-{index}");
            let made =
                volume.mknod(&root, name.as_bytes(), &Caller::ROOT, 0o100_644, 0).await.unwrap();
            volume
                .write(&made.value, &Caller::ROOT, 0, b"a block", WriteFlags::default())
                .await
                .unwrap();
        }
        volume.sync().await.unwrap();
        for index in 0..FILES {
            volume.unlink(&root, format!("file-{index}").as_bytes()).await.unwrap();
            assert!(volume.blocks_withheld() <= u64::from(2 * SYNCED), "{index}");
            if index % SYNCED == 0 {
                volume.sync().await.unwrap();
            }
        }
    });
}
