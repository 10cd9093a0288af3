use super::Logged;
use device::Operation;
use std::ops::Range;

/// An injected fault: the operations it affects, their number, and the effect.
#[derive(Clone, Debug)]
pub struct Fault {
    pub operation: Operation,
    /// Range in bytes; operations that touch it are affected. A flush touches all.
    pub range: Range<u64>,
    /// Number of matching operations that are spared first.
    pub after: u64,
    pub times: FaultTimes,
    pub effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTimes {
    Once,
    Forever,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Fails with this errno after the usual time. Each sector of a write has reached the cache or
    /// not; each sector that a flush covers is lost or still volatile.
    Fail(i32),
    /// The operation never completes.
    Hang,
}

impl Fault {
    /// Makes every operation of this kind fail with EIO from now on.
    pub fn forever(operation: Operation) -> Fault {
        Fault {
            operation,
            range: 0..u64::MAX,
            after: 0,
            times: FaultTimes::Forever,
            effect: Effect::Fail(libc::EIO),
        }
    }
    /// Makes the next operation of this kind fail with EIO.
    pub fn once(operation: Operation) -> Fault {
        Fault { times: FaultTimes::Once, ..Fault::forever(operation) }
    }
    fn concerns(&self, logged: &Logged) -> bool {
        let touches = logged.at < self.range.end && self.range.start < logged.at + logged.length;
        self.operation == logged.operation && (touches || logged.operation == Operation::Flush)
    }
}

/// Returns the effect on an operation: that of the first matching fault, which is used up if it was
/// for once.
pub(super) fn take(faults: &mut Vec<Fault>, logged: &Logged) -> Option<Effect> {
    let index = faults.iter_mut().position(|fault| {
        let comes = fault.concerns(logged) && fault.after == 0;
        fault.after -= u64::from(fault.concerns(logged) && !comes);
        comes
    })?;
    Some(match faults[index].times {
        FaultTimes::Once => faults.remove(index).effect,
        FaultTimes::Forever => faults[index].effect,
    })
}
