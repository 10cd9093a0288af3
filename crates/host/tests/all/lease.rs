//! A sync either returns when others can read its bytes, or fails, also if the lease ends during
//! it.

use crate::common::*;
use disks::{CrashPolicy, Latency};
use host::{Durable, Host, HostError, HostOptions};
use runtime::{Either, race, spawn_with_result};
use std::rc::Rc;
use std::time::Duration;
use store::{Cut, CutKind, FileId, Moment, Network};

async fn is_refused(host: &Rc<Host>, file: FileId) {
    for _ in 0..2 {
        let synced = host.sync_file(file).await;
        assert!(matches!(synced, Err(HostError::SetAside(_))), "{synced:?}");
        let written = host.write(file, 0, b"again", Durable::Now).await;
        assert!(matches!(written, Err(HostError::SetAside(_))), "{written:?}");
    }
}

/// The network is gone; a peer has the file after the lease. The host does not notice, as nothing
/// that it does needs a server.
#[test]
fn a_sync_after_the_lease_fails_and_so_does_every_later_one() {
    for with_sync in [false, true] {
        let (stage, disk) = Stage::formatted_disk(1);
        let file = stage.play(&disk, under_pressure(), async move |host, inner| {
            let file = make(&host, "file").await;
            host.write(file, 0, b"first", Durable::Now).await.unwrap();
            host.write(file, 0, b"later", Durable::Soon).await.unwrap();
            inner.cluster.silence(&identity());
            peer_writes(&*inner.peer(), file, 0, b"theirs").await;
            match with_sync {
                true => is_refused(&host, file).await,
                false => {
                    let written = host.write(file, 0, b"again", Durable::Now).await;
                    assert!(written.is_err(), "acknowledged after the lease");
                }
            }
            // Another lost connection does not turn it into a promise either.
            inner.connect().fence(&identity()).await.unwrap();
            is_refused(&host, file).await;
            host.close_file(file).await.unwrap();
            host.open_file(file).await.unwrap();
            host.write(file, 6, b" and ours", Durable::Now).await.unwrap();
            host.close().await.unwrap();
            file
        });
        assert_eq!(stage.content(file), b"theirs and ours");
    }
}

/// The journal write is in flight when the network fails, and complete when a peer has written: as
/// if the host had been stopped.
#[test]
fn a_commit_that_outlasts_the_lease_promises_nothing() {
    for seconds in [20, 35, 70] {
        let (stage, disk) = Stage::formatted_disk(2);
        let options = HostOptions { journal_flush: Duration::from_secs(3600), ..under_pressure() };
        let inner = stage.clone();
        let power = disk.clone();
        let (file, is_synced, by_peer) = stage.play(&disk, options, async move |host, _| {
            let world = inner.world();
            let file = make(&host, "file").await;
            host.write(file, 0, b"first", Durable::Now).await.unwrap();
            let slow = Latency { least: Duration::from_secs(seconds), spread: Duration::ZERO };
            power.set_latency(slow);
            host.write(file, 0, b"later", Durable::Soon).await.unwrap();
            let syncing = host.clone();
            let synced =
                spawn_with_result(&*world, async move { syncing.sync_file(file).await.is_ok() });
            sleep(&*world, Duration::from_millis(1)).await;
            inner.cluster.silence(&identity());
            let peer = inner.peer();
            let writing =
                spawn_with_result(
                    &*world,
                    async move { peer_writes(&*peer, file, 0, b"THEIR").await },
                );
            let is_synced = synced.await.unwrap();
            power.set_latency(Latency { least: Duration::ZERO, spread: Duration::ZERO });
            if !is_synced {
                writing.await.unwrap();
            }
            (file, is_synced, !is_synced)
        });
        assert_eq!(is_synced, seconds < 27, "a journal write of {seconds} s");
        let disk = stage.disk(stage.crash(&disk, CrashPolicy::LoseAll));
        stage.cluster.heal();
        stage.recovered(&disk, under_pressure());
        let expected = if by_peer { b"THEIR" } else { b"later" };
        assert_eq!(stage.content(file), expected, "a journal write of {seconds} s");
    }
}

/// Each answer of the servers is good for a while: not every sync asks.
#[test]
fn steady_syncs_renew_the_lease_twice_without_waiting() {
    let (stage, disk) = Stage::formatted_disk(3);
    stage.play(&disk, under_pressure(), async move |host, inner| {
        let world = inner.world();
        let file = make(&host, "file").await;
        let before = inner.cluster.messages();
        for round in 0..270 {
            let begun = world.now();
            host.write(file, 0, &[round as u8], Durable::Now).await.unwrap();
            let waited = world.now().since(begun);
            assert!(waited < Duration::from_micros(190), "no answer of a server: {waited:?}");
            sleep(&*world, Duration::from_secs(1)).await;
        }
        // Ten leases of 27 s.
        let asked = inner.cluster.messages() - before;
        assert!((10..=22).contains(&asked), "{asked} messages");
    });
}

/// The servers are gone for good at one message of an unmount. Returns whether it had that message.
fn unmounts_without_servers(after: u64, moment: Moment) -> bool {
    let (stage, disk) = Stage::formatted_disk(4);
    let closed = stage.play(&disk, under_pressure(), async move |host, inner| {
        for name in ["dirty", "other"] {
            let file = make(&host, name).await;
            host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        }
        let message = inner.cluster.messages() + after;
        inner.cluster.cut_at(Cut { kind: CutKind::Servers, message, moment });
        let patience = Network::default().lease * 3;
        let closed = race(host.close(), sleep(&*inner.world(), patience)).await;
        let Either::Left(closed) = closed else {
            panic!("message {after} {moment:?} of an unmount was waited for after {patience:?}")
        };
        closed
    });
    stage.world.end();
    closed.is_err()
}

#[test]
fn an_unmount_ends_when_the_servers_are_gone() {
    for moment in [Moment::Request, Moment::Answer] {
        let cuts = (1..100).take_while(|after| unmounts_without_servers(*after, moment)).count();
        assert!((8..99).contains(&cuts), "{cuts} messages");
    }
}
