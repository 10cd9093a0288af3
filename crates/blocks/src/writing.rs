//! Blocks that open handles write: a discard of some of them waits, and holds no handle.

use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::ops::Range;

#[derive(Default)]
pub(crate) struct BlocksWritten {
    ranges: RefCell<Vec<(u64, Range<u64>)>>,
    count: Cell<u64>,
    over: Event,
}

/// Guard: for as long as it lives, a handle writes these blocks.
pub(crate) struct Writing<'a> {
    all: &'a BlocksWritten,
    number: u64,
}

impl BlocksWritten {
    pub fn begin(&self, blocks: Range<u64>) -> Writing<'_> {
        let number = self.count.replace(self.count.get() + 1);
        self.ranges.borrow_mut().push((number, blocks));
        Writing { all: self, number }
    }
    pub fn overlap(&self, blocks: &Range<u64>) -> bool {
        let ranges = self.ranges.borrow();
        ranges.iter().any(|(_, other)| other.start < blocks.end && blocks.start < other.end)
    }
    pub async fn until_over(&self, blocks: &Range<u64>) {
        self.over.until(|| (!self.overlap(blocks)).then_some(())).await;
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.all.ranges.borrow_mut().retain(|(number, _)| *number != self.number);
        self.all.over.notify();
    }
}
