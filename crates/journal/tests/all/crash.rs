//! Every way to cut a commit or a checkpoint short, in every format. After recovery all that was
//! acknowledged is there, and of the transaction in progress all or nothing.

use crate::simulation::*;
use journal::*;
use std::collections::BTreeSet;
use units::*;

/// Creates a transaction that has one of everything. `round` varies bytes and blocks.
fn mixed(volume: &mut Volume, round: u64) -> (RunningTransaction, BTreeSet<u64>) {
    let (byte, extended) = (round as u8 ^ 0x5a, volume.format.extended);
    let block_size = volume.block_size;
    let mut running = volume.running();
    let metadata = 10 + round % 3;
    let range = BlockRange::new(8, 16 + round as u32 % 8);
    running.add_metadata(volume.change(metadata, range, byte), &[range]);
    // A metadata block that begins with the journal's magic must be escaped.
    let escaped = HomeBlock(20);
    volume.image(escaped)[..4].copy_from_slice(&format::jbd2::MAGIC.to_be_bytes());
    volume.change(20, BlockRange::new(4, 8), byte);
    running.add_metadata(escaped, &[BlockRange::new(0, 8)]);
    let mut home_data = BTreeSet::new();
    if extended {
        for fragment in 0..3 {
            let start = (round as u32 * 37 + fragment * 211) % 900;
            let range = BlockRange::new(start, start + 1 + round as u32 % 100);
            let home = 30 + (round + u64::from(fragment)) % 4;
            running.add_data_bytes(volume.change(home, range, byte), range, false);
        }
        if round % 4 == 1 {
            let home = HomeBlock(40 + round % 2);
            volume.image(home).fill(0);
            let range = BlockRange::new(5, 50);
            running.add_data_bytes(volume.change(home.get(), range, byte), range, true);
        }
        // The first fragment begins with the magic: the multiwrite block must be escaped.
        let magic = format::jbd2::MAGIC.to_be_bytes();
        volume.image(HomeBlock(29))[100..104].copy_from_slice(&magic);
        running.add_data_bytes(HomeBlock(29), BlockRange::new(100, 104), false);
    } else if round % 2 == 0 {
        running
            .add_data_block(volume.change(30, block_size.whole(), byte), block_size.bytes() as u64);
    }
    if round % 3 == 0 {
        let first = 50 + round % 2;
        for home in [first, first + 1] {
            running.add_home_data(
                Owner(12),
                volume.change(home, BlockRange::new(0, 700), byte),
                700,
            );
            home_data.insert(home);
        }
    }
    (running, home_data)
}

/// Recovers `disk` and compares; `before` and `after` are the states without and with the
/// transaction in progress.
fn check(
    disk: Disk,
    acked: bool,
    volume: &Volume,
    after: &[Vec<u8>],
    home_data: &BTreeSet<u64>,
    what: &str,
) {
    let mut recovered = disk.clone();
    recover(&mut recovered).unwrap_or_else(|error| panic!("{what}: {error}"));
    let from_before: BTreeSet<u64> = differing(&recovered.home, &volume.committed);
    let from_after = differing(&recovered.home, after);
    // Home data of an unacknowledged transaction may be there, or not, or in part: ordered mode
    // promises no more.
    let nothing = from_before.is_subset(home_data) && !acked;
    assert!(
        from_after.is_empty() || nothing,
        "{what}: neither all ({from_after:?}) nor nothing ({from_before:?})"
    );
    // A power failure within recovery, and recovery once more.
    for writes in [1, 3] {
        let mut again = disk.clone();
        recover_until(&mut again, writes).unwrap();
        recover(&mut again).unwrap();
        assert!(again.home == recovered.home, "{what}: recovery is not idempotent");
    }
}

fn commit_with_crashes(volume: &mut Volume, round: u64, rng: &SplitMix, what: &str) {
    volume.make_room(12);
    let (running, home_data) = mixed(volume, round);
    let (mut plan, locked) = volume.plan(running);
    let mut after = volume.committed.clone();
    for (home, image) in &volume.cache {
        after[home.get() as usize] = image.to_vec();
    }
    every_crash(&volume.disk, &plan.plan, rng, |disk, passed| {
        check(disk, passed.contains(&Barrier::CommitBeforeReply), volume, &after, &home_data, what);
    });
    volume.finish(&mut plan, locked);
}

#[test]
fn every_crash_point_of_a_commit_gives_all_or_nothing_in_every_format() {
    let rng = SplitMix::new(1);
    for format in Format::all() {
        let mut volume = Volume::new(format, 64, TransactionId(7));
        for round in 0..4 {
            commit_with_crashes(
                &mut volume,
                round,
                &rng,
                &format!("{format:?}, round {round}, seed 1"),
            );
        }
    }
}

#[test]
fn wrapping_of_the_log_and_of_transaction_ids_changes_nothing() {
    let rng = SplitMix::new(2);
    for format in Format::all().filter(|format| format.block_size == 1024) {
        // The log holds about three transactions: every one lies differently, over remains of
        // earlier wraps.
        let mut volume = Volume::new(format, 30, TransactionId(u32::MAX - 5));
        for round in 0..24 {
            commit_with_crashes(
                &mut volume,
                round,
                &rng,
                &format!("{format:?}, round {round}, seed 2"),
            );
        }
    }
}

#[test]
fn every_crash_point_of_a_checkpoint_keeps_what_was_committed() {
    let rng = SplitMix::new(3);
    for format in Format::all().filter(|format| format.block_size != 2048) {
        let mut volume = Volume::new(format, 64, TransactionId(1));
        for round in 0..5 {
            let (running, _) = mixed(&mut volume, round);
            volume.commit(running);
        }
        for _ in 0..3 {
            let before = volume.disk.clone();
            let blocks = volume.checkpoint.blocks_to_write(8, 6);
            let plan = volume.plan_checkpoint(&blocks);
            let state = volume.committed.clone();
            every_crash(&before, &plan, &rng, |disk, _| {
                check(
                    disk,
                    true,
                    &volume,
                    &state,
                    &BTreeSet::new(),
                    &format!("{format:?}, seed 3"),
                );
            });
            perform(&mut volume.disk, &plan);
            volume.log.release_before(volume.superblock.sequence);
        }
    }
}

#[test]
fn a_revoke_hides_fragments_and_whole_blocks_but_not_later_ones() {
    for extended in [false, true] {
        let format = Format { block_size: 1024, checksums: true, wide: true, extended };
        let mut volume = Volume::new(format, 64, TransactionId(u32::MAX));
        let (whole, range) = (BlockSize::new(1024).unwrap().whole(), BlockRange::new(3, 9));
        let log = |running: &mut RunningTransaction, volume: &mut Volume, home: u64, byte: u8| {
            match extended {
                true => running.add_data_bytes(volume.change(home, range, byte), range, false),
                false => running.add_data_block(volume.change(home, whole, byte), 1024),
            }
        };
        let mut first = volume.running();
        (5..8).for_each(|home| log(&mut first, &mut volume, home, 0xa1));
        volume.commit(first);
        let mut second = volume.running();
        (5..7).for_each(|home| second.free(HomeBlock(home), true));
        volume.commit(second);
        // Block 5 now belongs to a file whose data bypassed the log; block 6 is logged again.
        volume.disk.home[5] = vec![0x77; 1024];
        let mut third = volume.running();
        log(&mut third, &mut volume, 6, 0xb2);
        volume.commit(third);
        let recovered = recover(&mut volume.disk).unwrap();
        assert_eq!(volume.disk.home[5], vec![0x77; 1024]);
        assert_eq!(volume.disk.home[6][3..9], [0xb2; 6]);
        assert_eq!(volume.disk.home[7][3..9], [0xa1; 6]);
        let [_, revoke, replay] = recovered.counts;
        assert_eq!((revoke.revokes, replay.revokes), (2, 2));
        assert_eq!(recovered.scanned.end, TransactionId(2));
    }
}

#[test]
fn a_freed_block_that_the_same_transaction_logged_is_not_logged() {
    let format = Format { block_size: 1024, checksums: true, wide: true, extended: true };
    let mut volume = Volume::new(format, 64, TransactionId(1));
    let range = BlockRange::new(0, 4);
    let mut running = volume.running();
    running.add_metadata(volume.change(5, range, 1), &[range]);
    running.add_data_bytes(volume.change(6, range, 1), range, false);
    running.free(HomeBlock(5), false);
    running.free(HomeBlock(6), false);
    let (plan, _) = volume.plan(running);
    assert_eq!(plan.counts, [(BlockKind::Revoke, 1), (BlockKind::Commit, 1)].into());
}
