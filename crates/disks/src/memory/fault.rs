use super::Logged;
use device::Operation;
use std::ops::Range;

/// A fault to come: the operations it concerns, how often, and what happens to them.
#[derive(Clone, Debug)]
pub struct Fault {
    pub operation: Operation,
    /// Bytes; operations that touch the range are concerned. A flush touches all.
    pub range: Range<u64>,
    /// So many of them are passed over first.
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
    /// Fails with this errno after the usual time. Of a write each sector has reached the cache or
    /// not; of what a flush covers each sector is lost or still volatile.
    Fail(i32),
    /// Never completes.
    Hang,
}

impl Fault {
    /// Every operation of this kind fails with EIO from now on.
    pub fn forever(operation: Operation) -> Fault {
        Fault {
            operation,
            range: 0..u64::MAX,
            after: 0,
            times: FaultTimes::Forever,
            effect: Effect::Fail(libc::EIO),
        }
    }
    /// The next operation of this kind fails with EIO.
    pub fn once(operation: Operation) -> Fault {
        Fault { times: FaultTimes::Once, ..Fault::forever(operation) }
    }
    fn concerns(&self, logged: &Logged) -> bool {
        let touches = logged.at < self.range.end && self.range.start < logged.at + logged.length;
        self.operation == logged.operation && (touches || logged.operation == Operation::Flush)
    }
}

/// What happens to an operation: the first fault that concerns it, used up if it was for once.
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
