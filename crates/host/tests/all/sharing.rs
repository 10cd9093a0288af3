//! Two hosts that share a file: on a simulated cluster, and on a directory.

use crate::common::watched_store::WatchedStore;
use crate::common::{JOURNAL_BYTES, ROOT, fresh_host, identity};
use device::{Disk, World};
use disks::MemoryDisk;
use host::{
    Destage, Durable, FileFate, Host, HostError, HostJournal, HostOptions, Interrupt, recover,
};
use runtime::{RealWorld, VirtualWorld};
use std::rc::Rc;
use std::time::Duration;
use store::{
    AttributeChange, Cluster, FileId, FileLock, Identity, LOCK_END, LocalStore, LockKind, LockMode,
    LockOwner, Network, NewNode, OpenMode, RenameOver, SimulatedStore, Store, StoreError,
    XattrMode,
};

const EAGAIN: i32 = 11;
const EINTR: i32 = 4;

type Two = (Rc<Host>, Rc<Host>, Rc<dyn World>);

async fn begin(world: &Rc<dyn World>, store: Rc<dyn Store>) -> Rc<Host> {
    let disk = Rc::new(MemoryDisk::new(world.clone(), JOURNAL_BYTES));
    begin_on(world, store, disk, HostOptions::default()).await
}
async fn begin_on(
    world: &Rc<dyn World>,
    store: Rc<dyn Store>,
    disk: Rc<dyn Disk>,
    options: HostOptions,
) -> Rc<Host> {
    let options = HostOptions { destage: Destage::UnderPressure, ..options };
    fresh_host(world.clone(), store, disk, options).await
}

fn names() -> [Identity; 2] {
    [identity(), Identity("host-2".into())]
}
/// Runs the script with two hosts in front of each store.
fn on_each<F: Future<Output = ()> + 'static>(script: impl Fn(Two) -> F + Copy + 'static) {
    let world = VirtualWorld::new(1);
    let shared: Rc<dyn World> = Rc::new(world.clone());
    let cluster = Cluster::new(shared.clone(), Network::default(), Vec::new(), 1);
    let stores = names().map(|name| SimulatedStore::connect(&cluster, name));
    world.run(async move {
        let [first, second] = stores;
        let first = begin(&shared, Rc::new(first)).await;
        script((first, begin(&shared, Rc::new(second)).await, shared)).await;
    });
    on_a_directory(script);
}
fn on_a_directory<F: Future<Output = ()> + 'static>(script: impl Fn(Two) -> F + 'static) {
    let directory = tempfile::tempdir().unwrap();
    let world = RealWorld::new().unwrap();
    let shared: Rc<dyn World> = Rc::new(world.clone());
    let stores =
        names().map(|name| LocalStore::open(shared.clone(), directory.path(), name).unwrap());
    world.run(async move {
        let [first, second] = stores;
        let first = begin(&shared, Rc::new(first)).await;
        let second = begin(&shared, Rc::new(second)).await;
        script((first.clone(), second.clone(), shared)).await;
        first.close().await.unwrap();
        second.close().await.unwrap();
    });
    world.end();
}

async fn make(host: &Host, name: &[u8]) -> FileId {
    host.create(host.root(), name, 0o644, ROOT).await.unwrap().file
}
async fn content(host: &Host, file: FileId) -> Vec<u8> {
    host.read(file, 0, 1 << 20).await.unwrap()
}

#[test]
fn appends_of_two_hosts_stand_behind_each_other() {
    on_each(|(first, second, _)| async move {
        let file = make(&first, b"log").await;
        second.open_file(file).await.unwrap();
        let mut expected = Vec::new();
        for round in 0..20u8 {
            let host = if round % 3 == 1 { &second } else { &first };
            let line = format!("line {round}\n").into_bytes();
            host.append(file, &line, Durable::Now).await.unwrap();
            expected.extend(line);
        }
        assert_eq!(content(&second, file).await, expected);
        let cut = AttributeChange { size: Some(3), ..Default::default() };
        second.set_attributes(file, cut).await.unwrap();
        first.append(file, b"!", Durable::Now).await.unwrap();
        assert_eq!(content(&second, file).await, b"lin!");
    });
}

/// Runs the script with two hosts to which the servers give no file alone: each has the file open,
/// as for locks of its programs.
fn on_shared_files<F: Future<Output = ()> + 'static>(
    script: impl FnOnce(Two, [Rc<WatchedStore>; 2]) -> F + 'static,
) {
    let world = VirtualWorld::new(1);
    let shared: Rc<dyn World> = Rc::new(world.clone());
    let cluster = Cluster::new(shared.clone(), Network::default(), Vec::new(), 1);
    let stores = names().map(|name| {
        let store = WatchedStore::new(Rc::new(SimulatedStore::connect(&cluster, name)));
        store.others_keep_files.set(true);
        Rc::new(store)
    });
    world.run(async move {
        let first = begin(&shared, stores[0].clone()).await;
        let second = begin(&shared, stores[1].clone()).await;
        script((first, second, shared), stores).await;
    });
}
async fn make_shared(host: &Host) -> FileId {
    let node = NewNode::Regular { mode: 0o644 };
    let file = host.make(host.root(), b"log", node, ROOT).await.unwrap().file;
    host.open_file(file).await.unwrap();
    file
}

#[test]
fn appends_of_two_hosts_that_share_a_file_are_all_there() {
    const LINES: u64 = 50;
    on_shared_files(|(first, second, world), _| async move {
        let file = make_shared(&first).await;
        second.open_file(file).await.unwrap();
        let appends = |host: Rc<Host>, name: &'static str| async move {
            for line in 0..LINES {
                let line = format!("{name} {line}\n");
                host.append(file, line.as_bytes(), Durable::Now).await.unwrap();
            }
        };
        let other = runtime::spawn_with_result(&*world, appends(second.clone(), "second"));
        appends(first.clone(), "first").await;
        other.await.unwrap();
        let content = String::from_utf8(content(&second, file).await).unwrap();
        for name in ["first", "second"] {
            let lines: Vec<&str> = content.lines().filter(|line| line.starts_with(name)).collect();
            let expected: Vec<String> = (0..LINES).map(|line| format!("{name} {line}")).collect();
            assert_eq!(lines, expected, "{content:?}");
        }
        assert_eq!(content.lines().count() as u64, 2 * LINES);
    });
}

/// A host may have died while it extended the file.
#[test]
fn an_append_waits_a_minute_for_one_of_another_host() {
    on_shared_files(|(first, _, world), [store, _]| async move {
        let file = make_shared(&first).await;
        first.append(file, b"one", Durable::Now).await.unwrap();
        store.is_extended.set(true);
        let began = world.now();
        assert_eq!(first.append(file, b"lost", Durable::Now).await.unwrap_err().errno(), EAGAIN);
        let waited = world.now().since(began).as_secs();
        assert!((59..62).contains(&waited), "{waited} s");
        // In between the file is free: its readers go on.
        let (reader, clock) = (first.clone(), world.clone());
        let read = runtime::spawn_with_result(&*world, async move {
            clock.sleep_until(clock.now().plus(Duration::from_secs(5))).await;
            let read = content(&reader, file).await;
            store.is_extended.set(false);
            read
        });
        first.append(file, b" two", Durable::Now).await.unwrap();
        assert_eq!(read.await.unwrap(), b"one");
        assert_eq!(content(&first, file).await, b"one two");
    });
}

/// The journal's addresses of an append come of the size that the store answers.
#[test]
fn an_append_whose_answer_makes_no_sense_is_refused() {
    on_shared_files(|(first, second, _), [store, _]| async move {
        store.others_keep_files.set(false);
        let file = make(&first, b"log").await;
        first.append(file, b"one", Durable::Now).await.unwrap();
        for size in [0, 16 << 40, u64::MAX] {
            store.false_size.set(Some(size));
            let refused = first.append(file, b" two", Durable::Now).await.unwrap_err();
            assert!(matches!(refused, HostError::Store(StoreError::Nonsense { .. })), "{refused}");
        }
        store.false_size.set(None);
        // What the store has of them is known again, and the next one stands behind it.
        first.append(file, b"!", Durable::Now).await.unwrap();
        assert_eq!(content(&second, file).await, b"one two two two!");
    });
}

/// The recovery may have to return the exclusive token amid its replay, and another client may
/// extend the file then.
#[test]
fn a_recovery_waits_for_another_host_that_extends_its_file() {
    let world = VirtualWorld::new(1);
    let shared: Rc<dyn World> = Rc::new(world.clone());
    let cluster = Cluster::new(shared.clone(), Network::default(), Vec::new(), 1);
    let connect = move || Rc::new(SimulatedStore::connect(&cluster, identity()));
    world.run(async move {
        let disk = MemoryDisk::new(shared.clone(), JOURNAL_BYTES);
        let store = connect();
        let options = HostOptions { reconnect: None, ..HostOptions::default() };
        let host = begin_on(&shared, store, Rc::new(disk.clone()), options).await;
        let file = make(&host, b"log").await;
        host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        let journal = HostJournal::open(Rc::new(disk)).await.unwrap();
        let store = WatchedStore::new(connect());
        store.extended_writes.set(3);
        let report = recover(&*shared, &store, &journal, false).await.unwrap();
        assert_eq!(store.extended_writes.get(), 0);
        assert_eq!(report.files.len(), 1, "{report:?}");
        assert_eq!(report.files[0].outcome, FileFate::Replayed);
        let open = store.open(file, OpenMode::Read).await.unwrap();
        assert_eq!(store.read(open, 0, 99).await.unwrap(), b"synced");
    });
}

#[test]
fn changes_of_attributes_beside_dirty_bytes_stay() {
    on_each(|(first, second, _)| async move {
        let file = make(&first, b"file").await;
        first.write(file, 0, b"synced", Durable::Now).await.unwrap();
        let change = AttributeChange { mode: Some(0o600), ..Default::default() };
        second.set_attributes(file, change).await.unwrap();
        first.write(file, 6, b"!", Durable::Now).await.unwrap();
        let seen = second.attributes(file).await.unwrap();
        assert_eq!(seen.mode, 0o600);
        assert_eq!(content(&second, file).await, b"synced!");
        assert_eq!(first.attributes(file).await.unwrap().mode, 0o600);
    });
}

fn lock(kind: LockKind, number: u64, mode: Option<LockMode>) -> FileLock {
    FileLock { owner: LockOwner { kind, number }, mode, range: 0..LOCK_END }
}
const EXCLUSIVE: Option<LockMode> = Some(LockMode::Exclusive);

#[test]
fn what_was_written_under_a_lock_is_read_under_the_next() {
    on_each(|(first, second, world)| async move {
        let file = make(&first, b"counter").await;
        second.open_file(file).await.unwrap();
        first.write(file, 0, &[0], Durable::Soon).await.unwrap();
        let counts = |host: Rc<Host>, number: u64| {
            let world = world.clone();
            async move {
                for _ in 0..10 {
                    let wait = Interrupt::default();
                    let taken = lock(LockKind::Bytes, number, EXCLUSIVE);
                    host.lock(file, taken, number, Some(&wait)).await.unwrap();
                    let count = content(&host, file).await[0];
                    world.sleep_until(world.now().plus(Duration::from_millis(1))).await;
                    host.write(file, 0, &[count + 1], Durable::Soon).await.unwrap();
                    let none = lock(LockKind::Bytes, number, None);
                    host.lock(file, none, number, None).await.unwrap();
                }
            }
        };
        let (of_first, of_second) = (counts(first, 1), counts(second.clone(), 2));
        let both: Vec<std::pin::Pin<Box<dyn Future<Output = ()>>>> =
            vec![Box::pin(of_first), Box::pin(of_second)];
        runtime::join_all(both).await;
        assert_eq!(content(&second, file).await, [20]);
    });
}

#[test]
fn a_lock_is_free_when_its_program_closes_the_file() {
    on_each(|(first, second, _)| async move {
        let file = make(&first, b"file").await;
        second.open_file(file).await.unwrap();
        for kind in [LockKind::Bytes, LockKind::Whole] {
            let (owner, descriptor) = (LockOwner { kind, number: 5 }, 7);
            first.lock(file, lock(kind, 5, EXCLUSIVE), descriptor, None).await.unwrap();
            let try_it = || second.lock(file, lock(kind, 5, EXCLUSIVE), 1, None);
            assert_eq!(try_it().await.unwrap_err().errno(), EAGAIN);
            let own = first.lock(file, lock(kind, 6, EXCLUSIVE), 8, None).await;
            assert_eq!(own.unwrap_err().errno(), EAGAIN, "another program of the same host");
            match kind {
                LockKind::Bytes => first.unlock_owner(file, owner).await.unwrap(),
                LockKind::Whole => first.unlock_descriptor(file, descriptor).await.unwrap(),
            }
            try_it().await.unwrap();
            second.unlock_descriptor(file, 1).await.unwrap();
            // A lock of an open file description is dropped with it.
            first.lock(file, lock(kind, 9, EXCLUSIVE), descriptor, None).await.unwrap();
            first.unlock_descriptor(file, descriptor).await.unwrap();
            try_it().await.unwrap();
            second.unlock_descriptor(file, 1).await.unwrap();
        }
    });
}

#[test]
fn a_signal_ends_the_wait_for_a_lock_and_others_go_on() {
    on_each(|(first, second, world)| async move {
        let file = make(&first, b"file").await;
        second.open_file(file).await.unwrap();
        first.lock(file, lock(LockKind::Whole, 1, EXCLUSIVE), 1, None).await.unwrap();
        let interrupt = Rc::new(Interrupt::default());
        let (waiting, later) = (interrupt.clone(), world.clone());
        world.spawn(Box::pin(async move {
            later.sleep_until(later.now().plus(Duration::from_millis(80))).await;
            waiting.set();
        }));
        let taken = lock(LockKind::Whole, 2, EXCLUSIVE);
        let wait = second.lock(file, taken, 2, Some(&interrupt));
        let works = async {
            second.write(file, 0, b"beside it", Durable::Now).await.unwrap();
            std::future::pending::<()>().await;
        };
        match runtime::race(wait, works).await {
            runtime::Either::Left(ended) => assert_eq!(ended.unwrap_err().errno(), EINTR),
            runtime::Either::Right(()) => unreachable!("it is pending"),
        }
        assert_eq!(content(&first, file).await, b"beside it");
    });
}

#[test]
fn two_files_change_places() {
    on_each(|(first, second, _)| async move {
        let (one, other) = (make(&first, b"one").await, make(&first, b"other").await);
        first.write(one, 0, b"1", Durable::Now).await.unwrap();
        first.write(other, 0, b"2", Durable::Now).await.unwrap();
        let root = first.root();
        let exchange = RenameOver::Exchange;
        second.rename((root, b"one"), (root, b"other"), exchange).await.unwrap();
        assert_eq!(first.lookup(root, b"one").await.unwrap().file, other);
        first.rename((root, b"one"), (root, b"other"), exchange).await.unwrap();
        let found = second.lookup(root, b"one").await.unwrap().file;
        assert_eq!((found, content(&second, one).await), (one, b"1".to_vec()));
    });
}

#[test]
fn a_write_takes_file_capabilities_away() {
    const NAME: &[u8] = b"security.capability";
    let value = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    on_each(move |(first, second, _)| async move {
        let file = make(&first, b"program").await;
        first.write(file, 0, b"text", Durable::Now).await.unwrap();
        if first.set_xattr(file, NAME, Some(&value), XattrMode::Set).await.is_err() {
            return;
        }
        assert!(second.xattr(file, NAME).await.is_ok());
        first.write(file, 4, b"more", Durable::Now).await.unwrap();
        assert!(first.xattr(file, NAME).await.is_err());
        assert_eq!(content(&second, file).await, b"textmore");
    });
}

#[test]
fn a_descriptor_of_a_removed_file_writes_to_no_other() {
    on_each(|(first, second, _)| async move {
        let old = make(&first, b"old").await;
        second.open_file(old).await.unwrap();
        first.close_file(old).await.unwrap();
        first.unlink(first.root(), b"old").await.unwrap();
        for number in 0..20 {
            let name = format!("new{number}");
            let new = make(&first, name.as_bytes()).await;
            first.write(new, 0, b"mine", Durable::Now).await.unwrap();
            let _ = second.append(old, b"theirs", Durable::Now).await;
            assert_eq!(content(&first, new).await, b"mine");
        }
    });
}

/// The file's last name is removed, but the other host's program still reads it.
#[test]
fn a_removed_file_keeps_synced_bytes_for_other_hosts() {
    on_a_directory(|(first, second, _)| async move {
        let file = make(&first, b"closed").await;
        first.write(file, 0, b"old...", Durable::Now).await.unwrap();
        second.open_file(file).await.unwrap();
        assert_eq!(content(&second, file).await, b"old...");
        first.write(file, 0, b"synced", Durable::Now).await.unwrap();
        first.close_file(file).await.unwrap();
        first.unlink(first.root(), b"closed").await.unwrap();
        assert_eq!(content(&second, file).await, b"synced");

        let file = make(&first, b"open").await;
        first.write(file, 0, b"old...", Durable::Now).await.unwrap();
        second.open_file(file).await.unwrap();
        second.unlink(second.root(), b"open").await.unwrap();
        first.write(file, 0, b"synced", Durable::Now).await.unwrap();
        first.close_file(file).await.unwrap();
        assert_eq!(content(&second, file).await, b"synced");
    });
}
