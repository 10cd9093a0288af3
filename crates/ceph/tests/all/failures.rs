//! Failures while requests are in flight: of the helper, a metadata server, an OSD.

use crate::common::{
    Cluster, ROOT, connect, is_disconnected, make, next_event, on_cluster, open_alone, run,
};
use device::World;
use runtime::{Either, race};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use store::{
    AttributeChange, Identity, NewNode, OpenMode, Refusal, RenameOver, Store as _, StoreError,
    StoreEvent, Token,
};

#[test]
fn requests_under_a_helper_that_is_killed_are_answered_with_errors() {
    const WRITES: u64 = 200;
    on_cluster(async move |world, [options, _]| {
        let store = Rc::new(connect(&world, options).await);
        let file = make(&store, "file").await;
        for round in 0..5u64 {
            let open = open_alone(&store, file).await;
            let calls: Vec<_> = (0..WRITES)
                .map(|number| {
                    let call = store.write(open, number * 100, &[1; 100]);
                    runtime::spawn_with_result(&world, call)
                })
                .collect();
            let durable = runtime::spawn_with_result(&world, store.make_durable(open));
            world.sleep_until(world.now().plus(Duration::from_millis(round * 3))).await;
            let helper = store.helper().unwrap() as i32;
            // SAFETY: a signal to the helper that this test started, and has not yet reaped.
            assert_eq!(unsafe { libc::kill(helper, libc::SIGKILL) }, 0);
            let (mut done, mut failed) = (0, 0);
            for call in calls {
                match call.await.unwrap() {
                    // Answered in order: nothing succeeds after the first failure.
                    Ok(_) if failed == 0 => done += 1,
                    Err(error) if is_disconnected(&error) => failed += 1,
                    other => panic!("round {round}, after {done} and {failed}: {other:?}"),
                }
            }
            let _ = durable.await.unwrap();
            let StoreEvent::Disconnected { fenced: false } = next_event(&store).await else {
                panic!("no end was reported")
            };
            store.reconnect().await.unwrap();
        }
    });
}

#[test]
fn a_metadata_server_and_an_osd_that_die_and_come_back_lose_nothing_durable() {
    let cluster = Rc::new(Cluster::start(&["--store", "bluestore"]));
    let (here, there) = (cluster.options("here"), cluster.options("there"));
    run(move |world| async move {
        let store = Rc::new(connect(&world, here).await);
        let file = make(&store, "file").await;
        let open = open_alone(&store, file).await;
        let mut written = 0;
        for victim in ["mds", "osd0"] {
            store.write(open, written, victim.as_bytes()).await.unwrap();
            written += victim.len() as u64;
            cluster.must("kill", &[victim]);
            let durable = runtime::spawn_with_result(&world, store.make_durable(open));
            let mut resumed = cluster.begin("resume");
            durable.await.unwrap().unwrap();
            let status = loop {
                match resumed.try_wait().unwrap() {
                    Some(status) => break status,
                    None => world.sleep_until(world.now().plus(Duration::from_millis(20))).await,
                }
            };
            assert!(status.success(), "{victim} does not come back");
        }
        store.return_token(file).await.unwrap();
        let version = store.attributes(file).await.unwrap().version;
        let other = connect(&world, there).await;
        assert_eq!(other.find(file).await.unwrap().attributes.version, version);
        let open = other.open(file, OpenMode::Read).await.unwrap();
        assert_eq!(other.read(open, 0, 100).await.unwrap(), b"mdsosd0");
    });
}

#[test]
fn a_standby_metadata_server_takes_over_amid_syncs() {
    /// Syncs until a metadata server dies.
    const SYNCS: u64 = 20;
    let cluster = Rc::new(Cluster::start(&["--store", "bluestore", "--standby"]));
    let (here, there) = (cluster.options("here"), cluster.options("there"));
    run(move |world| async move {
        let store = Rc::new(connect(&world, here).await);
        let file = make(&store, "file").await;
        let open = store.open(file, OpenMode::ReadWrite).await.unwrap();
        store.take_token(open, Token::ExclusiveWrite).await.unwrap();
        let synced = Rc::new(Cell::new(0));
        let (inner, count) = (store.clone(), synced.clone());
        let syncs = runtime::spawn_with_result(&world, async move {
            loop {
                let at = count.get();
                inner.write(open, at, &[at as u8]).await?;
                inner.make_durable(open).await?;
                count.set(at + 1);
            }
        });
        let until = async |count| {
            while synced.get() < count {
                world.sleep_until(world.now().plus(Duration::from_millis(1))).await;
            }
        };
        until(SYNCS).await;
        cluster.must("kill", &["mds"]);
        cluster.administer(&["mds", "fail", "0"]);
        // The client goes on with the other one.
        until(synced.get() + SYNCS).await;
        cluster.must("resume", &[]);
        until(synced.get() + SYNCS).await;
        // It dies with that.
        cluster.must("kill", &["standby"]);
        // SAFETY: a signal to the helper that this test started, and has not yet reaped.
        assert_eq!(unsafe { libc::kill(store.helper().unwrap() as i32, libc::SIGKILL) }, 0);
        let ended: Result<(), StoreError> = syncs.await.unwrap();
        assert!(ended.is_err_and(|error| is_disconnected(&error)));
        cluster.administer(&["mds", "fail", "0"]);
        let other = connect(&world, there).await;
        other.fence(&Identity("here".into())).await.unwrap();
        let open = other.open(file, OpenMode::Read).await.unwrap();
        let content = other.read(open, 0, 1 << 20).await.unwrap();
        let expected: Vec<u8> = (0..synced.get()).map(|at| at as u8).collect();
        assert!(content.starts_with(&expected), "{content:?}, not {expected:?}");
    });
}

/// A write for which the library's buffer has no space. The thread that reads requests may be the
/// one that waits.
#[test]
fn requests_are_answered_while_a_write_waits() {
    const PIECE: u64 = 64 << 10;
    /// Bytes to write: more than the library buffers.
    const SIZE: u64 = 160 << 20;
    let cluster = Rc::new(Cluster::small());
    let options = cluster.options("here");
    run(move |world| async move {
        let store = Rc::new(connect(&world, options).await);
        let (file, beside) = (make(&store, "file").await, make(&store, "beside").await);
        let open = open_alone(&store, file).await;
        let change = AttributeChange { size: Some(SIZE), ..AttributeChange::default() };
        store.set_attributes(file, change).await.unwrap();
        let held = store.open(beside, OpenMode::ReadWrite).await.unwrap();
        store.take_token(held, Token::ExclusiveWrite).await.unwrap();
        cluster.must("kill", &["osd0", "STOP"]);
        let mut at = 0;
        let waits = loop {
            assert!(at < SIZE, "everything fits");
            let write =
                runtime::spawn_with_result(&world, store.write(open, at, &[1; PIECE as usize]));
            let a_second = world.sleep_until(world.now().plus(Duration::from_secs(1)));
            match race(write, a_second).await {
                Either::Left(written) => drop(written.unwrap().unwrap()),
                Either::Right(()) => break at,
            }
            at += PIECE;
        };
        // Both kinds: answers from the library's memory, and from a server.
        assert_eq!(
            store.attributes(beside).await.unwrap().file,
            beside,
            "behind the write at {waits}"
        );
        assert_eq!(store.lookup(store.root(), b"file").await.unwrap().file, file);
        cluster.must("kill", &["osd0", "CONT"]);
        store.make_durable(open).await.unwrap();
    });
}

/// A host's syncs depend on it: a known client gets an answer, and one whose servers are silent for
/// a lease gives the connection up.
#[test]
fn questions_are_answered_by_the_servers_or_end_the_connection() {
    on_cluster(async move |world, [options, _]| {
        let store = Rc::new(connect(&world, options).await);
        let identity = store.store_identity();
        let words: Vec<&str> = identity.split(' ').collect();
        assert!(matches!(words[..], ["ceph", uuid, _] if uuid.len() == 32), "{identity:?}");
        store.still_known().await.unwrap();
        let helper = store.helper().unwrap() as i32;
        // SAFETY: a signal to the helper that this test started, and has not yet reaped.
        assert_eq!(unsafe { libc::kill(helper, libc::SIGSTOP) }, 0);
        let begun = world.now();
        let answer = store.still_known().await;
        assert!(answer.as_ref().is_err_and(is_disconnected), "{answer:?}");
        let waited = world.now().since(begun);
        let lease = Duration::from_millis(store.lease_ms());
        assert!(waited >= lease && waited < lease + Duration::from_secs(10), "{waited:?}");
        store.reconnect().await.unwrap();
        store.still_known().await.unwrap();
        assert_eq!(store.store_identity(), identity);
    });
}

/// The library then opens a new session by itself, without the tokens of the former one, and drops
/// what it had buffered of attributes: a size, for example.
#[test]
fn an_exclusion_that_was_lifted_at_once_ends_the_connection() {
    let cluster = Rc::new(Cluster::small());
    let (here, there) = (cluster.options("here"), cluster.options("there"));
    run(move |world| async move {
        for is_sync in [false, true] {
            let store = Rc::new(connect(&world, here.clone()).await);
            let file = make(&store, &format!("file-{is_sync}")).await;
            let open = open_alone(&store, file).await;
            store.write(open, 0, b"buffered").await.unwrap();
            let helper = format!("client_metadata.pid={}", store.helper().unwrap());
            cluster.administer(&["tell", "mds.a", "client", "evict", &helper]);
            cluster.administer(&["osd", "blocklist", "clear"]);
            let other = connect(&world, there.clone()).await;
            let changed = other.open(file, OpenMode::ReadWrite).await.unwrap();
            other.write(changed, 0, b"of another").await.unwrap();
            let answer = match is_sync {
                true => store.make_durable(open).await,
                false => store.still_known().await,
            };
            assert!(answer.as_ref().is_err_and(is_disconnected), "{is_sync}: {answer:?}");
            other.disconnect().await.unwrap();
        }
    });
}

/// A client that the servers refuse gets EPERM from its library for any call, which programs would
/// take for missing rights.
#[test]
fn calls_of_an_excluded_client_end_the_connection() {
    let cluster = Rc::new(Cluster::small());
    let options = cluster.options("here");
    run(move |world| async move {
        for round in 0..4 {
            let store = Rc::new(connect(&world, options.clone()).await);
            let helper = store.helper().unwrap() as i32;
            // SAFETY: signals to the helper that this test started, and has not yet reaped.
            let signal = |signal| assert_eq!(unsafe { libc::kill(helper, signal) }, 0);
            signal(libc::SIGSTOP);
            let of_helper = format!("client_metadata.pid={helper}");
            cluster.administer(&["tell", "mds.a", "client", "evict", &of_helper]);
            if round % 2 == 1 {
                cluster.must("kill", &["mds"]);
                cluster.must("resume", &[]);
            }
            signal(libc::SIGCONT);
            let mut answers = 0..1000;
            let lost = loop {
                let number = answers.next().expect("the connection ends");
                let name = format!("absent-{round}-{number}");
                match store.lookup(store.root(), name.as_bytes()).await {
                    Err(StoreError::Refused(Refusal::NotFound)) => {}
                    answer => break answer,
                }
            };
            assert!(lost.as_ref().is_err_and(StoreError::is_lost), "{round}: {lost:?}");
            drop(store);
        }
    });
}

#[test]
fn a_sync_of_the_directory_that_lost_a_name_covers_the_rename() {
    let cluster = Rc::new(Cluster::start(&["--store", "bluestore"]));
    let options = cluster.options("here");
    run(move |world| async move {
        let store = Rc::new(connect(&world, options).await);
        let file = make(&store, "file").await;
        let directory = NewNode::Directory { mode: 0o755 };
        let directory = store.make(store.root(), b"elsewhere", directory, ROOT).await.unwrap().file;
        store.sync_directory(store.root()).await.unwrap();
        let from = (store.root(), b"file".as_slice());
        store.rename(from.0, from.1, directory, b"moved", RenameOver::Replace).await.unwrap();
        store.sync_directory(store.root()).await.unwrap();
        cluster.must("kill", &["mds"]);
        let helper = store.helper().unwrap() as i32;
        // SAFETY: a signal to the helper that this test started, and has not yet reaped.
        assert_eq!(unsafe { libc::kill(helper, libc::SIGKILL) }, 0);
        cluster.must("resume", &[]);
        store.reconnect().await.unwrap();
        assert_eq!(store.lookup(directory, b"moved").await.map(|found| found.file), Ok(file));
    });
}
