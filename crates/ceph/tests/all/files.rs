//! Names, content and attributes on a real cluster.

use crate::common::{Cluster, ROOT, connect, make, on_cluster, run};
use std::cell::Cell;
use std::rc::Rc;
use store::{
    Allocation, AttributeChange, FileKind, NewNode, OpenMode, Refusal, RenameOver, Store as _,
    StoreError, TimeChange, Token, XattrMode,
};
use units::Timestamp;

fn refused<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> Refusal {
    match answer {
        Err(StoreError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn what_was_made_durable_is_read_by_another_client_and_the_version_grows() {
    on_cluster(async move |world, [here, there]| {
        let store = connect(&world, here).await;
        let file = make(&store, "file").await;
        let open = store.open(file, OpenMode::ReadWrite).await.unwrap();
        let mut last = store.take_token(open, Token::ExclusiveWrite).await.unwrap().version;
        let content: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
        for (index, part) in content.chunks(100_000).enumerate() {
            let attributes = store.write(open, index as u64 * 100_000, part).await.unwrap();
            assert!(attributes.version.number > last.number, "{attributes:?} after {last:?}");
            assert_eq!(attributes.version.size, (index as u64 * 100_000) + part.len() as u64);
            last = attributes.version;
        }
        assert_eq!(store.read(open, 150_000, 1 << 20).await.unwrap(), &content[150_000..]);
        store.make_durable(open).await.unwrap();
        store.return_token(file).await.unwrap();
        assert_eq!(store.attributes(file).await.unwrap().version, last);
        store.close(open).await.unwrap();

        let other = connect(&world, there).await;
        let found = other.lookup(other.root(), b"file").await.unwrap();
        assert_eq!((found.file, found.attributes.version), (file, last));
        let open = other.open(file, OpenMode::Read).await.unwrap();
        assert_eq!(other.read(open, 0, 1 << 20).await.unwrap(), content);
        assert_eq!(refused(other.write(open, 0, b"no").await), Refusal::Other(libc::EBADF));
        other.disconnect().await.unwrap();
        store.disconnect().await.unwrap();
    });
}

#[test]
fn names_do_what_they_do_in_a_file_system() {
    let cluster = Cluster::small();
    let options = cluster.options("here");
    run(|world| async move {
        let store = connect(&world, options).await;
        let root = store.root();
        let directory = NewNode::Directory { mode: 0o755 };
        let folder = store.make(root, b"folder", directory.clone(), ROOT).await.unwrap();
        assert_eq!(folder.attributes.kind, FileKind::Directory);
        assert_eq!(refused(store.make(root, b"folder", directory, ROOT).await), Refusal::Exists);
        let symlink = NewNode::Symlink { target: b"../somewhere".to_vec() };
        let link = store.make(folder.file, b"link", symlink, ROOT).await.unwrap();
        assert_eq!(store.read_link(link.file).await.unwrap(), b"../somewhere");
        let pipe = NewNode::Special { kind: libc::S_IFIFO, mode: 0o600, rdev: 0 };
        let pipe = store.make(folder.file, b"pipe", pipe, ROOT).await.unwrap();
        assert_eq!(pipe.attributes.kind, FileKind::Special(libc::S_IFIFO));
        let caller = store::Creator { uid: 1000, gid: 100, umask: 0 };
        let node = NewNode::Regular { mode: 0o600 };
        let owned = store.make(root, b"owned", node, caller).await.unwrap();
        assert_eq!(
            (owned.attributes.uid, owned.attributes.gid, owned.attributes.mode),
            (1000, 100, 0o600)
        );

        assert_eq!(store.link(owned.file, folder.file, b"second").await.unwrap().links, 2);
        store.rename(root, b"owned", folder.file, b"first", RenameOver::Replace).await.unwrap();
        assert_eq!(refused(store.lookup(root, b"owned").await), Refusal::NotFound);
        assert_eq!(store.lookup(folder.file, b"first").await.unwrap().file, owned.file);
        let no_replace =
            store.rename(folder.file, b"first", root, b"x", RenameOver::NoReplace).await;
        assert_eq!(refused(no_replace), Refusal::Unsupported);
        assert_eq!(refused(store.remove_directory(root, b"folder").await), Refusal::NotEmpty);
        let mut names = Vec::new();
        for entry in store.list(folder.file, 0).await.unwrap().entries {
            names.push((String::from_utf8(entry.name).unwrap(), entry.kind));
        }
        names.sort_by(|left, right| left.0.cmp(&right.0));
        let wanted = [
            ("first".to_string(), FileKind::Regular),
            ("link".to_string(), FileKind::Symlink),
            ("pipe".to_string(), FileKind::Special(libc::S_IFIFO)),
            ("second".to_string(), FileKind::Regular),
        ];
        assert_eq!(names, wanted);
        for name in ["first", "link", "pipe", "second"] {
            store.unlink(folder.file, name.as_bytes()).await.unwrap();
        }
        store.remove_directory(root, b"folder").await.unwrap();
        store.sync_directory(root).await.unwrap();
        store.forget(owned.file);
        assert_eq!(refused(store.find(owned.file).await), Refusal::Stale);
        assert_eq!(refused(store.lookup(root, b"a/b").await), Refusal::Invalid);
        assert_eq!(refused(store.lookup(root, &[b'x'; 256]).await), Refusal::NameTooLong);
        // Only a manager daemon knows the space left, and this cluster has none.
        assert!(store.space().await.unwrap().block_bytes > 0);
    });
}

#[test]
fn a_long_directory_is_listed_in_parts_without_gaps() {
    const FILES: usize = 2500;
    on_cluster(async move |world, [options, _]| {
        let store = std::rc::Rc::new(connect(&world, options).await);
        let calls = (0..FILES).map(|number| {
            let store = store.clone();
            let call = async move {
                store
                    .make(
                        store.root(),
                        format!("f{number}").as_bytes(),
                        NewNode::Regular { mode: 0o600 },
                        ROOT,
                    )
                    .await
            };
            Box::pin(call) as std::pin::Pin<Box<dyn Future<Output = _>>>
        });
        runtime::join_window(calls, 64).await.unwrap();
        let (mut cursor, mut names, mut parts) = (0, std::collections::BTreeSet::new(), 0);
        loop {
            let listing = store.list(store.root(), cursor).await.unwrap();
            parts += 1;
            for entry in &listing.entries {
                assert!(names.insert(entry.name.clone()), "{entry:?} twice");
                cursor = entry.cursor;
            }
            if listing.is_end {
                break;
            }
        }
        assert!(parts > 2, "{parts} parts");
        assert!(names.remove(&b".okeanos-sessions"[..]), "the file of the sessions' locks");
        assert_eq!(names.len(), FILES);
    });
}

/// The library resizes by itself under an exclusive token, and takes all times from the caller.
#[test]
fn a_file_that_is_resized_is_modified_now() {
    let cluster = Cluster::small();
    let options = cluster.options("here");
    run(|world| async move {
        let store = connect(&world, options).await;
        let file = make(&store, "file").await;
        let open = store.open(file, OpenMode::ReadWrite).await.unwrap();
        let past = Timestamp { seconds: 1_000_000_000, nanoseconds: 0 };
        for token in [Token::SharedWrite, Token::ExclusiveWrite] {
            store.take_token(open, token).await.unwrap();
            for size in [10_000, 5_000, 10_000] {
                let modified = Some(TimeChange::To(past));
                let back = AttributeChange { modified, ..AttributeChange::default() };
                store.set_attributes(file, back).await.unwrap();
                let resize = AttributeChange { size: Some(size), ..AttributeChange::default() };
                let after = store.set_attributes(file, resize).await.unwrap();
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                let age = now.unwrap().as_secs() as i64 - after.modified.seconds;
                assert!((-1..60).contains(&age), "{size} under {token:?}: {age} s ago");
            }
        }
        store.disconnect().await.unwrap();
    });
}

#[test]
fn attributes_change_with_and_without_a_token_and_others_see_them() {
    on_cluster(async move |world, [here, there]| {
        let store = connect(&world, here).await;
        let file = make(&store, "file").await;
        let open = store.open(file, OpenMode::ReadWrite).await.unwrap();
        store.write(open, 0, &[7; 10_000]).await.unwrap();
        let time = Timestamp { seconds: 1_000_000_000, nanoseconds: 123_456_789 };
        for token in [Token::SharedWrite, Token::ExclusiveWrite] {
            let before = store.take_token(open, token).await.unwrap().version;
            let change = AttributeChange {
                size: Some(5000),
                mode: Some(0o640),
                uid: Some(1),
                modified: Some(TimeChange::To(time)),
                ..AttributeChange::default()
            };
            let after = store.set_attributes(file, change).await.unwrap();
            assert_eq!(
                (after.version.size, after.mode, after.uid, after.modified),
                (5000, 0o640, 1, time)
            );
            assert!(after.version.number > before.number, "{token:?}: {after:?} after {before:?}");
        }
        store.return_token(file).await.unwrap();
        store.set_xattr(file, b"user.colour", b"blue", XattrMode::Create).await.unwrap();
        assert_eq!(
            refused(store.set_xattr(file, b"user.colour", b"red", XattrMode::Create).await),
            Refusal::Exists
        );

        let other = connect(&world, there).await;
        assert_eq!(other.xattr(file, b"user.colour").await.unwrap(), b"blue");
        assert_eq!(other.xattr_names(file).await.unwrap(), b"user.colour\0");
        other.remove_xattr(file, b"user.colour").await.unwrap();
        assert_eq!(refused(store.xattr(file, b"user.colour").await), Refusal::NoAttribute);
        let seen = other.attributes(file).await.unwrap();
        assert_eq!((seen.version.size, seen.mode, seen.uid, seen.modified), (5000, 0o640, 1, time));
        let open = other.open(file, OpenMode::Read).await.unwrap();
        assert_eq!(other.read(open, 0, 1 << 20).await.unwrap(), [7; 5000]);
    });
}

#[test]
fn space_is_reserved_and_holes_are_punched_on_a_cluster() {
    on_cluster(async move |world, [here, there]| {
        let (store, other) = (connect(&world, here).await, connect(&world, there).await);
        let file = make(&store, "file").await;
        let open = store.open(file, OpenMode::ReadWrite).await.unwrap();
        let mut reported = store.take_token(open, Token::ExclusiveWrite).await.unwrap().version;
        store.write(open, 0, &[1; 12288]).await.unwrap();
        for (what, range, size) in
            [(Allocation::Reserve, 0..16384, 16384), (Allocation::PunchHole, 4096..8192, 16384)]
        {
            let now = store.allocate(open, what, range).await.unwrap().version;
            assert!(
                now.size == size && now.number > reported.number,
                "{what:?}: {now:?} after {reported:?}"
            );
            reported = now;
        }
        // Its servers know it already: nothing is buffered.
        store.return_token(file).await.unwrap();
        let found = other.lookup(other.root(), b"file").await.unwrap();
        assert_eq!(found.attributes.version, reported);
        let open = other.open(file, OpenMode::Read).await.unwrap();
        let mut expected = vec![1; 12288];
        expected[4096..8192].fill(0);
        expected.resize(16384, 0);
        assert_eq!(other.read(open, 0, 1 << 20).await.unwrap(), expected);
        other.disconnect().await.unwrap();
        store.disconnect().await.unwrap();
    });
}

/// The library returns, over the end of a growing file (T11), the last piece as if it were the
/// beginning.
#[test]
fn reads_over_a_growing_end_return_what_is_there() {
    const RECORD: usize = 1000;
    const RECORDS: usize = 1000;
    let cluster = Cluster::small();
    let (here, there) = (cluster.options("here"), cluster.options("there"));
    let byte = |record: usize| (record % 251) as u8 + 1;
    run(move |world| async move {
        let (store, other) = (Rc::new(connect(&world, here).await), connect(&world, there).await);
        let file = make(&store, "file").await;
        let open = store.open(file, OpenMode::Read).await.unwrap();
        let written = Rc::new(Cell::new(0));
        let done = written.clone();
        let writer = runtime::spawn_with_result(&world, async move {
            let peer = other.open(file, OpenMode::ReadWrite).await.unwrap();
            for record in 0..RECORDS {
                other.write(peer, (record * RECORD) as u64, &[byte(record); RECORD]).await.unwrap();
                done.set(record + 1);
            }
        });
        while written.get() < RECORDS {
            let (before, at) = (written.get(), written.get().saturating_sub(20) * RECORD + 1);
            let seen = store.read(open, at as u64, 1 << 20).await.unwrap();
            assert!(
                at + seen.len() >= before * RECORD,
                "{} bytes at {at}, {before} records were written",
                seen.len()
            );
            for (number, seen) in seen.iter().enumerate() {
                let record = (at + number) / RECORD;
                assert_eq!(*seen, byte(record), "at {} of {before} records", at + number);
            }
        }
        writer.await.unwrap();
    });
}
