//! Files that lose a name while they are dirty. Only the store knows whether it was the last one;
//! it is asked after the answer.

use crate::common::watched_store::WatchedStore;
use crate::common::*;
use disks::CrashPolicy;
use host::{Durable, FileFate, Host, HostRecoveryReport};
use runtime::spawn_with_result;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use store::{Cut, CutKind, FileId, Moment, NewNode, Refusal, RenameOver};

/// Creates a closed file with synced content.
async fn make_mail(host: &Rc<Host>, name: &str) -> FileId {
    let file = make(host, name).await;
    host.write(file, 0, b"mail", Durable::Now).await.unwrap();
    host.close_file(file).await.unwrap();
    file
}

/// Removes the only name that the host knows; a peer's other name reaches the servers before the
/// removal does.
async fn unlink_what_a_peer_links(stage: &Stage, host: &Rc<Host>, file: FileId, name: &str) {
    let (peer, world) = (stage.peer(), stage.world());
    let other = format!("kept {name}");
    let linked =
        spawn_with_result(
            &*world,
            async move { peer.link(file, peer.root(), other.as_bytes()).await },
        );
    sleep(&*stage.world(), Duration::from_micros(1)).await;
    host.unlink(host.root(), name.as_bytes()).await.unwrap();
    assert_eq!(linked.await.unwrap().unwrap().links, 2);
}

fn is_set_aside(report: &HostRecoveryReport) -> bool {
    report.files.iter().any(|file| matches!(file.outcome, FileFate::SetAside { .. }))
}

/// The network loses one message of the removal, and all that follow. The journal goes on, and then
/// the host crashes.
#[test]
fn a_file_with_another_name_left_loses_nothing_whichever_message_is_lost() {
    let cuts =
        (1..=6).flat_map(|message| [Moment::Request, Moment::Answer].map(|at| Some((message, at))));
    let mut lost = 0;
    for cut in cuts.chain([None]) {
        let (stage, disk) = Stage::formatted_disk(1);
        let (file, is_cut) = stage.play(&disk, under_pressure(), async move |host, inner| {
            let file = make_mail(&host, "file").await;
            unlink_what_a_peer_links(&inner, &host, file, "file").await;
            let (messages, kind) = (inner.cluster.messages(), CutKind::Client);
            if let Some((message, moment)) = cut {
                inner.cluster.cut_at(Cut { kind, message: messages + message, moment });
            }
            sleep(&*inner.world(), Duration::from_secs(5)).await;
            let is_cut =
                cut.is_some_and(|(message, _)| inner.cluster.messages() >= messages + message);
            if !is_cut {
                assert_eq!(inner.content(file), b"mail", "at the store, not in the journal alone");
                assert_eq!(host.statistics().dirty_in_journal, 0);
            }
            (file, is_cut)
        });
        inner_recovery(&stage, stage.crash(&disk, CrashPolicy::LoseAll), file, &format!("{cut:?}"));
        lost += u32::from(is_cut);
    }
    assert!(lost >= 6, "{lost} messages were lost");
}

fn inner_recovery(stage: &Stage, image: disks::Image, file: FileId, what: &str) {
    stage.cluster.cancel_cut();
    let report = stage.recovered(&stage.disk(image), under_pressure());
    assert!(!is_set_aside(&report), "{what}: {report:?}");
    assert_eq!(stage.content(file), b"mail", "{what}");
    stage.world.end();
}

#[test]
fn files_are_destaged_before_losing_all_but_their_last_name() {
    let (stage, disk) = Stage::formatted_disk(2);
    stage.play(&disk, under_pressure(), async move |host, inner| {
        let root = host.root();
        let file = make_mail(&host, "first").await;
        host.link(file, root, b"second").await.unwrap();
        host.link(file, root, b"third").await.unwrap();
        for (name, content) in [("first", b"1111"), ("second", b"2222")] {
            host.write(file, 0, content, Durable::Now).await.unwrap();
            host.unlink(root, name.as_bytes()).await.unwrap();
            assert_eq!(inner.content(file), content, "before {name} went");
        }
        host.write(file, 0, b"3333", Durable::Now).await.unwrap();
        let sent = inner.cluster.traffic().data_bytes;
        host.unlink(root, b"third").await.unwrap();
        sleep(&*inner.world(), Duration::from_secs(5)).await;
        assert_eq!(
            inner.cluster.traffic().data_bytes,
            sent,
            "the content of a file without a name"
        );
        assert_eq!(host.statistics().dirty_in_journal, 0);
        host.close().await.unwrap();
        assert_eq!(inner.cluster.traffic().data_bytes, sent, "nor at the unmount");
    });
}

/// The recovery takes care of files whose question was not answered, and leaves none of them
/// locked.
#[test]
fn a_connection_lost_before_the_question_keeps_files_with_other_names() {
    let (stage, disk) = Stage::formatted_disk(3);
    let file = stage.play(&disk, under_pressure(), async move |host, inner| {
        let reports: Rc<RefCell<Vec<HostRecoveryReport>>> = Rc::default();
        let sink = reports.clone();
        host.on_reconnection(Box::new(move |report| sink.borrow_mut().push(report.clone())));
        let file = make_mail(&host, "file").await;
        unlink_what_a_peer_links(&inner, &host, file, "file").await;
        make_mail(&host, "gone").await;
        host.unlink(host.root(), b"gone").await.unwrap();
        inner.connect().fence(&identity()).await.unwrap();
        host.open_file(file).await.unwrap();
        host.write(file, 4, b"box", Durable::Now).await.unwrap();
        assert_eq!(host.statistics().reconnections, 1);
        assert!(!is_set_aside(&reports.borrow()[0]), "{reports:?}");
        // The file without a name is not asked for again.
        assert_eq!(peer_reads(&*inner.peer(), file).await, b"mailbox");
        host.close().await.unwrap();
        assert_eq!(host.statistics().dirty_in_journal, 0);
        file
    });
    assert_eq!(stage.content(file), b"mailbox");
}

/// Removes `files` files of a MiB each as fast as possible. Returns the most bytes that the journal
/// and memory had of them, and the time taken.
fn remove_at_once(seed: u64, journal_bytes: u64, files: u64) -> (u64, Duration) {
    let stage = Stage::new(seed);
    let disk = stage.disk(stage.formatted_with(journal_bytes));
    stage.play(&disk, under_pressure(), async move |host, inner| {
        let (begun, mut most) = (inner.world().now(), 0);
        for number in 0..files {
            let name = format!("file {number}");
            let file = make(&host, &name).await;
            host.write(file, 0, &[7; 1 << 20], Durable::Soon).await.unwrap();
            host.close_file(file).await.unwrap();
            host.unlink(host.root(), name.as_bytes()).await.unwrap();
            let statistics = host.statistics();
            most = most.max(statistics.dirty_in_journal + statistics.dirty_in_memory);
        }
        let time = inner.world().now().since(begun);
        host.close().await.unwrap();
        assert_eq!(inner.cluster.traffic().data_bytes, 0);
        (most, time)
    })
}

#[test]
fn what_removed_files_keep_until_the_question_is_bounded() {
    let (most, _) = remove_at_once(4, 512 << 20, 100);
    assert!(most <= 34 << 20, "{most} bytes");
}

#[test]
fn removed_files_in_a_short_journal_do_not_wait_for_others_to_go() {
    let (_, time) = remove_at_once(5, 16 << 20, 100);
    assert!(
        time < Duration::from_secs(1),
        "{time:?}: each time it was full someone waited for a second"
    );
}

/// Removes all files at the same time. Unlinks at the bound wait until a question is answered.
#[test]
fn no_more_removed_files_wait_for_the_question_than_the_bound() {
    const BOUND: usize = 1024;
    let (stage, disk) = Stage::formatted_disk(6);
    stage.play(&disk, under_pressure(), async move |host, inner| {
        for number in 0..2 * BOUND {
            make_mail(&host, &format!("file {number}")).await;
        }
        let unlinks: Vec<_> = (0..2 * BOUND)
            .map(|number| {
                let (host, world) = (host.clone(), inner.world());
                spawn_with_result(&*inner.world(), async move {
                    host.unlink(host.root(), format!("file {number}").as_bytes()).await.unwrap();
                    world.now()
                })
            })
            .collect();
        let mut answered = Vec::new();
        for unlink in unlinks {
            answered.push(unlink.await.unwrap());
        }
        answered.sort();
        assert!(answered[BOUND - 1] == answered[0], "the first wait for no question");
        assert!(answered[BOUND] > answered[0], "more than {BOUND} wait for the question at once");
        host.close().await.unwrap();
        assert_eq!(inner.cluster.traffic().data_bytes, 0);
    });
}

/// The host crashes at any message or write of its journal around the removal of a file with synced
/// bytes: removed files do not come back, and others lose nothing.
#[test]
fn what_was_removed_before_a_crash_does_not_come_back() {
    // Crashes at a message, and at a write of the journal; removals that were answered before each
    // kind, by an unlink and by a rename.
    let (mut crashes, mut removed) = ([0; 2], [[0; 2]; 2]);
    for (renames, after) in (0..14).flat_map(|after| [(false, after), (true, after)]) {
        let (stage, disk) = Stage::formatted_disk(after);
        let power = disk.clone();
        let answered = Rc::new(std::cell::Cell::new(false));
        let (acknowledged, cluster) = (answered.clone(), stage.cluster.clone());
        let (files, host) = stage.play(&disk, under_pressure(), async move |host, _| {
            ([make_mail(&host, "old").await, make_mail(&host, "new").await], host)
        });
        if after % 2 == 0 {
            let message = stage.cluster.messages() + 1 + after / 2;
            let (kind, moment) = (CutKind::Client, Moment::Answer);
            stage.cluster.cut_at(Cut { kind, message, moment });
        } else {
            disk.cut_at(disk.changes() + after / 2);
        }
        let world = stage.world();
        stage.world.run(async move {
            let removes = async {
                let root = host.root();
                let result = match renames {
                    true => {
                        let mode = store::RenameOver::Replace;
                        host.rename((root, b"new"), (root, b"old"), mode).await
                    }
                    false => host.unlink(root, b"old").await,
                };
                acknowledged.set(result.is_ok());
                sleep(&*world, Duration::from_secs(3)).await;
            };
            let dies = runtime::race(cluster.until_client_cut(), power.power_lost());
            let _ = runtime::race(removes, dies).await;
        });
        let image = stage.crash(&disk, CrashPolicy::LoseAll);
        let kind = after as usize % 2;
        let has_come = [stage.cluster.cancel_cut(), disk.is_off()];
        crashes[kind] += u32::from(has_come[kind]);
        let report = stage.recovered(&stage.disk(image), under_pressure());
        let what = format!("renames {renames}, cut {after}: {report:?}");
        assert!(!answered.get() || !is_set_aside(&report), "{what}");
        assert_eq!(stage.content(files[1]), b"mail", "{what}");
        removed[kind][usize::from(renames)] += u32::from(answered.get());
    }
    assert!(removed.as_flattened().iter().all(|count| *count > 1), "{removed:?} were answered");
    assert!(crashes.iter().all(|count| *count > 4), "{crashes:?} crashes");
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Removal {
    Unlinked,
    Replaced,
    UnlinkedWhileOpen,
}

/// Removes a file with synced content, in this way, from a host whose store takes its time to make
/// that durable.
async fn remove_in(way: Removal, host: &Rc<Host>, file: FileId) {
    let root = host.root();
    if way == Removal::UnlinkedWhileOpen {
        host.open_file(file).await.unwrap();
    }
    match way {
        Removal::Replaced => {
            make_mail(host, "new").await;
            let renamed = host.rename((root, b"new"), (root, b"file"), RenameOver::Replace);
            renamed.await.unwrap();
        }
        _ => host.unlink(root, b"file").await.unwrap(),
    }
    host.close_file(file).await.unwrap();
}

/// A crash of the store brings the name back until then, and the file needs its records.
#[test]
fn records_of_a_removed_file_stay_until_that_is_durable() {
    for way in [Removal::Unlinked, Removal::Replaced, Removal::UnlinkedWhileOpen] {
        let stage = Stage::new(7);
        let (watched, disk) =
            (Rc::new(WatchedStore::new(stage.connect())), stage.disk(stage.formatted()));
        watched.slow_removals.set(true);
        let begun = begin_host(stage.world(), watched.clone(), disk.clone(), under_pressure());
        let (world, power) = (stage.world(), disk.clone());
        let (file, before) = stage.world.run(async move {
            let (host, _) = begun.await.unwrap();
            let file = make_mail(&host, "file").await;
            remove_in(way, &host, file).await;
            sleep(&*world, Duration::from_secs(5)).await;
            assert_eq!(*watched.durable_removals.borrow(), [Some(vec![host.root()])], "{way:?}");
            let before = power.crash(CrashPolicy::KeepAll);
            watched.release_calls();
            sleep(&*world, Duration::from_secs(5)).await;
            assert_eq!(host.statistics().dirty_in_journal, 0, "{way:?}");
            (file, before)
        });
        stage.crash(&disk, CrashPolicy::LoseAll);
        let report = stage.recovered(&stage.disk(before), under_pressure());
        let outcome = report.files.iter().find(|one| one.file == file.0).map(|one| &one.outcome);
        assert_eq!(outcome, Some(&FileFate::Removed), "{way:?}: {report:?}");
    }
}

/// The name that this host removed was not the last one. Another client removed that, in a
/// directory that this host does not know of.
#[test]
fn records_of_a_removed_file_stay_until_its_last_removal_is_durable() {
    let stage = Stage::new(9);
    let (watched, disk) =
        (Rc::new(WatchedStore::new(stage.connect())), stage.disk(stage.formatted()));
    let begun = begin_host(stage.world(), watched.clone(), disk, under_pressure());
    let (world, peer) = (stage.world(), stage.peer());
    stage.world.run(async move {
        let (host, _) = begun.await.unwrap();
        let root = host.root();
        let file = make(&host, "file").await;
        host.link(file, root, b"other").await.unwrap();
        host.write(file, 0, b"destaged", Durable::Now).await.unwrap();
        host.unlink(root, b"file").await.unwrap();
        peer.unlink(root, b"other").await.unwrap();
        host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        host.close_file(file).await.unwrap();
        sleep(&*world, Duration::from_secs(5)).await;
        assert_eq!(*watched.durable_removals.borrow(), [None], "all removals, wherever they were");
    });
}

/// A crash of the store may bring back each name whose removal is not durable.
#[test]
fn names_lost_before_the_last_one_are_synced_with_it() {
    for moves in [false, true] {
        let stage = Stage::new(12);
        let (watched, disk) =
            (Rc::new(WatchedStore::new(stage.connect())), stage.disk(stage.formatted()));
        let begun = begin_host(stage.world(), watched.clone(), disk, under_pressure());
        let world = stage.world();
        stage.world.run(async move {
            let (host, _) = begun.await.unwrap();
            let root = host.root();
            let node = NewNode::Directory { mode: 0o755 };
            let other = host.make(root, b"other", node, ROOT).await.unwrap().file;
            let file = make(&host, "file").await;
            let replace = RenameOver::Replace;
            if moves {
                host.rename((root, b"file"), (other, b"name"), replace).await.unwrap();
                host.rename((other, b"name"), (root, b"file"), replace).await.unwrap();
            } else {
                host.link(file, other, b"name").await.unwrap();
                host.unlink(other, b"name").await.unwrap();
            }
            host.write(file, 0, b"synced", Durable::Now).await.unwrap();
            host.close_file(file).await.unwrap();
            host.unlink(root, b"file").await.unwrap();
            sleep(&*world, Duration::from_secs(5)).await;
            let mut both = vec![root, other];
            both.sort();
            assert_eq!(*watched.durable_removals.borrow(), [Some(both)], "{moves}");
        });
    }
}

/// The journal has no space for the withdrawal of a removal that the store refuses. Another client
/// removes the file then.
#[test]
fn a_removal_that_was_refused_is_not_believed() {
    let stage = Stage::new(13);
    let (watched, disk) =
        (Rc::new(WatchedStore::new(stage.connect())), stage.disk(stage.formatted()));
    let begun = begin_host(stage.world(), watched.clone(), disk.clone(), under_pressure());
    let (world, power, peer) = (stage.world(), disk.clone(), stage.peer());
    let image = stage.world.run(async move {
        let (host, _) = begun.await.unwrap();
        make_mail(&host, "file").await;
        let other = make(&host, "other").await;
        watched.refusing_removals.set(true);
        watched.slow_refusals.set(true);
        let (removes, at_answer) = (host.clone(), power.clone());
        let removing = spawn_with_result(&*world, async move {
            let removed = removes.unlink(removes.root(), b"file").await;
            (removed, at_answer.crash(CrashPolicy::KeepAll))
        });
        // The file that is being removed holds the log, until not even a record has space.
        for length in [65536, 4096, 1] {
            for round in 0.. {
                let write = host.write(other, 0, &[7; 65536][..length], Durable::Now);
                let pause = sleep(&*world, Duration::from_secs(1));
                match runtime::race(write, pause).await {
                    runtime::Either::Left(written) => drop(written.unwrap()),
                    runtime::Either::Right(()) => break,
                }
                assert!(round < 4 * JOURNAL_BYTES / 65536, "the journal is never full");
            }
        }
        watched.release_calls();
        let (removed, image) = removing.await.unwrap();
        assert_eq!(removed.unwrap_err().errno(), Refusal::NotPermitted.errno());
        image
    });
    stage.crash(&disk, CrashPolicy::LoseAll);
    stage.world.run(async move { peer.unlink(peer.root(), b"file").await.unwrap() });
    let report = stage.recovered(&stage.disk(image), under_pressure());
    let is_removed = |one: &host::FileOutcome| matches!(one.outcome, FileFate::Removed);
    assert!(!report.files.iter().any(is_removed), "{report:?}");
}

/// The store has no space for what the file has, and the name is gone all the same.
#[test]
fn a_removal_that_was_made_is_answered_so() {
    let (stage, disk) = Stage::formatted_disk(14);
    stage.play(&disk, under_pressure(), async move |host, inner| {
        let file = make(&host, "file").await;
        host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        inner.cluster.fill(Some(file));
        unlink_what_a_peer_links(&inner, &host, file, "file").await;
        assert_eq!(host.sync_file(file).await.unwrap_err().errno(), Refusal::NoSpace.errno());
        inner.cluster.free_space();
    });
}

#[test]
fn one_sync_makes_many_removals_durable() {
    let stage = Stage::new(8);
    let (watched, disk) =
        (Rc::new(WatchedStore::new(stage.connect())), stage.disk(stage.formatted()));
    let begun = begin_host(stage.world(), watched.clone(), disk, under_pressure());
    let world = stage.world();
    stage.world.run(async move {
        let (host, _) = begun.await.unwrap();
        for number in 0..200 {
            make_mail(&host, &format!("file {number}")).await;
        }
        for number in 0..200 {
            host.unlink(host.root(), format!("file {number}").as_bytes()).await.unwrap();
        }
        sleep(&*world, Duration::from_secs(5)).await;
        assert_eq!(host.statistics().dirty_in_journal, 0);
        let syncs = watched.durable_removals.borrow().len();
        assert!((1..=2).contains(&syncs), "{syncs} syncs");
    });
}

/// The store refuses the file that is to take the name: nothing is removed.
#[test]
fn a_rename_that_fails_removes_nothing_of_what_was_there() {
    let (stage, disk) = Stage::formatted_disk(11);
    let file = stage.play(&disk, under_pressure(), async move |host, inner| {
        let root = host.root();
        let (old, new) = (make(&host, "old").await, make(&host, "new").await);
        assert!(old < new, "the one that fails is locked last");
        host.write(old, 0, b"synced", Durable::Now).await.unwrap();
        host.write(new, 0, b"refused", Durable::Now).await.unwrap();
        inner.cluster.fill(Some(new));
        let renamed = host.rename((root, b"new"), (root, b"old"), RenameOver::Replace).await;
        assert_eq!(renamed.unwrap_err().errno(), Refusal::NoSpace.errno());
        host.write(old, 6, b" again", Durable::Now).await.unwrap();
        inner.cluster.free_space();
        old
    });
    let disk = stage.disk(stage.crash(&disk, CrashPolicy::LoseAll));
    let peer = stage.peer();
    stage.world.run(async move { peer.unlink(peer.root(), b"old").await.unwrap() });
    let report = stage.recovered(&disk, under_pressure());
    let outcome = report.files.iter().find(|one| one.file == file.0).map(|one| &one.outcome);
    assert!(matches!(outcome, Some(FileFate::SetAside { .. })), "{report:?}");
    assert_eq!(stage.set_aside(file), [b"synced again"]);
}
