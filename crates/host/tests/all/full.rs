//! A store without space: what was synced stays in the journal, other files go on, and the store
//! gets what it refused once it has space.

use crate::common::*;
use disks::CrashPolicy;
use host::{Destage, Durable, FileFate, Host, HostError, HostOptions};
use runtime::{race, spawn_with_result};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use store::{Cut, CutKind, FileId, Moment, Refusal, StoreError};

fn is_no_space<T: std::fmt::Debug>(result: &Result<T, HostError>) -> bool {
    matches!(result, Err(error) if error.errno() == Refusal::NoSpace.errno())
}

#[test]
fn a_file_that_the_store_refuses_is_reported_tried_again_and_kept() {
    let (stage, disk) = Stage::formatted_disk(1);
    let file = stage.play(&disk, soon(), async move |host, inner| {
        let reports: Rc<RefCell<Vec<String>>> = Rc::default();
        let sink = reports.clone();
        host.on_trouble(Box::new(move |what| sink.borrow_mut().push(what.into())));
        let [file, other] = [make(&host, "file").await, make(&host, "other").await];
        inner.cluster.fill(Some(file));
        host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        inner.sleep(Duration::from_secs(10)).await;
        for _ in 0..2 {
            assert!(is_no_space(&host.sync_file(file).await));
            assert!(is_no_space(&host.write(file, 0, b"more", Durable::Soon).await));
        }
        assert_eq!(host.read(file, 0, 100).await.unwrap(), b"synced");
        let statistics = host.statistics();
        assert_eq!((statistics.failed_files, statistics.failed_bytes), (1, 6));
        assert!(reports.borrow()[0].contains("no space left"), "{:?}", reports.borrow());
        // Other files go on.
        host.write(other, 0, b"other", Durable::Now).await.unwrap();
        inner.sleep(Duration::from_secs(10)).await;
        assert_eq!(inner.content(other), b"other");
        // An hour of failures must not make it ask all the time.
        inner.sleep(Duration::from_secs(3600)).await;
        assert!((5..30).contains(&reports.borrow().len()), "{} reports", reports.borrow().len());
        inner.cluster.free_space();
        inner.sleep(Duration::from_secs(310)).await;
        assert_eq!(inner.content(file), b"synced");
        host.sync_file(file).await.unwrap();
        host.write(file, 6, b" again", Durable::Now).await.unwrap();
        assert_eq!(host.statistics().failed_files, 0);
        host.close().await.unwrap();
        file
    });
    assert_eq!(stage.content(file), b"synced again");
}

/// Records of the refused file would hold the tail of the log.
#[test]
fn a_refused_file_does_not_keep_others_from_the_journal() {
    let (stage, disk) = Stage::formatted_disk(2);
    let options = HostOptions { destage: Destage::UnderPressure, ..HostOptions::default() };
    let file = stage.play(&disk, options.clone(), async move |host, inner| {
        let [file, other] = [make(&host, "file").await, make(&host, "other").await];
        inner.cluster.fill(Some(file));
        host.write(file, 0, &[7; 5000], Durable::Now).await.unwrap();
        // Five times what the journal can hold.
        for round in 0..5 * JOURNAL_BYTES / 65536 {
            let at = round % 8 * 65536;
            let bytes = [round as u8; 65536];
            let write = host.write(other, at, &bytes, Durable::Now);
            match race(write, inner.sleep(Duration::from_secs(60))).await {
                runtime::Either::Left(written) => drop(written.unwrap()),
                runtime::Either::Right(()) => panic!("write {round} waits for room for ever"),
            }
        }
        assert_eq!(host.statistics().failed_files, 1);
        file
    });
    let disk = stage.disk(stage.crash(&disk, CrashPolicy::LoseAll));
    stage.cluster.free_space();
    stage.recovered(&disk, options);
    assert_eq!(stage.content(file), [7; 5000]);
}

/// Callers that wait for space in the journal, or in memory, get the store's error.
#[test]
fn writers_get_no_space_and_go_on_once_there_is_some() {
    for dirty_bytes_max in [1 << 20, 1 << 30] {
        let (stage, disk) = Stage::formatted_disk(3);
        let options = HostOptions { dirty_bytes_max, ..soon() };
        let written: Vec<FileId> = stage.play(&disk, options, async move |host, inner| {
            let world = inner.world();
            inner.cluster.fill(None);
            let mut written = Vec::new();
            let refused = loop {
                let file = make(&host, &format!("{}", written.len())).await;
                let result = fill_file(&host, file, &*world).await;
                if result.is_err() {
                    break result;
                }
                written.push(file);
                assert!(written.len() < 1000, "nobody is refused");
            };
            assert!(is_no_space(&refused), "{refused:?}");
            let held = host.statistics().held_bytes;
            assert!(held < dirty_bytes_max + dirty_bytes_max / 2, "{held} bytes are held");
            inner.cluster.free_space();
            sleep(&*world, Duration::from_secs(700)).await;
            let file = make(&host, "goes on").await;
            host.write(file, 0, b"on", Durable::Now).await.unwrap();
            host.close().await.unwrap();
            written
        });
        assert!(!written.is_empty());
        for file in written {
            assert_eq!(stage.content(file), [9; 200_000], "of {dirty_bytes_max}");
        }
    }
}

async fn fill_file(
    host: &Rc<Host>,
    file: FileId,
    world: &dyn device::World,
) -> Result<(), HostError> {
    let write = host.write(file, 0, &[9; 200_000], Durable::Now);
    match race(write, sleep(world, Duration::from_secs(120))).await {
        runtime::Either::Left(result) => result.map(drop),
        runtime::Either::Right(()) => panic!("a writer waits for ever"),
    }
}

/// Memory is checked when it is taken, not periodically.
#[test]
fn what_is_held_in_memory_stays_near_its_bound() {
    const BOUND: u64 = 1 << 20;
    let stage = Stage::new(4);
    let disk = stage.disk(stage.formatted_with(64 << 20));
    let options = HostOptions { dirty_bytes_max: BOUND, ..HostOptions::default() };
    stage.play(&disk, options, async move |host, inner| {
        let world = inner.world();
        let most = Rc::new(Cell::new(0));
        let writers = (0..8u64).map(|writer| {
            let (host, most) = (host.clone(), most.clone());
            spawn_with_result(&*world, async move {
                let file = make(&host, &format!("{writer}")).await;
                for at in 0..40 {
                    host.write(file, at * 65536, &[1; 65536], Durable::Soon).await.unwrap();
                    most.set(host.statistics().held_bytes.max(most.get()));
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        assert!(most.get() <= BOUND + BOUND / 4 + 8 * 65536, "{} bytes", most.get());
        host.close().await.unwrap();
    });
}

/// The first recovery after a crash finds no space, and may crash for another reason as well.
#[test]
fn a_recovery_without_space_names_the_file_and_loses_nothing() {
    let mut cuts = 0;
    for after in [None].into_iter().chain((0..12).map(Some)) {
        let (stage, disk) = Stage::formatted_disk(5);
        let files = stage.play(&disk, soon(), async move |host, _| {
            let files = [make(&host, "a").await, make(&host, "b").await];
            for file in files {
                host.write(file, 10, b"synced", Durable::Now).await.unwrap();
            }
            files
        });
        let mut image = stage.crash(&disk, CrashPolicy::LoseAll);
        stage.cluster.fill(Some(files[1]));
        let disk = stage.disk(image);
        if let Some(after) = after {
            let message = stage.cluster.messages() + 1 + after;
            let (kind, moment) = (CutKind::Client, Moment::Answer);
            stage.cluster.cut_at(Cut { kind, message, moment });
        }
        let (begun, cluster) = (stage.begin(&disk, soon()), stage.cluster.clone());
        let refused = stage.world.run(async move {
            match race(begun, cluster.until_alive_cut()).await {
                runtime::Either::Left(result) => result.err(),
                runtime::Either::Right(()) => None,
            }
        });
        if after.is_none() {
            let Some(HostError::NotReplayed { file, error, .. }) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!((file, error), (files[1].0, StoreError::Refused(Refusal::NoSpace)));
        }
        image = stage.crash(&disk, CrashPolicy::LoseAll);
        cuts += u32::from(stage.cluster.cancel_cut() && after.is_some());
        stage.cluster.free_space();
        let report = stage.recovered(&stage.disk(image), soon());
        let is_aside = |fate: &FileFate| matches!(fate, FileFate::SetAside { .. });
        assert!(!report.files.iter().any(|file| is_aside(&file.outcome)), "{after:?}: {report:?}");
        for file in files {
            assert_eq!(&stage.content(file)[10..], b"synced", "{after:?}");
        }
    }
    assert_eq!(cuts, 12, "recoveries that were cut");
}

/// No program can ever read it again.
#[test]
fn a_refused_file_without_a_name_is_dropped_at_its_last_close() {
    let (stage, disk) = Stage::formatted_disk(9);
    stage.play(&disk, soon(), async move |host, inner| {
        let file = make(&host, "file").await;
        inner.cluster.fill(Some(file));
        host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        inner.sleep(Duration::from_secs(10)).await;
        assert_eq!(host.statistics().failed_files, 1);
        host.unlink(host.root(), b"file").await.unwrap();
        host.close_file(file).await.unwrap();
        inner.sleep(Duration::from_secs(2)).await;
        let statistics = host.statistics();
        assert_eq!((statistics.failed_files, statistics.held_bytes), (0, 0));
        host.close().await.unwrap();
    });
}
