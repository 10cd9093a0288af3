//! A real cluster for each test, one at a time.

use ceph::{CephStore, Options};
use runtime::{Either, RealWorld, race};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{
    Creator, FileId, Identity, NewNode, OpenFile, OpenMode, Store as _, StoreError, StoreEvent,
    Token,
};

use device::World;

/// Generous: only a hang takes as long.
pub const PATIENCE: Duration = Duration::from_secs(120);
pub const ROOT: Creator = Creator { uid: 0, gid: 0, umask: 0 };

pub struct Cluster {
    folder: tempfile::TempDir,
    directory: PathBuf,
    _one: MutexGuard<'static, ()>,
}

/// Lets one cluster run at a time: several at once would only be slower.
static ONE: Mutex<()> = Mutex::new(());

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/ceph-cluster.sh")
}

impl Cluster {
    pub fn start(arguments: &[&str]) -> Cluster {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::Builder::new().prefix("okc").tempdir_in("/tmp").unwrap();
        let directory = folder.path().join("c");
        let cluster = Cluster { folder, directory, _one: one };
        let output = cluster.run("start", arguments);
        assert!(
            output.status.success(),
            "no cluster (make deps-ceph installs what it needs): {}",
            String::from_utf8_lossy(&output.stderr)
        );
        cluster
    }
    /// Starts one OSD in memory.
    pub fn small() -> Cluster {
        Cluster::start(&[])
    }
    fn run(&self, verb: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(script());
        command.arg(verb).arg(&self.directory).args(arguments);
        command.stdin(Stdio::null()).output().unwrap()
    }
    pub fn must(&self, verb: &str, arguments: &[&str]) {
        let output = self.run(verb, arguments);
        assert!(
            output.status.success(),
            "{verb} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    /// Runs a command of an administrator.
    pub fn administer(&self, arguments: &[&str]) {
        let mut command = Command::new("ceph");
        command.arg("-c").arg(self.conf()).args(arguments).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "ceph {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    /// Returns a counter of all daemons of a kind, such as `osd`, in one of their sections.
    pub fn counter(&self, kind: &str, section: &str, name: &str) -> u64 {
        let sockets = std::fs::read_dir(self.directory.join("run")).unwrap();
        let is_one = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with(kind) && name.ends_with(".asok")
        };
        let count = |socket: PathBuf| -> u64 {
            let mut command = Command::new("ceph");
            let output = command.arg("--admin-daemon").arg(socket).args(["perf", "dump"]).output();
            let text = String::from_utf8(output.unwrap().stdout).unwrap();
            let (_, rest) = text.split_once(&format!("\"{section}\": {{")).expect("a section");
            let (_, rest) = rest.split_once(&format!("\"{name}\":")).expect("a counter");
            let digits: String =
                rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap()
        };
        sockets.map(|entry| entry.unwrap().path()).filter(is_one).map(count).sum()
    }
    /// Returns the number of clients' requests that the metadata server has carried out.
    pub fn metadata_requests(&self) -> u64 {
        self.counter("mds", "mds_server", "handle_client_request")
    }
    /// Returns the size that the metadata server has of a file.
    pub fn size_at_metadata_server(&self, file: FileId) -> u64 {
        let sockets = std::fs::read_dir(self.directory.join("run")).unwrap();
        let mut paths = sockets.map(|entry| entry.unwrap().path());
        let socket = paths
            .find(|path| path.file_name().unwrap().to_string_lossy().starts_with("mds."))
            .unwrap();
        let mut command = Command::new("ceph");
        command.arg("--admin-daemon").arg(socket).args(["dump", "inode", &file.0.to_string()]);
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let (_, rest) = text.split_once("\"size\":").expect("a size");
        let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    }
    /// Runs a verb without waiting for its end.
    pub fn begin(&self, verb: &str) -> Child {
        Command::new(script()).arg(verb).arg(&self.directory).stdin(Stdio::null()).spawn().unwrap()
    }
    pub fn conf(&self) -> PathBuf {
        self.directory.join("ceph.conf")
    }
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
    pub fn options(&self, identity: &str) -> Options {
        Options {
            conf: self.conf(),
            user: "admin".into(),
            file_system: String::new(),
            directory: "/".into(),
            keyring: Default::default(),
            identity: Identity(identity.into()),
            program: env!("CARGO_BIN_EXE_ceph-helper").into(),
            arguments: Vec::new(),
        }
    }
}
impl Drop for Cluster {
    fn drop(&mut self) {
        let output = self.run("stop", &[]);
        if !output.status.success() {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// A foreign client of the cluster, in its own mount namespace.
pub struct CephFuse {
    child: Child,
    mount: PathBuf,
}
impl CephFuse {
    pub fn mount(cluster: &Cluster) -> CephFuse {
        let mount = cluster.folder().join("m");
        std::fs::create_dir(&mount).unwrap();
        let child = Command::new("unshare")
            .args(["-m", "--propagation", "private", "ceph-fuse", "-f", "-n", "client.admin", "-c"])
            .args([&cluster.conf(), &mount])
            // With the kernel's page cache it would read old pages for a while: it learns of
            // changes after the fact.
            .arg("--fuse_disable_pagecache=true")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let client = CephFuse { child, mount };
        let deadline = std::time::Instant::now() + PATIENCE;
        let is_mounted = || {
            let table = std::fs::read_to_string(format!("/proc/{}/mounts", client.child.id()));
            table.is_ok_and(|table| table.contains("fuse.ceph-fuse"))
        };
        while !is_mounted() {
            assert!(std::time::Instant::now() < deadline, "ceph-fuse does not mount");
            std::thread::sleep(Duration::from_millis(20));
        }
        client
    }
    /// Returns a path below its mount, as this process reaches it.
    pub fn path(&self, name: &str) -> PathBuf {
        let inside = self.mount.strip_prefix("/").unwrap();
        Path::new(&format!("/proc/{}/root", self.child.id())).join(inside).join(name)
    }
}
impl Drop for CephFuse {
    fn drop(&mut self) {
        // The mount ends before its process: the last process of a namespace would wait for its own
        // answer.
        let _ = Command::new("nsenter")
            .arg(format!("--mount=/proc/{}/ns/mnt", self.child.id()))
            .args(["umount", "--lazy"])
            .arg(&self.mount)
            .status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `work` on a world, and fails when it hangs.
pub fn run<T: 'static, F: Future<Output = T> + 'static>(work: impl FnOnce(RealWorld) -> F) -> T {
    let world = RealWorld::new().unwrap();
    let work = work(world.clone());
    let patience = world.sleep_until(world.now().plus(PATIENCE));
    let result = world.run(async move {
        match race(work, patience).await {
            Either::Left(value) => Some(value),
            Either::Right(()) => None,
        }
    });
    world.end();
    result.expect("it hangs")
}

/// Runs `work` on a world beside a small cluster, with the options of two of its clients.
pub fn on_cluster<T: 'static>(work: impl AsyncFnOnce(RealWorld, [Options; 2]) -> T + 'static) -> T {
    let cluster = Cluster::small();
    let clients = ["here", "there"].map(|name| cluster.options(name));
    run(|world| async move { work(world, clients).await })
}

/// Opens a file for a client that has it alone.
pub async fn open_alone(store: &CephStore, file: FileId) -> OpenFile {
    let open = store.open(file, OpenMode::ReadWrite).await.unwrap();
    store.take_token(open, Token::ExclusiveWrite).await.unwrap();
    open
}

pub async fn connect(world: &RealWorld, options: Options) -> CephStore {
    CephStore::connect(world, options).await.unwrap()
}

pub async fn make(store: &CephStore, name: &str) -> FileId {
    let node = NewNode::Regular { mode: 0o644 };
    store.make(store.root(), name.as_bytes(), node, ROOT).await.unwrap().file
}

/// Returns the next event that is not about caches.
pub async fn next_event(store: &CephStore) -> StoreEvent {
    loop {
        match store.next_event().await {
            StoreEvent::Changed { .. } => {}
            event => return event,
        }
    }
}

/// Returns each recalled token, as a host does.
pub async fn return_recalled(store: std::rc::Rc<CephStore>) {
    loop {
        match next_event(&store).await {
            StoreEvent::Recall { file, .. } => store.return_token(file).await.unwrap(),
            _ => return,
        }
    }
}

pub fn is_fenced(error: &StoreError) -> bool {
    matches!(error, StoreError::Fenced { .. })
}
pub fn is_disconnected(error: &StoreError) -> bool {
    matches!(error, StoreError::Disconnected { .. })
}
