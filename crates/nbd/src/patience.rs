//! How long a client may take to send a request's payload, or to read a reply.
//!
//! Both hold room that other clients wait for. A client that is silent for a minute is cut off in
//! any case; while others wait for room, a client that is slower than any socket of this machine.

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

/// Without one byte.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// While others wait: bytes a second, and when they are first counted.
const RATE_MIN: u64 = 4 << 20;
const LOOK: Duration = Duration::from_secs(2);

/// Judges how fast clients are.
pub struct Patience {
    pub world: RealWorld,
    pub pool: Rc<Pool>,
}

impl Patience {
    /// Carries out a transfer, which `moved` counts the bytes of.
    ///
    /// # Errors
    /// Those of the transfer; `TimedOut` where the client is too slow, whose connection is shut
    /// then.
    pub async fn with<T>(
        &self,
        connection: &Connection,
        moved: impl Fn(&Connection) -> u64,
        transfer: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let mut transfer = pin!(transfer);
        // Most have no need to wait, and so none of a timer.
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
