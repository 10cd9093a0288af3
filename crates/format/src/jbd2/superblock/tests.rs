use super::bytes::checksum;
use super::*;
use crate::field::{be32, put32};
use crate::jbd2::error::JournalFormatError;

fn superblock() -> JournalSuperblock {
    let mut superblock = JournalSuperblock::new(BlockSize::new(1024).unwrap(), 2048, [5; 16]);
    superblock.set_log_format(true, true, true);
    superblock.set_tail(TransactionId(7), LogBlock(9));
    superblock.users[47] = [1; 16];
    superblock
}
fn parse(superblock: &JournalSuperblock) -> Result<JournalSuperblock, JournalFormatError> {
    JournalSuperblock::parse(&superblock.serialize(), superblock.block_size, 2048)
}

#[test]
fn both_versions_come_back_as_written() {
    assert_eq!(parse(&superblock()), Ok(superblock()));
    let mut old = JournalSuperblock::new(BlockSize::new(4096).unwrap(), 2048, [0; 16]);
    old.version = SuperblockVersion::V1;
    assert_eq!(parse(&old), Ok(old));
}

fn packed(unit: u32) -> JournalSuperblock {
    let mut superblock = superblock();
    superblock.set_clean(TransactionId(3));
    superblock.set_log_format(true, true, false);
    superblock.set_packed(PackedLog { unit, nonce: 0x0123_4567_89ab_cdef, gap_max: 0 });
    superblock
}

#[test]
fn a_log_of_packed_transactions_counts_in_its_units() {
    let mut live = packed(512);
    live.set_tail(TransactionId(7), LogBlock(4095));
    assert_eq!(live.log_blocks(), LogBlock(2)..LogBlock(4096));
    assert_eq!(parse(&live), Ok(live.clone()));
    live.set_tail(TransactionId(7), LogBlock(1));
    assert!(parse(&live).is_err(), "before the log");
    let clean = JournalSuperblock { start: LogBlock(0), ..live };
    assert!(parse(&clean).unwrap().is_forgotten());
}

#[test]
fn scattered_logs_are_named_while_they_hold_records() {
    for mut live in [superblock(), packed(512)] {
        live.start = LogBlock(0);
        live.set_scattered(0xfedc_ba98_7654_3210);
        live.scattered.as_mut().unwrap().active.set(1023);
        live.transaction_bound = Some(4096);
        live.set_tail(TransactionId(7), live.log_blocks().start);
        assert_eq!(parse(&live), Ok(live.clone()));
        let forgotten = JournalSuperblock { start: LogBlock(0), ..live.clone() };
        assert!(parse(&forgotten).unwrap().is_forgotten());
        live.set_clean(TransactionId(8));
        assert_eq!((live.scattered.clone(), parse(&live)), (None, Ok(live)));
    }
}

#[test]
fn a_snapshot_is_named_until_the_log_is_clean_and_only_with_scattered_logs() {
    let mut live = superblock();
    live.users[47] = [0; 16];
    live.start = LogBlock(0);
    live.set_scattered(5);
    live.set_tail(TransactionId(7), live.log_blocks().start);
    let mut since = ActiveLogs::none();
    since.set(1023);
    let (end, read_from) = (TransactionId(u32::MAX), TransactionId(u32::MAX - 1));
    let (first_at, longest) = (LogBlock(4), 128);
    let named = NamedSnapshot { first: 3, first_at, last: 9, end, read_from, longest, since };
    live.name_snapshot(Some(named.clone()));
    let read = parse(&live).unwrap();
    assert_eq!((read.named_snapshot(), &read), (Some(&named), &live));
    // A write may be torn between sectors.
    let mut without = live.clone();
    without.name_snapshot(None);
    assert_eq!(live.serialize()[512..], without.serialize()[512..]);
    let mut lost = live.clone();
    lost.incompatible &= !Incompatible::SCATTERED;
    assert!(parse(&lost).unwrap_err().to_string().contains("names a snapshot"));
    live.set_clean(TransactionId(8));
    assert!(!parse(&live).unwrap().has_incompatible(Incompatible::SNAPSHOT));
}

#[test]
fn copies_that_do_not_count_are_marked_until_they_do() {
    let mut live = superblock();
    live.users[47] = [0; 16];
    live.start = LogBlock(0);
    live.set_scattered(5);
    live.set_tail(TransactionId(7), live.log_blocks().start);
    let without = live.clone();
    live.set_moving(Some(LogBlock(5000)));
    assert_eq!(
        (parse(&live).unwrap().moving(), parse(&live)),
        (Some(LogBlock(5000)), Ok(live.clone()))
    );
    // A write may be torn between sectors.
    assert_eq!(live.serialize()[512..], without.serialize()[512..]);
    let since = ActiveLogs::none();
    let (end, read_from, first_at) = (TransactionId(9), TransactionId(8), LogBlock(4));
    let named = NamedSnapshot { first: 3, first_at, last: 9, end, read_from, longest: 7, since };
    live.name_snapshot(Some(named.clone()));
    assert_eq!(parse(&live), Ok(live.clone()));
    live.set_moving(None);
    let read = parse(&live).unwrap();
    assert_eq!((read.moving(), read.named_snapshot()), (None, Some(&named)));
    live.set_moving(Some(LogBlock(5000)));
    let mut lost = live.clone();
    lost.incompatible &= !(Incompatible::SCATTERED | Incompatible::SNAPSHOT);
    assert!(parse(&lost).unwrap_err().to_string().contains("runs move"));
    live.set_clean(TransactionId(8));
    assert!(!parse(&live).unwrap().has_incompatible(Incompatible::MOVING));
}

#[test]
fn a_bound_of_transactions_counts_until_somebody_else_moves_the_log_on() {
    for mut live in [superblock(), packed(512)] {
        live.set_tail(TransactionId(u32::MAX), live.log_blocks().start);
        live.transaction_bound = Some(128);
        assert_eq!(parse(&live), Ok(live.clone()));
        let mut block = live.serialize();
        put32(&mut block, at::SEQUENCE, 5);
        let sum = checksum(&block);
        put32(&mut block, at::CHECKSUM, sum);
        let moved = JournalSuperblock::parse(&block, live.block_size, 2048).unwrap();
        assert_eq!(moved.transaction_bound, None);
        live.set_clean(TransactionId(8));
        let clean = live.serialize();
        assert_eq!(
            (be32(&clean, at::MAX_TRANSACTION), be32(&clean, at::MAX_TRANSACTION_SINCE)),
            (0, 0)
        );
    }
}

#[test]
fn units_that_are_no_sectors_of_a_block_are_refused() {
    for unit in [0, 1, 256, 513, 2048, 1 << 31] {
        let mut changed = packed(1024);
        changed.packed = Some(PackedLog { unit, nonce: 1, gap_max: 0 });
        assert!(parse(&changed).is_err(), "{unit}");
    }
    let mut long = JournalSuperblock { length: 1 << 31, ..packed(1024) };
    assert_eq!(long.shortest_unit(), 1024);
    assert!(long.check_unit().is_ok());
    long.packed = Some(PackedLog { unit: 512, nonce: 1, gap_max: 0 });
    assert!(long.check_unit().is_err());
}

/// A superblock with gaps of up to `gap_max` units.
fn with_gaps(unit: u32, gap_max: u32) -> JournalSuperblock {
    let mut superblock = packed(unit);
    superblock.set_clean(TransactionId(3));
    superblock.set_packed(PackedLog { unit, nonce: 9, gap_max });
    superblock.set_tail(TransactionId(7), superblock.log_blocks().start);
    superblock
}

#[test]
fn the_longest_gap_comes_back_as_written_until_the_log_is_clean() {
    for (unit, longest) in [(512, 255), (1024, 127)] {
        for gap_max in [1, longest] {
            let mut live = with_gaps(unit, gap_max);
            assert_eq!((live.gap_bound(unit), parse(&live)), (longest, Ok(live.clone())));
            assert!(live.has_incompatible(Incompatible::GAPS));
            live.set_clean(TransactionId(8));
            assert_eq!(be32(&live.serialize(), at::GAP_MAX), 0);
            assert!(!parse(&live).unwrap().has_incompatible(Incompatible::GAPS));
        }
    }
    assert!(
        !packed(512).has_incompatible(Incompatible::GAPS),
        "transactions that lie close together"
    );
}

#[test]
fn gaps_that_recovery_could_not_look_behind_are_refused() {
    type Case = (&'static str, fn(&mut JournalSuperblock));
    let cases: [Case; 5] = [
        ("not packed", |it| it.incompatible &= !Incompatible::PACKED),
        ("are scattered", |it| {
            it.incompatible |= Incompatible::SCATTERED;
            it.scattered = Some(ScatteredLogs {
                nonce: 1 << 32,
                table_mark: 0,
                active: ActiveLogs::none(),
                snapshot: None,
                moving: None,
            });
        }),
        ("gaps of up to 0 units", |it| it.packed.as_mut().unwrap().gap_max = 0),
        ("gaps of up to 256 units", |it| it.packed.as_mut().unwrap().gap_max = 256),
        ("gaps of up to 4294967295 units", |it| it.packed.as_mut().unwrap().gap_max = u32::MAX),
    ];
    for (what, change) in cases {
        let mut changed = with_gaps(512, 255);
        change(&mut changed);
        let refused = parse(&changed).expect_err(what).to_string();
        assert!(refused.contains(what), "{what}: {refused}");
    }
}

#[test]
fn unknown_features_are_refused_by_name() {
    let mut unknown = superblock();
    unknown.incompatible |= 0x100;
    unknown.read_only_compatible |= 0x2;
    let text = parse(&unknown).unwrap_err().to_string();
    assert!(
        text.contains("incompatible 0x100") && text.contains("read-only compatible 0x2"),
        "{text}"
    );
    assert_eq!(Incompatible::NAMES.iter().fold(0, |all, (bit, _)| all | bit), Incompatible::KNOWN);
}

#[test]
fn no_changed_byte_of_a_checksummed_superblock_is_accepted() {
    let block = superblock().serialize();
    for at in 0..SIZE {
        let mut damaged = block.clone();
        damaged[at] ^= 0x20;
        let parsed = JournalSuperblock::parse(&damaged, superblock().block_size, 2048);
        assert!(parsed.is_err(), "byte {at}");
    }
}

#[test]
fn logs_outside_the_journal_are_refused() {
    let cases: [fn(&mut JournalSuperblock); 6] = [
        |it| it.length = 2049,
        |it| it.first = LogBlock(0),
        |it| it.first = LogBlock(2047),
        |it| it.start = LogBlock(2048),
        |it| (it.first, it.start) = (LogBlock(5), LogBlock(4)),
        |it| it.length = 2,
    ];
    for (number, change) in cases.into_iter().enumerate() {
        let mut changed = superblock();
        change(&mut changed);
        assert!(parse(&changed).is_err(), "case {number}");
    }
}

#[test]
fn fast_commit_blocks_are_no_part_of_the_log() {
    let mut fast = superblock();
    assert_eq!((fast.log_end(), fast.fast_commit_start()), (LogBlock(2048), None));
    fast.incompatible |= Incompatible::FAST_COMMIT;
    assert_eq!((fast.log_end(), fast.fast_commit_start()), (LogBlock(1792), Some(LogBlock(1793))));
    fast.fast_commit_blocks = 1025;
    assert_eq!(fast.log_end(), LogBlock(2048));
}

#[test]
fn a_live_multiwrite_log_that_is_called_empty_remembers_where_it_began() {
    let live = superblock();
    let mut block = live.serialize();
    put32(&mut block, at::SEQUENCE, 0);
    put32(&mut block, at::START, 0);
    let sum = checksum(&block);
    put32(&mut block, at::CHECKSUM, sum);
    let forgotten = JournalSuperblock::parse(&block, live.block_size, 2048).unwrap();
    assert!(forgotten.is_forgotten() && !live.is_forgotten());
    assert_eq!(forgotten.remembered(), Some(live.clone()));
    // From a version that did not store the field, or nonsense.
    for kept in [0, 2048] {
        let nowhere =
            JournalSuperblock { kept: Some((live.sequence, LogBlock(kept))), ..forgotten.clone() };
        assert_eq!(nowhere.remembered(), None);
    }
    let mut clean = live;
    clean.set_clean(TransactionId(9));
    assert_eq!(clean.serialize()[at::KEPT_SEQUENCE..at::CHECKSUM], [0; 8]);
}

#[test]
fn a_superblock_and_its_copy_that_differ_are_found_out() {
    let live = superblock();
    let mut block = live.serialize();
    let same = JournalSuperblock::parse(&block, live.block_size, 2048).unwrap();
    assert_eq!(same.disputed(), None);
    put32(&mut block, at::SEQUENCE, live.sequence.0.wrapping_add(1000));
    let sum = checksum(&block);
    put32(&mut block, at::CHECKSUM, sum);
    let forged = JournalSuperblock::parse(&block, live.block_size, 2048).unwrap();
    assert_eq!(forged.disputed(), Some(live));
}

#[test]
fn a_clean_log_has_no_live_multiwrite_records() {
    let mut superblock = superblock();
    superblock.set_clean(TransactionId(u32::MAX));
    assert!(superblock.is_clean() && !superblock.has_incompatible(Incompatible::MULTIWRITE));
    assert_eq!(superblock.next_transaction(), TransactionId(0));
}
