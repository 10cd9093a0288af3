//! Plans list what is written where, in which order and why.

use crate::simulation::*;
use format::jbd2::JournalSuperblock;
use journal::*;
use units::*;

const FORMAT: Format = Format { block_size: 1024, checksums: true, wide: true, extended: false };

/// Formats a plan: `home 50+2`, `log 1+3`, or a barrier's name.
fn words(plan: &Plan) -> Vec<String> {
    let word = |step: &Step| match step {
        Step::Barrier(reason) => format!("{reason:?}"),
        Step::Write(Write { at: Address::Home(home), blocks }) => {
            format!("home {}+{}", home.get(), blocks.len())
        }
        Step::Write(Write { at: Address::Log(log), blocks }) => {
            format!("log {}+{}", log.get(), blocks.len())
        }
        Step::Write(Write { at: Address::Slot(slot), blocks }) => {
            format!("slot {}+{}", slot.index, blocks.len())
        }
        Step::Write(Write { at: Address::Table(page), .. }) => format!("table {page}"),
    };
    plan.steps.iter().map(word).collect()
}

/// Plans one metadata block, and file data home in blocks 50, 51 and 53 if `home_data`.
fn plan(volume: &mut Volume, home_data: bool) -> CommitPlan {
    let mut running = volume.running();
    let range = BlockRange::new(0, 8);
    running.add_metadata(volume.change(9, range, 1), &[range]);
    for home in [53, 50, 51].into_iter().filter(|_| home_data) {
        running.add_home_data(Owner(12), volume.change(home, range, 2), 8);
    }
    let (mut plan, locked) = volume.plan(running);
    volume.finish(&mut plan, locked);
    plan
}

#[test]
fn a_plain_commit_block_waits_for_data_and_log() {
    let mut volume = Volume::new(FORMAT, 64, TransactionId(1));
    assert_eq!(
        words(&plan(&mut volume, false).plan),
        ["log 1+2", "LogBeforeCommit", "log 3+1", "CommitBeforeReply"]
    );
    let expected = [
        "home 50+2",
        "home 53+1",
        "log 4+2",
        "DataBeforeCommit",
        "LogBeforeCommit",
        "log 6+1",
        "CommitBeforeReply",
    ];
    assert_eq!(words(&plan(&mut volume, true).plan), expected);
}

#[test]
fn an_extended_commit_is_one_write_behind_its_home_data() {
    let mut volume = Volume::new(Format { extended: true, ..FORMAT }, 64, TransactionId(1));
    assert_eq!(words(&plan(&mut volume, false).plan), ["log 1+3", "CommitBeforeReply"]);
    let expected = ["home 50+2", "home 53+1", "DataBeforeCommit", "log 4+3", "CommitBeforeReply"];
    assert_eq!(words(&plan(&mut volume, true).plan), expected);
}

#[test]
fn without_checksums_an_extended_commit_needs_the_barrier_of_a_plain_one() {
    let format = Format { extended: true, checksums: false, ..FORMAT };
    let mut volume = Volume::new(format, 64, TransactionId(1));
    assert_eq!(
        words(&plan(&mut volume, false).plan),
        ["log 1+2", "LogBeforeCommit", "log 3+1", "CommitBeforeReply"]
    );
}

#[test]
fn a_commit_that_passes_the_end_of_the_log_is_two_writes() {
    let mut volume = Volume::new(Format { extended: true, ..FORMAT }, 12, TransactionId(1));
    (0..3).for_each(|_| {
        volume.make_room(4);
        plan(&mut volume, false);
    });
    volume.make_room(4);
    assert_eq!(words(&plan(&mut volume, false).plan), ["log 10+2", "log 1+1", "CommitBeforeReply"]);
}

#[test]
fn with_separate_barriers_data_is_durable_before_the_log_is_written() {
    for extended in [false, true] {
        let mut volume = Volume::new(Format { extended, ..FORMAT }, 64, TransactionId(1));
        let mut running = volume.running();
        let range = BlockRange::new(0, 8);
        running.add_metadata(volume.change(9, range, 1), &[range]);
        running.add_home_data(Owner(12), volume.change(50, range, 2), 8);
        let (locked, cache, stamp) = (running.lock(), &volume.cache, volume.stamp());
        let images = |home: HomeBlock| cache[&home].clone();
        let mut planned =
            plan_commit(&locked, &images, &mut volume.log, &*volume.records, &stamp).unwrap();
        planned.separate_barriers();
        let of_plain = ["slot 0+2", "LogBeforeCommit", "slot 2+1", "CommitBeforeReply"];
        let of_extended = ["slot 0+3", "CommitBeforeReply"];
        let rest: &[&str] = if extended { &of_extended } else { &of_plain };
        assert_eq!(words(&planned.plan), [&["home 50+1", "DataBeforeCommit"], rest].concat());
    }
}

#[test]
fn a_log_says_where_a_commit_lies_when_its_plan_is_issued() {
    let mut volume = Volume::new(FORMAT, 12, TransactionId(1));
    (0..3).for_each(|_| {
        volume.make_room(4);
        plan(&mut volume, false);
    });
    volume.make_room(4);
    let mut running = volume.running();
    let range = BlockRange::new(0, 8);
    for home in [9, 10] {
        running.add_metadata(volume.change(home, range, 1), &[range]);
    }
    let (locked, cache, stamp) = (running.lock(), &volume.cache, volume.stamp());
    let images = |home: HomeBlock| cache[&home].clone();
    let mut planned =
        plan_commit(&locked, &images, &mut volume.log, &*volume.records, &stamp).unwrap();
    let expected = ["slot 0+3", "LogBeforeCommit", "slot 3+1", "CommitBeforeReply"];
    assert_eq!(words(&planned.plan), expected);
    planned.issue(&mut volume.log);
    let expected = ["log 10+2", "log 1+1", "LogBeforeCommit", "log 2+1", "CommitBeforeReply"];
    assert_eq!(words(&planned.plan), expected);
}

#[test]
fn the_superblock_names_a_log_from_before_its_first_block_to_its_last() {
    let mut volume = Volume::new(FORMAT, 64, TransactionId(1));
    let superblock = || {
        let image = std::rc::Rc::new(device::Buffer::zeroed(1024));
        SuperblockImage { at: LogBlock(0), image }
    };
    let mut first = plan(&mut volume, true).plan;
    begin_log(&mut first, superblock());
    assert_eq!(words(&first)[..3], ["log 0+1", "TailBeforeReuse", "home 50+2"]);
    let mut last = first.split_off_last_phase();
    take_tail_along(&mut last, superblock());
    assert_eq!(words(&last), ["log 0+1", "log 3+1", "CommitBeforeReply"]);
    let moved = ["HomeBeforeLogTail", "log 0+1", "TailBeforeReuse"];
    assert_eq!(words(&plan_tail_update(superblock())), moved);
    assert_eq!(words(&plan_empty_log(Some(superblock()))), moved);
    assert_eq!(words(&plan_empty_log(None)), moved[..1]);
}

#[test]
fn without_a_journal_a_commit_is_home_writes_and_a_barrier() {
    let mut volume = Volume::new(FORMAT, 64, TransactionId(1));
    let mut running = volume.running();
    let range = BlockRange::new(0, 8);
    running.add_metadata(volume.change(9, range, 1), &[range]);
    running.add_home_data(Owner(12), volume.change(50, range, 2), 8);
    let cache = &volume.cache;
    let plan = plan_commit_home(&running.lock(), &|home| cache[&home].clone());
    assert_eq!(words(&plan.plan), ["home 9+1", "home 50+1", "DataBeforeCommit"]);
    assert_eq!(plan.counts, [(BlockKind::HomeMetadata, 1), (BlockKind::HomeData, 1)].into());
}

#[test]
fn data_that_write_back_sent_home_early_keeps_its_barrier() {
    let mut volume = Volume::new(FORMAT, 64, TransactionId(1));
    let mut running = volume.running();
    let range = BlockRange::new(0, 8);
    running.add_metadata(volume.change(9, range, 1), &[range]);
    running.add_home_data(Owner(12), volume.change(50, range, 2), 8);
    running.home_data_written(Owner(12), HomeBlock(50));
    let (plan, _) = volume.plan(running);
    let expected =
        ["log 1+2", "DataBeforeCommit", "LogBeforeCommit", "log 3+1", "CommitBeforeReply"];
    assert_eq!(words(&plan.plan), expected);
}

#[test]
fn data_alone_still_writes_a_commit_block_because_sequence_numbers_have_no_gaps() {
    for extended in [false, true] {
        let mut volume = Volume::new(Format { extended, ..FORMAT }, 64, TransactionId(1));
        let mut running = volume.running();
        running.add_home_data(Owner(12), volume.change(50, BlockRange::new(0, 8), 2), 8);
        let (mut plan, locked) = volume.plan(running);
        assert_eq!(
            words(&plan.plan),
            ["home 50+1", "DataBeforeCommit", "log 1+1", "CommitBeforeReply"]
        );
        volume.finish(&mut plan, locked);
        assert_eq!(recover(&mut volume.disk).unwrap().scanned.end, TransactionId(2));
    }
}

#[test]
fn an_empty_transaction_needs_nothing() {
    let mut volume = Volume::new(FORMAT, 64, TransactionId(1));
    let running = volume.running();
    assert!(running.is_empty());
    let (plan, _) = volume.plan(running);
    assert!(plan.plan.steps.is_empty() && plan.log_blocks == 0);
}

#[test]
fn a_log_without_room_is_refused_and_nothing_is_taken() {
    let mut volume = Volume::new(FORMAT, 4, TransactionId(1));
    let mut running = volume.running();
    for home in 9..12 {
        running
            .add_metadata(volume.change(home, BlockRange::new(0, 8), 1), &[BlockRange::new(0, 8)]);
    }
    let (cache, stamp) = (&volume.cache, volume.stamp());
    let images = |home: HomeBlock| cache[&home].clone();
    let refused = plan_commit(&running.lock(), &images, &mut volume.log, &*volume.records, &stamp);
    assert_eq!(refused.unwrap_err(), LogFull { needed: 5, free: 2 });
    assert_eq!(volume.log.free(), 2);
}

#[test]
fn home_data_goes_in_runs_of_at_most_a_mebibyte() {
    let block_size = BlockSize::new(4096).unwrap();
    let mut running = RunningTransaction::new(TransactionId(1), Instant(0), block_size);
    (0..600).rev().for_each(|at| running.add_home_data(Owner(12), HomeBlock(1000 + at), 4096));
    let mut volume = Volume::new(Format { block_size: 4096, ..FORMAT }, 64, TransactionId(1));
    let image = std::rc::Rc::new(device::Buffer::zeroed(4096));
    let (images, stamp) = (|_| image.clone(), volume.stamp());
    let plan =
        plan_commit(&running.lock(), &images, &mut volume.log, &*volume.records, &stamp).unwrap();
    assert_eq!(words(&plan.plan)[..3], ["home 1000+256", "home 1256+256", "home 1512+88"]);
    assert_eq!(plan.payload, 600 * 4096);
}

#[test]
fn small_appends_of_many_writers_share_few_log_blocks() {
    let format = Format { block_size: 4096, extended: true, ..FORMAT };
    let mut volume = Volume::new(format, 64, TransactionId(1));
    let mut running = volume.running();
    for writer in 0..60u64 {
        let range = BlockRange::new(100, 228);
        running.add_data_bytes(volume.change(writer, range, 7), range, false);
    }
    let (plan, _) = volume.plan(running);
    // 60 x 128 bytes are two blocks, their tags one.
    let expected = [(BlockKind::Descriptor, 1), (BlockKind::Multiwrite, 2), (BlockKind::Commit, 1)];
    assert_eq!(plan.counts, expected.into());
}

/// The reservation of log space must never fall short: asserted by `Volume::plan`.
#[test]
fn no_transaction_takes_more_log_than_its_bound() {
    let rng = SplitMix::new(6);
    for format in Format::all().filter(|format| format.block_size != 2048) {
        for round in 0..60 {
            let mut volume = Volume::new(format, 4000, TransactionId(1));
            let mut running = volume.running();
            let longest = [40, 600, u64::from(format.block_size) - 1][round % 3];
            for _ in 0..rng.below(700) {
                let home = rng.below(HOME_BLOCKS);
                let length = 1 + rng.below(longest) as u32;
                let start = rng.below(u64::from(format.block_size - length) + 1) as u32;
                let range = BlockRange::new(start, start + length);
                let block = volume.change(home, range, round as u8);
                match rng.below(40) {
                    0 => running.free(block, true),
                    1 => {
                        running.add_metadata(block, &[range]);
                    }
                    2 => running.add_data_block(block, 1),
                    _ if format.extended => {
                        running.add_data_bytes(block, range, rng.below(30) == 0)
                    }
                    _ => running.add_home_data(Owner(12), block, 1),
                }
            }
            volume.plan(running);
        }
    }
}

#[test]
fn the_table_records_a_run_before_its_blocks_are_written() {
    let volume = &mut Volume::new(Format { extended: true, ..FORMAT }, 64, TransactionId(1));
    let mut superblock = JournalSuperblock::new(volume.block_size, 64, [9; 16]);
    superblock.set_scattered(5);
    let places = ScatteredLogMap { first: LogBlock(64), blocks: 32, homes: vec![HomeBlock(0)] };
    let mut log = ScatteredLog::new(&superblock, places.in_units(1).unwrap()).with_table(7);
    let mut words_of = |number: u32| {
        let mut running =
            RunningTransaction::new(TransactionId(number), Instant(0), volume.block_size);
        let range = BlockRange::new(0, 8);
        running.add_metadata(volume.change(9, range, 1), &[range]);
        running.add_home_data(Owner(12), volume.change(50, range, 2), 8);
        let (locked, cache) = (running.lock(), &volume.cache);
        let stamp = CommitStamp { durable: TransactionId(number - 1), ..volume.stamp() };
        let images = |home: HomeBlock| cache[&home].clone();
        let mut planned =
            plan_commit(&locked, &images, &mut log, &*volume.records, &stamp).unwrap();
        log.choose(TransactionId(number), HomeBlock(0));
        planned.issue(&mut log);
        words(&planned.plan)
    };
    // The first also writes the head of the table, and all that it records before it counts.
    let table = ["table 0", "table 3", "TableBeforeRun", "table 1", "table 2", "TableBeforeRun"];
    let run = ["home 50+1", "DataBeforeCommit", "log 64+1", "log 65+3", "CommitBeforeReply"];
    assert_eq!(words_of(1), [&table[..], &run].concat());
    let table = ["table 1", "table 3", "TableBeforeRun"];
    assert_eq!(words_of(2)[..3], table);
    assert_eq!(
        words(&plan_table_forgotten(log.forget_table())),
        ["table 1", "table 2", "TableBeforeRun"]
    );
}

#[test]
fn a_piece_and_home_are_durable_before_the_superblock_names_it() {
    let mut superblock = JournalSuperblock::new(BlockSize::new(1024).unwrap(), 64, [9; 16]);
    superblock.set_scattered(5);
    let ring = SnapshotRing::new(&superblock);
    let items = [format::snapshot::SnapshotItem::Other { home: HomeBlock(1) }];
    let piece =
        ring.begin_piece(TransactionId(1)..TransactionId(2), TransactionId(1), &items).unwrap();
    assert_eq!(words(&plan_piece(Some(&piece))), ["log 1+1", "SnapshotBeforeSuperblock"]);
    assert_eq!(words(&plan_piece(None)), ["SnapshotBeforeSuperblock"]);
    let image =
        SuperblockImage { at: LogBlock(0), image: std::rc::Rc::new(device::Buffer::zeroed(1024)) };
    assert_eq!(words(&plan_snapshot_superblock(image)), ["log 0+1", "TailBeforeReuse"]);
}
