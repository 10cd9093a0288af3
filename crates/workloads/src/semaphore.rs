//! A semaphore for actors, whether they are threads or tasks.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

/// A counting semaphore, served in the order of arrival, also if a later caller needs less. A
/// future of [`Semaphore::take`] must be awaited to its end: one that is dropped keeps its place
/// for ever.
pub(crate) struct Semaphore(Mutex<State>);

struct State {
    available: u64,
    tickets: u64,
    waiting: VecDeque<(u64, Waker)>,
}

impl Semaphore {
    pub fn new(available: u64) -> Semaphore {
        Semaphore(Mutex::new(State { available, tickets: 0, waiting: VecDeque::new() }))
    }

    /// Waits until `count` are available and takes them.
    pub async fn take(&self, count: u64) {
        let mut mine = None;
        poll_fn(|context| {
            let mut state = self.0.lock().expect("nobody panics while holding it");
            let ticket = *mine.get_or_insert_with(|| {
                state.tickets += 1;
                let ticket = state.tickets;
                state.waiting.push_back((ticket, context.waker().clone()));
                ticket
            });
            if state.waiting[0].0 == ticket && state.available >= count {
                state.available -= count;
                state.waiting.pop_front();
                state.wake_first();
                return Poll::Ready(());
            }
            let place = state.waiting.iter_mut().find(|(waiting, _)| *waiting == ticket);
            place.expect("it waits until it is served").1 = context.waker().clone();
            Poll::Pending
        })
        .await
    }

    pub fn give(&self, count: u64) {
        let mut state = self.0.lock().expect("nobody panics while holding it");
        state.available += count;
        state.wake_first();
    }
}

impl State {
    fn wake_first(&self) {
        if let Some((_, waker)) = self.waiting.front() {
            waker.wake_by_ref();
        }
    }
}

/// The result of a future; the thread sleeps while it waits for another actor.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::World;
    use runtime::VirtualWorld;
    use std::rc::Rc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn threads_wait_for_one_another() {
        let (work, done) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let sum = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (1..=8u64)
            .map(|number| {
                let (work, done, sum) = (work.clone(), done.clone(), sum.clone());
                std::thread::spawn(move || {
                    block_on(work.take(number));
                    sum.fetch_add(number, Ordering::Relaxed);
                    done.give(1);
                })
            })
            .collect();
        for _ in 0..36 {
            work.give(1);
        }
        block_on(done.take(8));
        assert_eq!(sum.load(Ordering::Relaxed), 36);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn tasks_are_served_in_the_order_they_came() {
        let world = VirtualWorld::new(3);
        let semaphore = Rc::new(Semaphore::new(0));
        let order = Rc::new(Mutex::new(Vec::new()));
        for (at, count) in [(1, 5), (2, 1), (3, 2)] {
            let (world, semaphore, order) = (world.clone(), semaphore.clone(), order.clone());
            world.clone().spawn(Box::pin(async move {
                world.sleep_until(units::Instant(at)).await;
                semaphore.take(count).await;
                order.lock().unwrap().push(count);
            }));
        }
        let inner = world.clone();
        world.run(async move {
            for at in 10..18 {
                inner.sleep_until(units::Instant(at)).await;
                semaphore.give(1);
            }
            inner.sleep_until(units::Instant(100)).await;
        });
        assert_eq!(*order.lock().unwrap(), [5, 1, 2]);
    }
}
