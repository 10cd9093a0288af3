//! How much one client may have under way: requests and bytes. The next request is not read before there is room.

use runtime::sync::Event;
use std::cell::Cell;
use std::rc::Rc;

const REQUESTS_MAX: usize = 128;
const BYTES_MAX: usize = 64 << 20;

#[derive(Default)]
pub struct Window {
    requests: Cell<usize>,
    bytes: Cell<usize>,
    changed: Event,
}

/// Room for one request, until it is dropped.
pub struct Room(Rc<Window>, usize);

impl Window {
    /// One request is always let in when nothing else is under way; its size is bounded elsewhere.
    pub async fn enter(self: &Rc<Self>, bytes: usize) -> Room {
        let fits = || {
            let requests = self.requests.get();
            let fits = requests == 0 || (requests < REQUESTS_MAX && self.bytes.get() + bytes <= BYTES_MAX);
            fits.then_some(())
        };
        self.changed.until(fits).await;
        self.requests.set(self.requests.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
        Room(self.clone(), bytes)
    }
    /// Until nothing is under way.
    pub async fn empty(&self) {
        self.changed.until(|| (self.requests.get() == 0).then_some(())).await
    }
}
impl Drop for Room {
    fn drop(&mut self) {
        self.0.requests.set(self.0.requests.get() - 1);
        self.0.bytes.set(self.0.bytes.get() - self.1);
        self.0.changed.notify();
    }
}
