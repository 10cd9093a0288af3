//! Answers to a crowd: those who have waited for one commit, and are answered at one moment.
//!
//! To wake a program takes as long as half of all else that is done for a small write. So where hundreds are to be woken a
//! second thread does it as well, and the first takes new requests meanwhile. Whoever of the two has time gives the next
//! answer: nobody waits for a thread that has no processor.

use crate::Answer;
use runtime::File;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// So many requests under way are a crowd. Fewer are answered by the ring's next turn, which must come anyway: a second thread
/// that needs a processor then costs more than it brings.
const CROWD: u64 = 256;
/// Answers that the first thread gives before it looks for new requests.
const HELP: usize = 4;
/// Bytes of an answer that says little more than that something is done.
const SHORT: usize = 32;

struct Short {
    bytes: [u8; SHORT],
    length: usize,
}

#[derive(Default)]
struct Queue {
    answers: VecDeque<Short>,
    /// The thread has nothing to do, and sleeps.
    is_asleep: bool,
    is_over: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
    fuse: std::fs::File,
    failed: AtomicU64,
}

pub(super) struct Crowd {
    fuse: File,
    second: RefCell<Second>,
    /// Answers that were taken are being given.
    is_answered: Cell<bool>,
}

/// The second thread.
enum Second {
    /// No crowd has come yet. It must not be there when the daemon forks, and most mounts never need it.
    NotYet,
    Begun(Arc<Shared>, JoinHandle<()>),
    /// The kernel refused it, or it has ended.
    Never,
}

impl Crowd {
    pub fn new(fuse: File) -> Crowd {
        Crowd { fuse, second: RefCell::new(Second::NotYet), is_answered: Cell::new(false) }
    }

    /// Answers that the kernel did not take: nobody waits for them any more.
    pub fn failed(&self) -> u64 {
        self.shared().map_or(0, |shared| shared.failed.load(Ordering::Relaxed))
    }

    /// Takes a short answer, if so many requests are under way that it pays; else returns it. Whether it is the first of a
    /// crowd: then the caller sees to it that [`Crowd::help`] is called again and again.
    pub fn take(&self, running: u64, unique: u64, answer: Answer) -> Result<bool, Answer> {
        if running < CROWD || !answer.is_within(SHORT) {
            return Err(answer);
        }
        let Some(shared) = self.begun() else { return Err(answer) };
        let (head, _) = answer.into_message(unique);
        let mut short = Short { bytes: [0; SHORT], length: head.len() };
        short.bytes[..head.len()].copy_from_slice(&head);
        let mut queue = shared.queue();
        queue.answers.push_back(short);
        let was_asleep = std::mem::take(&mut queue.is_asleep);
        drop(queue);
        if was_asleep {
            shared.filled.notify_one();
        }
        Ok(!self.is_answered.replace(true))
    }

    /// Gives some of the answers that the second thread has not given yet. False if none is left: the next is the first of
    /// another crowd.
    pub fn help(&self) -> bool {
        let is_left = self.shared().is_some_and(|shared| (0..HELP).all(|_| shared.give_next()));
        self.is_answered.set(is_left);
        is_left
    }

    /// Ends the second thread. All that was taken has been given when this returns.
    pub fn end(&self) {
        let Second::Begun(shared, thread) = self.second.replace(Second::Never) else { return };
        while shared.give_next() {}
        shared.queue().is_over = true;
        shared.filled.notify_one();
        // It does not panic, and would have nothing to say if it did.
        let _ = thread.join();
    }

    fn shared(&self) -> Option<Arc<Shared>> {
        match &*self.second.borrow() {
            Second::Begun(shared, _) => Some(shared.clone()),
            _ => None,
        }
    }

    fn begun(&self) -> Option<Arc<Shared>> {
        if matches!(*self.second.borrow(), Second::NotYet) {
            let begun = self.begin().map_or(Second::Never, |(shared, thread)| Second::Begun(shared, thread));
            self.second.replace(begun);
        }
        self.shared()
    }

    fn begin(&self) -> io::Result<(Arc<Shared>, JoinHandle<()>)> {
        let fuse = std::fs::File::from(self.fuse.try_clone()?);
        let (queue, filled, failed) = Default::default();
        let shared = Arc::new(Shared { queue, filled, fuse, failed });
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("answers".into()).spawn(move || of_thread.serve())?;
        Ok((shared, thread))
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// False if there is none.
    fn give_next(&self) -> bool {
        // The lock is free again while the answer is given.
        let next = self.queue().answers.pop_front();
        let Some(answer) = next else { return false };
        if (&self.fuse).write(&answer.bytes[..answer.length]).is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// What the second thread does.
    fn serve(&self) {
        loop {
            while self.give_next() {}
            let mut queue = self.queue();
            if !queue.answers.is_empty() {
                continue;
            }
            if queue.is_over {
                return;
            }
            queue.is_asleep = true;
            let woken = self.filled.wait_while(queue, |queue| queue.is_asleep && !queue.is_over);
            drop(woken.unwrap_or_else(PoisonError::into_inner));
        }
    }
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
    fn every_answer_is_given_once_whoever_gives_it() {
        const ANSWERS: u64 = 10_000;
        let (reader, writer) = io::pipe().unwrap();
        let read = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            (&reader).read_to_end(&mut bytes).unwrap();
            bytes
        });
        let crowd = Crowd::new(Rc::new(writer.into()));
        for unique in 0..ANSWERS {
            crowd.take(CROWD, unique, Answer::empty()).unwrap();
            while unique % 100 == 0 && crowd.help() {}
        }
        assert!(crowd.take(CROWD - 1, 0, Answer::empty()).is_err(), "few are no crowd");
        assert!(crowd.take(CROWD, 0, Answer::bytes(&[0; SHORT])).is_err(), "a long answer");
        drop(crowd);
        let bytes = read.join().unwrap();
        let uniques = bytes
            .chunks(size_of::<OutHeader>())
            .map(|bytes| OutHeader::read_from_bytes(bytes).unwrap().unique);
        let given: BTreeSet<u64> = uniques.collect();
        assert_eq!(given.len() as u64, ANSWERS);
        assert_eq!(bytes.len() as u64, ANSWERS * size_of::<OutHeader>() as u64);
    }
}
