//! Blocks that are written again after a discard, as far as a crash shows.

use crate::common::{Life, Making, make, open, options, write};
use blocks::{BlockVolume, Persistence};
use device::{Buffer, Disk, Durability, LocalFuture};
use disks::{CrashPolicy, Latency};
use engine::{Credits, DataMode, EngineOptions, RecordFormat};
use runtime::{Either, join_all, race};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const BLOCK: usize = 4096;
const NEVER: Duration = Duration::from_secs(100_000);

/// Options with which nothing is committed or written home unless requested.
fn quiet() -> EngineOptions {
    EngineOptions {
        data: DataMode::Wasteless,
        records: Some(RecordFormat::Packed),
        commit: NEVER,
        expire: NEVER,
        writeback: NEVER,
        ..options()
    }
}

/// A block of `byte` that differs in these places.
fn block(byte: u8, places: &[usize]) -> Buffer {
    let mut content = Buffer::zeroed(BLOCK);
    content.fill(byte);
    places.iter().for_each(|at| content[*at] = 99);
    content
}

async fn overwrite(volume: &BlockVolume, number: usize, content: Buffer) {
    let at = (number * BLOCK) as u64;
    volume.write(at, vec![Rc::new(content)], Durability::Cached).await.expect("a write");
}

async fn pause(volume: &BlockVolume, milliseconds: u64) {
    let world = volume.engine().world();
    world.sleep_until(world.now().plus(Duration::from_millis(milliseconds))).await;
}

/// Returns the content of block `number` in the next life.
fn found(images: &[disks::Image], number: usize) -> Vec<u8> {
    let life = Life::new(1, images);
    let parts = life.parts(&quiet(), Persistence::WriteBack);
    let at = (number * BLOCK) as u64;
    life.play(async move { open(parts).await.read(at, BLOCK).await.unwrap().to_vec() }).0
}

/// A discard takes the log's records of a block away. What home has of it may then be in the disk's
/// cache alone.
#[test]
fn no_difference_is_logged_over_what_a_discard_has_left_in_a_disks_cache() {
    let life = Life::new(1, &make(&Making::default()).expect("a volume"));
    let options = EngineOptions {
        expire: Duration::from_millis(100),
        writeback: Duration::from_millis(10),
        ..quiet()
    };
    let parts = life.parts(&options, Persistence::WriteBack);
    let disk = life.disks[0].clone();
    let (written, images) = life.run(CrashPolicy::LoseAll, async move {
        let volume = open(parts).await;
        write(&volume, 0, 7, BLOCK).await;
        pause(&volume, 50).await;
        // It holds the tail, and no flush goes with that, when the block before is written back.
        write(&volume, 8 * BLOCK as u64, 7, BLOCK).await;
        volume.flush().await.unwrap();
        write(&volume, 0, 1, BLOCK).await;
        volume.flush().await.unwrap();
        let home = volume.layout().data_offset();
        while disk.image().copy(home, 512)[0] != 1 {
            pause(&volume, 1).await;
        }
        pause(&volume, 1).await;
        volume.discard(0, BLOCK as u64).await.unwrap();
        volume.flush().await.unwrap();
        let there = volume.read(0, BLOCK).await.unwrap();
        overwrite(&volume, 0, block(1, &[9])).await;
        volume.flush().await.unwrap();
        there[0]
    });
    assert_eq!(written, Some(1));
    assert!(found(&images, 0) == block(1, &[9])[..], "the block is mixed");
}

/// The discard waits for room in the log, and so does a write that came behind it. Were both in one
/// transaction, its commit would drop what was written from memory, and leave its record in the log
/// for ever.
#[test]
fn a_write_beside_a_discard_of_its_block_leaves_the_log() {
    let life = Life::new(1, &make(&Making::default()).expect("a volume"));
    let soon = options();
    let options = EngineOptions { writeback: soon.writeback, expire: soon.expire, ..quiet() };
    life.on_volume(&options, async move |volume| {
        let settled = async |volume: &BlockVolume| {
            volume.flush().await.unwrap();
            pause(volume, 1000).await;
            volume.statistics().log.free_blocks
        };
        write(&volume, 5 * BLOCK as u64, 1, BLOCK).await;
        let free = settled(&volume).await;
        write(&volume, 0, 1, BLOCK).await;
        let (engine, mut handles) = (volume.engine().clone(), Vec::new());
        for blocks in [16, 1] {
            loop {
                let a_while = pause(&volume, 1);
                match race(Box::pin(engine.start_writing(Credits(0), blocks)), a_while).await {
                    Either::Left(handle) => handles.push(handle.unwrap()),
                    Either::Right(()) => break,
                }
            }
        }
        let (discarding, writing, world) = (volume.clone(), volume.clone(), engine.world().clone());
        let discard: LocalFuture<()> =
            Box::pin(async move { discarding.discard(0, BLOCK as u64).await.unwrap() });
        let rewrite: LocalFuture<()> =
            Box::pin(async move { overwrite(&writing, 0, block(1, &[9])).await });
        let room: LocalFuture<()> = Box::pin(async move {
            world.sleep_until(world.now().plus(Duration::from_millis(5))).await;
            drop(handles);
        });
        join_all(vec![discard, rewrite, room]).await;
        assert_eq!(settled(&volume).await, free, "a record stays in the log");
        let found = volume.read(0, BLOCK).await.unwrap();
        assert!(found[..] == block(1, &[9])[..], "what was written behind the discard is lost");
    });
}

/// Covers an image that write-back was writing home when the block was discarded.
#[test]
fn no_difference_is_logged_over_a_write_in_flight() {
    let making = Making { journal_disk: Some(6 << 20), ..Making::default() };
    let life = Life::new(1, &make(&making).expect("a volume"));
    let options = EngineOptions {
        expire: Duration::from_millis(100),
        writeback: Duration::from_millis(10),
        ..quiet()
    };
    let parts = life.parts(&options, Persistence::WriteBack);
    let disk = life.disks[0].clone();
    let (_, images) = life.run(CrashPolicy::KeepAll, async move {
        let volume = open(parts).await;
        write(&volume, 0, 1, BLOCK).await;
        volume.drain().await.unwrap();
        write(&volume, 0, 7, BLOCK).await;
        volume.flush().await.unwrap();
        // Write-back begins, and the disk takes its time.
        let slow = Latency { least: Duration::from_millis(300), spread: Duration::ZERO };
        let fast = Latency { least: Duration::from_micros(20), spread: Duration::ZERO };
        disk.set_latency(slow);
        pause(&volume, 200).await;
        disk.set_latency(fast);
        volume.discard(0, BLOCK as u64).await.unwrap();
        volume.flush().await.unwrap();
        volume.read(0, BLOCK).await.unwrap();
        overwrite(&volume, 0, block(1, &[9])).await;
        volume.flush().await.unwrap();
        // The old content arrives, and the new one takes its time.
        disk.set_latency(slow);
        let home = volume.layout().data_offset();
        for _ in 0..300 {
            if disk.image().copy(home, 512)[0] == 7 {
                break;
            }
            pause(&volume, 1).await;
        }
    });
    assert!(found(&images, 0) == block(1, &[9])[..], "the block is mixed");
}

/// A discard with many uncommitted runs waits for the present ones, not for later ones. Of
/// the others one comes during the commit, and many come during the next.
#[test]
fn a_discard_ends_while_others_discard() {
    for begin in 0..8 {
        let life = Life::new(1, &make(&Making::default()).expect("a volume"));
        let disk = life.disks[0].clone();
        life.on_volume(&quiet(), async move |volume| {
            write(&volume, 0, 1, BLOCK).await;
            volume.flush().await.unwrap();
            disk.set_latency(Latency { least: Duration::from_millis(1), spread: Duration::ZERO });
            // One run less than a discard waits for.
            for _ in 0..1023 {
                volume.discard(0, BLOCK as u64).await.unwrap();
            }
            let waiting: Rc<Cell<u32>> = Rc::default();
            let discard = |block: usize, begin: u64, times: u32| -> LocalFuture<()> {
                let (volume, waiting) = (volume.clone(), waiting.clone());
                Box::pin(async move {
                    let world = volume.engine().world().clone();
                    let pause = async |microseconds| {
                        let pause = Duration::from_micros(microseconds);
                        world.sleep_until(world.now().plus(pause)).await;
                    };
                    pause(begin).await;
                    waiting.set(waiting.get() + u32::from(times == 1));
                    for number in 0..times {
                        // A transaction of nothing but discards has nothing to log.
                        write(&volume, (64 + block as u64) * 4096, (number % 250) as u8 + 1, BLOCK)
                            .await;
                        volume.discard((block * BLOCK) as u64, BLOCK as u64).await.unwrap();
                        pause(20).await;
                    }
                    waiting.set(waiting.get() - u32::from(times == 1));
                    let has_ended = times == 1 || waiting.get() == 0;
                    assert!(has_ended, "a discard waits for those that came behind it");
                })
            };
            let many = discard(3, 1_250 + 500 * begin, 800);
            join_all(vec![discard(1, 0, 1), discard(2, 500, 1), many]).await;
        });
    }
}
