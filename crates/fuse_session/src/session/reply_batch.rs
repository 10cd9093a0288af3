//! Batched replies to requests that were waiting for one event, such as a commit.
//!
//! Waking a program takes half as long as everything else that is done for a small write. Where
//! many are to be woken and a processor is free, a second thread wakes them there, while the first
//! takes new requests. If the second loses its processor, the first sends the rest.

use crate::Reply;
use runtime::File;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Requests in flight that make a batch. Fewer are answered by the ring's next submission, which is
/// needed anyway.
const BATCH_MIN: u64 = 64;
/// Time after which the second thread has lost its processor: a batch of a thousand is answered in
/// less.
pub(super) const PATIENCE: Duration = Duration::from_millis(5);
/// Replies that the first thread then sends before it takes new requests.
const HELP: usize = 4;
/// The file whose fourth word is the number of threads that run, or want to.
const LOAD: &str = "/proc/loadavg";
/// Length, in bytes, of a reply that reports little more than success.
const SHORT: usize = 32;

struct Short {
    bytes: [u8; SHORT],
    length: usize,
}

#[derive(Default)]
struct Queue {
    replies: VecDeque<Short>,
    /// Whether the thread has nothing to do, and sleeps.
    is_asleep: bool,
    is_closed: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
    fuse: std::fs::File,
    failed: AtomicU64,
    load: std::fs::File,
}

pub(super) struct ReplyBatch {
    fuse: File,
    second: RefCell<Second>,
    /// Whether accepted replies are being sent.
    is_sending: Cell<bool>,
    /// Replies until the next check for a free processor.
    until_check: Cell<u64>,
    processors: usize,
}

/// State of the second thread.
enum Second {
    /// No batch has come yet. The thread must not exist when the daemon forks, and most mounts
    /// never need it.
    NotStarted,
    Running(Arc<Shared>, JoinHandle<()>),
    /// The kernel refused it, or it has ended.
    Ended,
}

impl ReplyBatch {
    pub fn new(fuse: File, processors: usize) -> ReplyBatch {
        let second = RefCell::new(Second::NotStarted);
        ReplyBatch {
            fuse,
            second,
            is_sending: Cell::default(),
            until_check: Cell::default(),
            processors,
        }
    }

    /// Returns the number of replies that the kernel did not take: their callers no longer wait.
    pub fn failed(&self) -> u64 {
        self.shared().map_or(0, |shared| shared.failed.load(Ordering::Relaxed))
    }

    /// Takes a short reply, if enough requests are in flight to be worthwhile and a processor is
    /// free; otherwise returns it. Returns whether it is the first of a batch: then the caller
    /// calls [`ReplyBatch::help`] repeatedly, after [`PATIENCE`].
    pub fn take(&self, running: u64, unique: u64, reply: Reply) -> Result<bool, Reply> {
        if running < BATCH_MIN || !reply.is_within(SHORT) {
            return Err(reply);
        }
        if self.until_check.get() > 0 {
            self.until_check.set(self.until_check.get() - 1);
            return Err(reply);
        }
        let Some(shared) = self.started() else { return Err(reply) };
        if !self.is_sending.get() && !self.finds_processor(&shared, running) {
            return Err(reply);
        }
        let (head, _) = reply.into_message(unique);
        let mut short = Short { bytes: [0; SHORT], length: head.len() };
        short.bytes[..head.len()].copy_from_slice(&head);
        let mut queue = shared.queue();
        queue.replies.push_back(short);
        let was_asleep = std::mem::take(&mut queue.is_asleep);
        drop(queue);
        if was_asleep {
            shared.filled.notify_one();
        }
        Ok(!self.is_sending.replace(true))
    }

    /// Sends some of the replies that the second thread has not sent yet. Returns false if none is
    /// left: the next is the first of another batch.
    pub fn help(&self) -> bool {
        let is_left = self.shared().is_some_and(|shared| (0..HELP).all(|_| shared.send_next()));
        self.is_sending.set(is_left);
        is_left
    }

    /// Ends the second thread. Every accepted reply has been sent when this returns.
    pub fn end(&self) {
        let Second::Running(shared, thread) = self.second.replace(Second::Ended) else { return };
        while shared.send_next() {}
        shared.queue().is_closed = true;
        shared.filled.notify_one();
        // It does not panic, and its result carries nothing.
        let _ = thread.join();
    }

    /// Returns whether a processor is free for this batch. Checked at its first reply, when all
    /// its callers sleep.
    fn finds_processor(&self, shared: &Shared, batch: u64) -> bool {
        let is_free = shared.running_threads().is_some_and(|running| running < self.processors);
        self.until_check.set(if is_free { 0 } else { batch });
        is_free
    }

    fn shared(&self) -> Option<Arc<Shared>> {
        match &*self.second.borrow() {
            Second::Running(shared, _) => Some(shared.clone()),
            _ => None,
        }
    }

    fn started(&self) -> Option<Arc<Shared>> {
        if matches!(*self.second.borrow(), Second::NotStarted) {
            let second = self
                .start()
                .map_or(Second::Ended, |(shared, thread)| Second::Running(shared, thread));
            self.second.replace(second);
        }
        self.shared()
    }

    fn start(&self) -> io::Result<(Arc<Shared>, JoinHandle<()>)> {
        let fuse = std::fs::File::from(self.fuse.try_clone()?);
        let (queue, filled, failed) = Default::default();
        let shared =
            Arc::new(Shared { queue, filled, fuse, failed, load: std::fs::File::open(LOAD)? });
        let of_thread = shared.clone();
        let thread =
            std::thread::Builder::new().name("replies".into()).spawn(move || of_thread.serve())?;
        Ok((shared, thread))
    }
}

impl Drop for ReplyBatch {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number on all processors, the caller included.
    fn running_threads(&self) -> Option<usize> {
        let mut text = [0; 128];
        let length = self.load.read_at(&mut text, 0).ok()?;
        running_threads(std::str::from_utf8(&text[..length]).ok()?)
    }

    /// Sends the next reply. Returns false if there is none.
    fn send_next(&self) -> bool {
        // The lock is free again while the reply is sent.
        let next = self.queue().replies.pop_front();
        let Some(reply) = next else { return false };
        if (&self.fuse).write(&reply.bytes[..reply.length]).is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Runs the second thread.
    fn serve(&self) {
        loop {
            while self.send_next() {}
            let mut queue = self.queue();
            if !queue.replies.is_empty() {
                continue;
            }
            if queue.is_closed {
                return;
            }
            queue.is_asleep = true;
            let woken = self.filled.wait_while(queue, |queue| queue.is_asleep && !queue.is_closed);
            drop(woken.unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// Parses a line of [`LOAD`].
fn running_threads(line: &str) -> Option<usize> {
    line.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::OutHeader;
    use std::collections::BTreeSet;
    use std::io::Read;
    use std::rc::Rc;
    use zerocopy::FromBytes;

    #[test]
    fn every_reply_is_sent_once_by_either_thread() {
        const REPLIES: u64 = 10_000;
        let (reader, writer) = io::pipe().unwrap();
        let read = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            (&reader).read_to_end(&mut bytes).unwrap();
            bytes
        });
        // A second thread that always has a processor.
        let batch = ReplyBatch::new(Rc::new(writer.into()), usize::MAX);
        for unique in 0..REPLIES {
            batch.take(BATCH_MIN, unique, Reply::empty()).unwrap();
            while unique % 100 == 0 && batch.help() {}
        }
        assert!(batch.take(BATCH_MIN - 1, 0, Reply::empty()).is_err(), "too few for a batch");
        assert!(batch.take(BATCH_MIN, 0, Reply::bytes(&[0; SHORT])).is_err(), "a long reply");
        drop(batch);
        let bytes = read.join().unwrap();
        let uniques = bytes
            .chunks(size_of::<OutHeader>())
            .map(|bytes| OutHeader::read_from_bytes(bytes).unwrap().unique);
        let given: BTreeSet<u64> = uniques.collect();
        assert_eq!(given.len() as u64, REPLIES);
        assert_eq!(bytes.len() as u64, REPLIES * size_of::<OutHeader>() as u64);
    }

    #[test]
    fn without_a_free_processor_the_first_thread_replies() {
        let (_reader, writer) = io::pipe().unwrap();
        let batch = ReplyBatch::new(Rc::new(writer.into()), 0);
        for _ in 0..3 * BATCH_MIN {
            assert!(batch.take(BATCH_MIN, 1, Reply::empty()).is_err());
        }
        assert!(!batch.help());
    }

    #[test]
    fn the_kernel_says_how_many_threads_run() {
        assert_eq!(running_threads("0.20 0.18 0.12 3/80 11206\n"), Some(3));
        for other in ["", "0.20 0.18 0.12", "0.20 0.18 0.12 x/80 1", "0.20 0.18 0.12 80 1"] {
            assert_eq!(running_threads(other), None);
        }
        assert!(
            running_threads(&std::fs::read_to_string(LOAD).unwrap()).is_some_and(|count| count > 0)
        );
    }
}
