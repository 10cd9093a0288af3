//! The helper process: requests from the socket, calls into libcephfs on a few threads, answers to
//! the socket.
//!
//! Its standard input is the socket, whose lifetime is its own. When the daemon ends, in whatever
//! way, the helper ends and flushes nothing, as in a crash of the host. What was acknowledged is in
//! the daemon's journal. Only the content of recalled files is sent before, within a second at
//! most: the servers may know its size.

mod file_queues;
mod files;
mod gate;
mod long_reads;
mod output;
mod post;
mod reader;
mod recalls;
mod recent_lookups;
mod serve;
mod tokens;

use crate::library::{
    DropDetector, Inode, Mount, SessionLock, Settings, end_process, end_with, ignore_signals,
};
use crate::wire::{Hello, HelloReply, HelperReply, HelperRequest, Report, WIRE_VERSION};
use file_queues::{CallOrder, FileQueues};
use files::Files;
use gate::Gate;
use output::Output;
use post::Post;
use reader::{Requests, SocketReader};
use recalls::{LibraryNotice, Recalls};
use runtime::standard_error;
use serve::Server;
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;
use store::FileAttributes;

/// Calls that may wait for other clients at the same time.
const THREADS_MAX: usize = 64;
/// Calls for which other clients wait: tokens that are being returned.
const RETURNING_MAX: usize = 16;
/// Requests in flight; our daemon never sends more.
pub const REQUESTS_MAX: usize = 4096;

/// Serves until the socket closes.
pub fn run() -> ! {
    ignore_signals();
    // Errors end the process, and the daemon reads of it: a thread that panics would leave its
    // request unanswered.
    std::panic::set_hook(Box::new(|panic| {
        complain(panic);
        end_process(101);
    }));
    let socket = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    let socket = match socket.and_then(|socket| socket.local_addr().map(|_| socket)) {
        Ok(socket) => socket,
        Err(error) => {
            complain(&format_args!(
                "standard input is no socket ({error}); only a mount starts this"
            ));
            end_process(2)
        }
    };
    if let Err(why) = serve(socket) {
        complain(&why);
        end_process(1)
    }
    // Other threads read on, and end the process.
    loop {
        std::thread::park();
    }
}

/// Prints without waiting for a reader: the daemon and its mount wait for the end of this process.
fn complain(why: &impl std::fmt::Display) {
    let _ = standard_error::print_line(&format!("okeanos ceph-helper: {why}"), Duration::ZERO);
}

/// Connects, and begins to read.
fn serve(socket: UnixStream) -> Result<(), String> {
    let another = || socket.try_clone().map_err(|error| error.to_string());
    let output = Arc::new(Output::new(another()?));
    let mut requests = Requests::new(another()?);
    let Some(first) = requests.next(&output)? else { end_process(0) };
    let HelperRequest::Connect { hello } = first.request else {
        return Err("the first request is not to connect".into());
    };
    if hello.version != WIRE_VERSION {
        output.lost(
            false,
            &format!(
                "its helper process is of another release (messages of version {WIRE_VERSION}, \
                 not {}): unmount, and mount again with the program that is installed now",
                hello.version
            ),
        );
    }

    // Connecting may take half a minute, during which nobody reads the socket.
    let served: Arc<OnceLock<Arc<Files>>> = Arc::default();
    let left = served.clone();
    end_with(another()?, move || {
        if let Some(files) = left.get() {
            files.leave();
        }
    });
    let (notices, noticed) = mpsc::channel();
    let (to_recall, to_change) = (notices.clone(), notices);
    let settings = settings(&hello)?;
    let post = Arc::new(Post::default());
    let gate = Arc::new(Gate::new(post.clone()));
    let (keeping, ending) = (gate.clone(), output.clone());
    let connected = Mount::connect(
        &settings,
        // The receiver lives as long as the process.
        Box::new(move |number| {
            if !keeping.keep(number, || drop(to_recall.send(LibraryNotice::Recalled(number)))) {
                ending.lost(false, "a recovery did not acknowledge a recall in time");
            }
        }),
        Box::new(move |inode| drop(to_change.send(LibraryNotice::Changed(inode)))),
    );
    let mount = connected.unwrap_or_else(|why| output.lost(false, &why));
    let opened = open_root(mount).unwrap_or_else(|why| output.lost(false, &why));
    let (root, attributes, session, drop_detector) = opened;
    let cluster = root.cluster();
    let at = (root, attributes.file);
    let files = Arc::new(Files::new(mount, (session, drop_detector), at, gate));
    let _ = served.set(files.clone());
    let hello_reply = HelloReply {
        root: attributes,
        recall_ms: mount.recall_ms(),
        hold_ms: mount.hold_ms(),
        cluster_high: (cluster >> 64) as u64,
        cluster_low: cluster as u64,
        file_system: mount.file_system(),
    };
    output.send(&Report::Success {
        request: first.number,
        reply: HelperReply::HelloReply { hello_reply },
    });

    let queues = FileQueues::new(THREADS_MAX);
    let returning = FileQueues::new(RETURNING_MAX);
    Recalls::watch(noticed, files.clone(), output.clone(), returning.clone());
    SocketReader::new(requests, post, Server::new(files, output, settings), queues, returning)
        .read();
    Ok(())
}

/// Opens the directory that is served, and takes the lock of this session.
fn open_root(
    mount: &'static Mount,
) -> Result<(Inode, FileAttributes, SessionLock, DropDetector), String> {
    let no_root = |errno| format!("no root: {errno:?}");
    let root = mount.root().map_err(no_root)?;
    let attributes = root.attributes().map_err(no_root)?;
    let session = SessionLock::take(mount.root().map_err(no_root)?)?;
    let drop_detector = DropDetector::make(&root, session.number())?;
    Ok((root, attributes, session, drop_detector))
}

fn settings(hello: &Hello) -> Result<Settings, String> {
    let text =
        |bytes: &[u8]| CString::new(bytes).map_err(|_| "a setting with a zero byte".to_string());
    Ok(Settings {
        conf: text(&hello.conf)?,
        user: text(&hello.user)?,
        file_system: text(&hello.file_system)?,
        directory: text(&hello.directory)?,
        keyring: text(&hello.keyring)?,
        identity: text(&hello.identity)?,
    })
}

impl CallOrder {
    /// Creates the order of a call that is in no order with others.
    pub fn free() -> CallOrder {
        CallOrder { file: None, shares: true, is_awaited: false }
    }
}
