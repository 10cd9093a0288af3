//! Real time: tasks, timers and one queue of operations on one thread. An iteration of the loop
//! polls all ready tasks and submits their operations. It waits for a completion or the next timer
//! (awake, where that is worthwhile: [`crate::polling`]), and wakes the tasks concerned.
//!
//! Create it on the thread that runs it, and after any fork.

use crate::polling::{Ended, Expected, Polling};
use crate::ring::{IoChoice, Ring, Signals, Wait};
use crate::tasks::Tasks;
use crate::timers::{Ticket, Timers};
use device::{LocalFuture, LongSteps, World};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use units::SplitMix;
use units::{Instant, Timestamp};

/// Polls after which the ring is examined, so that tasks that wake one another cannot starve it.
const POLLS_PER_ITERATION: usize = 4096;
/// Total time of steps after which the ring is examined. Tasks that yield, and are ready again at
/// once, would otherwise keep requests and completions waiting.
const STEPS_PER_ITERATION_MAX: Duration = device::STEP_LONG;
/// Polls after which the clocks are read. A small write asks for the time six times.
const POLLS_PER_LOOK: usize = 16;

struct State {
    tasks: Tasks,
    timers: Timers,
    ring: Ring,
    random: SplitMix,
    begin: std::time::Instant,
    /// Time when the clocks were last read.
    now: Cell<Instant>,
    wall_clock: Cell<Timestamp>,
    polling: Polling,
    expected: Cell<Expected>,
}

/// The real world, for one thread. Clones are the same world.
///
/// The time stands still while a few tasks take their steps: it may be some ten microseconds late.
/// Outside of [`RealWorld::run`] it is the time of the last reading. [`World::expect_soon`] is a
/// flag here, not a count: the last call holds. While it is set, a wait may poll for longer.
#[derive(Clone)]
pub struct RealWorld(Rc<State>);

impl RealWorld {
    /// Creates a world over an io_uring, or over threads and epoll: as `OKEANOS_IO` (`auto`, `ring`
    /// or `classic`) says, otherwise as the kernel permits.
    pub fn new() -> io::Result<RealWorld> {
        RealWorld::over(IoChoice::of_environment()?)
    }

    /// # Errors
    /// The kernel's, if it gives neither a ring nor epoll, or refuses the requested one.
    pub fn over(choice: IoChoice) -> io::Result<RealWorld> {
        Ok(RealWorld(Rc::new(State {
            tasks: Tasks::default(),
            timers: Timers::default(),
            ring: Ring::new(choice)?,
            // The standard library's hash keys come from the kernel's random numbers.
            random: SplitMix::new(RandomState::new().hash_one(0)),
            begin: std::time::Instant::now(),
            now: Cell::default(),
            wall_clock: Cell::new(wall_clock()),
            polling: Polling::new(
                std::thread::available_parallelism().map_or(1, |count| count.get()),
            ),
            expected: Cell::new(Expected::Request),
        })))
    }

    pub fn ring(&self) -> &Ring {
        &self.0.ring
    }

    /// Sets the longest poll before a wait sleeps, where polling is worthwhile; zero: never. It
    /// never is on a single processor.
    pub fn poll_at_most(&self, limit: Duration) {
        self.0.polling.limit_to(limit);
    }

    /// Keeps the processors of others awake from now on, while polling is worthwhile: programs
    /// sleep there until they are answered. Only for root.
    pub fn keep_others_awake(&self) {
        self.0.ring.may_keep_others_awake();
    }

    /// Returns SIGTERM, SIGINT and SIGHUP, if [`crate::block_signals`] was called before.
    pub fn signals(&self) -> io::Result<Signals> {
        self.0.ring.signals()
    }

    /// Runs `main` and all tasks it spawns until `main` ends. Tasks that still run stay, and
    /// continue in the next `run`; [`RealWorld::end`] drops them.
    ///
    /// # Panics
    /// When the kernel refuses io_uring_enter, or epoll, for good: then no operation can complete
    /// any more.
    pub fn run<T: 'static>(&self, main: impl Future<Output = T> + 'static) -> T {
        let result = Rc::new(RefCell::new(None));
        let slot = result.clone();
        self.0.tasks.spawn(Box::pin(async move {
            let value = main.await;
            *slot.borrow_mut() = Some(value);
        }));
        self.look_at_clocks();
        loop {
            let mut polls = 0;
            self.0.tasks.begin_steps();
            while polls < POLLS_PER_ITERATION && self.0.tasks.poll_first() {
                polls += 1;
                if self.0.tasks.steps_took() >= STEPS_PER_ITERATION_MAX {
                    break;
                }
                if polls % POLLS_PER_LOOK == 0 {
                    self.look_at_clocks();
                }
            }
            let over = result.borrow_mut().take();
            // Also at the end: operations that tasks have sent (an answer, a write nobody waits
            // for) must go out.
            let outcome = if over.is_some() {
                self.0.ring.submit_and_wait(Wait::No).map(drop)
            } else {
                self.run_once()
            };
            outcome.unwrap_or_else(|error| panic!("waiting for the kernel: {error}"));
            if let Some(value) = over {
                return value;
            }
            let now = self.now();
            while let Some(waker) = self.0.timers.pop_due(now) {
                waker.wake();
            }
        }
    }

    /// Submits, and waits if no task can continue.
    fn run_once(&self) -> io::Result<()> {
        if self.0.tasks.ready_count() > 0 {
            self.0.ring.submit_and_wait(Wait::No)?;
            self.look_at_clocks();
            return Ok(());
        }
        self.look_at_clocks();
        let (begin, expected) = (self.now(), self.0.expected.get());
        let limit = self.0.timers.next().map(|at| at.since(begin));
        let window = self.0.polling.window(expected, begin);
        let wait = match limit {
            Some(Duration::ZERO) => Wait::No,
            limit if window.is_zero() => Wait::Asleep(limit),
            limit => Wait::Awake { awake: window, limit },
        };
        let ended = self.0.ring.submit_and_wait(wait)?;
        self.look_at_clocks();
        let now = self.now();
        self.0.polling.learn(expected, ended, now.since(begin), window, now);
        let paid = ended == Ended::Completion && !window.is_zero();
        if paid && self.0.polling.is_worthwhile() {
            self.0.ring.keep_others_awake();
        }
        Ok(())
    }

    fn look_at_clocks(&self) {
        self.0.now.set(Instant(self.0.begin.elapsed().as_nanos() as u64));
        self.0.wall_clock.set(wall_clock());
    }

    /// Drops every task. Operations in flight complete unobserved.
    pub fn end(&self) {
        self.0.tasks.clear();
    }
}

impl World for RealWorld {
    fn now(&self) -> Instant {
        self.0.now.get()
    }
    fn wall_clock(&self) -> Timestamp {
        self.0.wall_clock.get()
    }
    fn sleep_until(&self, at: Instant) -> LocalFuture<()> {
        Box::pin(RealSleep { world: self.clone(), at, ticket: None })
    }
    fn spawn(&self, task: LocalFuture<()>) {
        self.0.tasks.spawn(task);
    }
    fn random(&self) -> u64 {
        self.0.random.next()
    }
    fn expect_soon(&self, soon: bool) {
        self.0.expected.set(if soon { Expected::Answer } else { Expected::Request });
    }
    fn name_task(&self, name: &'static str) {
        self.0.tasks.name_current(name);
    }
    fn long_steps(&self) -> Vec<LongSteps> {
        self.0.tasks.long_steps()
    }
}

fn wall_clock() -> Timestamp {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(time) => Timestamp { seconds: time.as_secs() as i64, nanoseconds: time.subsec_nanos() },
        // A clock set before 1970 is not worth more.
        Err(_) => Timestamp::default(),
    }
}

struct RealSleep {
    world: RealWorld,
    at: Instant,
    ticket: Option<Ticket>,
}
impl Future for RealSleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.world.now() >= this.at {
            return Poll::Ready(());
        }
        this.world.0.timers.register(this.at, &mut this.ticket, context.waker());
        Poll::Pending
    }
}
impl Drop for RealSleep {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.world.0.timers.cancel(ticket);
        }
    }
}
