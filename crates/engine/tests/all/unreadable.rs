//! A sector of home cannot be read, and the log holds a part of its block: that block stays in the
//! log, and everything else goes on.

use crate::common::{Layout, Rig, Setup};
use crate::restart::{LOGS, content, live, log_home, overwrite, put, read, restart};
use crate::restart::{rig as scattered_rig, setup as scattered_setup};
use device::Operation;
use disks::{CrashPolicy, Fault, Image};
use engine::{CheckpointTimes, Engine, OffHours, RecordFormat, RecoveryReport};
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

/// Blocks that are written to scattered logs, a transaction for each.
const WRITTEN: u64 = 12;

/// A part of the log that cannot be read, and what comes of it.
struct Unread<'a> {
    setup: &'a Setup,
    images: &'a [Image],
    range: Range<u64>,
}

impl Unread<'_> {
    fn rig(&self) -> Rig {
        let rig = scattered_rig(self.setup, self.images.to_vec());
        let fault = Fault { range: self.range.clone(), ..Fault::forever(Operation::Read) };
        rig.disks[0].inject(fault);
        rig
    }
    /// Restarts, and looks whether all is there. Returns why it was refused, or whether the logs
    /// were kept.
    fn restarted(&self) -> Result<bool, String> {
        let rig = self.rig();
        let (parts, disk) = (rig.parts.clone(), rig.disks[0].clone());
        rig.run(async move {
            let restarted = engine::restart(&parts, &[]).await;
            let (_, kept) = restarted.map_err(|error| error.to_string())?;
            let is_kept = kept.is_some();
            let engine = Engine::open_with(parts, kept).await.unwrap();
            // A copy is read with the rest of its block.
            disk.heal();
            for block in 0..WRITTEN {
                assert_eq!(read(&engine, block).await, content(block, 1), "{block}");
            }
            Ok(is_kept)
        })
        .unwrap()
    }
    /// Recovers what lies before the damage, and checks that it is home.
    fn recovered(&self) -> RecoveryReport {
        let mut rig = self.rig();
        rig.parts.options.until_damage = true;
        let parts = rig.parts.clone();
        let report = rig.run(async move { engine::recover(&parts, false).await }).unwrap();
        let report = report.unwrap_or_else(|error| panic!("{:?}: {error}", self.range));
        for block in 0..report.transactions {
            assert_eq!(rig.home_block(block)[..], content(block, 1), "{:?}: {block}", self.range);
        }
        report
    }
}

/// A unit of the logs that cannot be read refuses the restart only where a run is, or where the
/// next of a log would begin. Asked to, recovery ends the log there. Elsewhere what the logs hold
/// is written home, if the search meets the unit.
#[test]
fn an_unreadable_unit_of_scattered_logs_matters_only_where_a_run_may_be() {
    for (records, unit) in [(RecordFormat::Blocks, BLOCK), (RecordFormat::Packed, 1024)] {
        let mut setup = scattered_setup(DataMode::Wasteless, records);
        setup.options.log_unit = (unit < BLOCK).then_some(unit as u32);
        let images = live(&setup, setup.images(), async |_, engine| {
            for block in 0..WRITTEN {
                read(&engine, log_home(block % LOGS).get() - 1).await;
                put(&engine, block, 1).await;
            }
        });
        let rig = scattered_rig(&setup, images.to_vec());
        let plain = rig.run(restart(rig.parts.clone())).unwrap().0;
        let (mut refused, mut complete, mut sent_home) = (0, 0, 0);
        for (log, at) in (0..LOGS).flat_map(|log| (0..128).map(move |at| (log, at))) {
            let begin = log_home(log).get() * BLOCK + at * unit;
            let unread = Unread { setup: &setup, images: &images, range: begin..begin + unit };
            match unread.restarted() {
                Err(why) => {
                    refused += 1;
                    assert!(
                        why.contains("cannot be read") && why.contains("--until-damage"),
                        "{log}, {at}: {why}"
                    );
                    let report = unread.recovered();
                    assert!(report.gave_up, "{records:?}: {log}, {at}");
                    complete += u64::from(report.transactions == WRITTEN);
                }
                Ok(is_kept) => sent_home += u64::from(!is_kept),
            }
        }
        // Each unit of a run, and one in each log behind the last.
        assert_eq!(plain.transactions, WRITTEN);
        let in_runs = plain.scan.counts.log_blocks_read + plain.transactions;
        assert_eq!((refused, complete), (in_runs + LOGS, LOGS), "{records:?}: {plain:?}");
        let looked_at = plain.run_headers_read - plain.transactions;
        assert_eq!(sent_home, looked_at - LOGS, "{records:?}: {plain:?}");
    }
}

/// No part of a disk that is gone is passed over: the error is the disk's.
#[test]
fn a_disk_that_is_gone_is_no_unreadable_unit() {
    let setup = scattered_setup(DataMode::Wasteless, RecordFormat::Packed);
    let images = live(&setup, setup.images(), async |_, engine| put(&engine, 0, 1).await);
    let rig = scattered_rig(&setup, images);
    let (parts, disk) = (rig.parts.clone(), rig.disks[0].clone());
    // The superblock is read first, as often as it takes.
    disk.inject(Fault { after: 1, ..Fault::forever(Operation::Read) });
    let refused = rig.run(async move { engine::restart(&parts, &[]).await }).unwrap();
    let why = refused.err().expect("nothing can be read").to_string();
    assert!(why.contains("failed"), "{why}");
}
