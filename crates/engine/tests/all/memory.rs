//! Memory stays within its bound: every image of every block counts.

use crate::common::{Layout, Rig, Setup, file_update};
use disks::Latency;
use engine::{Contents, Credits, Engine, FileUpdate};
use journal::DataMode;
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use units::{BlockRange, HomeBlock, TransactionId};

/// Returns an update of a whole fresh block.
fn whole(home: u64, bytes: &[u8]) -> FileUpdate<'_> {
    file_update(home, 0, bytes)
}

async fn write(engine: &Rc<Engine>, home: u64, byte: u8) -> TransactionId {
    let mut handle = engine.start(Credits(0)).await.unwrap();
    handle.write_file_data(whole(home, &[byte; 4096])).await.unwrap();
    handle.stop()
}

/// Returns a rig on slow disks.
fn slow_rig(setup: &Setup) -> Rig {
    let rig = Rig::new(setup, 1, setup.images());
    let slow = Latency { least: Duration::from_millis(2), spread: Duration::from_millis(5) };
    rig.disks.iter().for_each(|disk| disk.set_latency(slow));
    rig
}

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() << 12
}

/// False if other tests may run in this process, which would count; then `test` has passed in a
/// process of its own.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "OKEANOS_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let status = command.args(["--exact", test]).env(ALONE, "").status().unwrap();
    assert!(status.success(), "{test}, by itself");
    false
}

#[test]
fn writing_and_freeing_the_same_blocks_takes_no_more_memory_each_time() {
    if !is_alone("memory::writing_and_freeing_the_same_blocks_takes_no_more_memory_each_time") {
        return;
    }
    const BLOCKS: u64 = 256;
    let mut setup = Setup::new(DataMode::Ordered, Layout::Separate, 4096);
    setup.home_blocks = 1024;
    let rig = Rig::new(&setup, 1, setup.images());
    rig.play(async move |engine| {
        let mut before = 0;
        for round in 0..200 {
            if round == 10 {
                before = resident_bytes();
            }
            for number in 0..BLOCKS {
                write(&engine, number, round).await;
            }
            engine.sync().await.unwrap();
            let mut handle = engine.start(Credits(1)).await.unwrap();
            handle.create(HomeBlock(BLOCKS + 1));
            handle.forget(HomeBlock(0), BLOCKS, Contents::Data);
            engine.commit(handle.stop()).await.unwrap();
            assert!(engine.statistics().cache.bytes <= engine.statistics().cache.limit_bytes);
        }
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 64 << 20, "{} MiB more", grown >> 20);
    });
}

/// Commits and home writes are slow, so a block that is overwritten again and again has as many
/// images as it can.
#[test]
fn overwriting_blocks_in_flight_keeps_all_images_within_the_bound() {
    const BLOCKS: u64 = 400;
    for mode in DataMode::ALL {
        let mut setup = Setup::new(mode, Layout::Separate, 4096);
        setup.log_blocks = 4096;
        setup.home_blocks = 1024;
        setup.options.cache_bytes = 3 << 20;
        let rig = slow_rig(&setup);
        rig.play(async move |engine| {
            for round in 0..10u8 {
                let mut last = None;
                for number in 0..BLOCKS {
                    last = Some(write(&engine, number * 2, round).await);
                    let cache = engine.statistics().cache;
                    // One handle's blocks, and what is being written home.
                    assert!(
                        cache.bytes <= cache.limit_bytes + (256 << 10),
                        "{mode}, {round}: {cache:?}"
                    );
                }
                if round % 3 == 2 {
                    engine.commit(last.unwrap()).await.unwrap();
                }
            }
            engine.shutdown().await.unwrap();
            let cache = engine.statistics().cache;
            assert!(
                cache.dirty_blocks == 0 && cache.bytes <= cache.limit_bytes,
                "{mode}: {cache:?}"
            );
        });
        for number in 0..BLOCKS {
            assert_eq!(rig.home_block(number * 2)[..], [9; 4096], "{mode}");
        }
    }
}

/// Handles that are open together have their memory before any of them writes.
#[test]
fn a_burst_of_large_handles_stays_within_the_bound() {
    const HANDLES: u64 = 40;
    const BLOCKS: u64 = 64;
    for mode in DataMode::ALL {
        let mut setup = Setup::new(mode, Layout::Separate, 4096);
        setup.log_blocks = 16384;
        setup.home_blocks = HANDLES * BLOCKS;
        setup.options.cache_bytes = 3 << 20;
        let rig = Rig::new(&setup, 1, setup.images());
        rig.play(async move |engine| {
            let writers = (0..HANDLES).map(|writer| -> Pin<Box<dyn Future<Output = ()>>> {
                let engine = engine.clone();
                Box::pin(async move {
                    let mut handle = engine.start_writing(Credits(1), BLOCKS as u32).await.unwrap();
                    let world = engine.world();
                    world.sleep_until(world.now().plus(Duration::from_millis(1))).await;
                    for index in 0..BLOCKS {
                        handle
                            .write_file_data(whole(writer * BLOCKS + index, &[1; 4096]))
                            .await
                            .unwrap();
                        let cache = engine.statistics().cache;
                        assert!(cache.bytes <= cache.limit_bytes, "{mode}: {cache:?}");
                    }
                })
            });
            runtime::join_all(writers.collect()).await;
            engine.shutdown().await.unwrap();
        });
    }
}

/// Truncate of a large file, or fallocate: one handle for as many steps as there is room for.
#[test]
fn a_handle_that_is_extended_again_and_again_stays_within_the_bound() {
    const BLOCKS: u64 = 4000;
    let mut setup = Setup::new(DataMode::Wasteless, Layout::Separate, 4096);
    setup.log_blocks = 32768;
    setup.home_blocks = BLOCKS;
    setup.options.cache_bytes = 3 << 20;
    let rig = Rig::new(&setup, 1, setup.images());
    rig.play(async move |engine| {
        let mut handle = engine.start(Credits(1)).await.unwrap();
        for number in 0..BLOCKS {
            if number > 0 && !handle.extend(Credits(1)) {
                handle.stop();
                handle = engine.start(Credits(1)).await.unwrap();
            }
            handle.create(HomeBlock(number));
            let cache = engine.statistics().cache;
            assert!(cache.bytes <= cache.limit_bytes, "after {number} blocks: {cache:?}");
        }
        handle.stop();
        engine.shutdown().await.unwrap();
    });
}

/// Wasteless copies parts of blocks together, for a log that is slow to take them.
#[test]
fn what_a_commit_makes_for_the_log_counts() {
    const BLOCKS: u64 = 4096;
    /// Images that fit.
    const LIMIT: u64 = (3 << 20) / (4096 + 960);
    let mut setup = Setup::new(DataMode::Wasteless, Layout::Separate, 4096);
    setup.log_blocks = 16384;
    setup.home_blocks = BLOCKS;
    setup.options.cache_bytes = 3 << 20;
    let rig = slow_rig(&setup);
    rig.play(async move |engine| {
        let done = Cell::new(false);
        let watcher = async {
            let (world, mut most) = (engine.world(), 0);
            loop {
                world.sleep_until(world.now().plus(Duration::from_micros(500))).await;
                let cache = engine.statistics().cache;
                assert!(cache.bytes <= cache.limit_bytes, "{cache:?}");
                // Nothing is overwritten, so all that is no block was made for the log.
                let images = cache.bytes / (cache.limit_bytes / LIMIT);
                most = most.max(images - cache.blocks);
                if done.get() {
                    assert!(most > 100, "at most {most} blocks made for the log");
                    return;
                }
            }
        };
        let writer = async {
            for number in 0..BLOCKS {
                let mut handle = engine.start(Credits(0)).await.unwrap();
                let range = BlockRange::new(0, 2000);
                let update = FileUpdate { range, bytes: &[1; 2000], ..whole(number, &[]) };
                handle.write_file_data(update).await.unwrap();
            }
            done.set(true);
        };
        let both: Vec<Pin<Box<dyn Future<Output = ()>>>> =
            vec![Box::pin(watcher), Box::pin(writer)];
        runtime::join_all(both).await;
        engine.shutdown().await.unwrap();
    });
}

/// A buffer takes memory beside its bytes.
#[test]
fn short_log_units_count_with_all_the_memory_that_they_take() {
    const BLOCKS: u64 = 2048;
    for unit in [512, 1024, 4096] {
        let mut setup = Setup::new(DataMode::Wasteless, Layout::Separate, 4096);
        setup.log_blocks = 16384;
        setup.home_blocks = BLOCKS;
        setup.options.cache_bytes = 32 << 20;
        (setup.options.records, setup.options.log_unit) =
            (Some(engine::RecordFormat::Packed), Some(unit));
        let rig = Rig::new(&setup, 1, setup.images());
        let opened: Rc<RefCell<Option<Rc<Engine>>>> = Rc::default();
        let longest = Rc::new(Cell::new(0));
        let (seen, of_hook) = (opened.clone(), longest.clone());
        rig.disks[1].on_change(move |_, _, logged| {
            let Some(engine) = &*seen.borrow() else { return };
            let cache = engine.statistics().cache;
            let image = 4096 + 960;
            let counted = cache.bytes - cache.blocks * image;
            let pieces = logged.length.div_ceil(64 << 10);
            let each = logged.length.min(64 << 10) as usize;
            let overhead = device::Buffer::memory_of(each) - each;
            let taken = logged.length + pieces * overhead as u64;
            assert!(
                counted >= taken || logged.length <= 4096,
                "{unit}: {taken} bytes taken, {counted} counted"
            );
            of_hook.set(logged.length.max(of_hook.get()));
        });
        rig.play(async move |engine| {
            *opened.borrow_mut() = Some(engine.clone());
            for number in 0..BLOCKS {
                let mut handle = engine.start(Credits(0)).await.unwrap();
                let range = BlockRange::new(0, 1000);
                let update = FileUpdate { range, bytes: &[1; 1000], ..whole(number, &[]) };
                handle.write_file_data(update).await.unwrap();
            }
            engine.shutdown().await.unwrap();
            *opened.borrow_mut() = None;
        });
        assert!(longest.get() > 100 << 10, "no long transaction: {} bytes", longest.get());
    }
}
