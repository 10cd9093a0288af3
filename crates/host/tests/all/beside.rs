//! Two programs of one host wait for a file that another host has: the one changes it by its path,
//! the other opens it and writes.

use crate::common::{ROOT, make, sleep};
use crate::foreign_changes::{Stage, late, on_a_directory, recovered};
use host::{Durable, FileFate, HostError};
use runtime::spawn_with_result;
use std::fs;
use std::rc::Rc;
use std::time::Duration;
use store::{
    AttributeChange, FileId, NewNode, OpenMode, RenameOver, Store, StoreEvent, Token, XattrMode,
};

const FILES: u64 = 36;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Mode,
    Attribute,
    Link,
    Rename,
    Replace,
    Unlink,
}
const CHANGES: [Change; 6] = [
    Change::Mode,
    Change::Attribute,
    Change::Link,
    Change::Rename,
    Change::Replace,
    Change::Unlink,
];

impl Change {
    async fn make(self, stage: Rc<Stage>, file: FileId, number: u64) -> Result<(), HostError> {
        let (host, root) = (&stage.host, stage.host.root());
        let [name, other, moved, victim] = names(number).map(String::into_bytes);
        match self {
            Change::Mode => {
                let mode = AttributeChange { mode: Some(0o640), ..Default::default() };
                host.set_attributes(file, mode).await.map(drop)
            }
            Change::Attribute => host.set_xattr(file, b"user.a", Some(b"1"), XattrMode::Set).await,
            Change::Link => host.link(file, root, &moved).await.map(drop),
            Change::Rename => {
                host.rename((root, &other), (root, &moved), RenameOver::Replace).await
            }
            Change::Replace => {
                host.rename((root, &victim), (root, &other), RenameOver::Replace).await
            }
            Change::Unlink => host.unlink(root, &other).await,
        }?;
        host.lookup(root, &name).await.map(drop)
    }
}

/// Names of a file: one that stays, another, and the one that it may get; and of another file.
fn names(number: u64) -> [String; 4] {
    ["file", "other", "moved", "victim"].map(|name| format!("{name}-{number}"))
}

/// Has a file that the peer holds changed and written, at varying distances.
async fn play(stage: Rc<Stage>) {
    let peer = Rc::new(stage.peer());
    let root = peer.root();
    let (returns, clock) = (peer.clone(), stage.world.clone());
    stage.world.spawn(Box::pin(async move {
        while let StoreEvent::Recall { file, .. } = returns.next_event().await {
            sleep(&*clock, Duration::from_millis(10)).await;
            returns.return_token(file).await.unwrap();
        }
    }));
    for number in 0..FILES {
        let [name, other, _, victim] = names(number).map(String::into_bytes);
        let node = NewNode::Regular { mode: 0o600 };
        let file = peer.make(root, &name, node.clone(), ROOT).await.unwrap().file;
        peer.link(file, root, &other).await.unwrap();
        peer.make(root, &victim, node, ROOT).await.unwrap();
        let open = peer.open(file, OpenMode::ReadWrite).await.unwrap();
        peer.take_token(open, Token::ExclusiveWrite).await.unwrap();
        peer.write(open, 0, b"old").await.unwrap();
        stage.host.lookup(root, &name).await.unwrap();
        let change = CHANGES[number as usize % CHANGES.len()];
        let changing = spawn_with_result(&*stage.world, change.make(stage.clone(), file, number));
        let between = Duration::from_micros(number / CHANGES.len() as u64 * 1300);
        sleep(&*stage.world, between).await;
        let host = stage.host.clone();
        let writing = spawn_with_result(&*stage.world, async move {
            host.open_file(file).await?;
            host.append(file, b"mine", Durable::Now).await
        });
        writing.await.unwrap().unwrap_or_else(|error| panic!("{change:?}: {error}"));
        changing.await.unwrap().unwrap_or_else(|error| panic!("{change:?}: {error}"));
        let seen = stage.host.read(file, 0, 99).await.unwrap();
        assert_eq!(seen, b"oldmine", "{change:?}, {between:?} before the other");
    }
    assert_eq!(stage.host.known_files() as u64, FILES, "only what is open");
}

#[test]
fn a_change_that_waited_takes_nothing_from_a_writer_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    on_a_directory(directory.path(), late(), |stage| async move {
        play(stage.clone()).await;
        stage.host.close().await.unwrap();
    });
    for number in 0..FILES {
        let [name, ..] = names(number);
        assert_eq!(fs::read(directory.path().join(&name)).unwrap(), b"oldmine", "{name}");
    }
}

#[test]
fn a_crash_behind_a_change_that_waited_sets_nothing_aside() {
    let directory = tempfile::tempdir().unwrap();
    let image = on_a_directory(directory.path(), late(), play);
    let report = recovered(directory.path(), image);
    assert_eq!(report.files.len() as u64, FILES);
    for outcome in &report.files {
        assert_eq!(outcome.outcome, FileFate::Replayed, "{report:?}");
    }
}

/// An operation on a file that nobody has open leaves nothing behind.
#[test]
fn a_changed_file_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    on_a_directory(directory.path(), late(), |stage| async move {
        let (host, root) = (&stage.host, stage.host.root());
        let file = make(host, "file").await;
        host.close_file(file).await.unwrap();
        assert_eq!(host.known_files(), 0);
        let mode = AttributeChange { mode: Some(0o600), ..Default::default() };
        host.set_attributes(file, mode).await.unwrap();
        host.set_xattr(file, b"user.a", Some(b"1"), XattrMode::Set).await.unwrap();
        host.link(file, root, b"link").await.unwrap();
        host.link(file, root, b"link").await.unwrap_err();
        host.rename((root, b"file"), (root, b"moved"), RenameOver::Replace).await.unwrap();
        make_closed(host, "new").await;
        // Closed, and not destaged yet.
        host.open_file(file).await.unwrap();
        host.write(file, 0, b"dirty", Durable::Now).await.unwrap();
        host.close_file(file).await.unwrap();
        host.rename((root, b"moved"), (root, b"again"), RenameOver::Replace).await.unwrap();
        assert_eq!(host.known_files(), 0, "its descriptor at the store is closed");
        host.rename((root, b"new"), (root, b"again"), RenameOver::Replace).await.unwrap();
        host.unlink(root, b"again").await.unwrap();
        host.unlink(root, b"link").await.unwrap();
        assert_eq!(host.known_files(), 0);
    });
}
async fn make_closed(host: &host::Host, name: &str) {
    let file = make(host, name).await;
    host.close_file(file).await.unwrap();
}

/// Nor does one of a file that was closed before it was destaged, or one that fails.
#[test]
fn a_changed_dirty_file_is_closed_at_the_store() {
    let directory = tempfile::tempdir().unwrap();
    on_a_directory(directory.path(), late(), |stage| async move {
        let (host, root) = (&stage.host, stage.host.root());
        let file = make_dirty(host, "file").await;
        let size = AttributeChange { size: Some(2), ..Default::default() };
        host.set_attributes(file, size).await.unwrap();
        assert_eq!(host.known_files(), 0, "truncated");
        dirty_again(host, "file").await;
        let node = NewNode::Directory { mode: 0o755 };
        let full = host.make(root, b"full", node, ROOT).await.unwrap().file;
        host.make(full, b"inner", NewNode::Regular { mode: 0o600 }, ROOT).await.unwrap();
        host.rename((root, b"file"), (root, b"full"), RenameOver::Replace).await.unwrap_err();
        assert_eq!(host.known_files(), 0, "renamed onto a directory");
        dirty_again(host, "file").await;
        let other = make_dirty(host, "other").await;
        host.link(other, root, b"link").await.unwrap();
        dirty_again(host, "other").await;
        host.rename((root, b"file"), (root, b"other"), RenameOver::NoReplace).await.unwrap_err();
        assert_eq!(host.known_files(), 0, "renamed onto a name that must not be there");
        dirty_again(host, "file").await;
        host.link(file_of(host, "file").await, root, b"other").await.unwrap_err();
        assert_eq!(host.known_files(), 0, "linked to a name that is there");
        dirty_again(host, "other").await;
        let only = XattrMode::Replace;
        host.set_xattr(other, b"user.none", Some(b"1"), only).await.unwrap_err();
        assert_eq!(host.known_files(), 0, "an attribute that is not there");
        dirty_again(host, "other").await;
        host.unlink(root, b"link").await.unwrap();
        assert_eq!(host.known_files(), 0, "one of two names removed");
        host.open_file(FileId(u64::MAX)).await.unwrap_err();
        assert_eq!(host.known_files(), 0, "a file that is not there");
    });
}
async fn file_of(host: &host::Host, name: &str) -> FileId {
    host.lookup(host.root(), name.as_bytes()).await.unwrap().file
}
/// Makes a file that is closed, and not destaged yet.
async fn make_dirty(host: &Rc<host::Host>, name: &str) -> FileId {
    make_closed(host, name).await;
    dirty_again(host, name).await;
    file_of(host, name).await
}
async fn dirty_again(host: &Rc<host::Host>, name: &str) {
    let file = file_of(host, name).await;
    host.open_file(file).await.unwrap();
    host.write(file, 0, b"dirty", Durable::Now).await.unwrap();
    host.close_file(file).await.unwrap();
    assert!(host.known_files() > 0);
}
