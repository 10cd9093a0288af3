//! Virtual time: the clock stands still while any task can go on and then leaps to the next timer. The seed
//! decides which ready task goes first and every random number, so the same seed gives the same run.

use crate::tasks::Tasks;
use device::{LocalFuture, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Poll, Waker};
use units::{Instant, Timestamp};

/// 2020-01-01, so that virtual files have plausible dates.
const EPOCH_SECONDS: i64 = 1_577_836_800;

struct State {
    tasks: Tasks,
    now: Cell<Instant>,
    random: Cell<u64>,
    timers: RefCell<BTreeMap<(Instant, u64), Waker>>,
    timer_count: Cell<u64>,
}

#[derive(Clone)]
pub struct VirtualWorld(Rc<State>);

impl VirtualWorld {
    pub fn new(seed: u64) -> VirtualWorld {
        VirtualWorld(Rc::new(State {
            tasks: Tasks::default(),
            now: Cell::default(),
            random: Cell::new(seed),
            timers: RefCell::default(),
            timer_count: Cell::new(0),
        }))
    }

    /// Runs `main` and all tasks it spawns until `main` ends. Panics when every task waits for another.
    pub fn run<T: 'static>(&self, main: impl Future<Output = T> + 'static) -> T {
        let result = Rc::new(RefCell::new(None));
        let slot = result.clone();
        self.0.tasks.spawn(Box::pin(async move {
            let value = main.await;
            *slot.borrow_mut() = Some(value);
        }));
        loop {
            if let Some(value) = result.borrow_mut().take() {
                return value;
            }
            match self.0.tasks.ready_count() {
                0 => {
                    let Some(((at, _), waker)) = self.0.timers.borrow_mut().pop_first() else {
                        panic!("deadlock at {:?}: every task waits for another", self.0.now.get());
                    };
                    self.0.now.set(self.0.now.get().max(at));
                    waker.wake();
                }
                count => self.0.tasks.poll_one(self.random() as usize % count),
            }
        }
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
        let state = self.0.clone();
        Box::pin(poll_fn(move |context| {
            if state.now.get() >= at {
                return Poll::Ready(());
            }
            let ticket = state.timer_count.get();
            state.timer_count.set(ticket + 1);
            state.timers.borrow_mut().insert((at, ticket), context.waker().clone());
            Poll::Pending
        }))
    }
    fn spawn(&self, task: LocalFuture<()>) {
        self.0.tasks.spawn(task);
    }
    fn random(&self) -> u64 {
        // SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
        let state = self.0.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.random.set(state);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
