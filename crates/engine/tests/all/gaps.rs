//! Gaps between packed transactions (`log_gap=`): where they are left, and that recovery finds what
//! lies behind them.

use crate::common::{Layout, Rig, STALE, Script, Setup};
use crate::crash::every_cut;
use crate::restart::overwrite;
use device::Operation;
use disks::{CrashPolicy, Fault, Image};
use engine::{LogGap, LogKind, RecordFormat, RecoveryReport};
use format::jbd2::{Incompatible, JournalSuperblock};
use format::packed::PackedHeader;
use journal::DataMode;
use std::ops::Range;
use std::time::Duration;
use units::{BlockRange, LogBlock, TransactionId};

const SYNCS: u64 = 12;
const BYTES: usize = 100;
const UNIT: u32 = 512;
const GAP: u32 = 3;

/// Transactions of one unit, and nothing is written back before the log is full.
fn setup(layout: Layout, gap: LogGap) -> Setup {
    let mut setup = Setup::new(DataMode::Wasteless, layout, 4096);
    let options = &mut setup.options;
    (options.records, options.log_gap) = (None, gap);
    (options.writeback, options.expire) = (Duration::from_secs(3600), Duration::from_secs(3600));
    setup
}
fn with_gaps(layout: Layout) -> Setup {
    setup(layout, LogGap::Always(GAP * UNIT))
}

/// Runs `syncs` syncs, each of a block of its own. Returns what a power cut leaves of the disks.
fn life(setup: &Setup, syncs: u64) -> Vec<Image> {
    let rig = Rig::new(setup, 1, setup.images());
    rig.play(async move |engine| {
        for block in 0..syncs {
            overwrite(&engine, block, BlockRange::new(0, BYTES as u32), &[block as u8; BYTES], 1)
                .await;
        }
    });
    rig.disks.iter().map(|disk| disk.crash(CrashPolicy::LoseAll)).collect()
}

fn byte_of(rig: &Rig, unit: LogBlock) -> u64 {
    let each = 4096 / UNIT;
    let (block, _) = rig.parts.log.as_ref().unwrap().locate(LogBlock(unit.get() / each)).unwrap();
    (block << 12) + u64::from(unit.get() % each * UNIT)
}
fn read_log(rig: &Rig, unit: LogBlock, length: u32) -> Vec<u8> {
    rig.disks[rig.disks.len() - 1].image().copy(byte_of(rig, unit), length as usize).to_vec()
}
fn superblock(rig: &Rig) -> JournalSuperblock {
    let (size, blocks) = (rig.parts.block_size, u64::from(1024u32));
    JournalSuperblock::parse(&read_log(rig, LogBlock(0), 4096), size, blocks).unwrap()
}
/// The units of each transaction of the log, and its number.
fn transactions(rig: &Rig) -> Vec<(TransactionId, Range<u32>)> {
    let superblock = superblock(rig);
    let Range { start, end } = superblock.log_blocks();
    let header = |at: u32| {
        let header =
            PackedHeader::parse(&read_log(rig, LogBlock(at), UNIT), superblock.packed_seed())?;
        Some((header.transaction, at..at + header.units(UNIT as usize)))
    };
    (start.get()..end.get()).filter_map(header).collect()
}

fn recover(rig: &Rig) -> Result<RecoveryReport, String> {
    let parts = rig.parts.clone();
    rig.run(async move { engine::recover(&parts, false).await })
        .unwrap()
        .map_err(|error| error.to_string())
}
fn has_all(rig: &Rig, syncs: u64) -> bool {
    let holds = |block: u64, byte: u8| rig.home_block(block)[..BYTES] == [byte; BYTES];
    (0..syncs).all(|block| holds(block, block as u8)) && holds(syncs, STALE)
}

#[test]
fn each_transaction_begins_a_gap_behind_the_one_before_it() {
    for layout in [Layout::Internal, Layout::Separate] {
        let setup = with_gaps(layout);
        let rig = Rig::new(&setup, 2, life(&setup, SYNCS));
        let superblock = superblock(&rig);
        assert_eq!(superblock.packed.unwrap().gap_max, GAP);
        let found = transactions(&rig);
        assert_eq!(found.len(), SYNCS as usize);
        let mut end = superblock.start.get();
        for (transaction, units) in found {
            assert_eq!(units, end + GAP..end + GAP + 1, "{transaction:?} on {layout:?}");
            end = units.end;
        }
    }
}

#[test]
fn no_gap_is_left_that_recovery_could_not_recognize() {
    let mut of_blocks = with_gaps(Layout::Internal);
    of_blocks.options.records = Some(RecordFormat::Blocks);
    for setup in [of_blocks, setup(Layout::Internal, LogGap::Off)] {
        let rig = Rig::new(&setup, 2, life(&setup, SYNCS));
        assert!(!superblock(&rig).has_incompatible(Incompatible::GAPS));
        recover(&rig).unwrap();
        assert!(has_all(&rig, SYNCS));
    }
    let mut scattered = crate::restart::setup(DataMode::Wasteless, RecordFormat::Packed);
    scattered.options.log_gap = LogGap::Always(GAP * UNIT);
    assert_eq!(scattered.options.log, LogKind::Scattered);
    let images = crate::restart::live(&scattered, scattered.images(), |_, engine| async move {
        crate::restart::put(&engine, 1, 1).await;
    });
    let rig = crate::restart::rig(&scattered, images);
    assert!(!superblock(&rig).has_incompatible(Incompatible::GAPS));
}

#[test]
fn all_that_was_synced_is_found_behind_gaps() {
    for layout in [Layout::Internal, Layout::Separate] {
        for gap in [UNIT, GAP * UNIT, 20 << 10, LogGap::MOST] {
            // The log goes round.
            for syncs in [SYNCS, 200] {
                let setup = setup(layout, LogGap::Always(gap));
                let rig = Rig::new(&setup, 2, life(&setup, syncs));
                let report = recover(&rig).unwrap();
                assert!(has_all(&rig, syncs), "gaps of {gap} bytes, {layout:?}: {report:?}");
                assert!(superblock(&rig).is_clean() && superblock(&rig).packed.is_none());
            }
        }
    }
}

/// A mount may have other gaps than the one before it, and other than those at the log's beginning.
#[test]
fn the_next_mount_leaves_the_gaps_of_its_own_options() {
    let (first, then) = (with_gaps(Layout::Separate), setup(Layout::Separate, LogGap::Off));
    for (first, then) in [(&first, &then), (&then, &first)] {
        let rig = Rig::new(then, 2, life(first, SYNCS));
        rig.play(async move |engine| {
            overwrite(&engine, 1, BlockRange::new(0, BYTES as u32), &[1; BYTES], 1).await;
        });
        let images = rig.disks.iter().map(|disk| disk.crash(CrashPolicy::LoseAll)).collect();
        let rig = Rig::new(first, 3, images);
        let expected = if then.options.log_gap == LogGap::Off { 0 } else { GAP };
        assert_eq!(superblock(&rig).packed.unwrap().gap_max, expected);
        recover(&rig).unwrap();
        assert!(has_all(&rig, SYNCS));
    }
}

/// A sector that a power cut of long ago has left so.
#[test]
fn a_sector_of_a_gap_that_cannot_be_read_does_not_matter() {
    for layout in [Layout::Internal, Layout::Separate] {
        let setup = with_gaps(layout);
        let images = life(&setup, SYNCS);
        for unit in 0..3 * (GAP + 1) {
            let rig = Rig::new(&setup, 2, images.clone());
            let begin = transactions(&rig)[3].1.start;
            let (at, disk) =
                (byte_of(&rig, LogBlock(begin + unit)), &rig.disks[rig.disks.len() - 1]);
            let range = at..at + u64::from(UNIT);
            disk.inject(Fault { range: range.clone(), ..Fault::forever(Operation::Read) });
            disk.record();
            let recovered = recover(&rig);
            if unit % (GAP + 1) == 0 {
                assert!(recovered.is_err(), "a transaction that cannot be read");
                continue;
            }
            recovered
                .unwrap_or_else(|error| panic!("{layout:?}, unit {unit} from {begin} on: {error}"));
            assert!(has_all(&rig, SYNCS));
            // A disk takes seconds for each.
            let touches = disk.take_log().into_iter().filter(|read| {
                read.operation == Operation::Read
                    && read.at < range.end
                    && range.start < read.at + read.length
            });
            assert!(touches.count() <= 4, "{layout:?}, unit {unit}");
        }
    }
}

#[test]
fn where_the_next_transaction_may_lie_but_cannot_be_read_recovery_stops() {
    let setup = with_gaps(Layout::Internal);
    let images = life(&setup, SYNCS);
    for unit in 0..=GAP {
        let mut rig = Rig::new(&setup, 2, images.clone());
        let end = transactions(&rig).last().unwrap().1.end;
        let at = byte_of(&rig, LogBlock(end + unit));
        let fault = Fault { range: at..at + u64::from(UNIT), ..Fault::forever(Operation::Read) };
        rig.disks[0].inject(fault);
        let refused = recover(&rig).unwrap_err();
        assert!(
            refused.contains(&format!("log block {} cannot be read", end + unit)),
            "unit {unit}: {refused}"
        );
        assert!(!superblock(&rig).is_clean());
        rig.parts.options.until_damage = true;
        let report = recover(&rig).unwrap();
        assert!(report.gave_up && has_all(&rig, SYNCS), "unit {unit}: {report:?}");
    }
}

#[test]
fn acknowledged_changes_survive_every_cut_with_gaps() {
    for layout in [Layout::Internal, Layout::Separate] {
        for (commits_in_flight, gap) in
            [(1, GAP * UNIT), (2, GAP * UNIT), (1, 20 << 10), (2, 20 << 10)]
        {
            for mode in [DataMode::Wasteless, DataMode::Ordered] {
                let mut setup = Setup::new(mode, layout, 4096);
                let options = &mut setup.options;
                (options.records, options.log_gap) =
                    (Some(RecordFormat::Packed), LogGap::Always(gap));
                options.commits_in_flight = commits_in_flight;
                setup.forced_unit_access = layout == Layout::Separate || commits_in_flight == 1;
                let script =
                    Script { writers: 3, handles: 24, sync_one_in: 3, seed: u64::from(gap) };
                every_cut(&setup, script).unwrap();
            }
        }
    }
}
