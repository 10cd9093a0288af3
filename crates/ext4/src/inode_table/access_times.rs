//! Access times that are not yet in the table: the inodes kept in memory only for them are bounded
//! in number and age.

use crate::Volume;
use runtime::race;
use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use units::{InodeNumber, Instant};

/// Longest time that an access time waits for another change to be stored with, as the kernel's
/// dirty inodes do.
const AGE_MAX: Duration = Duration::from_secs(30);
/// Number of waiting access times above which the oldest are stored at once.
const WAITING_MAX: usize = 4096;
/// Number of noted access times above which a read leaves the time as it is: readers may be faster
/// than the log.
const NOTED_MAX: usize = 2 * WAITING_MAX;

/// Inodes whose access time in memory is newer, the oldest first. Some may have been stored since.
#[derive(Default)]
pub(crate) struct AccessTimes {
    waiting: RefCell<VecDeque<(Instant, InodeNumber)>>,
    changed: Event,
    over: Cell<bool>,
}

impl AccessTimes {
    /// Whether the inode's time will be stored: it may be changed.
    pub fn note(&self, number: InodeNumber, now: Instant) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= NOTED_MAX {
            return false;
        }
        waiting.push_back((now, number));
        if waiting.len() == 1 || waiting.len() > WAITING_MAX {
            self.changed.notify();
        }
        true
    }

    /// Ends the storing of access times.
    pub fn end(&self) {
        self.over.set(true);
        self.changed.notify();
    }

    /// Returns the oldest access time if it has expired at `now`, otherwise when it will.
    fn next(&self, now: Instant) -> Next {
        let mut waiting = self.waiting.borrow_mut();
        let Some((since, number)) = waiting.front().copied() else { return Next::Nothing };
        let due = since.plus(AGE_MAX);
        if waiting.len() <= WAITING_MAX && now < due {
            return Next::At(due);
        }
        waiting.pop_front();
        Next::Due(number)
    }
}

enum Next {
    Nothing,
    At(Instant),
    Due(InodeNumber),
}

impl Volume {
    /// Stores access times that are old, or too many, until the volume is closed or its journal
    /// fails.
    pub(crate) async fn store_old_access_times(self: Rc<Self>) {
        let times = &self.access_times;
        loop {
            let world = self.engine.world();
            match times.next(world.now()) {
                _ if times.over.get() => return,
                Next::Nothing => {
                    let more =
                        || (times.over.get() || !times.waiting.borrow().is_empty()).then_some(());
                    times.changed.until(more).await;
                }
                Next::At(due) => {
                    let many = || {
                        (times.over.get() || times.waiting.borrow().len() > WAITING_MAX)
                            .then_some(())
                    };
                    race(times.changed.until(many), world.sleep_until(due)).await;
                }
                Next::Due(number) => {
                    let Some(inode) = self.inodes.borrow().get(number) else { continue };
                    if self.store_access_time(&inode).await.is_err() {
                        // Nothing can be stored any more: it must not stay in memory for that.
                        inode.access_is_newer.set(false);
                    }
                }
            }
        }
    }
}
