//! Recovery of many files: several at once, cut at every message, beside peers.

use crate::common::watched_store::WatchedStore;
use crate::common::*;
use device::{Disk, Durability};
use disks::{CrashPolicy, Image, Latency, MemoryDisk};
use host::{
    Durable, FileFate, Host, HostError, HostJournal, HostRecoveryReport, recover_reconnecting,
};
use runtime::race;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use store::{Cut, CutKind, FileId, Moment, Network, OpenMode, StoreError};

/// Writes `runs` separate pieces to file `number`.
async fn write_pieces(host: &Rc<Host>, file: FileId, number: usize, runs: u64) {
    for run in 0..runs {
        host.write(file, run * 20, &[number as u8 + 1; 10], Durable::Soon).await.unwrap();
    }
}
fn written(number: usize, runs: u64) -> Vec<u8> {
    let mut content = vec![0; (runs * 20 - 10) as usize];
    for run in 0..runs as usize {
        content[run * 20..run * 20 + 10].fill(number as u8 + 1);
    }
    content
}

/// Crashes a host with `files` dirty files, whose contents were synced. Returns the files and its
/// journal.
fn crashed(stage: &Stage, files: usize, runs_of: fn(usize) -> u64) -> (Vec<FileId>, Image) {
    let disk = stage.disk(stage.formatted());
    let made = stage.play(&disk, under_pressure(), async move |host, _| {
        let mut made = Vec::new();
        for number in 0..files {
            let file = make(&host, &format!("file {number}")).await;
            write_pieces(&host, file, number, runs_of(number)).await;
            made.push(file);
        }
        host.sync().await.unwrap();
        made
    });
    (made, stage.crash(&disk, CrashPolicy::LoseAll))
}

fn recovered(stage: &Stage, disk: &MemoryDisk) -> HostRecoveryReport {
    stage.recovered(disk, under_pressure())
}

#[test]
fn many_files_are_recovered_in_an_eighth_of_the_sum_of_their_times() {
    let time_of = |files| {
        let stage = Stage::new(1);
        let (made, image) = crashed(&stage, files, |_| 2);
        let disk = stage.disk(image);
        // A disk of 15,000 rpm.
        disk.set_latency(Latency { least: Duration::ZERO, spread: Duration::from_millis(4) });
        let report = recovered(&stage, &disk);
        assert_eq!(report.files.len(), made.len());
        report.nanoseconds
    };
    let (one, many) = (time_of(1), time_of(160));
    assert!(many < 160 * one / 8, "one takes {one} ns, 160 take {many} ns");
}

#[test]
fn files_of_many_pieces_and_of_few_share_the_ledger() {
    let stage = Stage::new(2);
    let runs_of = |number| if number % 7 == 3 { 90 } else { 2 + number as u64 % 5 };
    let (files, image) = crashed(&stage, 50, runs_of);
    let disk = stage.disk(image);
    let report = recovered(&stage, &disk);
    assert!(report.files.iter().all(|file| file.outcome == FileFate::Replayed), "{report:?}");
    for (number, file) in files.iter().enumerate() {
        assert_eq!(stage.content(*file), written(number, runs_of(number)));
    }
}

/// Two versions of every file were synced. The daemon was killed while the disk's cache had the
/// second one's records; the machine crashes during the next recovery.
#[test]
fn a_killed_hosts_cached_records_are_never_replayed_in_part() {
    const FILES: usize = 3;
    let mut cuts = 0;
    for after in 0..40 {
        let (stage, disk) = Stage::formatted_disk(after);
        let (host, files) = stage.play(&disk, under_pressure(), async move |host, _| {
            let mut files = Vec::new();
            for number in 0..FILES {
                files.push(make(&host, &format!("file {number}")).await);
                write_pieces(&host, files[number], number, 2).await;
            }
            host.sync().await.unwrap();
            (host, files)
        });
        let first = disk.crash(CrashPolicy::LoseAll);
        let again = files.clone();
        stage.world.run(async move {
            for (number, file) in again.iter().enumerate() {
                write_pieces(&host, *file, number + FILES, 2).await;
            }
            host.sync().await.unwrap();
        });
        let second = stage.crash(&disk, CrashPolicy::LoseAll);
        let disk = stage.disk(first.clone());
        let cached = disk.clone();
        stage.world.run(async move {
            for at in (0..JOURNAL_BYTES)
                .step_by(4096)
                .filter(|at| first.copy(*at, 4096)[..] != second.copy(*at, 4096)[..])
            {
                let bytes = vec![Rc::new(second.copy(at, 4096))];
                cached.write(at, bytes, Durability::Cached).await.unwrap();
            }
        });
        let message = stage.cluster.messages() + 1 + after;
        stage.cluster.cut_at(Cut { kind: CutKind::Client, message, moment: Moment::Answer });
        let (begun, cluster) = (stage.begin(&disk, under_pressure()), stage.cluster.clone());
        stage.world.run(async move { drop(race(begun, cluster.until_alive_cut()).await) });
        let image = stage.crash(&disk, CrashPolicy::LoseAll);
        cuts += u32::from(stage.cluster.cancel_cut());
        let report = recovered(&stage, &stage.disk(image));
        let is_aside = |file: &host::FileOutcome| matches!(file.outcome, FileFate::SetAside { .. });
        assert!(!report.files.iter().any(is_aside), "cut at {after}: {report:?}");
        for (number, file) in files.iter().enumerate() {
            let content = stage.content(*file);
            let versions = [number, number + FILES].map(|number| written(number, 2));
            assert!(
                versions.contains(&content),
                "cut at {after}: {file:?} is {content:?}: {report:?}"
            );
        }
    }
    assert!(cuts > 20, "{cuts} recoveries were cut");
}

/// A peer changes two files before the next recovery in every third case.
#[test]
fn a_crash_of_a_recovery_of_many_files_is_harmless_at_every_message() {
    const FILES: usize = 20;
    let (mut cuts, mut cuts_before_peer) = (0, 0);
    for after in 0..130 {
        let stage = Stage::new(after);
        let (files, image) = crashed(&stage, FILES, |_| 2);
        let disk = stage.disk(image);
        let (kind, message) = (CutKind::Client, stage.cluster.messages() + 1 + after);
        let moment = if after % 2 == 0 { Moment::Request } else { Moment::Answer };
        stage.cluster.cut_at(Cut { kind, message, moment });
        let (begun, cluster) = (stage.begin(&disk, under_pressure()), stage.cluster.clone());
        stage.world.run(async move { drop(race(begun, cluster.until_alive_cut()).await) });
        let image = stage.crash(&disk, CrashPolicy::LoseAll);
        let was_cut = u32::from(stage.cluster.cancel_cut());
        let changed = if after % 3 == 0 { vec![files[3], files[12]] } else { Vec::new() };
        cuts += was_cut;
        cuts_before_peer += if changed.is_empty() { 0 } else { was_cut };
        let (peer, by_peer) = (stage.peer(), changed.clone());
        stage.world.run(async move {
            for file in by_peer {
                peer_writes(&*peer, file, 0, &[99]).await;
            }
        });
        let disk = stage.disk(image);
        let report = recovered(&stage, &disk);
        for (number, file) in files.iter().enumerate() {
            let content = stage.content(*file);
            if changed.contains(file) {
                assert_eq!(
                    content.first(),
                    Some(&99),
                    "cut at {after}: what a peer wrote was overwritten"
                );
                continue;
            }
            assert_eq!(content, written(number, 2), "cut at {after}: file {number}");
            let outcome = report.files.iter().find(|found| found.file == file.0);
            let is_aside =
                outcome.is_some_and(|found| matches!(found.outcome, FileFate::SetAside { .. }));
            assert!(!is_aside, "cut at {after}: {outcome:?}");
        }
    }
    assert!(cuts > 120 && cuts_before_peer > 40, "{cuts}, {cuts_before_peer} before a peer wrote");
}

/// Enough pieces that a replay makes the file durable several times.
const RUNS: u64 = 400;

/// Creates a store whose client sends content unasked: a replay waits for that between its writes.
fn spilling(seed: u64) -> Stage {
    let notice = Duration::from_micros([0, 150][seed as usize % 2]);
    Stage::with(seed, Network { buffer_bytes: 256, notice, ..Network::default() })
}

#[test]
fn a_peer_gets_a_file_during_its_replay() {
    let stage = spilling(4);
    let (files, image) = crashed(&stage, 1, |_| RUNS);
    let (disk, peer, world, file) = (stage.disk(image), stage.peer(), stage.world(), files[0]);
    let begun = stage.begin(&disk, under_pressure());
    let (seen, report) = stage.world.run(async move {
        let recovery = runtime::spawn_with_result(&*world, begun);
        let mut seen = Vec::new();
        for _ in 0..3 {
            sleep(&*world, Duration::from_micros(400)).await;
            seen.push(peer_reads(&*peer, file).await.len());
        }
        (seen, recovery.await.unwrap().unwrap().1)
    });
    assert_eq!(report.files[0].outcome, FileFate::Replayed, "{report:?}");
    assert_eq!(stage.content(file), written(0, RUNS));
    assert!(
        seen.iter().any(|length| (1..written(0, RUNS).len()).contains(length)),
        "amid the replay: {seen:?}"
    );
}

/// A peer reads a file all the time while it is replayed, and the host dies. The peer writes in
/// every third case, and nothing overwrites that.
#[test]
fn a_crash_after_a_peer_interrupted_a_replay_is_harmless() {
    const RUNS: u64 = 100;
    let (mut interrupted, mut kept) = (0, 0);
    for after in 0..600 {
        let stage = spilling(after / 2);
        let (files, image) = crashed(&stage, 1, |_| RUNS);
        let (disk, peer, world, file) = (stage.disk(image), stage.peer(), stage.world(), files[0]);
        let message = stage.cluster.messages() + 1 + after / 2;
        let moment = if after % 2 == 0 { Moment::Request } else { Moment::Answer };
        stage.cluster.cut_at(Cut { kind: CutKind::Client, message, moment });
        let dead = stage.cluster.until_dead(&identity());
        let begun = stage.begin(&disk, under_pressure());
        let peer_wrote = Rc::new(Cell::new(false));
        let (writes, wrote) = (after % 3 == 0, peer_wrote.clone());
        stage.world.run(async move {
            let recovery = runtime::spawn_with_result(&*world, begun);
            let wants = async {
                for _ in 0..12 {
                    sleep(&*world, Duration::from_micros(400)).await;
                    peer_reads(&*peer, file).await;
                }
                if writes {
                    peer_writes(&*peer, file, 0, &[99]).await;
                    wrote.set(true);
                }
                recovery.await.unwrap().map(drop).unwrap();
            };
            // The message may be the peer's.
            let ends = race(dead, sleep(&*world, Duration::from_secs(5)));
            race(wants, ends).await;
        });
        let image = stage.crash(&disk, CrashPolicy::LoseAll);
        stage.cluster.cancel_cut();
        let report = recovered(&stage, &stage.disk(image));
        let content = stage.content(file);
        let is_aside = |file: &host::FileOutcome| matches!(file.outcome, FileFate::SetAside { .. });
        let is_aside = report.files.iter().any(is_aside);
        if peer_wrote.get() {
            assert_eq!(
                content.first(),
                Some(&99),
                "cut at {after}: a peer's write was overwritten"
            );
            kept += 1;
        } else if !writes {
            assert!(!is_aside, "cut at {after}: {report:?}");
        }
        if !is_aside && !report.files.is_empty() {
            assert_eq!(content[1..], written(0, RUNS)[1..], "cut at {after}");
            interrupted += 1;
        }
    }
    assert!(interrupted > 200 && kept > 20, "{interrupted} {kept}");
}

/// A peer asks for a file when the recovery's next write of it is in flight: the servers know no
/// state then that the ledger does not have.
#[test]
fn a_crash_after_a_write_met_a_recall_sets_nothing_aside() {
    const RUNS: u64 = 3;
    // The refused write is made again after 100 ms.
    let moments = || (0..10).chain(1000..1030).map(|step| step * 100);
    let mut read = 0;
    for (run, after) in (0..RUNS).flat_map(|run| moments().map(move |after| (run, after))) {
        let notice = Duration::from_micros(500);
        let stage = Stage::with(after, Network { notice, ..Network::default() });
        let (files, image) = crashed(&stage, 1, |_| RUNS);
        let (disk, peer, world, file) = (stage.disk(image), stage.peer(), stage.world(), files[0]);
        let store = Rc::new(WatchedStore::new(stage.connect()));
        store.slow_write.set(Some(run * 20));
        let peer_read = Rc::new(Cell::new(false));
        let seen = peer_read.clone();
        let begun = begin_host(stage.world(), store.clone(), disk.clone(), under_pressure());
        stage.world.run(async move {
            let recovery = runtime::spawn_with_result(&*world, begun);
            while store.waiting_calls.get() == 0 {
                sleep(&*world, Duration::from_micros(50)).await;
            }
            let reads = async move {
                peer_reads(&*peer, file).await;
                seen.set(true);
            };
            let reads = runtime::spawn_with_result(&*world, reads);
            sleep(&*world, notice).await;
            store.release_calls();
            sleep(&*world, Duration::from_micros(after)).await;
            drop((recovery, reads));
        });
        let image = stage.crash(&disk, CrashPolicy::LoseAll);
        let report = recovered(&stage, &stage.disk(image));
        let is_aside = |file: &host::FileOutcome| matches!(file.outcome, FileFate::SetAside { .. });
        assert!(!report.files.iter().any(is_aside), "write {run}, {after} us: {report:?}");
        assert_eq!(stage.content(file), written(0, RUNS), "write {run}, {after} us: {report:?}");
        read += u64::from(peer_read.get());
    }
    assert!(read > 10, "{read}");
}

/// The report has what became of each file, on whatever connection.
#[test]
fn a_recovery_goes_on_over_a_new_connection() {
    const FILES: usize = 5;
    let mut lost = 0;
    for after in 0..60 {
        let stage = Stage::new(after);
        let (files, image) = crashed(&stage, FILES, |_| 2);
        let (disk, world, store) = (stage.disk(image), stage.world(), stage.connect());
        let (kind, message) = (CutKind::Network, stage.cluster.messages() + 1 + after);
        stage.cluster.cut_at(Cut { kind, message, moment: Moment::Answer });
        let report = stage.world.run(async move {
            let journal = HostJournal::open(Rc::new(disk) as Rc<dyn Disk>).await.unwrap();
            recover_reconnecting(&*world, &*store, &journal).await
        });
        stage.cluster.cancel_cut();
        let report = match report {
            // Somebody decides whether it may connect again.
            Err(HostError::Store(StoreError::Fenced { .. })) => continue,
            report => report.unwrap(),
        };
        lost += usize::from(stage.cluster.messages() > message);
        let fates: Vec<&FileFate> = report.files.iter().map(|file| &file.outcome).collect();
        assert_eq!(fates, [&FileFate::Replayed; FILES], "cut at {after}");
        for (number, file) in files.iter().enumerate() {
            assert_eq!(stage.content(*file), written(number, 2), "cut at {after}");
        }
    }
    assert!(lost > 20, "{lost}");
}

/// The recovery crashes while it waits: the next one must not take the files finished after this
/// one for all files.
#[test]
fn a_file_that_a_peer_keeps_stops_no_other_and_is_recovered_later() {
    let stage = Stage::new(3);
    let (files, image) = crashed(&stage, 10, |_| 2);
    let (peer, first) = (stage.peer(), files[0]);
    let disk = stage.disk(image);
    let keeper = peer.clone();
    stage.world.run(async move {
        keeper.fence(&identity()).await.unwrap();
        let open = keeper.open(first, store::OpenMode::Read).await.unwrap();
        keeper.take_token(open, store::Token::SharedRead).await.unwrap();
    });
    let (begun, world) = (stage.begin(&disk, under_pressure()), stage.world());
    stage.world.run(async move {
        // The peer keeps its token for this time.
        race(begun, sleep(&*world, Duration::from_secs(1))).await;
    });
    for (number, file) in files.iter().enumerate().skip(1) {
        assert_eq!(stage.content(*file), written(number, 2));
    }
    assert_eq!(stage.content(first), b"");
    let image = stage.crash(&disk, CrashPolicy::LoseAll);
    stage.world.run(async move { peer.return_token(first).await.unwrap() });
    recovered(&stage, &stage.disk(image));
    assert_eq!(stage.content(first), written(0, 2));
}

/// A client that keeps a file of a dead host open during the recovery.
#[derive(Clone, Copy, Debug)]
enum StandIn {
    ChangedBefore,
    ChangesAfter(Duration),
    ClosesAfter(Duration),
    OnlyKeeps,
}

/// Recovers a host of two files beside a client that keeps the first one open. Returns the result,
/// the virtual time it took, and both files.
fn recovered_beside(
    stage: &Rc<Stage>,
    stand_in: StandIn,
) -> (Result<HostRecoveryReport, HostError>, Duration, Vec<FileId>) {
    let (files, image) = crashed(stage, 2, |_| 2);
    let (inner, disk, file) = (stage.clone(), stage.disk(image), files[0]);
    let (result, took) = stage.world.run(async move {
        let (world, peer) = (inner.world(), inner.peer());
        peer.fence(&identity()).await.unwrap();
        let open = peer.open(file, OpenMode::ReadWrite).await.unwrap();
        let change = async || {
            peer.write(open, 0, b"theirs").await.unwrap();
            peer.make_durable(open).await.unwrap();
        };
        if let StandIn::ChangedBefore = stand_in {
            change().await;
        }
        let store = Rc::new(WatchedStore::new(inner.connect()));
        store.kept.set(Some(file));
        let begun = world.now();
        let begin = begin_host(inner.world(), store.clone(), disk, under_pressure());
        let recovery = runtime::spawn_with_result(&*world, begin);
        match stand_in {
            StandIn::ChangesAfter(time) => {
                sleep(&*world, time).await;
                change().await;
            }
            StandIn::ClosesAfter(time) => {
                sleep(&*world, time).await;
                peer.close(open).await.unwrap();
                store.kept.set(None);
            }
            StandIn::ChangedBefore | StandIn::OnlyKeeps => {}
        }
        let result = recovery.await.unwrap().map(|(_, report)| report);
        (result, world.now().since(begun))
    });
    assert_eq!(stage.content(files[1]), written(1, 2), "{stand_in:?}: a file nobody else has");
    (result, took, files)
}

/// A store may need a token to open a file, as a directory does for one that its mode keeps from
/// its owner. Another client returns that in time, or does not.
#[test]
fn a_recovery_waits_for_the_token_that_an_open_needs() {
    for (opens, is_replayed) in [(20, true), (u64::MAX, false)] {
        let stage = Stage::new(21);
        let (files, image) = crashed(&stage, 1, |_| 2);
        let (disk, world, file) = (stage.disk(image), stage.world(), files[0]);
        let store = Rc::new(WatchedStore::new(stage.connect()));
        store.prevented_opens.set(opens);
        let begin = begin_host(stage.world(), store.clone(), disk, under_pressure());
        let (report, took) = stage.world.run(async move {
            let begun = world.now();
            (begin.await.map(|(_, report)| report), world.now().since(begun))
        });
        if is_replayed {
            assert_eq!(report.unwrap().files[0].outcome, FileFate::Replayed);
            assert_eq!(stage.content(file), written(0, 2));
        } else {
            let is_kept =
                matches!(report, Err(HostError::KeptOpen { file: kept }) if kept == file.0);
            assert!(is_kept, "{report:?}");
            assert!((30..32).contains(&took.as_secs()), "{took:?}");
        }
    }
}

/// A host comes back after a fail-over, and its stand-in works on.
#[test]
fn a_file_that_its_keeper_changed_is_set_aside_at_once() {
    let later = Duration::from_secs(5);
    for (stand_in, changed) in
        [(StandIn::ChangedBefore, Duration::ZERO), (StandIn::ChangesAfter(later), later)]
    {
        let stage = Rc::new(Stage::new(7));
        let (result, took, files) = recovered_beside(&stage, stand_in);
        let report = result.unwrap();
        let fates: Vec<&FileFate> = report.files.iter().map(|file| &file.outcome).collect();
        assert!(
            matches!(fates[..], [FileFate::SetAside { .. }, FileFate::Replayed]),
            "{stand_in:?}: {report:?}"
        );
        assert!(took < changed + Duration::from_secs(1), "{stand_in:?}: {took:?}");
        assert!(stage.content(files[0]).starts_with(b"theirs"), "{stand_in:?}");
        assert_eq!(stage.set_aside(files[0]), [written(0, 2)], "{stand_in:?}");
    }
}

/// The file may not be set aside before its keeper has changed it.
#[test]
fn a_file_that_its_keeper_left_alone_is_waited_for() {
    let stage = Rc::new(Stage::new(7));
    let (result, took, files) =
        recovered_beside(&stage, StandIn::ClosesAfter(Duration::from_secs(5)));
    assert_eq!(result.unwrap().files[0].outcome, FileFate::Replayed);
    assert!((5..6).contains(&took.as_secs()), "{took:?}");
    assert_eq!(stage.content(files[0]), written(0, 2));

    let stage = Rc::new(Stage::new(7));
    let (result, took, files) = recovered_beside(&stage, StandIn::OnlyKeeps);
    assert!(
        matches!(result, Err(HostError::KeptOpen { file }) if file == files[0].0),
        "{result:?}"
    );
    assert!((30..31).contains(&took.as_secs()), "{took:?}");
    assert_eq!(stage.set_aside(files[0]), Vec::<Vec<u8>>::new());
}

/// The servers get an unsynced write with the recall: the journal has it first.
#[test]
fn a_crash_amid_a_recall_sets_nothing_aside() {
    for after in (0..60u64).map(|step| Duration::from_micros(step * 100)) {
        let (stage, disk) = Stage::formatted_disk(3);
        let (peer, clock, journal) = (stage.peer(), stage.world(), disk.clone());
        let file = stage.play(&disk, under_pressure(), async move |host, _| {
            let file = make(&host, "file").await;
            host.write(file, 0, b"synced", Durable::Now).await.unwrap();
            host.write(file, 3, b"soon", Durable::Soon).await.unwrap();
            journal
                .set_latency(Latency { least: Duration::from_millis(3), spread: Duration::ZERO });
            race(peer_reads(&*peer, file), sleep(&*clock, after)).await;
            file
        });
        let image = stage.crash(&disk, CrashPolicy::LoseAll);
        let report = recovered(&stage, &stage.disk(image));
        assert!(
            report.files.iter().all(|file| file.outcome == FileFate::Replayed),
            "{after:?}: {report:?}"
        );
        let content = stage.content(file);
        assert!(content == b"synced" || content == b"synsoon", "{after:?}: {content:?}");
    }
}

/// Covers another cluster of the same name, and a file of the same number.
#[test]
fn no_journal_is_replayed_to_another_store() {
    let (stage, other) = (Stage::new(1), Stage::new(2));
    let (files, image) = crashed(&stage, 3, |_| 2);
    let untouched = |stage: &Stage| {
        let disk = stage.disk(stage.formatted());
        stage.play(&disk, under_pressure(), async move |host, _| {
            let file = make(&host, "of another cluster").await;
            host.write(file, 0, b"theirs", Durable::Now).await.unwrap();
            host.close().await.unwrap();
            file
        })
    };
    let file = untouched(&other);
    assert_eq!(file, files[0], "numbers mean nothing");
    let disk = other.disk(image);
    for _ in 0..2 {
        let begun = other.begin(&disk, under_pressure());
        let refused = other.world.run(async move { begun.await.err() });
        assert!(matches!(refused, Some(host::HostError::OtherStore { .. })), "{refused:?}");
    }
    assert_eq!(other.content(file), b"theirs");
    let disk = stage.disk(disk.crash(CrashPolicy::KeepAll));
    let report = recovered(&stage, &disk);
    assert!(report.files.iter().all(|file| file.outcome == FileFate::Replayed), "{report:?}");
}

/// The record of a removal is written before the removal is carried out, which may never happen.
#[test]
fn synced_file_survives_a_lost_removal() {
    for (after, links) in (0..3).flat_map(|after| [(after, false), (after, true)]) {
        let (stage, disk) = Stage::formatted_disk(after);
        let cluster = stage.cluster.clone();
        let (peer, clock) = (stage.peer(), stage.world());
        let (file, lives) = stage.play(&disk, under_pressure(), async move |host, _| {
            let file = make(&host, "file").await;
            host.write(file, 0, b"synced", Durable::Now).await.unwrap();
            let message = cluster.messages() + 1 + after;
            let cut = Cut { kind: CutKind::Client, message, moment: Moment::Request };
            cluster.cut_at(cut);
            race(host.unlink(host.root(), b"file"), cluster.until_client_cut()).await;
            // The journal goes on for a while.
            sleep(&*clock, Duration::from_millis(50)).await;
            cluster.cancel_cut();
            cluster.kill(&identity());
            let lives = peer.lookup(peer.root(), b"file").await.is_ok();
            if lives && links {
                // It waits for the crashed host's lease.
                assert_eq!(peer_reads(&*peer, file).await, b"");
                peer.link(file, peer.root(), b"another name").await.unwrap();
            } else if lives {
                peer_writes(&*peer, file, 3, b"theirs").await;
            }
            (file, lives)
        });
        let report = recovered(&stage, &stage.disk(stage.crash(&disk, CrashPolicy::LoseAll)));
        if lives {
            let aside = stage.set_aside(file);
            let is_there = stage.content(file) == b"synced" || aside == [b"synced"];
            assert!(is_there, "cut at {after}, {links}: {aside:?} {report:?}");
        } else {
            let fates: Vec<&FileFate> = report.files.iter().map(|file| &file.outcome).collect();
            assert!(fates.iter().all(|fate| **fate == FileFate::Removed), "{after}: {report:?}");
            assert_eq!(stage.set_aside(file), Vec::<Vec<u8>>::new(), "{after}: {report:?}");
        }
        assert_eq!(lives, after == 0, "{after}");
    }
}
