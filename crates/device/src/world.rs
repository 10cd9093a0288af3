use crate::steps::LongSteps;
use std::{future::Future, pin::Pin};
use units::{Instant, Timestamp};

pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Time, chance and tasks: everything outside the program that is not a disk. Real or virtual; the
/// layers above cannot distinguish them. Below the front ends nothing else may ask for the time or
/// for randomness.
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
    /// Names the task that calls, for [`World::long_steps`]: until it ends, or names itself anew.
    fn name_task(&self, _name: &'static str) {}
    /// Steps that took at least [`crate::STEP_LONG`] of real processor time, also in virtual time,
    /// by task: the longest first.
    fn long_steps(&self) -> Vec<LongSteps> {
        Vec::new()
    }
}
