//! Tests of images and journals in files on a FUSE file system, whose server may take a write with
//! RWF_DSYNC for one like all others: what is acknowledged waits for an FSYNC request.

use crate::common::failing_disk::{FailingDisk, FileKind};
use crate::common::{Volume, gone, okeanos, said, signal};
use crate::programs;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Both kinds of files, over a ring and over threads.
const WORLDS: [(FileKind, &str); 4] = [
    (FileKind::Plain, "auto"),
    (FileKind::Plain, "classic"),
    (FileKind::PastTheCache, "auto"),
    (FileKind::PastTheCache, "classic"),
];

/// A volume's image seen through a cache, in a private mount namespace.
struct Cached {
    volume: Volume,
    disk: FailingDisk,
}

impl Cached {
    fn new(kind: FileKind) -> Cached {
        let volume = Volume::new(&["-t", "ext4", "-b", "4096"]);
        let port = volume.directory.path().join("port");
        fs::create_dir(&port).unwrap();
        let disk = FailingDisk::cached(&volume.image(), &port, kind);
        Cached { volume, disk }
    }
    fn path(&self, name: &str) -> PathBuf {
        self.volume.directory.path().join(name)
    }
    /// Kills the daemon of the mount, and loses the cache.
    fn cut_power(&self) {
        let daemon = self.volume.daemon();
        signal(daemon, libc::SIGKILL);
        gone(daemon);
        let unmounted = Command::new("umount").arg("-l").arg(self.volume.root()).output().unwrap();
        assert!(unmounted.status.success(), "{}", said(&unmounted));
        self.disk.lose_cache(&self.volume.image());
    }
}

fn command(world: &str, arguments: &[&OsStr]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120"]).arg(programs::okeanos()).args(arguments);
    command.env("OKEANOS_IO", world).stdin(Stdio::null());
    command
}

fn run(world: &str, arguments: &[&OsStr]) -> Output {
    let output = command(world, arguments).output().unwrap();
    assert!(output.status.success(), "{world}: {arguments:?}: {}", said(&output));
    output
}

fn write_synced(path: &Path) {
    let mut file = File::create(path).unwrap();
    file.write_all(b"acknowledged").unwrap();
    file.sync_all().unwrap();
}

#[test]
fn a_synced_file_outlives_the_cache_under_its_image() {
    for (kind, world) in WORLDS {
        let cached = Cached::new(kind);
        let (disk, root) = (cached.disk.path(), cached.volume.root());
        let options = "noloop,data=wasteless,commit=60,expire=600";
        let words = ["mount".as_ref(), "-o".as_ref(), OsStr::new(options)];
        run(world, &[&words[..], &[disk.as_os_str(), root.as_os_str()]].concat());
        write_synced(&cached.volume.at("first"));
        write_synced(&cached.volume.at("second"));
        cached.cut_power();
        cached.volume.mount("data=wasteless");
        for name in ["first", "second"] {
            let found = fs::read(cached.volume.at(name)).unwrap_or_default();
            assert_eq!(found, b"acknowledged", "{kind:?}, {world}: {name}");
        }
        cached.volume.umount_and_check();
    }
}

/// A server of a block volume, killed when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server, which listens when this returns.
fn serve(world: &str, socket: &Path, disk: &Path) -> Server {
    let words = ["blocks", "attach", "--via", "nbd", "-o", "commit=60,expire=600", "--socket"];
    let mut words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    words.extend([socket.as_os_str(), disk.as_os_str()]);
    let mut command = Command::new(programs::okeanos());
    command.args(words).env("OKEANOS_IO", world).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut server = Server(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("nbd"), "{line}");
    server
}

fn qemu_io(socket: &Path, requests: &[&str]) {
    let mut command = Command::new("timeout");
    command.args(["60", "qemu-io", "-f", "raw"]);
    for request in requests {
        command.args(["-c", request]);
    }
    command.arg(format!("nbd+unix:///?socket={}", socket.display()));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{requests:?}: {}", said(&output));
}

#[test]
fn a_forced_write_outlives_the_cache_under_its_block_volume() {
    let install = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/install-packages.sh");
    assert!(Command::new(install).arg("qemu-utils").status().unwrap().success());
    for (kind, world) in WORLDS {
        let cached = Cached::new(kind);
        let (disk, socket) = (cached.disk.path(), cached.path("socket"));
        let words = ["blocks", "format", "--force"].map(OsStr::new);
        run(world, &[&words[..], &[disk.as_os_str()]].concat());
        let server = serve(world, &socket, &disk);
        qemu_io(&socket, &["write -f -P 9 1M 4k", "write -P 8 2M 64k", "flush"]);
        drop(server);
        cached.disk.lose_cache(&cached.volume.image());
        fs::remove_file(&socket).unwrap();
        let server = serve(world, &socket, &disk);
        qemu_io(&socket, &["read -P 9 1M 4k", "read -P 8 2M 64k"]);
        drop(server);
    }
}

#[test]
fn a_synced_file_outlives_the_cache_under_its_hosts_journal() {
    for (kind, world) in WORLDS {
        let cached = Cached::new(kind);
        let (disk, root) = (cached.disk.path(), cached.volume.root());
        let store = cached.path("store");
        fs::create_dir(&store).unwrap();
        let from = format!("dir:{}", store.display());
        let mount = |more: &[&str]| {
            let words =
                ["host", "mount", "-o", "journal-flush=60,destage=infinite", "--store", &from];
            let words = words.iter().chain(more).map(OsStr::new);
            let words = words.chain(["--journal".as_ref(), disk.as_os_str(), root.as_os_str()]);
            run(world, &words.collect::<Vec<_>>());
        };
        mount(&["--format", "--force"]);
        write_synced(&cached.volume.at("file"));
        cached.cut_power();
        // The machine's power failed, and its store's with it: content that was not destaged.
        assert_eq!(fs::read(store.join("file")).unwrap_or_default(), b"", "not destaged yet");
        mount(&[]);
        let found = fs::read(cached.volume.at("file")).unwrap_or_default();
        assert_eq!(found, b"acknowledged", "{kind:?}, {world}");
        let unmounted = okeanos(&["umount".as_ref(), root.as_os_str()]);
        assert!(unmounted.status.success(), "{}", said(&unmounted));
    }
}

#[test]
fn doctor_says_where_a_durable_write_is_two_requests() {
    let directory = tempfile::tempdir().unwrap();
    let by_itself = |directory: &Path| {
        let words = ["doctor".as_ref(), "--json".as_ref(), directory.as_os_str()];
        let report: serde_json::Value =
            serde_json::from_slice(&run("auto", &words).stdout).unwrap();
        report["disk"]["durable_by_itself"].as_bool().unwrap()
    };
    let volume = Volume::mounted(&["-t", "ext4"], "data=wasteless");
    // A mount of ours is FUSE.
    assert!(!by_itself(&volume.root()));
    volume.umount();
    crate::common::private_mounts();
    let mounted = Command::new("mount").arg(volume.image()).arg(directory.path()).output().unwrap();
    assert!(mounted.status.success(), "{}", said(&mounted));
    assert!(by_itself(directory.path()));
    let unmounted = Command::new("umount").arg(directory.path()).output().unwrap();
    assert!(unmounted.status.success(), "{}", said(&unmounted));
}
