//! A session that is stopped, against the real kernel.

use crate::common::{Memory, UringEnabled, private_mounts};
use device::World;
use fuse_session::{
    FileSystem, MountKind, MountOptions, Operation, Reply, Request, Session, Transport,
};
use runtime::RealWorld;
use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// File system of which each read takes another time, so that one is always in flight.
struct Slow {
    memory: Rc<Memory>,
    world: RealWorld,
}

impl FileSystem for Slow {
    async fn serve(self: Rc<Self>, request: Request) -> Reply {
        if matches!(request.operation(), Ok(Operation::Read(_))) {
            let time = Duration::from_millis(5 + self.world.random() % 20);
            self.world.sleep_until(self.world.now().plus(time)).await;
        }
        self.memory.clone().serve(request).await
    }
    async fn end(self: Rc<Self>) {}
}

fn a_session_that_is_stopped_ends_although_requests_keep_coming(transport: Transport) {
    const READERS: u64 = 32;
    /// Limit of the test, in which one request takes a fortieth of a second.
    const PATIENCE: Duration = Duration::from_secs(30);
    private_mounts();
    let directory = tempfile::tempdir().unwrap();
    let kind = MountKind::Plain { name: "slow".into() };
    let connection = fuse_session::mount(
        directory.path(),
        &MountOptions { kind, subtype: "test".into(), flags: 0, allow_other: true },
    )
    .unwrap();
    let daemon = std::thread::spawn(move || {
        let world = RealWorld::new().unwrap();
        let slow = Rc::new(Slow { memory: Rc::default(), world: world.clone() });
        let session = Session::new(world.clone(), connection, slow, transport);
        let (inner, stopped) = (world.clone(), session.clone());
        world.spawn(Box::pin(async move {
            inner.sleep_until(inner.now().plus(Duration::from_secs(1))).await;
            stopped.stop();
        }));
        let statistics =
            world.run(async move { session.serve().await.map(|()| session.statistics()) });
        world.end();
        statistics.unwrap()
    });
    let path = directory.path().join("file");
    fs::write(&path, [7; 4096]).unwrap();
    let ended = std::thread::scope(|scope| {
        for _ in 0..READERS {
            let file =
                fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
            scope.spawn(move || while file.read_exact_at(&mut [0; 512], 0).is_ok() {});
        }
        let begun = Instant::now();
        while !daemon.is_finished() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        let ended = daemon.is_finished();
        let path = std::ffi::CString::new(directory.path().to_str().unwrap()).unwrap();
        // SAFETY: the path ends with a zero byte. Forced: readers that still wait get errors.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_FORCE | libc::MNT_DETACH) };
        ended
    });
    assert!(ended, "it serves on after {PATIENCE:?}");
    let statistics = daemon.join().unwrap();
    assert!(statistics.requests > READERS, "{statistics:?}");
    assert_eq!(statistics.ring_requests > 0, transport == Transport::Uring, "{statistics:?}");
}

#[test]
fn a_session_stops_over_the_classic_channel() {
    a_session_that_is_stopped_ends_although_requests_keep_coming(Transport::Classic);
}

#[test]
fn a_session_stops_over_io_uring() {
    let Some(_enabled) = UringEnabled::new() else { return };
    a_session_that_is_stopped_ends_although_requests_keep_coming(Transport::Uring);
}
