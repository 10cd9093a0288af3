//! What the servers have of a client that was killed: what recovery goes by.

use crate::common::{Cluster, connect, make, next_event, run};
use ceph::CephStore;
use device::World;
use runtime::RealWorld;
use std::rc::Rc;
use std::time::Duration;
use store::{FileId, OpenFile, OpenMode, Store as _, StoreEvent, Token, Version};

/// A file that is held, with the states that the servers had and those that were told since.
struct Held {
    store: Rc<CephStore>,
    file: FileId,
    open: OpenFile,
    base: Version,
    told: Vec<Version>,
}

impl Held {
    async fn make(store: &Rc<CephStore>, name: &str) -> Held {
        let file = make(store, name).await;
        let open = store.open(file, OpenMode::ReadWrite).await.unwrap();
        let base = store.take_token(open, Token::ExclusiveWrite).await.unwrap().version;
        Held { store: store.clone(), file, open, base, told: vec![base] }
    }
    fn last(&self) -> Version {
        *self.told.last().unwrap()
    }
    async fn append(&mut self, bytes: &[u8]) {
        let version = self.store.write(self.open, self.last().size, bytes).await.unwrap().version;
        self.told.push(version);
    }
    async fn make_durable(&mut self) {
        self.store.make_durable(self.open).await.unwrap();
        self.base = self.last();
    }
    /// As a host does.
    async fn append_within_its_room(&mut self, bytes: &[u8]) {
        if self.last().size + bytes.len() as u64 >= self.store.held_below(self.base.size) {
            self.make_durable().await;
        }
        self.append(bytes).await;
    }
    /// What another life of the client finds.
    async fn die(self) -> (Held, Version) {
        let helper = self.store.helper().unwrap() as i32;
        // SAFETY: a signal to the helper that this test started, and has not yet reaped.
        assert_eq!(unsafe { libc::kill(helper, libc::SIGKILL) }, 0);
        let StoreEvent::Disconnected { fenced: false } = next_event(&self.store).await else {
            panic!("no end was told")
        };
        self.store.reconnect().await.unwrap();
        let open = self.store.open(self.file, OpenMode::ReadWrite).await.unwrap();
        let found = self.store.take_token(open, Token::ExclusiveWrite).await.unwrap().version;
        (self, found)
    }
    async fn dies_in_a_known_state(self, what: &str) {
        let (held, found) = self.die().await;
        let told = held.told.contains(&found);
        assert!(
            told || (found.number == held.base.number && found.size >= held.base.size),
            "{what}: {found:?} was not told, and follows {:?}, {:?}",
            held.base,
            held.last()
        );
    }
}

async fn wait(world: &RealWorld, milliseconds: u64) {
    world.sleep_until(world.now().plus(Duration::from_millis(milliseconds))).await;
}

#[test]
fn a_killed_client_leaves_a_told_state_or_its_last_durable_number() {
    let cluster = Cluster::small();
    let options = cluster.options("here");
    run(|world| async move {
        let store = Rc::new(connect(&world, options).await);
        let mut held = Held::make(&store, "small").await;
        for _ in 0..100 {
            held.append_within_its_room(&[1; 1024]).await;
        }
        held.dies_in_a_known_state("a small file").await;

        let mut held = Held::make(&store, "growing").await;
        for _ in 0..5200 {
            held.append_within_its_room(&[1; 1024]).await;
        }
        held.dies_in_a_known_state("a growing file").await;

        // More than the library buffers, in place.
        let mut held = Held::make(&store, "large").await;
        let open = held.open;
        for round in 0..80u64 {
            let version = store
                .write(open, (round % 2) << 20, &vec![round as u8; 1 << 20])
                .await
                .unwrap()
                .version;
            held.told.push(version);
            if round == 1 {
                held.make_durable().await;
            }
        }
        wait(&world, 200).await;
        held.dies_in_a_known_state("a file with much in the buffer").await;

        for delay in 0..8 {
            let mut held = Held::make(&store, &format!("synced-{delay}")).await;
            for _ in 0..2500 {
                held.append_within_its_room(&[1; 1024]).await;
            }
            let durable = runtime::spawn_with_result(&world, store.make_durable(held.open));
            wait(&world, delay).await;
            held.dies_in_a_known_state(&format!("{delay} ms into a sync")).await;
            drop(durable.await);
        }
    });
}

/// Why a host makes a file durable before it outgrows its room.
#[test]
fn a_file_that_outgrows_its_room_is_reported_with_an_unannounced_size() {
    let cluster = Cluster::small();
    let options = cluster.options("here");
    run(|world| async move {
        let store = Rc::new(connect(&world, options).await);
        let mut held = Held::make(&store, "growing").await;
        for _ in 0..2100 {
            held.append(&[1; 1024]).await;
        }
        wait(&world, 200).await;
        let (held, found) = held.die().await;
        assert!(!held.told.contains(&found) && found.number > held.base.number, "{found:?}");
        let before = held.told.iter().find(|state| state.number == found.number).unwrap();
        assert_eq!(found.ctime_ns, before.ctime_ns);
        assert_eq!(found.size, before.size + 1024);
    });
}
