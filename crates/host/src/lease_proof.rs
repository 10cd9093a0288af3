//! Acknowledges a sync only if the store's lease lasted when its journal write was complete.
//! Otherwise the servers are asked: an answer to a request sent since is as good.

use crate::error::HostError;
use crate::host::Host;
use crate::lease::AskedAt;
use std::rc::Rc;
use std::time::Duration;

impl Host {
    /// Returns when it is certain that no other client could have changed the files of this one
    /// before the journal write was complete.
    pub(crate) async fn prove_lease(self: &Rc<Self>) -> Result<(), HostError> {
        self.check()?;
        let lease = Duration::from_millis(self.store.lease_ms());
        if self.store.lease_ms() == u64::MAX || units::fault!("host-sync-without-lease") {
            return Ok(());
        }
        let now = AskedAt::at(&*self.world);
        match self.lease.elapsed(now) {
            Some(elapsed) if elapsed < lease => {
                // So that no sync has to wait for the next answer.
                let is_early = elapsed < lease / 2 || self.lease.asking.is_written();
                if !is_early && !self.lease.has_recalls() {
                    let host = self.clone();
                    self.world.spawn(Box::pin(async move {
                        let _busy = host.busy();
                        // A lost connection is already recorded.
                        let _ = host.ask_for_lease(now).await;
                    }));
                }
                Ok(())
            }
            _ => self.ask_for_lease(now).await,
        }
    }

    /// Asks the servers. Callers that wait for an answer share the next request.
    pub(crate) async fn ask_for_lease(&self, since: AskedAt) -> Result<(), HostError> {
        let _guard = self.lease.asking.write().await;
        self.check()?;
        if self.lease.proven.get().is_some_and(|proven| proven.now >= since.now) {
            return Ok(());
        }
        let asked = AskedAt::at(&*self.world);
        self.noted(self.store.still_known().await)?;
        self.check()?;
        self.lease.proven.set(Some(asked));
        Ok(())
    }
    /// Proves the lease of a new connection.
    pub(crate) async fn begin_lease(&self) -> Result<(), HostError> {
        self.lease.end();
        if self.store.lease_ms() == u64::MAX {
            return Ok(());
        }
        let asked = AskedAt::at(&*self.world);
        self.store.still_known().await?;
        self.lease.proven.set(Some(asked));
        Ok(())
    }
}
