//! Volumes in image files, mounted in a private namespace.

pub mod failing_disk;
pub mod mapping;
pub mod ring;

use crate::programs;
use std::ffi::{CString, OsStr};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Time limit of a test, which hangs if it takes longer. Longer ones set `PATIENCE` (seconds).
const PATIENCE_SECONDS: u64 = 300;

fn patience() -> Duration {
    let seconds =
        std::env::var("PATIENCE").map_or(PATIENCE_SECONDS, |text| text.parse().expect("seconds"));
    Duration::from_secs(seconds)
}

pub struct Volume {
    pub directory: tempfile::TempDir,
    /// Dropped with the volume: then the watchdog ends.
    alive: Arc<()>,
}

impl Volume {
    /// Makes a fresh volume of 64 MiB with mke2fs and `arguments`. This thread, and processes it
    /// starts, get mounts of their own.
    pub fn new(arguments: &[&str]) -> Volume {
        Volume::with_size(arguments, 64 << 20)
    }
    /// Makes a volume of `size` bytes.
    pub fn with_size(arguments: &[&str], size: u64) -> Volume {
        private_mounts();
        let volume = Volume { directory: tempfile::tempdir().unwrap(), alive: Arc::default() };
        watch(Arc::downgrade(&volume.alive), volume.root());
        let image = std::fs::File::create(volume.image()).unwrap();
        image.set_len(size).unwrap();
        let made =
            Command::new("mke2fs").arg("-q").args(arguments).arg(volume.image()).output().unwrap();
        assert!(made.status.success(), "mke2fs: {}", String::from_utf8_lossy(&made.stderr));
        std::fs::create_dir(volume.root()).unwrap();
        volume
    }
    /// Makes a fresh volume and mounts it.
    pub fn mounted(arguments: &[&str], options: &str) -> Volume {
        let volume = Volume::new(arguments);
        volume.mount(options);
        volume
    }
    pub fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }
    /// Returns the directory of the mount.
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }
    pub fn at(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    pub fn mount(&self, options: &str) {
        let output = self.try_mount(options);
        assert!(output.status.success(), "mount: {}", said(&output));
    }
    pub fn try_mount(&self, options: &str) -> Output {
        let mut arguments: Vec<&OsStr> = vec!["mount".as_ref(), "-o".as_ref(), options.as_ref()];
        let (image, root) = (self.image(), self.root());
        arguments.extend([image.as_os_str(), root.as_os_str()]);
        okeanos(&arguments)
    }
    /// Unmounts. A program started by a concurrent test holds copies of this process's files from
    /// its fork to its exec. Such a mount is busy for a moment.
    pub fn umount(&self) {
        let output = self.try_umount();
        assert!(output.status.success(), "umount: {}", said(&output));
    }
    /// Returns the output of `umount` once nobody has the volume open any more. A process that
    /// another test starts has this process's open files until its exec.
    pub fn try_umount(&self) -> Output {
        for _ in 0..50 {
            let output = okeanos(&["umount".as_ref(), self.root().as_os_str()]);
            if output.status.success() || !said(&output).contains("busy") {
                return output;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("the volume stays busy");
    }
    /// Unmounts, and runs e2fsck.
    pub fn umount_and_check(&self) {
        self.umount();
        self.check();
    }
    pub fn check(&self) {
        let output = Command::new("timeout")
            .args(["60", "e2fsck", "-fn"])
            .arg(self.image())
            .output()
            .unwrap();
        assert!(output.status.success(), "e2fsck: {}", said(&output));
    }
    pub fn statistics(&self) -> serde_json::Value {
        let output = okeanos(&["stats".as_ref(), "--json".as_ref(), self.root().as_os_str()]);
        assert!(output.status.success(), "stats: {}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }
    /// Returns the daemon's process number.
    pub fn daemon(&self) -> i32 {
        self.statistics()["about"]["process"].as_i64().unwrap() as i32
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // After a failure the mount may still exist, and its directory could not be removed.
        let _ = okeanos(&["umount".as_ref(), "--force".as_ref(), self.root().as_os_str()]);
    }
}

/// Ends the whole test if the volume still exists after [`patience`], and its mount before.
fn watch(alive: Weak<()>, root: PathBuf) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    std::thread::spawn(move || {
        std::thread::sleep(patience());
        if alive.strong_count() > 0 {
            // Not by a macro: the output of those is shown when a test ends, and this one does not.
            let _ = writeln!(std::io::stderr(), "{test} hangs, {} is unmounted", root.display());
            let _ = okeanos(&["umount".as_ref(), "--force".as_ref(), root.as_os_str()]);
            std::process::abort();
        }
    });
}

pub fn okeanos(arguments: &[&OsStr]) -> Output {
    okeanos_within(u64::MAX, arguments)
}

/// Runs `okeanos` with a limit of its address space, in bytes.
pub fn okeanos_within(memory_max: u64, arguments: &[&OsStr]) -> Output {
    run(&programs::okeanos(), memory_max, arguments)
}

/// Runs `okeanos-lab`.
pub fn lab(arguments: &[&OsStr]) -> Output {
    run(&programs::lab(), u64::MAX, arguments)
}

fn run(program: &Path, memory_max: u64, arguments: &[&OsStr]) -> Output {
    let mut command = Command::new("timeout");
    let seconds = (patience() / 2).as_secs().to_string();
    command.args(["-k", "5", &seconds]);
    if memory_max < u64::MAX {
        command.args(["prlimit", &format!("--as={memory_max}")]);
    }
    command.arg(program).args(arguments);
    command.stdin(Stdio::null()).output().unwrap()
}

pub fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

pub fn signal(process: i32, signal: i32) {
    // SAFETY: kill takes two integers; the process is a daemon that this test started.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}

/// Whether the process runs; a zombie does not.
pub fn is_alive(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// Waits until the process has ended.
pub fn gone(process: i32) {
    while is_alive(process) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

pub fn private_mounts() {
    assert!(Path::new("/dev/fuse").exists(), "these tests need /dev/fuse: modprobe fuse");
    // SAFETY: neither call touches memory beyond the strings given, which end with zero bytes.
    unsafe {
        assert_eq!(libc::geteuid(), 0, "these tests mount file systems: run them as root");
        assert_eq!(
            libc::unshare(libc::CLONE_NEWNS),
            0,
            "unshare: {}",
            std::io::Error::last_os_error()
        );
        let flags = libc::MS_REC | libc::MS_PRIVATE;
        let result =
            libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null());
        assert_eq!(result, 0, "private mounts: {}", std::io::Error::last_os_error());
    }
}
