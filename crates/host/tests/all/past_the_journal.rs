//! Changes that go to the store past the journal: a sync waits for them there, and no replay builds
//! on them.

use crate::common::watched_store::WatchedStore;
use crate::common::*;
use device::{Disk, World};
use disks::MemoryDisk;
use host::{Destage, Durable, FileFate, Host, HostOptions};
use runtime::{RealWorld, spawn_with_result};
use std::rc::Rc;
use std::time::Duration;
use store::{AttributeChange, Identity, LocalStore, OpenMode, Store, Token};

/// Runs the script with a host in front of a directory.
fn on_a_directory<F: Future<Output = ()> + 'static>(
    script: impl FnOnce(Rc<Host>, Rc<WatchedStore>) -> F,
) {
    let directory = tempfile::tempdir().unwrap();
    let world = RealWorld::new().unwrap();
    let shared: Rc<dyn World> = Rc::new(world.clone());
    let store = LocalStore::open(shared.clone(), directory.path(), identity()).unwrap();
    let store = Rc::new(WatchedStore::new(Rc::new(store)));
    let disk: Rc<dyn Disk> = Rc::new(MemoryDisk::new(shared.clone(), JOURNAL_BYTES));
    let (beneath, watched) = (store.clone(), store.clone());
    let host = world.run(fresh_host(shared, beneath, disk, HostOptions::default()));
    world.run(script(host, watched));
    world.end();
}

#[test]
fn a_sync_makes_a_mode_that_was_set_without_a_token_durable() {
    on_a_directory(|host, store| async move {
        let file = make_then_open(&host, "file").await;
        let change = AttributeChange { mode: Some(0o600), ..Default::default() };
        host.set_attributes(file, change).await.unwrap();
        host.sync_file(file).await.unwrap();
        assert_eq!(store.take_calls(), ["set_attributes", "make_durable"]);
        host.sync_file(file).await.unwrap();
        assert!(store.take_calls().is_empty(), "nothing has changed since");
        // By its name, as chmod(2) does.
        host.close_file(file).await.unwrap();
        host.set_attributes(file, change).await.unwrap();
        host.open_file(file).await.unwrap();
        host.sync_file(file).await.unwrap();
        assert_eq!(store.take_calls(), ["set_attributes", "make_durable"]);
    });
}

#[test]
fn a_sync_by_a_later_descriptor_covers_shared_writes() {
    on_a_directory(|host, store| async move {
        let file = make_then_open(&host, "file").await;
        store.others_keep_files.set(true);
        host.write(file, 0, b"shared", Durable::Soon).await.unwrap();
        host.close_file(file).await.unwrap();
        host.open_file(file).await.unwrap();
        host.sync_file(file).await.unwrap();
        assert_eq!(store.take_calls(), ["make_durable"]);
    });
}

/// The write that met the recall goes past the token, and its number is one above another client's.
#[test]
fn recalled_write_is_not_trusted_after_reconnect() {
    let (stage, disk) = Stage::formatted_disk(1);
    let mut store = WatchedStore::new(stage.connect());
    store.keeps_failed_writes = false;
    store.slow_write.set(Some(10));
    let store = Rc::new(store);
    let (destage, writeback) = (Destage::After(Duration::from_secs(6)), Duration::from_secs(1));
    let options = HostOptions { destage, writeback, ..HostOptions::default() };
    let begun = begin_host(stage.world(), store.clone(), disk, options);
    let inner = stage.clone();
    let (file, fates) = stage.world.run(async move {
        let (host, _) = begun.await.unwrap();
        let world = inner.world();
        let fates: Rc<std::cell::RefCell<Vec<FileFate>>> = Rc::default();
        let sink = fates.clone();
        let note = move |report: &host::HostRecoveryReport| {
            sink.borrow_mut().extend(report.files.iter().map(|file| file.outcome.clone()));
        };
        host.on_reconnection(Box::new(note));
        let [file, other] = [make(&host, "file").await, make(&host, "other").await];
        inner.cluster.fill(Some(other));
        host.write(other, 0, b"refused", Durable::Now).await.unwrap();
        while host.statistics().failed_files == 0 {
            sleep(&*world, Duration::from_millis(100)).await;
        }
        inner.cluster.free_space();
        // Until shortly before the connection is given up for it: 5 s after the failure.
        sleep(&*world, Duration::from_secs(4)).await;
        host.write(file, 0, b"first.", Durable::Now).await.unwrap();
        let writer = host.clone();
        let write = spawn_with_result(&*world, async move {
            writer.write(file, 10, b"late", Durable::Soon).await
        });
        while store.waiting_calls.get() == 0 {
            sleep(&*world, Duration::from_millis(1)).await;
        }
        let peer = inner.connect_as(Identity("peer".into()));
        let open = peer.open(file, OpenMode::ReadWrite).await.unwrap();
        let helper = store.clone();
        world.spawn(Box::pin({
            let world = world.clone();
            async move {
                sleep(&*world, Duration::from_millis(100)).await;
                helper.return_token(file).await.unwrap();
            }
        }));
        peer.take_token(open, Token::ExclusiveWrite).await.unwrap();
        peer.write(open, 0, b"second").await.unwrap();
        peer.return_token(file).await.unwrap();
        peer.close(open).await.unwrap();
        sleep(&*world, Duration::from_secs(4)).await;
        store.release_calls();
        let _ = write.await.unwrap();
        sleep(&*world, Duration::from_secs(5)).await;
        assert_eq!(host.statistics().reconnections, 1);
        (file, fates.take())
    });
    assert!(stage.content(file).starts_with(b"second"), "{:?} {fates:?}", stage.content(file));
}
