//! The task table: futures, their wakers, and the queue of those that can go on.

use crate::step_clock::StepClock;
use device::{LocalFuture, LongSteps};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

type Queue = Arc<Mutex<VecDeque<usize>>>;

/// Waker of a task. `Waker` must be `Send`, hence the (never contended) lock; everything else stays
/// on one thread.
struct TaskWaker {
    slot: usize,
    /// Whether the slot is in the queue already: many wake-ups before the next poll count as one.
    queued: AtomicBool,
    ready: Queue,
}
impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.ready.lock().unwrap().push_back(self.slot);
        }
    }
}

struct TaskSlot {
    /// Future of the task; `None` while it is being polled, and when the slot is free.
    future: Option<LocalFuture<()>>,
    wake: Arc<TaskWaker>,
    /// Waker of the task; `None` while it is being polled.
    waker: Option<Waker>,
    name: &'static str,
}

/// The name of tasks that gave themselves none.
const UNNAMED: &str = "unnamed";

#[derive(Default)]
pub struct Tasks {
    ready: Queue,
    slots: RefCell<Vec<TaskSlot>>,
    free: RefCell<Vec<usize>>,
    /// The slot of the task that is being polled.
    current: Cell<Option<usize>>,
    clock: StepClock,
}

impl Tasks {
    pub fn spawn(&self, future: LocalFuture<()>) {
        let mut slots = self.slots.borrow_mut();
        let slot = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let slot = slots.len();
            let queued = AtomicBool::new(false);
            let wake = Arc::new(TaskWaker { slot, queued, ready: self.ready.clone() });
            let waker = Some(Waker::from(wake.clone()));
            slots.push(TaskSlot { future: None, wake, waker, name: UNNAMED });
            slot
        });
        slots[slot].future = Some(future);
        slots[slot].name = UNNAMED;
        slots[slot].wake.wake_by_ref();
    }

    /// Names the task that is being polled.
    pub fn name_current(&self, name: &'static str) {
        if let Some(slot) = self.current.get() {
            self.slots.borrow_mut()[slot].name = name;
        }
    }

    /// Begins steps: the thread has done something else than polling, or has slept.
    pub fn begin_steps(&self) {
        self.clock.begin();
    }
    /// Returns the time from [`Tasks::begin_steps`] to the end of the last step.
    pub fn steps_took(&self) -> Duration {
        self.clock.steps_took()
    }
    /// Returns the steps that kept the processor for long, the longest first.
    pub fn long_steps(&self) -> Vec<LongSteps> {
        self.clock.long_steps()
    }

    pub fn ready_count(&self) -> usize {
        self.ready.lock().unwrap().len()
    }

    /// Polls the ready task at index `pick` of the queue. A wake-up of a task that has ended since,
    /// or of the next task in its slot, is harmless: a future may be polled at any time.
    pub fn poll_one(&self, pick: usize) {
        let picked = self.ready.lock().unwrap().remove(pick);
        if let Some(slot) = picked {
            self.poll_slot(slot);
        }
    }

    /// Polls the task that has been ready for the longest time; false if there is none.
    pub fn poll_first(&self) -> bool {
        let first = self.ready.lock().unwrap().pop_front();
        first.map(|slot| self.poll_slot(slot)).is_some()
    }

    fn poll_slot(&self, slot: usize) {
        let (mut future, waker) = {
            let entry = &mut self.slots.borrow_mut()[slot];
            // Before the poll: a wake-up that arrives during it must queue the task again.
            entry.wake.queued.store(false, Ordering::Release);
            let Some(future) = entry.future.take() else { return };
            (future, entry.waker.take().expect("no task polls itself"))
        };
        self.current.set(Some(slot));
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        // Before the slot is borrowed: values that the task held may spawn others when dropped.
        let goes_on = polled.is_pending().then_some(future);
        self.current.set(None);
        let entry = &mut self.slots.borrow_mut()[slot];
        self.clock.step_ended(entry.name);
        entry.waker = Some(waker);
        match goes_on {
            Some(future) => entry.future = Some(future),
            None => self.free.borrow_mut().push(slot),
        }
    }

    /// Drops every task, and those that their ends spawn.
    pub fn clear(&self) {
        loop {
            let next = self.slots.borrow_mut().iter_mut().find_map(|slot| {
                let future = slot.future.take();
                future.map(|future| (slot.wake.slot, future))
            });
            let Some((slot, future)) = next else { return };
            self.free.borrow_mut().push(slot);
            drop(future);
        }
    }
}
