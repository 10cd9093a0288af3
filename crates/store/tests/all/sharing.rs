//! The rules of `Store` between clients, on every store of this crate.

use crate::contract::{make, on_a_directory, on_each, open_alone, own, return_recalled};
use device::World;
use runtime::{Either, RealWorld, race};
use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::rc::Rc;
use std::time::Duration;
use store::{
    Answer, AttributeChange, Creator, FileId, FileLock, HostPhase, Identity, LOCK_END, Listing,
    LocalStore, LockKind, LockMode, LockOwner, NewNode, OpenFile, OpenMode, Refusal, RenameOver,
    Store, StoreError, StoreEvent, Token, XattrMode,
};

async fn held(store: &Rc<dyn Store>, name: &str, content: &[u8]) -> (FileId, OpenFile) {
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

fn lock(number: u64, mode: Option<LockMode>, range: std::ops::Range<u64>) -> FileLock {
    FileLock { owner: LockOwner { kind: LockKind::Bytes, number }, mode, range }
}
const TAKEN: StoreError = StoreError::Refused(Refusal::Other(libc::EAGAIN));

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
fn on_two_of_a_directory<F: Future<Output = ()> + 'static>(
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

/// Polls a call once: it has begun, and waits.
fn begin<T>(call: &mut Answer<T>) {
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

/// A program that has a lease of a file, prints when another opens the file, and gives way when the
/// test asks.
struct Leaseholder {
    program: std::process::Child,
    /// The next line that it prints.
    printed: std::sync::mpsc::Receiver<String>,
}

impl Leaseholder {
    /// `None`: there are no leases here.
    fn of(path: &std::path::Path) -> Option<Leaseholder> {
        Leaseholder::with(path, "RDWR", "WRLCK")
    }
    /// Takes a lease of this kind through a descriptor with this access.
    fn with(path: &std::path::Path, access: &str, kind: &str) -> Option<Leaseholder> {
        use std::io::BufRead;
        const PROGRAM: &str = "import fcntl, os, signal, sys\n\
            signal.signal(signal.SIGIO, lambda *_: print('wanted', flush=True))\n\
            file = os.open(sys.argv[1], getattr(os, 'O_' + sys.argv[2]))\n\
            try: fcntl.fcntl(file, fcntl.F_SETLEASE, getattr(fcntl, 'F_' + sys.argv[3]))\n\
            except OSError: sys.exit()\n\
            print('leased', flush=True)\n\
            sys.stdin.readline()\n";
        let mut holder = std::process::Command::new("python3");
        holder.args(["-c", PROGRAM]).arg(path).args([access, kind]);
        let (stdin, stdout) = (std::process::Stdio::piped(), std::process::Stdio::piped());
        let mut program = holder.stdin(stdin).stdout(stdout).spawn().unwrap();
        let lines = std::io::BufReader::new(program.stdout.take().unwrap()).lines();
        let (sender, printed) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        });
        if printed.recv().is_err() {
            println!("not tested: this file system has no leases");
            program.wait().unwrap();
            return None;
        }
        Some(Leaseholder { program, printed })
    }
    /// Returns when another has opened the file and waits.
    async fn until_wanted(&self, world: &dyn World) {
        while self.printed.try_recv().is_err() {
            world.sleep_until(world.now().plus(Duration::from_millis(1))).await;
        }
    }
    /// Gives way after some time, whatever the test waits for.
    fn give_way_after(mut self, time: Duration) {
        let stdin = self.program.stdin.take();
        std::thread::spawn(move || {
            std::thread::sleep(time);
            drop(stdin);
            self.program.wait()
        });
    }
    fn give_way(mut self) {
        drop(self.program.stdin.take());
        self.program.wait().unwrap();
    }
}

/// Others would wait with it: for the holder of the lease, or for ever.
#[test]
fn a_lease_keeps_nobody_from_other_files() {
    on_two_of_a_directory(|(first, _, world), root| async move {
        let (file, other) = (make(&*first, "file").await, make(&*first, "other").await);
        let Some(holder) = Leaseholder::of(&root.join("file")) else { return };
        let mut setting = first.set_xattr(file, b"user.a", b"b", XattrMode::Set);
        let raced = race(&mut setting, holder.until_wanted(&*world)).await;
        assert!(matches!(raced, Either::Right(())), "it opens the file");
        first.attributes(other).await.unwrap();
        // Had all waited with it, the kernel would have taken the lease by now.
        let pause = world.sleep_until(world.now().plus(Duration::from_secs(1)));
        assert!(matches!(race(&mut setting, pause).await, Either::Right(())), "all have waited");
        holder.give_way();
        setting.await.unwrap();
        assert_eq!(first.xattr(file, b"user.a").await.unwrap(), b"b");
    });
}

#[test]
fn a_leased_file_is_opened_when_the_lease_ends() {
    on_two_of_a_directory(|(first, _, world), root| async move {
        let file = make(&*first, "file").await;
        let Some(holder) = Leaseholder::of(&root.join("file")) else { return };
        let pause = || world.sleep_until(world.now().plus(Duration::from_millis(100)));
        let mut opening = first.open(file, OpenMode::ReadWrite);
        assert!(matches!(race(&mut opening, pause()).await, Either::Right(())));
        holder.give_way();
        let open = opening.await.unwrap();
        first.take_token(open, Token::ExclusiveWrite).await.unwrap();
        first.write(open, 0, b"mine").await.unwrap();
        first.make_durable(open).await.unwrap();
        assert_eq!(std::fs::read(root.join("file")).unwrap(), b"mine");
    });
}

/// The lock needs another descriptor, for which the kernel would have the only thread wait.
#[test]
fn a_leased_file_counts_as_locked() {
    on_two_of_a_directory(|(first, _, world), root| async move {
        let file = make(&*first, "file").await;
        let open = first.open(file, OpenMode::Read).await.unwrap();
        let Some(holder) = Leaseholder::with(&root.join("file"), "RDONLY", "RDLCK") else { return };
        let shared = lock(1, Some(LockMode::Shared), 0..LOCK_END);
        // A call that waits for the lease gets the lock then.
        holder.give_way_after(Duration::from_secs(1));
        assert_eq!(first.lock(open, shared.clone()).await, Err(TAKEN));
        while first.lock(open, shared.clone()).await == Err(TAKEN) {
            world.sleep_until(world.now().plus(Duration::from_millis(10))).await;
        }
        first.lock(open, lock(1, Some(LockMode::Exclusive), 0..1)).await.unwrap();
    });
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
