//! One value from one task to another, and waiting for several futures at once.

use device::World;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

struct Channel<T> {
    value: Option<T>,
    waker: Option<Waker>,
    closed: bool,
}

/// Sends the value. If it is dropped unused, the receiver learns that none will come.
pub struct Sender<T>(Rc<RefCell<Channel<T>>>);

/// A future of the value: `None` when the sender is gone without one.
pub struct Receiver<T>(Rc<RefCell<Channel<T>>>);

/// A channel for one value.
pub fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    let channel = Rc::new(RefCell::new(Channel { value: None, waker: None, closed: false }));
    (Sender(channel.clone()), Receiver(channel))
}

impl<T> Sender<T> {
    /// Sends `value`. If nobody listens any more it is dropped with the channel.
    pub fn send(self, value: T) {
        self.0.borrow_mut().value = Some(value);
    }
    /// Whether the receiver is gone.
    pub fn is_abandoned(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }
}
impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut channel = self.0.borrow_mut();
        channel.closed = true;
        if let Some(waker) = channel.waker.take() {
            waker.wake();
        }
    }
}
impl<T> Future for Receiver<T> {
    type Output = Option<T>;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut channel = self.0.borrow_mut();
        match channel.value.take() {
            Some(value) => Poll::Ready(Some(value)),
            None if channel.closed => Poll::Ready(None),
            None => {
                channel.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Runs `task` concurrently with all others; the receiver gets its result, and may be dropped
/// without stopping the task.
pub fn spawn_with_result<T: 'static>(
    world: &dyn World,
    task: impl Future<Output = T> + 'static,
) -> Receiver<T> {
    let (sender, receiver) = oneshot();
    world.spawn(Box::pin(async move { sender.send(task.await) }));
    receiver
}

/// Takes the first step of `work` on the calling task, and the rest as a task of its own. So work
/// that has begun completes even if nobody waits for it any more.
pub async fn spawn_after_first_step<T: 'static>(
    world: &dyn World,
    work: impl Future<Output = T> + 'static,
) -> T {
    let mut work = Box::pin(work);
    if let Poll::Ready(result) = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
        return result;
    }
    match spawn_with_result(world, work).await {
        Some(result) => result,
        // The world has ended.
        None => std::future::pending().await,
    }
}

/// Runs all `futures` at once on the calling task and returns their results in the order given.
/// Each wake-up polls all that are not done: meant for up to some hundred futures.
pub async fn join_all<'a, T>(futures: Vec<Pin<Box<dyn Future<Output = T> + 'a>>>) -> Vec<T> {
    let mut running: Vec<Option<_>> = futures.into_iter().map(Some).collect();
    let mut results: Vec<Option<T>> = running.iter().map(|_| None).collect();
    let mut left = running.len();
    poll_fn(|context| {
        for (slot, result) in running.iter_mut().zip(&mut results) {
            let Some(future) = slot else { continue };
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                *result = Some(value);
                *slot = None;
                left -= 1;
            }
        }
        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().map(|result| result.expect("all futures are done")).collect()
}

/// Runs work that can fail: in order, at most `limit` at once. After an error none begins any more,
/// and those that run are waited for. Returns values in the order in which they were ready.
pub async fn join_window<'a, T, E>(
    futures: impl IntoIterator<Item = Pin<Box<dyn Future<Output = Result<T, E>> + 'a>>>,
    limit: usize,
) -> Result<Vec<T>, E> {
    let mut waiting = futures.into_iter();
    let (mut running, mut values, mut failure) = (Vec::new(), Vec::new(), None);
    poll_fn(|context| {
        loop {
            let room = if failure.is_none() { limit.saturating_sub(running.len()) } else { 0 };
            running.extend(waiting.by_ref().take(room));
            let before = running.len();
            running.retain_mut(|future| match future.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(Ok(value)) => {
                    values.push(value);
                    false
                }
                Poll::Ready(Err(error)) => {
                    failure.get_or_insert(error);
                    false
                }
            });
            match running.len() {
                0 if failure.is_some() || before == 0 => return Poll::Ready(()),
                after if after == before => return Poll::Pending,
                _ => {}
            }
        }
    })
    .await;
    failure.map_or(Ok(values), Err)
}

/// The first of two futures to complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    Left(A),
    Right(B),
}

/// Waits for the first of two futures and drops the other; if both are ready the left one wins.
pub async fn race<A, B>(
    left: impl Future<Output = A>,
    right: impl Future<Output = B>,
) -> Either<A, B> {
    let (mut left, mut right) = (std::pin::pin!(left), std::pin::pin!(right));
    poll_fn(|context| {
        if let Poll::Ready(value) = left.as_mut().poll(context) {
            return Poll::Ready(Either::Left(value));
        }
        right.as_mut().poll(context).map(Either::Right)
    })
    .await
}

/// Yields to every other task that is ready.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// The pace of a long walk that nothing else lets other tasks into.
pub struct WalkPace {
    most: usize,
    done: usize,
}

impl WalkPace {
    /// Creates a pace with at most `most` items between two yields, and what one call adds.
    pub fn new(most: usize) -> WalkPace {
        WalkPace { most, done: 0 }
    }
    /// Counts `items` that were visited, and yields when there were enough.
    pub async fn visited(&mut self, items: usize) {
        self.done += items;
        if self.done >= self.most {
            self.done = 0;
            yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VirtualWorld;
    use device::LocalFuture;
    use units::Instant;

    #[test]
    fn a_spawned_task_gives_its_result() {
        let world = VirtualWorld::new(1);
        let inner = world.clone();
        let value = world.run(async move {
            let sleep = inner.sleep_until(Instant(5));
            spawn_with_result(&inner, async move {
                sleep.await;
                42
            })
            .await
        });
        assert_eq!(value, Some(42));
    }
    #[test]
    fn a_lost_sender_ends_the_wait() {
        let world = VirtualWorld::new(1);
        let (sender, receiver) = oneshot::<u32>();
        world.spawn(Box::pin(async move { drop(sender) }));
        assert_eq!(world.run(receiver), None);
        let (sender, receiver) = oneshot::<u32>();
        assert!(!sender.is_abandoned());
        drop(receiver);
        assert!(sender.is_abandoned());
        sender.send(1);
    }
    #[test]
    fn joined_futures_run_at_once_and_keep_their_order() {
        let world = VirtualWorld::new(1);
        let inner = world.clone();
        let results = world.run(async move {
            let futures = [30, 10, 20].map(|at| -> LocalFuture<u64> {
                let sleep = inner.sleep_until(Instant(at));
                Box::pin(async move {
                    sleep.await;
                    at
                })
            });
            join_all(futures.into()).await
        });
        assert_eq!(results, [30, 10, 20]);
        assert_eq!(world.now(), Instant(30));
        assert_eq!(world.run(join_all::<()>(Vec::new())), []);
    }
    /// Runs a window of tasks that each take `times[n]` and end with an error at 0.
    fn window(times: &[u64]) -> (VirtualWorld, Result<Vec<u64>, usize>) {
        let world = VirtualWorld::new(1);
        let sleep = |world: VirtualWorld,
                     number: usize,
                     time: u64|
         -> LocalFuture<Result<u64, usize>> {
            Box::pin(async move {
                world.sleep_until(world.now().plus(std::time::Duration::from_nanos(time))).await;
                if time == 0 { Err(number) } else { Ok(time) }
            })
        };
        let futures: Vec<_> =
            times.iter().enumerate().map(|(at, time)| sleep(world.clone(), at, *time)).collect();
        let result = world.run(join_window(futures, 2));
        (world, result)
    }
    #[test]
    fn a_window_moves_on_when_one_ends_and_an_error_closes_it() {
        let (world, result) = window(&[100, 30, 30, 30]);
        assert_eq!((world.now(), result), (Instant(100), Ok(vec![30, 30, 30, 100])));
        let (world, result) = window(&[100, 0, 500, 0]);
        assert_eq!((world.now(), result), (Instant(100), Err(1)));
        assert_eq!(window(&[]).1, Ok(vec![]));
    }
    #[test]
    fn a_race_ends_with_the_first() {
        let world = VirtualWorld::new(1);
        let (long, short) = (world.sleep_until(Instant(1000)), world.sleep_until(Instant(7)));
        assert_eq!(world.run(race(long, short)), Either::Right(()));
        assert_eq!(world.now(), Instant(7));
    }
    #[test]
    fn yielding_lets_the_others_go_first() {
        let world = VirtualWorld::new(1);
        let inner = world.clone();
        world.run(async move {
            let mut other = spawn_with_result(&inner, async {});
            for _ in 0..100 {
                if race(&mut other, yield_now()).await == Either::Left(Some(())) {
                    return;
                }
            }
            panic!("the other task never ran");
        });
    }
}
