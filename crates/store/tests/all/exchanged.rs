//! Names that another user exchanges all the time, as any who may write to their directory can:
//! what is done to a file is done to that one, or fails.

use crate::contract::{make, on_a_directory, own};
use rustix::fs::{CWD, RenameFlags, fgetxattr, renameat_with};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use store::{
    AttributeChange, NewNode, OpenMode, Refusal, Store, StoreError, TimeChange, XattrMode,
};
use units::Timestamp;

const ROUNDS: u64 = 2000;
/// Pause between exchanges. Shorter ones keep everybody from the directory.
const PAUSE: Duration = Duration::from_micros(20);
const NAMES: [&str; 2] = ["mine", "theirs"];

/// A program that exchanges two names until this is dropped.
struct Exchanging {
    has_ended: Arc<AtomicBool>,
    program: Option<JoinHandle<()>>,
}

impl Exchanging {
    fn begin(names: [PathBuf; 2]) -> Exchanging {
        let has_ended = Arc::new(AtomicBool::new(false));
        let until = has_ended.clone();
        let program = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                let [one, other] = &names;
                // One of them may not be there.
                let _ = renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
                std::thread::sleep(PAUSE);
            }
        });
        Exchanging { has_ended, program: Some(program) }
    }
}
impl Drop for Exchanging {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.program.take().map(JoinHandle::join);
    }
}

/// Looks at both names: the store sees the file under one of them, mostly.
async fn look(store: &dyn Store) {
    for name in NAMES {
        store.lookup(store.root(), name.as_bytes()).await.unwrap();
    }
}

fn is_stale<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Refused(Refusal::Stale)))
}

#[test]
fn a_change_reaches_no_file_put_in_its_place() {
    on_a_directory(|store, root| async move {
        let mine = make(&*store, "mine").await;
        fs::write(root.join("theirs"), b"theirs").unwrap();
        let theirs = File::open(root.join("theirs")).unwrap();
        let seen = || {
            let found = theirs.metadata().unwrap();
            let is_named = fgetxattr(&theirs, "user.a", &mut [0; 9][..]).is_ok();
            (found.mode(), found.size(), found.uid(), found.modified().unwrap(), is_named)
        };
        let before = seen();
        let exchanging = Exchanging::begin(NAMES.map(|name| root.join(name)));
        let time = TimeChange::To(Timestamp { seconds: 7, nanoseconds: 0 });
        let mut made = [0; 5];
        for round in 0..ROUNDS {
            look(&*store).await;
            let kind = round as usize % made.len();
            let change = match kind {
                0 => AttributeChange { mode: Some(0o4711), ..Default::default() },
                1 => AttributeChange { uid: Some(own().uid), ..Default::default() },
                2 => AttributeChange { modified: Some(time), ..Default::default() },
                _ => AttributeChange { size: Some(round), ..Default::default() },
            };
            let changed = match kind {
                4 => store.set_xattr(mine, b"user.a", b"1", XattrMode::Set).await,
                _ => store.set_attributes(mine, change).await.map(drop),
            };
            assert_eq!(seen(), before, "{change:?}");
            assert!(changed.is_ok() || is_stale(&changed), "{changed:?}");
            made[kind] += u32::from(changed.is_ok());
        }
        drop(exchanging);
        assert!(made.iter().all(|made| *made > 10), "{made:?}");
    });
}

#[test]
fn nothing_is_read_or_linked_of_a_file_put_in_its_place() {
    on_a_directory(|store, root| async move {
        let mine = make(&*store, "mine").await;
        store.set_xattr(mine, b"user.a", b"mine", XattrMode::Set).await.unwrap();
        fs::write(root.join("mine"), b"mine").unwrap();
        fs::write(root.join("theirs"), b"theirs").unwrap();
        let theirs = store.lookup(store.root(), b"theirs").await.unwrap().file;
        store.set_xattr(theirs, b"user.a", b"theirs", XattrMode::Set).await.unwrap();
        let exchanging = Exchanging::begin(NAMES.map(|name| root.join(name)));
        let mut done = [0; 3];
        for round in 0..ROUNDS {
            look(&*store).await;
            let kind = round as usize % done.len();
            let is_done = match kind {
                0 => {
                    let value = store.xattr(mine, b"user.a").await;
                    assert!(value == Ok(b"mine".to_vec()) || is_stale(&value), "{value:?}");
                    value.is_ok()
                }
                1 => {
                    let linked = store.link(mine, store.root(), b"link").await;
                    let found = fs::metadata(root.join("link")).map(|found| found.ino()).ok();
                    assert_eq!(found, linked.is_ok().then_some(mine.0), "{linked:?}");
                    let _ = fs::remove_file(root.join("link"));
                    assert!(linked.is_ok() || is_stale(&linked), "{linked:?}");
                    linked.is_ok()
                }
                _ => {
                    let opened = store.open(mine, OpenMode::Read).await;
                    assert!(opened.is_ok() || is_stale(&opened), "{opened:?}");
                    if let Ok(open) = opened {
                        assert_eq!(store.read(open, 0, 9).await.unwrap(), b"mine");
                        store.close(open).await.unwrap();
                    }
                    opened.is_ok()
                }
            };
            done[kind] += u32::from(is_done);
        }
        drop(exchanging);
        assert!(done.iter().all(|done| *done > 10), "{done:?}");
    });
}

#[test]
fn the_target_of_a_link_put_in_its_place_is_not_read() {
    on_a_directory(|store, root| async move {
        let link = |target: &[u8]| NewNode::Symlink { target: target.to_vec() };
        let made = store.make(store.root(), b"mine", link(b"mine"), own()).await.unwrap().file;
        store.make(store.root(), b"theirs", link(b"theirs"), own()).await.unwrap();
        let exchanging = Exchanging::begin(NAMES.map(|name| root.join(name)));
        let mut done = 0;
        for _ in 0..ROUNDS {
            look(&*store).await;
            let target = store.read_link(made).await;
            assert!(target == Ok(b"mine".to_vec()) || is_stale(&target), "{target:?}");
            done += u32::from(target.is_ok());
        }
        drop(exchanging);
        assert!(done > 10, "{done}");
    });
}

/// Taken for the removed one, it would seem empty from then on.
#[test]
fn a_directory_exchanged_for_a_removed_one_is_listed() {
    on_a_directory(|store, root| async move {
        let at = |name: &str| root.join(name);
        let exchanging = Exchanging::begin(NAMES.map(at));
        for removed in 0..ROUNDS {
            for name in NAMES {
                let _ = fs::create_dir(at(name));
            }
            look(&*store).await;
            store.remove_directory(store.root(), b"mine").await.unwrap();
            let left = NAMES.into_iter().find(|name| at(name).exists()).unwrap();
            fs::write(at(left).join("inner"), b"").unwrap();
            let found = store.lookup(store.root(), left.as_bytes()).await.unwrap();
            let listed = store.list(found.file, 0).await.unwrap().entries.len();
            assert_eq!(listed, 1, "{removed} before");
            fs::remove_file(at(left).join("inner")).unwrap();
            store.forget(found.file);
        }
        drop(exchanging);
    });
}

/// A link is held as itself, and never followed.
#[test]
fn attributes_of_a_link_are_its_own() {
    on_a_directory(|store, root| async move {
        make(&*store, "file").await;
        let before = fs::metadata(root.join("file")).unwrap();
        let node = NewNode::Symlink { target: b"file".to_vec() };
        let link = store.make(store.root(), b"link", node, own()).await.unwrap().file;
        let time = TimeChange::To(Timestamp { seconds: 7, nanoseconds: 0 });
        let uid = if own().uid == 0 { 77 } else { own().uid };
        let change = AttributeChange {
            mode: Some(0o600),
            uid: Some(uid),
            modified: Some(time),
            ..Default::default()
        };
        let changed = store.set_attributes(link, change).await.unwrap();
        assert_eq!((changed.uid, changed.modified.seconds), (uid, 7));
        let found = fs::symlink_metadata(root.join("link")).unwrap();
        assert_eq!((found.uid(), found.mtime()), (uid, 7));
        store.link(link, store.root(), b"another").await.unwrap();
        assert_eq!(fs::symlink_metadata(root.join("another")).unwrap().ino(), link.0);
        let now = fs::metadata(root.join("file")).unwrap();
        let of = |found: &fs::Metadata| (found.mode(), found.uid(), found.mtime(), found.nlink());
        assert_eq!(of(&now), of(&before));
    });
}
