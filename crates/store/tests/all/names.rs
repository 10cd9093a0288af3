//! Names: what two clients make, move, remove, list and search for.

use crate::contract::{make, on_a_directory, on_each, own, return_recalled};
use crate::sharing::{begin, held, on_two_of_a_directory};
use device::World;
use runtime::{Either, race};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use store::{
    Answer, AttributeChange, Creator, Listing, NewNode, OpenFile, OpenMode, Refusal, RenameOver,
    Store, StoreError, Token, XattrMode,
};

#[test]
fn every_cursor_goes_on_whatever_else_is_listed_or_removed() {
    on_each(|(first, second, _)| async move {
        let root = first.root();
        let node = NewNode::Directory { mode: 0o755 };
        let directory = first.make(root, b"d", node, own()).await.unwrap().file;
        for number in 0..60 {
            let node = NewNode::Regular { mode: 0o644 };
            first.make(directory, format!("f{number}").as_bytes(), node, own()).await.unwrap();
        }
        let begun = first.list(directory, 0).await.unwrap().entries;
        let (seen, rest) = begun.split_at(20);
        for entry in &seen[..15] {
            second.unlink(directory, &entry.name).await.unwrap();
        }
        assert_eq!(first.list(directory, 0).await.unwrap().entries.len(), 45, "another begins");
        let goes_on = first.list(directory, seen[19].cursor).await.unwrap();
        let names = |entries: &[store::Entry]| -> BTreeSet<Vec<u8>> {
            entries.iter().map(|entry| entry.name.clone()).collect()
        };
        assert_eq!((names(&goes_on.entries), goes_on.entries.len()), (names(rest), 40));
        let cursors: BTreeSet<u64> = begun.iter().map(|entry| entry.cursor).collect();
        assert!(cursors.len() == 60 && !cursors.contains(&0));
    });
}

#[test]
fn what_is_made_in_a_set_group_directory_has_its_group() {
    if own().uid != 0 {
        return;
    }
    on_each(|(first, _, _)| async move {
        let root = first.root();
        let node = NewNode::Directory { mode: 0o755 };
        let shared = first.make(root, b"shared", node.clone(), own()).await.unwrap().file;
        let change = AttributeChange { gid: Some(77), mode: Some(0o2775), ..Default::default() };
        first.set_attributes(shared, change).await.unwrap();
        let caller = Creator { uid: 5, gid: 6, umask: 0o27 };
        let file = first.create(shared, b"file", 0o666, caller).await.unwrap().found.attributes;
        assert_eq!((file.uid, file.gid, file.mode), (5, 77, 0o640));
        let inner = first.make(shared, b"inner", node, caller).await.unwrap().attributes;
        assert_eq!((inner.uid, inner.gid, inner.mode), (5, 77, 0o2750));
    });
}

#[test]
fn two_names_are_exchanged() {
    on_each(|(first, second, _)| async move {
        let root = first.root();
        let (one, other) = (make(&*first, "one").await, make(&*first, "other").await);
        first.rename(root, b"one", root, b"other", RenameOver::Exchange).await.unwrap();
        assert_eq!(second.lookup(root, b"one").await.unwrap().file, other);
        assert_eq!(first.lookup(root, b"other").await.unwrap().file, one);
        let gone = first.rename(root, b"one", root, b"none", RenameOver::Exchange).await;
        assert_eq!(gone.unwrap_err(), StoreError::Refused(Refusal::NotFound));
    });
}

#[test]
fn a_change_of_names_flushes_what_others_have_buffered() {
    on_two_of_a_directory(|(first, second, world), root| async move {
        return_recalled(&first, &*world);
        let content = |name: &str| std::fs::read(root.join(name)).unwrap();
        let (file, _) = held(&first, "renamed", b"one").await;
        let (_, replaced) = held(&first, "replaced", b"two").await;
        let top = second.root();
        second.rename(top, b"renamed", top, b"replaced", RenameOver::Replace).await.unwrap();
        assert_eq!(content("replaced"), b"one");
        assert_eq!(first.read(replaced, 0, 9).await.unwrap(), b"two", "it is open still");
        let (linked, _) = held(&first, "linked", b"three").await;
        second.link(linked, top, b"link").await.unwrap();
        assert_eq!(content("link"), b"three");
        let (named, open) = held(&first, "named", b"four").await;
        second.set_xattr(named, b"user.a", b"b", XattrMode::Set).await.unwrap();
        assert_eq!(content("named"), b"four");
        first.take_token(open, Token::ExclusiveWrite).await.unwrap();
        first.write(open, 4, b"!").await.unwrap();
        second.unlink(top, b"named").await.unwrap();
        assert_eq!(second.find(named).await.err(), Some(StoreError::Refused(Refusal::Stale)));
        assert_eq!(second.find(file).await.unwrap().file, file);
    });
}

/// The token that keeps others away goes to one of them while the change waits for its flush.
#[test]
fn a_change_of_names_whose_token_is_returned_starts_over() {
    for what in ["link", "rename", "replace", "unlink"] {
        on_two_of_a_directory(move |(first, second, world), root| async move {
            let top = first.root();
            let (file, _) = held(&first, "file", b"old").await;
            first.link(file, top, b"name").await.unwrap();
            make(&*first, "victim").await;
            let mut changing: Answer<()> = match what {
                "link" => {
                    let link = first.link(file, top, b"link");
                    Box::pin(async { link.await.map(drop) })
                }
                "rename" => first.rename(top, b"name", top, b"moved", RenameOver::Replace),
                "replace" => first.rename(top, b"victim", top, b"name", RenameOver::Replace),
                _ => first.unlink(top, b"name"),
            };
            let mut returning = first.return_token(file);
            begin(&mut returning);
            begin(&mut changing);
            returning.await.unwrap();
            let other = second.open(file, OpenMode::ReadWrite).await.unwrap();
            second.take_token(other, Token::ExclusiveWrite).await.unwrap();
            second.write(other, 0, b"theirs").await.unwrap();
            return_recalled(&second, &*world);
            changing.await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let durable = second.make_durable(other).await;
            durable.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(std::fs::read(root.join("file")).unwrap(), b"theirs", "{what}");
        });
    }
}

/// The flush compares the file with what it had.
#[test]
fn a_change_of_names_beside_a_flush_is_no_foreign_one() {
    on_two_of_a_directory(|(first, _, _), _| async move {
        let top = first.root();
        let (file, open) = held(&first, "file", b"old").await;
        for round in 0..20 {
            first.write(open, 0, &vec![round; 1 << 20]).await.unwrap();
            let mut flushing = first.make_durable(open);
            begin(&mut flushing);
            let changing: Answer<()> = match round % 4 {
                0 => {
                    let link = first.link(file, top, b"link");
                    Box::pin(async { link.await.map(drop) })
                }
                1 => first.rename(top, b"file", top, b"moved", RenameOver::Replace),
                2 => first.unlink(top, b"link"),
                _ => first.rename(top, b"moved", top, b"file", RenameOver::Replace),
            };
            runtime::join_window(vec![changing, flushing], 2).await.unwrap();
        }
    });
}

/// Another host makes it, and has what was synced of it in its journal alone.
#[test]
fn a_rename_recalls_the_token_of_what_was_made_at_its_name_while_it_waited() {
    on_two_of_a_directory(|(first, second, world), root| async move {
        let top = first.root();
        let (moved, _) = held(&second, "old", b"moved").await;
        let mut renaming = first.rename(top, b"old", top, b"new", RenameOver::Replace);
        begin(&mut renaming);
        let (made, open) = held(&second, "new", b"theirs").await;
        second.return_token(made).await.unwrap();
        second.link(made, top, b"other").await.unwrap();
        second.take_token(open, Token::ExclusiveWrite).await.unwrap();
        second.write(open, 0, b"synced").await.unwrap();
        second.return_token(moved).await.unwrap();
        return_recalled(&second, &*world);
        renaming.await.unwrap();
        second.make_durable(open).await.unwrap();
        assert_eq!(std::fs::read(root.join("other")).unwrap(), b"synced");
        assert_eq!(std::fs::read(root.join("new")).unwrap(), b"moved");
    });
}

/// Puts a file there that the second client has buffered, and that keeps another name.
async fn put_theirs(second: &Rc<dyn Store>, world: &dyn World, name: &str) -> OpenFile {
    let (made, open) = held(second, name, b"theirs").await;
    second.return_token(made).await.unwrap();
    second.link(made, second.root(), b"kept").await.unwrap();
    second.take_token(open, Token::ExclusiveWrite).await.unwrap();
    second.write(open, 0, b"synced").await.unwrap();
    return_recalled(second, world);
    open
}

/// A symbolic link has no token, so nobody is kept from its name.
#[test]
fn a_rename_recalls_the_token_of_what_took_a_links_name_while_it_waited() {
    on_two_of_a_directory(|(first, second, world), root| async move {
        let top = first.root();
        let node = NewNode::Symlink { target: b"nowhere".to_vec() };
        let link = first.make(top, b"old", node, own()).await.unwrap().file;
        // The one with the lower number is asked for first.
        let mut replaced = held(&second, "new", b"replaced").await.0;
        for number in 0..100 {
            if link < replaced {
                break;
            }
            let name = format!("new-{number}");
            replaced = held(&second, &name, b"replaced").await.0;
            std::fs::rename(root.join(name), root.join("new")).unwrap();
        }
        let mut renaming = first.rename(top, b"old", top, b"new", RenameOver::Replace);
        begin(&mut renaming);
        second.rename(top, b"old", top, b"link", RenameOver::Replace).await.unwrap();
        let open = put_theirs(&second, &*world, "old").await;
        let _ = second.return_token(replaced).await;
        renaming.await.unwrap();
        second.make_durable(open).await.unwrap();
        assert_eq!(std::fs::read(root.join("kept")).unwrap(), b"synced");
        assert_eq!(std::fs::read(root.join("new")).unwrap(), b"synced");
    });
}

#[test]
fn an_unlink_recalls_the_token_of_what_took_the_name_while_it_waited() {
    on_two_of_a_directory(|(first, second, world), root| async move {
        let top = first.root();
        let (file, _) = held(&first, "other", b"mine").await;
        first.link(file, top, b"file").await.unwrap();
        // It notes the state of the file, and waits for the disk.
        let mut unlinking = first.unlink(top, b"file");
        begin(&mut unlinking);
        std::fs::rename(root.join("file"), root.join("moved")).unwrap();
        let open = put_theirs(&second, &*world, "file").await;
        unlinking.await.unwrap();
        second.make_durable(open).await.unwrap();
        assert_eq!(std::fs::read(root.join("kept")).unwrap(), b"synced");
        assert!(!root.join("file").exists() && root.join("moved").exists());
    });
}

#[test]
fn a_rename_over_a_name_that_another_client_removes_is_made() {
    on_two_of_a_directory(|(first, second, _), root| async move {
        let top = first.root();
        std::fs::write(root.join("temporary"), b"fresh").unwrap();
        let (replaced, _) = held(&second, "file", b"old").await;
        let mut renaming = first.rename(top, b"temporary", top, b"file", RenameOver::Replace);
        begin(&mut renaming);
        second.unlink(top, b"file").await.unwrap();
        second.return_token(replaced).await.unwrap();
        renaming.await.unwrap();
        assert_eq!(std::fs::read(root.join("file")).unwrap(), b"fresh");
    });
}

/// Another program takes the new name away again and again.
#[test]
fn a_rename_that_was_made_is_answered_so() {
    on_two_of_a_directory(|(first, _, _), root| async move {
        let (top, path) = (first.root(), root.join("new"));
        let has_ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let until = has_ended.clone();
        let others = std::thread::spawn(move || {
            while !until.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = std::fs::remove_file(&path);
            }
        });
        let mut renamed = Ok(());
        for _ in 0..2000 {
            std::fs::write(root.join("old"), b"").unwrap();
            renamed = first.rename(top, b"old", top, b"new", RenameOver::Replace).await;
            if renamed.is_err() {
                break;
            }
        }
        has_ended.store(true, std::sync::atomic::Ordering::Relaxed);
        others.join().unwrap();
        renamed.unwrap();
    });
}

#[test]
fn a_number_that_is_used_again_names_no_other_file() {
    on_two_of_a_directory(|(first, second, _), root| async move {
        for round in 0..200 {
            let old = make(&*first, "old").await;
            assert_eq!(second.lookup(second.root(), b"old").await.unwrap().file, old);
            first.unlink(first.root(), b"old").await.unwrap();
            std::thread::sleep(std::time::Duration::from_millis(12));
            let new = make(&*first, "new").await;
            if std::fs::metadata(root.join("new")).unwrap().ino() == old.0 {
                let opened = second.open(old, OpenMode::ReadWrite).await;
                assert_eq!(opened.unwrap_err(), StoreError::Refused(Refusal::Stale), "{round}");
                second.lookup(second.root(), b"new").await.unwrap();
                second.open(new, OpenMode::ReadWrite).await.unwrap();
                return;
            }
            first.unlink(first.root(), b"new").await.unwrap();
        }
        // Some file systems never do.
        println!("not tested: this file system used no number again");
    });
}

/// A program that works past okeanos puts another file there again and again.
#[test]
fn a_created_file_is_the_one_that_was_opened() {
    on_two_of_a_directory(|(first, _, _), root| async move {
        let (path, decoy) = (root.join("file"), root.join("decoy"));
        let has_ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (until, at) = (has_ended.clone(), path.clone());
        let others = std::thread::spawn(move || {
            while !until.load(std::sync::atomic::Ordering::Relaxed) {
                std::fs::write(&decoy, b"theirs").unwrap();
                std::fs::rename(&decoy, &at).unwrap();
            }
        });
        let mut made = 0;
        for _ in 0..20_000 {
            let _ = std::fs::remove_file(&path);
            let Ok(created) = first.create(first.root(), b"file", 0o640, own()).await else {
                continue;
            };
            made += 1;
            let open = created.open.unwrap();
            let written = first.write(open, 0, b"mine").await.unwrap();
            assert_eq!(written.file, created.found.file, "file {made}");
            assert_eq!(written.mode, 0o640);
            first.close(open).await.unwrap();
            if made == 500 {
                break;
            }
        }
        has_ended.store(true, std::sync::atomic::Ordering::Relaxed);
        others.join().unwrap();
        assert!(made > 50, "{made}");
    });
}

#[test]
fn a_removed_file_is_not_the_next_one_of_its_number() {
    on_two_of_a_directory(|(first, _, _), root| async move {
        for _ in 0..200 {
            let old = make(&*first, "old").await;
            first.unlink(first.root(), b"old").await.unwrap();
            std::thread::sleep(std::time::Duration::from_millis(12));
            std::fs::write(root.join("theirs"), b"theirs").unwrap();
            let before = std::fs::metadata(root.join("theirs")).unwrap();
            if before.ino() == old.0 {
                let size = AttributeChange { size: Some(0), ..AttributeChange::default() };
                let changed = first.set_attributes(old, size).await;
                assert_eq!(changed.unwrap_err(), StoreError::Refused(Refusal::Stale));
                assert_eq!(std::fs::read(root.join("theirs")).unwrap(), b"theirs");
                return;
            }
            std::fs::remove_file(root.join("theirs")).unwrap();
        }
        // Some file systems never do.
        println!("not tested: this file system used no number again");
    });
}

#[test]
fn a_removed_directory_is_empty_until_it_is_forgotten() {
    on_a_directory(|store, _| async move {
        let node = NewNode::Directory { mode: 0o755 };
        let made = store.make(store.root(), b"d", node, own()).await.unwrap().file;
        store.remove_directory(store.root(), b"d").await.unwrap();
        assert_eq!(store.attributes(made).await.unwrap().links, 0);
        assert_eq!(store.list(made, 0).await.unwrap().entries, []);
        let change = AttributeChange { mode: Some(0o700), ..AttributeChange::default() };
        assert_eq!(store.set_attributes(made, change).await.unwrap().mode, 0o700);
        store.set_xattr(made, b"user.a", b"1", XattrMode::Set).await.unwrap();
        assert_eq!(store.xattr(made, b"user.a").await.unwrap(), b"1");
        store.forget(made);
        assert!(store.attributes(made).await.is_err());
    });
}

/// A search takes as long as the tree is large, and programs ask again for what is stale.
#[test]
fn others_are_answered_during_a_search_and_a_stale_number_costs_one() {
    on_a_directory(|store, root| async move {
        let file = make(&*store, "file").await;
        let node = NewNode::Directory { mode: 0o755 };
        let moved = store.make(store.root(), b"moved", node, own()).await.unwrap().file;
        let outside = root.parent().unwrap().join("moved");
        std::fs::rename(root.join("moved"), &outside).unwrap();
        let first = race(store.attributes(moved), store.attributes(file)).await;
        assert!(matches!(first, Either::Right(Ok(_))), "{first:?}");
        let stale = StoreError::from(Refusal::Stale);
        assert_eq!(store.attributes(moved).await, Err(stale.clone()));
        std::fs::rename(&outside, root.join("back")).unwrap();
        let first = race(store.attributes(moved), store.attributes(file)).await;
        assert!(matches!(&first, Either::Left(Err(error)) if *error == stale), "{first:?}");
        store.lookup(store.root(), b"back").await.unwrap();
        store.attributes(moved).await.unwrap();
        // Another client moves it: one search finds it.
        std::fs::rename(root.join("back"), root.join("elsewhere")).unwrap();
        store.attributes(moved).await.unwrap();
        store.make(moved, b"inner", NewNode::Regular { mode: 0o644 }, own()).await.unwrap();
        assert!(root.join("elsewhere/inner").exists());
    });
}

/// Otherwise a directory of a million names, or a file of hundreds of GiB, keeps every sync for
/// seconds.
#[test]
fn others_are_answered_while_much_is_listed_or_freed() {
    const NAMES: usize = 5000;
    on_a_directory(|store, root| async move {
        let file = make(&*store, "file").await;
        // The thread may have ended before anybody asks.
        let is_behind = async |what: &str, begin: &dyn Fn() -> Answer<()>| {
            for _ in 0..50 {
                if matches!(race(begin(), store.attributes(file)).await, Either::Right(Ok(_))) {
                    return;
                }
            }
            panic!("{what}: the others wait");
        };
        std::fs::create_dir(root.join("many")).unwrap();
        for number in 0..NAMES {
            std::fs::write(root.join(format!("many/{number}")), b"").unwrap();
        }
        let many = store.lookup(store.root(), b"many").await.unwrap().attributes.file;
        let list = || -> Answer<()> {
            let listing = store.list(many, 0);
            Box::pin(async { listing.await.map(drop) })
        };
        is_behind("list", &list).await;
        let (mut listed, mut cursor) = (BTreeSet::new(), 0);
        loop {
            let Listing { entries, is_end } = store.list(many, cursor).await.unwrap();
            cursor = entries.last().map_or(cursor, |last| last.cursor);
            listed.extend(entries.into_iter().map(|entry| (entry.name, entry.file)));
            if is_end {
                break;
            }
        }
        assert_eq!(listed.len(), NAMES);
        let one = store.lookup(many, b"4321").await.unwrap().attributes.file;
        assert!(listed.contains(&(b"4321".to_vec(), one)));

        let make_long = || std::fs::write(root.join("long"), vec![1; 17 << 20]).unwrap();
        let unlink = || {
            make_long();
            store.unlink(store.root(), b"long")
        };
        is_behind("unlink", &unlink).await;
        assert!(!root.join("long").exists());
        let rename = || {
            make_long();
            std::fs::write(root.join("short"), b"").unwrap();
            store.rename(store.root(), b"short", store.root(), b"long", RenameOver::Replace)
        };
        is_behind("rename", &rename).await;
        assert_eq!(std::fs::metadata(root.join("long")).unwrap().len(), 0);
        let close = || -> Answer<()> {
            make_long();
            let (at, store) = (root.join("long"), store.clone());
            Box::pin(async move {
                let nameless = store.lookup(store.root(), b"long").await?.attributes.file;
                let open = store.open(nameless, OpenMode::ReadWrite).await?;
                std::fs::remove_file(at).unwrap();
                store.close(open).await
            })
        };
        is_behind("close", &close).await;
    });
}

/// Two chains of directories, one moved below the other, as any user makes them.
#[test]
fn directories_too_deep_to_be_reached_are_not_searched_for() {
    on_a_directory(|store, root| async move {
        let node = || NewNode::Directory { mode: 0o755 };
        let chain = async |name: &[u8]| {
            let mut all = vec![store.make(store.root(), name, node(), own()).await.unwrap().file];
            for _ in 1..300 {
                let last = *all.last().unwrap();
                all.push(store.make(last, b"d", node(), own()).await.unwrap().file);
            }
            all
        };
        let (first, second) = (chain(b"first").await, chain(b"second").await);
        let (from, to) = (store.root(), *first.last().unwrap());
        store.rename(from, b"second", to, b"d", RenameOver::Replace).await.unwrap();
        let file = make(&*store, "file").await;
        store.attributes(second[211]).await.unwrap();
        for deep in [212, 213, 299] {
            let found = race(store.attributes(second[deep]), store.attributes(file)).await;
            let stale = StoreError::from(Refusal::Stale);
            assert!(matches!(&found, Either::Left(Err(error)) if *error == stale), "{found:?}");
        }
        drop(root);
    });
}
