//! Features of the simulated cluster besides the rules of `Store`: a busy metadata server, leases
//! of names, Linux's client.

use device::World;
use runtime::VirtualWorld;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use store::{
    Cluster, Creator, Cut, CutKind, FileId, Identity, MetadataTimes, Moment, Network, NewNode,
    OpenMode, SimulatedStore, Store, Token,
};

const OWN: Creator = Creator { uid: 0, gid: 0, umask: 0 };

fn cluster(network: Network) -> (VirtualWorld, Cluster) {
    let world = VirtualWorld::new(1);
    let cluster = Cluster::new(Rc::new(world.clone()), network, Vec::new(), 1);
    (world, cluster)
}

async fn make(store: &dyn Store, name: &str) -> FileId {
    let node = NewNode::Regular { mode: 0o644 };
    store.make(store.root(), name.as_bytes(), node, OWN).await.unwrap().file
}

/// Times of which no sum equals another.
fn metadata_times() -> MetadataTimes {
    let [change, removal, open, lookup, names_left, still_known, attributes, token] =
        [1, 2, 4, 8, 16, 32, 64, 128].map(Duration::from_millis);
    MetadataTimes { change, removal, open, lookup, names_left, still_known, attributes, token }
}

#[test]
fn a_metadata_server_serves_messages_one_after_another() {
    let metadata = metadata_times();
    let (world, cluster) = cluster(Network { metadata, ..Network::default() });
    let store = Rc::new(SimulatedStore::connect(&cluster, Identity("one".into())));
    let clock = world.clone();
    let lookups = world.run(async move {
        let file = make(&*store, "file").await;
        let begun = clock.now();
        let lookups = (0..10).map(|_| {
            let store = store.clone();
            runtime::spawn_with_result(
                &clock,
                async move { store.attributes(file).await.map(drop) },
            )
        });
        for look in lookups.collect::<Vec<_>>() {
            look.await.unwrap().unwrap();
        }
        clock.now().since(begun)
    });
    assert!(lookups >= 10 * metadata.lookup && lookups < 11 * metadata.lookup, "{lookups:?}");
    assert_eq!(cluster.traffic().metadata_requests, 11);
}

#[test]
fn each_kind_of_message_takes_its_own_time_of_the_metadata_server() {
    let metadata = metadata_times();
    let (world, cluster) = cluster(Network { metadata, ..Network::default() });
    let store = SimulatedStore::connect(&cluster, Identity("one".into()));
    let clock = world.clone();
    world.run(async move {
        let begun = Cell::new(clock.now());
        // The network takes less than half of a millisecond.
        let took = || {
            let now = clock.now();
            now.since(begun.replace(now)).as_millis()
        };
        let created = store.create(store.root(), b"file", 0o644, OWN).await.unwrap();
        let (file, open) = (created.found.file, created.open.unwrap());
        assert_eq!(took(), 1, "a change");
        store.write(open, 0, b"mail").await.unwrap();
        store.attributes(file).await.unwrap();
        assert_eq!(took(), 0, "what a client holds it knows");
        store.make_durable(open).await.unwrap();
        assert_eq!(took(), 64 + 32, "attributes, and the question after a sync");
        store.return_token(file).await.unwrap();
        assert_eq!(took(), 128, "a token that is returned");
        store.attributes(file).await.unwrap();
        assert_eq!(took(), 8, "a lookup");
        let open = store.open(file, OpenMode::ReadWrite).await.unwrap();
        assert_eq!(took(), 4, "an open");
        store.take_token(open, Token::ExclusiveWrite).await.unwrap();
        assert_eq!(took(), 128, "a token that is taken");
        store.unlink(store.root(), b"file").await.unwrap();
        assert_eq!(took(), 2, "a removal");
        assert_eq!(store.attributes(file).await.unwrap().links, 0);
        assert_eq!(took(), 16, "the question how many names are left");
        assert_eq!(store.attributes(file).await.unwrap().links, 0);
        assert_eq!(took(), 0, "it was answered");
    });
}

#[test]
fn a_server_that_crashed_serves_no_client_until_it_is_back() {
    let (world, cluster) = cluster(Network::default());
    let [one, other] =
        ["one", "other"].map(|name| SimulatedStore::connect(&cluster, Identity(name.into())));
    let clock = world.clone();
    world.run(async move {
        let file = make(&one, "file").await;
        let (open, peer) =
            (one.open(file, OpenMode::ReadWrite).await.unwrap(), other.open(file, OpenMode::Read));
        let peer = peer.await.unwrap();
        let cut = |at| Cut { kind: CutKind::Server, message: at, moment: Moment::Answer };
        for is_metadata in [true, false] {
            cluster.cut_at(cut(cluster.messages() + 1));
            let asked: store::Answer<()> = match is_metadata {
                true => Box::pin({
                    let asked = one.attributes(file);
                    async { asked.await.map(drop) }
                }),
                false => Box::pin({
                    let asked = one.read(open, 0, 1);
                    async { asked.await.map(drop) }
                }),
            };
            let asked = runtime::spawn_with_result(&clock, asked);
            clock.sleep_until(clock.now().plus(Duration::from_millis(1))).await;
            let begun = clock.now();
            other.attributes(file).await.unwrap();
            let metadata = clock.now().since(begun);
            let begun = clock.now();
            other.read(peer, 0, 1).await.unwrap();
            let content = clock.now().since(begun);
            let (waited, served) =
                if is_metadata { (metadata, content) } else { (content, metadata) };
            assert!(
                waited > Duration::from_millis(190) && served < Duration::from_millis(1),
                "{waited:?}, {served:?}"
            );
            asked.await.unwrap().unwrap();
        }
    });
}

#[test]
fn a_known_name_costs_no_message_until_another_client_renames() {
    let (world, cluster) = cluster(Network::default());
    let [one, other] =
        ["one", "other"].map(|name| SimulatedStore::connect(&cluster, Identity(name.into())));
    world.run(async move {
        let file = one.create(one.root(), b"file", 0o644, OWN).await.unwrap().found.file;
        let messages = cluster.messages();
        assert_eq!(one.lookup(one.root(), b"file").await.unwrap().file, file);
        assert_eq!(cluster.messages(), messages);
        other
            .rename(other.root(), b"file", other.root(), b"moved", store::RenameOver::Replace)
            .await
            .unwrap();
        assert!(one.lookup(one.root(), b"file").await.is_err(), "the lease ended with the change");
    });
}

#[test]
fn a_sync_of_the_kernels_client_leaves_attributes_for_later() {
    let (world, cluster) = cluster(Network::default());
    let store = SimulatedStore::connect_as_kernel(&cluster, Identity("one".into()));
    let clock = world.clone();
    world.run(async move {
        let created = store.create(store.root(), b"file", 0o644, OWN).await.unwrap();
        store.write(created.open.unwrap(), 0, b"mail").await.unwrap();
        store.make_durable(created.open.unwrap()).await.unwrap();
        let (content, version) = cluster.content(created.found.file).unwrap();
        assert_eq!((&content[..], version.size), (&b"mail"[..], 0));
        clock.sleep_until(clock.now().plus(Duration::from_millis(1))).await;
        assert_eq!(cluster.content(created.found.file).unwrap().1.size, 4);
    });
}

/// Two pieces of one page, and one in another.
#[test]
fn a_kernels_client_sends_whole_pages_and_ours_the_bytes_that_changed() {
    for (is_kernel, expected) in [(false, 30), (true, 4096 + 2048)] {
        let (world, cluster) = cluster(Network::default());
        let identity = Identity("one".into());
        let store = match is_kernel {
            true => SimulatedStore::connect_as_kernel(&cluster, identity),
            false => SimulatedStore::connect(&cluster, identity),
        };
        let server = cluster.clone();
        world.run(async move {
            let created = store.create(store.root(), b"file", 0o644, OWN).await.unwrap();
            let (file, open) = (created.found.file, created.open.unwrap());
            for at in [0, 1000, 4096 + 2038] {
                store.write(open, at, &[7; 10]).await.unwrap();
            }
            store.make_durable(open).await.unwrap();
            assert_eq!(server.traffic().data_bytes, expected);
            let content = server.content(file).unwrap().0;
            assert_eq!(
                (content[9], content[10], content[1009], content.len()),
                (7, 0, 7, 4096 + 2048)
            );
        });
    }
}

#[test]
fn overwritten_bytes_take_the_clients_buffer_once() {
    for (stride, sent) in [(0, 0), (60, 0), (200, 1100)] {
        let (world, cluster) = cluster(Network { buffer_bytes: 1000, ..Network::default() });
        let store = SimulatedStore::connect(&cluster, Identity("one".into()));
        let server = cluster.clone();
        world.run(async move {
            let created = store.create(store.root(), b"file", 0o644, OWN).await.unwrap();
            for round in 0..15 {
                store.write(created.open.unwrap(), round * stride, &[7; 100]).await.unwrap();
            }
            assert_eq!(server.traffic().data_bytes, sent, "{stride} bytes further on each time");
        });
    }
}

/// Messages in flight share the link; no writer waits for it.
#[test]
fn content_passes_a_link_one_message_after_another() {
    const CHUNKS: u64 = 50;
    let (world, cluster) = cluster(Network { bytes_per_second: 1_000_000, ..Network::default() });
    let store = Rc::new(SimulatedStore::connect(&cluster, Identity("one".into())));
    let clock = world.clone();
    let (all, write) = world.run(async move {
        let created = store.create(store.root(), b"file", 0o644, OWN).await.unwrap();
        let open = created.open.unwrap();
        for piece in 0..CHUNKS {
            store.write(open, piece * 20_000, &[7; 10_000]).await.unwrap();
        }
        let begun = clock.now();
        let syncing = store.clone();
        let sync =
            runtime::spawn_with_result(&clock, async move { syncing.make_durable(open).await });
        clock.sleep_until(begun.plus(Duration::from_millis(100))).await;
        let before = clock.now();
        store.write(open, 0, &[8; 10]).await.unwrap();
        let write = clock.now().since(before);
        sync.await.unwrap().unwrap();
        (clock.now().since(begun), write)
    });
    let link = Duration::from_millis(10 * CHUNKS);
    assert!(all >= link && all < link + Duration::from_millis(5), "{all:?}");
    assert_eq!(write, Duration::ZERO);
}
