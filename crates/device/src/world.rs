use std::{future::Future, pin::Pin};
use units::{Instant, Timestamp};

pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Time, chance and tasks: everything outside the program that is not a disk. Real or virtual; the
/// floors above cannot tell which. Below the doors nothing else may ask for the time or for
/// randomness.
pub trait World {
    fn now(&self) -> Instant;
    fn wall_clock(&self) -> Timestamp;
    fn sleep_until(&self, at: Instant) -> LocalFuture<()>;
    /// Runs `task` beside all others on the one thread until it ends by itself.
    fn spawn(&self, task: LocalFuture<()>);
    fn random(&self) -> u64;
    /// A hint that an answer is due within microseconds, so that waiting awake beats sleeping: a
    /// flag, the last call holds. Virtual worlds ignore it.
    fn expect_soon(&self, _soon: bool) {}
}
