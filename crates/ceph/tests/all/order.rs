//! The order in which the servers learn of a held file's changes. A client may die at any point in
//! between.

use crate::common::*;
use ceph::{Frames, Hello, HelperRequest, Numbered, Report, WIRE_VERSION, frame};
use device::World;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};
use store::{FileId, Identity, Store as _, StoreEvent};

const CONTENT: &[u8] = b"never zeros";
/// Longer than any operation takes that does not wait.
const LONG: Duration = Duration::from_millis(300);

#[test]
fn a_sync_reports_only_content_that_is_there() {
    let cluster = Rc::new(Cluster::small());
    let (here, servers) = (cluster.options("here"), cluster.clone());
    run(|world| async move {
        let store = connect(&world, here).await;
        let created = store.create(store.root(), b"file", 0o644, ROOT).await.unwrap();
        let open = created.open.unwrap();
        let reported = || servers.counter("mds", "mds", "handle_client_caps_dirty");
        store.write(open, 0, CONTENT).await.unwrap();
        let before = reported();
        servers.must("kill", &["osd0", "STOP"]);
        let durable = runtime::spawn_with_result(&world, store.make_durable(open));
        world.sleep_until(world.now().plus(LONG)).await;
        let during = reported();
        servers.must("kill", &["osd0", "CONT"]);
        durable.await.unwrap().unwrap();
        assert_eq!(during, before, "the data server did not answer during it");
        assert!(reported() > before);
    });
}

/// The library alone answers a recall, with states that the journal of a host may not have.
#[test]
fn a_recalled_file_reports_nothing_until_acknowledged() {
    let cluster = Rc::new(Cluster::small());
    let (here, there, servers) =
        (cluster.options("here"), cluster.options("there"), cluster.clone());
    run(|world| async move {
        let store = Rc::new(connect(&world, here).await);
        let other = Rc::new(connect(&world, there).await);
        for acknowledged in [false, true] {
            let name = format!("acknowledged {acknowledged}");
            let created = store.create(store.root(), name.as_bytes(), 0o644, ROOT).await.unwrap();
            let (file, open) = (created.found.file, created.open.unwrap());
            let written = store.write(open, 0, CONTENT).await.unwrap().version;
            let looker = other.clone();
            let look = runtime::spawn_with_result(&world, async move { looker.find(file).await });
            let StoreEvent::Recall { .. } = next_event(&store).await else { panic!("no recall") };
            if acknowledged {
                store.acknowledge_recall(file).await.unwrap();
            }
            world.sleep_until(world.now().plus(LONG)).await;
            assert_eq!(servers.size_at_metadata_server(file) == written.size, acknowledged);
            // SAFETY: a signal to the helper that this test started, and has not yet reaped.
            assert_eq!(unsafe { libc::kill(store.helper().unwrap() as i32, libc::SIGKILL) }, 0);
            let StoreEvent::Disconnected { .. } = next_event(&store).await else {
                panic!("no end was reported")
            };
            store.reconnect().await.unwrap();
            let found = look.await.unwrap().unwrap().attributes.version;
            let base = created.found.attributes.version;
            assert_eq!(found, if acknowledged { written } else { base });
        }
    });
}

/// Sends requests to a helper by hand: its daemon may die without it.
struct Daemon {
    socket: UnixStream,
    frames: Frames,
    number: u64,
}
impl Daemon {
    /// Returns the next report that `wanted` accepts.
    fn hear<T>(&mut self, wanted: impl Fn(Report) -> Option<T>) -> T {
        let mut bytes = [0; 4096];
        loop {
            while let Some(report) = self.frames.next_message().unwrap() {
                if let Some(reported) = wanted(report) {
                    return reported;
                }
            }
            let count = self.socket.read(&mut bytes).unwrap();
            assert_ne!(count, 0, "the helper ended");
            self.frames.add(&bytes[..count]);
        }
    }
    fn ask(&mut self, request: HelperRequest) -> ceph::HelperReply {
        self.number += 1;
        let number = self.number;
        self.socket.write_all(&frame(&Numbered { number, request })).unwrap();
        self.hear(move |report| match report {
            Report::Success { request, reply } if request == number => Some(reply),
            Report::Failure { request, code } if request == number => panic!("errno {code}"),
            _ => None,
        })
    }
}

#[test]
fn a_helper_whose_daemon_died_sends_the_content_of_recalled_files_and_nothing_else() {
    let cluster = Rc::new(Cluster::small());
    let there = cluster.options("there");
    let (socket, theirs) = UnixStream::pair().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut helper = Command::new(env!("CARGO_BIN_EXE_ceph-helper"))
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .spawn()
        .unwrap();
    let mut daemon = Daemon { socket, frames: Frames::default(), number: 0 };
    let hello = Hello {
        version: WIRE_VERSION,
        identity: b"here".to_vec(),
        conf: cluster.conf().into_os_string().into_encoded_bytes(),
        user: b"admin".to_vec(),
        file_system: Vec::new(),
        directory: b"/".to_vec(),
        keyring: Vec::new(),
    };
    let ceph::HelperReply::HelloReply { hello_reply } =
        daemon.ask(HelperRequest::Connect { hello })
    else {
        panic!("no welcome")
    };
    let files = [&b"recalled"[..], b"held"].map(|name| {
        let (parent, name) = (hello_reply.root.file, name.to_vec());
        let create = HelperRequest::Create { parent, name, mode: 0o644, caller: ROOT };
        let ceph::HelperReply::Created { attributes, is_held: true } = daemon.ask(create) else {
            panic!("not held")
        };
        daemon.ask(HelperRequest::Write { file: attributes.file, at: 0, bytes: CONTENT.to_vec() });
        attributes.file
    });
    run(|world| async move {
        let other = Rc::new(connect(&world, there).await);
        let looker = other.clone();
        let look = runtime::spawn_with_result(&world, async move { looker.find(files[0]).await });
        world.sleep_until(world.now().plus(LONG)).await;
        let recalled = |report| {
            matches!(report, Report::Recall { file, .. } if file == files[0]).then_some(())
        };
        daemon.hear(recalled);
        daemon.ask(HelperRequest::AcknowledgeRecall { file: files[0] });
        drop(daemon);
        let deadline = Instant::now() + PATIENCE;
        while helper.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it goes on without its daemon");
            world.sleep_until(world.now().plus(Duration::from_millis(5))).await;
        }
        other.fence(&Identity("here".into())).await.unwrap();
        look.await.unwrap().unwrap();
        let content = async |file: FileId| {
            let open = open_alone(&other, file).await;
            other.read(open, 0, 100).await.unwrap()
        };
        assert_eq!(content(files[0]).await, CONTENT);
        assert_eq!(content(files[1]).await, b"");
    });
}
