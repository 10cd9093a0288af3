//! Recovery in front of a directory, which does not count changes and uses numbers of files again.

use crate::common::watched_store::WatchedStore;
use crate::common::{JOURNAL_BYTES, ROOT, fresh_host, identity, under_pressure};
use device::{Disk, World};
use disks::{CrashPolicy, Image, Latency, MemoryDisk};
use host::{
    CONFLICT_DIRECTORY, Durable, FileFate, Host, HostError, HostJournal, HostRecoveryReport,
    recover,
};
use runtime::{Either, RealWorld, race, spawn_with_result};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;
use store::{
    AttributeChange, FileId, Identity, LocalStore, NewNode, OpenMode, RenameOver, Store, Token,
    XattrMode,
};

/// Lets a host sync a file and crash, with its buffer and its locks.
fn crashed(root: &Path, mode: u32) -> (FileId, Image) {
    crashed_after(root, mode, async |_, _| {})
}
/// Lets a host sync a file, go on, and crash.
fn crashed_after(
    root: &Path,
    mode: u32,
    goes_on: impl AsyncFnOnce(&Rc<Host>, FileId) + 'static,
) -> (FileId, Image) {
    let world = RealWorld::new().unwrap();
    let shared: Rc<dyn World> = Rc::new(world.clone());
    let disk = MemoryDisk::new(shared.clone(), JOURNAL_BYTES);
    let (inner, at) = (disk.clone(), root.to_owned());
    let file = world.run(async move {
        let store = LocalStore::open(shared.clone(), &at, identity()).unwrap();
        let host = fresh_host(shared, Rc::new(store), Rc::new(inner), under_pressure()).await;
        let file = host.create(host.root(), b"file", mode, ROOT).await.unwrap().file;
        host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        goes_on(&host, file).await;
        file
    });
    world.end();
    (file, disk.crash(CrashPolicy::LoseAll))
}

/// A directory no longer knows our states once the token is back.
#[test]
fn a_client_that_wants_a_replayed_file_sets_nothing_aside() {
    let directory = tempfile::tempdir().unwrap();
    let (file, image) = crashed(directory.path(), 0o644);
    let world = RealWorld::new().unwrap();
    let shared: Rc<dyn World> = Rc::new(world.clone());
    let disk = MemoryDisk::from_image(shared.clone(), image);
    // Each write of the ledger leaves time for a request.
    disk.set_latency(Latency { least: Duration::from_millis(50), spread: Duration::ZERO });
    let at = directory.path().to_owned();
    world.run(async move {
        let open = |name| LocalStore::open(shared.clone(), &at, name).unwrap();
        let (store, peer) = (open(identity()), open(Identity("host-2".into())));
        let (token, clock) = (at.join(format!(".okeanos/tokens/{}", file.0)), shared.clone());
        // The crashed host's locks are gone.
        fs::remove_file(&token).unwrap();
        let peer_reads = spawn_with_result(&*shared, async move {
            while !token.exists() {
                clock.sleep_until(clock.now().plus(Duration::from_millis(1))).await;
            }
            let open = peer.open(file, OpenMode::Read).await.unwrap();
            peer.take_token(open, Token::SharedRead).await.unwrap();
            let seen = peer.read(open, 0, 99).await.unwrap();
            peer.return_token(file).await.unwrap();
            seen
        });
        let journal = HostJournal::open(Rc::new(disk) as Rc<dyn Disk>).await.unwrap();
        let report = recover(&*shared, &store, &journal, false).await.unwrap();
        assert_eq!(report.files[0].outcome, FileFate::Replayed, "{report:?}");
        assert_eq!(peer_reads.await.unwrap(), b"synced");
    });
    world.end();
}

/// Recovers a journal to the directory, and returns the report.
fn recovered(root: &Path, image: Image) -> HostRecoveryReport {
    tried(root, image, false).0.unwrap()
}
/// Recovers a journal, and returns what it has afterwards, too.
fn tried(
    root: &Path,
    image: Image,
    dry_run: bool,
) -> (Result<HostRecoveryReport, HostError>, Image) {
    let world = RealWorld::new().unwrap();
    let shared: Rc<dyn World> = Rc::new(world.clone());
    let disk = MemoryDisk::from_image(shared.clone(), image);
    let (root, used) = (root.to_owned(), disk.clone());
    let report = world.run(async move {
        let store = LocalStore::open(shared.clone(), &root, identity()).unwrap();
        let journal = HostJournal::open(Rc::new(used) as Rc<dyn Disk>).await.unwrap();
        recover(&*shared, &store, &journal, dry_run).await
    });
    world.end();
    (report, disk.crash(CrashPolicy::LoseAll))
}

/// Makes a file again and again until it has the number of one that is gone. False: another program
/// has the number.
fn uses_again(gone: FileId, path: &Path, make: impl Fn()) -> bool {
    (0..200).any(|_| {
        let _ = fs::remove_file(path);
        make();
        fs::symlink_metadata(path).unwrap().ino() == gone.0
    })
}
/// Plays a script until it had a number used again.
fn until_used_again(script: impl Fn(&Path) -> bool) {
    let is_played = (0..20).any(|_| script(tempfile::tempdir().unwrap().path()));
    if !is_played {
        // Some file systems never do.
        println!("not tested: this file system used no number again");
    }
}

/// The link cannot be opened as a file, and nothing was synced to it.
#[test]
fn link_with_reused_number_stops_no_recovery() {
    until_used_again(|root| {
        let (file, image) = crashed(root, 0o644);
        fs::remove_file(root.join("file")).unwrap();
        let link = root.join("link");
        if !uses_again(file, &link, || symlink("nowhere", &link).unwrap()) {
            return false;
        }
        assert_eq!(set_aside(root, &recovered(root, image)), b"synced");
        true
    });
}

/// Returns what was set aside of the one file of a recovery.
fn set_aside(root: &Path, report: &HostRecoveryReport) -> Vec<u8> {
    let FileFate::SetAside { name, .. } = &report.files[0].outcome else {
        panic!("{report:?}");
    };
    fs::read(root.join(CONFLICT_DIRECTORY).join(name)).unwrap()
}

const ALONE: &str = "OKEANOS_TEST_ALONE";

/// Runs a test in a process of its own, as limits are of the whole process. Returns whether this is
/// that process.
fn is_alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut alone = Command::new("sh");
    // Ignored, as the daemon does: it would end the process.
    alone.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]);
    alone.arg(std::env::current_exe().unwrap()).args(["--exact", test]);
    let ended = alone.env(ALONE, "1").output().unwrap();
    let reported = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && reported.contains("1 passed"), "{ended:?}");
    false
}

/// Others of the log would be kept from the store by it, mount after mount.
#[test]
fn a_record_beyond_the_limit_of_file_sizes_ends_no_recovery() {
    if !is_alone("directory::a_record_beyond_the_limit_of_file_sizes_ends_no_recovery") {
        return;
    }
    let resource = rustix::process::Resource::Fsize;
    let limit = rustix::process::getrlimit(resource);
    for is_removed in [true, false] {
        rustix::process::setrlimit(resource, limit).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let (file, image) = crashed_after(root, 0o644, async |host, file| {
            host.write(file, 2 << 20, b"far", Durable::Now).await.unwrap();
            let other = host.create(host.root(), b"other", 0o644, ROOT).await.unwrap().file;
            host.write(other, 0, b"other's", Durable::Now).await.unwrap();
        });
        if is_removed {
            fs::remove_file(root.join("file")).unwrap();
        }
        let small = rustix::process::Rlimit { current: Some(1 << 20), ..limit };
        rustix::process::setrlimit(resource, small).unwrap();
        let report = recovered(root, image);
        assert_eq!(fs::read(root.join("other")).unwrap(), b"other's", "{report:?}");
        let (of_it, of_other): (Vec<_>, Vec<_>) =
            report.files.iter().partition(|outcome| outcome.file == file.0);
        assert_eq!(of_other[0].outcome, FileFate::Replayed);
        let FileFate::SetAside { name, .. } = &of_it[0].outcome else { panic!("{report:?}") };
        let at = |name: &str| root.join(CONFLICT_DIRECTORY).join(name);
        assert_eq!(fs::read(at(name)).unwrap(), b"syncedfar");
        let about = fs::read_to_string(at(&format!("{name}.txt"))).unwrap();
        assert!(about.contains("\n0..6 at 0\n2097152..2097155 at 6\n"), "{about}");
    }
}

/// Lets a host sync a file and crash. The directory has `second`, in a state that a note has; the
/// journal alone has `thirds`, which builds on that.
fn crashed_on_a_noted_state(root: &Path) -> (FileId, Image) {
    let dead = root.join(".okeanos/hosts/dead");
    crashed_after(root, 0o644, async move |host, file| {
        // Notes are kept for the recovery of a dead host.
        fs::write(dead, b"").unwrap();
        let set = host.set_xattr(file, b"user.a", Some(b"1"), XattrMode::Set);
        set.await.unwrap();
        for bytes in [b"second", b"thirds"] {
            host.write(file, 0, bytes, Durable::Now).await.unwrap();
        }
    })
}

/// The file is as it was then, also for a recovery.
#[test]
fn a_change_that_fails_sets_nothing_aside() {
    let directory = tempfile::tempdir().unwrap();
    let (_, image) = crashed_after(directory.path(), 0o644, async |host, file| {
        let too_much = AttributeChange { size: Some(u64::MAX), ..Default::default() };
        host.set_attributes(file, too_much).await.unwrap_err();
        host.write(file, 0, b"second", Durable::Now).await.unwrap();
    });
    let report = recovered(directory.path(), image);
    assert_eq!(outcomes(&report), [FileFate::Replayed], "{report:?}");
    assert_eq!(fs::read(directory.path().join("file")).unwrap(), b"second");
}

#[test]
fn anothers_change_that_fails_sets_nothing_of_a_dead_host_aside() {
    let directory = tempfile::tempdir().unwrap();
    let (file, image) = crashed_on_a_noted_state(directory.path());
    as_peer(directory.path(), async move |peer| {
        peer.lookup(peer.root(), b"file").await.unwrap();
        peer.remove_xattr(file, b"user.none").await.unwrap_err();
    });
    let report = recovered(directory.path(), image);
    assert_eq!(outcomes(&report), [FileFate::Replayed], "{report:?}");
}

/// Plays a script of another client of the directory.
fn as_peer(root: &Path, script: impl AsyncFnOnce(LocalStore) + 'static) {
    let (world, root) = (RealWorld::new().unwrap(), root.to_owned());
    let shared: Rc<dyn World> = Rc::new(world.clone());
    world.run(async move {
        script(LocalStore::open(shared, &root, Identity("host-2".into())).unwrap()).await;
    });
    world.end();
}

/// Another client moves a file, gives it another name, and removes that again.
#[test]
fn anothers_changes_of_names_set_nothing_of_a_dead_host_aside() {
    for is_noted in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (file, image) = match is_noted {
            false => crashed(directory.path(), 0o644),
            true => crashed_on_a_noted_state(directory.path()),
        };
        as_peer(directory.path(), async move |peer| {
            let root = peer.root();
            peer.lookup(root, b"file").await.unwrap();
            peer.rename(root, b"file", root, b"moved", RenameOver::Replace).await.unwrap();
            peer.link(file, root, b"linked").await.unwrap();
            peer.unlink(root, b"moved").await.unwrap();
            peer.link(file, root, b"replaced").await.unwrap();
            peer.make(root, b"new", NewNode::Regular { mode: 0o644 }, ROOT).await.unwrap();
            peer.rename(root, b"new", root, b"replaced", RenameOver::Replace).await.unwrap();
        });
        let report = recovered(directory.path(), image);
        assert_eq!(outcomes(&report), [FileFate::Replayed], "{report:?}");
        let synced: &[u8] = if is_noted { b"thirds" } else { b"synced" };
        assert_eq!(fs::read(directory.path().join("linked")).unwrap(), synced);
    }
}

/// The note of a file that is removed past okeanos stays, and here another one gets its number, its
/// size, and its time of modification.
#[test]
fn nothing_is_replayed_into_the_next_file_of_a_number() {
    until_used_again(|root| {
        let [old, new] = ["file", "new"].map(|name| root.join(name));
        let (file, image) = crashed_on_a_noted_state(root);
        assert_eq!(fs::read(&old).unwrap(), b"second");
        let before = fs::metadata(&old).unwrap();
        let modified = before.modified().unwrap();
        fs::remove_file(&old).unwrap();
        if !uses_again(file, &new, || fs::write(&new, b"theirs").unwrap()) {
            return false;
        }
        let file = fs::File::options().write(true).open(&new).unwrap();
        file.set_modified(modified).unwrap();
        if file.metadata().unwrap().created().unwrap() == before.created().unwrap() {
            // Within one tick of the kernel's clock.
            return false;
        }
        let report = recovered(root, image);
        assert_eq!(fs::read(&new).unwrap(), b"theirs", "{report:?}");
        assert_eq!(set_aside(root, &report), b"thirds");
        true
    });
}

/// Removed files are forgotten with the log. Their names may come back until the directory is
/// durable, and what was synced then is in the log alone.
#[test]
fn a_recovery_forgets_a_removed_file_only_when_that_is_durable() {
    let directory = tempfile::tempdir().unwrap();
    let (_, image) = crashed_after(directory.path(), 0o644, async |host, file| {
        host.close_file(file).await.unwrap();
        host.unlink(host.root(), b"file").await.unwrap();
    });
    let world = RealWorld::new().unwrap();
    let shared: Rc<dyn World> = Rc::new(world.clone());
    let disk = MemoryDisk::from_image(shared.clone(), image);
    let (root, power) = (directory.path().to_owned(), disk.clone());
    let before = world.run(async move {
        let store = LocalStore::open(shared.clone(), &root, identity()).unwrap();
        let watched = Rc::new(WatchedStore::new(Rc::new(store)));
        watched.slow_removals.set(true);
        let journal = HostJournal::open(Rc::new(disk) as Rc<dyn Disk>).await.unwrap();
        let (store, clock) = (watched.clone(), shared.clone());
        let recovered = spawn_with_result(&*shared, async move {
            recover(&*clock, &*store, &journal, false).await.unwrap()
        });
        let asked =
            watched.changed.until(|| (!watched.durable_removals.borrow().is_empty()).then_some(()));
        assert!(matches!(race(asked, recovered).await, Either::Left(())), "nothing was synced");
        power.crash(CrashPolicy::KeepAll)
    });
    world.end();
    let report = recovered(directory.path(), before);
    assert_eq!(report.files[0].outcome, FileFate::Removed, "{report:?}");
}

/// Set for a test when it runs again without the right to pass over modes.
const AS_OWNER: &str = "OKEANOS_TEST_AS_OWNER";

/// Runs a test of this file again without the right to pass over modes, if this process has it.
/// Returns whether it did.
fn ran_as_owner(test: &str) -> bool {
    ran_without(test, "-dac_override,-dac_read_search")
}
/// Runs a test of this file again without these capabilities, if this process has them. Returns
/// whether it did.
fn ran_without(test: &str, capabilities: &str) -> bool {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root || std::env::var_os(AS_OWNER).is_some() {
        return false;
    }
    let mut as_owner = Command::new("setpriv");
    as_owner.args([format!("--bounding-set={capabilities}"), format!("--inh-caps={capabilities}")]);
    as_owner.arg(std::env::current_exe().unwrap()).env(AS_OWNER, "1");
    as_owner.args(["--exact", &format!("directory::{test}")]);
    let ended = as_owner.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    true
}

/// Git makes its objects so; logs that are only written, and lock files, have the other modes.
#[test]
fn an_owner_recovers_what_he_made_read_only() {
    if ran_as_owner("an_owner_recovers_what_he_made_read_only") {
        return;
    }
    for mode in [0o444, 0o200, 0o000] {
        let directory = tempfile::tempdir().unwrap();
        let (_, image) = crashed(directory.path(), mode);
        let report = recovered(directory.path(), image);
        assert_eq!(report.files[0].outcome, FileFate::Replayed, "{mode:o}: {report:?}");
        let file = directory.path().join("file");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, mode);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"synced", "{mode:o}");
    }
}

/// Samba with kernel oplocks has such leases. Otherwise no file of the journal is recovered.
#[test]
fn a_recovery_waits_for_a_lease() {
    const PROGRAM: &str = "import fcntl, os, signal, sys, time\n\
        file = os.open(sys.argv[1], os.O_RDWR)\n\
        def give_way(*_):\n \
            time.sleep(0.2); fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)\n\
        signal.signal(signal.SIGIO, give_way)\n\
        try: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
        except OSError: sys.exit()\n\
        print('leased', flush=True)\n\
        sys.stdin.readline()\n";
    let directory = tempfile::tempdir().unwrap();
    let (_, image) = crashed(directory.path(), 0o644);
    let mut holder = Command::new("python3");
    holder.args(["-c", PROGRAM]).arg(directory.path().join("file"));
    let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    if holder.stdout.as_mut().unwrap().read_exact(&mut [0; 7]).is_err() {
        println!("not tested: this file system has no leases");
        return drop(holder.wait());
    }
    let report = recovered(directory.path(), image);
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert_eq!(outcomes(&report), [FileFate::Replayed], "{report:?}");
    assert_eq!(fs::read(directory.path().join("file")).unwrap(), b"synced");
}

/// Neither the first attempt fails, nor is a file left by it taken for another's.
#[test]
fn who_may_give_nothing_away_sets_aside_as_the_own() {
    if ran_without("who_may_give_nothing_away_sets_aside_as_the_own", "-chown") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let (_, image) = crashed_after(root, 0o644, async |host, file| {
        let given = AttributeChange { uid: Some(1), ..Default::default() };
        host.set_attributes(file, given).await.unwrap();
        host.sync_file(file).await.unwrap();
    });
    fs::remove_file(root.join("file")).unwrap();
    let report = recovered(root, image);
    assert_eq!(set_aside(root, &report), b"synced");
    assert_eq!(fs::read_dir(root.join(CONFLICT_DIRECTORY)).unwrap().count(), 2);
}

/// Makes directories in each other, and a file with synced content in the last.
async fn make_in(host: &Rc<Host>, names: &[Vec<u8>]) {
    let mut parent = host.root();
    for name in names {
        let node = NewNode::Directory { mode: 0o755 };
        parent = host.make(parent, name, node, ROOT).await.unwrap().file;
    }
    let file = host.create(parent, b"deep", 0o644, ROOT).await.unwrap().file;
    host.write(file, 0, b"deep", Durable::Now).await.unwrap();
}
fn outcomes(report: &HostRecoveryReport) -> Vec<FileFate> {
    report.files.iter().map(|one| one.outcome.clone()).collect()
}

/// The kernel takes paths of 4,095 bytes; programs reach the file directory by directory.
#[test]
fn a_file_beyond_the_longest_path_is_recovered() {
    let directory = tempfile::tempdir().unwrap();
    let (_, image) = crashed_after(directory.path(), 0o644, async |host, _| {
        make_in(host, &vec![vec![b'd'; 255]; 25]).await;
    });
    let report = recovered(directory.path(), image);
    assert_eq!(outcomes(&report), [FileFate::Replayed, FileFate::Replayed], "{report:?}");
}

/// An unreadable directory may have the file, so the file does not count as gone.
#[test]
fn a_directory_that_cannot_be_read_keeps_the_journal() {
    if ran_as_owner("a_directory_that_cannot_be_read_keeps_the_journal") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let closed = directory.path().join("closed");
    let (_, image) = crashed_after(directory.path(), 0o644, async |host, _| {
        make_in(host, &[b"closed".to_vec()]).await;
    });
    let close = |mode| fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
    close(0);
    let (foreseen, image) = tried(directory.path(), image, true);
    let (refused, image) = tried(directory.path(), image, false);
    close(0o755);
    let [foreseen, refused] = [foreseen, refused].map(|tried| tried.map(drop));
    assert_eq!(foreseen.unwrap_err().to_string(), refused.clone().unwrap_err().to_string());
    let error = refused.expect_err("a part of the tree was not looked at").to_string();
    assert!(error.contains("\"closed\"") && error.contains("Permission denied"), "{error}");
    let report = recovered(directory.path(), image);
    assert!(outcomes(&report).contains(&FileFate::Replayed), "{report:?}");
    assert_eq!(fs::read(closed.join("deep")).unwrap(), b"deep");
}

/// An administrator who makes room must not have to search the tree for a number.
#[test]
fn a_refused_recovery_names_the_file_by_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let (file, image) = crashed(root, 0o644);
    let world = RealWorld::new().unwrap();
    let shared: Rc<dyn World> = Rc::new(world.clone());
    let disk = MemoryDisk::from_image(shared.clone(), image);
    let at = root.to_owned();
    world.run(async move {
        let store = LocalStore::open(shared.clone(), &at, identity()).unwrap();
        let store = WatchedStore::new(Rc::new(store));
        store.failing_changes.set(true);
        let journal = HostJournal::open(Rc::new(disk) as Rc<dyn Disk>).await.unwrap();
        let error = recover(&*shared, &store, &journal, false).await.unwrap_err().to_string();
        let named = format!("file {} (file) could not be written", file.0);
        assert!(error.starts_with(&named), "{error}");
    });
    world.end();
}

#[test]
fn a_conflict_names_the_file_by_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let (file, image) = crashed(root, 0o644);
    fs::write(root.join("file"), b"theirs").unwrap();
    assert_eq!(set_aside(root, &recovered(root, image)), b"synced");
    let conflicts = fs::read_dir(root.join(CONFLICT_DIRECTORY)).unwrap();
    let texts = conflicts
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "txt"));
    let texts: Vec<_> = texts.map(|path| fs::read_to_string(path).unwrap()).collect();
    let [text] = &texts[..] else { panic!("{texts:?}") };
    assert!(text.starts_with(&format!("Bytes of file {} ", file.0)), "{text}");
    assert_eq!(text.lines().nth(1), Some("Its name: file"));
}
