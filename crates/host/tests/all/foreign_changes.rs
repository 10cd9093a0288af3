//! A program changes a file of a directory past okeanos while a host has changes of it: neither
//! side's bytes are lost, and the host's programs learn of it.

use crate::common::{JOURNAL_BYTES, ROOT, fresh_host, identity, make, sleep};
use device::{Disk, World};
use disks::{CrashPolicy, Image, Latency, MemoryDisk};
use host::{
    CONFLICT_DIRECTORY, Destage, Durable, FileFate, Host, HostError, HostJournal, HostOptions,
    HostRecoveryReport, recover,
};
use runtime::RealWorld;
use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use store::{
    AttributeChange, FileId, Identity, LocalStore, OpenMode, RenameOver, Store, Token, XattrMode,
};

/// Longer than a tick of the kernel's clock, which gives the times of change.
const TICK: Duration = Duration::from_millis(20);

pub struct Stage {
    pub root: PathBuf,
    pub world: Rc<dyn World>,
    pub host: Rc<Host>,
    reports: Rc<RefCell<Vec<String>>>,
}

impl Stage {
    fn path(&self) -> PathBuf {
        self.root.join("file")
    }
    fn content(&self) -> Vec<u8> {
        fs::read(self.path()).unwrap()
    }
    /// Changes the file as a program does that knows nothing of the host.
    async fn write_past(&self, bytes: &[u8]) {
        sleep(&*self.world, TICK).await;
        write_past(&self.path(), bytes);
    }
    pub fn peer(&self) -> LocalStore {
        let peer = Identity("peer".into());
        LocalStore::open(self.world.clone(), &self.root, peer).unwrap()
    }
    /// Makes a file of which the host has `synced` and the store nothing.
    async fn dirty(&self) -> FileId {
        let file = make(&self.host, "file").await;
        self.host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        assert_eq!(self.content(), b"");
        file
    }
}

fn write_past(path: &Path, bytes: &[u8]) {
    fs::File::options().write(true).open(path).unwrap().write_all_at(bytes, 0).unwrap();
}

/// Returns the conflict files without their texts.
fn set_aside(root: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(root.join(CONFLICT_DIRECTORY)) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    let data = paths.filter(|path| path.extension().is_none_or(|end| end != "txt"));
    data.map(|path| fs::read(path).unwrap()).collect()
}

fn is_set_aside<T>(result: &Result<T, HostError>) -> bool {
    matches!(result, Err(error @ HostError::SetAside(_)) if error.errno() == 5)
}

/// Runs a script with a host in front of a directory. Returns what its journal disk has then.
pub fn on_a_directory<F: Future<Output = ()> + 'static>(
    root: &Path,
    options: HostOptions,
    script: impl FnOnce(Rc<Stage>) -> F,
) -> Image {
    let world = RealWorld::new().unwrap();
    let shared: Rc<dyn World> = Rc::new(world.clone());
    let disk = MemoryDisk::new(shared.clone(), JOURNAL_BYTES);
    let (inner, clock, at) = (disk.clone(), shared.clone(), root.to_owned());
    let host = world.run(async move {
        let store = LocalStore::open(clock.clone(), &at, identity()).unwrap();
        fresh_host(clock, Rc::new(store), Rc::new(inner), options).await
    });
    let reports: Rc<RefCell<Vec<String>>> = Rc::default();
    let sink = reports.clone();
    host.on_trouble(Box::new(move |what| sink.borrow_mut().push(what.into())));
    world.run(script(Rc::new(Stage { root: root.to_owned(), world: shared, host, reports })));
    world.end();
    disk.crash(CrashPolicy::LoseAll)
}

pub fn recovered(root: &Path, image: Image) -> HostRecoveryReport {
    recovered_beside(root, image, Duration::ZERO, async |_| {})
}
/// Recovers a journal on a disk of this latency, beside what another program does.
fn recovered_beside(
    root: &Path,
    image: Image,
    latency: Duration,
    program: impl AsyncFnOnce(Rc<dyn World>) + 'static,
) -> HostRecoveryReport {
    let world = RealWorld::new().unwrap();
    let shared: Rc<dyn World> = Rc::new(world.clone());
    let disk = MemoryDisk::from_image(shared.clone(), image);
    disk.set_latency(Latency { least: latency, spread: Duration::ZERO });
    let root = root.to_owned();
    let report = world.run(async move {
        let store = LocalStore::open(shared.clone(), &root, identity()).unwrap();
        let journal = HostJournal::open(Rc::new(disk) as Rc<dyn Disk>).await.unwrap();
        let clock = shared.clone();
        shared.spawn(Box::pin(async move { program(clock).await }));
        recover(&*shared, &store, &journal, false).await.unwrap()
    });
    world.end();
    report
}

pub fn late() -> HostOptions {
    HostOptions { destage: Destage::UnderPressure, ..HostOptions::default() }
}

#[test]
fn a_destage_writes_over_no_foreign_change() {
    let root = tempfile::tempdir().unwrap();
    let image = on_a_directory(root.path(), late(), |stage| async move {
        let host = &stage.host;
        let file = stage.dirty().await;
        stage.write_past(b"theirs, and longer").await;
        // Has the file destaged.
        let set = host.set_xattr(file, b"user.a", Some(b"1"), XattrMode::Set).await;
        assert!(is_set_aside(&set), "{set:?}");
        assert_eq!(stage.content(), b"theirs, and longer");
        assert_eq!(set_aside(&stage.root), [b"synced"]);
        assert!(stage.reports.borrow()[0].contains("okeanos-conflicts/"), "{:?}", stage.reports);
        let statistics = host.statistics();
        assert_eq!((statistics.set_aside_files, statistics.failed_files), (1, 0));
        assert_eq!(statistics.dirty_in_journal, 0, "the journal keeps records of it");
        // Every sync and change until all descriptors are closed.
        host.open_file(file).await.unwrap();
        for _ in 0..2 {
            assert!(is_set_aside(&host.sync_file(file).await));
            assert!(is_set_aside(&host.write(file, 0, b"more", Durable::Soon).await));
            host.close_file(file).await.unwrap();
        }
        host.open_file(file).await.unwrap();
        assert_eq!(host.read(file, 0, 100).await.unwrap(), b"theirs, and longer");
        host.write(file, 0, b"again!", Durable::Now).await.unwrap();
        host.close_file(file).await.unwrap();
        host.close().await.unwrap();
        assert_eq!(stage.content(), b"again!, and longer");
    });
    assert!(recovered(root.path(), image).clean);
    assert_eq!(set_aside(root.path()), [b"synced"], "recovery set it aside once more");
}

/// A change of the mode or of the names counts, too, as for a recovery.
#[test]
fn foreign_changes_of_attributes_and_names_count() {
    let changes: [fn(&Path); 3] = [
        |path| fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap(),
        |path| fs::hard_link(path, path.with_extension("linked")).unwrap(),
        |path| fs::rename(path, path.with_extension("moved")).unwrap(),
    ];
    for change in changes {
        let root = tempfile::tempdir().unwrap();
        on_a_directory(root.path(), late(), move |stage| async move {
            let file = stage.dirty().await;
            sleep(&*stage.world, TICK).await;
            change(&stage.path());
            let set = stage.host.set_xattr(file, b"user.a", Some(b"1"), XattrMode::Set).await;
            assert!(is_set_aside(&set), "{set:?}");
            assert_eq!(set_aside(&stage.root), [b"synced"]);
        });
    }
}

/// Content that a note names as this host's was destaged, and the journal builds on it. The program
/// changes the mode, or the content and sets the time of that back.
#[test]
fn a_foreign_change_of_a_destaged_state_is_not_replayed_over() {
    let changes: [fn(&Path); 2] = [
        |path| fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap(),
        |path| {
            let modified = fs::metadata(path).unwrap().modified().unwrap();
            write_past(path, b"theirs");
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_modified(modified).unwrap();
        },
    ];
    for (change, content, mode) in [(changes[0], b"second", 0o600), (changes[1], b"theirs", 0o644)]
    {
        let root = tempfile::tempdir().unwrap();
        let destage = Destage::After(Duration::ZERO);
        let writeback = Duration::from_millis(500);
        let options = HostOptions { destage, writeback, ..HostOptions::default() };
        let image = on_a_directory(root.path(), options, |stage| async move {
            let file = make(&stage.host, "file").await;
            stage.host.write(file, 0, b"second", Durable::Now).await.unwrap();
            while stage.host.statistics().dirty_in_journal > 0 {
                sleep(&*stage.world, Duration::from_millis(2)).await;
            }
            stage.host.write(file, 0, b"thirds", Durable::Now).await.unwrap();
            assert!(stage.host.statistics().dirty_in_journal > 0);
            assert_eq!(stage.content(), b"second");
            sleep(&*stage.world, TICK).await;
        });
        let path = root.path().join("file");
        change(&path);
        let report = recovered(root.path(), image);
        assert!(matches!(report.files[0].outcome, FileFate::SetAside { .. }), "{report:?}");
        assert_eq!(fs::read(&path).unwrap(), content);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode);
        assert_eq!(set_aside(root.path()), [b"thirds"]);
    }
}

/// Another host gets the file, though a program here has it open and has not learnt of it yet.
#[test]
fn a_recall_of_a_foreign_change_returns_the_token() {
    let root = tempfile::tempdir().unwrap();
    on_a_directory(root.path(), late(), |stage| async move {
        let host = &stage.host;
        let file = stage.dirty().await;
        stage.write_past(b"theirs").await;
        let peer = stage.peer();
        let open = peer.open(file, OpenMode::ReadWrite).await.unwrap();
        peer.take_token(open, Token::ExclusiveWrite).await.unwrap();
        assert_eq!(peer.read(open, 0, 100).await.unwrap(), b"theirs");
        assert!(is_set_aside(&host.sync_file(file).await));
        peer.return_token(file).await.unwrap();
        // A failed file that is only read is returned as any other.
        assert_eq!(host.read(file, 0, 100).await.unwrap(), b"theirs");
        peer.take_token(open, Token::ExclusiveWrite).await.unwrap();
        assert_eq!(set_aside(&stage.root), [b"synced"]);
    });
}

#[test]
fn an_unmount_leaves_a_foreign_change_and_an_empty_journal() {
    let root = tempfile::tempdir().unwrap();
    let image = on_a_directory(root.path(), late(), |stage| async move {
        let file = stage.dirty().await;
        stage.write_past(b"theirs").await;
        stage.host.close_file(file).await.unwrap();
        stage.host.close().await.unwrap();
        assert_eq!(stage.content(), b"theirs");
    });
    assert!(recovered(root.path(), image).clean);
    assert_eq!(set_aside(root.path()), [b"synced"]);
}

/// Two conflicts of one file are two files, and the bytes stay in the journal until there is one.
#[test]
fn bytes_that_cannot_be_set_aside_stay_in_the_journal() {
    let root = tempfile::tempdir().unwrap();
    let in_the_way = |number: usize| match number {
        0 => CONFLICT_DIRECTORY.to_owned(),
        number => format!("{CONFLICT_DIRECTORY}~{number}"),
    };
    let image = on_a_directory(root.path(), late(), move |stage| async move {
        let host = &stage.host;
        let file = stage.dirty().await;
        stage.write_past(b"theirs").await;
        let set = host.set_xattr(file, b"user.a", Some(b"1"), XattrMode::Set).await;
        assert!(is_set_aside(&set), "{set:?}");
        host.close_file(file).await.unwrap();
        host.open_file(file).await.unwrap();
        host.write(file, 0, b"second", Durable::Now).await.unwrap();
        stage.write_past(b"THEIRS").await;
        fs::rename(stage.root.join(CONFLICT_DIRECTORY), stage.root.join("kept")).unwrap();
        (0..16).for_each(|number| fs::write(stage.root.join(in_the_way(number)), b"").unwrap());
        let set = host.set_xattr(file, b"user.a", Some(b"1"), XattrMode::Set).await;
        assert!(set.is_err(), "{set:?}");
        let refused = host.sync_file(file).await;
        assert!(matches!(refused, Err(HostError::NotDestaged(_))), "{refused:?}");
        assert_eq!(host.statistics().failed_files, 1);
        assert!(host.statistics().dirty_in_journal > 0);
        (0..16).for_each(|number| fs::remove_file(stage.root.join(in_the_way(number))).unwrap());
        fs::rename(stage.root.join("kept"), stage.root.join(CONFLICT_DIRECTORY)).unwrap();
        host.close().await.unwrap();
        assert_eq!(stage.content(), b"THEIRS");
    });
    assert!(recovered(root.path(), image).clean);
    let mut kept = set_aside(root.path());
    kept.sort();
    assert_eq!(kept, [b"second", b"synced"]);
}

/// The host's own changes of names and attributes give the file other times of change.
#[test]
fn own_changes_are_not_foreign() {
    let root = tempfile::tempdir().unwrap();
    on_a_directory(root.path(), late(), |stage| async move {
        let (host, store) = (&stage.host, stage.host.store().clone());
        let [directory, file] = [host.root(), stage.dirty().await];
        let other = make(host, "other").await;
        for step in 0..8 {
            let bytes = format!("step {step}");
            host.write(file, 0, bytes.as_bytes(), Durable::Now).await.unwrap();
            sleep(&*stage.world, TICK).await;
            match step {
                0 => drop(store.link(file, directory, b"second").await.unwrap()),
                1 => {
                    let (from, to) = ((directory, &b"second"[..]), (directory, &b"third"[..]));
                    store.rename(from.0, from.1, to.0, to.1, RenameOver::Replace).await.unwrap();
                }
                2 => {
                    let (from, to) = ((directory, &b"other"[..]), (directory, &b"third"[..]));
                    store.rename(from.0, from.1, to.0, to.1, RenameOver::Replace).await.unwrap();
                }
                3 => {
                    host.link(file, directory, b"fourth").await.unwrap();
                    host.write(file, 0, bytes.as_bytes(), Durable::Now).await.unwrap();
                    store.unlink(directory, b"fourth").await.unwrap();
                }
                4 => host.set_xattr(file, b"user.a", Some(b"1"), XattrMode::Set).await.unwrap(),
                5 => {
                    let change = AttributeChange { mode: Some(0o600), ..Default::default() };
                    host.set_attributes(file, change).await.unwrap();
                }
                6 => {
                    let change = AttributeChange { size: Some(6), ..Default::default() };
                    host.set_attributes(file, change).await.unwrap();
                    host.write(file, 0, bytes.as_bytes(), Durable::Now).await.unwrap();
                }
                _ => {}
            }
            sleep(&*stage.world, TICK).await;
            // Has the file destaged.
            host.set_xattr(file, b"user.b", Some(b"1"), XattrMode::Set).await.unwrap();
            assert_eq!(stage.content(), bytes.as_bytes());
        }
        host.sync_file(other).await.unwrap();
        assert_eq!(set_aside(&stage.root), Vec::<Vec<u8>>::new());
        host.make(directory, b"end", store::NewNode::Regular { mode: 0o644 }, ROOT).await.unwrap();
    });
}

/// The program writes when the recovery has compared the file, and before it is replayed.
#[test]
fn a_replay_writes_over_no_foreign_change() {
    let root = tempfile::tempdir().unwrap();
    let image = on_a_directory(root.path(), late(), |stage| async move {
        stage.dirty().await;
    });
    let (path, tokens) = (root.path().join("file"), root.path().join(".okeanos/tokens"));
    let has_token = move || fs::read_dir(&tokens).unwrap().next().is_some();
    fs::remove_dir_all(root.path().join(".okeanos/tokens")).unwrap();
    // Each write of the ledger leaves time for that.
    let latency = Duration::from_millis(200);
    let report = recovered_beside(root.path(), image, latency, async move |world| {
        while !has_token() {
            sleep(&*world, Duration::from_millis(1)).await;
        }
        sleep(&*world, TICK).await;
        write_past(&path, b"theirs");
    });
    assert!(matches!(report.files[0].outcome, FileFate::SetAside { .. }), "{report:?}");
    assert_eq!(fs::read(root.path().join("file")).unwrap(), b"theirs");
    assert_eq!(set_aside(root.path()), [b"synced"]);
}
