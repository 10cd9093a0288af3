//! Attributes that the kernel may cache, and when they are invalidated.

use crate::common::*;
use host::{ATTRIBUTE_TIMEOUT, Durable, Host, HostOptions};
use runtime::spawn_with_result;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use store::{FileId, NewNode, OpenMode, Token};

/// Collects the files that the kernel was asked to forget.
fn forgotten(host: &Host) -> Rc<RefCell<Vec<FileId>>> {
    let invalidations: Rc<RefCell<Vec<FileId>>> = Rc::default();
    let list = invalidations.clone();
    host.on_forget(Box::new(move |file| list.borrow_mut().push(file)));
    invalidations
}

async fn is_cached(host: &Host, file: FileId) -> bool {
    host.attributes_to_cache(file).await.unwrap().1 == ATTRIBUTE_TIMEOUT
}

#[test]
fn attributes_are_cached_only_under_a_token() {
    let (stage, disk) = Stage::formatted_disk(1);
    stage.play(&disk, HostOptions::default(), async move |host, _| {
        let file = make_then_open(&host, "file").await;
        assert!(!is_cached(&host, file).await, "nobody has asked for a token yet");
        host.write(file, 0, b"bytes", Durable::Soon).await.unwrap();
        assert!(is_cached(&host, file).await);
        assert!(!is_cached(&host, host.root()).await, "a directory has no token");
        host.link(file, host.root(), b"other name").await.unwrap();
        assert!(!is_cached(&host, file).await, "a change of names gives the token back");
        host.read(file, 0, 1).await.unwrap();
        assert!(is_cached(&host, file).await, "a token for reading is enough");
    });
}

#[test]
fn kernel_forgets_attributes_before_a_peer_has_the_file() {
    for seed in 0..50 {
        let (stage, disk) = Stage::formatted_disk(seed);
        stage.play(&disk, HostOptions::default(), async move |host, stage| {
            let peer = stage.peer();
            let world = stage.world();
            let file = make(&host, "file").await;
            let invalidations = forgotten(&host);
            // The size that the kernel would answer with, until it is asked to forget.
            let cached: Rc<Cell<Option<u64>>> = Rc::default();
            host.write(file, 0, b"x", Durable::Soon).await.unwrap();
            let (looking, seen) = (host.clone(), cached.clone());
            let forgets = invalidations.clone();
            let lookups = spawn_with_result(&*world, async move {
                for _ in 0..400 {
                    let before = forgets.borrow().len();
                    let (attributes, time) = looking.attributes_to_cache(file).await.unwrap();
                    // As in the kernel: an answer requested before the invalidation is dropped.
                    if time == ATTRIBUTE_TIMEOUT && before == forgets.borrow().len() {
                        seen.set(Some(attributes.version.size));
                    }
                    let _ = looking.read(file, 0, 1).await;
                }
            });
            let open = peer.open(file, OpenMode::ReadWrite).await.unwrap();
            for size in 2..12u64 {
                stage.sleep(Duration::from_micros(seed * 7)).await;
                let before = invalidations.borrow().len();
                peer.take_token(open, Token::ExclusiveWrite).await.unwrap();
                if invalidations.borrow().len() > before {
                    cached.set(None);
                }
                peer.write(open, size - 1, b"x").await.unwrap();
                assert!(
                    cached.get().is_none(),
                    "seed {seed}: {:?} cached while a peer writes",
                    cached.get()
                );
                peer.return_token(file).await.unwrap();
            }
            peer.close(open).await.unwrap();
            lookups.await.unwrap();
        });
    }
}

#[test]
fn kernel_forgets_attributes_when_the_connection_is_lost() {
    let (stage, disk) = Stage::formatted_disk(3);
    let world = stage.world();
    let inner = stage.clone();
    stage.play(&disk, HostOptions::default(), async move |host, _| {
        let file = make(&host, "file").await;
        host.write(file, 0, b"x", Durable::Now).await.unwrap();
        let invalidations = forgotten(&host);
        assert!(is_cached(&host, file).await);
        inner.connect().fence(&identity()).await.unwrap();
        sleep(&*world, Duration::from_secs(1)).await;
        assert_eq!(*invalidations.borrow(), [file]);
    });
}

#[test]
fn directories_are_cached_only_as_the_mount_allows() {
    const WHILE: Duration = Duration::from_millis(20);
    for (directories, expected) in
        [(HostOptions::default().directories, Duration::ZERO), (WHILE, WHILE)]
    {
        let (stage, disk) = Stage::formatted_disk(1);
        stage.play(
            &disk,
            HostOptions { directories, ..HostOptions::default() },
            async move |host, _| {
                let node = NewNode::Directory { mode: 0o755 };
                let made = host.make(host.root(), b"directory", node, ROOT).await.unwrap();
                let file = make(&host, "file").await;
                host.write(file, 0, b"bytes", Durable::Soon).await.unwrap();
                for directory in [host.root(), made.file] {
                    let (attributes, cached) = host.attributes_to_cache(directory).await.unwrap();
                    assert_eq!((cached, host.lookup_timeout(&attributes)), (expected, expected));
                }
                let (attributes, cached) = host.attributes_to_cache(file).await.unwrap();
                assert_eq!(
                    (cached, host.lookup_timeout(&attributes)),
                    (ATTRIBUTE_TIMEOUT, Duration::ZERO)
                );
            },
        );
    }
}
