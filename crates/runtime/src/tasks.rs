//! The task table: futures, their wakers, and the queues of those that can go on.

use device::LocalFuture;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// How soon a task has its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weight {
    /// It takes microseconds, and many may wait for it.
    Light,
    /// It takes long each time, as copying a mebibyte does: one goes before each look at what has completed.
    Heavy,
}

#[derive(Default)]
struct Queues {
    light: VecDeque<usize>,
    heavy: VecDeque<usize>,
}
type Ready = Arc<Mutex<Queues>>;

/// `Waker` must be `Send`, hence the (never contended) lock; everything else stays on one thread.
struct TaskWaker {
    slot: usize,
    /// Whether the slot is in the queue already: many wake-ups before the next poll count as one.
    queued: AtomicBool,
    heavy: AtomicBool,
    ready: Ready,
}
impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            let mut ready = self.ready.lock().unwrap();
            let queue = if self.heavy.load(Ordering::Relaxed) { &mut ready.heavy } else { &mut ready.light };
            queue.push_back(self.slot);
        }
    }
}

struct TaskSlot {
    /// `None` while the task is being polled, and when the slot is free.
    future: Option<LocalFuture<()>>,
    wake: Arc<TaskWaker>,
    waker: Waker,
}

#[derive(Default)]
pub struct Tasks {
    ready: Ready,
    slots: RefCell<Vec<TaskSlot>>,
    free: RefCell<Vec<usize>>,
}

impl Tasks {
    pub fn spawn(&self, future: LocalFuture<()>, weight: Weight) {
        let mut slots = self.slots.borrow_mut();
        let slot = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let slot = slots.len();
            let queued = AtomicBool::new(false);
            let wake =
                Arc::new(TaskWaker { slot, queued, heavy: AtomicBool::default(), ready: self.ready.clone() });
            slots.push(TaskSlot { future: None, waker: Waker::from(wake.clone()), wake });
            slot
        });
        slots[slot].future = Some(future);
        slots[slot].wake.heavy.store(weight == Weight::Heavy, Ordering::Relaxed);
        slots[slot].wake.wake_by_ref();
    }

    pub fn ready_count(&self, weight: Weight) -> usize {
        let ready = self.ready.lock().unwrap();
        match weight {
            Weight::Light => ready.light.len(),
            Weight::Heavy => ready.heavy.len(),
        }
    }

    /// Polls the ready task of this weight at place `pick` of its queue. A wake-up of a task that has ended since, or of its
    /// slot's next tenant, is harmless: a future may be polled at any time.
    pub fn poll_one(&self, weight: Weight, pick: usize) {
        let taken = {
            let mut ready = self.ready.lock().unwrap();
            match weight {
                Weight::Light => ready.light.remove(pick),
                Weight::Heavy => ready.heavy.remove(pick),
            }
        };
        let Some(slot) = taken else { return };
        let (future, waker) = {
            let entry = &mut self.slots.borrow_mut()[slot];
            // Before the poll: a wake-up that arrives during it must queue the task again.
            entry.wake.queued.store(false, Ordering::Release);
            (entry.future.take(), entry.waker.clone())
        };
        let Some(mut future) = future else { return };
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(()) => self.free.borrow_mut().push(slot),
            Poll::Pending => self.slots.borrow_mut()[slot].future = Some(future),
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
