//! The snapshot of the mapping table: a restart reads it instead of the log, and believes nothing
//! that does not fit.

use crate::common::{Rig, Setup, file_update};
use crate::restart::{self, BLOCKS, all, content, live, overwrite, put, read, rest, rig, setup};
use crate::swap;
use disks::{CrashPolicy, Image};
use engine::{
    Base, Contents, Credits, DataMode, Engine, FileUpdate, LogKind, RecordFormat, RecoveryReport,
};
use format::jbd2::JournalSuperblock;
use std::rc::Rc;
use units::{BlockRange, BlockSize, HomeBlock, LogBlock};

const BYTES: u64 = 4096;
const FREED: u64 = 7;

/// Returns `setup` with a snapshot after each commit.
fn often(mut setup: Setup) -> Setup {
    setup.options.snapshot_after = Some(1);
    setup
}
fn never(mut setup: Setup) -> Setup {
    setup.options.snapshot_after = None;
    setup
}

async fn put_all(engine: &Rc<Engine>, version: u8) {
    restart::put_all(engine, version).await;
    rest(engine).await;
}

async fn free(engine: &Rc<Engine>, block: u64) {
    let mut handle = engine.start(Credits(1)).await.unwrap();
    handle.forget(HomeBlock(block), 1, Contents::Metadata);
    engine.commit(handle.stop()).await.unwrap();
}

fn is_read_from_snapshot(report: &RecoveryReport) {
    assert!(report.snapshot_refused.is_none() && report.snapshot_transactions > 0, "{report:?}");
    assert!(report.blocks_kept > 0, "{report:?}");
}
fn is_read(report: &RecoveryReport) {
    assert!(report.snapshot_refused.is_some() && report.snapshot_transactions == 0, "{report:?}");
    assert!(report.blocks_kept > 0 && report.logs_read > 0, "{report:?}");
}

/// Returns the journal superblock, which is in the first block of the journal's extent.
fn superblock(setup: &Setup, images: &[Image]) -> JournalSuperblock {
    let mut bytes = vec![0; BYTES as usize];
    images[0].read(journal_at(setup) * BYTES, &mut bytes);
    let size = BlockSize::new(BYTES as u32).unwrap();
    JournalSuperblock::parse(&bytes, size, setup.log_blocks.into()).unwrap()
}
/// The block of home in which the journal begins.
fn journal_at(setup: &Setup) -> u64 {
    rig(setup, setup.images()).parts.log.clone().unwrap().extents[0].disk_block
}

/// Number of logs that a writer fills without end; where they and its blocks lie.
const RELIEVED_LOGS: u64 = 8;
const RELIEVED_BLOCKS: u32 = 2048;
const FAR: u64 = 70_000;
/// Blocks of a transaction, no two of them neighbours. So they take much longer to write back than
/// to log.
const AT_ONCE: u64 = 128;

fn relieved_rig(setup: &Setup, images: Vec<Image>) -> Rig {
    let homes = (0..RELIEVED_LOGS).map(|log| HomeBlock(FAR + log * 2 * u64::from(RELIEVED_BLOCKS)));
    let mut rig = Rig::new(setup, 1, images);
    rig.scatter(LogBlock(setup.log_blocks), RELIEVED_BLOCKS, homes.collect());
    rig
}

async fn put_apart(engine: &Rc<Engine>, number: u64) {
    let mut handle = engine.start(Credits(AT_ONCE as u32)).await.unwrap();
    for index in 0..AT_ONCE {
        let block = (number * AT_ONCE + index) * 2 % FAR;
        let made = handle.create(HomeBlock(block));
        let whole = BlockRange::new(0, BYTES as u32);
        handle.change(&made, whole, |bytes| bytes.copy_from_slice(&content(block, 1)));
    }
    engine.commit(handle.stop()).await.unwrap();
}

/// One relief lasts as long as logs fill as fast as they are relieved. What is
/// committed during it is recorded all the same, or a restart would read nearly all that the logs
/// hold.
#[test]
fn what_comes_while_full_logs_are_relieved_is_recorded() {
    for records in [RecordFormat::Blocks, RecordFormat::Packed] {
        let mut setup = often(setup(DataMode::Journal, records));
        setup.home_blocks = FAR + (RELIEVED_LOGS + 1) * 2 * u64::from(RELIEVED_BLOCKS);
        setup.options.cache_bytes = 512 << 20;
        let rig = relieved_rig(&setup, setup.images());
        rig.play(async move |engine| {
            for number in 0..260 {
                put_apart(&engine, number).await;
            }
            assert_eq!(
                engine.statistics().checkpoints,
                1,
                "{records:?}: one relief goes on to the end"
            );
        });
        let images = rig.disks.iter().map(|disk| disk.crash(CrashPolicy::LoseAll)).collect();
        let after = relieved_rig(&setup, images);
        let parts = after.parts.clone();
        let (report, _) = after.run(restart::restart(parts)).unwrap();
        assert!(report.snapshot_refused.is_none(), "{records:?}: {report:?}");
        assert!(report.snapshot_transactions * 2 > report.transactions, "{records:?}: {report:?}");
    }
}

/// Whether the revoke is recorded, or only read from the log, or recorded by the next mount: what
/// was freed does not come back.
#[test]
fn a_block_freed_after_it_was_recorded_never_comes_back() {
    for plain in all() {
        let name = format!("{} {:?}", plain.mode, plain.options.records);
        let setup = often(plain.clone());
        let recorded = live(&setup, setup.images(), async |_, engine| put_all(&engine, 1).await);
        for frees in [often(plain.clone()), never(plain.clone())] {
            let mut images = live(&frees, recorded.clone(), async |report, engine| {
                is_read_from_snapshot(&report);
                assert_eq!(read(&engine, FREED).await, content(FREED, 1));
                free(&engine, FREED).await;
                rest(&engine).await;
            });
            for _ in 0..2 {
                let failed = name.clone();
                images = live(&setup, images, async move |report, engine| {
                    is_read_from_snapshot(&report);
                    assert_ne!(read(&engine, FREED).await, content(FREED, 1), "{failed}");
                    put(&engine, FREED + 1, 2).await;
                    rest(&engine).await;
                });
            }
            let whole = never(plain.clone());
            let failed = name.clone();
            live(&whole, images, async move |_, engine| {
                assert_ne!(read(&engine, FREED).await, content(FREED, 1), "{failed}");
                assert_eq!(read(&engine, FREED + 1).await, content(FREED + 1, 2), "{failed}");
            });
        }
    }
}

/// A part that no snapshot records needs the whole block that one records.
#[test]
fn parts_of_blocks_are_put_over_what_a_snapshot_records() {
    for records in [RecordFormat::Blocks, RecordFormat::Packed] {
        let plain = setup(DataMode::Wasteless, records);
        let recording = often(plain.clone());
        let images = live(&recording, recording.images(), async |_, engine| {
            for block in 0..8 {
                put(&engine, block, 1).await;
            }
            overwrite(&engine, 0, BlockRange::new(50, 54), b"snap", 4).await;
            engine.checkpoint().await.unwrap();
            for block in 0..6 {
                put(&engine, block, 2).await;
            }
            // Recorded, and not home: a restart reads it.
            overwrite(&engine, 3, BlockRange::new(200, 204), b"more", 4).await;
            put(&engine, 6, 2).await;
            rest(&engine).await;
        });
        let images = live(&never(plain.clone()), images, async |report, engine| {
            is_read_from_snapshot(&report);
            overwrite(&engine, 1, BlockRange::new(100, 104), b"part", 4).await;
            overwrite(&engine, 2, BlockRange::new(100, 104), b"part", 4).await;
            put(&engine, 2, 3).await;
        });
        live(&recording, images, async move |report, engine| {
            is_read_from_snapshot(&report);
            for block in 0..8 {
                let version = [2, 2, 3, 2, 2, 2, 2, 1][block as usize];
                let mut expected = content(block, version);
                if block == 1 {
                    expected[100..104].copy_from_slice(b"part");
                }
                if block == 3 {
                    expected[200..204].copy_from_slice(b"more");
                }
                assert_eq!(
                    read(&engine, block).await,
                    expected,
                    "{records:?}: {block}: {report:?}"
                );
            }
        });
    }
}

/// A restart left a part in memory, and its transaction was recorded before it was written back.
/// The whole block of an earlier one counts no more.
#[test]
fn a_part_written_back_is_not_undone_by_an_older_record() {
    for records in [RecordFormat::Blocks, RecordFormat::Packed] {
        let mut plain = setup(DataMode::Wasteless, records);
        plain.options.durable_only = true;
        let (recording, uncovered) = (often(plain.clone()), never(plain));
        let images = live(&recording, recording.images(), async |_, engine| {
            // One transaction, which is needed for the second block as long as that stays in the
            // log.
            let mut handle = engine.start_writing(Credits(0), 2).await.unwrap();
            for block in [0, 1] {
                handle.write_file_data(whole(block, &content(block, 1), block == 1)).await.unwrap();
            }
            engine.commit(handle.stop()).await.unwrap();
            rest(&engine).await;
        });
        let images = live(&uncovered, images, async |report, engine| {
            is_read_from_snapshot(&report);
            overwrite(&engine, 0, BlockRange::new(100, 104), b"part", 4).await;
            put(&engine, 9, 1).await;
        });
        let images = live(&recording, images, async move |report, engine| {
            is_read_from_snapshot(&report);
            assert_eq!(report.blocks_in_part, 1, "{records:?}: {report:?}");
            put(&engine, 10, 1).await;
            rest(&engine).await;
            engine.checkpoint().await.unwrap();
            put(&engine, 11, 1).await;
            rest(&engine).await;
        });
        live(&recording, images, async move |report, engine| {
            is_read_from_snapshot(&report);
            assert_eq!(
                (report.blocks_in_part, report.home_blocks_written),
                (0, 0),
                "{records:?}: {report:?}"
            );
            let mut expected = content(0, 1);
            expected[100..104].copy_from_slice(b"part");
            assert_eq!(read(&engine, 0).await, expected, "{records:?}: {report:?}");
            assert_eq!(read(&engine, 1).await, content(1, 1), "{records:?}: {report:?}");
        });
    }
}

/// A whole block was recorded. A part of it was written back and another logged before more was
/// recorded: that is put over what home has.
#[test]
fn a_part_over_one_written_back_is_not_put_over_the_record() {
    for records in [RecordFormat::Blocks, RecordFormat::Packed] {
        let mut recording = often(setup(DataMode::Wasteless, records));
        recording.options.durable_only = true;
        let mut later = recording.clone();
        later.options.snapshot_after = Some(600 << 10);
        let images = live(&recording, recording.images(), async |_, engine| {
            let mut handle = engine.start_writing(Credits(0), 2).await.unwrap();
            for block in [0, 1] {
                handle.write_file_data(whole(block, &content(block, 1), block == 1)).await.unwrap();
            }
            engine.commit(handle.stop()).await.unwrap();
            rest(&engine).await;
        });
        let images = live(&later, images, async |report, engine| {
            is_read_from_snapshot(&report);
            overwrite(&engine, 0, BlockRange::new(100, 104), b"part", 4).await;
            engine.checkpoint().await.unwrap();
            overwrite(&engine, 0, BlockRange::new(200, 204), b"more", 4).await;
            for block in 20..60 {
                put(&engine, block, 1).await;
            }
            rest(&engine).await;
        });
        live(&recording, images, async move |report, engine| {
            is_read_from_snapshot(&report);
            let mut expected = content(0, 1);
            expected[100..104].copy_from_slice(b"part");
            expected[200..204].copy_from_slice(b"more");
            assert!(read(&engine, 0).await == expected, "{records:?}: {report:?}");
        });
    }
}

/// Returns an update of a whole block of a file.
fn whole(block: u64, bytes: &[u8], durable_only: bool) -> FileUpdate<'_> {
    FileUpdate {
        base: Base::Home,
        request: BYTES,
        in_place: true,
        durable_only,
        ..file_update(block, 0, bytes)
    }
}

/// Loses or garbles each sector of all valid pieces, and each piece in the place of the next.
#[test]
fn no_damage_of_a_snapshot_loses_anything() {
    for records in [RecordFormat::Blocks, RecordFormat::Packed] {
        let setup = often(setup(DataMode::Journal, records));
        let images = live(&setup, setup.images(), async |_, engine| put_all(&engine, 1).await);
        let named = superblock(&setup, &images).named_snapshot().cloned().unwrap();
        let begin = journal_at(&setup) + u64::from(named.first_at.get());
        let pieces = u64::from(named.last - named.first) + 1;
        assert!(pieces > 3, "{pieces} pieces");
        let block = |at: u64| {
            let mut bytes = vec![0; BYTES as usize];
            images[0].read(at * BYTES, &mut bytes);
            bytes
        };
        let damages = (0..3).flat_map(|piece| {
            let mut lost = block(begin + piece);
            lost[..512].fill(0);
            let mut garbage = block(begin + piece);
            garbage[40] ^= 1;
            [lost, garbage, block(begin + piece + 1)].map(|bytes| (begin + piece, bytes))
        });
        for (at, bytes) in damages {
            let mut spoiled = images.clone();
            spoiled[0].write(at * BYTES, &bytes);
            let images = live(&setup, spoiled, async |report, engine| {
                is_read(&report);
                for block in 0..BLOCKS {
                    assert_eq!(read(&engine, block).await, content(block, 1), "{report:?}");
                }
                put_all(&engine, 2).await;
            });
            // The next one records everything.
            live(&setup, images, async |report, engine| {
                is_read_from_snapshot(&report);
                for block in 0..BLOCKS {
                    assert_eq!(read(&engine, block).await, content(block, 2), "{report:?}");
                }
            });
        }
    }
}

/// The first piece was lost, and an older one of the same life of the log is in its place.
#[test]
fn a_piece_counts_only_under_the_number_that_the_superblock_names() {
    let setup = often(setup(DataMode::Journal, RecordFormat::Blocks));
    let older = live(&setup, setup.images(), async |_, engine| put_all(&engine, 1).await);
    let named = superblock(&setup, &older).named_snapshot().cloned().unwrap();
    let at = (journal_at(&setup) + u64::from(named.first_at.get())) * BYTES;
    let mut piece = vec![0; BYTES as usize];
    older[0].read(at, &mut piece);
    // What is refused is recorded anew, from the ring's start on.
    let mut spoiled = older;
    spoiled[0].write(at, &[0; 512]);
    let mut later = live(&setup, spoiled, async |report, engine| {
        is_read(&report);
        put_all(&engine, 2).await;
    });
    let again = superblock(&setup, &later).named_snapshot().cloned().unwrap();
    assert_eq!((again.first, again.first_at), (named.last + 1, named.first_at));
    later[0].write(at, &piece);
    live(&setup, later, async |report, engine| {
        is_read(&report);
        for block in 0..BLOCKS {
            assert_eq!(read(&engine, block).await, content(block, 2), "{report:?}");
        }
    });
}

/// Another program may write everything back, or go on without a snapshot: what an older one
/// recorded counts no more.
#[test]
fn recovery_writes_everything_back_whatever_a_snapshot_records() {
    for setup in all().map(often) {
        let images = live(&setup, setup.images(), async |_, engine| put_all(&engine, 1).await);
        let mut circular = setup.clone();
        circular.options.log = LogKind::Circular;
        let images = live(&circular, images, async |report, engine| {
            assert_eq!((report.blocks_kept, report.home_blocks_written), (0, BLOCKS), "{report:?}");
            put(&engine, 1, 2).await;
        });
        live(&setup, images, async |report, engine| {
            assert_eq!(report.snapshot_transactions, 0);
            for block in 0..BLOCKS {
                let version = if block == 1 { 2 } else { 1 };
                assert_eq!(read(&engine, block).await, content(block, version), "{report:?}");
            }
        });
    }
}

/// A snapshot of what is logged takes sixteen bytes for a block, and a block for each piece.
#[test]
fn what_a_snapshot_takes_is_a_small_part_of_what_is_logged() {
    let mut setup = setup(DataMode::Journal, RecordFormat::Blocks);
    setup.options.snapshot_after = Some(1 << 20);
    live(&setup, setup.images(), async |_, engine| {
        for version in 1..4 {
            put_all(&engine, version).await;
        }
        let statistics = engine.statistics();
        let logged: u64 = ["descriptor", "regular", "commit", "run_header"]
            .iter()
            .map(|kind| statistics.log_written[kind].bytes)
            .sum();
        let [snapshot, named] =
            ["snapshot", "journal_superblock"].map(|kind| statistics.log_written[kind].bytes);
        assert!(
            snapshot > 0 && (snapshot + named) * 4 < logged,
            "{snapshot} and {named} of {logged}"
        );
    });
}

/// Cuts in commits, while a snapshot is written, while logs are swapped, and while the emptied ones
/// are filled again.
#[test]
fn a_restart_with_a_snapshot_keeps_what_was_acknowledged_at_every_cut() {
    let (mut counts, mut swapped) = ((0, 0), Vec::new());
    for mut setup in swap::all() {
        setup.options.snapshot_after = Some(1);
        for cut in 15.. {
            let first = swap::rig(&setup, swap::images(&setup));
            let seen = swap::Versions::default();
            first.cut_at(cut);
            let written = seen.clone();
            let ended = first.try_play(async move |engine| {
                swap::log_all(&engine, 0..swap::FILLS_THREE_LOGS, 1, &written).await;
                swap::rest(&engine).await;
                swap::log_all(&engine, 64..64 + swap::FILLS_THREE_LOGS, 2, &written).await;
                // Each swap is recorded, so all of them take longer than without.
                for _ in 0..3 {
                    swap::rest(&engine).await;
                }
                engine.statistics().swaps
            });
            for tear in cut * 4..cut * 4 + 3 {
                let again = swap::rig(&setup, first.crash(tear));
                let (parts, what) =
                    (again.parts.clone(), format!("{setup:?} cut {cut} tear {tear}"));
                let versions = seen.clone();
                let report = again.run(async move {
                    let (report, engine) = restart::restart(parts).await;
                    swap::are_as_acknowledged(&engine, &versions, &what, &report).await;
                    report
                });
                let report = report.unwrap();
                counts.0 += u32::from(report.snapshot_transactions > 0);
                counts.1 += u32::from(report.snapshot_refused.is_some());
            }
            if let Some(swaps) = ended {
                println!("{swaps} logs swapped");
                swapped.push(swaps);
                break;
            }
        }
    }
    assert!(swapped.iter().all(|swaps| *swaps >= 3), "{swapped:?} logs were swapped");
    println!("{} restarts with a snapshot, {} refused one", counts.0, counts.1);
    assert!(counts.0 > 100 && counts.1 == 0, "{counts:?}");
}
