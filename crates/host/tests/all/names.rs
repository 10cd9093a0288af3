//! Names change while files are dirty, open, or wanted by others; and how a host ends.

use crate::common::*;
use disks::{CrashPolicy, Latency};
use host::{Durable, FileFate, HostOptions};
use runtime::spawn_with_result;
use std::time::Duration;
use store::{AttributeChange, FileId, NewNode, RenameOver};

#[test]
fn a_name_that_another_adds_during_an_unlink_keeps_what_was_synced() {
    let mut outcomes = [0; 2];
    for delay in (0..800).step_by(50) {
        let (stage, disk) = Stage::formatted_disk(delay);
        let (file, has_name) = stage.play(&disk, under_pressure(), async move |host, stage| {
            let peer = stage.peer();
            let world = stage.world();
            let file = make(&host, "file").await;
            host.write(file, 0, b"synced", Durable::Now).await.unwrap();
            host.close_file(file).await.unwrap();
            let clock = world.clone();
            let linked = spawn_with_result(&*world, async move {
                sleep(&*clock, Duration::from_micros(delay)).await;
                peer.link(file, peer.root(), b"other name").await.is_ok()
            });
            stage.sleep(Duration::from_micros(400)).await;
            host.unlink(host.root(), b"file").await.unwrap();
            let linked = linked.await.unwrap();
            let has_name = host.lookup(host.root(), b"other name").await.is_ok();
            assert_eq!(linked, has_name);
            // Until the journal has the effects.
            stage.sleep(Duration::from_secs(3)).await;
            (file, has_name)
        });
        let disk = stage.disk(stage.crash(&disk, CrashPolicy::LoseAll));
        stage.recovered(&disk, under_pressure());
        outcomes[usize::from(has_name)] += 1;
        if has_name {
            assert_eq!(
                stage.content(file),
                b"synced",
                "the other name came {delay} µs from 400 µs before the unlink on"
            );
        }
    }
    assert!(outcomes.iter().all(|count| *count > 2), "{outcomes:?}");
}

/// A change of names also changes the file's state; others may have the file right after it.
#[test]
fn changes_of_names_and_writes_of_others_between_lose_nothing_and_set_nothing_aside() {
    for seed in 0..8 {
        let (stage, disk) = Stage::formatted_disk(seed);
        let [kept, moved] = stage.play(&disk, under_pressure(), async move |host, stage| {
            let peer = stage.peer();
            let root = host.root();
            let files = [make(&host, "kept").await, make(&host, "moved").await];
            let [kept, moved] = files;
            for round in 0..6u8 {
                for file in files {
                    host.write(file, u64::from(round), &[round + 1], Durable::Now).await.unwrap();
                }
                let [name, former] =
                    [round, round.wrapping_sub(1)].map(|round| format!("link {round}"));
                host.link(kept, root, name.as_bytes()).await.unwrap();
                peer_writes(&*peer, kept, 100 + u64::from(round), &[7]).await;
                host.write(kept, 50, &[round], Durable::Soon).await.unwrap();
                if round > 0 {
                    host.unlink(root, former.as_bytes()).await.unwrap();
                }
                let (from, to) =
                    if round % 2 == 0 { ("moved", "target") } else { ("target", "moved") };
                let _ = make(&host, to).await;
                host.rename((root, from.as_bytes()), (root, to.as_bytes()), RenameOver::Replace)
                    .await
                    .unwrap();
                host.write(moved, 50, &[round], Durable::Now).await.unwrap();
            }
            host.sync().await.unwrap();
            files
        });
        let disk = stage.disk(stage.crash(&disk, CrashPolicy::LoseAll));
        let report = stage.recovered(&disk, under_pressure());
        let aside = |file: FileId| {
            report
                .files
                .iter()
                .any(|one| one.file == file.0 && matches!(one.outcome, FileFate::SetAside { .. }))
        };
        assert!(!aside(kept) && !aside(moved), "seed {seed}: {report:?}");
        let (kept, moved) = (stage.content(kept), stage.content(moved));
        assert_eq!(
            (&kept[..6], &kept[100..], kept[50]),
            (&[1, 2, 3, 4, 5, 6][..], &[7; 6][..], 5),
            "seed {seed}"
        );
        assert_eq!((&moved[..6], moved[50]), (&[1, 2, 3, 4, 5, 6][..], 5), "seed {seed}");
    }
}

#[test]
fn a_closed_host_leaves_an_empty_journal_whatever_its_disk_does_first() {
    for seed in 0..40 {
        let (stage, disk) = Stage::formatted_disk(seed);
        disk.set_latency(Latency {
            least: Duration::from_micros(10),
            spread: Duration::from_millis(5),
        });
        stage.play(&disk, under_pressure(), async move |host, _| {
            let file = make(&host, "file").await;
            // Enough that the log's tail moves when the file is at the store.
            for round in 0..4 {
                host.write(file, round << 20, &[1; 1 << 20], Durable::Now).await.unwrap();
            }
            host.close().await.unwrap();
        });
        let disk = stage.disk(stage.crash(&disk, CrashPolicy::KeepAll));
        let report = stage.recovered(&disk, under_pressure());
        assert!(report.clean, "seed {seed}: {report:?}");
    }
}

#[test]
fn a_change_of_nothing_needs_no_token() {
    let (stage, disk) = Stage::formatted_disk(2);
    stage.play(&disk, HostOptions::default(), async move |host, inner| {
        let peer = inner.peer();
        let file = make(&host, "file").await;
        host.write(file, 0, b"dirty", Durable::Now).await.unwrap();
        let before = host.statistics();
        let nothing = AttributeChange::default();
        let same = host.set_attributes(file, nothing).await.unwrap();
        assert_eq!(same.version.size, 5);
        assert_eq!(host.statistics(), before, "nothing was logged");
        // Of another client's file, too, which stays with it.
        let theirs = peer.create(peer.root(), b"theirs", 0o644, ROOT).await.unwrap();
        let open = theirs.open.unwrap();
        peer.write(open, 0, b"theirs").await.unwrap();
        let found = host.set_attributes(theirs.found.file, nothing).await.unwrap();
        assert_eq!(found.version, theirs.found.attributes.version);
        peer.write(open, 0, b"still theirs").await.unwrap();
    });
}

/// The servers may lose what they had only answered, and a sync over a new connection finds nothing
/// to do.
#[test]
fn a_lost_connection_fails_the_next_sync_of_each_changed_directory() {
    let (stage, disk) = Stage::formatted_disk(1);
    stage.play(&disk, under_pressure(), async move |host, inner| {
        let directory = async |name: &[u8]| {
            let node = NewNode::Directory { mode: 0o755 };
            host.make(host.root(), name, node, ROOT).await.unwrap().file
        };
        let [made, left, linked, moved, target, quiet, synced] =
            [b"a", b"b", b"c", b"d", b"e", b"f", b"g"].map(|name| directory(name));
        let made = made.await;
        let [left, linked, moved] = [left.await, linked.await, moved.await];
        let [target, quiet, synced] = [target.await, quiet.await, synced.await];
        let root = host.open_directory(host.root());
        host.sync_directory(&root).await.unwrap();
        let file = host.create(left, b"file", 0o644, ROOT).await.unwrap().file;
        host.create(moved, b"moved", 0o644, ROOT).await.unwrap();
        host.create(synced, b"synced", 0o644, ROOT).await.unwrap();
        for directory in [left, moved, synced] {
            host.sync_directory(&host.open_directory(directory)).await.unwrap();
        }
        host.create(made, b"made", 0o644, ROOT).await.unwrap();
        host.link(file, linked, b"link").await.unwrap();
        host.unlink(left, b"file").await.unwrap();
        let (from, to) = ((moved, &b"moved"[..]), (target, &b"there"[..]));
        host.rename(from, to, RenameOver::Replace).await.unwrap();
        let early = host.open_directory(made);
        inner.connect().fence(&identity()).await.unwrap();
        sleep(&*inner.world(), Duration::from_secs(60)).await;
        for (directory, is_lost) in [
            (made, true),
            (left, true),
            (linked, true),
            (moved, true),
            (target, true),
            (quiet, false),
            (synced, false),
        ] {
            let opened = host.open_directory(directory);
            for is_lost in [is_lost, false] {
                let synced = host.sync_directory(&opened).await;
                let errno = synced.err().map(|error| error.errno());
                assert_eq!(errno, is_lost.then_some(5), "{directory:?}");
            }
        }
        assert!(host.sync_directory(&early).await.is_err(), "each descriptor");
        host.sync_directory(&root).await.unwrap();
        host.sync_directory(&host.open_directory(made)).await.unwrap();
        host.close().await.unwrap();
    });
}
