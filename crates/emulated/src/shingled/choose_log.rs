//! Choice of the log for a write: made when the medium serves it, since the drive knows then where
//! arm and platter are.
//!
//! Invariant: sectors reserved to writes are free in the logs, so that each finds space when it is
//! served.

use super::layout::ShingledLayout;
use super::{Inner, LogChoice, Part, ShingledLogs, Shingles};
use crate::drive::{Head, Places};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// A write with space reserved in the logs, and no address yet.
pub(super) struct Reservation {
    pub layout: Rc<ShingledLayout>,
    pub shingles: Shingles,
    pub inner: Rc<RefCell<Inner>>,
    /// Sectors of the logical disk.
    pub sectors: Range<u64>,
    pub order: u64,
    /// The part that it took, once it has been served.
    pub part: RefCell<Option<Part>>,
}

impl Reservation {
    fn count(&self) -> u64 {
        self.sectors.end - self.sectors.start
    }

    fn choose(&self, head: &Head<'_>) -> usize {
        let inner = self.inner.borrow();
        let choice = match (self.shingles.choice, self.shingles.logs) {
            (LogChoice::Soonest, _) => self.soonest(&inner, head),
            (LogChoice::NearestCylinder, ShingledLogs::Surface { .. }) => {
                self.first(&inner, || self.layout.nearest(head.cylinder()))
            }
            (LogChoice::NearestCylinder, ShingledLogs::Single { .. }) => {
                let (current, logs) = (inner.current, self.layout.logs.len());
                self.first(&inner, || (current..logs).chain(0..current))
            }
        };
        choice.expect("space was reserved for it")
    }

    /// The first log with space for all of it, or else for a part.
    fn first<I: Iterator<Item = usize>>(
        &self,
        inner: &Inner,
        logs: impl Fn() -> I,
    ) -> Option<usize> {
        let with_space =
            |least: u64| logs().find(|log| self.layout.free_sectors(inner, *log) >= least);
        with_space(self.count()).or_else(|| with_space(1))
    }

    /// The log that the head reaches first, among those with space for all of it and empty ones.
    fn soonest(&self, inner: &Inner, head: &Head<'_>) -> Option<usize> {
        let mut best: Option<(u64, usize)> = None;
        for log in self.layout.nearest(head.cylinder()) {
            let away = self.layout.logs[log].cylinder.abs_diff(head.cylinder());
            let least = head.seek_ns(away.saturating_sub(self.layout.log_cylinders));
            if best.is_some_and(|(ns, _)| ns <= least) {
                break;
            }
            if self.layout.free_sectors(inner, log) >= self.count() || inner.logs[log].fill == 0 {
                let ns = head.positioning_ns(self.layout.place(inner, log));
                if best.is_none_or(|best| (ns, log) < best) {
                    best = Some((ns, log));
                }
            }
        }
        best.map(|(_, log)| log)
            .or_else(|| self.first(inner, || self.layout.nearest(head.cylinder())))
    }
}

impl Places for Reservation {
    fn propose(&self, head: &Head<'_>) -> u64 {
        let log = self.choose(head);
        self.layout.place(&self.inner.borrow(), log)
    }

    fn take(&self, head: &Head<'_>) -> Range<u64> {
        let log = self.choose(head);
        let mut inner = self.inner.borrow_mut();
        let place = self.layout.place(&inner, log);
        let count = self.count().min(self.layout.free_sectors(&inner, log));
        inner.reserved -= self.count();
        inner.fill(&self.layout, log, count);
        inner.current = log;
        let around = self.layout.neighbourhood(log);
        if inner.is_filled(&self.layout, around, self.shingles.swap_above)
            && !inner.overfull.contains(&around)
        {
            inner.overfull.push(around);
        }
        let sectors = self.sectors.start..self.sectors.start + count;
        *self.part.borrow_mut() = Some(Part { log, place, sectors, order: self.order });
        place..place + count
    }
}

impl ShingledLayout {
    pub fn free_sectors(&self, inner: &Inner, log: usize) -> u64 {
        self.logs[log].size() - inner.logs[log].fill
    }
    /// Address of the next write to this log.
    pub fn place(&self, inner: &Inner, log: usize) -> u64 {
        self.logs[log].sectors.start + inner.logs[log].fill
    }
}
