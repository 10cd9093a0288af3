//! The rules of `Store` between clients, on every store of this crate: tokens, locks, attributes
//! and notes.

use crate::contract::{make, on_a_directory, on_each, open_alone, own, return_recalled};
use device::World;
use runtime::RealWorld;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::rc::Rc;
use std::time::Duration;
use store::{
    Answer, AttributeChange, FileId, FileLock, HostPhase, Identity, LOCK_END, LocalStore, LockKind,
    LockMode, LockOwner, NewNode, OpenFile, OpenMode, Refusal, RenameOver, Store, StoreError,
    StoreEvent, Token, XattrMode,
};

pub async fn held(store: &Rc<dyn Store>, name: &str, content: &[u8]) -> (FileId, OpenFile) {
    let file = make(&**store, name).await;
    let open = open_alone(&**store, file).await;
    store.write(open, 0, content).await.unwrap();
    (file, open)
}

#[test]
fn a_change_of_attributes_recalls_anothers_token() {
    on_each(|(first, second, world)| async move {
        let (file, open) = held(&first, "file", b"buffered").await;
        return_recalled(&first, &*world);
        let change = AttributeChange { mode: Some(0o600), ..Default::default() };
        let changed = second.set_attributes(file, change).await.unwrap();
        assert_eq!((changed.mode, changed.version.size), (0o600, 8), "behind what was buffered");
        let found = first.take_token(open, Token::ExclusiveWrite).await.unwrap();
        assert_eq!((found.mode, found.version), (0o600, changed.version));
        let reported = first.write(open, 8, b"!").await.unwrap();
        first.make_durable(open).await.unwrap();
        let seen = second.attributes(file).await.unwrap();
        assert_eq!((seen.mode, seen.version), (0o600, reported.version));
        let cut = AttributeChange { size: Some(3), ..Default::default() };
        second.set_attributes(file, cut).await.unwrap();
        first.take_token(open, Token::ExclusiveWrite).await.unwrap();
        assert_eq!(first.read(open, 0, 99).await.unwrap(), b"buf");
    });
}

pub fn lock(number: u64, mode: Option<LockMode>, range: std::ops::Range<u64>) -> FileLock {
    FileLock { owner: LockOwner { kind: LockKind::Bytes, number }, mode, range }
}
pub const TAKEN: StoreError = StoreError::Refused(Refusal::Other(libc::EAGAIN));

#[test]
fn locks_exclude_owners_of_both_clients() {
    on_each(|(first, second, _)| async move {
        let file = make(&*first, "file").await;
        let open = first.open(file, OpenMode::ReadWrite).await.unwrap();
        let other = second.open(file, OpenMode::ReadWrite).await.unwrap();
        let (shared, exclusive) = (Some(LockMode::Shared), Some(LockMode::Exclusive));
        first.lock(open, lock(1, exclusive, 0..10)).await.unwrap();
        assert_eq!(second.lock(other, lock(1, shared, 9..11)).await, Err(TAKEN));
        assert_eq!(first.lock(open, lock(2, shared, 9..11)).await, Err(TAKEN), "on the same host");
        second.lock(other, lock(1, exclusive, 10..LOCK_END)).await.unwrap();
        let found = second.test_lock(other, lock(1, shared, 0..20)).await.unwrap().unwrap();
        assert_eq!((found.mode, found.range), (exclusive, 0..10));
        assert_eq!(first.test_lock(open, lock(1, shared, 0..10)).await.unwrap(), None, "its own");
        // One part becomes shared, another is released.
        first.lock(open, lock(1, shared, 0..5)).await.unwrap();
        first.lock(open, lock(1, None, 7..10)).await.unwrap();
        second.lock(other, lock(1, shared, 0..5)).await.unwrap();
        assert_eq!(second.lock(other, lock(1, shared, 6..7)).await, Err(TAKEN));
        second.lock(other, lock(1, exclusive, 7..10)).await.unwrap();
        let none = |number| FileLock::none_of(lock(number, None, 0..0).owner);
        first.lock(open, none(1)).await.unwrap();
        second.lock(other, lock(1, exclusive, 0..LOCK_END)).await.unwrap();
        second.lock(other, none(1)).await.unwrap();
        first.lock(open, lock(3, exclusive, 0..LOCK_END)).await.unwrap();
    });
}

#[test]
fn whole_file_locks_bind_both_clients_and_no_ranges() {
    on_each(|(first, second, _)| async move {
        let file = make(&*first, "file").await;
        let open = first.open(file, OpenMode::ReadWrite).await.unwrap();
        let other = second.open(file, OpenMode::Read).await.unwrap();
        let owner = LockOwner { kind: LockKind::Whole, number: 1 };
        let whole = |mode| FileLock { owner, mode, range: 0..LOCK_END };
        first.lock(open, whole(Some(LockMode::Exclusive))).await.unwrap();
        assert_eq!(second.lock(other, whole(Some(LockMode::Shared))).await, Err(TAKEN));
        second.lock(other, lock(1, Some(LockMode::Shared), 0..LOCK_END)).await.unwrap();
        first.lock(open, whole(Some(LockMode::Shared))).await.unwrap();
        second.lock(other, whole(Some(LockMode::Shared))).await.unwrap();
        first.lock(open, whole(None)).await.unwrap();
        second.lock(other, whole(Some(LockMode::Exclusive))).await.unwrap();
    });
}

#[test]
fn locks_of_a_lost_connection_are_free() {
    on_each(|(first, second, _)| async move {
        let file = make(&*first, "file").await;
        let open = first.open(file, OpenMode::ReadWrite).await.unwrap();
        let other = second.open(file, OpenMode::ReadWrite).await.unwrap();
        let all = lock(1, Some(LockMode::Exclusive), 0..LOCK_END);
        first.lock(open, all.clone()).await.unwrap();
        assert_eq!(second.lock(other, all.clone()).await, Err(TAKEN));
        first.reconnect().await.unwrap();
        second.lock(other, all).await.unwrap();
    });
}

/// Runs the script with two clients of a directory and its path.
pub fn on_two_of_a_directory<F: Future<Output = ()> + 'static>(
    script: impl FnOnce(crate::contract::Two, std::path::PathBuf) -> F,
) {
    let directory = tempfile::tempdir().unwrap();
    let world = runtime::RealWorld::new().unwrap();
    let shared: Rc<dyn device::World> = Rc::new(world.clone());
    let [first, second] = ["first", "second"].map(|name| -> Rc<dyn Store> {
        let name = store::Identity(name.into());
        Rc::new(store::LocalStore::open(shared.clone(), directory.path(), name).unwrap())
    });
    world.run(script((first, second, shared), directory.path().to_owned()));
    world.end();
}

/// Polls a call once: it has begun, and waits.
pub fn begin<T>(call: &mut Answer<T>) {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(call.as_mut().poll(&mut context).is_pending(), "it does not wait");
}

/// Two programs of one host wait for another host's token: the one's change must take neither what
/// the other has synced nor the state that its journal builds on.
#[test]
fn a_change_that_waited_keeps_what_was_written_before_it() {
    for what in ["mode", "size", "attribute", "link", "rename", "replace", "unlink"] {
        on_two_of_a_directory(move |(first, second, _), root| async move {
            let top = first.root();
            let (file, _) = held(&second, "file", b"old").await;
            second.return_token(file).await.unwrap();
            second.link(file, top, b"name").await.unwrap();
            make(&*second, "victim").await;
            let other = second.open(file, OpenMode::ReadWrite).await.unwrap();
            second.take_token(other, Token::ExclusiveWrite).await.unwrap();
            let open = first.open(file, OpenMode::ReadWrite).await.unwrap();
            let set = |change| -> Answer<()> {
                let set = first.set_attributes(file, change);
                Box::pin(async { set.await.map(drop) })
            };
            let mut changing: Answer<()> = match what {
                "mode" => set(AttributeChange { mode: Some(0o600), ..Default::default() }),
                "size" => set(AttributeChange { size: Some(4), ..Default::default() }),
                "attribute" => first.set_xattr(file, b"user.a", b"b", XattrMode::Set),
                "link" => {
                    let link = first.link(file, top, b"link");
                    Box::pin(async { link.await.map(drop) })
                }
                "rename" => first.rename(top, b"name", top, b"moved", RenameOver::Replace),
                "replace" => first.rename(top, b"victim", top, b"name", RenameOver::Replace),
                _ => first.unlink(top, b"name"),
            };
            begin(&mut changing);
            let mut taking = first.take_token(open, Token::ExclusiveWrite);
            begin(&mut taking);
            second.return_token(file).await.unwrap();
            let base = taking.await.unwrap().version;
            first.write(open, 0, b"mine").await.unwrap();
            changing.await.unwrap();
            let found = second.attributes(file).await.unwrap().version;
            let is_of_names = !matches!(what, "size" | "attribute");
            assert!(found == base || !is_of_names, "{what}: {found:?}, not {base:?}");
            assert_eq!(first.read(open, 0, 9).await.unwrap(), b"mine", "{what}");
            first.make_durable(open).await.unwrap();
            assert_eq!(std::fs::read(root.join("file")).unwrap(), b"mine", "{what}");
            let mode = std::fs::metadata(root.join("file")).unwrap().mode() & 0o777;
            assert!(what != "mode" || mode == 0o600, "{mode:o}");
        });
    }
}

/// Opening it gives it another time of change, which its holder would take for another program's.
#[test]
fn a_file_kept_from_its_owner_is_opened_once_others_have_flushed_it() {
    if ran_as_owner("a_file_kept_from_its_owner_is_opened_once_others_have_flushed_it") {
        return;
    }
    on_two_of_a_directory(|(first, second, world), root| async move {
        let created = second.create(second.root(), b"log", 0o200, own()).await.unwrap();
        let (file, open) = (created.found.file, created.open.unwrap());
        second.take_token(open, Token::ExclusiveWrite).await.unwrap();
        second.write(open, 0, b"theirs").await.unwrap();
        return_recalled(&second, &*world);
        first.open(file, OpenMode::ReadWrite).await.unwrap();
        second.make_durable(open).await.unwrap();
        let mode = std::fs::metadata(root.join("log")).unwrap().mode() & 0o7777;
        assert_eq!(mode, 0o200, "{mode:o}");
        let readable = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(root.join("log"), readable).unwrap();
        assert_eq!(std::fs::read(root.join("log")).unwrap(), b"theirs");
    });
}

#[test]
fn an_attribute_of_a_file_kept_from_its_owner_is_set() {
    if ran_as_owner("an_attribute_of_a_file_kept_from_its_owner_is_set") {
        return;
    }
    on_two_of_a_directory(|(first, _, _), _| async move {
        let node = NewNode::Regular { mode: 0o200 };
        let file = first.make(first.root(), b"log", node, own()).await.unwrap().file;
        first.set_xattr(file, b"user.a", b"b", XattrMode::Set).await.unwrap();
    });
}

#[test]
fn attributes_of_a_file_without_a_name_are_set_and_read() {
    on_two_of_a_directory(|(first, _, _), _| async move {
        let (file, _) = held(&first, "file", b"content").await;
        first.unlink(first.root(), b"file").await.unwrap();
        first.set_xattr(file, b"user.a", b"b", XattrMode::Set).await.unwrap();
        assert_eq!(first.xattr(file, b"user.a").await.unwrap(), b"b");
        assert_eq!(first.xattr_names(file).await.unwrap(), b"user.a\0");
        first.remove_xattr(file, b"user.a").await.unwrap();
        let gone = first.xattr(file, b"user.a").await;
        assert_eq!(gone.unwrap_err(), StoreError::Refused(Refusal::NoAttribute));
    });
}

#[test]
fn the_first_read_after_a_change_sets_the_access_time() {
    on_a_directory(|store, _| async move {
        let (file, open) = held(&store, "mail", b"new").await;
        let before = store.attributes(file).await.unwrap();
        store.read(open, 0, 9).await.unwrap();
        let read = store.attributes(file).await.unwrap();
        assert!(read.accessed >= before.modified && read.accessed > before.accessed);
        assert_eq!(read.version, before.version);
        store.read(open, 0, 9).await.unwrap();
        assert_eq!(store.attributes(file).await.unwrap().accessed, read.accessed, "only the first");
    });
}

#[test]
fn a_file_made_read_only_is_written_through_what_it_was_made_with() {
    // Root may write to any file.
    if ran_as_owner("a_file_made_read_only_is_written_through_what_it_was_made_with") {
        return;
    }
    on_a_directory(|store, root| async move {
        let created = store.create(store.root(), b"object", 0o444, own()).await.unwrap();
        let open = created.open.expect("open with the answer");
        store.write(open, 0, b"content").await.unwrap();
        assert_eq!(std::fs::read(root.join("object")).unwrap(), b"content");
        assert_eq!(created.found.attributes.mode, 0o444);
    });
}

/// The first attempt to return it may have failed.
#[test]
fn a_standing_wish_is_reported_again() {
    on_two_of_a_directory(|(first, second, world), _| async move {
        let (file, _) = held(&first, "file", b"one").await;
        let waits = runtime::spawn_with_result(&*world, async move {
            let open = second.open(file, OpenMode::ReadWrite).await.unwrap();
            second.take_token(open, Token::ExclusiveWrite).await
        });
        for _ in 0..2 {
            let reported = first.next_event().await;
            assert!(matches!(reported, StoreEvent::Recall { file: wanted, .. } if wanted == file));
        }
        first.return_token(file).await.unwrap();
        waits.await.unwrap().unwrap();
    });
}

const ALONE: &str = "OKEANOS_TEST_ALONE";

/// Runs a test in a process of its own, as limits are of the whole process. Returns whether this is
/// that process.
fn is_alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut alone = std::process::Command::new("sh");
    // Ignored, as the daemon does: it would end the process.
    alone.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]);
    alone.arg(std::env::current_exe().unwrap()).args(["--exact", test]);
    let ended = alone.env(ALONE, "1").output().unwrap();
    let reported = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && reported.contains("1 passed"), "{ended:?}");
    false
}

/// Runs a test of this file again without the right to pass over modes, if this process has it.
/// Returns whether it did.
fn ran_as_owner(test: &str) -> bool {
    const RIGHTS: &str = "-dac_override,-dac_read_search";
    if !rustix::process::geteuid().is_root() || std::env::var_os(ALONE).is_some() {
        return false;
    }
    let mut as_owner = std::process::Command::new("setpriv");
    as_owner.args([format!("--bounding-set={RIGHTS}"), format!("--inh-caps={RIGHTS}")]);
    as_owner.arg(std::env::current_exe().unwrap()).args(["--exact", &format!("sharing::{test}")]);
    let ended = as_owner.env(ALONE, "1").output().unwrap();
    let reported = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && reported.contains("1 passed"), "{ended:?}");
    true
}

#[test]
fn a_flush_for_which_no_descriptor_is_left_loses_nothing() {
    if !is_alone("sharing::a_flush_for_which_no_descriptor_is_left_loses_nothing") {
        return;
    }
    on_a_directory(|store, root| async move {
        let (_, open) = held(&store, "file", b"synced").await;
        let resource = rustix::process::Resource::Nofile;
        let limit = rustix::process::getrlimit(resource);
        let few = rustix::process::Rlimit { current: Some(200), ..limit };
        rustix::process::setrlimit(resource, few).unwrap();
        let mut others = Vec::new();
        while let Ok(other) = std::fs::File::open("/dev/null") {
            others.push(other);
        }
        assert!(store.make_durable(open).await.is_err());
        assert_eq!(store.read(open, 0, 99).await.unwrap(), b"synced");
        drop(others);
        store.make_durable(open).await.unwrap();
        assert_eq!(std::fs::read(root.join("file")).unwrap(), b"synced");
    });
}

/// A buffered write that can never be flushed would be acknowledged.
#[test]
fn a_write_beyond_the_limit_of_file_sizes_fails_at_once() {
    if !is_alone("sharing::a_write_beyond_the_limit_of_file_sizes_fails_at_once") {
        return;
    }
    on_a_directory(|store, root| async move {
        let (_, open) = held(&store, "file", b"synced").await;
        let is_refused = async |at: u64| {
            let written = store.write(open, at, b"xy").await;
            assert_eq!(written, Err(Refusal::FileTooLarge.into()), "{at}");
        };
        // As the file system answers: ext4 ends below 16 TiB.
        let far = i64::MAX as u64 - 4;
        if std::fs::File::create(root.join("far")).unwrap().set_len(far + 2).is_err() {
            is_refused(far).await;
        }
        let resource = rustix::process::Resource::Fsize;
        let limit = rustix::process::getrlimit(resource);
        let small = rustix::process::Rlimit { current: Some(1 << 20), ..limit };
        rustix::process::setrlimit(resource, small).unwrap();
        is_refused(2 << 20).await;
        is_refused((1 << 20) - 1).await;
        store.write(open, (1 << 20) - 2, b"xy").await.unwrap();
        store.make_durable(open).await.unwrap();
        assert_eq!(std::fs::metadata(root.join("file")).unwrap().len(), 1 << 20);
    });
}

async fn may_have_dead_owner(store: &Rc<dyn Store>, file: FileId) -> bool {
    store.may_have_dead_owner(file).await.unwrap()
}

#[test]
fn a_registered_host_counts_until_its_clean_end() {
    on_each(|(first, second, _)| async move {
        let (file, _) = held(&first, "file", b"mine").await;
        first.register_host(HostPhase::Recovering).await.unwrap();
        assert!(!may_have_dead_owner(&first, file).await, "a host knows itself");
        second.register_host(HostPhase::Recovering).await.unwrap();
        second.register_host(HostPhase::Recovering).await.unwrap();
        assert!(may_have_dead_owner(&first, file).await, "its journal is not recovered");
        second.unregister_host().await.unwrap();
        second.unregister_host().await.unwrap();
        assert!(!may_have_dead_owner(&first, file).await);
    });
}

#[test]
fn in_a_directory_only_hosts_that_died_or_recover_count() {
    on_a_directory(|store, root| async move {
        let world: Rc<dyn World> = Rc::new(RealWorld::new().unwrap());
        let (file, open) = held(&store, "file", b"mine").await;
        let others = async |phase| {
            let name = Identity("other".into());
            let other = LocalStore::open(world.clone(), &root, name).unwrap();
            other.register_host(phase).await.unwrap();
            other
        };
        let other = others(HostPhase::Running).await;
        assert!(!may_have_dead_owner(&store, file).await, "it lives");
        other.register_host(HostPhase::Recovering).await.unwrap();
        assert!(may_have_dead_owner(&store, file).await);
        drop(other);
        assert!(may_have_dead_owner(&store, file).await, "it died");
        others(HostPhase::Running).await.unregister_host().await.unwrap();
        assert!(!may_have_dead_owner(&store, file).await);
        // A process that dies drops its locks one after the other.
        store.return_token(file).await.unwrap();
        std::fs::write(root.join(format!(".okeanos/tokens/{}", file.0)), b"").unwrap();
        store.take_token(open, Token::ExclusiveWrite).await.unwrap();
        assert!(may_have_dead_owner(&store, file).await, "its token was left");
    });
}

/// A version distinguishes a state from the one before where times have whole seconds.
#[test]
fn a_reported_version_stays_while_a_dead_host_may_compare_it() {
    on_two_of_a_directory(|(dead, store, _), _| async move {
        dead.register_host(HostPhase::Recovering).await.unwrap();
        let (file, open) = held(&store, "file", b"content").await;
        let reported = store.attributes(file).await.unwrap().version;
        store.return_token(file).await.unwrap();
        assert_eq!(store.attributes(file).await.unwrap().version, reported);
        dead.unregister_host().await.unwrap();
        store.take_token(open, Token::ExclusiveWrite).await.unwrap();
        let reported = store.write(open, 0, b"Content").await.unwrap().version;
        store.return_token(file).await.unwrap();
        assert_ne!(store.attributes(file).await.unwrap().version, reported, "no note is left");
    });
}

/// A recovery would find the noted state, and replay over the change.
#[test]
fn a_note_hides_no_change_that_keeps_size_and_time() {
    on_two_of_a_directory(|(store, other, world), root| async move {
        let (file, open) = held(&store, "file", b"before").await;
        store.make_durable(open).await.unwrap();
        let noted = store.write(open, 0, b"synced").await.unwrap().version;
        store.make_durable(open).await.unwrap();
        store.write(open, 0, b"unsent").await.unwrap();
        world.sleep_until(world.now().plus(Duration::from_millis(20))).await;
        let path = root.join("file");
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::fs::write(&path, b"theirs").unwrap();
        std::fs::File::open(&path).unwrap().set_modified(modified).unwrap();
        for _ in 0..2 {
            let flushed = store.make_durable(open).await;
            assert!(matches!(flushed, Err(StoreError::ChangedPast { .. })), "{flushed:?}");
            assert_eq!(store.read(open, 0, 99).await.unwrap(), b"unsent", "it is to be set aside");
        }
        store.discard(file).await.unwrap();
        assert_eq!(store.read(open, 0, 99).await.unwrap(), b"theirs");
        assert_ne!(other.attributes(file).await.unwrap().version, noted);
        store.take_token(open, Token::ExclusiveWrite).await.unwrap();
        store.write(open, 0, b"behind").await.unwrap();
        store.make_durable(open).await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"behind");
    });
}

/// A file that nobody has changed does not look changed once it is at the store.
#[test]
fn a_flush_leaves_the_time_of_change_as_it_was_reported() {
    let directory = tempfile::tempdir().unwrap();
    let (world, root) = (RealWorld::new().unwrap(), directory.path().to_owned());
    let clock: Rc<dyn World> = Rc::new(world.clone());
    world.run(async move {
        let connect = || LocalStore::open(clock.clone(), &root, Identity("a".into())).unwrap();
        let store: Rc<dyn Store> = Rc::new(connect());
        let (file, open) = held(&store, "file", b"content").await;
        let reported = store.attributes(file).await.unwrap().changed;
        clock.sleep_until(clock.now().plus(Duration::from_millis(20))).await;
        store.make_durable(open).await.unwrap();
        store.return_token(file).await.unwrap();
        assert_eq!(store.attributes(file).await.unwrap().changed, reported);
        store.disconnect().await.unwrap();
        drop(store);
        let store = connect();
        assert_eq!(store.find(file).await.unwrap().attributes.changed, reported, "next mount");
        let path = root.join("file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(store.attributes(file).await.unwrap().changed > reported, "changed past okeanos");
    });
    world.end();
}

#[test]
fn what_was_written_under_a_shared_token_is_durable_when_it_is_returned() {
    on_a_directory(|store, _| async move {
        let file = make(&*store, "file").await;
        let open = store.open(file, OpenMode::ReadWrite).await.unwrap();
        store.take_token(open, Token::SharedWrite).await.unwrap();
        store.write(open, 0, b"shared").await.unwrap();
        assert!(store.is_unsynced(open));
        store.return_token(file).await.unwrap();
        assert!(!store.is_unsynced(open));
        let change = AttributeChange { mode: Some(0o600), ..Default::default() };
        store.set_attributes(file, change).await.unwrap();
        assert!(store.is_unsynced(open));
        store.make_durable(open).await.unwrap();
        assert!(!store.is_unsynced(open));
    });
}
