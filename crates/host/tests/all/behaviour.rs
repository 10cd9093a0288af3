//! Promises of a host, on a simulated cluster.

use crate::common::*;
use disks::{CrashPolicy, MemoryDisk};
use host::{CONFLICT_DIRECTORY, Durable, FileFate, HostOptions, RecordFormat};
use std::rc::Rc;
use std::time::Duration;
use store::{Allocation, AttributeChange, FileId, OpenMode, StoreEvent, TimeChange, Token};
use units::Timestamp;

/// Lets a host write to a file, and crash. Returns its journal disk, too.
fn crashed_with(seed: u64, at: u64, bytes: &'static [u8]) -> (Stage, MemoryDisk, FileId) {
    let (stage, disk) = Stage::formatted_disk(seed);
    let file = stage.play(&disk, under_pressure(), async move |host, _| {
        let file = make(&host, "file").await;
        host.write(file, at, bytes, Durable::Now).await.unwrap();
        file
    });
    let disk = stage.disk(stage.crash(&disk, CrashPolicy::LoseAll));
    (stage, disk, file)
}

#[test]
fn synced_write_survives_a_crash_of_the_host_in_both_record_formats() {
    for records in RecordFormat::ALL {
        let (stage, disk) = Stage::formatted_disk(1);
        let begun = stage.begin(&disk, HostOptions { records, ..under_pressure() });
        let file = stage.world.run(async move {
            let (host, report) = begun.await.unwrap();
            assert!(report.clean);
            let file = make(&host, "file").await;
            host.write(file, 5000, b"synced", Durable::Now).await.unwrap();
            file
        });
        assert_eq!(stage.content(file), b"", "nothing is at the store yet");
        let image = stage.crash(&disk, CrashPolicy::LoseAll);
        let disk = stage.disk(image);
        let report = stage.recovered(&disk, under_pressure());
        assert_eq!(report.files.len(), 1);
        assert_eq!(report.files[0].outcome, FileFate::Replayed);
        let content = stage.content(file);
        assert_eq!((content.len(), &content[5000..]), (5006, &b"synced"[..]));
    }
}

#[test]
fn asynchronous_write_is_in_the_journal_after_the_flush_period() {
    let (stage, disk) = Stage::formatted_disk(2);
    let file = stage.play(&disk, under_pressure(), async move |host, stage| {
        let file = make(&host, "file").await;
        host.write(file, 0, b"soon", Durable::Soon).await.unwrap();
        assert_eq!(host.statistics().dirty_in_memory, 4);
        stage.sleep(Duration::from_millis(1500)).await;
        assert_eq!((host.statistics().dirty_in_memory, host.statistics().dirty_in_journal), (0, 4));
        file
    });
    let disk = stage.disk(stage.crash(&disk, CrashPolicy::LoseAll));
    stage.recovered(&disk, under_pressure());
    assert_eq!(stage.content(file), b"soon");
}

#[test]
fn old_files_go_to_the_store_and_leave_the_journal() {
    let (stage, disk) = Stage::formatted_disk(3);
    let (file, statistics) = stage.play(&disk, HostOptions::default(), async move |host, stage| {
        let file = make(&host, "file").await;
        for round in 0..100 {
            host.write(file, 0, &[round; 100], Durable::Now).await.unwrap();
        }
        stage.sleep(Duration::from_secs(130)).await;
        (file, host.statistics())
    });
    assert_eq!(stage.content(file), [99; 100]);
    assert_eq!((statistics.destaged_files, statistics.dirty_in_journal), (1, 0));
    assert_eq!(stage.cluster.traffic().data_bytes, 100, "repeated writes went as one");
}

#[test]
fn a_peer_that_wants_the_file_reads_what_was_written() {
    let (stage, disk) = Stage::formatted_disk(4);
    stage.play(&disk, under_pressure(), async move |host, stage| {
        let peer = stage.peer();
        let file = make(&host, "file").await;
        for round in 0..20 {
            host.write(file, round * 10, &[round as u8; 10], Durable::Soon).await.unwrap();
            let seen = peer_reads(&*peer, file).await;
            assert_eq!(seen.len() as u64, round * 10 + 10);
            peer_writes(&*peer, file, 0, &[200 + round as u8]).await;
            assert_eq!(host.read(file, 0, 5).await.unwrap()[0], 200 + round as u8);
        }
        assert!(host.statistics().recalls >= 20);
    });
}

#[test]
fn a_peer_gets_the_file_while_many_write() {
    let (stage, disk) = Stage::formatted_disk(5);
    stage.play(&disk, under_pressure(), async move |host, stage| {
        let peer = stage.peer();
        let world = stage.world();
        let file = make(&host, "file").await;
        let done = Rc::new(std::cell::Cell::new(0));
        for writer in 0..16u64 {
            let (host, done) = (host.clone(), done.clone());
            world.spawn(Box::pin(async move {
                for round in 0..30u64 {
                    host.write(
                        file,
                        (writer * 30 + round) * 8,
                        &[writer as u8 + 1; 8],
                        Durable::Now,
                    )
                    .await
                    .unwrap();
                }
                done.set(done.get() + 1);
            }));
        }
        for _ in 0..10 {
            stage.sleep(Duration::from_micros(700)).await;
            peer_reads(&*peer, file).await;
        }
        while done.get() < 16 {
            stage.sleep(Duration::from_millis(1)).await;
        }
        let seen = peer_reads(&*peer, file).await;
        for (at, byte) in seen.iter().enumerate() {
            assert_eq!(usize::from(*byte), at / 240 + 1, "at {at}");
        }
        assert_eq!(seen.len(), 16 * 240);
    });
}

/// The journal with it would be refused as damaged.
#[test]
fn a_time_with_more_than_a_second_of_nanoseconds_is_refused() {
    let (stage, disk) = Stage::formatted_disk(1);
    stage.play(&disk, HostOptions::default(), async move |host, _| {
        let file = make(&host, "file").await;
        let time = TimeChange::To(Timestamp { seconds: 1, nanoseconds: 1_000_000_000 });
        for change in [
            AttributeChange { modified: Some(time), ..Default::default() },
            AttributeChange { accessed: Some(time), ..Default::default() },
        ] {
            assert_eq!(host.set_attributes(file, change).await.unwrap_err().errno(), 22);
        }
    });
}

#[test]
fn a_file_that_others_changed_is_set_aside_and_not_overwritten() {
    let (stage, disk, file) = crashed_with(6, 3, b"mine");
    let (begun, peer) = (stage.begin(&disk, under_pressure()), stage.peer());
    let (report, aside) = stage.world.run(async move {
        // Waits for the lease of the crashed host.
        peer_writes(&*peer, file, 0, b"theirs!").await;
        let (host, report) = begun.await.unwrap();
        let FileFate::SetAside { name, .. } = &report.files[0].outcome else {
            panic!("{report:?}")
        };
        let directory = host.lookup(host.root(), CONFLICT_DIRECTORY.as_bytes()).await.unwrap().file;
        let aside = host.lookup(directory, name.as_bytes()).await.unwrap().file;
        (report.clone(), host.read(aside, 0, 100).await.unwrap())
    });
    assert_eq!(report.files.len(), 1);
    assert_eq!(stage.content(file), b"theirs!");
    assert_eq!(aside, b"\0\0\0mine");
}

#[test]
fn a_write_of_a_fenced_host_never_arrives() {
    let (stage, disk) = Stage::formatted_disk(7);
    // Without reconnection only the host's first attempts count.
    let options = HostOptions { reconnect: None, ..under_pressure() };
    let file = stage.play(&disk, options, async move |host, inner| {
        let file = make(&host, "file").await;
        host.write(file, 0, b"old self", Durable::Now).await.unwrap();
        inner.connect().fence(&identity()).await.unwrap();
        let refused = host.close().await;
        assert!(refused.is_err(), "{refused:?}");
        assert!(host.write(file, 0, b"more", Durable::Now).await.is_err());
        file
    });
    assert_eq!(stage.content(file), b"");
}

#[test]
fn cut_off_bytes_do_not_come_back() {
    let (stage, disk) = Stage::formatted_disk(8);
    let file = stage.play(&disk, under_pressure(), async move |host, _| {
        let file = make(&host, "file").await;
        host.write(file, 0, &[7; 9000], Durable::Now).await.unwrap();
        let cut = AttributeChange { size: Some(10), ..AttributeChange::default() };
        host.set_attributes(file, cut).await.unwrap();
        host.write(file, 8000, b"end", Durable::Now).await.unwrap();
        file
    });
    let disk = stage.disk(stage.crash(&disk, CrashPolicy::KeepAll));
    stage.recovered(&disk, under_pressure());
    let mut expected = vec![7; 10];
    expected.resize(8000, 0);
    expected.extend(b"end");
    assert!(stage.content(file) == expected);
}

#[test]
fn mode_owner_and_times_survive_with_the_data() {
    let (stage, disk) = Stage::formatted_disk(9);
    let (file, before) = stage.play(&disk, under_pressure(), async move |host, _| {
        let file = make(&host, "file").await;
        host.write(file, 0, b"x", Durable::Now).await.unwrap();
        let change = AttributeChange {
            mode: Some(0o600),
            uid: Some(7),
            size: Some(50),
            ..Default::default()
        };
        let before = host.set_attributes(file, change).await.unwrap();
        host.sync_file(file).await.unwrap();
        (file, before)
    });
    let disk = stage.disk(stage.crash(&disk, CrashPolicy::LoseAll));
    let after = stage
        .play(&disk, under_pressure(), async move |host, _| host.attributes(file).await.unwrap());
    assert_eq!((after.mode, after.uid, after.version.size), (0o600, 7, 50));
    assert_eq!(after.modified, before.modified);
}

#[test]
fn a_short_journal_sends_the_oldest_files_to_the_store() {
    let (stage, disk) = Stage::formatted_disk(10);
    stage.play(&disk, under_pressure(), async move |host, _| {
        let files = [make(&host, "a").await, make(&host, "b").await, make(&host, "c").await];
        for round in 0..120u64 {
            let file = files[round as usize % 3];
            host.write(file, round * 1_000_000, &vec![round as u8; 700_000], Durable::Soon)
                .await
                .unwrap();
        }
        assert!(host.statistics().destaged_files > 0);
        host.close().await.unwrap();
    });
    let disk = stage.disk(stage.crash(&disk, CrashPolicy::LoseAll));
    let report = stage.recovered(&disk, under_pressure());
    assert!(report.clean, "a closed host leaves an empty journal: {report:?}");
}

/// `dirty=` bounds memory; overwritten bytes take none.
#[test]
fn overwritten_bytes_stay_and_the_oldest_files_are_destaged() {
    for (stride, goes) in [(0, false), (1000, false), (64 << 10, true)] {
        let (stage, disk) = Stage::formatted_disk(13);
        let options = HostOptions { dirty_bytes_max: 1 << 20, ..under_pressure() };
        stage.play(&disk, options, async move |host, stage| {
            let file = make(&host, "file").await;
            for round in 0..28 {
                host.write(file, round * stride, &[round as u8; 64 << 10], Durable::Soon)
                    .await
                    .unwrap();
            }
            stage.sleep(Duration::from_secs(20)).await;
            assert_eq!(
                host.statistics().destaged_files > 0,
                goes,
                "{stride} bytes further on each time"
            );
        });
        stage.world.end();
    }
}

#[test]
fn recovery_asks_for_the_token_before_it_compares() {
    let (stage, disk, file) = crashed_with(11, 0, b"mine");
    let (begun, peer, world) = (stage.begin(&disk, under_pressure()), stage.peer(), stage.world());
    let report = stage.world.run(async move {
        // Only the peer's buffer has what it wrote.
        let open = peer.open(file, OpenMode::ReadWrite).await.unwrap();
        peer.take_token(open, Token::ExclusiveWrite).await.unwrap();
        peer.write(open, 0, b"theirs").await.unwrap();
        world.spawn(Box::pin(async move {
            let StoreEvent::Recall { file, .. } = peer.next_event().await else {
                panic!("no recall")
            };
            peer.return_token(file).await.unwrap();
        }));
        begun.await.unwrap().1
    });
    assert!(matches!(report.files[0].outcome, FileFate::SetAside { .. }), "{report:?}");
    assert_eq!(stage.content(file), b"theirs");
}

#[test]
fn recovery_does_not_wait_for_its_former_self() {
    let (stage, disk, file) = crashed_with(12, 0, b"new");
    // A stopped client: it holds the token, and answers nothing.
    let former = stage.connect();
    let stopped = former.clone();
    let open = stage.world.run(async move {
        let open = stopped.open(file, OpenMode::ReadWrite).await.unwrap();
        stopped.fence(&identity()).await.unwrap();
        stopped.take_token(open, Token::ExclusiveWrite).await.unwrap();
        stopped.write(open, 0, b"old self").await.unwrap();
        open
    });
    let begun = stage.begin(&disk, under_pressure());
    let (report, late) = stage.world.run(async move {
        let (_, report) = begun.await.unwrap();
        (report, former.make_durable(open).await)
    });
    assert!(report.nanoseconds < 1_000_000_000, "{report:?}");
    assert!(late.is_err(), "it was fenced");
    assert_eq!(stage.content(file), b"new");
}

#[test]
fn many_dirty_files_do_not_stay_open_at_the_store() {
    let (stage, disk) = Stage::formatted_disk(13);
    stage.play(
        &disk,
        HostOptions { dirty_files_max: 512, ..under_pressure() },
        async move |host, _| {
            for number in 0..600 {
                let file = make(&host, &format!("file {number}")).await;
                host.write(file, 0, b"small", Durable::Soon).await.unwrap();
                host.close_file(file).await.unwrap();
            }
            assert!(host.statistics().destaged_files >= 600 - 512);
        },
    );
}

#[test]
fn no_replay_restores_punched_bytes() {
    let (stage, disk) = Stage::formatted_disk(40);
    let file = stage.play(&disk, under_pressure(), async move |host, _| {
        let file = make(&host, "file").await;
        host.write(file, 0, &[1; 12288], Durable::Now).await.unwrap();
        host.allocate(file, Allocation::PunchHole, 4096..8192).await.unwrap();
        host.allocate(file, Allocation::Reserve, 0..16384).await.unwrap();
        host.write(file, 0, &[2; 100], Durable::Now).await.unwrap();
        file
    });
    let disk = stage.disk(stage.crash(&disk, CrashPolicy::LoseAll));
    let report = stage.recovered(&disk, under_pressure());
    assert_eq!(report.files[0].outcome, FileFate::Replayed);
    let mut expected = vec![1; 12288];
    expected[..100].fill(2);
    expected[4096..8192].fill(0);
    expected.resize(16384, 0);
    assert_eq!(stage.content(file), expected);
}

#[test]
fn a_hole_waits_for_a_peer_to_return_the_token() {
    let (stage, disk) = Stage::formatted_disk(41);
    stage.play(&disk, under_pressure(), async move |host, stage| {
        let peer = stage.peer();
        let file = make(&host, "file").await;
        for round in 1..5u8 {
            peer_writes(&*peer, file, 0, &[round; 8192]).await;
            host.allocate(file, Allocation::PunchHole, 0..4096).await.unwrap();
            let seen = peer_reads(&*peer, file).await;
            assert_eq!((seen[0], seen[4095], seen[4096], seen.len()), (0, 0, round, 8192));
        }
    });
}

#[test]
fn closing_a_file_waits_for_others_only_beyond_twice_the_bound() {
    let (stage, disk) = Stage::formatted_disk(42);
    let options = HostOptions { dirty_files_max: 8, ..under_pressure() };
    stage.play(&disk, options, async move |host, stage| {
        let world = stage.world();
        let mut waited = Vec::new();
        for number in 0..16 {
            let file = make(&host, &format!("file-{number}")).await;
            host.write(file, 0, b"dirty", Durable::Soon).await.unwrap();
            let begun = world.now();
            host.close_file(file).await.unwrap();
            waited.push(world.now().since(begun));
        }
        assert!(waited.iter().all(|time| time.is_zero()), "{waited:?}");
        // No file is closed any more: the oldest are destaged in the background, and only as many
        // as needed.
        stage.sleep(Duration::from_millis(500)).await;
        let left = 16 - host.statistics().destaged_files;
        assert!((1..=8).contains(&left), "{left} are dirty");
        for number in 16..200 {
            let file = make(&host, &format!("file-{number}")).await;
            host.write(file, 0, b"dirty", Durable::Soon).await.unwrap();
            host.close_file(file).await.unwrap();
            let dirty = number + 1 - host.statistics().destaged_files;
            assert!(dirty <= 17, "{dirty} are dirty after {number}");
        }
    });
}
