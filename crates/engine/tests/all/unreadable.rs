//! A sector of home cannot be read, and the log holds a part of its block: that block stays in the
//! log, and everything else goes on.

use crate::common::{Layout, Rig, Setup};
use crate::restart::{overwrite, put, restart};
use crate::restart::{rig as scattered_rig, setup as scattered_setup};
use device::Operation;
use disks::{CrashPolicy, Fault};
use engine::{CheckpointTimes, Engine, OffHours, RecordFormat};
use journal::DataMode;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use units::BlockRange;

const BLOCK: u64 = 4096;
/// A block that cannot be read.
const BAD: u64 = 5;

fn setup(checkpoint: CheckpointTimes) -> Setup {
    let mut setup = Setup::new(DataMode::Wasteless, Layout::Separate, BLOCK as u32);
    setup.options.checkpoint = checkpoint;
    setup
}

/// A rig of which these blocks of home cannot be read.
fn rig_without(setup: &Setup, blocks: Range<u64>) -> Rig {
    let rig = Rig::new(setup, 1, setup.images());
    let range = blocks.start * BLOCK..blocks.end * BLOCK;
    rig.disks[0].inject(Fault { range, ..Fault::forever(Operation::Read) });
    rig
}

async fn put_part(engine: &Rc<Engine>, block: u64) {
    overwrite(engine, block, BlockRange::new(8, 12), b"part", 4).await;
}

async fn wait(engine: &Engine, milliseconds: u64) {
    let world = engine.world();
    world.sleep_until(world.now().plus(Duration::from_millis(milliseconds))).await;
}

fn data_written(engine: &Engine) -> u64 {
    engine.statistics().home_written.get("data").map_or(0, |count| count.blocks)
}

#[test]
fn a_checkpoint_by_itself_leaves_an_unreadable_block_for_the_next() {
    let off_hours = [(0, 12), (12, 0)].map(|(from, to)| OffHours::between(from, to).unwrap());
    let [before_noon, after_noon] = off_hours.map(CheckpointTimes::OffHours);
    let ten = Duration::from_millis(10);
    let times =
        [CheckpointTimes::Periodic(ten), CheckpointTimes::Idle(ten), before_noon, after_noon];
    let mut written_back = 0;
    for checkpoint in times {
        let rig = rig_without(&setup(checkpoint), BAD..BAD + 1);
        let disk = rig.disks[0].clone();
        let is_time = rig.play(async move |engine| {
            put_part(&engine, BAD).await;
            wait(&engine, 1000).await;
            engine.check().unwrap_or_else(|error| panic!("{checkpoint:?}: {error}"));
            put_part(&engine, BAD + 1).await;
            wait(&engine, 1000).await;
            let is_time = data_written(&engine) == 1;
            disk.heal();
            wait(&engine, 1000).await;
            assert_eq!(data_written(&engine), if is_time { 2 } else { 0 }, "{checkpoint:?}");
            engine.shutdown().await.unwrap();
            is_time
        });
        written_back += u32::from(is_time);
        assert_eq!(rig.home_block(BAD)[8..12], *b"part");
    }
    assert_eq!(written_back, 3, "it is before noon or after it");
}

#[test]
fn a_checkpoint_on_request_reports_what_it_could_not_write_back() {
    let rig = rig_without(&setup(CheckpointTimes::Manual), BAD..BAD + 1);
    let disk = rig.disks[0].clone();
    rig.play(async move |engine| {
        for block in BAD - 1..BAD + 2 {
            put_part(&engine, block).await;
        }
        assert!(engine.checkpoint().await.is_err(), "it is not home");
        assert_eq!(data_written(&engine), 2, "the others are");
        disk.heal();
        engine.checkpoint().await.unwrap();
        assert_eq!(data_written(&engine), 3);
        engine.shutdown().await.unwrap();
    });
    assert_eq!(rig.home_block(BAD)[8..12], *b"part");
}

/// The oldest transaction needs it, so the tail stays: but the room in front of it is used.
#[test]
fn a_log_is_used_up_before_an_unreadable_block_stops_it() {
    for heals in [true, false] {
        let rig = rig_without(&setup(CheckpointTimes::ByAge), BAD..BAD + 1);
        let disk = rig.disks[0].clone();
        rig.play(async move |engine| {
            put_part(&engine, BAD).await;
            let mut number = 0;
            while engine.statistics().log.free_blocks * 10 > engine.statistics().log.blocks * 3 {
                put(&engine, 10 + number % 200, number as u8).await;
                number += 1;
            }
            wait(&engine, 3000).await;
            engine.check().expect("there is room");
            if heals {
                disk.heal();
            }
            for number in 0..2000 {
                let mut handle = match engine.start(engine::Credits(1)).await {
                    Ok(handle) => handle,
                    Err(error) => {
                        assert!(!heals, "{error}");
                        return;
                    }
                };
                handle.create(units::HomeBlock(10 + number % 200));
                let committed = engine.commit(handle.stop()).await;
                assert!(committed.is_ok() || !heals, "{committed:?}");
            }
            assert!(heals, "a log that is full of it ends with its error");
        });
    }
}

/// Unreadable blocks fill more than half of the cache, in which only others can be written back.
#[test]
fn memory_is_shared_with_blocks_that_cannot_be_read() {
    const UNREADABLE: u64 = 600;
    let mut setup = setup(CheckpointTimes::Manual);
    (setup.home_blocks, setup.log_blocks) = (4096, 16384);
    let rig = rig_without(&setup, 0..UNREADABLE);
    let disk = rig.disks[0].clone();
    rig.play(async move |engine| {
        for block in 0..UNREADABLE {
            put_part(&engine, block).await;
        }
        wait(&engine, 100).await;
        for block in UNREADABLE..2 * UNREADABLE {
            put_part(&engine, block).await;
        }
        engine.sync().await.unwrap();
        assert!(data_written(&engine) > 0, "nothing was written back for memory");
        disk.heal();
        engine.shutdown().await.unwrap();
    });
    for block in 0..2 * UNREADABLE {
        assert_eq!(rig.home_block(block)[8..12], *b"part");
    }
}

/// Scattered logs keep what cannot be written home also behind an orderly end: that was no failed
/// write, and the journal is as sound as after a crash.
#[test]
fn an_orderly_end_leaves_an_unreadable_block_in_the_log() {
    for quiesces in [false, true] {
        let setup = scattered_setup(DataMode::Wasteless, RecordFormat::Packed);
        let unreadable = |images| {
            let rig = scattered_rig(&setup, images);
            let range = BAD * BLOCK..(BAD + 1) * BLOCK;
            rig.disks[0].inject(Fault { range, ..Fault::forever(Operation::Read) });
            rig
        };
        let rig = unreadable(setup.images());
        rig.play(async move |engine| {
            put_part(&engine, BAD).await;
            let ended = match quiesces {
                true => engine.quiesce().await,
                false => engine.shutdown().await,
            };
            assert!(ended.is_err(), "it is not home");
            wait(&engine, 100).await;
        });
        let left = rig.disks.iter().map(|disk| disk.crash(CrashPolicy::LoseAll)).collect();
        let rig = unreadable(left);
        let (parts, disk) = (rig.parts.clone(), rig.disks[0].clone());
        rig.run(async move {
            let (report, engine) = restart(parts).await;
            assert_eq!(report.recorded_error, 0, "nothing failed to be written");
            put_part(&engine, BAD + 1).await;
            disk.heal();
            engine.shutdown().await.unwrap();
        })
        .unwrap();
        for block in [BAD, BAD + 1] {
            assert_eq!(rig.home_block(block)[8..12], *b"part", "quiesces: {quiesces}");
        }
    }
}
