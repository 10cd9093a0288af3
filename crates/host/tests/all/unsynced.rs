//! A sync that fails while a token is returned has no caller: the descriptors of the file report
//! it.

use crate::common::watched_store::WatchedStore;
use crate::common::*;
use host::{Destage, Durable, Host, HostError, HostOptions};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use store::{AttributeChange, OpenMode, Token};

const EIO: i32 = 5;

async fn begun(stage: &Stage) -> (Rc<Host>, Rc<WatchedStore>, Rc<RefCell<Vec<String>>>) {
    let (watched, disk) =
        (Rc::new(WatchedStore::new(stage.connect())), stage.disk(stage.formatted()));
    let options = HostOptions { destage: Destage::UnderPressure, ..HostOptions::default() };
    let host = begin_host(stage.world(), watched.clone(), disk, options).await.unwrap().0;
    let reports: Rc<RefCell<Vec<String>>> = Rc::default();
    let sink = reports.clone();
    host.on_trouble(Box::new(move |what| sink.borrow_mut().push(what.into())));
    (host, watched, reports)
}

/// Runs `script` with a host in front of a watched store, and the troubles that it reports.
fn on_watched(
    seed: u64,
    script: impl AsyncFnOnce(Stage, Rc<Host>, Rc<WatchedStore>, Rc<RefCell<Vec<String>>>) + 'static,
) {
    let stage = Stage::new(seed);
    let world = stage.world.clone();
    world.run(async move {
        let (host, watched, reports) = begun(&stage).await;
        script(stage, host, watched, reports).await;
    });
}

fn is_io_error<T: std::fmt::Debug>(result: Result<T, HostError>) {
    assert!(matches!(&result, Err(error) if error.errno() == EIO), "{result:?}");
}

#[test]
fn a_sync_that_failed_with_the_token_is_reported() {
    on_watched(1, async move |stage, host, watched, reports| {
        let file = make_then_open(&host, "file").await;
        host.open_file(file).await.unwrap();
        watched.others_keep_files.set(true);
        host.write(file, 0, b"past the journal", Durable::Soon).await.unwrap();
        watched.others_keep_files.set(false);
        watched.failing_returns.set(true);
        // Recalls the token for shared writing.
        peer_writes(&*stage.peer(), file, 0, b"P").await;
        watched.failing_returns.set(false);
        // Each descriptor asks once, and some ask again.
        for _ in 0..3 {
            is_io_error(host.sync_file(file).await);
        }
        is_io_error(host.write(file, 0, b"more", Durable::Now).await);
        assert_eq!(reports.borrow().len(), 1, "{:?}", reports.borrow());
        host.close_file(file).await.unwrap();
        is_io_error(host.sync_file(file).await);
        host.close_file(file).await.unwrap();
        // A later open has another promise.
        host.open_file(file).await.unwrap();
        host.write(file, 0, b"new", Durable::Now).await.unwrap();
        host.sync_file(file).await.unwrap();
        host.close().await.unwrap();
    });
}

/// No request on the next connection covers what went past the journal on this one.
#[test]
fn shared_writes_of_a_lost_connection_are_reported_unsynced() {
    for is_synced in [false, true] {
        on_watched(3, async move |stage, host, watched, _| {
            let file = make_then_open(&host, "file").await;
            watched.others_keep_files.set(true);
            host.write(file, 0, b"past the journal", Durable::Soon).await.unwrap();
            watched.others_keep_files.set(false);
            if is_synced {
                host.sync_file(file).await.unwrap();
            }
            stage.connect().fence(&identity()).await.unwrap();
            host.lookup(host.root(), b"none").await.unwrap_err();
            assert_eq!(host.statistics().reconnections, 1);
            if is_synced {
                host.sync_file(file).await.unwrap();
            } else {
                is_io_error(host.sync_file(file).await);
                is_io_error(host.sync_file(file).await);
            }
            host.close_file(file).await.unwrap();
            host.open_file(file).await.unwrap();
            host.write(file, 0, b"new", Durable::Now).await.unwrap();
            host.close().await.unwrap();
        });
    }
}

#[test]
fn a_failed_sync_past_the_journal_is_reported_to_all() {
    on_watched(2, async move |_, host, watched, _| {
        let file = make_then_open(&host, "file").await;
        host.open_file(file).await.unwrap();
        watched.others_keep_files.set(true);
        host.write(file, 0, b"past the journal", Durable::Soon).await.unwrap();
        watched.failing_syncs.set(true);
        is_io_error(host.sync_file(file).await);
        watched.failing_syncs.set(false);
        // The store has forgotten it, and the other descriptor has not asked yet.
        is_io_error(host.sync_file(file).await);
    });
}

/// A truncation makes durable what was written before, and may be the first to learn that it is
/// gone.
#[test]
fn a_failed_truncation_past_the_journal_is_reported_to_all() {
    on_watched(4, async move |_, host, watched, _| {
        let file = make_then_open(&host, "file").await;
        watched.others_keep_files.set(true);
        host.write(file, 0, b"past the journal", Durable::Soon).await.unwrap();
        watched.failing_changes.set(true);
        let size = AttributeChange { size: Some(4), ..AttributeChange::default() };
        is_io_error(host.set_attributes(file, size).await);
        watched.failing_changes.set(false);
        is_io_error(host.sync_file(file).await);
        host.close_file(file).await.unwrap();
        host.open_file(file).await.unwrap();
        host.sync_file(file).await.unwrap();
    });
}

#[test]
fn a_token_that_fails_with_the_last_close_leaves_no_open_file() {
    on_watched(5, async move |_, host, watched, _| {
        let file = make_then_open(&host, "file").await;
        host.read(file, 0, 1).await.unwrap();
        watched.failing_returns.set(true);
        is_io_error(host.close_file(file).await);
        watched.failing_returns.set(false);
        assert_eq!(watched.open_files(), 0);
        host.open_file(file).await.unwrap();
        host.write(file, 0, b"new", Durable::Now).await.unwrap();
        host.sync_file(file).await.unwrap();
    });
}

/// A program of another client still reads a file that this host removed.
#[test]
fn a_removed_file_that_the_store_refuses_stays_in_the_journal() {
    for is_open in [false, true] {
        on_watched(3, async move |stage, host, watched, reports| {
            watched.others_read_removed.set(true);
            let file = make(&host, "file").await;
            host.write(file, 0, b"synced", Durable::Now).await.unwrap();
            let peer = stage.peer();
            let open = peer.open(file, OpenMode::Read).await.unwrap();
            stage.cluster.fill(Some(file));
            if is_open {
                host.unlink(host.root(), b"file").await.unwrap();
                let _ = host.close_file(file).await;
            } else {
                host.close_file(file).await.unwrap();
                host.unlink(host.root(), b"file").await.unwrap();
            }
            sleep(&*stage.world(), Duration::from_secs(3)).await;
            let statistics = host.statistics();
            let kept = (statistics.failed_files, statistics.dirty_in_journal);
            assert_eq!(kept, (1, 6), "open: {is_open}");
            assert!(!reports.borrow().is_empty());
            stage.cluster.free_space();
            sleep(&*stage.world(), Duration::from_secs(60)).await;
            peer.take_token(open, Token::SharedRead).await.unwrap();
            assert_eq!(peer.read(open, 0, 100).await.unwrap(), b"synced", "open: {is_open}");
            assert_eq!(host.statistics().dirty_in_journal, 0);
            host.close().await.unwrap();
        });
    }
}
