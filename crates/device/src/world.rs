use crate::steps::LongSteps;
use std::{future::Future, pin::Pin};
use units::{Instant, Timestamp};

pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Time, random numbers and tasks: everything outside the program that is not a disk. The layers
/// above cannot distinguish a real world from a virtual one. Below the front ends nothing else may
/// read the time or a source of randomness.
pub trait World {
    fn now(&self) -> Instant;
    fn wall_clock(&self) -> Timestamp;
    fn sleep_until(&self, at: Instant) -> LocalFuture<()>;
    /// Runs `task` beside all others on the one thread until it ends.
    fn spawn(&self, task: LocalFuture<()>);
    fn random(&self) -> u64;
    /// Sets whether a completion is expected within microseconds, so that polling beats sleeping.
    /// Virtual worlds ignore it.
    fn expect_soon(&self, _soon: bool) {}
    /// Names the calling task for [`World::long_steps`], until it ends or is renamed.
    fn name_task(&self, _name: &'static str) {}
    /// Steps that took at least [`crate::STEP_LONG`] of real processor time, also in virtual time,
    /// by task, the longest first.
    fn long_steps(&self) -> Vec<LongSteps> {
        Vec::new()
    }
}
