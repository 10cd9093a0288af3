//! Steps of tasks that took more than 2 ms of processor time ([`device::STEP_LONG`]), by the name
//! of the task, of all runs of this process. Virtual time charges nothing for the processor, so
//! nothing else shows that a step delays all others.

use device::{LongSteps, World};
use runtime::VirtualWorld;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Processor time of a step from which on it breaks a promise: no request makes progress in it. The
/// explorer's own work at a cut counts, some 20 ms.
const STEP_MAX: Duration = Duration::from_millis(500);

static SEEN: Mutex<BTreeMap<&'static str, LongSteps>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// The longest step of the runs of this thread since the last [`check`].
    static LONGEST: Cell<Option<LongSteps>> = const { Cell::new(None) };
}

/// Adds the long steps of a run that has ended.
pub(crate) fn note(world: &VirtualWorld) {
    let long = world.long_steps();
    if long.is_empty() {
        return;
    }
    let known = LONGEST.get().into_iter();
    LONGEST.set(known.chain(long.iter().copied()).max_by_key(|steps| steps.longest));
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    for steps in long {
        let known = seen.entry(steps.task).or_insert(LongSteps { count: 0, ..steps });
        known.count += steps.count;
        known.longest = known.longest.max(steps.longest);
    }
}

/// Returns an error if a step of this thread's runs since the last call took too long.
pub(crate) fn check() -> Result<(), String> {
    match LONGEST.take() {
        Some(LongSteps { task, longest, .. }) if longest > STEP_MAX => Err(format!(
            "a step of the task \"{task}\" took {} ms of processor time, more than {} ms",
            longest.as_millis(),
            STEP_MAX.as_millis()
        )),
        _ => Ok(()),
    }
}

/// Returns the steps since the last call, the longest first.
pub fn take() -> Vec<LongSteps> {
    let seen = std::mem::take(&mut *SEEN.lock().unwrap_or_else(PoisonError::into_inner));
    let mut all: Vec<_> = seen.into_values().collect();
    all.sort_by_key(|steps| std::cmp::Reverse(steps.longest));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Runs a world whose only task computes in one step until `has_ended`.
    fn compute(has_ended: impl Fn(Duration) -> bool + 'static) {
        let world = VirtualWorld::new(1);
        world.run({
            let world = world.clone();
            async move {
                world.name_task("computes");
                let began = Instant::now();
                while !has_ended(began.elapsed()) {
                    std::hint::spin_loop();
                }
            }
        });
        note(&world);
        world.end();
    }

    /// Waiting for a processor is no step: the loops end by the wall clock, until one had it.
    #[test]
    fn a_step_without_end_breaks_a_promise() {
        let mut most = STEP_MAX + STEP_MAX / 4;
        let broken = loop {
            compute(move |took| took >= most);
            match check() {
                Err(why) => break why,
                Ok(()) => most *= 2,
            }
        };
        assert!(broken.contains("computes"), "{broken}");
        compute(|took| took >= STEP_MAX / 10);
        assert_eq!(check(), Ok(()));
    }
}
