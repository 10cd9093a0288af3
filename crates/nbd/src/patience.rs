//! Time limits of a client for sending a request's payload, or reading a reply.
//!
//! Both hold memory of the pool that other clients wait for. A client that is silent for a minute
//! is disconnected in any case; while others wait for memory, also a client that is slower than any
//! socket of this machine.

use crate::connection::Connection;
use crate::window::Pool;
use device::World;
use runtime::{Either, RealWorld, race};
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// Longest time without one byte.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Rate required while others wait, in bytes a second, and the time before the first check.
const RATE_MIN: u64 = 4 << 20;
const LOOK: Duration = Duration::from_secs(2);

/// Judge of the speed of clients.
pub struct Patience {
    pub world: RealWorld,
    pub pool: Rc<Pool>,
}

impl Patience {
    /// Runs a transfer, whose bytes `moved` counts.
    ///
    /// # Errors
    /// The transfer's errors; `TimedOut` where the client is too slow, whose connection is shut
    /// then.
    pub async fn with<T>(
        &self,
        connection: &Connection,
        moved: impl Fn(&Connection) -> u64,
        transfer: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let mut transfer = pin!(transfer);
        // Most transfers have no need to wait, and so none of a timer.
        let at_once = poll_fn(|context| Poll::Ready(transfer.as_mut().poll(context))).await;
        if let Poll::Ready(result) = at_once {
            return result;
        }
        let late = pin!(self.until_too_slow(|| moved(connection)));
        match race(transfer, late).await {
            Either::Left(result) => result,
            Either::Right(()) => {
                connection.shut();
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }

    async fn until_too_slow(&self, moved: impl Fn() -> u64) {
        let mut silent = Duration::ZERO;
        loop {
            let before = moved();
            self.world.sleep_until(self.world.now().plus(LOOK)).await;
            let bytes = moved() - before;
            silent = if bytes == 0 { silent + LOOK } else { Duration::ZERO };
            let is_slow = bytes < RATE_MIN * LOOK.as_secs();
            if silent >= SILENCE_MAX || is_slow && self.pool.is_wanted() {
                return;
            }
        }
    }
}
