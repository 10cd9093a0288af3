//! A sync is answered only if the store's lease lasted when its journal write was complete. Else
//! the servers are asked: an answer to a question that was asked since is as good.

use crate::error::HostError;
use crate::host::Host;
use crate::lease::AskedAt;
use std::rc::Rc;
use std::time::Duration;

impl Host {
    /// What was journaled is complete there. Returns when it is certain that no other client could
    /// have changed the files of this one before.
    pub(crate) async fn prove_lease(self: &Rc<Self>) -> Result<(), HostError> {
        self.check()?;
        let lease = Duration::from_millis(self.store.lease_ms());
        if self.store.lease_ms() == u64::MAX || units::fault!("host-sync-without-lease") {
            return Ok(());
        }
        let now = AskedAt::at(&*self.world);
        match self.lease.elapsed(now) {
            Some(elapsed) if elapsed < lease => {
                // So that nobody has to wait for the next answer.
                let is_early = elapsed < lease / 2 || self.lease.asking.is_written();
                if !is_early && !self.lease.has_recalls() {
                    let host = self.clone();
                    self.world.spawn(Box::pin(async move {
                        let _busy = host.busy();
                        // A lost connection is noted.
                        let _ = host.ask_for_lease(now).await;
                    }));
                }
                Ok(())
            }
            _ => self.ask_for_lease(now).await,
        }
    }

    /// Those who wait for an answer share the next question.
    pub(crate) async fn ask_for_lease(&self, since: AskedAt) -> Result<(), HostError> {
        let _turn = self.lease.asking.write().await;
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
    /// Servers that are silent end the connection within a lease; it is asked for all the time, as
    /// nobody else may ask. Ends with the connection alone.
    pub(crate) async fn watch_lease(&self) -> Result<(), HostError> {
        let lease_ms = self.store.lease_ms();
        if lease_ms == u64::MAX {
            std::future::pending::<()>().await;
        }
        loop {
            let pause = self.world.now().plus(Duration::from_millis(lease_ms / 4));
            self.world.sleep_until(pause).await;
            self.ask_for_lease(AskedAt::at(&*self.world)).await?;
        }
    }

    /// The first proof of a connection.
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
