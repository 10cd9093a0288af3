//! Virtual time: the clock stands still while any task can continue and then leaps to the next
//! timer. The seed decides which ready task goes first and every random number, so the same seed
//! gives the same run.

use crate::tasks::Tasks;
use crate::timers::{Ticket, Timers};
use device::{LocalFuture, LongSteps, World};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use units::SplitMix;
use units::{Instant, Timestamp};

/// 2020-01-01, so that virtual files have plausible dates.
const EPOCH_SECONDS: i64 = 1_577_836_800;

struct State {
    tasks: Tasks,
    now: Cell<Instant>,
    random: SplitMix,
    timers: Timers,
}

#[derive(Clone)]
pub struct VirtualWorld(Rc<State>);

/// Error: every task waits for another, and no timer is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlock {
    pub at: Instant,
}

impl VirtualWorld {
    pub fn new(seed: u64) -> VirtualWorld {
        let seed = match units::fault!("seed-beside-chance") {
            true => RandomState::new().hash_one(seed),
            false => seed,
        };
        VirtualWorld(Rc::new(State {
            tasks: Tasks::default(),
            now: Cell::default(),
            random: SplitMix::new(seed),
            timers: Timers::default(),
        }))
    }

    /// Runs `main` and all tasks it spawns until `main` ends. Panics when every task waits for
    /// another. Tasks that still run stay, and continue in the next `run`.
    pub fn run<T: 'static>(&self, main: impl Future<Output = T> + 'static) -> T {
        match self.try_run(main) {
            Ok(value) => value,
            Err(Deadlock { at }) => panic!("deadlock at {at:?}: every task waits for another"),
        }
    }

    /// Runs `main` like [`VirtualWorld::run`], for scripts that may hang, such as on a disk whose
    /// power is cut.
    pub fn try_run<T: 'static>(
        &self,
        main: impl Future<Output = T> + 'static,
    ) -> Result<T, Deadlock> {
        let state = &self.0;
        let result = Rc::new(RefCell::new(None));
        let slot = result.clone();
        state.tasks.spawn(Box::pin(async move {
            let value = main.await;
            *slot.borrow_mut() = Some(value);
        }));
        state.tasks.begin_steps();
        loop {
            if let Some(value) = result.borrow_mut().take() {
                return Ok(value);
            }
            match state.tasks.ready_count() {
                0 => {
                    let Some(at) = state.timers.next() else {
                        return Err(Deadlock { at: state.now.get() });
                    };
                    state.now.set(state.now.get().max(at));
                    if let Some(waker) = state.timers.pop_due(at) {
                        waker.wake();
                    }
                }
                count => state.tasks.poll_one((self.random() % count as u64) as usize),
            }
        }
    }

    /// Drops every task. Tasks usually hold their world, so without this a world with tasks that
    /// never end is never freed. Call it at the end of each of many runs.
    pub fn end(&self) {
        self.0.tasks.clear();
    }
}

impl World for VirtualWorld {
    fn now(&self) -> Instant {
        self.0.now.get()
    }
    fn wall_clock(&self) -> Timestamp {
        let now = self.now().0;
        Timestamp {
            seconds: EPOCH_SECONDS + (now / 1_000_000_000) as i64,
            nanoseconds: (now % 1_000_000_000) as u32,
        }
    }
    fn sleep_until(&self, at: Instant) -> LocalFuture<()> {
        Box::pin(VirtualSleep { state: self.0.clone(), at, ticket: None })
    }
    fn spawn(&self, task: LocalFuture<()>) {
        self.0.tasks.spawn(task);
    }
    fn random(&self) -> u64 {
        self.0.random.next()
    }
    fn name_task(&self, name: &'static str) {
        self.0.tasks.name_current(name);
    }
    fn long_steps(&self) -> Vec<LongSteps> {
        self.0.tasks.long_steps()
    }
}

struct VirtualSleep {
    state: Rc<State>,
    at: Instant,
    ticket: Option<Ticket>,
}
impl Future for VirtualSleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.state.now.get() >= this.at {
            return Poll::Ready(());
        }
        this.state.timers.register(this.at, &mut this.ticket, context.waker());
        Poll::Pending
    }
}
impl Drop for VirtualSleep {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.state.timers.cancel(ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Runs five tasks that sleep for random times; returns which woke when.
    fn trace(seed: u64) -> Vec<(u32, Instant)> {
        let world = VirtualWorld::new(seed);
        let trace = Rc::new(RefCell::new(Vec::new()));
        let (inner, log) = (world.clone(), trace.clone());
        world.run(async move {
            for task in 0..5 {
                let (world, log) = (inner.clone(), log.clone());
                inner.spawn(Box::pin(async move {
                    for _ in 0..4 {
                        world
                            .sleep_until(world.now().plus(Duration::from_nanos(world.random() % 3)))
                            .await;
                        log.borrow_mut().push((task, world.now()));
                    }
                }));
            }
            inner.sleep_until(Instant(1000)).await;
        });
        world.end();
        trace.take()
    }

    #[test]
    fn same_seed_gives_the_same_run() {
        assert_eq!(trace(7).len(), 20);
        assert_eq!(trace(7), trace(7));
    }
    #[test]
    fn different_seeds_give_different_runs() {
        assert!((0..10).any(|seed| trace(seed) != trace(seed + 1)));
    }
    #[test]
    fn a_dropped_sleep_does_not_move_the_clock() {
        let world = VirtualWorld::new(1);
        let inner = world.clone();
        world.run(async move {
            let mut long = inner.sleep_until(Instant(1_000_000));
            let short = inner.sleep_until(Instant(10));
            let mut polled = false;
            std::future::poll_fn(|context| {
                let _ = long.as_mut().poll(context);
                if std::mem::replace(&mut polled, true) {
                    Poll::Ready(())
                } else {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
            })
            .await;
            drop(long);
            short.await;
        });
        assert_eq!(world.now(), Instant(10));
        assert_eq!(world.try_run(std::future::pending::<()>()), Err(Deadlock { at: Instant(10) }));
        assert_eq!(world.now(), Instant(10));
    }
    #[test]
    fn a_long_step_is_counted_and_moves_no_clock() {
        let world = VirtualWorld::new(1);
        let inner = world.clone();
        world.run(async move {
            inner.name_task("spins");
            let mut steps = 0;
            while inner.long_steps().is_empty() {
                // A step long by the wall clock alone does not count: this may take any time.
                let until = std::time::Instant::now() + 2 * device::STEP_LONG;
                while std::time::Instant::now() < until {}
                crate::yield_now().await;
                steps += 1;
            }
            assert!(steps >= 1);
        });
        let long = world.long_steps();
        assert_eq!((long.len(), long[0].task, world.now()), (1, "spins", Instant(0)));
    }
    #[test]
    fn a_hang_is_reported_not_endured() {
        let world = VirtualWorld::new(1);
        assert_eq!(world.try_run(std::future::pending::<()>()), Err(Deadlock { at: Instant(0) }));
        assert_eq!(world.run(async { 5 }), 5);
    }
    #[test]
    fn ending_a_world_frees_its_tasks() {
        let world = VirtualWorld::new(1);
        let token = Rc::new(());
        let (inner, held) = (world.clone(), token.clone());
        world.run(async move {
            inner.spawn(Box::pin(async move {
                std::future::pending::<()>().await;
                drop(held);
            }));
        });
        assert_eq!(Rc::strong_count(&token), 2);
        world.end();
        assert_eq!(Rc::strong_count(&token), 1);
    }
}
