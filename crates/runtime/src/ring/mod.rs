//! One queue of operations for everything: disks, `/dev/fuse`, signals. An io_uring carries them
//! out, or where there is none, threads and epoll ([`kernel`]). Callers cannot distinguish them,
//! except for commands to drivers ([`Ring::submit`]).
//!
//! Invariants:
//! 1. Memory that an operation points to is owned by its slot until the operation's *last*
//!    completion, whether or not anyone still waits for it. When the queue ends first, memory that
//!    may still be in use is leaked.
//! 2. A slot's number (`user_data`) is not reused before that completion was seen.
//! 3. No slot table borrow is held while foreign code (a destructor, a waker's owner) runs.

mod awake;
mod files;
mod kernel;
mod operation;
mod poll;
mod signals;
mod slots;
mod submit;

pub use files::{Slice, command};
pub use kernel::{IoChoice, NoRing, RingRefusal};
pub use poll::PollStream;
pub use signals::{Signal, Signals, block_signals};
pub(crate) use submit::Wait;

use awake::Awake;
use io_uring::squeue::Entry128;
use kernel::{Call, Completion, Kernel, is_passing};
use operation::Operation;
use slots::{Owned, Slot, Slots, Waiter};
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// An open file that operations keep open while they run.
pub type File = Rc<OwnedFd>;

/// `user_data` of operations whose completion is ignored.
const UNOBSERVED: u64 = u64::MAX;
/// Longest wait of the ring's end for the kernel to release memory.
const FAREWELL: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStatistics {
    pub operations: u64,
    pub completions: u64,
    /// Calls of io_uring_enter; without a ring, polls and waits for events.
    pub enters: u64,
    /// Sends that failed (see [`Ring::send`]); a FUSE request that was interrupted makes one.
    pub failed_sends: u64,
    /// Times the submission queue was full and had to be submitted early.
    pub full_queues: u64,
    /// Waits that polling ended, and those that continued asleep.
    pub polls: u64,
    pub polls_in_vain: u64,
    /// Times the processors of others were kept awake from then on.
    pub keeps_awake: u64,
}

/// The ring, which may be cloned freely on its one thread.
#[derive(Clone)]
pub struct Ring(Rc<State>);

struct State {
    kernel: RefCell<Kernel>,
    no_ring: Option<NoRing>,
    slots: RefCell<Slots>,
    /// Completions taken off the queue and not yet dispatched.
    arrived: RefCell<Vec<Completion>>,
    statistics: Cell<RingStatistics>,
    /// Keeps processors awake; `None` unless requested and available.
    awake: OnceCell<Option<Awake>>,
}

impl Ring {
    pub(crate) fn new(choice: IoChoice) -> io::Result<Ring> {
        let (kernel, no_ring) = Kernel::new(choice)?;
        // Only a bound: timers of 100 us would else come up to 50 us late
        // (PR_SET_TIMERSLACK(2const), nanoseconds). SAFETY: changes a number of this thread only.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000 as libc::c_ulong) };
        Ok(Ring(Rc::new(State {
            kernel: RefCell::new(kernel),
            no_ring,
            slots: RefCell::default(),
            arrived: RefCell::default(),
            statistics: Cell::default(),
            awake: OnceCell::new(),
        })))
    }

    /// Returns why threads and epoll replace an io_uring; `None` where there is one.
    pub fn no_ring(&self) -> Option<&NoRing> {
        self.0.no_ring.as_ref()
    }

    /// Applies the calling thread's rights, filters and flags to all threads that begin operations
    /// from now on. Call it behind each change of them. Does not wait for the calls that threads
    /// are in.
    pub fn renew_threads(&self) {
        match &mut *self.0.kernel.borrow_mut() {
            Kernel::Classic(classic) => classic.renew_threads(),
            // The kernel carries operations out as the thread that made the ring.
            Kernel::Uring(_) => {}
        }
    }

    pub fn statistics(&self) -> RingStatistics {
        self.0.statistics.get()
    }

    /// Enables [`Ring::keep_others_awake`], where that is permitted.
    pub(crate) fn may_keep_others_awake(&self) {
        self.0.awake.get_or_init(Awake::new);
    }

    /// Keeps the processors of others awake until the next sleep.
    pub(crate) fn keep_others_awake(&self) {
        if self.hold_awake(true) {
            self.count(|statistics| statistics.keeps_awake += 1);
        }
    }

    fn hold_awake(&self, hold: bool) -> bool {
        self.0.awake.get().and_then(Option::as_ref).is_some_and(|awake| awake.hold(hold))
    }

    /// Starts an operation; the future returns its result (negative: an errno; ENOSYS without an
    /// io_uring). The ring keeps `owned` until the operation has completed, also when the future is
    /// dropped.
    ///
    /// # Safety
    /// All memory that `entry` points to must stay valid until completion: owned by `owned` on the
    /// heap, or static. Memory that the kernel writes must not be read before. The operation must
    /// complete once (not multishot), and its file must stay open until the next iteration of the
    /// world's loop.
    pub unsafe fn submit(
        &self,
        entry: Entry128,
        owned: Box<dyn Any>,
    ) -> impl Future<Output = i32> + use<> {
        // SAFETY: as promised by the caller.
        let operation = unsafe { self.start(Call::Raw(entry), Owned::Any(owned), None) };
        async move { operation.await.0 }
    }

    /// # Safety
    /// As for [`Ring::submit`]; `file` is kept open, too.
    unsafe fn start(&self, call: Call, owned: Owned, file: Option<File>) -> Operation {
        let slot = Slot { waiter: Waiter::Task(None), owned, file, guard: None };
        // SAFETY: as promised by the caller.
        let index = unsafe { self.enqueue(call, slot) };
        Operation { ring: self.clone(), index: Some(index) }
    }

    /// # Safety
    /// As for [`Ring::submit`], with `slot` as owner; multishot only if the waiter is a stream.
    unsafe fn enqueue(&self, call: Call, slot: Slot) -> u32 {
        let index = self.0.slots.borrow_mut().insert(slot);
        self.count(|statistics| statistics.operations += 1);
        // SAFETY: the slot now owns what the call points to.
        unsafe { self.push(call, u64::from(index)) };
        index
    }

    /// # Safety
    /// What the call points to must live until its last completion.
    unsafe fn push(&self, call: Call, user_data: u64) {
        let mut kernel = self.0.kernel.borrow_mut();
        let uring = match &mut *kernel {
            // SAFETY: as promised by the caller.
            Kernel::Classic(classic) => return unsafe { classic.push(call, user_data) },
            Kernel::Uring(uring) => uring,
        };
        // SAFETY: as promised by the caller.
        while !unsafe { uring.push(&call, user_data) } {
            self.count(|statistics| {
                statistics.full_queues += 1;
                statistics.enters += 1;
            });
            match uring.submit() {
                Ok(()) => {}
                // The kernel takes no more until it can hand back completions.
                Err(error) if is_passing(&error) => {
                    uring.collect(&mut self.0.arrived.borrow_mut());
                }
                Err(error) => panic!("io_uring_enter: {error}"),
            }
        }
    }

    /// Asks the kernel to end an operation early; it still completes.
    fn cancel(&self, index: u32) {
        // SAFETY: a cancel request points to no memory.
        unsafe { self.push(Call::Cancel { user_data: u64::from(index) }, UNOBSERVED) };
    }

    fn count(&self, change: impl FnOnce(&mut RingStatistics)) {
        let mut statistics = self.0.statistics.get();
        change(&mut statistics);
        self.0.statistics.set(statistics);
    }
}

impl Drop for State {
    /// Cancels all operations that can be cancelled and waits for the rest: the kernel may write
    /// into an operation's memory even after the ring's file is closed. Memory of operations that
    /// do not end in time is leaked.
    fn drop(&mut self) {
        let slots = self.slots.get_mut();
        let is_last = |it: &&Completion| it.user_data != UNOBSERVED && !it.more;
        slots.running -= self.arrived.get_mut().iter().filter(is_last).count();
        let have_ended = self.kernel.get_mut().end(slots.running, Instant::now() + FAREWELL);
        let left = slots.take_all();
        if !have_ended {
            std::mem::forget(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealWorld;
    use io_uring::{opcode, types};

    #[test]
    fn a_raw_operation_gives_its_result_and_frees_what_it_owned() {
        let world = RealWorld::over(IoChoice::Ring).unwrap();
        let ring = world.ring().clone();
        world.run(async move {
            let token = Rc::new(());
            // SAFETY: a no-op points to no memory.
            let operation =
                unsafe { ring.submit(opcode::Nop::new().build().into(), Box::new(token.clone())) };
            assert_eq!(Rc::strong_count(&token), 2);
            assert_eq!(operation.await, 0);
            assert_eq!(Rc::strong_count(&token), 1);
            // SAFETY: as above. Dropped at once; the memory it owns is freed when it completes.
            drop(unsafe {
                ring.submit(opcode::Nop::new().build().into(), Box::new(token.clone()))
            });
            for _ in 0..3 {
                crate::yield_now().await;
                ring.submit_and_wait(Wait::No).unwrap();
            }
            assert_eq!(Rc::strong_count(&token), 1);
        });
        assert_eq!(world.ring().0.slots.borrow().running, 0);
    }

    #[test]
    fn a_command_that_the_file_does_not_know_is_an_error() {
        let world = RealWorld::over(IoChoice::Ring).unwrap();
        let ring = world.ring().clone();
        let result = world.run(async move {
            let file: File = Rc::new(std::fs::File::open("/dev/zero").unwrap().into());
            // SAFETY: no memory is pointed to; the file outlives the operation.
            unsafe { ring.submit(command(&file, 77, &[0; 80], 0, 2), Box::new(file.clone())) }.await
        });
        assert_eq!(result, -libc::EOPNOTSUPP);
    }

    #[test]
    fn others_are_kept_awake_until_the_next_sleep() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("latency");
        std::fs::write(&path, []).unwrap();
        let world = RealWorld::over(IoChoice::Ring).unwrap();
        let ring = world.ring();
        ring.keep_others_awake();
        assert_eq!(ring.statistics().keeps_awake, 0, "nobody asked for it");
        assert!(ring.0.awake.set(Awake::at(&path, 0)).is_ok());
        ring.keep_others_awake();
        ring.keep_others_awake();
        ring.submit_and_wait(Wait::No).unwrap();
        let written = || std::fs::metadata(&path).unwrap().len();
        assert_eq!((written(), ring.statistics().keeps_awake), (4, 1));
        ring.submit_and_wait(Wait::Asleep(Some(Duration::from_millis(1)))).unwrap();
        assert_eq!(written(), 8, "taken back");
    }

    #[test]
    fn a_full_queue_is_handed_over_early_and_loses_nothing() {
        let world = RealWorld::over(IoChoice::Ring).unwrap();
        let ring = world.ring().clone();
        world.run(async move {
            let nop = || opcode::Nop::new().build().into();
            // SAFETY: a no-op points to no memory.
            let operations: Vec<_> =
                (0..50_000).map(|_| unsafe { ring.submit(nop(), Box::new(())) }).collect();
            for operation in operations {
                assert_eq!(operation.await, 0);
            }
            assert!(ring.statistics().full_queues > 0);
        });
    }

    #[test]
    fn a_running_poll_is_not_taken_for_ended_when_the_ring_ends() {
        let world = RealWorld::over(IoChoice::Ring).unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        let watched = world.ring().poll(&Rc::new(OwnedFd::from(reader)), libc::POLLIN);
        world.ring().submit_and_wait(Wait::No).unwrap();
        let ring = &world.ring().0;
        assert_eq!(ring.slots.borrow().running, 1);
        // It reported twice, and nobody has looked.
        let reported = Completion { user_data: 0, result: libc::POLLIN.into(), more: true };
        ring.arrived.borrow_mut().extend([reported; 2]);
        drop(watched);
        drop(world);
    }

    #[test]
    fn the_end_of_the_ring_waits_for_or_cancels_what_is_under_way() {
        let token = Rc::new(());
        {
            let world = RealWorld::over(IoChoice::Ring).unwrap();
            let (ring, token) = (world.ring().clone(), token.clone());
            world.run(async move {
                let (reader, writer) = std::io::pipe().unwrap();
                let reader: File = Rc::new(OwnedFd::from(reader));
                let file = types::Fd(std::os::fd::AsRawFd::as_raw_fd(&reader));
                let mut bytes = vec![0u8; 16];
                let read = opcode::Read::new(file, bytes.as_mut_ptr(), 16).build();
                // SAFETY: the vector's heap memory moves into the ring's care.
                drop(unsafe { ring.submit(read.into(), Box::new((bytes, reader, writer, token))) });
            });
        }
        assert_eq!(Rc::strong_count(&token), 1);
    }
}
