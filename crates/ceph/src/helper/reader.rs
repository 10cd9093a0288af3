//! Reads requests, and hands them to threads or carries them out at once.
//!
//! Waking a thread costs more than most calls. So the reading thread carries out what the library
//! usually answers from memory ([`Server::is_short`]): writes into its buffer and attributes of a
//! held file, and lookups if the last ones did not wait. No promise depends on that rule
//! ([`Post`]): the next client's recall may be in the library already. Answers of requests that
//! came together are sent together.

use super::file_queues::FileQueues;
use super::output::Output;
use super::post::Post;
use super::serve::Server;
use super::{REQUESTS_MAX, complain};
use crate::library::end_process;
use crate::wire::{Frames, HelperRequest, MalformedMessage, Numbered};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The daemon asks one such question at a time; another may come while an abandoned one is in
/// flight.
const ASKING_MAX: usize = 2;
const RECEIVED_AT_ONCE: usize = 256 << 10;

pub struct Requests {
    socket: UnixStream,
    frames: Frames,
    bytes: Vec<u8>,
}

impl Requests {
    pub fn new(socket: UnixStream) -> Requests {
        Requests { socket, frames: Frames::default(), bytes: vec![0; RECEIVED_AT_ONCE] }
    }
    /// Returns the next request; `None` if the daemon is gone. Sends what is held back before it
    /// waits.
    pub fn next(&mut self, output: &Output) -> Result<Option<Numbered>, String> {
        loop {
            let next =
                self.frames.next_message().map_err(|error: MalformedMessage| error.to_string())?;
            if next.is_some() {
                return Ok(next);
            }
            output.flush();
            match self.socket.read(&mut self.bytes) {
                Ok(0) => return Ok(None),
                Ok(count) => self.frames.add(&self.bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

pub struct SocketReader {
    requests: Mutex<Requests>,
    post: Arc<Post>,
    server: Server,
    queues: Arc<FileQueues>,
    /// Queue of calls for which other clients wait.
    returning: Arc<FileQueues>,
    /// Queue for the question whether the servers know this client, on which syncs depend: it waits
    /// only for its own kind.
    asking: Arc<FileQueues>,
    running: AtomicUsize,
}

/// Reason why a thread stopped reading.
enum End {
    Daemon,
    /// Another thread reads on.
    Relieved,
}

impl SocketReader {
    pub fn new(
        requests: Requests,
        post: Arc<Post>,
        server: Server,
        queues: Arc<FileQueues>,
        returning: Arc<FileQueues>,
    ) -> Arc<SocketReader> {
        let requests = Mutex::new(requests);
        Arc::new(SocketReader {
            requests,
            post,
            server,
            queues,
            returning,
            asking: FileQueues::new(ASKING_MAX),
            running: AtomicUsize::new(0),
        })
    }

    /// Reads, or stands in for the reader: returns when another thread has this one's part.
    pub fn read(self: &Arc<Self>) {
        let next = self.clone();
        std::thread::spawn(move || {
            next.post.stand_in();
            next.read();
        });
        match self.carry_out_all() {
            Ok(End::Relieved) => {}
            Ok(End::Daemon) => {
                self.server.files.leave();
                end_process(0)
            }
            Err(why) => {
                complain(&why);
                end_process(1)
            }
        }
    }

    fn carry_out_all(self: &Arc<Self>) -> Result<End, String> {
        loop {
            let next = {
                let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
                requests.next(&self.server.output)?
            };
            let Some(next) = next else { return Ok(End::Daemon) };
            if self.running.fetch_add(1, Ordering::Relaxed) >= REQUESTS_MAX {
                return Err("more requests at once than agreed".into());
            }
            if !self.begin(next) {
                return Ok(End::Relieved);
            }
        }
    }

    /// Begins a request. Returns false if this thread has lost its post.
    fn begin(self: &Arc<Self>, Numbered { number, request }: Numbered) -> bool {
        let order = self.server.order_of(&request);
        if let Some(file) = order.file.filter(|_| order.is_awaited) {
            self.server.files.acknowledge_recall(file);
        }
        if let HelperRequest::AcknowledgeRecall { .. } = request {
            // Not a call of the library, which may be waiting for this.
            let report = self.server.carry_out(number, request);
            self.running.fetch_sub(1, Ordering::Relaxed);
            self.server.output.hold(&report);
            return true;
        }
        // A lookup of a name is in no queue.
        if self.server.is_short(&request) && order.file.is_none_or(|file| self.queues.enter(file)) {
            let call = self.post.begin();
            let report = self.server.carry_out(number, request);
            self.running.fetch_sub(1, Ordering::Relaxed);
            let has_post = self.post.end(call);
            match has_post {
                true => self.server.output.hold(&report),
                false => self.server.output.send(&report),
            }
            if let Some(file) = order.file {
                self.queues.leave(file);
            }
            return has_post;
        }
        let to = match request {
            HelperRequest::StillKnown => &self.asking,
            _ if order.is_awaited => &self.returning,
            _ => &self.queues,
        };
        let reader = self.clone();
        to.add(
            order,
            Box::new(move || {
                let closed =
                    if let HelperRequest::Close { file } = request { Some(file) } else { None };
                let report = reader.server.carry_out(number, request);
                reader.running.fetch_sub(1, Ordering::Relaxed);
                reader.server.output.send(&report);
                if let Some(file) = closed {
                    reader.server.end(file);
                }
            }),
        );
        true
    }
}
