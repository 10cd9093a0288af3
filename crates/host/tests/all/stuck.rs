//! Files that the store does not take: a sync that never returns, or a refusal that another client
//! waits behind.

use crate::common::watched_store::WatchedStore;
use crate::common::*;
use disks::{CrashPolicy, MemoryDisk};
use host::{Destage, Durable, FileFate, Host, HostOptions, HostWrite, Interrupt, Position};
use runtime::{Either, race, spawn_with_result};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use store::{FileId, OpenMode, Refusal, Token};

const EINTR: i32 = 4;

struct Scene {
    stage: Stage,
    host: Rc<Host>,
    watched: Rc<WatchedStore>,
    reports: Rc<RefCell<Vec<String>>>,
}

/// Runs a script with a host in front of a watched store. Returns its journal disk.
fn on_stage<T: 'static, F: Future<Output = T>>(
    keeps_failed_writes: bool,
    script: impl FnOnce(Scene) -> F + 'static,
) -> (Stage, MemoryDisk, T) {
    on_stage_with(soon(), keeps_failed_writes, script)
}
fn on_stage_with<T: 'static, F: Future<Output = T>>(
    options: HostOptions,
    keeps_failed_writes: bool,
    script: impl FnOnce(Scene) -> F + 'static,
) -> (Stage, MemoryDisk, T) {
    let (stage, disk) = Stage::formatted_disk(1);
    let mut watched = WatchedStore::new(stage.connect());
    watched.keeps_failed_writes = keeps_failed_writes;
    let watched = Rc::new(watched);
    let begun = begin_host(stage.world(), watched.clone(), disk.clone(), options);
    let inner = stage.clone();
    let result = stage.world.run(async move {
        let host = begun.await.unwrap().0;
        let reports: Rc<RefCell<Vec<String>>> = Rc::default();
        let sink = reports.clone();
        host.on_trouble(Box::new(move |what| sink.borrow_mut().push(what.into())));
        script(Scene { stage: inner, host, watched, reports }).await
    });
    (stage, disk, result)
}

impl Scene {
    async fn pause(&self, seconds: u64) {
        sleep(&*self.stage.world(), Duration::from_secs(seconds)).await;
    }
    /// Writes behind the first five bytes. The records of another file hold the tail of the log:
    /// writers go on until that is full.
    async fn write_until_refused(&self, file: FileId) {
        let mut written = 0;
        let refused = loop {
            let bytes = [written as u8; 60_000];
            let write = self.host.write(file, 5, &bytes, Durable::Now);
            match self.ends(write).await {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 1000, "nobody is refused");
        };
        assert!(written > 100, "{written} writes");
        assert_eq!(refused.errno(), Refusal::NoSpace.errno(), "{refused}");
    }
    /// Waits for work that may take up to ten minutes.
    async fn ends<T>(&self, work: impl Future<Output = T>) -> T {
        match race(work, self.pause(600)).await {
            Either::Left(result) => result,
            Either::Right(()) => panic!("it waits for ever"),
        }
    }
}

#[test]
fn a_sync_that_never_returns_stops_neither_others_nor_the_unmount() {
    let (stage, disk, [file, other]) = on_stage(true, |scene| async move {
        let host = &scene.host;
        let [file, other] = [make(host, "file").await, make(host, "other").await];
        scene.watched.stuck.set(Some(file));
        host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        scene.pause(60).await;
        host.write(other, 0, b"other", Durable::Now).await.unwrap();
        scene.pause(60).await;
        assert_eq!(scene.stage.content(other), b"other", "it is not destaged");
        let statistics = host.statistics();
        assert_eq!((statistics.failed_files, statistics.failed_bytes), (1, 6));
        let reports = scene.reports.borrow().clone();
        assert!(reports.len() == 1 && reports[0].contains("does not return"), "{reports:?}");
        scene.write_until_refused(other).await;
        assert!(scene.ends(host.close()).await.is_err(), "the store has not got everything");
        [file, other]
    });
    let disk = stage.disk(stage.crash(&disk, CrashPolicy::LoseAll));
    let report = stage.recovered(&disk, soon());
    assert!(report.files.iter().all(|file| file.outcome == FileFate::Replayed), "{report:?}");
    assert_eq!(stage.content(file), b"synced");
    assert_eq!(&stage.content(other)[..5], b"other");
}

/// The records of a stuck file hold the tail of a full log. Otherwise nothing kills a program that
/// writes, for as long as nobody knows whether space will come.
#[test]
fn a_signal_ends_a_write_that_waits_for_room_and_leaves_nothing_of_it() {
    let options = HostOptions { destage: Destage::UnderPressure, ..soon() };
    let (stage, disk, [other, last]) = on_stage_with(options.clone(), true, |scene| async move {
        let host = &scene.host;
        let [file, other] = [make(host, "file").await, make(host, "other").await];
        scene.watched.stuck.set(Some(file));
        host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        let interrupt = Interrupt::default();
        let mut written = 0u64;
        let ended = loop {
            let bytes = [written as u8; 60_000];
            let (position, durable) = (Position::At(0), Durable::Now);
            let write = HostWrite { position, bytes: &bytes, durable, interrupt: Some(&interrupt) };
            let signalled = async {
                scene.pause(5).await;
                interrupt.set();
                scene.pause(1).await;
            };
            match race(host.write_at(other, write), signalled).await {
                Either::Left(Ok(_)) => written += 1,
                Either::Left(Err(error)) => break error,
                Either::Right(()) => panic!("it waits on behind the signal"),
            }
            assert!(written < 10_000, "the log has room for all");
        };
        assert_eq!(ended.errno(), EINTR, "{ended}");
        assert!(written > 10, "{written} writes");
        // It holds nothing: others go on as before, and get ENOSPC when it is known that they must.
        assert_eq!(&host.read(other, 0, 3).await.unwrap(), &[(written - 1) as u8; 3]);
        let refused = scene.ends(host.write(other, 0, &[0; 60_000], Durable::Now)).await;
        assert_eq!(refused.unwrap_err().errno(), Refusal::NoSpace.errno());
        [other.0, written - 1]
    });
    let disk = stage.disk(stage.crash(&disk, CrashPolicy::LoseAll));
    let begun = stage.begin(&disk, options);
    stage.world.run(async move { begun.await.map(drop).unwrap() });
    assert_eq!(stage.content(FileId(other)), vec![last as u8; 60_000]);
}

/// The token that the store gives later is this host's, and is returned when another client asks.
#[test]
fn a_signal_ends_a_write_that_waits_for_a_token() {
    on_stage(true, |scene| async move {
        let host = &scene.host;
        let node = store::NewNode::Regular { mode: 0o644 };
        let file = host.make(host.root(), b"file", node, ROOT).await.unwrap().file;
        scene.watched.slow_token.set(Some(file));
        let interrupt = Interrupt::default();
        let (position, durable) = (Position::End, Durable::Now);
        let write = HostWrite { position, bytes: b"lost", durable, interrupt: Some(&interrupt) };
        let signalled = async {
            scene.pause(5).await;
            interrupt.set();
            scene.pause(1).await;
        };
        let Either::Left(Err(ended)) = race(host.write_at(file, write), signalled).await else {
            panic!("it waits on behind the signal")
        };
        assert_eq!(ended.errno(), EINTR, "{ended}");
        scene.watched.release_calls();
        host.append(file, b"synced", Durable::Now).await.unwrap();
        let peer = scene.stage.peer();
        peer_writes(&*peer, file, 0, b"S").await;
        assert_eq!(host.read(file, 0, 99).await.unwrap(), b"Synced");
    });
}

#[test]
fn a_refused_file_that_does_not_answer_later_stops_no_other() {
    let (stage, _, other) = on_stage(true, |scene| async move {
        let host = &scene.host;
        let [file, other] = [make(host, "file").await, make(host, "other").await];
        scene.watched.failing_syncs.set(true);
        host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        while host.statistics().failed_files == 0 {
            scene.pause(1).await;
        }
        scene.watched.failing_syncs.set(false);
        scene.watched.stuck.set(Some(file));
        // The second attempt comes after 5 s, and is left to itself after 30.
        scene.pause(45).await;
        host.write(other, 0, b"other", Durable::Now).await.unwrap();
        scene.write_until_refused(other).await;
        other
    });
    assert_eq!(&stage.content(other)[..5], b"other");
}

#[test]
fn an_unmount_brings_all_but_a_stuck_file_to_the_store() {
    // The one is left to its task before the unmount, or meets it.
    for seconds in [340, 0] {
        // Longer than the unmount takes.
        let destage = Destage::After(Duration::from_secs(300));
        let options = HostOptions { destage, ..soon() };
        let (stage, _, other) = on_stage_with(options, true, move |scene| async move {
            let host = &scene.host;
            let [file, other] = [make(host, "file").await, make(host, "other").await];
            scene.watched.stuck.set(Some(file));
            host.write(file, 0, b"synced", Durable::Now).await.unwrap();
            scene.pause(seconds).await;
            host.write(other, 0, b"other", Durable::Now).await.unwrap();
            assert!(scene.ends(host.close()).await.is_err(), "the store has not got everything");
            if seconds > 0 {
                assert!(!scene.watched.attributes_sent.get(), "with a content that was not sent");
            }
            other
        });
        assert_eq!(stage.content(other), b"other");
    }
}

/// A store that sends the attributes of all files sends contents along, whose errors are lost.
#[test]
fn attributes_are_sent_together_only_behind_all_contents() {
    for is_late in [false, true] {
        let (_, _, sent) = on_stage(true, move |scene| async move {
            let host = &scene.host;
            let [file, other] = [make(host, "file").await, make(host, "other").await];
            for file in [file, other] {
                host.write(file, 0, b"synced", Durable::Now).await.unwrap();
            }
            scene.watched.sends_nothing.set(is_late.then_some(file));
            assert_eq!(scene.ends(host.close()).await.is_err(), is_late);
            scene.watched.attributes_sent.get()
        });
        assert_eq!(sent, !is_late);
    }
}

#[test]
fn a_removed_file_that_is_stuck_stops_no_other_removal() {
    let (_, _, known) = on_stage(true, |scene| async move {
        let host = &scene.host;
        scene.watched.others_read_removed.set(true);
        for name in ["stuck", "second", "third"] {
            let file = make(host, name).await;
            if name == "stuck" {
                scene.watched.stuck.set(Some(file));
            }
            host.write(file, 0, b"synced", Durable::Now).await.unwrap();
            host.close_file(file).await.unwrap();
            scene.ends(host.unlink(host.root(), name.as_bytes())).await.unwrap();
            scene.pause(5).await;
        }
        scene.pause(40).await;
        assert_eq!(host.statistics().failed_files, 1);
        host.known_files()
    });
    assert_eq!(known, 1, "removals wait for the one that is stuck");
}

#[test]
fn files_that_are_destaged_by_age_are_forgotten() {
    on_stage(true, |scene| async move {
        for number in 0..100 {
            let file = make(&scene.host, &format!("file {number}")).await;
            scene.host.write(file, 0, b"synced", Durable::Now).await.unwrap();
            scene.host.close_file(file).await.unwrap();
        }
        scene.pause(10).await;
        assert_eq!(scene.host.statistics().dirty_in_journal, 0);
        assert_eq!(scene.host.known_files(), 0);
    });
}

#[test]
fn an_end_of_the_connection_that_never_returns_does_not_stop_the_unmount() {
    let (stage, _, file) = on_stage(true, |scene| async move {
        let file = make(&scene.host, "file").await;
        scene.host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        scene.watched.never_disconnects.set(true);
        let closed = scene.ends(scene.host.close()).await;
        assert!(closed.unwrap_err().is_lost());
        file
    });
    assert_eq!(stage.content(file), b"synced");
}

#[test]
fn a_recovery_that_never_returns_does_not_stop_the_unmount() {
    let (stage, disk, file) = on_stage(true, |scene| async move {
        let file = make(&scene.host, "file").await;
        scene.host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        scene.watched.stuck.set(Some(file));
        scene.stage.connect().fence(&identity()).await.unwrap();
        scene.pause(10).await;
        assert!(scene.ends(scene.host.close()).await.is_err(), "the store has not got the file");
        file
    });
    let disk = stage.disk(stage.crash(&disk, CrashPolicy::LoseAll));
    stage.recovered(&disk, soon());
    assert_eq!(stage.content(file), b"synced");
}

/// A thread of the store hangs, and its call would keep the host from every other file.
#[test]
fn a_call_that_never_returns_keeps_no_lost_connection() {
    let (stage, _, [file, other]) = on_stage(true, |scene| async move {
        let host = &scene.host;
        let [file, other] = [make(host, "file").await, make(host, "other").await];
        host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        host.write(other, 0, b"other", Durable::Now).await.unwrap();
        scene.watched.stuck.set(Some(file));
        scene.pause(5).await;
        scene.watched.stuck.set(None);
        scene.stage.connect().fence(&identity()).await.unwrap();
        let begun = scene.stage.world().now();
        assert_eq!(scene.ends(host.read(other, 0, 9)).await.unwrap(), b"other");
        let waited = scene.stage.world().now().since(begun);
        assert!(waited < Duration::from_secs(32), "{waited:?}");
        assert_eq!(scene.watched.given_up.get(), 1);
        assert_eq!(host.read(file, 0, 9).await.unwrap(), b"synced");
        host.close().await.unwrap();
        [file, other]
    });
    assert_eq!(stage.content(file), b"synced");
    assert_eq!(stage.content(other), b"other");
}

#[test]
fn no_connection_is_given_up_whose_calls_return() {
    on_stage(true, |scene| async move {
        let host = &scene.host;
        let file = make(host, "file").await;
        scene.watched.slow_write.set(Some(7));
        let (writer, world) = (host.clone(), scene.stage.world());
        let written = spawn_with_result(&*world, async move {
            writer.write(file, 7, b"slow", Durable::Now).await
        });
        scene.pause(1).await;
        scene.stage.connect().fence(&identity()).await.unwrap();
        scene.pause(9).await;
        scene.watched.release_calls();
        written.await.unwrap().unwrap();
        assert_eq!((scene.watched.given_up.get(), host.statistics().reconnections), (0, 1));
        host.close().await.unwrap();
    });
}

/// The recovery needs the space, and so does every other file until then.
#[test]
fn a_connection_lost_with_a_refused_file_comes_back_with_space() {
    let (stage, _, file) = on_stage(false, |scene| async move {
        let (file, other, _) = given_up(&scene).await;
        scene.stage.connect().fence(&identity()).await.unwrap();
        scene.pause(100).await;
        assert!(scene.ends(scene.host.read(other, 0, 9)).await.is_err());
        scene.stage.cluster.free_space();
        scene.watched.is_full.set(false);
        scene.pause(10).await;
        assert_eq!(scene.host.read(other, 0, 9).await.unwrap(), b"other!");
        assert_eq!(scene.host.read(file, 0, 9).await.unwrap(), b"synced");
        scene.host.close().await.unwrap();
        file
    });
    assert_eq!(stage.content(file), b"synced");
}

/// A new connection could not replay it, and would be lost for every file.
#[test]
fn a_refused_file_that_another_keeps_does_not_end_the_connection() {
    let (stage, _, file) = on_stage(false, |scene| async move {
        let (file, other, _) = given_up(&scene).await;
        scene.watched.others_keep_files.set(true);
        scene.stage.cluster.free_space();
        scene.watched.is_full.set(false);
        for _ in 0..10 {
            scene.pause(10).await;
            assert_eq!(scene.host.read(other, 0, 9).await.unwrap(), b"other!");
            assert_eq!(scene.host.statistics().reconnections, 0);
        }
        scene.watched.others_keep_files.set(false);
        scene.pause(700).await;
        assert_eq!(scene.host.read(file, 0, 9).await.unwrap(), b"synced");
        scene.host.close().await.unwrap();
        file
    });
    assert_eq!(stage.content(file), b"synced");
}

/// Writes to a file that the store has no space for, and lets another client read it. Returns what
/// that saw.
async fn given_up(scene: &Scene) -> (FileId, FileId, Vec<u8>) {
    let host = &scene.host;
    let [file, other] = [make(host, "file").await, make(host, "other").await];
    scene.stage.cluster.fill(Some(file));
    scene.watched.is_full.set(true);
    host.write(file, 0, b"synced", Durable::Now).await.unwrap();
    host.write(other, 0, b"other", Durable::Now).await.unwrap();
    scene.pause(10).await;
    let peer = scene.stage.peer();
    let read =
        spawn_with_result(&*scene.stage.world(), async move { peer_reads(&*peer, file).await });
    let seen = match race(read, scene.pause(100)).await {
        Either::Left(seen) => seen.unwrap(),
        Either::Right(()) => panic!("the other client waits for ever"),
    };
    assert_eq!(host.statistics().reconnections, 0, "the connection was lost for one file");
    host.write(other, 5, b"!", Durable::Now).await.unwrap();
    (file, other, seen)
}

#[test]
fn a_refused_file_that_another_wants_does_not_end_the_connection() {
    let (stage, _, file) = on_stage(false, |scene| async move {
        let (file, _, seen) = given_up(&scene).await;
        // The store has its size with the recall, and nothing else.
        assert_eq!(seen, [0; 6]);
        for _ in 0..2 {
            let synced = scene.host.sync_file(file).await;
            assert_eq!(synced.unwrap_err().errno(), Refusal::NoSpace.errno());
        }
        assert!(scene.host.read(file, 0, 100).await.is_err(), "its bytes are in the journal alone");
        let statistics = scene.host.statistics();
        assert_eq!((statistics.failed_files, statistics.dirty_in_journal > 0), (1, true));
        scene.stage.cluster.free_space();
        scene.watched.is_full.set(false);
        scene.pause(700).await;
        assert_eq!(scene.host.read(file, 0, 100).await.unwrap(), b"synced");
        scene.host.sync_file(file).await.unwrap();
        scene.host.close().await.unwrap();
        file
    });
    assert_eq!(stage.content(file), b"synced");
}

#[test]
fn a_refused_file_that_went_to_another_survives_a_crash() {
    for is_changed in [false, true] {
        let (stage, disk, file) = on_stage(false, move |scene| async move {
            let (file, ..) = given_up(&scene).await;
            scene.stage.cluster.free_space();
            if is_changed {
                peer_writes(&*scene.stage.peer(), file, 0, b"theirs").await;
            }
            file
        });
        let disk = stage.disk(stage.crash(&disk, CrashPolicy::LoseAll));
        let report = stage.recovered(&disk, soon());
        match is_changed {
            false => assert_eq!(stage.content(file), b"synced", "{report:?}"),
            true => {
                assert_eq!(stage.content(file), b"theirs");
                assert_eq!(stage.set_aside(file), [b"synced"]);
            }
        }
    }
}

/// A client opens one of two refused files while the other is taken, and keeps it.
#[test]
fn a_refused_file_is_held_until_the_connection_ends() {
    let (stage, _, files) = on_stage(false, |scene| async move {
        let (host, world) = (&scene.host, scene.stage.world());
        let files = [make(host, "first").await, make(host, "second").await];
        let other = make(host, "other").await;
        host.write(other, 0, b"other", Durable::Now).await.unwrap();
        scene.watched.is_full.set(true);
        for file in files {
            scene.stage.cluster.fill(Some(file));
            host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        }
        scene.pause(10).await;
        for file in files {
            scene.ends(peer_reads(&*scene.stage.peer(), file)).await;
        }
        scene.watched.slow_token.set(Some(files[1]));
        scene.stage.cluster.free_space();
        scene.watched.is_full.set(false);
        while scene.watched.waiting_calls.get() == 0 {
            scene.pause(1).await;
        }
        let (peer, watched) = (scene.stage.peer(), scene.watched.clone());
        let kept = spawn_with_result(&*world, async move {
            peer_reads(&*peer, files[0]).await;
            watched.kept.set(Some(files[0]));
        });
        scene.pause(3).await;
        scene.watched.release_calls();
        scene.ends(kept).await.unwrap();
        for _ in 0..10 {
            scene.pause(10).await;
            assert_eq!(host.read(other, 0, 9).await.unwrap(), b"other");
        }
        assert_eq!(host.sync_file(files[0]).await.unwrap_err().errno(), Refusal::NoSpace.errno());
        scene.watched.kept.set(None);
        scene.pause(700).await;
        assert_eq!(host.read(files[0], 0, 9).await.unwrap(), b"synced");
        host.close().await.unwrap();
        files
    });
    for file in files {
        assert_eq!(stage.content(file), b"synced");
    }
}

/// Crashes the host, and checks that the store has the other client's bytes, and ours set aside.
fn keeps_theirs(stage: &Stage, disk: &MemoryDisk, file: FileId) {
    let disk = stage.disk(stage.crash(disk, CrashPolicy::LoseAll));
    stage.cluster.free_space();
    let report = stage.recovered(&disk, soon());
    assert_eq!(stage.content(file), b"theirs", "{report:?}");
    assert_eq!(stage.set_aside(file), [b"synced"]);
}

/// The host has opened it again, and seen the other client's state.
#[test]
fn a_removal_of_a_refused_file_claims_no_state_of_another() {
    let (stage, disk, file) = on_stage(false, |scene| async move {
        let (file, ..) = given_up(&scene).await;
        scene.stage.cluster.free_space();
        peer_writes(&*scene.stage.peer(), file, 0, b"theirs").await;
        scene.pause(3).await;
        scene.watched.refusing_removals.set(true);
        let removed = scene.host.unlink(scene.host.root(), b"file").await;
        assert_eq!(removed.unwrap_err().errno(), 1);
        file
    });
    keeps_theirs(&stage, &disk, file);
}

/// The write waits for the file while the store refuses it and another client gets it.
#[test]
fn a_write_that_waited_behind_a_refusal_is_refused() {
    let (stage, disk, file) = on_stage(false, |scene| async move {
        let host = &scene.host;
        let file = make(host, "file").await;
        scene.stage.cluster.fill(Some(file));
        scene.watched.is_full.set(true);
        host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        let (peer, cluster) = (scene.stage.peer(), scene.stage.cluster.clone());
        let written = spawn_with_result(&*scene.stage.world(), async move {
            let open = peer.open(file, OpenMode::ReadWrite).await.unwrap();
            peer.take_token(open, Token::ExclusiveWrite).await.unwrap();
            cluster.free_space();
            peer.write(open, 0, b"theirs").await.unwrap();
            peer.return_token(file).await
        });
        scene.watched.take_calls();
        while !scene.watched.calls.borrow().contains(&"make_durable") {
            sleep(&*scene.stage.world(), Duration::from_micros(10)).await;
        }
        // The store refuses it now, and the writer does not know.
        let again = host.write(file, 0, b"later!", Durable::Now).await;
        assert_eq!(again.unwrap_err().errno(), Refusal::NoSpace.errno());
        written.await.unwrap().unwrap();
        file
    });
    keeps_theirs(&stage, &disk, file);
}
