//! Steps of tasks that took more than 2 ms of processor time ([`device::STEP_LONG`]), by the name
//! of the task, of all runs of this process. Virtual time charges nothing for the processor, so
//! nothing else shows that a step delays all others.

use device::{LongSteps, World};
use runtime::VirtualWorld;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

static SEEN: Mutex<BTreeMap<&'static str, LongSteps>> = Mutex::new(BTreeMap::new());

/// Adds the long steps of a run that has ended.
pub(crate) fn note(world: &VirtualWorld) {
    let long = world.long_steps();
    if long.is_empty() {
        return;
    }
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    for steps in long {
        let known = seen.entry(steps.task).or_insert(LongSteps { count: 0, ..steps });
        known.count += steps.count;
        known.longest = known.longest.max(steps.longest);
    }
}

/// Returns the steps since the last call, the longest first.
pub fn take() -> Vec<LongSteps> {
    let seen = std::mem::take(&mut *SEEN.lock().unwrap_or_else(PoisonError::into_inner));
    let mut all: Vec<_> = seen.into_values().collect();
    all.sort_by_key(|steps| std::cmp::Reverse(steps.longest));
    all
}
