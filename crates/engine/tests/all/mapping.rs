//! Scattered logs: the cache evicts blocks that the log holds whole, reads of them are redirected,
//! and they are written back from there.

use crate::common::{Layout, Rig, STALE, Setup, file_update};
use device::{Buffer, Disk, Durability};
use engine::{Base, CheckpointTimes, Contents, Credits, Engine, EngineError, FileUpdate, LogKind};
use journal::DataMode;
use journal::records::RecordFormat;
use std::rc::Rc;
use std::time::Duration;
use units::{BlockRange, HomeBlock, LogBlock};

const LOGS: u64 = 4;
const LOG_BLOCKS: u32 = 512;
/// Home blocks in front of the logs.
const BLOCKS: u64 = 1024;
/// Blocks of a transaction.
const TOGETHER: u64 = 8;
/// Number of blocks logged: more than memory holds, less than the logs do.
const LOGGED: u64 = 700;

fn setup(mode: DataMode, records: RecordFormat) -> Setup {
    let mut setup = Setup::new(mode, Layout::Internal, 4096);
    setup.home_blocks = BLOCKS + LOGS * u64::from(LOG_BLOCKS);
    let options = &mut setup.options;
    (options.log, options.records) = (LogKind::Scattered, Some(records));
    options.checkpoint = CheckpointTimes::Manual;
    (options.cache_bytes, options.writeback) = (1 << 20, Duration::from_millis(2));
    setup
}

fn all() -> impl Iterator<Item = Setup> {
    let each = |mode| {
        [(RecordFormat::Blocks, true), (RecordFormat::Packed, false)]
            .map(|(records, fua)| Setup { forced_unit_access: fua, ..setup(mode, records) })
    };
    DataMode::ALL.into_iter().flat_map(each)
}

fn rig(setup: &Setup) -> Rig {
    rig_with(setup, BLOCKS, LOGS, LOG_BLOCKS)
}

/// Creates a rig with `logs` logs of `blocks` blocks each, behind the first `home_blocks`.
fn rig_with(setup: &Setup, home_blocks: u64, logs: u64, blocks: u32) -> Rig {
    let mut rig = Rig::new(setup, 1, setup.images());
    let home = |log| HomeBlock(home_blocks + log * u64::from(blocks));
    rig.scatter(LogBlock(setup.log_blocks), blocks, (0..logs).map(home).collect());
    rig
}

/// Returns the content of `block` in `version`: no zeros, so that packed records log it whole.
fn content(block: u64, version: u8) -> Vec<u8> {
    (0..4096u64)
        .map(|at| 1 | (at.wrapping_mul(31) ^ (block * 7)) as u8 ^ version.wrapping_mul(16))
        .collect()
}

/// Metadata, which every mode logs; several blocks in each transaction.
async fn log_all(engine: &Rc<Engine>, blocks: impl Iterator<Item = u64>, version: u8) {
    for block in blocks {
        let mut handle = engine.start(Credits(1)).await.unwrap();
        let made = handle.create(HomeBlock(block));
        let whole = BlockRange::new(0, 4096);
        handle.change(&made, whole, |bytes| bytes.copy_from_slice(&content(block, version)));
        drop(made);
        let transaction = handle.stop();
        if block % TOGETHER == 0 {
            engine.commit(transaction).await.unwrap();
        }
        let cache = engine.statistics().cache;
        // What one handle and one batch take in flight.
        assert!(cache.bytes <= cache.limit_bytes + (64 << 10), "{block}: {cache:?}");
    }
}

async fn read(engine: &Engine, block: u64) -> Vec<u8> {
    engine.read_data(HomeBlock(block), 1).await.unwrap()[0].to_vec()
}

#[test]
fn evicted_blocks_are_read_and_written_back_from_the_log() {
    for setup in all() {
        let rig = rig(&setup);
        let disk = rig.disks[0].clone();
        let name = format!("{} {:?}", setup.mode, setup.options.records);
        let failed = name.clone();
        rig.try_play(async move |engine| {
            log_all(&engine, 0..LOGGED, 1).await;
            let statistics = engine.statistics();
            assert!(statistics.log.mapped_blocks > LOGGED / 2, "{name}: {statistics:?}");
            assert_eq!(statistics.home_bytes(), 0, "{name}: nothing had to be written back");
            for block in 0..LOGGED {
                assert_eq!(read(&engine, block).await, content(block, 1), "{name}: {block}");
            }
            assert!(engine.statistics().redirected_reads >= LOGGED / 2, "{name}");
            // Many at once, mapped and not.
            let together = engine.read_data(HomeBlock(0), LOGGED as u32).await.unwrap();
            assert!(
                (0..).zip(together).all(|(block, read)| read[..] == content(block, 1)),
                "{name}"
            );
            // A long read that would rather go to home.
            let past = engine.read_data_past_cache(HomeBlock(0), LOGGED as u32).await.unwrap();
            let past: Vec<u8> = past.iter().flat_map(|buffer| buffer.to_vec()).collect();
            assert!(
                (0..).zip(past.chunks(4096)).all(|(block, read)| read == content(block, 1)),
                "{name}"
            );

            engine.checkpoint().await.unwrap();
            assert_eq!(engine.statistics().log.mapped_blocks, 0, "{name}");
            let (image, mut home) = (disk.image(), Buffer::zeroed(4096));
            for block in 0..LOGGED {
                image.read(block * 4096, &mut home);
                assert_eq!(home[..], content(block, 1), "{name}: {block} is not home");
            }
            let before = engine.statistics().redirected_reads;
            assert_eq!(read(&engine, 0).await, content(0, 1));
            assert_eq!(engine.statistics().redirected_reads, before, "{name}");
            engine.shutdown().await.unwrap();
        })
        .unwrap_or_else(|| panic!("{failed}: the power was never cut"));
    }
}

/// Logs of a large volume could otherwise never fill: one log has no space for a revoke of whatever
/// all of them hold.
#[test]
fn how_many_records_the_logs_hold_sends_nothing_home() {
    const MANY: u64 = 1200;
    const SHORT: u32 = 16;
    // With this many a log of 16 blocks has no room for the revokes beside a transaction.
    const HELD: u64 = 4000;
    for records in [RecordFormat::Blocks, RecordFormat::Packed] {
        let mut setup = setup(DataMode::Journal, records);
        setup.home_blocks = HELD + MANY * u64::from(SHORT);
        setup.options.cache_bytes = 64 << 20;
        setup.options.expire = Duration::from_secs(3600);
        rig_with(&setup, HELD, MANY, SHORT).play(async move |engine| {
            for block in 0..HELD {
                let mut handle = engine.start(Credits(1)).await.unwrap();
                let made = handle.create(HomeBlock(block));
                handle.change(&made, BlockRange::new(0, 4096), |bytes| {
                    bytes.copy_from_slice(&content(block, 1))
                });
                let transaction = handle.stop();
                if block % 4 == 3 {
                    engine.commit(transaction).await.unwrap();
                }
            }
            let statistics = engine.statistics();
            let log = &statistics.log;
            assert!(
                log.free_blocks > log.blocks / 8 * 3,
                "{records:?}: the logs are full: {log:?}"
            );
            assert_eq!(statistics.home_writes, 0, "{records:?}: {log:?}");
            engine.shutdown().await.unwrap();
        });
    }
}

#[test]
fn newer_content_of_a_block_that_has_left_memory_wins_everywhere() {
    for setup in all() {
        let rig = rig(&setup);
        rig.play(async move |engine| {
            // More than all logs hold, so that they are full and begun again.
            for version in 1..=5 {
                log_all(
                    &engine,
                    (0..LOGGED).filter(|block| block % 5 <= u64::from(version)),
                    version,
                )
                .await;
            }
            for block in 0..LOGGED {
                assert_eq!(read(&engine, block).await, content(block, 5), "{block}");
            }
            engine.shutdown().await.unwrap();
        });
        for block in 0..LOGGED {
            assert_eq!(rig.home_block(block)[..], content(block, 5), "{block} at home");
        }
    }
}

/// A part of a block may be logged while only the log knows the rest.
#[test]
fn parts_of_a_block_not_in_memory_are_merged_with_what_the_log_holds() {
    for records in [RecordFormat::Blocks, RecordFormat::Packed] {
        let rig = rig(&setup(DataMode::Wasteless, records));
        rig.play(async move |engine| {
            let update = |block, range, bytes: &'static [u8]| FileUpdate {
                range,
                base: Base::Home,
                ..file_update(block, 0, bytes)
            };
            for block in 0..LOGGED {
                let bytes: &'static [u8] = content(block, 1).leak();
                let mut handle = engine.start_writing(Credits(0), 1).await.unwrap();
                handle
                    .write_file_data(update(block, BlockRange::new(0, 4096), bytes))
                    .await
                    .unwrap();
                let transaction = handle.stop();
                if block % TOGETHER == 0 {
                    engine.commit(transaction).await.unwrap();
                }
            }
            assert!(engine.statistics().log.mapped_blocks > LOGGED / 2);
            for block in (0..LOGGED).step_by(3) {
                let mut handle = engine.start_writing(Credits(0), 1).await.unwrap();
                handle
                    .write_file_data(update(block, BlockRange::new(100, 104), b"part"))
                    .await
                    .unwrap();
                engine.commit(handle.stop()).await.unwrap();
            }
            engine.shutdown().await.unwrap();
        });
        for block in 0..LOGGED {
            let mut expected = content(block, 1);
            if block % 3 == 0 {
                expected[100..104].copy_from_slice(b"part");
            }
            assert_eq!(rig.home_block(block)[..], expected, "{records:?}: {block}");
        }
    }
}

/// The table frees its memory whatever empties it; here the blocks are written back from memory,
/// into which they were read again.
#[test]
fn a_mapping_table_that_became_empty_takes_no_memory() {
    let rig = rig(&setup(DataMode::Wasteless, RecordFormat::Packed));
    rig.play(async move |engine| {
        read(&engine, 0).await;
        let image = engine.statistics().cache.bytes;
        log_all(&engine, 0..LOGGED, 1).await;
        for block in 0..LOGGED {
            let update = FileUpdate { base: Base::Home, ..file_update(block, 100, b"part") };
            let mut handle = engine.start_writing(Credits(0), 1).await.unwrap();
            handle.write_file_data(update).await.unwrap();
            engine.commit(handle.stop()).await.unwrap();
        }
        engine.checkpoint().await.unwrap();
        let statistics = engine.statistics();
        assert_eq!(statistics.log.mapped_blocks, 0);
        assert_eq!(
            statistics.cache.bytes,
            statistics.cache.blocks * image,
            "{:?}",
            statistics.cache
        );
        engine.shutdown().await.unwrap();
    });
}

#[test]
fn an_evicted_block_that_is_freed_is_never_written_back() {
    let rig = rig(&setup(DataMode::Journal, RecordFormat::Blocks));
    rig.play(async move |engine| {
        log_all(&engine, 0..LOGGED, 1).await;
        let mut handle = engine.start(Credits(1)).await.unwrap();
        handle.forget(HomeBlock(0), LOGGED, Contents::Metadata);
        engine.commit(handle.stop()).await.unwrap();
        assert_eq!(engine.statistics().log.mapped_blocks, 0);
        engine.shutdown().await.unwrap();
        assert_eq!(engine.statistics().home_bytes(), 0);
    });
    assert_eq!(rig.home_block(1)[..], [STALE; 4096]);
}

/// A program that reads or writes past the journal finds at home what the log alone held.
#[test]
fn what_the_log_alone_holds_is_written_back_for_others() {
    let rig = rig(&setup(DataMode::Journal, RecordFormat::Packed));
    let disk = rig.disks[0].clone();
    rig.try_play(async move |engine| {
        log_all(&engine, 0..LOGGED, 1).await;
        engine.write_back_range(&[(HomeBlock(0), 2), (HomeBlock(10), 1)]).await.unwrap();
        let (image, mut home) = (disk.image(), Buffer::zeroed(4096));
        for block in [0, 1, 10] {
            image.read(block * 4096, &mut home);
            assert_eq!(home[..], content(block, 1), "{block}");
        }
    })
    .unwrap();
}

#[test]
fn a_copy_in_the_log_that_has_rotted_is_noticed() {
    let rig = rig(&setup(DataMode::Journal, RecordFormat::Blocks));
    let disk = rig.disks[0].clone();
    rig.try_play(async move |engine| {
        log_all(&engine, 0..LOGGED, 1).await;
        let zeros = vec![Rc::new(Buffer::zeroed((LOGS * u64::from(LOG_BLOCKS) * 4096) as usize))];
        disk.write(BLOCKS * 4096, zeros, Durability::Durable).await.unwrap();
        let damaged = EngineError::LogCopyDamaged { at: HomeBlock(0) };
        let error = engine.read_data(HomeBlock(0), 1).await.unwrap_err();
        assert_eq!(error.to_string(), damaged.to_string());
        let error = engine.checkpoint().await.unwrap_err();
        assert!(matches!(error, EngineError::LogCopyDamaged { .. }), "{error}");
    })
    .unwrap();
}

#[test]
fn an_evicted_block_is_written_back_when_it_is_old() {
    let mut setup = setup(DataMode::Journal, RecordFormat::Packed);
    setup.options.checkpoint = CheckpointTimes::ByAge;
    setup.options.expire = Duration::from_secs(20);
    let rig = rig(&setup);
    rig.play(async move |engine| {
        log_all(&engine, 0..LOGGED, 1).await;
        assert!(engine.statistics().log.mapped_blocks > LOGGED / 2);
        let world = engine.world().clone();
        world.sleep_until(world.now().plus(Duration::from_secs(21))).await;
        assert_eq!(engine.statistics().log.mapped_blocks, 0);
        engine.shutdown().await.unwrap();
    });
}

/// A log with one place keeps what it holds in memory.
#[test]
fn with_a_circular_log_nothing_is_redirected() {
    let mut setup = setup(DataMode::Journal, RecordFormat::Blocks);
    setup.options.log = LogKind::Circular;
    let rig = rig(&setup);
    rig.play(async move |engine| {
        log_all(&engine, 0..LOGGED, 1).await;
        let statistics = engine.statistics();
        assert_eq!((statistics.log.mapped_blocks, statistics.redirected_reads), (0, 0));
        engine.shutdown().await.unwrap();
    });
}

/// Reads with an empty mapping table issue the same disk reads as over a circular log.
#[test]
fn with_an_empty_mapping_table_reads_ask_the_disk_for_no_more() {
    let asked = |log: LogKind, was_filled: bool| {
        let mut setup = setup(DataMode::Journal, RecordFormat::Blocks);
        setup.options.log = log;
        let rig = rig(&setup);
        let disk = rig.disks[0].clone();
        rig.play(async move |engine| {
            if was_filled {
                log_all(&engine, 0..LOGGED, 1).await;
                assert_eq!(engine.statistics().log.mapped_blocks > 0, log == LogKind::Scattered);
                engine.checkpoint().await.unwrap();
            }
            assert_eq!(engine.statistics().log.mapped_blocks, 0);
            let count = || {
                let statistics = disk.statistics();
                (statistics.reads, statistics.bytes_read)
            };
            let before = count();
            for block in (LOGGED..BLOCKS).step_by(3) {
                read(&engine, block).await;
            }
            if !was_filled {
                // With gaps, and past the cache. What else is in the cache depends on what was
                // evicted.
                engine.read_data(HomeBlock(LOGGED), (BLOCKS - LOGGED) as u32).await.unwrap();
                engine
                    .read_data_past_cache(HomeBlock(LOGGED), (BLOCKS - LOGGED) as u32)
                    .await
                    .unwrap();
            }
            let after = count();
            assert_eq!(engine.statistics().redirected_reads, 0);
            engine.shutdown().await.unwrap();
            (after.0 - before.0, after.1 - before.1)
        })
    };
    for was_filled in [false, true] {
        let [scattered, circular] =
            [LogKind::Scattered, LogKind::Circular].map(|log| asked(log, was_filled));
        assert!(circular.0 > 100, "{circular:?}");
        assert_eq!(scattered, circular, "{was_filled}: requests and bytes");
    }
}
