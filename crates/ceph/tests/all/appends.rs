//! Clients that share a file and extend it one after the other.

use crate::common::{Cluster, connect, make, on_cluster, open_alone, run};
use ceph::CephStore;
use device::World;
use runtime::{Either, RealWorld, race, spawn_with_result};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use store::{FileId, OpenFile, OpenMode, Store as _, StoreError, Token};

const LINES: u64 = 60;
/// Lines of the client that recalls the other's token.
const THEIRS: usize = 20;

async fn shared(store: &CephStore, file: FileId) -> OpenFile {
    let open = store.open(file, OpenMode::ReadWrite).await.unwrap();
    store.take_token(open, Token::SharedWrite).await.unwrap();
    open
}
/// Appends, as a host does: again after a pause while another client extends the file.
async fn append(world: &RealWorld, store: &CephStore, open: OpenFile, bytes: &[u8]) {
    loop {
        match store.append(open, bytes).await {
            Err(StoreError::TokenHeld) => {
                world.sleep_until(world.now().plus(Duration::from_millis(5))).await;
            }
            appended => {
                appended.unwrap();
                return;
            }
        }
    }
}

#[test]
fn appends_of_clients_that_share_a_file_are_all_there() {
    let cluster = Cluster::small();
    let names = ["one", "two", "three"];
    let options = names.map(|name| cluster.options(name));
    run(|world| async move {
        let mut stores = Vec::new();
        for options in options {
            stores.push(Rc::new(connect(&world, options).await));
        }
        let file = make(&stores[0], "log").await;
        let mut works = Vec::new();
        for (store, name) in stores.iter().zip(names) {
            let (store, clock) = (store.clone(), world.clone());
            let open = shared(&store, file).await;
            works.push(spawn_with_result(&world, async move {
                for line in 0..LINES {
                    append(&clock, &store, open, format!("{name} {line}\n").as_bytes()).await;
                }
                open
            }));
        }
        let mut opens = Vec::new();
        for work in works {
            opens.push(work.await.unwrap());
        }
        let content = stores[0].read(opens[0], 0, 1 << 20).await.unwrap();
        let content = String::from_utf8(content).unwrap();
        for name in names {
            let lines: Vec<&str> =
                content.lines().filter(|line| line.split(' ').next() == Some(name)).collect();
            let expected: Vec<String> = (0..LINES).map(|line| format!("{name} {line}")).collect();
            assert_eq!(lines, expected, "{content:?}");
        }
        // A write at an offset is one of them if it extends the file, and does not wait if not.
        let size = content.len() as u64;
        stores[1].write(opens[1], size, b"end").await.unwrap();
        stores[2].write(opens[2], 0, b"O").await.unwrap();
        append(&world, &stores[0], opens[0], b"!").await;
        assert_eq!(stores[2].read(opens[2], size, 9).await.unwrap(), b"end!");
    });
}

/// The one that holds the lock meets the recall of its exclusive token: it has looked at the end
/// while no other client could extend the file.
#[test]
fn an_append_that_meets_its_recall_covers_no_other() {
    on_cluster(async move |world, [here, there]| {
        let store = Rc::new(connect(&world, here).await);
        let other = Rc::new(connect(&world, there).await);
        for round in 0..12u64 {
            let file = make(&store, &format!("log{round}")).await;
            let open = open_alone(&store, file).await;
            let (writer, clock) = (store.clone(), world.clone());
            let done = Rc::new(Cell::new(0));
            let appended = done.clone();
            // It never returns the token itself: the helper does, beside the append that waits. So
            // it goes on until the other client has the file.
            let appends = spawn_with_result(&world, async move {
                let mut lines = 0;
                while appended.get() < THEIRS {
                    append(&clock, &writer, open, format!("ours {lines}\n").as_bytes()).await;
                    lines += 1;
                    if appended.get() > 0 {
                        clock.sleep_until(clock.now().plus(Duration::from_millis(5))).await;
                    }
                }
                lines
            });
            world.sleep_until(world.now().plus(Duration::from_millis(round))).await;
            let theirs = shared(&other, file).await;
            for line in 0..THEIRS {
                append(&world, &other, theirs, format!("theirs {line}\n").as_bytes()).await;
                done.set(line + 1);
            }
            let ours = appends.await.unwrap();
            let content = store.read(open, 0, 1 << 20).await.unwrap();
            let content = String::from_utf8(content).unwrap();
            let count = |name: &str| content.lines().filter(|line| line.starts_with(name)).count();
            let counts = (count("ours"), count("theirs"));
            assert_eq!(counts, (ours, THEIRS), "round {round}: {content:?}");
            other.close(theirs).await.unwrap();
            store.close(open).await.unwrap();
        }
    });
}

/// The servers end its session after a minute with Ceph's settings, and only because somebody asks
/// about the file: for locks alone they wait five times as long.
#[test]
fn a_client_that_stops_with_the_lock_is_waited_for() {
    let cluster = Cluster::small();
    cluster.administer(&["fs", "set", "okeanos", "session_autoclose", "300"]);
    let (here, there) = (cluster.options("here"), cluster.options("there"));
    run(|world| async move {
        let (store, other) = (Rc::new(connect(&world, here).await), connect(&world, there).await);
        let file = make(&store, "log").await;
        let (open, theirs) = (shared(&store, file).await, shared(&other, file).await);
        let (writer, clock) = (store.clone(), world.clone());
        let _appends = spawn_with_result(&world, async move {
            while !writer.append(open, b"ours ").await.is_err_and(|error| error.is_lost()) {
                clock.sleep_until(clock.now().plus(Duration::from_millis(1))).await;
            }
        });
        let helper = store.helper().unwrap() as i32;
        let mut waited = Duration::ZERO;
        for round in 0..40 {
            world.sleep_until(world.now().plus(Duration::from_millis(20 + round))).await;
            signal(helper, libc::SIGSTOP);
            let began = world.now();
            let soon = world.sleep_until(world.now().plus(Duration::from_secs(2)));
            let mut appended = Box::pin(append(&world, &other, theirs, b"theirs "));
            if let Either::Right(()) = race(&mut appended, soon).await {
                appended.await;
                waited = world.now().since(began);
                break;
            }
            signal(helper, libc::SIGCONT);
        }
        eprintln!("the append came after {waited:?}");
        assert!(waited > Duration::ZERO, "it was never stopped with the lock");
        assert!(waited < Duration::from_secs(60), "{waited:?}");
        signal(helper, libc::SIGCONT);
        let content = other.read(theirs, 0, 1 << 20).await.unwrap();
        assert!(content.ends_with(b"theirs "), "{}", String::from_utf8_lossy(&content));
    });
}

fn signal(process: i32, signal: i32) {
    // SAFETY: a signal to the helper that this test started, and has not yet reaped.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}
