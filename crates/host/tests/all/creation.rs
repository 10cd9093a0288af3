//! New files: their cost in messages, and clients that want them at once.

use crate::common::watched_store::WatchedStore;
use crate::common::*;
use disks::CrashPolicy;
use host::{Durable, FileFate};
use runtime::spawn_with_result;
use std::rc::Rc;
use std::time::Duration;
use store::{Cut, CutKind, MetadataTimes, Moment, Network, OpenMode, Token};

#[test]
fn a_new_file_and_its_first_write_are_one_message() {
    let (stage, disk) = Stage::formatted_disk(1);
    let cluster = stage.cluster.clone();
    let world = stage.world();
    stage.play(&disk, under_pressure(), async move |host, _| {
        let before = cluster.messages();
        let file = make(&host, "file").await;
        host.write(file, 0, b"mail", Durable::Now).await.unwrap();
        host.close_file(file).await.unwrap();
        assert_eq!(cluster.messages() - before, 1);
        host.unlink(host.root(), b"file").await.unwrap();
        assert_eq!(cluster.messages() - before, 2, "nobody waits for more than the unlink");
        assert!(host.statistics().dirty_in_journal > 0);
        sleep(&*world, Duration::from_secs(3)).await;
        assert_eq!(
            cluster.messages() - before,
            4,
            "the question how many names are left, and the token"
        );
        assert_eq!(host.statistics().dirty_in_journal, 0, "what nobody can read goes nowhere");
    });
}

/// The write, the removal, and the last close, in every possible order.
#[test]
fn a_file_removed_before_destage_is_never_destaged() {
    for order in ["write, close, remove", "write, remove, close", "remove, write, close"] {
        let (stage, disk) = Stage::formatted_disk(1);
        let (traffic, statistics) =
            stage.play(&disk, under_pressure(), async move |host, stage| {
                let cluster = stage.cluster.clone();
                let file = make(&host, "file").await;
                for step in order.split(", ") {
                    match step {
                        "write" => {
                            host.write(file, 0, b"mail", Durable::Now).await.unwrap();
                        }
                        "close" => host.close_file(file).await.unwrap(),
                        _ => host.unlink(host.root(), b"file").await.unwrap(),
                    }
                }
                host.close().await.unwrap();
                (cluster.traffic(), host.statistics())
            });
        assert_eq!(traffic.data_bytes, 0, "{order}");
        assert_eq!((statistics.dirty_in_journal, statistics.destaged_files), (0, 0), "{order}");
    }
}

/// The recall comes right after the answer whose token it takes back. With a server that crashes
/// before it answers, and serves the creation that is sent again longer than the peer's requests,
/// the recall comes first.
#[test]
fn a_peer_that_wants_a_new_file_at_once_loses_nothing() {
    let metadata = MetadataTimes { change: Duration::from_millis(1), ..MetadataTimes::default() };
    let mut early = [0, 0];
    for (delay, is_late) in (0..600).step_by(20).flat_map(|delay| [(delay, false), (delay, true)]) {
        let stage = Stage::with(delay, Network { metadata, ..Network::default() });
        let (peer, world) = (stage.peer(), stage.world());
        let cluster = stage.cluster.clone();
        let watched = Rc::new(WatchedStore::new(stage.connect()));
        let disk = stage.disk(stage.formatted());
        let begun = begin_host(stage.world(), watched.clone(), disk, under_pressure());
        let file = stage.world.run(async move {
            let (host, _) = begun.await.unwrap();
            if is_late {
                let (kind, message) = (CutKind::Server, cluster.messages() + 1);
                cluster.cut_at(Cut { kind, message, moment: Moment::Answer });
            }
            let clock = world.clone();
            let others = spawn_with_result(&*world, async move {
                // Its number is known before its name.
                let delay = if is_late { delay * 100 } else { delay };
                sleep(&*clock, Duration::from_micros(delay)).await;
                let open = loop {
                    if let Ok(open) = peer.open(store::FileId(2), OpenMode::ReadWrite).await {
                        break open;
                    }
                };
                peer.take_token(open, Token::ExclusiveWrite).await.unwrap();
                peer.write(open, 4, b"theirs").await.unwrap();
                peer.return_token(store::FileId(2)).await.unwrap();
            });
            let file = make(&host, "file").await;
            for byte in 0..4 {
                host.write(file, byte, &b"mine"[byte as usize..][..1], Durable::Now).await.unwrap();
            }
            others.await.unwrap();
            let seen = host.read(file, 0, 100).await.unwrap();
            assert_eq!(seen, b"minetheirs", "{delay} µs after the file was asked for");
            host.close().await.unwrap();
            file
        });
        assert_eq!(file, store::FileId(2));
        assert_eq!(stage.content(file), b"minetheirs", "{delay} µs after the file was asked for");
        early[usize::from(is_late)] += watched.recalls_during_creations.get();
    }
    assert_eq!(early, [0, 30], "recalls before the answer: without and with a crash of the server");
}

/// The answer of the creation comes after the recall, so its token is returned; that fails.
#[test]
fn a_creation_that_fails_leaves_nothing_open() {
    let stage = Stage::new(1);
    let watched = Rc::new(WatchedStore::new(stage.connect()));
    watched.slow_creations.set(true);
    watched.failing_returns.set(true);
    let disk = stage.disk(stage.formatted());
    let begun = begin_host(stage.world(), watched.clone(), disk, under_pressure());
    let (peer, world, cluster) = (stage.peer(), stage.world(), stage.cluster.clone());
    stage.world.run(async move {
        let (host, _) = begun.await.unwrap();
        let maker = host.clone();
        let made = spawn_with_result(&*world, async move {
            maker.create(maker.root(), b"file", 0o644, ROOT).await
        });
        let file = store::FileId(2);
        while cluster.attributes(file).is_none() {
            sleep(&*world, Duration::from_millis(1)).await;
        }
        peer_writes(&*peer, file, 0, b"theirs").await;
        watched.release_calls();
        assert_eq!(made.await.unwrap().unwrap_err().errno(), 5);
        assert_eq!((watched.open_files(), host.known_files()), (0, 0));
    });
}

/// The name is removed and another is added, in every possible order. The number of names left is
/// asked after the answer. Then the peer reads, or the host crashes, before the question and after
/// it.
#[test]
fn a_file_linked_during_its_unlink_keeps_synced_bytes() {
    let (mut kept, mut gone) = (0, 0);
    let ends = [(0, false), (3000, false), (0, true), (3000, true)];
    for (delay, (later, dies)) in
        (0..600).step_by(20).flat_map(|delay| ends.map(|end| (delay, end)))
    {
        let what = format!("{delay} µs, {later} ms later, the host dies: {dies}");
        let (stage, disk) = Stage::formatted_disk(delay);
        let (peer, world) = (stage.peer(), stage.world());
        let case = what.clone();
        let linked = stage.play(&disk, under_pressure(), async move |host, _| {
            let file = make(&host, "file").await;
            host.write(file, 0, b"mail", Durable::Now).await.unwrap();
            host.close_file(file).await.unwrap();
            peer.lookup(peer.root(), b"file").await.unwrap();
            let (other, clock) = (peer.clone(), world.clone());
            let link = spawn_with_result(&*world, async move {
                sleep(&*clock, Duration::from_micros(delay)).await;
                other.link(file, other.root(), b"kept").await.is_ok()
            });
            sleep(&*world, Duration::from_micros(300)).await;
            host.unlink(host.root(), b"file").await.unwrap();
            let is_linked = link.await.unwrap();
            sleep(&*world, Duration::from_millis(later)).await;
            if is_linked && !dies {
                assert_eq!(peer_reads(&*peer, file).await, b"mail", "{case}");
                host.open_file(file).await.unwrap();
                host.write(file, 4, b"box", Durable::Now).await.unwrap();
                assert_eq!(peer_reads(&*peer, file).await, b"mailbox", "{case}");
            }
            is_linked.then_some(file)
        });
        let image = stage.crash(&disk, CrashPolicy::LoseAll);
        let report = stage.recovered(&stage.disk(image), under_pressure());
        assert!(
            report.files.iter().all(|file| !matches!(file.outcome, FileFate::SetAside { .. })),
            "{what}"
        );
        match linked {
            Some(file) => {
                assert_eq!(
                    stage.content(file),
                    if dies { &b"mail"[..] } else { b"mailbox" },
                    "{what}"
                );
                kept += 1;
            }
            None => gone += 1,
        }
        stage.world.end();
    }
    assert!(kept > 10 && gone > 10, "{kept} kept, {gone} gone");
}
