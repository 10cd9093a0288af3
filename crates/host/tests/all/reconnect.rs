//! A connection that is lost and comes back while the host runs.

use crate::common::*;
use device::{Operation, World};
use disks::{CrashPolicy, Latency, MemoryDisk};
use host::{CONFLICT_DIRECTORY, Durable, HostError, HostOptions, HostRecoveryReport};
use runtime::{race, spawn_with_result};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use store::{Cut, CutKind, Moment};

#[test]
fn acknowledged_data_survives_fencing_and_reconnect() {
    let (stage, disk) = Stage::formatted_disk(1);
    let files = stage.play(&disk, under_pressure(), async move |host, inner| {
        let reports: Rc<RefCell<Vec<HostRecoveryReport>>> = Rc::default();
        let sink = reports.clone();
        host.on_reconnection(Box::new(move |report| sink.borrow_mut().push(report.clone())));
        let files =
            [make(&host, "synced").await, make(&host, "answered").await, make(&host, "new").await];
        host.write(files[0], 0, b"synced", Durable::Now).await.unwrap();
        host.write(files[1], 0, b"answered", Durable::Soon).await.unwrap();
        inner.connect().fence(&identity()).await.unwrap();
        host.write(files[2], 3, b"written after", Durable::Now).await.unwrap();
        host.sync_file(files[1]).await.unwrap();
        assert_eq!(host.read(files[1], 0, 100).await.unwrap(), b"answered");
        host.write(files[0], 6, b", and on", Durable::Now).await.unwrap();
        assert_eq!((reports.borrow().len(), host.statistics().reconnections), (1, 1));
        assert_eq!(reports.borrow()[0].files.len(), 2);
        host.close().await.unwrap();
        files
    });
    assert_eq!(stage.content(files[0]), b"synced, and on");
    assert_eq!(stage.content(files[1]), b"answered");
    assert_eq!(stage.content(files[2]), b"\0\0\0written after");
}

#[test]
fn others_changes_stay_and_open_files_report_the_conflict() {
    let (stage, disk) = Stage::formatted_disk(2);
    let file = stage.play(&disk, under_pressure(), async move |host, inner| {
        let file = make(&host, "file").await;
        host.write(file, 0, b"mine", Durable::Now).await.unwrap();
        inner.connect().fence(&identity()).await.unwrap();
        peer_writes(&*inner.peer(), file, 0, b"theirs").await;
        for _ in 0..2 {
            let refused = host.write(file, 0, b"mine again", Durable::Now).await;
            assert!(matches!(refused, Err(HostError::SetAside(_))), "{refused:?}");
            assert!(matches!(host.sync_file(file).await, Err(HostError::SetAside(_))));
        }
        let directory = host.lookup(host.root(), CONFLICT_DIRECTORY.as_bytes()).await.unwrap().file;
        let listing = host.list(directory, 0).await.unwrap();
        let aside =
            listing.entries.iter().find(|entry| !entry.name.ends_with(b".txt")).unwrap().file;
        assert_eq!(host.read(aside, 0, 100).await.unwrap(), b"mine");
        // A new open sees the store's state.
        host.close_file(file).await.unwrap();
        host.open_file(file).await.unwrap();
        host.write(file, 6, b", mine", Durable::Now).await.unwrap();
        host.close().await.unwrap();
        file
    });
    assert_eq!(stage.content(file), b"theirs, mine");
}

#[test]
fn held_files_are_written_and_synced_while_the_network_is_down() {
    let (stage, disk) = Stage::formatted_disk(3);
    let file = stage.play(&disk, under_pressure(), async move |host, inner| {
        let file = make(&host, "file").await;
        host.write(file, 0, &[0; 20], Durable::Now).await.unwrap();
        inner.cluster.silence(&identity());
        let world = inner.world();
        let begun = world.now();
        for round in 0..20u8 {
            host.write(file, round.into(), &[round], Durable::Now).await.unwrap();
        }
        assert!(world.now().since(begun) < Duration::from_millis(1));
        // An operation that needs a server waits, and is answered when the connection is back.
        let found = host.lookup(host.root(), b"file").await.unwrap();
        assert_eq!((found.file, found.attributes.version.size), (file, 20));
        assert!(world.now().since(begun) > Duration::from_secs(29));
        host.close().await.unwrap();
        file
    });
    assert_eq!(stage.content(file), (0..20).collect::<Vec<u8>>());
}

#[test]
fn waits_for_the_store_are_bounded_and_the_journal_keeps_what_was_answered() {
    let (stage, disk) = Stage::formatted_disk(4);
    let options = HostOptions { reconnect: None, ..under_pressure() };
    let file = stage.play(&disk, options, async move |host, inner| {
        let file = make(&host, "file").await;
        host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        inner.connect().fence(&identity()).await.unwrap();
        let refused = host.lookup(host.root(), b"file").await;
        assert!(refused.as_ref().is_err_and(HostError::is_lost), "{refused:?}");
        assert!(host.write(file, 0, b"more", Durable::Now).await.is_err());
        assert!(host.close().await.is_err());
        file
    });
    let disk = stage.disk(stage.crash(&disk, CrashPolicy::LoseAll));
    stage.recovered(&disk, under_pressure());
    assert_eq!(stage.content(file), b"synced");
}

#[test]
fn many_writers_go_on_through_many_lost_connections() {
    for seed in 0..10 {
        let (stage, disk) = Stage::formatted_disk(seed);
        let files = stage.play(&disk, HostOptions::default(), async move |host, inner| {
            let world = inner.world();
            let mut files = Vec::new();
            let mut writers = Vec::new();
            for writer in 0..8u8 {
                let file = make(&host, &format!("file {writer}")).await;
                files.push(file);
                let (host, world) = (host.clone(), world.clone());
                let world_for_task = world.clone();
                writers.push(spawn_with_result(&*world_for_task, async move {
                    for round in 0..200u64 {
                        let durable = if round % 3 == 0 { Durable::Now } else { Durable::Soon };
                        host.write(file, round * 10, &[writer + 1; 10], durable).await.unwrap();
                        sleep(&*world, Duration::from_micros(500)).await;
                    }
                    host.sync_file(file).await.unwrap();
                }));
            }
            for _ in 0..6 {
                sleep(&*world, Duration::from_millis(17)).await;
                inner.connect().fence(&identity()).await.unwrap();
            }
            for writer in writers {
                writer.await.unwrap();
            }
            assert!(host.statistics().reconnections >= 3, "seed {seed}");
            files
        });
        let disk = stage.disk(stage.crash(&disk, CrashPolicy::LoseAll));
        stage.recovered(&disk, under_pressure());
        for (number, file) in files.into_iter().enumerate() {
            assert!(
                stage.content(file) == vec![number as u8 + 1; 2000],
                "seed {seed}, file {number}"
            );
        }
    }
}

/// A peer has changed one of the files. The connection is lost again while the host recovers.
#[test]
fn what_was_set_aside_stays_known_through_a_second_cut_at_every_message() {
    let mut cuts = 0;
    for after in 0..60 {
        let (stage, disk) = Stage::formatted_disk(after);
        let journal = disk.clone();
        let was_cut = stage.play(&disk, under_pressure(), async move |host, inner| {
            let file = make(&host, "file").await;
            host.write(file, 0, b"mine", Durable::Now).await.unwrap();
            for number in 0..4 {
                let other = make(&host, &format!("other {number}")).await;
                host.write(other, 0, b"other", Durable::Soon).await.unwrap();
            }
            // The commit that comes first keeps the host from the store until the peer is done.
            journal
                .set_latency(Latency { least: Duration::from_millis(20), spread: Duration::ZERO });
            inner.connect().fence(&identity()).await.unwrap();
            peer_writes(&*inner.peer(), file, 0, b"theirs").await;
            journal.set_latency(Latency { least: Duration::ZERO, spread: Duration::ZERO });
            let (kind, message) = (CutKind::Network, inner.cluster.messages() + 1 + after);
            let moment = if after % 2 == 0 { Moment::Request } else { Moment::Answer };
            inner.cluster.cut_at(Cut { kind, message, moment });
            let synced = loop {
                match host.sync_file(file).await {
                    Err(error) if error.is_lost() => {}
                    result => break result,
                }
            };
            assert!(matches!(synced, Err(HostError::SetAside(_))), "cut at {after}: {synced:?}");
            assert!(host.statistics().set_aside_files >= 1, "cut at {after}");
            assert_eq!(inner.content(file), b"theirs", "cut at {after}");
            inner.cluster.cancel_cut()
        });
        cuts += u32::from(was_cut);
    }
    assert!(cuts > 40, "{cuts} connections were lost again");
}

#[test]
fn what_is_appended_while_connections_are_lost_is_there_once() {
    for seed in 0..10u64 {
        let (stage, disk) = Stage::formatted_disk(seed);
        disk.set_latency(Latency { least: Duration::from_millis(2), spread: Duration::ZERO });
        let file = stage.play(&disk, under_pressure(), async move |host, inner| {
            let world = inner.world();
            let file = make(&host, "log").await;
            let (writer, cutter) = (host.clone(), inner.clone());
            let written = spawn_with_result(&*world, async move {
                for line in 0..100u8 {
                    writer.append(file, &[line; 3], Durable::Now).await.unwrap();
                }
            });
            for _ in 0..5 {
                sleep(&*world, Duration::from_micros(37_000 + 700 * seed)).await;
                cutter.connect().fence(&identity()).await.unwrap();
            }
            written.await.unwrap();
            assert!(host.statistics().reconnections >= 2, "seed {seed}");
            host.close().await.unwrap();
            file
        });
        let lines: Vec<u8> = (0..100u8).flat_map(|line| [line; 3]).collect();
        assert_eq!(stage.content(file), lines, "seed {seed}");
    }
}

#[test]
fn an_open_file_without_a_name_is_lost_with_the_connection() {
    let (stage, disk) = Stage::formatted_disk(5);
    stage.play(&disk, under_pressure(), async move |host, inner| {
        let file = make(&host, "file").await;
        host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        host.unlink(host.root(), b"file").await.unwrap();
        host.sync_file(file).await.unwrap();
        inner.connect().fence(&identity()).await.unwrap();
        host.lookup(host.root(), b"none").await.unwrap_err();
        let synced = host.sync_file(file).await;
        assert!(matches!(synced, Err(HostError::SetAside(_))), "{synced:?}");
    });
}

/// The journal's superblock, in bytes from the start of the disk.
const SUPERBLOCK_AT: u64 = 4 * 4096;
const FAST: Latency = Latency { least: Duration::ZERO, spread: Duration::ZERO };
/// Longer than a lost connection takes to be noticed, and the next one to be recovered.
const LATE: Latency = Latency { least: Duration::from_secs(200), spread: Duration::ZERO };

/// Makes one write of the journal late: the first in front of which `skipped` others that `counts`
/// accepts have begun. Returns whether it has begun.
fn make_late(
    disk: &MemoryDisk,
    skipped: u64,
    counts: impl Fn(u64) -> bool + 'static,
) -> Rc<Cell<bool>> {
    let is_late = Rc::new(Cell::new(false));
    let (seen, begun) = (Cell::new(0), is_late.clone());
    disk.set_latency(FAST);
    disk.on_change(move |disk, _, logged| {
        // Read by the disk right behind this call.
        disk.set_latency(FAST);
        if counts(logged.at) {
            if seen.get() == skipped && !begun.replace(true) {
                disk.set_latency(LATE);
            }
            seen.set(seen.get() + 1);
        }
    });
    is_late
}

async fn until(world: &dyn World, is_so: impl Fn() -> bool) {
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        sleep(world, Duration::from_micros(100)).await;
    }
    panic!("it is never so");
}

/// The connection is lost again while the write that empties the log is in flight.
#[test]
fn a_dropped_recovery_does_not_empty_the_next_log() {
    let (stage, disk) = Stage::formatted_disk(6);
    let journal = disk.clone();
    let file = stage.play(&disk, under_pressure(), async move |host, inner| {
        let world = inner.world();
        let file = make(&host, "file").await;
        host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        let is_late = make_late(&journal, 0, |at| at == SUPERBLOCK_AT);
        inner.connect().fence(&identity()).await.unwrap();
        until(&*world, || is_late.get()).await;
        journal.set_latency(FAST);
        inner.connect().fence(&identity()).await.unwrap();
        while host.write(file, 0, b"answered", Durable::Now).await.is_err() {}
        // The late write is on the disk by now.
        sleep(&*world, LATE.least).await;
        journal.stop_watching();
        file
    });
    let disk = stage.disk(stage.crash(&disk, CrashPolicy::LoseAll));
    stage.recovered(&disk, under_pressure());
    assert_eq!(stage.content(file), b"answered");
}

/// The last write of the ledger is late. The host crashes amid the recovery after the next one;
/// then the late write reaches the disk.
#[test]
fn a_dropped_recovery_leaves_later_ledgers_as_they_are() {
    let is_of_ledger = |at: u64| (4096..3 * 4096).contains(&at);
    let mut cuts = 0;
    for after in 0..12 {
        let (stage, disk) = Stage::formatted_disk(after);
        let journal = disk.clone();
        let file = stage.play(&disk, under_pressure(), async move |host, inner| {
            let world = inner.world();
            let file = make(&host, "file").await;
            host.write(file, 0, b"synced", Durable::Now).await.unwrap();
            let is_late = make_late(&journal, 2, is_of_ledger);
            inner.connect().fence(&identity()).await.unwrap();
            until(&*world, || is_late.get()).await;
            journal.set_latency(FAST);
            inner.connect().fence(&identity()).await.unwrap();
            while host.write(file, 0, b"again!", Durable::Now).await.is_err() {}
            inner.connect().fence(&identity()).await.unwrap();
            let (kind, message) = (CutKind::Client, inner.cluster.messages() + 1 + after);
            inner.cluster.cut_at(Cut { kind, message, moment: Moment::Answer });
            race(inner.cluster.until_alive_cut(), sleep(&*world, Duration::from_secs(60))).await;
            journal.stop_watching();
            file
        });
        cuts += u32::from(stage.cluster.cancel_cut());
        let disk = stage.disk(stage.crash(&disk, CrashPolicy::KeepAll));
        let report = stage.recovered(&disk, under_pressure());
        assert_eq!(stage.content(file), b"again!", "message {after}: {report:?}");
        assert!(stage.set_aside(file).is_empty(), "message {after}: {report:?}");
    }
    assert!(cuts > 8, "{cuts} recoveries were cut");
}

/// A daemon that was killed may have left the journal in the disk's cache, and a power cut amid the
/// recovery would bring back an older one, after the store has a part of the newer.
#[test]
fn a_recovery_makes_the_journal_durable_that_it_finds() {
    let (stage, disk) = Stage::formatted_disk(11);
    stage.play(&disk, under_pressure(), async move |host, _| {
        let file = make(&host, "file").await;
        host.write(file, 0, b"synced", Durable::Now).await.unwrap();
    });
    let again = stage.disk(stage.crash(&disk, CrashPolicy::KeepAll));
    let first = Rc::new(Cell::new(None));
    let seen = first.clone();
    again.on_change(move |_, _, logged| {
        seen.set(seen.get().or(Some(logged.operation)));
    });
    let report = stage.recovered(&again, under_pressure());
    again.stop_watching();
    assert_eq!((report.files.len(), first.get()), (1, Some(Operation::Flush)));
}
