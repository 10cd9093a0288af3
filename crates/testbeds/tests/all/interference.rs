//! Tests of the purpose of scattered logs: a sequential process and others that sync share a disk
//! with an arm.

use engine::{DataMode, LogKind};
use std::sync::Arc;
use std::time::Duration;
use testbeds::{
    FilebenchWriters, HomeOrder, Interference, LogReplayWriters, SequentialFile, SharedDisk,
    SmallWriters, Stage, StageOptions, Updates,
};
use workloads::{LogRecord, LogTrace, Personality};

fn play(data: DataMode, log: LogKind, large: SequentialFile, small: SmallWriters) -> SharedDisk {
    let mut options = StageOptions { seed: 3, ..StageOptions::of_manylogs(data, log) };
    options.home.options.size = Some(16 << 30);
    options.journal_size = 64 << 20;
    let stage = Stage::build(&options).unwrap();
    let scene = Interference { large, small, seconds: 4, seed: 3 };
    let found = scene.play(&stage).unwrap();
    println!("{data} {}: {found:?}", log.name());
    stage.close_and_check().unwrap();
    found
}

fn updates(per_second: u32, order: HomeOrder) -> SmallWriters {
    SmallWriters::Updates(Updates { per_second, bytes: 4096, order, home_with_sync: false })
}

#[test]
fn a_reader_keeps_more_beside_scattered_logs_and_syncs_take_less() {
    let reader = SequentialFile::reader(1 << 30);
    let alone =
        play(DataMode::Ordered, LogKind::Circular, reader, SmallWriters::None).bytes_a_second;
    for rate in [40, 320] {
        let small = updates(rate, HomeOrder::ByPlace);
        let ordered = play(DataMode::Ordered, LogKind::Circular, reader, small.clone());
        let adaptive = play(DataMode::Adaptive, LogKind::Circular, reader, small.clone());
        let manylogs = play(DataMode::Adaptive, LogKind::Scattered, reader, small);
        for (worse, better) in [(&ordered, &adaptive), (&adaptive, &manylogs)] {
            assert!(
                worse.bytes_a_second < better.bytes_a_second,
                "at {rate} of {alone}: {worse:?}, {better:?}"
            );
            assert!(worse.mean_wait_ms > better.mean_wait_ms, "at {rate}: {worse:?}, {better:?}");
        }
        assert!(manylogs.bytes_a_second <= alone);
    }
}

/// The paper's O_DUR: a database's log stays in the logs near the arm, however large its writes.
#[test]
fn durable_only_log_leaves_more_bandwidth_to_reader() {
    let flush = |at: u64| LogRecord {
        at: Duration::from_millis(40 * at),
        offset: at << 16,
        size: 1 << 16,
        sync: true,
    };
    let trace = Arc::new(LogTrace { name: "large".into(), records: (0..100).map(flush).collect() });
    let [home, stays] = [None, Some(LogReplayWriters::durable_only())].map(|durable_only| {
        let mut options = StageOptions {
            seed: 3,
            durable_only,
            ..StageOptions::of_manylogs(DataMode::Adaptive, LogKind::Scattered)
        };
        options.home.options.size = Some(16 << 30);
        options.journal_size = 64 << 20;
        let stage = Stage::build(&options).unwrap();
        let small = SmallWriters::Logs(LogReplayWriters { trace: trace.clone(), instances: 2 });
        let scene =
            Interference { large: SequentialFile::reader(1 << 30), small, seconds: 4, seed: 3 };
        let found = scene.play(&stage).unwrap();
        let written = stage.volume().engine().statistics().home_bytes();
        println!("{found:?}, {written} bytes home");
        stage.close_and_check().unwrap();
        (found, written)
    });
    assert!(stays.1 < home.1 / 4, "{} of {} bytes were written back", stays.1, home.1);
    assert!(stays.0.bytes_a_second > home.0.bytes_a_second, "{stays:?}, {home:?}");
    assert!(stays.0.mean_wait_ms < home.0.mean_wait_ms, "{stays:?}, {home:?}");
}

#[test]
fn reading_what_fits_into_memory_ends_too() {
    let found = play(
        DataMode::Ordered,
        LogKind::Circular,
        SequentialFile::reader(16 << 20),
        SmallWriters::None,
    );
    assert!(found.bytes_a_second > 1e8, "{found:?}");
}

#[test]
fn data_written_home_file_by_file_takes_longer_than_sorted() {
    let of = |order| {
        play(
            DataMode::Ordered,
            LogKind::Circular,
            SequentialFile::reader(1 << 30),
            updates(40, order),
        )
        .mean_wait_ms
    };
    let [by_place, by_file, in_turn] =
        [HomeOrder::ByPlace, HomeOrder::ByFile, HomeOrder::ByFileInTurn].map(of);
    assert!(by_place < by_file && by_file < in_turn, "{by_place}, {by_file}, {in_turn}");
}

/// Compares on one volume, which has scattered logs in both cases.
#[test]
fn reads_take_no_longer_with_an_empty_mapping_table() {
    let rate = |log: LogKind| {
        let mut options = StageOptions {
            seed: 3,
            ..StageOptions::of_manylogs(DataMode::Adaptive, LogKind::Scattered)
        };
        options.engine.log = log;
        options.home.options.size = Some(16 << 30);
        options.journal_size = 64 << 20;
        let stage = Stage::build(&options).unwrap();
        let scene = Interference {
            large: SequentialFile::reader(1 << 30),
            small: SmallWriters::None,
            seconds: 4,
            seed: 3,
        };
        scene.play(&stage).unwrap().bytes_a_second
    };
    let [with_table, without] = [LogKind::Scattered, LogKind::Circular].map(rate);
    println!("{with_table} and {without} bytes a second");
    assert!(with_table >= without * 0.999, "{with_table} and {without} bytes a second");
}

#[test]
fn a_sync_that_brings_metadata_home_takes_longer_and_leaves_the_reader_less() {
    let of = |home_with_sync| {
        let updates =
            Updates { per_second: 40, bytes: 4096, order: HomeOrder::ByFile, home_with_sync };
        let reader = SequentialFile::reader(1 << 30);
        play(DataMode::Ordered, LogKind::Circular, reader, SmallWriters::Updates(updates))
    };
    let [home, stays] = [true, false].map(of);
    assert!(home.mean_wait_ms > stays.mean_wait_ms * 1.2, "{home:?}, {stays:?}");
    assert!(home.bytes_a_second < stays.bytes_a_second, "{home:?}, {stays:?}");
}

#[test]
fn a_writer_goes_through_a_file_and_all_is_durable_in_the_end() {
    let writer = SequentialFile::writer(1 << 30);
    for data in [DataMode::Ordered, DataMode::Journal] {
        let found = play(data, LogKind::Circular, writer, updates(40, HomeOrder::ByPlace));
        assert!(found.bytes_a_second > 1e6 && found.waits > 0, "{data}: {found:?}");
    }
}

#[test]
fn programs_with_files_of_their_own_begin_with_the_reader() {
    let reader = SequentialFile::reader(1 << 30);
    let trace = Arc::new(LogTrace::open("postgres-tpcb").unwrap());
    let filebench = |personality| {
        SmallWriters::Filebench(FilebenchWriters {
            personality,
            instances: 2,
            per_second: 20,
            files: 40,
        })
    };
    for small in [
        filebench(Personality::Varmail),
        filebench(Personality::Fileserver),
        SmallWriters::Logs(LogReplayWriters { trace, instances: 2 }),
    ] {
        let found = play(DataMode::Adaptive, LogKind::Scattered, reader, small);
        assert!(found.bytes_a_second > 1e6 && found.waits > 10, "{found:?}");
    }
}
