//! A restart with scattered logs: what they hold whole stays there, and the engine goes on with it.

use crate::common::{Layout, Rig, STALE, Setup, file_update};
use disks::{CrashPolicy, Image};
use engine::{
    Base, CheckpointTimes, Contents, Credits, DurableMemory, Engine, FileUpdate, LogKind,
    RecoveryReport, RetainedLog,
};
use format::run_table::TABLE_BYTES;
use journal::DataMode;
use journal::records::RecordFormat;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use units::{BlockRange, HomeBlock, LogBlock};

pub const LOG_BLOCKS: u32 = 700;
/// Number of blocks between two logs.
const BETWEEN: u64 = 1500;
pub const LOGS: u64 = 3;
/// Blocks that are written, all of them before the first log.
pub const BLOCKS: u64 = 120;
const BYTES: u64 = 4096;

pub fn log_home(log: u64) -> HomeBlock {
    HomeBlock(500 + log * BETWEEN)
}

pub fn setup(mode: DataMode, records: RecordFormat) -> Setup {
    let mut setup = Setup::new(mode, Layout::Internal, BYTES as u32);
    setup.home_blocks = LOGS * BETWEEN;
    let options = &mut setup.options;
    (options.log, options.records) = (LogKind::Scattered, Some(records));
    options.checkpoint = CheckpointTimes::Manual;
    setup
}

pub fn rig(setup: &Setup, images: Vec<Image>) -> Rig {
    let mut rig = Rig::new(setup, 1, images);
    rig.scatter(LogBlock(setup.log_blocks), LOG_BLOCKS, (0..LOGS).map(log_home).collect());
    // Behind home lies what has a table of the runs, if anything has.
    rig.parts.options.run_table = rig.disks.get(1).map(|disk| DurableMemory(Rc::new(disk.clone())));
    rig
}

/// Returns the content of `block` in `version`: no zeros, so that packed records log it whole.
pub fn content(block: u64, version: u8) -> Vec<u8> {
    (0..BYTES)
        .map(|at| 1 | (at.wrapping_mul(31) ^ (block * 7)) as u8 ^ version.wrapping_mul(16))
        .collect()
}

pub async fn put(engine: &Rc<Engine>, block: u64, version: u8) {
    let mut handle = engine.start(Credits(1)).await.unwrap();
    let made = handle.create(HomeBlock(block));
    let whole = BlockRange::new(0, BYTES as u32);
    handle.change(&made, whole, |bytes| bytes.copy_from_slice(&content(block, version)));
    drop(made);
    engine.commit(handle.stop()).await.unwrap();
}

/// Writes a file's block, or a part of it, as part of a request of `request` bytes.
pub async fn overwrite(
    engine: &Rc<Engine>,
    block: u64,
    range: BlockRange,
    bytes: &[u8],
    request: u64,
) {
    write(engine, block, range, bytes, request, false).await;
}

async fn write(
    engine: &Rc<Engine>,
    block: u64,
    range: BlockRange,
    bytes: &[u8],
    request: u64,
    durable_only: bool,
) {
    let update = FileUpdate {
        range,
        base: Base::Home,
        request,
        sequential: request > BYTES,
        in_place: true,
        durable_only,
        ..file_update(block, 0, bytes)
    };
    let mut handle = engine.start_writing(Credits(0), 1).await.unwrap();
    handle.write_file_data(update).await.unwrap();
    engine.commit(handle.stop()).await.unwrap();
}

pub async fn read(engine: &Engine, block: u64) -> Vec<u8> {
    engine.read_data(HomeBlock(block), 1).await.unwrap()[0].to_vec()
}

pub async fn restart(parts: engine::EngineParts) -> (RecoveryReport, Rc<Engine>) {
    let (report, kept): (_, Option<RetainedLog>) = engine::restart(&parts, &[]).await.unwrap();
    (report, Engine::open_with(parts, kept).await.unwrap())
}

/// Plays one life, which the loss of power ends. What is left of the disk.
pub fn live<F: Future<Output = ()> + 'static>(
    setup: &Setup,
    images: Vec<Image>,
    life: impl FnOnce(RecoveryReport, Rc<Engine>) -> F + 'static,
) -> Vec<Image> {
    let rig = rig(setup, images);
    let parts = rig.parts.clone();
    rig.run(async move {
        let (report, engine) = restart(parts).await;
        life(report, engine).await;
    })
    .unwrap();
    rig.disks.iter().map(|disk| disk.crash(CrashPolicy::LoseAll)).collect()
}

pub fn all() -> impl Iterator<Item = Setup> {
    let each =
        |mode| [RecordFormat::Blocks, RecordFormat::Packed].map(|records| setup(mode, records));
    DataMode::ALL.into_iter().flat_map(each)
}

/// Writes all blocks, with the arm at alternating places.
pub async fn put_all(engine: &Rc<Engine>, version: u8) {
    for block in 0..BLOCKS {
        read(engine, log_home(block % LOGS).get() - 1).await;
        put(engine, block, version).await;
    }
}

/// Waits until write-back has recorded what was committed.
pub async fn rest(engine: &Engine) {
    let world = engine.world().clone();
    world.sleep_until(world.now().plus(Duration::from_millis(2))).await;
}

/// Returns the disk's images with memory for a table of the runs.
pub fn with_memory(mut images: Vec<Image>) -> Vec<Image> {
    images.truncate(1);
    images.push(Image::new(TABLE_BYTES));
    images
}

/// Index of the log that a restart may use, besides the log itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Index {
    Nobody,
    /// The table of the runs.
    Table,
    /// The snapshot of the mapping table.
    Snapshot,
}

impl Index {
    fn check(self, report: &RecoveryReport) -> bool {
        let searched = report.logs_read > 0 && report.find_nanoseconds > 0;
        match self {
            Index::Nobody => searched,
            Index::Table => {
                report.table_refused.is_none() && report.table_pages_read > 0 && !searched
            }
            Index::Snapshot => {
                let (covered, read) =
                    (report.snapshot_transactions, report.scan.counts.transactions);
                report.snapshot_refused.is_none() && covered > 0 && read < BLOCKS / 2
            }
        }
    }
}

#[test]
fn a_restart_brings_nothing_home_and_every_later_life_goes_on() {
    let tellers = [Index::Nobody, Index::Table, Index::Snapshot];
    for (mut setup, index) in all().flat_map(|setup| tellers.map(|index| (setup.clone(), index))) {
        setup.options.snapshot_after = (index == Index::Snapshot).then_some(1);
        let name = format!("{} {:?} {index:?}", setup.mode, setup.options.records);
        let begun = match index {
            Index::Table => with_memory(setup.images()),
            _ => setup.images(),
        };
        let mut images = live(&setup, begun, async |_, engine| {
            put_all(&engine, 1).await;
            let mut handle = engine.start(Credits(1)).await.unwrap();
            handle.forget(HomeBlock(7), 1, Contents::Metadata);
            engine.commit(handle.stop()).await.unwrap();
            rest(&engine).await;
        });
        for version in 2..=4 {
            let failed = name.clone();
            images = live(&setup, images, async move |report, engine| {
                assert!(index.check(&report), "{failed}: {report:?}");
                assert!(
                    report.home_blocks_written == 0 && report.blocks_kept > BLOCKS / 3,
                    "{failed}: {report:?}"
                );
                for block in (0..BLOCKS).filter(|block| *block != 7) {
                    let last = if block % 3 == 0 { version - 1 } else { 1 };
                    assert_eq!(
                        read(&engine, block).await,
                        content(block, last),
                        "{failed}: {block}"
                    );
                }
                for block in (0..BLOCKS).step_by(3) {
                    put(&engine, block, version).await;
                }
            });
        }
        let rig = rig(&setup, images);
        let parts = rig.parts.clone();
        rig.run(async move { restart(parts).await.1.shutdown().await.unwrap() }).unwrap();
        for block in (0..BLOCKS).filter(|block| *block != 7) {
            let last = if block % 3 == 0 { 4 } else { 1 };
            assert_eq!(rig.home_block(block)[..], content(block, last), "{name}: {block} at home");
        }
    }
}

/// Blocks 0 to 3, the middle two with whole content and a part in the log, in either order.
async fn put_parts(engine: Rc<Engine>) {
    for block in 0..4 {
        put(&engine, block, 1).await;
    }
    engine.checkpoint().await.unwrap();
    overwrite(&engine, 0, BlockRange::new(100, 104), b"part", 4).await;
    put(&engine, 1, 2).await;
    overwrite(&engine, 1, BlockRange::new(100, 104), b"part", 4).await;
    overwrite(&engine, 2, BlockRange::new(100, 104), b"part", 4).await;
    put(&engine, 2, 2).await;
}
/// Returns what [`put_parts`] leaves of `block`.
fn content_with_part(block: u64) -> Vec<u8> {
    let (version, is_part) = [(1, true), (2, true), (2, false), (1, false)][block as usize];
    let mut expected = content(block, version);
    if is_part {
        expected[100..104].copy_from_slice(b"part");
    }
    expected
}

/// A restart leaves them where they were: in memory and in the log. Nothing is read from home for
/// that, nor written there.
#[test]
fn parts_of_blocks_stay_in_memory_over_every_restart() {
    for records in [RecordFormat::Blocks, RecordFormat::Packed] {
        let setup = setup(DataMode::Wasteless, records);
        let mut images = live(&setup, setup.images(), async |_, engine| put_parts(engine).await);
        for life in 0..3 {
            images = live(&setup, images, async move |report, engine| {
                let home = (report.home_blocks_written, report.home_blocks_read);
                assert_eq!(home, (0, 0), "{records:?}: {report:?}");
                assert!(
                    report.blocks_in_part == 2 && report.blocks_kept > 2,
                    "{records:?}: {report:?}"
                );
                for block in 0..4 {
                    let mut expected = content_with_part(block);
                    if life > 0 && block == 0 {
                        expected[200..204].copy_from_slice(b"more");
                    }
                    assert_eq!(
                        read(&engine, block).await,
                        expected,
                        "{records:?}: {block} in life {life}"
                    );
                }
                overwrite(&engine, 0, BlockRange::new(200, 204), b"more", 4).await;
            });
        }
        // They are written back as any others are.
        let rig = rig(&setup, images);
        let parts = rig.parts.clone();
        rig.run(async move {
            let (_, engine) = restart(parts).await;
            engine.checkpoint().await.unwrap();
            engine.shutdown().await.unwrap();
        })
        .unwrap();
        for block in 0..4 {
            let mut expected = content_with_part(block);
            if block == 0 {
                expected[200..204].copy_from_slice(b"more");
            }
            assert_eq!(rig.home_block(block)[..], expected, "{records:?}: {block} at home");
        }
    }
}

/// The log keeps what it holds of them until they are home.
#[test]
fn no_tail_passes_parts_of_blocks_that_a_restart_left_in_memory() {
    for records in [RecordFormat::Blocks, RecordFormat::Packed] {
        let mut setup = setup(DataMode::Wasteless, records);
        setup.options.writeback = Duration::from_millis(1);
        let mut images = live(&setup, setup.images(), async |_, engine| {
            put(&engine, 0, 1).await;
            engine.checkpoint().await.unwrap();
            overwrite(&engine, 0, BlockRange::new(100, 104), b"part", 4).await;
        });
        for life in 0..3 {
            images = live(&setup, images, async move |report, engine| {
                assert_eq!(report.blocks_in_part, 1, "{records:?}: life {life}: {report:?}");
                // Rounds of write-back, and commits: the tail moves as far as it may.
                for version in 1..6 {
                    put(&engine, 5, version).await;
                    rest(&engine).await;
                }
            });
        }
        live(&setup, images, async move |report, engine| {
            let mut expected = content(0, 1);
            expected[100..104].copy_from_slice(b"part");
            assert_eq!(read(&engine, 0).await, expected, "{records:?}: {report:?}");
        });
    }
}

/// Uses a `cache=` so small that parts would fill half of it.
#[test]
fn parts_of_blocks_beyond_memory_are_written_back_at_a_restart() {
    for (records, index) in [
        (RecordFormat::Blocks, Index::Nobody),
        (RecordFormat::Packed, Index::Nobody),
        (RecordFormat::Blocks, Index::Snapshot),
        (RecordFormat::Packed, Index::Snapshot),
    ] {
        let mut setup = setup(DataMode::Wasteless, records);
        setup.options.snapshot_after = (index == Index::Snapshot).then_some(1);
        let many = 100;
        let images = live(&setup, setup.images(), async move |_, engine| {
            put(&engine, 0, 1).await;
            put(&engine, 1, 1).await;
            rest(&engine).await;
            for block in 0..many {
                overwrite(&engine, block, BlockRange::new(100, 104), b"part", 4).await;
            }
        });
        let mut small = setup.clone();
        small.options.cache_bytes = 1;
        live(&small, images, async move |report, engine| {
            let (home, kept) = (report.home_blocks_written, report.blocks_kept);
            assert_eq!(
                (home, kept, report.blocks_in_part),
                (many, 0, 0),
                "{records:?} {index:?}: {report:?}"
            );
            for block in 0..many {
                let read = read(&engine, block).await;
                assert_eq!(&read[100..104], b"part", "{records:?} {index:?}: {block}");
                let base = if block < 2 { content(block, 1)[99] } else { STALE };
                assert_eq!(read[99], base, "{records:?} {index:?}: {block}");
            }
        });
    }
}

/// A run whose header is durable and whose body is not has the number of the next one, which goes
/// to another log.
#[test]
fn a_torn_run_is_not_found_in_place_of_a_later_one() {
    for setup in all() {
        let name = format!("{} {:?}", setup.mode, setup.options.records);
        let before = live(&setup, setup.images(), async |_, engine| put(&engine, 1, 1).await);
        let mut torn = live(&setup, before.clone(), async |_, engine| {
            read(&engine, 400).await;
            put(&engine, 1, 2).await;
        });
        // Of the new run in the first log the last block that changed: its body, or its end.
        let block_of = |image: &Image, at: u64| {
            let mut bytes = vec![0; BYTES as usize];
            image.read(at * BYTES, &mut bytes);
            bytes
        };
        let log = log_home(0).get()..log_home(0).get() + u64::from(LOG_BLOCKS);
        let last =
            log.rev().find(|at| block_of(&torn[0], *at) != block_of(&before[0], *at)).unwrap();
        let mut bytes = block_of(&torn[0], last);
        bytes.iter_mut().for_each(|byte| *byte ^= 0xff);
        torn[0].write(last * BYTES, &bytes);
        let failed = name.clone();
        let images = live(&setup, torn, async move |_, engine| {
            assert_eq!(read(&engine, 1).await, content(1, 1), "{failed}: the torn run");
            read(&engine, log_home(2).get() - 1).await;
            put(&engine, 1, 3).await;
        });
        live(&setup, images, async move |_, engine| {
            assert_eq!(read(&engine, 1).await, content(1, 3), "{name}: what came after it");
        });
    }
}

/// The header of a run is lost and its body durable; the next life commits nothing and closes. The
/// run of the life after that may lie in its place, and be torn the other way round.
#[test]
fn a_torn_run_is_not_found_behind_a_life_that_commits_nothing() {
    for setup in all() {
        let name = format!("{} {:?}", setup.mode, setup.options.records);
        let header = log_home(2).get();
        let body = header + 1..header + u64::from(LOG_BLOCKS);
        let copy = |from: &Image, to: &mut Image, blocks: Range<u64>| {
            let mut bytes = vec![0; BYTES as usize];
            for at in blocks {
                from.read(at * BYTES, &mut bytes);
                to.write(at * BYTES, &bytes);
            }
        };
        let put_near_log_2 = async |engine: &Rc<Engine>, block| {
            read(engine, log_home(2).get() - 1).await;
            put(engine, block, 1).await;
        };
        let before = live(&setup, setup.images(), async |_, engine| {
            read(&engine, 400).await;
            put(&engine, 1, 1).await;
        });
        let mut torn = live(&setup, before.clone(), async move |_, engine| {
            put_near_log_2(&engine, 2).await;
        });
        copy(&before[0], &mut torn[0], header..header + 1);
        let closed = live(&setup, torn, async |report, engine| {
            assert_eq!(report.transactions, 1);
            engine.shutdown().await.unwrap();
        });
        let mut torn = live(&setup, closed.clone(), async move |_, engine| {
            put_near_log_2(&engine, 3).await;
        });
        copy(&closed[0], &mut torn[0], body);
        live(&setup, torn, async move |report, engine| {
            assert_eq!(report.transactions, 0, "{name}");
            assert_ne!(read(&engine, 2).await, content(2, 1), "{name}: what was torn is back");
        });
    }
}

/// Blocks that one mode has logged must not be written home past the log by another: the next
/// replay would undo it.
#[test]
fn no_mode_bypasses_what_the_log_of_an_earlier_life_holds() {
    for mode in DataMode::ALL {
        let [logs, next] = [DataMode::Journal, mode].map(|mode| setup(mode, RecordFormat::Blocks));
        let images = live(&logs, logs.images(), async |_, engine| {
            for block in 0..4 {
                overwrite(
                    &engine,
                    block,
                    BlockRange::new(0, BYTES as u32),
                    &content(block, 1),
                    BYTES,
                )
                .await;
            }
        });
        let images = live(&next, images, async |report, engine| {
            assert_eq!(report.blocks_kept, 4);
            for block in 0..4 {
                let (range, bytes) = (BlockRange::new(0, BYTES as u32), content(block, 2));
                overwrite(&engine, block, range, &bytes, 1 << 20).await;
            }
            engine.sync().await.unwrap();
        });
        live(&next, images, async move |_, engine| {
            for block in 0..4 {
                assert_eq!(read(&engine, block).await, content(block, 2), "{mode}: {block}");
            }
        });
    }
}

/// A log that the mount would write in another format is written back.
#[test]
fn a_log_of_another_format_is_written_back() {
    let [blocks, packed] = [RecordFormat::Blocks, RecordFormat::Packed]
        .map(|records| setup(DataMode::Journal, records));
    let images = live(&blocks, blocks.images(), async |_, engine| put(&engine, 1, 1).await);
    live(&packed, images, async |report, engine| {
        assert_eq!((report.home_blocks_written, report.blocks_kept), (1, 0));
        assert_eq!(read(&engine, 1).await, content(1, 1));
    });
}

/// Checkpoints leave what durability is enough for, before a power cut as well as after it. A mount
/// that does not ask for it writes everything back.
#[test]
fn what_durability_is_enough_for_stays_in_the_logs_over_a_restart() {
    for (mode, records) in DataMode::ALL
        .into_iter()
        .zip([RecordFormat::Blocks, RecordFormat::Packed].into_iter().cycle())
    {
        let mut with = setup(mode, records);
        with.options.durable_only = true;
        with.options.checkpoint = CheckpointTimes::ByAge;
        let images = live(&with, with.images(), async |_, engine| {
            for block in 0..10 {
                let bytes = content(block, 1);
                let range = BlockRange::new(0, BYTES as u32);
                write(&engine, block, range, &bytes, BYTES, block < 6).await;
            }
            engine.sync().await.unwrap();
        });
        let mut without = with.clone();
        without.options.durable_only = false;
        for (setup, stay) in [(with, 6), (without, 0)] {
            live(&setup, images.clone(), async move |report, engine| {
                assert!(report.blocks_kept >= 6, "{mode} {records:?}: {report:?}");
                let world = engine.world();
                // Longer than the age at which any block is written back.
                world.sleep_until(world.now().plus(Duration::from_secs(1))).await;
                engine.checkpoint().await.unwrap();
                let mapped = engine.statistics().log.mapped_blocks;
                assert_eq!(mapped, stay, "{mode} {records:?}: stay in the logs");
                for block in 0..10 {
                    assert_eq!(
                        read(&engine, block).await,
                        content(block, 1),
                        "{mode} {records:?}: {block}"
                    );
                }
            });
        }
    }
}

/// Blocks of one transaction, and how often they are logged: the log is not half full with them.
const TOGETHER: u64 = 40;
const VERSIONS: u8 = 30;

async fn put_together(engine: &Rc<Engine>, version: u8) {
    let mut handle = engine.start(Credits(TOGETHER as u32)).await.unwrap();
    for block in 0..TOGETHER {
        let made = handle.create(HomeBlock(block));
        let whole = BlockRange::new(0, BYTES as u32);
        handle.change(&made, whole, |bytes| bytes.copy_from_slice(&content(block, version)));
    }
    engine.commit(handle.stop()).await.unwrap();
}

/// Returns the disks after a life whose log holds many records that are superseded.
fn with_superseded_records(setup: &Setup) -> Vec<Image> {
    live(setup, setup.images(), async |_, engine| {
        // What is superseded stays in the log behind this one.
        put(&engine, TOGETHER, 1).await;
        for version in 0..VERSIONS {
            put_together(&engine, version).await;
        }
        rest(&engine).await;
    })
}

/// Counts steps: without yields the reads of the log alone would end one.
#[test]
fn others_run_while_a_restart_gathers() {
    for records in [RecordFormat::Blocks, RecordFormat::Packed] {
        let mut setup = setup(DataMode::Journal, records);
        setup.options.snapshot_after = None;
        let images = with_superseded_records(&setup);
        let rig = rig(&setup, images);
        let parts = rig.parts.clone();
        rig.run(async move {
            let (mut restart, mut steps) = (pin!(engine::restart(&parts, &[])), 0);
            let restarted = poll_fn(|context| {
                steps += 1;
                restart.as_mut().poll(context)
            });
            let (report, kept) = restarted.await.unwrap();
            assert!(kept.is_some(), "{report:?}");
            let bytes = u64::from(VERSIONS) * TOGETHER * BYTES;
            // The scan and the replay read them.
            assert!(steps > 2 * bytes / (128 << 10), "{steps} steps: {records:?}");
        })
        .unwrap();
    }
}

/// Records of a few blocks, again and again: little of them is the newest, and all would have to be
/// known.
#[test]
fn a_restart_gathers_no_more_records_than_memory_has_room_for() {
    for records in [RecordFormat::Blocks, RecordFormat::Packed] {
        let mut setup = setup(DataMode::Journal, records);
        // It would leave out all records but the newest of each block.
        setup.options.snapshot_after = None;
        let images = with_superseded_records(&setup);
        let copies = async |report: RecoveryReport, _| {
            assert_eq!(report.blocks_kept, TOGETHER + 1, "{report:?}");
        };
        live(&setup, images.clone(), copies);
        // Room for all copies, and not for all records.
        setup.options.cache_bytes = 1;
        live(&setup, images, async |report, engine| {
            assert_eq!(report.blocks_kept, 0, "{report:?}");
            for block in 0..TOGETHER {
                assert_eq!(read(&engine, block).await, content(block, VERSIONS - 1), "{block}");
            }
        });
    }
}
