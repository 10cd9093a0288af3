//! The rules of `Store`, on every store of this crate. Each test runs the same script on all.

use device::World;
use runtime::{RealWorld, VirtualWorld};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::Duration;
use store::{
    Allocation, AttributeChange, Cluster, Creator, FileId, FileKind, Identity, LocalStore, Network,
    NewNode, OpenFile, OpenMode, Refusal, RenameOver, SimulatedStore, Store, StoreError,
    StoreEvent, TimeChange, Token, XattrMode,
};
use units::Timestamp;

/// Users who may not give files away create their own.
pub fn own() -> Creator {
    let process = std::fs::metadata("/proc/self").unwrap();
    Creator { uid: process.uid(), gid: process.gid(), umask: 0 }
}

pub type Two = (Rc<dyn Store>, Rc<dyn Store>, Rc<dyn World>);

/// Runs the script with two clients of each store.
pub fn on_each<F: Future<Output = ()> + 'static>(script: impl Fn(Two) -> F) {
    let names = ["first", "second"].map(|name| Identity(name.into()));
    let world = VirtualWorld::new(1);
    let cluster = Cluster::new(Rc::new(world.clone()), Network::default(), Vec::new(), 1);
    let [first, second] =
        names.clone().map(|name| Rc::new(SimulatedStore::connect(&cluster, name)));
    world.run(script((first, second, Rc::new(world.clone()))));

    let directory = tempfile::tempdir().unwrap();
    let world = RealWorld::new().unwrap();
    let shared: Rc<dyn World> = Rc::new(world.clone());
    let [first, second] = names
        .map(|name| Rc::new(LocalStore::open(shared.clone(), directory.path(), name).unwrap()));
    world.run(script((first, second, shared)));
    world.end();
}

pub async fn make(store: &dyn Store, name: &str) -> FileId {
    let node = NewNode::Regular { mode: 0o644 };
    store.make(store.root(), name.as_bytes(), node, own()).await.unwrap().file
}

/// Opens a file for a client that has it alone.
pub async fn open_alone(store: &dyn Store, file: FileId) -> OpenFile {
    let open = store.open(file, OpenMode::ReadWrite).await.unwrap();
    store.take_token(open, Token::ExclusiveWrite).await.unwrap();
    open
}

/// Returns every token that is recalled.
pub fn return_recalled(store: &Rc<dyn Store>, world: &dyn World) {
    let store = store.clone();
    world.spawn(Box::pin(async move {
        while let StoreEvent::Recall { file, .. } = store.next_event().await {
            store.return_token(file).await.unwrap();
        }
    }));
}

#[test]
fn buffered_writes_are_seen_here_and_by_others_when_the_token_is_returned() {
    on_each(|(first, second, _)| async move {
        let file = make(&*first, "file").await;
        let open = open_alone(&*first, file).await;
        first.write(open, 3, b"bytes").await.unwrap();
        assert_eq!(first.read(open, 0, 100).await.unwrap(), b"\0\0\0bytes");
        assert_eq!(first.lookup(first.root(), b"file").await.unwrap().attributes.version.size, 8);
        let other = second.open(file, OpenMode::Read).await.unwrap();
        assert_eq!(second.read(other, 0, 100).await.unwrap(), b"");
        first.return_token(file).await.unwrap();
        assert_eq!(second.read(other, 0, 100).await.unwrap(), b"\0\0\0bytes");
    });
}

#[test]
fn appends_of_two_clients_stand_behind_each_other() {
    on_each(|(first, second, _)| async move {
        let file = make(&*first, "log").await;
        let mut opens = Vec::new();
        for client in [&first, &second] {
            let open = client.open(file, OpenMode::ReadWrite).await.unwrap();
            client.take_token(open, Token::SharedWrite).await.unwrap();
            opens.push(open);
        }
        let [one, two] = [opens[0], opens[1]];
        for _ in 0..20 {
            // Both are in flight at once.
            let mut calls = vec![first.append(one, b"first "), second.append(two, b"second ")];
            calls.push(first.append(one, b"third "));
            runtime::join_window(calls, 3).await.unwrap();
        }
        let content = first.read(one, 0, 1000).await.unwrap();
        let words: Vec<&[u8]> = content.split(|byte| *byte == b' ').collect();
        for name in ["first", "second", "third"] {
            let found = words.iter().filter(|word| **word == name.as_bytes()).count();
            assert_eq!(found, 20, "{}", String::from_utf8_lossy(&content));
        }
        // Buffered under the token, and behind what is buffered.
        second.return_token(file).await.unwrap();
        second.close(two).await.unwrap();
        first.take_token(one, Token::ExclusiveWrite).await.unwrap();
        first.write(one, 400, b"!").await.unwrap();
        assert_eq!(first.append(one, b"?").await.unwrap().version.size, 402);
        first.return_token(file).await.unwrap();
        assert_eq!(first.read(one, 400, 9).await.unwrap(), b"!?");
    });
}

#[test]
fn each_change_reports_another_state_that_the_store_keeps() {
    on_each(|(first, second, _)| async move {
        let file = make(&*first, "file").await;
        let open = first.open(file, OpenMode::ReadWrite).await.unwrap();
        let base = first.take_token(open, Token::ExclusiveWrite).await.unwrap().version;
        let mut reported = vec![base];
        for round in 0..5 {
            reported.push(first.write(open, round, b"x").await.unwrap().version);
        }
        let change = AttributeChange { mode: Some(0o600), ..AttributeChange::default() };
        reported.push(first.set_attributes(file, change).await.unwrap().version);
        for (before, after) in reported.iter().zip(&reported[1..]) {
            assert!(before.number < after.number);
        }
        first.make_durable(open).await.unwrap();
        let found = second.attributes(file).await.unwrap();
        assert_eq!((Some(&found.version), found.mode), (reported.last(), 0o600));
    });
}

/// Ext4 ends in 2446. After a crash the time that the file system stored is compared.
#[test]
fn a_time_that_the_store_cannot_keep_is_no_change_of_others() {
    on_each(|(first, second, _)| async move {
        let file = make(&*first, "file").await;
        let open = open_alone(&*first, file).await;
        first.write(open, 0, b"synced").await.unwrap();
        let beyond = Timestamp { seconds: 20_000_000_000, nanoseconds: 987_654_321 };
        let modified = Some(TimeChange::To(beyond));
        let change = AttributeChange { modified, ..AttributeChange::default() };
        let reported = first.set_attributes(file, change).await.unwrap().version;
        first.make_durable(open).await.unwrap();
        assert_eq!(second.find(file).await.unwrap().attributes.version, reported);
    });
}

#[test]
fn a_token_is_granted_when_its_holder_returns_it() {
    on_each(|(first, second, world)| async move {
        let file = make(&*first, "file").await;
        let open = open_alone(&*first, file).await;
        first.write(open, 0, b"first").await.unwrap();
        return_recalled(&first, &*world);
        let other = second.open(file, OpenMode::ReadWrite).await.unwrap();
        let found = second.take_token(other, Token::ExclusiveWrite).await.unwrap();
        assert_eq!(found.version.size, 5);
        assert_eq!(second.read(other, 0, 9).await.unwrap(), b"first");
        second.write(other, 5, b" second").await.unwrap();
        return_recalled(&second, &*world);
        world.sleep_until(world.now().plus(Duration::from_millis(20))).await;
        first.take_token(open, Token::SharedRead).await.unwrap();
        assert_eq!(first.read(open, 0, 99).await.unwrap(), b"first second");
    });
}

#[test]
fn a_truncation_flushes_the_buffer_to_the_store() {
    on_each(|(first, second, _)| async move {
        let file = make(&*first, "file").await;
        let open = open_alone(&*first, file).await;
        first.write(open, 0, b"0123456789").await.unwrap();
        let cut = AttributeChange { size: Some(4), ..AttributeChange::default() };
        first.set_attributes(file, cut).await.unwrap();
        let other = second.open(file, OpenMode::Read).await.unwrap();
        assert_eq!(second.read(other, 0, 99).await.unwrap(), b"0123");
        first.write(open, 6, b"x").await.unwrap();
        assert_eq!(first.read(open, 0, 99).await.unwrap(), b"0123\0\0x");
    });
}

#[test]
fn reservations_and_holes_flush_the_buffer_to_the_store() {
    on_each(|(first, second, _)| async move {
        let file = make(&*first, "file").await;
        let open = open_alone(&*first, file).await;
        let mut reported = first.write(open, 0, &[1; 12288]).await.unwrap().version;
        let steps = [
            (Allocation::ReserveKeepingSize, 8192..20000, 12288),
            (Allocation::Reserve, 0..16384, 16384),
            (Allocation::PunchHole, 4096..8192, 16384),
        ];
        for (what, range, size) in steps {
            let now = first.allocate(open, what, range).await.unwrap().version;
            assert_eq!(now.size, size, "{what:?}");
            assert!(now.number > reported.number, "{what:?}");
            assert_eq!(second.attributes(file).await.unwrap().version, now, "{what:?}");
            reported = now;
        }
        let other = second.open(file, OpenMode::Read).await.unwrap();
        let parts = [
            (0, 1),
            (4095, 1),
            (4096, 0),
            (8191, 0),
            (8192, 1),
            (12287, 1),
            (12288, 0),
            (16383, 0),
        ];
        for (at, byte) in parts {
            assert_eq!(second.read(other, at, 1).await.unwrap(), [byte], "at {at}");
        }
        first.write(open, 5000, b"again").await.unwrap();
        assert_eq!(first.read(open, 4999, 7).await.unwrap(), b"\0again\0");
    });
}

#[test]
fn names_are_made_moved_listed_and_removed() {
    on_each(|(first, second, _)| async move {
        let root = first.root();
        let file = make(&*first, "a").await;
        let directory =
            first.make(root, b"d", NewNode::Directory { mode: 0o755 }, own()).await.unwrap().file;
        let refused = |refusal| StoreError::Refused(refusal);
        let again = first.make(root, b"a", NewNode::Regular { mode: 0o600 }, own()).await;
        assert_eq!(again.unwrap_err(), refused(Refusal::Exists));
        first.rename(root, b"a", directory, b"b", RenameOver::NoReplace).await.unwrap();
        assert_eq!(second.lookup(root, b"a").await.unwrap_err(), refused(Refusal::NotFound));
        assert_eq!(second.find(file).await.unwrap().file, file);
        let listing = second.list(directory, 0).await.unwrap();
        assert_eq!((&listing.entries[0].name[..], listing.entries[0].file), (&b"b"[..], file));
        assert!(listing.is_end);
        assert_eq!(
            first.remove_directory(root, b"d").await.unwrap_err(),
            refused(Refusal::NotEmpty)
        );
        first.link(file, root, b"c").await.unwrap();
        first.unlink(directory, b"b").await.unwrap();
        first.remove_directory(root, b"d").await.unwrap();
        let listing = first.list(root, 0).await.unwrap();
        assert_eq!(listing.entries.iter().map(|entry| &entry.name[..]).collect::<Vec<_>>(), [b"c"]);
        for wrong in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'n'; 256]] {
            assert!(
                first.make(root, wrong, NewNode::Regular { mode: 0o600 }, own()).await.is_err()
            );
        }
    });
}

#[test]
fn special_files_are_made_as_what_they_are() {
    on_each(|(first, second, _)| async move {
        for (name, kind) in [(&b"pipe"[..], libc::S_IFIFO), (b"socket", libc::S_IFSOCK)] {
            let node = NewNode::Special { kind, mode: 0o640, rdev: 0 };
            let made = first.make(first.root(), name, node, own()).await.unwrap();
            let found = second.lookup(second.root(), name).await.unwrap();
            assert_eq!(found.file, made.file);
            assert_eq!(
                (found.attributes.kind, found.attributes.mode),
                (FileKind::Special(kind), 0o640)
            );
            first.unlink(first.root(), name).await.unwrap();
        }
    });
}

#[test]
fn times_of_links_and_pipes_are_set_and_those_of_link_targets_are_not() {
    on_each(|(first, second, _)| async move {
        let target = make(&*first, "target").await;
        let before = first.attributes(target).await.unwrap().modified;
        let wanted = Timestamp { seconds: 1_000_000_007, nanoseconds: 9 };
        let change = AttributeChange {
            modified: Some(TimeChange::To(wanted)),
            ..AttributeChange::default()
        };
        let link = NewNode::Symlink { target: b"target".to_vec() };
        let pipe = NewNode::Special { kind: libc::S_IFIFO, mode: 0o640, rdev: 0 };
        for (name, node) in [(&b"link"[..], link), (b"pipe", pipe)] {
            let made = first.make(first.root(), name, node, own()).await.unwrap();
            first.set_attributes(made.file, change).await.unwrap();
            let found = second.lookup(second.root(), name).await.unwrap();
            assert_eq!(found.attributes.modified, wanted, "{name:?}");
        }
        assert_eq!(first.attributes(target).await.unwrap().modified, before);
    });
}

#[test]
fn extended_attributes_are_set_read_listed_and_removed() {
    on_each(|(first, second, _)| async move {
        let file = make(&*first, "file").await;
        let open = open_alone(&*first, file).await;
        first.write(open, 0, b"buffered").await.unwrap();
        let name = b"user.colour";
        first.set_xattr(file, name, b"blue", XattrMode::Create).await.unwrap();
        let again = first.set_xattr(file, name, b"red", XattrMode::Create).await;
        assert_eq!(again.unwrap_err(), StoreError::Refused(Refusal::Exists));
        assert_eq!(second.xattr(file, name).await.unwrap(), b"blue");
        first.set_xattr(file, name, b"green", XattrMode::Replace).await.unwrap();
        assert_eq!(first.xattr(file, name).await.unwrap(), b"green");
        assert!(
            first.xattr_names(file).await.unwrap().split(|byte| *byte == 0).any(|one| one == name)
        );
        first.remove_xattr(file, name).await.unwrap();
        for store in [&first, &second] {
            let gone = store.xattr(file, name).await;
            assert_eq!(gone.unwrap_err(), StoreError::Refused(Refusal::NoAttribute));
        }
        assert_eq!(first.read(open, 0, 99).await.unwrap(), b"buffered");
        let reported = first.write(open, 8, b"!").await.unwrap().version;
        first.make_durable(open).await.unwrap();
        assert_eq!(second.attributes(file).await.unwrap().version, reported);
    });
}

#[test]
fn an_open_file_without_a_name_can_be_cut_changed_and_read() {
    on_each(|(first, _, _)| async move {
        let file = make(&*first, "file").await;
        let open = open_alone(&*first, file).await;
        first.write(open, 0, b"0123456789").await.unwrap();
        first.unlink(first.root(), b"file").await.unwrap();
        assert_eq!(first.attributes(file).await.unwrap().links, 0);
        let cut =
            AttributeChange { size: Some(4), mode: Some(0o600), ..AttributeChange::default() };
        let cut = first.set_attributes(file, cut).await.unwrap();
        assert_eq!((cut.version.size, cut.mode, cut.links), (4, 0o600, 0));
        assert_eq!(first.read(open, 0, 99).await.unwrap(), b"0123");
        // Also without a token.
        first.return_token(file).await.unwrap();
        let cut = AttributeChange { size: Some(2), ..AttributeChange::default() };
        assert_eq!(first.set_attributes(file, cut).await.unwrap().version.size, 2);
        assert_eq!(first.read(open, 0, 99).await.unwrap(), b"01");
    });
}

#[test]
fn links_are_counted_as_they_are_while_the_file_is_held() {
    on_each(|(first, second, world)| async move {
        return_recalled(&first, &*world);
        let file = make(&*first, "file").await;
        let open = open_alone(&*first, file).await;
        first.write(open, 0, b"x").await.unwrap();
        second.link(file, second.root(), b"another").await.unwrap();
        first.take_token(open, Token::ExclusiveWrite).await.unwrap();
        first.write(open, 1, b"y").await.unwrap();
        assert_eq!(first.attributes(file).await.unwrap().links, 2);
        first.unlink(first.root(), b"file").await.unwrap();
        assert_eq!(first.attributes(file).await.unwrap().links, 1);
    });
}

#[test]
fn token_files_of_a_directory_are_removed_with_the_tokens() {
    let directory = tempfile::tempdir().unwrap();
    let world = RealWorld::new().unwrap();
    let shared: Rc<dyn World> = Rc::new(world.clone());
    let (path, own) = (directory.path().to_owned(), directory.path().join(".okeanos"));
    world.run(async move {
        let [first, second] = ["first", "second"].map(|name| -> Rc<dyn Store> {
            Rc::new(LocalStore::open(shared.clone(), &path, Identity(name.into())).unwrap())
        });
        let left = |part: &str| std::fs::read_dir(own.join(part)).unwrap().count();
        for token in [Token::ExclusiveWrite, Token::SharedRead, Token::SharedWrite] {
            let file = make(&*first, &format!("{token:?}")).await;
            let open = first.open(file, OpenMode::ReadWrite).await.unwrap();
            first.take_token(open, token).await.unwrap();
            if token != Token::ExclusiveWrite {
                let other = second.open(file, OpenMode::ReadWrite).await.unwrap();
                second.take_token(other, token).await.unwrap();
                assert_eq!(left("tokens"), 1);
                second.return_token(file).await.unwrap();
                second.close(other).await.unwrap();
                assert_eq!(left("tokens"), 1, "another holds it");
            }
            first.return_token(file).await.unwrap();
            first.close(open).await.unwrap();
            assert_eq!((left("tokens"), left("wishes")), (0, 0), "{token:?}");
        }
        // Many clients, one after another, while each returns its token: none ends up with a lock
        // on a file that is removed.
        let file = make(&*first, "contended").await;
        for round in 0..30u8 {
            let (one, other) = if round % 2 == 0 { (&first, &second) } else { (&second, &first) };
            let open = open_alone(&**one, file).await;
            one.write(open, round.into(), &[round]).await.unwrap();
            one.return_token(file).await.unwrap();
            let seen = other.open(file, OpenMode::Read).await.unwrap();
            assert_eq!(other.read(seen, 0, 99).await.unwrap().len(), usize::from(round) + 1);
            one.close(open).await.unwrap();
            other.close(seen).await.unwrap();
        }
        assert_eq!(left("tokens"), 0);
    });
    world.end();
}

/// Runs the script with one client of a directory.
pub fn on_a_directory<F: Future<Output = ()> + 'static>(
    script: impl FnOnce(Rc<dyn Store>, std::path::PathBuf) -> F,
) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("shared");
    std::fs::create_dir(&root).unwrap();
    let world = RealWorld::new().unwrap();
    let shared: Rc<dyn World> = Rc::new(world.clone());
    let store = Rc::new(LocalStore::open(shared, &root, Identity("host".into())).unwrap());
    world.run(script(store, root));
    world.end();
}

async fn make_directory(store: &dyn Store, parent: FileId, name: &[u8]) -> FileId {
    store.make(parent, name, NewNode::Directory { mode: 0o755 }, own()).await.unwrap().file
}

/// Any user with write access to the tree could otherwise make a host write anywhere.
#[test]
fn a_directory_replaced_by_a_link_is_not_followed() {
    on_a_directory(|store, root| async move {
        let parent = make_directory(&*store, store.root(), b"parent").await;
        let inner = make_directory(&*store, parent, b"inner").await;
        let node = NewNode::Regular { mode: 0o600 };
        let file = store.make(inner, b"file", node.clone(), own()).await.unwrap().file;
        let outside = root.parent().unwrap().join("outside");
        std::fs::rename(root.join("parent"), &outside).unwrap();
        std::os::unix::fs::symlink(&outside, root.join("parent")).unwrap();
        let stale = |what: &str, refused: Option<StoreError>| {
            assert!(
                matches!(refused, Some(StoreError::Refused(Refusal::Stale))),
                "{what}: {refused:?}"
            );
        };
        stale("make", store.make(inner, b"new", node, own()).await.err());
        stale("list", store.list(inner, 0).await.err());
        stale("open", store.open(file, OpenMode::ReadWrite).await.err());
        stale("unlink", store.unlink(inner, b"file").await.err());
        let change = AttributeChange { mode: Some(0o777), ..AttributeChange::default() };
        stale("chmod", store.set_attributes(file, change).await.err());
        stale("xattr", store.set_xattr(file, b"user.a", b"b", XattrMode::Set).await.err());
        stale("sync", store.sync_directory(inner).await.err());
        let mode = std::fs::metadata(outside.join("inner/file")).unwrap().mode() & 0o777;
        assert_eq!((std::fs::read_dir(outside.join("inner")).unwrap().count(), mode), (1, 0o600));
    });
}

/// The kernel takes no path longer than 4095 bytes; programs get deeper by changing their
/// directory.
#[test]
fn files_deeper_than_a_path_is_long_are_reached() {
    on_a_directory(|store, _| async move {
        let mut at = store.root();
        for _ in 0..25 {
            at = make_directory(&*store, at, &[b'd'; 255]).await;
        }
        let file =
            store.make(at, b"file", NewNode::Regular { mode: 0o644 }, own()).await.unwrap().file;
        let open = store.open(file, OpenMode::ReadWrite).await.unwrap();
        store.write(open, 0, b"deep").await.unwrap();
        store.rename(at, b"file", at, b"moved", RenameOver::Replace).await.unwrap();
        assert_eq!(store.lookup(at, b"moved").await.unwrap().attributes.version.size, 4);
        assert_eq!(store.list(at, 0).await.unwrap().entries.len(), 1);
        store.unlink(at, b"moved").await.unwrap();
    });
}

#[test]
fn a_directory_has_the_space_of_its_file_system() {
    on_a_directory(|store, root| async move {
        let (space, seen) = (store.space().await.unwrap(), rustix::fs::statvfs(&root).unwrap());
        assert_eq!((space.blocks, u64::from(space.block_bytes)), (seen.f_blocks, seen.f_frsize));
        assert!(space.blocks_available <= space.blocks_free && space.blocks_free <= space.blocks);
        assert!(space.files_free <= space.files);
    });
}

#[test]
fn a_created_file_is_open_and_held_as_far_as_the_store_says() {
    on_each(|(first, second, world)| async move {
        let created = first.create(first.root(), b"file", 0o640, own()).await.unwrap();
        let (file, attributes) = (created.found.file, created.found.attributes);
        assert_eq!((attributes.mode & 0o777, attributes.version.size), (0o640, 0));
        assert_eq!(first.lookup(first.root(), b"file").await.unwrap().file, file);
        let again = first.create(first.root(), b"file", 0o640, own()).await;
        assert!(matches!(again, Err(StoreError::Refused(Refusal::Exists))));
        let open = match created.open {
            Some(open) => open,
            None => first.open(file, OpenMode::ReadWrite).await.unwrap(),
        };
        if !created.is_held {
            first.take_token(open, Token::ExclusiveWrite).await.unwrap();
        }
        first.write(open, 0, b"new").await.unwrap();
        return_recalled(&first, &*world);
        let other = second.open(file, OpenMode::Read).await.unwrap();
        second.take_token(other, Token::SharedRead).await.unwrap();
        assert_eq!(second.read(other, 0, 10).await.unwrap(), b"new", "who wants it recalls it");
    });
}
