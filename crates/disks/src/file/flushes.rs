//! Flushes of a disk, and what they report.
//!
//! A flush that fails reports a loss, and the loss is reported once:
//! - Of a file the kernel reports it to the first fsync(2) of an open file. A loop device has one
//!   open file for all its users.
//! - A drive may drop what it could not write, and flushes again without an error.
//!
//! Flushes overlap, and the completion that has the report may be seen after that of a flush that
//! found nothing any more. So
//! 1. a flush is answered when all that had begun before it ended have ended, too;
//! 2. behind the first failure each one fails.
//!
//! Partitions of a disk share both, within this process. Files of one file system, and devices of
//! device mapper or md over one drive, share neither. Another process may still get the report.

use super::claims;
use device::DeviceError;
use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};

#[derive(Default)]
pub(super) struct Flushes {
    /// First flush or durable write that failed.
    failure: RefCell<Option<DeviceError>>,
    /// Flushes in flight, by the order in which they began.
    in_flight: RefCell<BTreeSet<u64>>,
    /// The number of the next one.
    next: Cell<u64>,
    /// Set when one of `in_flight` has ended.
    ended: Event,
}

thread_local! {
    /// Flushes of the devices that are open, by the number of the whole disk.
    static OF_DISKS: RefCell<Vec<(u64, Weak<Flushes>)>> = const { RefCell::new(Vec::new()) };
}

impl Flushes {
    /// Returns the flushes of the block device `number`: those of its disk.
    pub fn of_device(number: u64) -> Rc<Flushes> {
        Flushes::of_disk(claims::whole_disk(number))
    }

    fn of_disk(disk: u64) -> Rc<Flushes> {
        OF_DISKS.with_borrow_mut(|disks| {
            disks.retain(|(_, flushes)| flushes.strong_count() > 0);
            let known = disks.iter().find(|(number, _)| *number == disk);
            if let Some(flushes) = known.and_then(|(_, flushes)| flushes.upgrade()) {
                return flushes;
            }
            let flushes = Rc::new(Flushes::default());
            disks.push((disk, Rc::downgrade(&flushes)));
            flushes
        })
    }

    /// Carries out a flush, or a write that ends with one.
    ///
    /// # Errors
    /// The first failure of all.
    pub async fn carry_out(
        &self,
        request: impl Future<Output = Result<(), DeviceError>>,
    ) -> Result<(), DeviceError> {
        let number = self.next.replace(self.next.get() + 1);
        self.in_flight.borrow_mut().insert(number);
        let in_flight = InFlight { flushes: self, number };
        self.note(request.await);
        drop(in_flight);
        let end = self.next.get();
        let others = || self.in_flight.borrow().first().is_some_and(|&begun| begun < end);
        if !units::fault!("file-error-of-another") {
            self.ended.until(|| (!others()).then_some(())).await;
        }
        self.check()
    }

    /// Returns the result of a durable write that flushes nothing, or the first failure of all.
    pub fn after_write(&self, result: Result<(), DeviceError>) -> Result<(), DeviceError> {
        self.note(result);
        self.check()
    }

    fn note(&self, result: Result<(), DeviceError>) {
        if let Err(error) = result {
            self.failure.borrow_mut().get_or_insert(error);
        }
    }

    fn check(&self) -> Result<(), DeviceError> {
        match &*self.failure.borrow() {
            Some(error) if !units::fault!("disk-flushes-after-failure") => Err(error.clone()),
            _ => Ok(()),
        }
    }
}

struct InFlight<'a> {
    flushes: &'a Flushes,
    number: u64,
}
impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.flushes.in_flight.borrow_mut().remove(&self.number);
        self.flushes.ended.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::Operation;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    fn lost() -> Result<(), DeviceError> {
        let (disk, operation) = ("disk".into(), Operation::Flush);
        Err(DeviceError::Failed { disk, operation, at: 0, length: 0, code: libc::EIO })
    }

    /// A loss is reported to one request alone, and its completion may be seen last.
    #[test]
    fn a_flush_that_finds_no_error_waits_for_one_that_has_found_it() {
        let (flushes, may_end, end) = (Flushes::default(), Cell::new(false), Event::default());
        let mut context = Context::from_waker(Waker::noop());
        let mut poll = |flush: Pin<&mut dyn Future<Output = _>>| flush.poll(&mut context);
        let mut first =
            pin!(flushes.carry_out(async { end.until(|| may_end.get().then(lost)).await }));
        assert!(poll(first.as_mut()).is_pending());
        let mut second = pin!(flushes.carry_out(async { Ok(()) }));
        assert!(poll(second.as_mut()).is_pending(), "answered before the other one");
        may_end.set(true);
        end.notify();
        assert!(matches!(poll(first), Poll::Ready(Err(_))));
        assert!(matches!(poll(second), Poll::Ready(Err(_))));
    }

    #[test]
    fn partitions_of_a_disk_share_its_flushes() {
        let first = Flushes::of_disk(7);
        assert!(Rc::ptr_eq(&first, &Flushes::of_disk(7)));
        assert!(!Rc::ptr_eq(&first, &Flushes::of_disk(8)));
        first.after_write(lost()).unwrap_err();
        Flushes::of_disk(7).after_write(Ok(())).unwrap_err();
        // An error goes with the last that has the disk open.
        drop(first);
        Flushes::of_disk(7).after_write(Ok(())).unwrap();
    }
}
