//! Bounds the bytes of write-back that are in flight.
//!
//! A disk that serves requests in their order keeps a commit waiting for all that was issued before
//! it. Sixteen runs of a mebibyte are 134 ms of a volume of 125 MB/s, and one is 8 ms. Small
//! requests stay as many as before: a hard disk sorts them.

use runtime::sync::Event;
use std::cell::Cell;

/// Maximum number of bytes in flight, unless a single request is larger.
const BYTES_MAX: u64 = 1 << 20;

#[derive(Default)]
pub(crate) struct BytesInFlight {
    bytes: Cell<u64>,
    freed: Event,
}

impl BytesInFlight {
    /// Waits until a request of `bytes` may be issued. It is in flight until the result is dropped.
    pub async fn admit(&self, bytes: u64) -> Admitted<'_> {
        let fits = || {
            let in_flight = self.bytes.get();
            (in_flight == 0 || in_flight + bytes <= BYTES_MAX).then_some(())
        };
        self.freed.until(fits).await;
        self.bytes.set(self.bytes.get() + bytes);
        Admitted { owner: self, bytes }
    }
}

pub(crate) struct Admitted<'a> {
    owner: &'a BytesInFlight,
    bytes: u64,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.owner.bytes.set(self.owner.bytes.get() - self.bytes);
        self.owner.freed.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::World;
    use runtime::VirtualWorld;
    use std::pin::Pin;
    use std::rc::Rc;
    use std::time::Duration;

    /// The most bytes that were in flight, and the most requests, of requests of a millisecond.
    fn most(requests: &[u64]) -> (u64, u32) {
        let world = VirtualWorld::new(7);
        let (in_flight, most) = (Rc::new(BytesInFlight::default()), Rc::new(Cell::new((0, 0))));
        let (begun, count) = (requests.to_vec(), Rc::new(Cell::new(0)));
        let (inner, result) = (world.clone(), most.clone());
        world.run(async move {
            let one = async |bytes| {
                let admitted = in_flight.admit(bytes).await;
                count.set(count.get() + 1);
                let (most_bytes, most_count) = most.get();
                most.set((in_flight.bytes.get().max(most_bytes), count.get().max(most_count)));
                inner.sleep_until(inner.now().plus(Duration::from_millis(1))).await;
                count.set(count.get() - 1);
                drop(admitted);
            };
            let all = begun
                .into_iter()
                .map(|bytes| -> Pin<Box<dyn Future<Output = ()>>> { Box::pin(one(bytes)) });
            runtime::join_all(all.collect()).await;
            assert_eq!(in_flight.bytes.get(), 0);
        });
        result.get()
    }

    #[test]
    fn small_requests_are_many_and_large_ones_few() {
        assert_eq!(most(&[4096; 16]), (16 * 4096, 16));
        assert_eq!(most(&[BYTES_MAX / 2; 6]), (BYTES_MAX, 2));
        assert_eq!(most(&[BYTES_MAX + 1; 3]), (BYTES_MAX + 1, 1), "a larger one goes alone");
    }
}
