//! Changes whose answers are lost with the connection: they may have been carried out, and other
//! clients may have seen that, and built on it.

use crate::common::watched_store::WatchedStore;
use crate::common::*;
use disks::MemoryDisk;
use host::{Durable, Host, HostError, HostOptions};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use store::{
    Allocation, AttributeChange, Cut, CutKind, FileId, Moment, OpenMode, RenameOver, Store,
};

const EIO: i32 = 5;

/// A host, what it reported, and another client.
struct Scene {
    host: Rc<Host>,
    reports: Rc<RefCell<Vec<String>>>,
    peer: Rc<dyn Store>,
}

fn on_stage<F: Future<Output = ()>>(script: impl FnOnce(Stage, Scene) -> F + 'static) {
    on_stage_with(false, script);
}
/// Runs a script; another client keeps each file from being held, or none does.
fn on_stage_with<F: Future<Output = ()>>(
    others_keep_files: bool,
    script: impl FnOnce(Stage, Scene) -> F + 'static,
) {
    let stage = Stage::new(1);
    let disk: MemoryDisk = stage.disk(stage.formatted());
    let watched = WatchedStore::new(stage.connect());
    watched.others_keep_files.set(others_keep_files);
    let watched = Rc::new(watched);
    let begun = begin_host(stage.world(), watched, disk, HostOptions::default());
    let inner = stage.clone();
    stage.world.run(async move {
        let (host, _) = begun.await.unwrap();
        let reports: Rc<RefCell<Vec<String>>> = Rc::default();
        let sink = reports.clone();
        host.on_trouble(Box::new(move |what| sink.borrow_mut().push(what.into())));
        let peer = inner.peer();
        script(inner, Scene { host, reports, peer }).await;
    });
}

impl Stage {
    /// Cuts the network at the answer to a message of the next call.
    fn lose_answer(&self, message: u64) {
        let message = self.cluster.messages() + message;
        self.cluster.cut_at(Cut { kind: CutKind::Network, message, moment: Moment::Answer });
    }
}

impl Scene {
    /// Checks that the caller and the log learn that the change may have been made.
    fn is_unsure<T: std::fmt::Debug>(&self, result: Result<T, HostError>) {
        let Err(error) = result else { panic!("{result:?} of a change whose answer was lost") };
        assert_eq!(error.errno(), EIO, "{error}");
        let reports = self.reports.borrow();
        assert!(reports.iter().any(|what| what.contains("may have been made")), "{reports:?}");
    }
}

/// The other client works while the host waits for the lost answer.
async fn beside<T>(host: impl Future<Output = T>, peer: impl Future<Output = ()>) -> T {
    let answer = RefCell::new(None);
    let both: Vec<std::pin::Pin<Box<dyn Future<Output = ()>>>> =
        vec![Box::pin(async { *answer.borrow_mut() = Some(host.await) }), Box::pin(peer)];
    runtime::join_all(both).await;
    answer.take().expect("it has ended")
}

async fn synced(scene: &Scene) -> FileId {
    let file = make(&scene.host, "file").await;
    scene.host.write(file, 0, b"old content", Durable::Now).await.unwrap();
    scene.host.close_file(file).await.unwrap();
    file
}

#[test]
fn a_cut_that_was_made_does_not_take_later_bytes() {
    on_stage(|stage, scene| async move {
        let file = synced(&scene).await;
        // The host has nothing of it any more.
        peer_reads(&*scene.peer, file).await;
        sleep(&*stage.world(), Duration::from_secs(5)).await;
        stage.lose_answer(1);
        let change = AttributeChange { size: Some(0), ..AttributeChange::default() };
        let peer = async {
            while !stage.content(file).is_empty() {
                sleep(&*stage.world(), Duration::from_millis(1)).await;
            }
            peer_writes(&*scene.peer, file, 0, b"synced after the cut").await;
        };
        scene.is_unsure(beside(scene.host.set_attributes(file, change), peer).await);
        assert_eq!(stage.content(file), b"synced after the cut");
    });
}

#[test]
fn a_hole_that_was_made_does_not_take_later_bytes() {
    on_stage(|stage, scene| async move {
        let file = make(&scene.host, "file").await;
        scene.host.write(file, 0, b"old content", Durable::Now).await.unwrap();
        peer_reads(&*scene.peer, file).await;
        // Takes the token again, with nothing dirty.
        scene.host.allocate(file, Allocation::Reserve, 0..11).await.unwrap();
        stage.lose_answer(1);
        let peer = async {
            while stage.content(file)[0] != 0 {
                sleep(&*stage.world(), Duration::from_millis(1)).await;
            }
            peer_writes(&*scene.peer, file, 0, b"new").await;
        };
        let punched = scene.host.allocate(file, Allocation::PunchHole, 0..11);
        scene.is_unsure(beside(punched, peer).await);
        assert_eq!(&stage.content(file)[..3], b"new");
    });
}

#[test]
fn a_name_whose_removal_was_not_answered_is_removed_once() {
    on_stage(|stage, scene| async move {
        let file = synced(&scene).await;
        peer_reads(&*scene.peer, file).await;
        sleep(&*stage.world(), Duration::from_secs(5)).await;
        // Behind the lookup.
        stage.lose_answer(2);
        let root = scene.host.root();
        let peer = async {
            while stage.cluster.attributes(file).unwrap().links > 0 {
                sleep(&*stage.world(), Duration::from_millis(1)).await;
            }
            scene.peer.create(root, b"file", 0o644, ROOT).await.unwrap();
        };
        scene.is_unsure(beside(scene.host.unlink(root, b"file"), peer).await);
        let found = scene.host.lookup(root, b"file").await.unwrap();
        assert_ne!(found.file, file);
    });
}

/// A change that was not sent was not made.
#[test]
fn a_change_that_was_not_sent_is_made_on_the_next_connection() {
    on_stage(|stage, scene| async move {
        synced(&scene).await;
        let root = scene.host.root();
        for message in [1, 2] {
            stage.lose_answer(message);
            let renamed = scene.host.rename((root, b"file"), (root, b"new"), RenameOver::Replace);
            // Both lookups come before the request.
            renamed.await.unwrap();
            scene.host.rename((root, b"new"), (root, b"file"), RenameOver::Replace).await.unwrap();
        }
        assert_eq!(*scene.reports.borrow(), Vec::<String>::new());
    });
}

/// The store has the bytes, and the answer to them or to their sync is lost.
#[test]
fn a_write_past_the_journal_does_not_take_later_bytes() {
    for message in [1, 2] {
        on_stage_with(true, move |stage, scene| async move {
            let file = make_then_open(&scene.host, "file").await;
            scene.host.write(file, 0, b"-", Durable::Now).await.unwrap();
            stage.lose_answer(message);
            let peer = async {
                while stage.content(file) != b"a" {
                    sleep(&*stage.world(), Duration::from_millis(1)).await;
                }
                sleep(&*stage.world(), Duration::from_millis(1)).await;
                let open = scene.peer.open(file, OpenMode::ReadWrite).await.unwrap();
                scene.peer.write(open, 0, b"b").await.unwrap();
                scene.peer.make_durable(open).await.unwrap();
            };
            let written = scene.host.write(file, 0, b"a", Durable::Now);
            scene.is_unsure(beside(written, peer).await);
            assert_eq!(stage.content(file), b"b", "message {message}");
        });
    }
}
