//! Recovery of logs that are not as a clean crash leaves them: damage, remains, nonsense.

use crate::simulation::*;
use format::jbd2::{
    BlockTag, CommitBlock, DescriptorBlock, Incompatible, JournalSuperblock, LogLayout, RevokeBlock,
};
use journal::*;
use units::*;

const PLAIN: Format = Format { block_size: 1024, checksums: true, wide: true, extended: false };
const EXTENDED: Format = Format { extended: true, ..PLAIN };

/// Creates a volume in which each transaction logs block 5 whole (plain) or eight bytes of it,
/// filled with its number.
fn volume_with(format: Format, transactions: u8) -> Volume {
    let mut volume = Volume::new(format, 64, TransactionId(100));
    for byte in 1..=transactions {
        let mut running = volume.running();
        log(&mut volume, &mut running, byte);
        volume.commit(running);
    }
    volume
}
fn log(volume: &mut Volume, running: &mut RunningTransaction, byte: u8) {
    if volume.format.extended {
        let range = BlockRange::new(u32::from(byte) * 16, u32::from(byte) * 16 + 8);
        running.add_data_bytes(volume.change(5, range, byte), range, false);
    } else {
        running.add_data_block(volume.change(5, volume.block_size.whole(), byte), 1024);
    }
}
/// Log blocks of a transaction: descriptor, one logged block, commit block.
const BLOCKS: usize = 3;

#[test]
fn damage_to_a_committed_plain_transaction_is_reported_and_nothing_is_written() {
    for (block, what) in [(0, "descriptor block"), (1, "copy of block 5")] {
        for transaction in 0..3 {
            let mut volume = volume_with(PLAIN, 3);
            volume.disk.log[1 + transaction * BLOCKS + block][600] ^= 1;
            let home = volume.disk.home.clone();
            let error = recover(&mut volume.disk).unwrap_err();
            assert!(matches!(error, RecoverError::Damaged { .. }), "{error}");
            assert!(error.to_string().contains(what), "{error}");
            assert!(volume.disk.home == home, "damage in {what} of {transaction}");
        }
    }
}

#[test]
fn a_torn_extended_transaction_ends_the_log_wherever_it_is_torn() {
    for block in 0..BLOCKS {
        let mut volume = volume_with(EXTENDED, 3);
        volume.disk.log[1 + 2 * BLOCKS + block][600] ^= 1;
        let recovered = recover(&mut volume.disk).unwrap();
        assert_eq!(recovered.scanned.end, TransactionId(102), "log block {block}");
        assert_eq!(
            (volume.disk.home[5][16], volume.disk.home[5][32], volume.disk.home[5][48]),
            (1, 2, 5)
        );
    }
}

#[test]
fn damage_to_a_committed_extended_transaction_is_no_torn_end() {
    // The third transaction began when the second was durable: were the log to end before the
    // second, both would be dropped silently.
    for block in 0..BLOCKS {
        let mut volume = volume_with(EXTENDED, 3);
        volume.disk.log[1 + BLOCKS + block][600] ^= 1;
        let pristine = volume.disk.home.clone();
        let error = recover(&mut volume.disk).map(|_| ()).unwrap_err();
        assert!(
            matches!(error, RecoverError::Damaged { transaction: TransactionId(101), .. }),
            "log block {block}: {error}"
        );
        assert_eq!(volume.disk.home, pristine);
    }
}

#[test]
fn lost_block_inside_log_is_damage_not_end() {
    // Whatever the block held: the transactions behind it began when it was durable.
    for format in [PLAIN, EXTENDED] {
        for (block, lost) in (0..2 * BLOCKS).flat_map(|block| [(block, 0), (block, 0xa5)]) {
            let mut volume = volume_with(format, 4);
            volume.disk.log[1 + BLOCKS + block].fill(lost);
            let pristine = volume.disk.home.clone();
            let error = recover(&mut volume.disk).map(|_| ()).unwrap_err();
            let transaction = TransactionId(101 + (block / BLOCKS) as u32);
            let expected = matches!(error, RecoverError::Damaged { transaction: found,
                .. } if found == transaction);
            assert!(expected, "{format:?}, log block {block}: {error}");
            assert_eq!(volume.disk.home, pristine);
        }
    }
}

#[test]
fn many_lost_transactions_are_missed_as_one_is_also_where_the_log_wraps() {
    for format in [PLAIN, EXTENDED] {
        for lost in 1..9 {
            let mut volume = volume_with(format, 20);
            let everything_home = volume.plan_checkpoint(&[HomeBlock(5)]);
            perform(&mut volume.disk, &everything_home);
            volume.log.release_before(volume.superblock.sequence);
            for byte in 21..=35 {
                let mut running = volume.running();
                log(&mut volume, &mut running, byte);
                volume.commit(running);
            }
            // The first transaction stays, at the end of the log; the next ones lie at its
            // beginning.
            let blocks = lost * BLOCKS;
            assert_eq!(volume.superblock.start, LogBlock(61));
            volume.disk.log[1..1 + blocks].iter_mut().for_each(|block| block.fill(0));
            let error = recover(&mut volume.disk).map(|_| ()).unwrap_err();
            let transaction = volume.superblock.sequence.next();
            let expected = matches!(error, RecoverError::Damaged { transaction: found,
                .. } if found == transaction);
            assert!(expected, "{format:?}, {lost} lost: {error}");
        }
    }
}

#[test]
fn recovery_looks_no_further_ahead_than_transactions_in_flight_reach() {
    for format in [PLAIN, EXTENDED] {
        let bounded = || {
            let mut volume = volume_with(format, 8);
            volume.superblock.transaction_bound = Some(BLOCKS as u32);
            volume.disk.log[0] = volume.superblock.serialize();
            volume
        };
        let reach = u64::from(IN_FLIGHT_MAX + 1) * BLOCKS as u64;
        let read = recover(&mut bounded().disk).unwrap().counts[0].log_blocks_read;
        assert_eq!(read, 8 * BLOCKS as u64 + reach, "{format:?}");
        assert!(
            recover(&mut volume_with(format, 8).disk).unwrap().counts[0].log_blocks_read > read
        );
        // As many are missing as may have been in flight at once.
        for lost in 1..=IN_FLIGHT_MAX as usize {
            let mut volume = bounded();
            let blocks = 1 + BLOCKS..1 + (1 + lost) * BLOCKS;
            volume.disk.log[blocks].iter_mut().for_each(|block| block.fill(0));
            let error = recover(&mut volume.disk).map(|_| ()).unwrap_err();
            let expected =
                matches!(error, RecoverError::Damaged { transaction: TransactionId(101), .. });
            assert!(expected, "{format:?}, {lost} lost: {error}");
        }
    }
}

#[test]
fn the_loss_of_a_header_of_the_last_extended_transaction_ends_the_log() {
    for block in [0, BLOCKS - 1] {
        let mut volume = volume_with(EXTENDED, 3);
        volume.disk.log[1 + 2 * BLOCKS + block].fill(0);
        assert_eq!(
            recover(&mut volume.disk).unwrap().scanned.end,
            TransactionId(102),
            "block {block}"
        );
    }
}

#[test]
fn recovery_until_damage_replays_what_lies_before_and_never_meets_what_lay_behind() {
    // Whether the damage is in the body or has taken the header, and in each kind of log.
    for (format, block, take) in [
        (PLAIN, 0, 1024),
        (PLAIN, 1, 8),
        (EXTENDED, 0, 1024),
        (EXTENDED, 1, 8),
        (EXTENDED, 2, 1024),
    ] {
        let mut volume = volume_with(format, 20);
        volume.disk.log[1 + BLOCKS + block][..take].fill(0xa5);
        assert!(recover(&mut volume.disk).is_err(), "{format:?}, block {block}");
        let recovered = recover_with(&mut volume.disk, usize::MAX, true).unwrap();
        assert_eq!(recovered.scanned.end, TransactionId(101));
        assert_eq!(
            volume.disk.home[5],
            state_after(&volume, format, 1),
            "{format:?}, block {block}"
        );
        // The log begins anew over the old one: each new transaction ends where an old one begins.
        let mut again = Volume {
            next: recovered.scanned.next,
            ..Volume::new(format, 64, recovered.scanned.next)
        };
        (again.committed, again.disk.home) = (volume.disk.home.clone(), volume.disk.home.clone());
        again.disk.log[1..].clone_from_slice(&volume.disk.log[1..]);
        for byte in 31..40 {
            let mut running = again.running();
            log(&mut again, &mut running, byte);
            again.commit(running);
            let mut disk = again.disk.clone();
            assert_eq!(recover(&mut disk).unwrap().scanned.end, again.next, "{format:?}, {byte}");
            assert!(disk.home == again.committed);
        }
    }
}

#[test]
fn remains_of_earlier_rounds_of_the_log_are_never_taken_for_new() {
    for format in [PLAIN, EXTENDED] {
        let mut volume = volume_with(format, 10);
        let old = volume.disk.log.clone();
        let recovered = recover(&mut volume.disk).unwrap();
        // The log begins again at its first block, over the old one.
        let mut again = Volume {
            next: recovered.scanned.next,
            ..Volume::new(format, 64, recovered.scanned.next)
        };
        again.disk.home = volume.disk.home.clone();
        again.committed = volume.disk.home.clone();
        again.disk.log[1..].clone_from_slice(&old[1..]);
        for byte in [51, 52] {
            let mut running = again.running();
            log(&mut again, &mut running, byte);
            again.commit(running);
            let mut disk = again.disk.clone();
            let recovered = recover(&mut disk).unwrap();
            assert_eq!(recovered.scanned.end, again.next, "{format:?}");
            assert!(disk.home == again.committed, "{format:?}");
        }
    }
}

#[test]
fn commit_time_rejects_stale_journal_with_expected_numbers() {
    // As after re-creating a journal over an old one of the same volume: the body is foreign, the
    // commit block is right and older.
    let mut volume = volume_with(PLAIN, 2);
    let layout = volume.superblock.layout();
    let time = Timestamp { seconds: 1_600_000_000, nanoseconds: 0 };
    let stale = CommitBlock { transaction: TransactionId(101), time, whole: None };
    stale.serialize(&layout, &mut volume.disk.log[2 * BLOCKS]);
    volume.disk.log[1 + BLOCKS + 1][0] ^= 1;
    let recovered = recover(&mut volume.disk).unwrap();
    assert_eq!(recovered.scanned.end, TransactionId(101));
}

#[test]
fn a_log_that_is_one_ring_of_revokes_is_read_once() {
    let mut volume = Volume::new(PLAIN, 64, TransactionId(1));
    let layout = volume.superblock.layout();
    let revoke = RevokeBlock { transaction: TransactionId(1), blocks: vec![HomeBlock(1)] };
    volume.disk.log[1..].iter_mut().for_each(|block| revoke.serialize(&layout, block));
    let recovered = recover(&mut volume.disk).unwrap();
    assert_eq!(recovered.counts[0].log_blocks_read, 63);
    assert_eq!(recovered.scanned.end, TransactionId(1));
}

/// Creates a log with one committed transaction whose tag names `home`.
fn forged(home: u64) -> Volume {
    let mut volume = Volume::new(PLAIN, 64, TransactionId(1));
    let layout = volume.superblock.layout();
    let (transaction, time) = (TransactionId(1), Timestamp::default());
    let checksum = layout.seed.of_logged_block(transaction, &volume.disk.log[2]);
    let tag = BlockTag {
        home: HomeBlock(home),
        escaped: false,
        deleted: false,
        durable_only: false,
        checksum,
        fragment: None,
    };
    DescriptorBlock { transaction, tags: vec![tag] }.serialize(&layout, &mut volume.disk.log[1]);
    CommitBlock { transaction, time, whole: None }.serialize(&layout, &mut volume.disk.log[3]);
    volume
}

#[test]
fn records_for_blocks_outside_the_volume_are_refused() {
    assert!(recover(&mut forged(HOME_BLOCKS - 1).disk).is_ok());
    for home in [HOME_BLOCKS, 1 << 40, u64::MAX] {
        let error = recover(&mut forged(home).disk).unwrap_err();
        assert!(matches!(error, RecoverError::ForbiddenHome { .. }), "{error}");
    }
}

#[test]
fn records_for_the_journal_itself_are_refused() {
    for (home, refused) in
        [(9, false), (10, true), (19, true), (20, false), (30, true), (31, false)]
    {
        let volume = forged(home);
        let mut scan = ScanPass::new(&volume.superblock).unwrap();
        while let Some(at) = scan.wants() {
            scan.give(&volume.disk.log[at.get() as usize]).unwrap();
        }
        let bounds = HomeBounds { blocks: HOME_BLOCKS, forbidden: vec![10..20, 30..31] };
        let mut replay = ReplayPass::new(&scan.finish(), RevokeTable::new(), bounds);
        let mut result = Ok(());
        while let (Some(at), Ok(())) = (replay.wants(), &result) {
            result = replay.give(&volume.disk.log[at.get() as usize]);
        }
        assert_eq!(result.is_err(), refused, "block {home}: {result:?}");
    }
}

#[test]
fn live_fast_commits_are_refused_with_advice_and_dead_ones_ignored() {
    for (offset, live) in [(0, true), (1, false), (u32::MAX, false)] {
        let mut volume = Volume::new(PLAIN, 1400, TransactionId(100));
        volume.superblock.incompatible |= Incompatible::FAST_COMMIT;
        volume.disk.log[0] = volume.superblock.serialize();
        let mut running = volume.running();
        log(&mut volume, &mut running, 1);
        volume.commit(running);
        let start = volume.superblock.fast_commit_start().unwrap();
        let head = &mut volume.disk.log[start.get() as usize];
        head.fill(0);
        head[0] = 9;
        head[8..12].copy_from_slice(&101u32.wrapping_add(offset).to_le_bytes());
        match recover(&mut volume.disk) {
            Ok(_) => assert!(!live && volume.disk.home[5][0] == 1),
            Err(error) => assert!(live && error.to_string().contains("with the kernel"), "{error}"),
        }
    }
}

#[test]
fn a_clean_journal_wants_nothing_read() {
    let mut superblock = JournalSuperblock::new(BlockSize::new(1024).unwrap(), 64, [1; 16]);
    superblock.set_clean(TransactionId(9));
    let scan = ScanPass::new(&superblock).unwrap();
    assert_eq!(scan.wants(), None);
    assert_eq!(scan.finish().next, TransactionId(10));
}

#[test]
fn the_counts_of_each_pass_are_what_was_logged() {
    let mut volume = volume_with(EXTENDED, 3);
    let mut running = volume.running();
    running.add_metadata(volume.change(9, BlockRange::new(0, 1), 1), &[BlockRange::new(0, 1)]);
    running.free(HomeBlock(5), true);
    volume.commit(running);
    let [scan, revoke, replay] = recover(&mut volume.disk).unwrap().counts;
    let seen = PassCounts {
        transactions: 4,
        descriptors: 4,
        multiwrite_blocks: 3,
        regular_blocks: 1,
        whole_records: 1,
        fragment_records: 3,
        ..PassCounts::default()
    };
    // The four transactions take 13 blocks; then half the log is looked at for a fifth.
    assert_eq!(
        scan,
        PassCounts { log_blocks_read: 13 + 31, revoke_blocks: 1, commit_blocks: 4, ..seen }
    );
    assert_eq!((revoke.log_blocks_read, revoke.revoke_blocks, revoke.revokes), (1, 1, 1));
    assert_eq!(replay, PassCounts { log_blocks_read: 8, revokes: 3, fragment_records: 0, ..seen });
}

#[test]
fn no_damage_makes_recovery_panic_loop_or_accept_what_was_not_written() {
    let rng = SplitMix::new(4);
    for format in [
        PLAIN,
        EXTENDED,
        Format { checksums: false, ..PLAIN },
        Format { checksums: false, ..EXTENDED },
    ] {
        let pristine = volume_with(format, 6);
        for round in 0..2000 {
            let mut disk = pristine.disk.clone();
            for _ in 0..=rng.below(3) {
                let block = 1 + rng.below(6 * BLOCKS as u64) as usize;
                let at = if rng.below(2) == 0 { rng.below(64) } else { rng.below(1024) } as usize;
                disk.log[block][at] ^= 1 << rng.below(8);
            }
            let home = recover(&mut disk).map(|_| disk.home[5].clone());
            if let (Ok(home), true) = (home, format.checksums) {
                // A prefix of what was committed: the last byte written is that of some
                // transaction, whole.
                let prefix = (0..=6).any(|count| home == state_after(&pristine, format, count));
                assert!(prefix, "{format:?}, round {round} of seed 4: {:?}", &home[..112]);
            }
        }
    }
}

/// Returns block 5 after the first `count` transactions.
fn state_after(volume: &Volume, format: Format, count: u8) -> Vec<u8> {
    let mut block = vec![5; volume.block_size.bytes()];
    for byte in 1..=count {
        match format.extended {
            true => block[usize::from(byte) * 16..][..8].fill(byte),
            false => block.fill(byte),
        }
    }
    block
}

#[test]
fn random_logs_without_checksums_end_somewhere() {
    let rng = SplitMix::new(5);
    for _ in 0..300 {
        let format = Format { checksums: false, extended: rng.below(2) == 0, ..PLAIN };
        let mut volume = Volume::new(format, 64, TransactionId(1));
        let layout: LogLayout = volume.superblock.layout();
        for block in &mut volume.disk.log[1..] {
            let transaction = TransactionId(1 + rng.below(3) as u32);
            match rng.below(4) {
                0 => RevokeBlock { transaction, blocks: vec![] }.serialize(&layout, block),
                1 => CommitBlock { transaction, time: Timestamp::default(), whole: None }
                    .serialize(&layout, block),
                _ => {
                    RevokeBlock { transaction, blocks: vec![] }.serialize(&layout, block);
                    block[7] = 1;
                    block[12..40].iter_mut().for_each(|byte| *byte = rng.below(40) as u8);
                }
            }
        }
        let _ = recover(&mut volume.disk);
    }
}
