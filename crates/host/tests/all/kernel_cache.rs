//! Attributes that the kernel may cache, and when they are invalidated.

use crate::common::*;
use device::World;
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

/// A front end's kernel, whose programs look one file up all the time.
#[derive(Default)]
struct Kernel {
    /// The size that it would answer with, until it is asked to forget.
    cached: Cell<Option<u64>>,
    invalidations: Cell<u64>,
    /// Number of invalidations before a peer had its latest token.
    before_token: Cell<u64>,
    /// Lookups between an invalidation and the token of the peer.
    lookups_under_recall: Cell<u64>,
    has_ended: Cell<bool>,
}

impl Kernel {
    fn of(host: &Host) -> Rc<Kernel> {
        let kernel: Rc<Kernel> = Rc::default();
        let asked = kernel.clone();
        host.on_forget(Box::new(move |_| {
            asked.cached.set(None);
            asked.invalidations.set(asked.invalidations.get() + 1);
        }));
        kernel
    }
    async fn look_up(&self, host: &Host, world: &dyn World, file: FileId) {
        while !self.has_ended.get() {
            let before = self.invalidations.get();
            let (attributes, time) = host.attributes_to_cache(file).await.unwrap();
            // As in the kernel: an answer requested before the invalidation is dropped.
            if before == self.invalidations.get() {
                if time == ATTRIBUTE_TIMEOUT {
                    self.cached.set(Some(attributes.version.size));
                }
                if before > self.before_token.get() {
                    assert!(time.is_zero(), "cached under a recalled token");
                    self.lookups_under_recall.set(self.lookups_under_recall.get() + 1);
                }
            }
            sleep(world, Duration::from_micros(20)).await;
        }
    }
    /// Takes the token again and again, so that there is something to cache.
    async fn read(&self, host: &Host, world: &dyn World, file: FileId) {
        while !self.has_ended.get() {
            let _ = host.read(file, 0, 1).await;
            sleep(world, Duration::from_micros(50)).await;
        }
    }
}

#[test]
fn kernel_forgets_attributes_before_a_peer_has_the_file() {
    // Times that the peer came and found something cached.
    let (mut cached, mut lookups_under_recall) = (0, 0);
    for seed in 0..50 {
        let (stage, disk) = Stage::formatted_disk(seed);
        let played = stage.play(&disk, HostOptions::default(), async move |host, stage| {
            let (peer, world) = (stage.peer(), stage.world());
            let file = make(&host, "file").await;
            host.write(file, 0, b"x", Durable::Soon).await.unwrap();
            let kernel = Kernel::of(&host);
            let (looking, of_lookups, clock) = (host.clone(), kernel.clone(), world.clone());
            let lookups = spawn_with_result(&*world, async move {
                of_lookups.look_up(&looking, &*clock, file).await;
            });
            let (reading, of_reads, clock) = (host.clone(), kernel.clone(), world.clone());
            let reads = spawn_with_result(&*world, async move {
                of_reads.read(&reading, &*clock, file).await;
            });
            let open = peer.open(file, OpenMode::ReadWrite).await.unwrap();
            let mut cached = 0;
            for size in 2..12u64 {
                stage.sleep(Duration::from_micros(500 + seed * 7)).await;
                cached += u64::from(kernel.cached.get().is_some());
                peer.take_token(open, Token::ExclusiveWrite).await.unwrap();
                kernel.before_token.set(kernel.invalidations.get());
                assert_eq!(kernel.cached.get(), None, "seed {seed}: a peer may write");
                peer.write(open, size - 1, b"x").await.unwrap();
                assert_eq!(kernel.cached.get(), None, "seed {seed}: a peer has written");
                peer.return_token(file).await.unwrap();
            }
            kernel.has_ended.set(true);
            peer.close(open).await.unwrap();
            lookups.await.unwrap();
            reads.await.unwrap();
            (cached, kernel.lookups_under_recall.get())
        });
        cached += played.0;
        lookups_under_recall += played.1;
    }
    assert!(cached > 400, "{cached} times something was cached when the peer came");
    assert!(lookups_under_recall > 1000, "{lookups_under_recall} lookups amid a recall");
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
