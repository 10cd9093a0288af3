//! Registered hosts, and a file that is taken over from one that died.

use crate::common::*;
use std::rc::Rc;
use store::{AttributeChange, FileId, HostPhase, OpenMode, Store, Token, Version};

const FILE: FileId = FileId(1);

async fn has_others(store: &dyn Store) -> bool {
    store.may_have_dead_owner(FILE).await.unwrap()
}

#[test]
fn a_host_is_known_to_others_from_its_first_token_to_its_clean_end() {
    let cluster = Rc::new(Cluster::small());
    let (here, there, counter) =
        (cluster.options("here"), cluster.options("there"), cluster.clone());
    run(|world| async move {
        let (store, other) = (connect(&world, here).await, connect(&world, there).await);
        store.register_host(HostPhase::Recovering).await.unwrap();
        assert!(!has_others(&store).await, "it knows itself");
        other.register_host(HostPhase::Recovering).await.unwrap();
        assert!(has_others(&store).await);
        let before = counter.metadata_requests();
        for _ in 0..100 {
            assert!(has_others(&store).await);
        }
        let requests = counter.metadata_requests() - before;
        assert!(requests < 5, "{requests} for 100 questions");
        // Registered again, as after a crash, and ended twice.
        other.register_host(HostPhase::Recovering).await.unwrap();
        assert!(has_others(&store).await);
        other.unregister_host().await.unwrap();
        other.unregister_host().await.unwrap();
        assert!(!has_others(&store).await);
    });
}

/// Covers the state that a recovery of the first owner compares.
#[test]
fn a_sync_after_a_takeover_leaves_a_state_that_the_dead_owner_never_had() {
    on_cluster(async move |world, [here, there]| {
        let (dead, store) = (connect(&world, here).await, connect(&world, there).await);
        dead.register_host(HostPhase::Recovering).await.unwrap();
        let file = make(&dead, "file").await;
        let open = dead.open(file, OpenMode::ReadWrite).await.unwrap();
        let base = dead.take_token(open, Token::ExclusiveWrite).await.unwrap().version;
        let mut known: Vec<Version> = vec![base];
        for at in 0..3 {
            known.push(dead.write(open, at, b"theirs").await.unwrap().version);
        }
        // SAFETY: a signal to the helper that this test started, and has not yet reaped.
        assert_eq!(unsafe { libc::kill(dead.helper().unwrap() as i32, libc::SIGKILL) }, 0);
        next_event(&dead).await;
        // As its recovery does.
        store.fence(&store::Identity("here".into())).await.unwrap();
        let open = store.open(file, OpenMode::ReadWrite).await.unwrap();
        let found = store.take_token(open, Token::ExclusiveWrite).await.unwrap().version;
        assert_eq!(found.number, base.number);
        assert!(has_others(&store).await, "a dead host stays registered");
        store.write(open, 0, b"ours").await.unwrap();
        store.make_durable(open).await.unwrap();
        store.return_token(file).await.unwrap();
        let left = store.find(file).await.unwrap().attributes.version;
        assert_ne!(left.number, base.number);
        assert!(!known.contains(&left), "{left:?} is one of {known:?}");
    });
}

/// A mode is buffered under the token as content is. Sent at once, it would give the file a state
/// between those that a recovery compares with.
#[test]
fn a_mode_that_is_set_leaves_a_state_that_was_reported() {
    on_cluster(async move |world, [here, there]| {
        let (dead, other) = (connect(&world, here).await, connect(&world, there).await);
        // A file that this host has made may have its mode buffered, too.
        let file = make(&other, "file").await;
        let open = dead.open(file, OpenMode::ReadWrite).await.unwrap();
        let base = dead.take_token(open, Token::ExclusiveWrite).await.unwrap().version;
        let mut known: Vec<Version> = vec![base];
        for at in 0..2 {
            known.push(dead.write(open, at * 5, b"bytes").await.unwrap().version);
        }
        let mode = AttributeChange { mode: Some(0o600), ..AttributeChange::default() };
        known.push(dead.set_attributes(file, mode).await.unwrap().version);
        // SAFETY: a signal to the helper that this test started, and has not yet reaped.
        assert_eq!(unsafe { libc::kill(dead.helper().unwrap() as i32, libc::SIGKILL) }, 0);
        next_event(&dead).await;
        other.fence(&store::Identity("here".into())).await.unwrap();
        let left = other.find(file).await.unwrap().attributes.version;
        assert!(known.contains(&left), "{left:?} is none of {known:?}");
    });
}
