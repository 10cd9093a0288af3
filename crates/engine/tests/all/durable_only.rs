//! Files of which durability is enough: logged in every mode, and home only at the end.

use crate::common::{Layout, Rig, STALE, Setup, file_update};
use crate::restart;
use engine::{CheckpointTimes, Contents, Credits, Engine, FileUpdate, LogKind, RecordFormat};
use journal::DataMode;
use std::rc::Rc;
use std::time::Duration;
use units::{HomeBlock, Owner};

fn setup(mode: DataMode) -> Setup {
    let mut setup = Setup::new(mode, Layout::Separate, 4096);
    setup.options.durable_only = true;
    setup
}

/// Part of a request of a mebibyte.
async fn write(engine: &Rc<Engine>, block: u64, byte: u8, durable_only: bool) {
    let bytes = [byte; 4096];
    let update = FileUpdate {
        request: 1 << 20,
        sequential: true,
        durable_only,
        ..file_update(block, 0, &bytes)
    };
    let mut handle = engine.start_writing(Credits(0), 1).await.unwrap();
    handle.write_file_data(update).await.unwrap();
    engine.sync_owner(Owner(1), handle.stop()).await.unwrap();
}

#[test]
fn durable_only_files_are_written_back_at_unmount_alone() {
    for mode in DataMode::ALL {
        let rig = Rig::new(&setup(mode), 1, setup(mode).images());
        rig.play(async move |engine| {
            for block in 0..20 {
                write(&engine, block, 7, true).await;
            }
            write(&engine, 30, 8, false).await;
            // Longer than the age at which any block is written back.
            let world = engine.world();
            world.sleep_until(world.now().plus(Duration::from_secs(1))).await;
            let report = engine.checkpoint().await.unwrap();
            assert!(
                report.blocks_logged <= 1 && report.blocks_skipped == 0.0,
                "{mode}: {report:?}"
            );
            let home = engine.statistics().home_written["data"];
            assert_eq!(home.blocks, 1, "{mode}: of the other file");
            engine.shutdown().await.unwrap();
        });
        assert_eq!(rig.home_block(19)[..], [7; 4096], "{mode}");
        assert_eq!(rig.home_block(30)[..], [8; 4096], "{mode}");
    }
}

/// Blocks that are written once each, of files of which durability is enough; and one that is
/// written again and again.
const MANY: u64 = 450;
const AGAIN: u64 = 460;

/// Parts of the log that are in use, of eight.
fn eighths_used(engine: &Engine) -> u64 {
    let log = engine.statistics().log;
    (log.blocks - log.free_blocks) * 8 / log.blocks
}

/// Time for write-back, which begins to make room when five eighths are in use.
async fn rest(engine: &Engine) {
    let world = engine.world();
    world.sleep_until(world.now().plus(Duration::from_millis(50))).await;
}

#[test]
fn durable_only_files_are_written_back_early_only_for_want_of_log() {
    for (kind, records) in [
        (LogKind::Circular, RecordFormat::Blocks),
        (LogKind::Scattered, RecordFormat::Blocks),
        (LogKind::Scattered, RecordFormat::Packed),
    ] {
        let mut setup = restart::setup(DataMode::Journal, records);
        setup.options.log = kind;
        setup.options.durable_only = true;
        let rig = match kind {
            LogKind::Scattered => restart::rig(&setup, setup.images()),
            LogKind::Circular => Rig::new(&setup, 1, setup.images()),
        };
        let disk = rig.disks[0].clone();
        let at_home = move || {
            let image = disk.image();
            (0..MANY).filter(|block| image.copy(block << 12, 4096)[..] == [7; 4096]).count()
        };
        rig.play(async move |engine| {
            let (mut there_was_room, mut most) = (0, 0);
            for block in 0..MANY {
                write(&engine, block, 7, true).await;
                for version in 0..3 {
                    write(&engine, AGAIN, version, false).await;
                }
                most = most.max(eighths_used(&engine));
                // From six eighths on the longest transaction may find no room.
                if most == 5 {
                    rest(&engine).await;
                    assert_eq!(
                        at_home(),
                        0,
                        "{kind:?} {records:?}: {block} written, and there is room"
                    );
                    there_was_room += 1;
                }
            }
            assert!(there_was_room > 3 && at_home() > 0, "{kind:?} {records:?}: the log was full");
            engine.shutdown().await.unwrap();
            assert_eq!(at_home(), MANY as usize, "{kind:?} {records:?}");
        });
    }
}

/// Data that stays in the log gives a checkpoint nothing to do.
#[test]
fn durable_only_files_begin_no_checkpoint() {
    let five = Duration::from_secs(5);
    for times in [CheckpointTimes::Idle(five), CheckpointTimes::Periodic(five)] {
        let mut setup = setup(DataMode::Journal);
        setup.options.checkpoint = times;
        let rig = Rig::new(&setup, 1, setup.images());
        rig.play(async move |engine| {
            write(&engine, 0, 7, true).await;
            write(&engine, 30, 8, false).await;
            let world = engine.world();
            for _ in 0..10 {
                world.sleep_until(world.now().plus(Duration::from_secs(10))).await;
                let statistics = engine.statistics();
                assert_eq!(
                    statistics.last_checkpoint.blocks_written, 1,
                    "{times:?}: an empty one came after it"
                );
            }
            assert_eq!(engine.statistics().home_written["data"].blocks, 1, "{times:?}");
            engine.shutdown().await.unwrap();
        });
    }
}

#[test]
fn what_is_deleted_before_the_end_is_never_written_home() {
    for mode in DataMode::ALL {
        let rig = Rig::new(&setup(mode), 1, setup(mode).images());
        rig.play(async move |engine| {
            for block in 0..20 {
                write(&engine, block, 7, true).await;
            }
            let mut handle = engine.start(Credits(0)).await.unwrap();
            handle.forget(HomeBlock(0), 20, Contents::Data);
            engine.commit(handle.stop()).await.unwrap();
            engine.shutdown().await.unwrap();
            assert_eq!(engine.statistics().home_bytes(), 0, "{mode}");
        });
        assert_eq!(rig.home_block(5)[..], [STALE; 4096], "{mode}");
    }
}

/// An update that bypassed would be overwritten by replay of the older record.
#[test]
fn while_the_log_holds_a_block_no_update_of_it_bypasses() {
    for mode in DataMode::ALL {
        let rig = Rig::new(&setup(mode), 1, setup(mode).images());
        rig.play(async move |engine| {
            write(&engine, 3, 1, true).await;
            // Durability is no longer enough for the file.
            write(&engine, 3, 2, false).await;
        });
        let after = Rig::new(&setup(mode), 2, rig.crash(0));
        after.play(async move |engine| {
            let read = engine.read_data(HomeBlock(3), 1).await.unwrap();
            assert_eq!(read[0][..], [2; 4096], "{mode}: what was synced last");
        });
    }
}
