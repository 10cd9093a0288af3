//! Long steps: tasks that occupied the processor.
//!
//! All tasks share one thread, and a task runs until it waits: a step. During a step no other
//! request makes progress. So a step over many blocks yields ([`STEP_LONG`] is the bound), and
//! those that did not are counted by the name of their task.

use std::time::Duration;

/// Processor time from which on a step counts as long.
pub const STEP_LONG: Duration = Duration::from_millis(2);

/// Long steps of the tasks of one name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LongSteps {
    /// The name that the task gave itself ([`crate::World::name_task`]).
    pub task: &'static str,
    /// Steps that took [`STEP_LONG`] of processor time or more.
    pub count: u64,
    /// Processor time of the longest one. The true time may be 0.25 ms more.
    pub longest: Duration,
}
