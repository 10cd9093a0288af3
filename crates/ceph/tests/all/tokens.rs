//! Tokens, their recall, and excluded clients.

use crate::common::{
    CephFuse, Cluster, ROOT, connect, is_disconnected, is_fenced, make, next_event, on_cluster,
    open_alone, return_recalled, run,
};
use device::World;
use runtime::{Either, race};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use store::{Identity, OpenMode, Refusal, RenameOver, Store as _, StoreError, StoreEvent, Token};

#[test]
fn a_second_client_recalls_the_token_and_reads_what_was_written() {
    on_cluster(async move |world, [here, there]| {
        let store = Rc::new(connect(&world, here).await);
        let file = make(&store, "file").await;
        let open = open_alone(&store, file).await;
        store.write(open, 0, b"buffered, not durable").await.unwrap();

        let other = connect(&world, there).await;
        let (recalled, event) = runtime::oneshot();
        let (holder, clock) = (store.clone(), world.clone());
        world.spawn(Box::pin(async move {
            let event = next_event(&holder).await;
            let begin = clock.now();
            holder.return_token(file).await.unwrap();
            recalled.send((event, clock.now().since(begin)));
        }));
        let begin = world.now();
        let peer = other.open(file, OpenMode::ReadWrite).await.unwrap();
        assert_eq!(other.read(peer, 0, 100).await.unwrap(), b"buffered, not durable");
        eprintln!("read through a recall after {:?}", world.now().since(begin));
        let (event, returned) = event.await.unwrap();
        eprintln!("token returned within {returned:?}");
        let StoreEvent::Recall { file: of, token: Token::ExclusiveWrite, deadline } = event else {
            panic!("{event:?}")
        };
        assert!(of == file && deadline > world.now().plus(Duration::from_secs(5)));
        // Both have it open: neither can have it exclusively, and each sees the other's writes.
        assert_eq!(
            other.take_token(peer, Token::ExclusiveWrite).await.unwrap_err(),
            StoreError::TokenHeld
        );
        other.take_token(peer, Token::SharedWrite).await.unwrap();
        other.write(peer, 0, b"straight").await.unwrap();
        assert_eq!(store.read(open, 0, 8).await.unwrap(), b"straight");
        // It can once the first has closed it.
        store.close(open).await.unwrap();
        let attributes = other.take_token(peer, Token::ExclusiveWrite).await.unwrap();
        assert_eq!(attributes.version.size, 21);
    });
}

/// Bytes fetched by one read.
const WRITTEN_MAX: u64 = 1 << 19;

#[test]
fn a_write_that_meets_its_recall_completes_and_both_writes_reach_the_other_client() {
    on_cluster(async move |world, [here, there]| {
        let store = Rc::new(connect(&world, here).await);
        let other = connect(&world, there).await;
        for round in 0..20u8 {
            let file = make(&store, &format!("file{round}")).await;
            let open = open_alone(&store, file).await;
            store.write(open, 0, &[round; 4096]).await.unwrap();
            // The holder goes on writing, and returns the token only when its writes are answered:
            // as if it learned of the recall too late.
            let recalled = Rc::new(Cell::new(false));
            let (watcher, flag) = (store.clone(), recalled.clone());
            world.spawn(Box::pin(async move {
                next_event(&watcher).await;
                flag.set(true);
            }));
            let (writer, clock) = (store.clone(), world.clone());
            let writes = runtime::spawn_with_result(&world, async move {
                let mut size = 4096;
                while !recalled.get() {
                    if size < WRITTEN_MAX {
                        writer.write(open, size, &[round; 512]).await.unwrap();
                        size += 512;
                    } else {
                        clock.sleep_until(clock.now().plus(Duration::from_millis(1))).await;
                    }
                }
                writer.return_token(file).await.unwrap();
                size
            });
            world.sleep_until(world.now().plus(Duration::from_millis(u64::from(round)))).await;
            let peer = other.open(file, OpenMode::Read).await.unwrap();
            let first = other.read(peer, 0, 4096).await.unwrap();
            assert!(first == [round; 4096], "round {round}: {:?}", first.first());
            let size = writes.await.unwrap();
            let all = other.read(peer, 0, 2 * WRITTEN_MAX as usize).await.unwrap();
            assert!(
                all == vec![round; size as usize],
                "round {round}: {} bytes of {size}",
                all.len()
            );
            other.close(peer).await.unwrap();
            store.close(open).await.unwrap();
        }
    });
}

#[test]
fn ceph_fuse_recalls_a_token_too_and_sees_each_write() {
    let cluster = Cluster::small();
    let here = cluster.options("here");
    let peer = CephFuse::mount(&cluster);
    let path = peer.path("file");
    run(|world| async move {
        let store = Rc::new(connect(&world, here).await);
        let file = make(&store, "file").await;
        let open = store.open(file, OpenMode::ReadWrite).await.unwrap();
        world.spawn(Box::pin(return_recalled(store.clone())));
        for round in 0..20u8 {
            let answer = store.take_token(open, Token::ExclusiveWrite).await;
            assert!(matches!(answer, Ok(_) | Err(StoreError::TokenHeld)), "{answer:?}");
            store.write(open, 0, &[round; 2000]).await.unwrap();
            // Another thread reads: this one has the recall to answer.
            let (path, (done, read)) = (path.clone(), std::sync::mpsc::channel());
            std::thread::spawn(move || done.send(std::fs::read(path)).unwrap());
            let content = loop {
                world.sleep_until(world.now().plus(Duration::from_millis(1))).await;
                if let Ok(content) = read.try_recv() {
                    break content.unwrap();
                }
            };
            assert!(content == [round; 2000], "round {round}: {:?}", content.first());
        }
    });
}

#[test]
fn after_kill_9_the_next_life_resets_the_former_and_finds_durable_content() {
    on_cluster(async move |world, [options, _]| {
        let store = connect(&world, options.clone()).await;
        let file = make(&store, "file").await;
        let open = open_alone(&store, file).await;
        store.write(open, 0, b"durable").await.unwrap();
        store.make_durable(open).await.unwrap();
        let durable = store.attributes(file).await.unwrap().version;
        store.write(open, 0, b"lost   ").await.unwrap();
        kill(&store);
        let StoreEvent::Disconnected { fenced: false } = next_event(&store).await else {
            panic!("no end was reported")
        };
        for _ in 0..2 {
            assert!(is_disconnected(&store.attributes(file).await.unwrap_err()));
            assert!(is_disconnected(&store.make_durable(open).await.unwrap_err()));
        }

        let begin = world.now();
        store.reconnect().await.unwrap();
        let attributes = store.find(file).await.unwrap().attributes;
        assert!(store.read(open, 0, 10).await.is_err(), "an open file of the former life");
        let open = store.open(file, OpenMode::ReadWrite).await.unwrap();
        let taken = store.take_token(open, Token::ExclusiveWrite).await.unwrap();
        eprintln!("connected again, with the token, after {:?}", world.now().since(begin));
        assert_eq!((attributes.version, taken.version), (durable, durable));
        assert_eq!(store.read(open, 0, 100).await.unwrap(), b"durable");
        store.write(open, 0, b"written").await.unwrap();
        store.disconnect().await.unwrap();
    });
}

#[test]
fn a_client_that_waits_for_a_dead_one_goes_on_when_it_is_fenced() {
    on_cluster(async move |world, [here, there]| {
        let store = connect(&world, here).await;
        let file = make(&store, "file").await;
        let open = open_alone(&store, file).await;
        store.write(open, 0, b"durable").await.unwrap();
        store.make_durable(open).await.unwrap();
        store.write(open, 0, b"lost   ").await.unwrap();
        let other = Rc::new(connect(&world, there).await);
        kill(&store);

        let reader = other.clone();
        let read = runtime::spawn_with_result(&world, async move {
            let peer = reader.open(file, OpenMode::Read).await.unwrap();
            reader.read(peer, 0, 100).await
        });
        world.sleep_until(world.now().plus(Duration::from_millis(200))).await;
        let begin = world.now();
        other.fence(&Identity("here".into())).await.unwrap();
        assert_eq!(read.await.unwrap().unwrap(), b"durable");
        eprintln!("fenced and read after {:?}", world.now().since(begin));
        other.fence(&Identity("nobody-ever".into())).await.unwrap();
    });
}

#[test]
fn a_fenced_client_gets_an_error_and_nothing_of_it_appears() {
    return_of_a_fenced_client(Duration::ZERO);
}
/// The library has dropped its buffer by then (T7).
#[test]
fn a_fenced_client_that_syncs_late_gets_an_error() {
    return_of_a_fenced_client(Duration::from_millis(500));
}

fn return_of_a_fenced_client(pause: Duration) {
    on_cluster(async move |world, [here, there]| {
        let store = connect(&world, here).await;
        let file = make(&store, "file").await;
        let open = open_alone(&store, file).await;
        store.write(open, 0, b"durable").await.unwrap();
        store.make_durable(open).await.unwrap();
        // Stopped like a machine that sleeps: alive, and back too late.
        let helper = store.helper().unwrap() as i32;
        signal(helper, libc::SIGSTOP);
        let late = store.write(open, 0, b"late   ");
        let late = runtime::spawn_with_result(&world, late);

        let other = connect(&world, there).await;
        other.fence(&Identity("here".into())).await.unwrap();
        let peer = other.open(file, OpenMode::ReadWrite).await.unwrap();
        other.take_token(peer, Token::ExclusiveWrite).await.unwrap();
        assert_eq!(other.read(peer, 0, 100).await.unwrap(), b"durable");
        other.write(peer, 0, b"after  ").await.unwrap();
        other.make_durable(peer).await.unwrap();

        signal(helper, libc::SIGCONT);
        // The late write is buffered, or refused, but not durable.
        let late = late.await.unwrap().map(drop);
        world.sleep_until(world.now().plus(pause)).await;
        let durable = store.make_durable(open).await;
        let error = late.and(durable).unwrap_err();
        assert!(is_fenced(&error) || is_disconnected(&error), "{error:?}");
        let StoreEvent::Disconnected { .. } = next_event(&store).await else {
            panic!("no end was reported")
        };
        assert_eq!(other.read(peer, 0, 100).await.unwrap(), b"after  ");
        store.reconnect().await.unwrap();
        let open = store.open(file, OpenMode::Read).await.unwrap();
        assert_eq!(store.read(open, 0, 7).await.unwrap_or_default().len(), 7);
    });
}

#[test]
fn a_token_lost_to_a_change_of_names_is_reported_as_recalled() {
    on_cluster(async move |world, [here, _]| {
        let store = connect(&world, here).await;
        let root = store.root();
        for round in 0..3 {
            let name = format!("file{round}");
            let file = make(&store, &name).await;
            let open = open_alone(&store, file).await;
            store.write(open, 0, b"buffered").await.unwrap();
            // Between its return and the end of the call another client may have had the file: its
            // former holder must learn of that.
            match round {
                0 => drop(store.link(file, root, b"another").await.unwrap()),
                1 => store
                    .rename(root, name.as_bytes(), root, b"moved", RenameOver::Replace)
                    .await
                    .unwrap(),
                _ => store.unlink(root, name.as_bytes()).await.unwrap(),
            }
            let patience = world.sleep_until(world.now().plus(Duration::from_secs(5)));
            let Either::Left(event) = race(next_event(&store), patience).await else {
                panic!("round {round}: nothing was reported")
            };
            let StoreEvent::Recall { file: of, token: Token::ExclusiveWrite, .. } = event else {
                panic!("{event:?}")
            };
            assert_eq!(of, file);
            assert_eq!(store.read(open, 0, 100).await.unwrap(), b"buffered");
            store.return_token(file).await.unwrap();
            store.close(open).await.unwrap();
        }
    });
}

/// Shows why a file that another client keeps open for reading is not replayed: see "A reader that
/// stays" in docs/modes/host_journal.md.
#[test]
fn a_token_for_reading_keeps_writers_out() {
    let cluster = Cluster::small();
    let [here, there, elsewhere] = ["here", "there", "elsewhere"].map(|name| cluster.options(name));
    run(|world| async move {
        let store = Rc::new(connect(&world, here).await);
        let (reader, writer) = (connect(&world, there).await, connect(&world, elsewhere).await);
        let file = make(&store, "file").await;
        let followed = reader.open(file, OpenMode::Read).await.unwrap();
        assert_eq!(reader.read(followed, 0, 10).await.unwrap(), b"");
        let open = store.open(file, OpenMode::ReadWrite).await.unwrap();
        let answer = store.take_token(open, Token::ExclusiveWrite).await;
        assert_eq!(answer.unwrap_err(), StoreError::TokenHeld);
        store.take_token(open, Token::SharedRead).await.unwrap();
        let is_open = Rc::new(Cell::new(false));
        let opened = is_open.clone();
        let written = runtime::spawn_with_result(&world, async move {
            let open = writer.open(file, OpenMode::ReadWrite).await.unwrap();
            opened.set(true);
            writer.take_token(open, Token::SharedWrite).await.unwrap();
            writer.write(open, 0, b"written").await.unwrap();
        });
        let StoreEvent::Recall { token: Token::SharedRead, .. } = next_event(&store).await else {
            panic!("no recall")
        };
        world.sleep_until(world.now().plus(Duration::from_millis(300))).await;
        assert!(!is_open.get(), "a writer did not wait for the token");
        store.return_token(file).await.unwrap();
        written.await.unwrap();
        assert_eq!(reader.read(followed, 0, 10).await.unwrap(), b"written");
    });
}

#[test]
fn without_a_token_the_number_hides_another_writer() {
    let cluster = Cluster::small();
    let [here, there, elsewhere] = ["here", "there", "elsewhere"].map(|name| cluster.options(name));
    run(|world| async move {
        let (store, writer) = (connect(&world, here).await, connect(&world, there).await);
        let reader = connect(&world, elsewhere).await;
        let file = make(&store, "file").await;
        let followed = reader.open(file, OpenMode::Read).await.unwrap();
        let mut opens = Vec::new();
        for client in [&writer, &store] {
            let open = client.open(file, OpenMode::ReadWrite).await.unwrap();
            client.take_token(open, Token::SharedWrite).await.unwrap();
            opens.push(open);
        }
        // Writes that extend a file come one after the other.
        store.write(opens[1], 0, b"------").await.unwrap();
        // Each learns of the other's change sooner or later, and continues counting from there.
        // Concurrently both count the same.
        let mut steps = Vec::new();
        while !steps.contains(&1) {
            assert!(steps.len() < 500, "each write was counted: {steps:?}");
            let before = reader.find(file).await.unwrap().attributes.version;
            for client in [&writer, &store] {
                assert_eq!(client.find(file).await.unwrap().attributes.version, before);
            }
            let theirs = runtime::spawn_with_result(&world, writer.write(opens[0], 0, b"theirs"));
            store.write(opens[1], 0, b"ours  ").await.unwrap();
            theirs.await.unwrap().unwrap();
            let after = reader.find(file).await.unwrap().attributes.version;
            steps.push(after.number - before.number);
        }
        let content = reader.read(followed, 0, 10).await.unwrap();
        assert!(content == b"theirs" || content == b"ours  ", "{content:?}");
    });
}

fn kill(store: &ceph::CephStore) {
    signal(store.helper().unwrap() as i32, libc::SIGKILL);
}
fn signal(process: i32, signal: i32) {
    // SAFETY: a signal to the helper that this test started, and has not yet reaped.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}

#[test]
fn who_has_a_file_open_for_writing_gets_a_token_for_reading_at_once() {
    on_cluster(async move |world, [options, _]| {
        let store = connect(&world, options).await;
        let file = make(&store, "file").await;
        let open = store.open(file, OpenMode::ReadWrite).await.unwrap();
        for round in 0..3u8 {
            let size = store.take_token(open, Token::SharedRead).await.unwrap().version.size;
            assert_eq!(size, u64::from(round));
            assert_eq!(store.read(open, 0, 100).await.unwrap(), vec![7; round.into()]);
            store.take_token(open, Token::ExclusiveWrite).await.unwrap();
            store.write(open, round.into(), &[7]).await.unwrap();
            store.return_token(file).await.unwrap();
        }
        store.disconnect().await.unwrap();
    });
}

#[test]
fn a_created_file_comes_open_and_with_its_token_and_another_recalls_it() {
    on_cluster(async move |world, [here, there]| {
        let store = Rc::new(connect(&world, here).await);
        let created = store.create(store.root(), b"file", 0o640, ROOT).await.unwrap();
        let (file, open) = (created.found.file, created.open.unwrap());
        assert!(created.is_held, "{created:?}");
        assert_eq!(
            (created.found.attributes.mode & 0o777, created.found.attributes.version.size),
            (0o640, 0)
        );
        let again = store.create(store.root(), b"file", 0o640, ROOT).await;
        assert!(matches!(again, Err(StoreError::Refused(Refusal::Exists))), "{again:?}");
        let written = store.write(open, 0, b"buffered").await.unwrap();
        assert!(written.version.number > created.found.attributes.version.number);

        let holder = store.clone();
        world.spawn(Box::pin(async move {
            let StoreEvent::Recall { file, .. } = next_event(&holder).await else {
                panic!("no recall")
            };
            holder.return_token(file).await.unwrap();
        }));
        let other = connect(&world, there).await;
        let peer = other.open(file, OpenMode::Read).await.unwrap();
        assert_eq!(other.read(peer, 0, 100).await.unwrap(), b"buffered");
    });
}
