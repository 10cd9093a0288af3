//! One io_uring for everything: disks, `/dev/fuse`, signals. All unsafe code of this floor is in
//! this room.
//!
//! Invariants:
//! 1. What an operation points to is owned by its slot until the operation's *last* completion,
//!    whether or not anyone still waits for it. When the ring ends first, what may still be in use
//!    is leaked.
//! 2. A slot's number (`user_data`) is not given away before that completion was seen.
//! 3. No slot table borrow is held while foreign code (a destructor, a waker's owner) runs.

mod awake;
mod files;
mod operation;
mod poll;
mod signals;
mod slots;
mod turn;

pub use files::{Slice, command};
pub use poll::PollStream;
pub use signals::{Signal, Signals, block_signals};
pub(crate) use turn::Wait;

use awake::Awake;
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use operation::Operation;
use slots::{Owned, Slot, Slots, Waiter};
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};
use turn::is_passing;

type Uring = IoUring<Entry128, cqueue::Entry>;

/// An open file that operations keep open while they run.
pub type File = Rc<OwnedFd>;

/// Submissions gathered before the kernel is told, and completions it may pile up.
const SUBMISSIONS: u32 = 4096;
const COMPLETIONS: u32 = 16384;
/// Kernel threads for operations that would block: fsync, fallocate, buffered writes; (bounded,
/// unbounded).
const WORKERS: [u32; 2] = [4, 4];
/// `user_data` of operations whose completion nobody looks at.
const UNOBSERVED: u64 = u64::MAX;
/// How long the ring's end waits for the kernel to let go of memory.
const FAREWELL: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStatistics {
    pub operations: u64,
    pub completions: u64,
    /// Calls of io_uring_enter.
    pub enters: u64,
    /// Sends that failed (see [`Ring::send`]); a FUSE request that was interrupted makes one.
    pub failed_sends: u64,
    /// Times the submission queue was full and had to be handed over early.
    pub full_queues: u64,
    /// Waits that polling ended, and those that went on asleep.
    pub polls: u64,
    pub polls_in_vain: u64,
    /// Times the processors of others were kept awake from then on.
    pub keeps_awake: u64,
}

/// The ring, to be cloned freely on its one thread.
#[derive(Clone)]
pub struct Ring(Rc<State>);

struct State {
    uring: RefCell<Uring>,
    slots: RefCell<Slots>,
    /// Completions taken off the queue and not yet dispatched: (user_data, result, flags).
    arrived: RefCell<Vec<(u64, i32, u32)>>,
    statistics: Cell<RingStatistics>,
    /// `None` unless it was asked for and can be had.
    awake: OnceCell<Option<Awake>>,
}

impl Ring {
    pub(crate) fn new() -> io::Result<Ring> {
        let uring = build(true).or_else(|error| match error.raw_os_error() {
            // Kernels before 6.1 do not know deferred task work.
            Some(libc::EINVAL) => build(false),
            _ => Err(error),
        })?;
        // Only a bound: a kernel that refuses it works all the same.
        let _ = uring.submitter().register_iowq_max_workers(&mut WORKERS.clone());
        // Likewise: timers of 100 us would else come up to 50 us late (PR_SET_TIMERSLACK(2const),
        // nanoseconds). SAFETY: changes a number of this thread only.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000 as libc::c_ulong) };
        // Likewise: saves the kernel a look-up of the ring's file at each call.
        let _ = uring.submitter().register_ring_fd();
        Ok(Ring(Rc::new(State {
            uring: RefCell::new(uring),
            slots: RefCell::default(),
            arrived: RefCell::default(),
            statistics: Cell::default(),
            awake: OnceCell::new(),
        })))
    }

    pub fn statistics(&self) -> RingStatistics {
        self.0.statistics.get()
    }

    /// From now on [`Ring::keep_others_awake`] does something, where that may be.
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

    /// Starts an operation; the future gives its result (negative: an errno). The ring keeps
    /// `owned` until the operation has completed, also when the future is dropped.
    ///
    /// # Safety
    /// All memory that `entry` points to must stay valid until completion: owned by `owned` on the
    /// heap, or static. What the kernel writes must not be looked at before. The operation must
    /// complete once (not multishot), and its file must stay open until the next turn of the
    /// world's loop.
    pub unsafe fn submit(
        &self,
        entry: Entry128,
        owned: Box<dyn Any>,
    ) -> impl Future<Output = i32> + use<> {
        // SAFETY: as promised by the caller.
        let operation = unsafe { self.start(entry, Owned::Any(owned), None) };
        async move { operation.await.0 }
    }

    /// # Safety
    /// As for [`Ring::submit`]; `file` is kept open, too.
    unsafe fn start(&self, entry: Entry128, owned: Owned, file: Option<File>) -> Operation {
        let slot = Slot { waiter: Waiter::Task(None), owned, file, guard: None };
        // SAFETY: as promised by the caller.
        let index = unsafe { self.enqueue(entry, slot) };
        Operation { ring: self.clone(), index: Some(index) }
    }

    /// # Safety
    /// As for [`Ring::submit`], with `slot` as owner; multishot only if the waiter is a stream.
    unsafe fn enqueue(&self, entry: Entry128, slot: Slot) -> u32 {
        let index = self.0.slots.borrow_mut().insert(slot);
        self.count(|statistics| statistics.operations += 1);
        // SAFETY: the slot now owns what the entry points to.
        unsafe { self.push(entry.user_data(u64::from(index))) };
        index
    }

    /// # Safety
    /// What the entry points to must live until its last completion.
    unsafe fn push(&self, entry: Entry128) {
        let mut uring = self.0.uring.borrow_mut();
        // SAFETY: the entry is valid, as promised by the caller.
        while unsafe { uring.submission().push(&entry) }.is_err() {
            self.count(|statistics| {
                statistics.full_queues += 1;
                statistics.enters += 1;
            });
            match uring.submit() {
                Ok(_) => {}
                // The kernel takes no more until it can hand back completions.
                Err(error) if is_passing(&error) => self.collect(&mut uring),
                Err(error) => panic!("io_uring_enter: {error}"),
            }
        }
    }

    /// Asks the kernel to end an operation early; it still completes.
    fn cancel(&self, index: u32) {
        let entry = opcode::AsyncCancel::new(u64::from(index)).build().user_data(UNOBSERVED);
        // SAFETY: a cancel request points to no memory.
        unsafe { self.push(entry.into()) };
    }

    fn count(&self, change: impl FnOnce(&mut RingStatistics)) {
        let mut statistics = self.0.statistics.get();
        change(&mut statistics);
        self.0.statistics.set(statistics);
    }
}

fn build(deferred: bool) -> io::Result<Uring> {
    let mut builder = Uring::builder();
    builder.setup_cqsize(COMPLETIONS);
    if deferred {
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
    } else {
        builder.setup_coop_taskrun().setup_taskrun_flag();
    }
    builder.build(SUBMISSIONS)
}

impl Drop for State {
    /// Cancels what can be cancelled and waits for the rest: the kernel may write into an
    /// operation's memory even after the ring's file is closed. What does not end in time is
    /// leaked.
    fn drop(&mut self) {
        let uring = self.uring.get_mut();
        let slots = self.slots.get_mut();
        let is_last = |(user_data, _, flags): &&(u64, i32, u32)| {
            *user_data != UNOBSERVED && !cqueue::more(*flags)
        };
        slots.running -= self.arrived.get_mut().iter().filter(is_last).count();
        let deadline = Instant::now() + FAREWELL;
        let mut asked = false;
        while slots.running > 0 && Instant::now() < deadline {
            if !asked {
                let cancel = opcode::AsyncCancel2::new(types::CancelBuilder::any())
                    .build()
                    .user_data(UNOBSERVED);
                // SAFETY: a cancel request points to no memory.
                asked = unsafe { uring.submission().push(&squeue::Entry128::from(cancel)) }.is_ok();
            }
            let time = types::Timespec::from(Duration::from_millis(100));
            let _ =
                uring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&time));
            for entry in uring.completion() {
                if entry.user_data() != UNOBSERVED && !cqueue::more(entry.flags()) {
                    slots.running -= 1;
                }
            }
        }
        let left = slots.take_all();
        if slots.running > 0 {
            std::mem::forget(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealWorld;

    #[test]
    fn a_raw_operation_gives_its_result_and_frees_what_it_owned() {
        let world = RealWorld::new().unwrap();
        let ring = world.ring().clone();
        world.run(async move {
            let token = Rc::new(());
            // SAFETY: a no-op points to no memory.
            let operation =
                unsafe { ring.submit(opcode::Nop::new().build().into(), Box::new(token.clone())) };
            assert_eq!(Rc::strong_count(&token), 2);
            assert_eq!(operation.await, 0);
            assert_eq!(Rc::strong_count(&token), 1);
            // SAFETY: as above. Dropped at once; what it owns goes when it completes.
            drop(unsafe {
                ring.submit(opcode::Nop::new().build().into(), Box::new(token.clone()))
            });
            for _ in 0..3 {
                crate::yield_now().await;
                ring.turn(Wait::No).unwrap();
            }
            assert_eq!(Rc::strong_count(&token), 1);
        });
        assert_eq!(world.ring().0.slots.borrow().running, 0);
    }

    #[test]
    fn a_command_that_the_file_does_not_know_is_an_error() {
        let world = RealWorld::new().unwrap();
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
        let world = RealWorld::new().unwrap();
        let ring = world.ring();
        ring.keep_others_awake();
        assert_eq!(ring.statistics().keeps_awake, 0, "nobody asked for it");
        assert!(ring.0.awake.set(Awake::at(&path, 0)).is_ok());
        ring.keep_others_awake();
        ring.keep_others_awake();
        ring.turn(Wait::No).unwrap();
        let written = || std::fs::metadata(&path).unwrap().len();
        assert_eq!((written(), ring.statistics().keeps_awake), (4, 1));
        ring.turn(Wait::Asleep(Some(Duration::from_millis(1)))).unwrap();
        assert_eq!(written(), 8, "taken back");
    }

    #[test]
    fn a_full_queue_is_handed_over_early_and_loses_nothing() {
        let world = RealWorld::new().unwrap();
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
        const MORE: u32 = 1 << 1;
        let world = RealWorld::new().unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        let watched = world.ring().poll(&Rc::new(OwnedFd::from(reader)), libc::POLLIN);
        world.ring().turn(Wait::No).unwrap();
        let ring = &world.ring().0;
        assert_eq!(ring.slots.borrow().running, 1);
        // It told twice, and nobody has looked.
        ring.arrived.borrow_mut().extend([(0, libc::POLLIN.into(), MORE); 2]);
        drop(watched);
        drop(world);
    }

    #[test]
    fn the_end_of_the_ring_waits_for_or_cancels_what_is_under_way() {
        let token = Rc::new(());
        {
            let world = RealWorld::new().unwrap();
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
