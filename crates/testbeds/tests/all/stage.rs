//! Tests of volumes on emulated disks: the same seed gives the same run, acknowledged writes
//! survive, and e2fsck finds no error.

use emulated::CacheMode;
use engine::{BarrierKind, DataMode};
use eviction::{EvictionWorkload, Pattern, Profile};
use std::time::Duration;
use testbeds::{Caching, Stage, StageOptions, Traffic, VolumeLayout};
use workloads::{Files, Limit, StreamOptions, SyncKind, streams};

const MODES: [DataMode; 5] = [
    DataMode::Writeback,
    DataMode::Ordered,
    DataMode::Journal,
    DataMode::Wasteless,
    DataMode::Selective,
];

/// Returns the paper's stage, on the first part of the home disk.
fn options(data: DataMode) -> StageOptions {
    let mut options = StageOptions::of_paper(data);
    options.home.options.size = Some(256 << 20);
    options.journal_size = 16 << 20;
    options
}

fn writers(limit: Limit, sync: SyncKind) -> StreamOptions {
    StreamOptions { writers: 20, size: 125, limit, rate: Some(2.0), sync, prefix: "s-".into() }
}

fn write(stage: &Stage, limit: Limit, sync: SyncKind) -> u64 {
    let (report, _) = stage
        .run(move |files| async move { streams(&files, &writers(limit, sync), |_| ()).await })
        .expect("files can be made");
    assert_eq!(report.failure, None);
    report.operations
}

#[test]
fn the_same_seed_gives_the_same_traffic_and_the_same_bytes() {
    let play = |seed| {
        let stage = Stage::build(&StageOptions { seed, ..options(DataMode::Wasteless) }).unwrap();
        write(&stage, Limit::Count(8), SyncKind::OSync);
        let traffic: (Traffic, Traffic) = (stage.journal_traffic(), stage.home_traffic());
        assert!(traffic.0.writes > 0, "{traffic:?}");
        (traffic, stage.images())
    };
    let (first, second) = (play(1), play(1));
    assert_eq!(first.0, second.0);
    assert!(first.1 == second.1);
}

#[test]
fn every_mode_and_layout_leaves_a_clean_volume() {
    for data in MODES {
        for layout in [VolumeLayout::Ext3Paper, VolumeLayout::Ext4] {
            let mut stage = Stage::build(&StageOptions { layout, ..options(data) }).unwrap();
            write(&stage, Limit::Time(Duration::from_secs(3)), SyncKind::OSync);
            stage.remount().unwrap();
            let length = stage.run(|files| async move { files.length("s-00003").await }).unwrap();
            assert_eq!(length, 6 * 125, "{data:?} {layout:?}");
            stage.close_and_check().unwrap();
        }
    }
}

#[test]
fn a_power_cut_loses_nothing_that_was_acknowledged() {
    for data in [DataMode::Ordered, DataMode::Wasteless, DataMode::Selective] {
        for (cache, barrier) in
            [(CacheMode::Off, BarrierKind::None), (CacheMode::On, BarrierKind::Flush)]
        {
            let mut options = options(data);
            options.home.options.cache = cache;
            options.journal.as_mut().unwrap().options.cache = cache;
            options.engine.barrier = barrier;
            let mut stage = Stage::build(&options).unwrap();
            let appends = Limit::Count(12);
            let (_, acknowledged) = stage
                .run(move |files| async move {
                    streams(&files, &writers(appends, SyncKind::OSync), |_| ()).await
                })
                .unwrap();
            let report = stage.crash_and_recover().unwrap();
            assert!(!report.clean && report.transactions > 0, "{report:?}");
            stage.run(move |files| async move {
                for (number, appends) in acknowledged.appends.iter().enumerate() {
                    let length = files.length(&format!("s-{number:05}")).await.unwrap();
                    assert!(
                        length >= appends * 125,
                        "file {number}: {length} of {appends} appends, {data:?}"
                    );
                }
            });
            stage.close_and_check().unwrap();
        }
    }
}

#[test]
fn a_hidden_journal_on_two_disks_in_turn_works_as_well() {
    let mut options = StageOptions { journal: None, ..options(DataMode::Wasteless) };
    options.home.drives = 2;
    let mut stage = Stage::build(&options).unwrap();
    write(&stage, Limit::Count(4), SyncKind::Fsync);
    let report = stage.crash_and_recover().unwrap();
    assert!(report.transactions > 0, "{report:?}");
    assert_eq!(stage.journal_traffic(), Traffic::default());
    stage.close_and_check().unwrap();
}

#[test]
fn files_behave_as_a_program_expects() {
    let stage = Stage::build(&options(DataMode::Ordered)).unwrap();
    stage.run(|files| async move {
        files.make_directory("a").await.unwrap();
        files.make_directory("a/b").await.unwrap();
        let mut file = files.create("a/b/c", SyncKind::None).await.unwrap();
        files.write_at(&mut file, 5000, b"behind a hole").await.unwrap();
        files.append(&mut file, b"!").await.unwrap();
        let mut bytes = [9; 20];
        assert_eq!(files.read_at(&file, 4998, &mut bytes).await.unwrap(), 16);
        assert_eq!(&bytes, b"\0\0behind a hole!\x09\x09\x09\x09");
        files.sync(&file).await.unwrap();
        // An unlinked file stays until it is closed.
        files.unlink("a/b/c").await.unwrap();
        assert_eq!(files.read_at(&file, 5000, &mut bytes).await.unwrap(), 14);
        files.close(file).await;
        for (path, code) in
            [("a/b/c", libc::ENOENT), ("a/x/c", libc::ENOENT), ("a/b", libc::EISDIR)]
        {
            let error = files.open(path, SyncKind::None).await.err().expect(path);
            assert_eq!(error.raw_os_error(), Some(code), "{path}");
        }
        let error = files.make_directory("a/b").await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EEXIST));
    });
    stage.close_and_check().unwrap();
}

#[test]
fn a_wrong_model_is_refused_by_name() {
    let mut options = options(DataMode::Ordered);
    options.home.model = "no-such-disk".into();
    let error = Stage::build(&options).err().expect("no such model").to_string();
    assert!(error.contains("\"no-such-disk\""), "{error}");
}

/// Returns the acknowledged appends that a power cut loses on a drive of the Discreet paper, and
/// the evictions until then.
fn lost_on(model: &str, data: DataMode, caching: Caching) -> (u64, u64) {
    let mut options =
        StageOptions { journal_size: 16 << 20, ..StageOptions::of_discreet(data, caching) };
    options.home.model = model.into();
    options.home.options.size = Some(1 << 30);
    let mut stage = Stage::build(&options).unwrap();
    let workload = writers(Limit::Count(6), SyncKind::OSync);
    let (_, acknowledged) =
        stage.run(move |files| async move { streams(&files, &workload, |_| ()).await }).unwrap();
    let evictions = stage.coercion().evictions;
    stage.crash_and_recover().unwrap();
    let lost = stage.run(move |files| async move {
        let mut lost = 0;
        for (number, appends) in acknowledged.appends.iter().enumerate() {
            let length = files.length(&format!("s-{number:05}")).await.unwrap_or(0);
            lost += appends - (length / 125).min(*appends);
        }
        lost
    });
    stage.close_and_check().unwrap();
    (lost, evictions)
}

/// A fingerprint's recommendation keeps everything. The paper makes its choice on an idle drive,
/// and looks at the target a second later. That choice loses data if the power fails as soon as an
/// eviction is acknowledged.
#[test]
fn evictions_keep_what_a_lying_drive_would_lose() {
    for (model, profile) in Profile::shipped() {
        for data in [DataMode::Ordered, DataMode::Journal, DataMode::Wasteless] {
            let (lost, evictions) = lost_on(model, data, Caching::Discreet(profile.workload));
            assert!(
                lost == 0 && evictions > 0,
                "{model}, {data:?}: {lost} lost after {evictions} evictions"
            );
        }
        let (lost, evictions) = lost_on(model, DataMode::Wasteless, Caching::Unsafe);
        assert!(lost > 0 && evictions == 0, "{model}: {lost} lost");
    }
    let of_paper = EvictionWorkload { pattern: Pattern::Sequential, writes: 1, bytes: 2_380_000 };
    let lost = [DataMode::Ordered, DataMode::Journal, DataMode::Wasteless]
        .map(|data| lost_on("hitachi-7k80", data, Caching::Discreet(of_paper)));
    assert!(
        lost.iter().any(|(lost, evictions)| *lost > 0 && *evictions > 0),
        "lost, and evictions: {lost:?}"
    );
}

#[test]
fn each_sync_ends_with_as_many_evictions_as_asked() {
    let workload = EvictionWorkload { pattern: Pattern::Sequential, writes: 1, bytes: 2_380_000 };
    let evictions = |evictions_a_sync| {
        let caching = Caching::Discreet(workload);
        let mut options = StageOptions {
            evictions_a_sync,
            journal_size: 16 << 20,
            ..StageOptions::of_discreet(DataMode::Journal, caching)
        };
        options.home.options.size = Some(1 << 30);
        let stage = Stage::build(&options).unwrap();
        let made = || stage.coercion().evictions;
        let before = made();
        let done = stage.run(|files| async move {
            let mut file = files.create("a", SyncKind::None).await?;
            files.append(&mut file, b"content").await?;
            files.sync(&file).await
        });
        done.unwrap();
        made() - before
    };
    let own = evictions(0);
    assert!(own > 0);
    assert_eq!((evictions(own), evictions(own + 2)), (own, own + 2));
}

#[test]
fn a_trace_lists_every_request_and_changes_none() {
    let directory = tempfile::tempdir().unwrap();
    let play = |prefix: Option<&str>| {
        let mut options = options(DataMode::Ordered);
        if let Some(prefix) = prefix {
            options.trace_to(&directory.path().join(prefix));
        }
        let stage = Stage::build(&options).unwrap();
        write(&stage, Limit::Count(8), SyncKind::OSync);
        let traffic = (stage.journal_traffic(), stage.home_traffic());
        stage.close_and_check().unwrap();
        traffic
    };
    assert_eq!(play(None), play(Some("ordered")));
    for (disk, size) in [("home", 256 << 20), ("journal", 300 << 30)] {
        let path = directory.path().join(format!("ordered-{disk}.csv"));
        let text = std::fs::read_to_string(path).unwrap();
        let trace = emulated::replay::Trace::parse(&text, size).unwrap();
        let is_request = |line: &&str| line.contains("Read,") || line.contains("Write,");
        let lines = text.lines().filter(is_request).count();
        assert!(trace.requests.len() == lines && lines > 20, "{disk}: {lines}");
    }
}

/// A commit waits for open handles, so none may be open while a block is read that is to be changed
/// in part.
#[test]
fn partial_update_of_uncached_block_delays_nobody() {
    let mut options = options(DataMode::Journal);
    options.tick = Duration::ZERO;
    let mut stage = Stage::build(&options).unwrap();
    let make = |files: testbeds::VirtualFiles| async move {
        for name in ["cold", "warm"] {
            let mut file = files.create(name, SyncKind::OSync).await?;
            files.append(&mut file, &[1; 64 << 10]).await?;
            files.close(file).await;
        }
        std::io::Result::Ok(())
    };
    stage.run(make).unwrap();
    stage.remount().unwrap();
    let (of_cold, of_warm) = stage.run(|files| async move {
        let cold = files.open("cold", SyncKind::OSync).await.unwrap();
        let mut warm = files.open("warm", SyncKind::OSync).await.unwrap();
        files.write_at(&mut warm, 5000, &[2; 100]).await.unwrap();
        let change = |mut file, at| {
            let files = files.clone();
            Box::pin(async move {
                let asked = files.now();
                files.write_at(&mut file, at, &[3; 100]).await.unwrap();
                files.now().since(asked)
            })
        };
        let took = runtime::join_all(vec![change(cold, 20_000), change(warm, 5000)]).await;
        (took[0], took[1])
    });
    assert!(of_warm * 2 < of_cold, "{of_warm:?}, while a block was read for {of_cold:?}");
    stage.close_and_check().unwrap();
}
