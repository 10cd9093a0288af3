//! The servers' state of a killed client's files, on which recovery depends.

use crate::common::{connect, make, next_event, on_cluster};
use ceph::CephStore;
use device::World;
use runtime::RealWorld;
use std::rc::Rc;
use std::time::Duration;
use store::{
    Answer, AttributeChange, FileAttributes, FileId, OpenFile, OpenMode, Store as _, StoreError,
    StoreEvent, Token, Version,
};

/// A held file, with the states that the servers had and those that were reported since.
struct HeldToken {
    store: Rc<CephStore>,
    file: FileId,
    open: OpenFile,
    base: Version,
    reported: Vec<Version>,
}

impl HeldToken {
    async fn make(store: &Rc<CephStore>, name: &str) -> HeldToken {
        HeldToken::make_with(store, name, |open| store.take_token(open, Token::ExclusiveWrite))
            .await
    }
    async fn make_to_recover(store: &Rc<CephStore>, name: &str) -> HeldToken {
        HeldToken::make_with(store, name, |open| store.take_token_to_recover(open)).await
    }
    async fn make_with(
        store: &Rc<CephStore>,
        name: &str,
        take: impl FnOnce(OpenFile) -> Answer<FileAttributes>,
    ) -> HeldToken {
        let file = make(store, name).await;
        let open = store.open(file, OpenMode::ReadWrite).await.unwrap();
        let base = take(open).await.unwrap().version;
        HeldToken { store: store.clone(), file, open, base, reported: vec![base] }
    }
    fn last(&self) -> Version {
        *self.reported.last().unwrap()
    }
    async fn append(&mut self, bytes: &[u8]) {
        let version = self.store.write(self.open, self.last().size, bytes).await.unwrap().version;
        self.reported.push(version);
    }
    async fn make_durable(&mut self) {
        self.store.make_durable(self.open).await.unwrap();
        self.base = self.last();
    }
    /// Appends as a host does.
    async fn append_within_its_grant(&mut self, bytes: &[u8]) {
        if self.last().size + bytes.len() as u64 >= self.store.held_below(self.base.size) {
            self.make_durable().await;
        }
        self.append(bytes).await;
    }
    /// Kills the client. Returns what its next connection finds.
    async fn die(self) -> (HeldToken, Version) {
        let helper = self.store.helper().unwrap() as i32;
        // SAFETY: a signal to the helper that this test started, and has not yet reaped.
        assert_eq!(unsafe { libc::kill(helper, libc::SIGKILL) }, 0);
        let StoreEvent::Disconnected { fenced: false } = next_event(&self.store).await else {
            panic!("no end was reported")
        };
        self.store.reconnect().await.unwrap();
        let open = self.store.open(self.file, OpenMode::ReadWrite).await.unwrap();
        let found = self.store.take_token(open, Token::ExclusiveWrite).await.unwrap().version;
        (self, found)
    }
    async fn dies_in_a_known_state(self, what: &str) {
        let (held, found) = self.die().await;
        let reported = held.reported.contains(&found);
        assert!(
            reported || (found.number == held.base.number && found.size >= held.base.size),
            "{what}: {found:?} was not reported, and follows {:?}, {:?}",
            held.base,
            held.last()
        );
    }
}

async fn wait(world: &RealWorld, milliseconds: u64) {
    world.sleep_until(world.now().plus(Duration::from_millis(milliseconds))).await;
}

#[test]
fn a_killed_client_leaves_a_reported_state_or_its_durable_number() {
    on_cluster(async move |world, [options, _]| {
        let store = Rc::new(connect(&world, options).await);
        let mut held = HeldToken::make(&store, "small").await;
        for _ in 0..100 {
            held.append_within_its_grant(&[1; 1024]).await;
        }
        held.dies_in_a_known_state("a small file").await;

        let mut held = HeldToken::make(&store, "growing").await;
        for _ in 0..5200 {
            held.append_within_its_grant(&[1; 1024]).await;
        }
        held.dies_in_a_known_state("a growing file").await;

        // More than the library buffers, in place.
        let mut held = HeldToken::make(&store, "large").await;
        let open = held.open;
        for round in 0..80u64 {
            let version = store
                .write(open, (round % 2) << 20, &vec![round as u8; 1 << 20])
                .await
                .unwrap()
                .version;
            held.reported.push(version);
            if round == 1 {
                held.make_durable().await;
            }
        }
        wait(&world, 200).await;
        held.dies_in_a_known_state("a file with much in the buffer").await;

        for delay in 0..8 {
            let mut held = HeldToken::make(&store, &format!("synced-{delay}")).await;
            for _ in 0..2500 {
                held.append_within_its_grant(&[1; 1024]).await;
            }
            let durable = runtime::spawn_with_result(&world, store.make_durable(held.open));
            wait(&world, delay).await;
            held.dies_in_a_known_state(&format!("{delay} ms into a sync")).await;
            drop(durable.await);
        }
    });
}

/// Shows why a host makes a file durable before it outgrows its granted size.
#[test]
fn an_outgrown_file_is_reported_with_an_unannounced_size() {
    on_cluster(async move |world, [options, _]| {
        let store = Rc::new(connect(&world, options).await);
        let mut held = HeldToken::make(&store, "growing").await;
        for _ in 0..2100 {
            held.append(&[1; 1024]).await;
        }
        wait(&world, 200).await;
        let (held, found) = held.die().await;
        assert!(!held.reported.contains(&found) && found.number > held.base.number, "{found:?}");
        let before = held.reported.iter().find(|state| state.number == found.number).unwrap();
        assert_eq!(found.ctime_ns, before.ctime_ns);
        assert_eq!(found.size, before.size + 1024);
    });
}

/// Another client asks for a file of a recovery, at once and for longer than any other answer to a
/// recall is kept. The servers get neither the state before the recall nor one after it.
#[test]
fn a_recovery_that_is_killed_amid_a_recall_leaves_what_it_found() {
    on_cluster(async move |world, [options, other]| {
        let store = Rc::new(connect(&world, options).await);
        let peer = Rc::new(connect(&world, other).await);
        for (writes, milliseconds) in [(0, 0), (1, 0), (1, 1500), (3, 300)] {
            let name = format!("{writes} writes, {milliseconds} ms");
            let mut held = HeldToken::make_to_recover(&store, &name).await;
            for _ in 0..writes {
                held.append(&[1; 1024]).await;
            }
            let (looker, file) = (peer.clone(), held.file);
            let look = runtime::spawn_with_result(&world, async move { looker.find(file).await });
            let StoreEvent::Recall { .. } = next_event(&store).await else { panic!("no recall") };
            wait(&world, milliseconds).await;
            let late = store.write(held.open, held.last().size, &[2; 1024]).await;
            assert_eq!(late, Err(StoreError::TokenHeld), "{name}");
            let mode = AttributeChange { mode: Some(0o600), ..AttributeChange::default() };
            let late = store.set_attributes(file, mode).await;
            assert_eq!(late, Err(StoreError::TokenHeld), "{name}");
            let (held, found) = held.die().await;
            assert_eq!(found.number, held.base.number, "{name}: {found:?}");
            assert!(look.await.unwrap().is_ok());
            store.return_token(file).await.unwrap();
        }
    });
}

/// A sync under a recall, and one that the recall meets, report what the ledger has.
#[test]
fn a_recovery_returns_a_recalled_token() {
    on_cluster(async move |world, [options, other]| {
        let store = Rc::new(connect(&world, options).await);
        let peer = Rc::new(connect(&world, other).await);
        for delay in 0..12 {
            let mut held = HeldToken::make_to_recover(&store, &format!("returned-{delay}")).await;
            held.append(&[1; 1024]).await;
            let (looker, file) = (peer.clone(), held.file);
            let look = runtime::spawn_with_result(&world, async move { looker.find(file).await });
            wait(&world, delay / 2).await;
            held.make_durable().await;
            store.return_token(file).await.unwrap();
            store.close(held.open).await.unwrap();
            let seen = look.await.unwrap().unwrap().attributes.version;
            assert!(seen == held.last() || seen.size == 0, "{seen:?}");
            let open = peer.open(file, OpenMode::ReadWrite).await.unwrap();
            let found = peer.take_token(open, Token::ExclusiveWrite).await.unwrap().version;
            assert_eq!(found, held.last());
            peer.return_token(file).await.unwrap();
            peer.close(open).await.unwrap();
        }
    });
}
