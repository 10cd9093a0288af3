//! A barrier at which workloads wait for each other.

use runtime::sync::Event;
use std::cell::Cell;

/// A barrier for workloads that are ready.
#[derive(Default)]
pub(crate) struct StartLine {
    ready: Cell<usize>,
    open: Cell<bool>,
    changed: Event,
}

impl StartLine {
    /// Waits until all are ready.
    pub async fn wait(&self) {
        self.arrive();
        self.changed.until(|| self.open.get().then_some(())).await;
    }
    pub fn arrive(&self) {
        self.ready.set(self.ready.get() + 1);
        self.changed.notify();
    }
    pub async fn until_ready(&self, count: usize) {
        self.changed.until(|| (self.ready.get() >= count).then_some(())).await;
    }
    pub fn go(&self) {
        self.open.set(true);
        self.changed.notify();
    }
}
