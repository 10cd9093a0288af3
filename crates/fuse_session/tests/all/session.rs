//! The session against the real kernel, over a small file system in memory.

use crate::common::{Memory, Seen, UringEnabled, private_mounts, unmount};
use fuse_session::{MountKind, MountOptions, Session, SessionError, SessionStatistics, Transport};
use runtime::RealWorld;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

struct Mounted {
    directory: tempfile::TempDir,
    seen: Arc<Seen>,
    daemon: JoinHandle<Result<SessionStatistics, SessionError>>,
}

fn mounted(transport: Transport) -> Mounted {
    private_mounts();
    let directory = tempfile::tempdir().unwrap();
    let options = MountOptions {
        kind: MountKind::Plain { name: "memory".into() },
        subtype: "test".into(),
        flags: libc::MS_NOSUID | libc::MS_NODEV,
        allow_other: true,
    };
    let connection = fuse_session::mount(directory.path(), &options).unwrap();
    let seen = Arc::<Seen>::default();
    let theirs = seen.clone();
    let daemon = std::thread::spawn(move || {
        let world = RealWorld::new().unwrap();
        let memory = Rc::new(Memory { seen: theirs, ..Memory::default() });
        let session = Session::new(world.clone(), connection, memory, transport);
        world.run(async move { session.serve().await.map(|()| session.statistics()) })
    });
    Mounted { directory, seen, daemon }
}

impl Mounted {
    fn path(&self) -> &Path {
        self.directory.path()
    }
    fn end(self) -> (Arc<Seen>, SessionStatistics) {
        unmount(self.path()).unwrap();
        let statistics = self.daemon.join().unwrap().unwrap();
        assert_eq!(count(&self.seen.ends), 1);
        (self.seen, statistics)
    }
}

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::SeqCst)
}

fn what_is_written_can_be_read(transport: Transport) -> SessionStatistics {
    let mounted = mounted(transport);
    let path = mounted.path().join("file");
    let large: Vec<u8> = (0..3_000_001u32).map(|at| (at % 251) as u8).collect();
    fs::write(&path, &large).unwrap();
    assert_eq!(fs::read(&path).unwrap(), large);
    assert_eq!(fs::metadata(&path).unwrap().len(), large.len() as u64);
    let names: Vec<_> =
        fs::read_dir(mounted.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["file"]);
    assert_eq!(
        fs::read(mounted.path().join("none")).unwrap_err().raw_os_error(),
        Some(libc::ENOENT)
    );
    mounted.end().1
}

#[test]
fn what_is_written_can_be_read_over_the_classic_channel() {
    let statistics = what_is_written_can_be_read(Transport::Classic);
    assert_eq!(statistics.ring_requests, 0);
}

#[test]
fn what_is_written_can_be_read_over_io_uring() {
    let Some(_enabled) = UringEnabled::new() else { return };
    let statistics = what_is_written_can_be_read(Transport::Uring);
    assert!(statistics.ring_requests > statistics.requests / 2, "{statistics:?}");
}

#[test]
fn a_synchronous_write_is_one_request_that_says_so() {
    let mounted = mounted(Transport::Classic);
    let path = mounted.path().join("file");
    for flag in [libc::O_SYNC, libc::O_DSYNC] {
        let mut file =
            fs::OpenOptions::new().create(true).write(true).custom_flags(flag).open(&path).unwrap();
        file.write_all(b"durable").unwrap();
    }
    let (seen, _) = mounted.end();
    assert_eq!((count(&seen.durable_writes), count(&seen.fsyncs)), (2, 0));
}

#[test]
fn long_replies_hold_memory_until_the_kernel_has_them() {
    const READERS: usize = 300;
    let mounted = mounted(Transport::Classic);
    let path = mounted.path().join("file");
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    let open =
        || fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    let files: Vec<_> = (0..READERS).map(|_| open()).collect();
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(|| {
                let mut content = vec![0; 1 << 20];
                file.read_exact_at(&mut content, 0).unwrap();
                assert!(content.iter().all(|byte| *byte == 7));
            });
        }
    });
    drop(files);
    // Sixty-three replies of a mebibyte reach the limit.
    let held = count(&mounted.end().0.replies_held);
    assert!((1..=64).contains(&held), "{held} replies of a mebibyte at once");
}

#[test]
fn many_writers_at_once_each_get_their_own_reply() {
    let mounted = mounted(Transport::Classic);
    std::thread::scope(|scope| {
        for writer in 0..50u32 {
            let path = mounted.path().join(writer.to_string());
            scope.spawn(move || {
                let open = fs::OpenOptions::new()
                    .create(true)
                    .append(true)
                    .custom_flags(libc::O_SYNC)
                    .open(&path);
                let mut file = open.unwrap();
                for record in 0..20u32 {
                    file.write_all(format!("{writer} {record}\n").as_bytes()).unwrap();
                }
                let mut text = String::new();
                fs::File::open(&path).unwrap().read_to_string(&mut text).unwrap();
                let expected: String =
                    (0..20).map(|record| format!("{writer} {record}\n")).collect();
                assert_eq!(text, expected);
            });
        }
    });
    assert_eq!(count(&mounted.end().0.durable_writes), 1000);
}
