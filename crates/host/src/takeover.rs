//! Files taken over from a host that died: its journal may have changes of them, and whether it is
//! recovered before this one's is not known.
//!
//! 1. A recovery replays a file over the state that its journal builds on, and changes the file's
//!    version by that. What two hosts have built on the same state would be the first one's that is
//!    recovered.
//! 2. So the first sync of such a file is answered when the store has what it covers. From then on
//!    every recovery of the earlier owner finds the file changed by others, and what this host
//!    syncs later builds on a state that the earlier owner never had.
//! 3. Hosts are registered at the store before they take tokens, until a clean end. A host that is
//!    registered later has no changes of a file of which this host has the token.
//! 4. What this says of a token holds until it is returned. So a file that paid keeps its token
//!    ([`crate::kept_tokens`]).

use crate::destage::{FILES_AT_ONCE, Work, at_once};
use crate::error::HostError;
use crate::files::File;
use crate::host::Host;
use std::rc::Rc;

impl Host {
    /// Returns whether the journal of a host that died may have changes of a file whose exclusive
    /// token was just taken. The caller holds its lock for writing.
    pub(crate) async fn may_have_dead_owner(&self, file: &File) -> bool {
        if units::fault!("host-takeover-unseen") {
            return false;
        }
        // What is not known counts as yes. A lost connection is noted.
        self.noted(self.store.may_have_dead_owner(file.id).await).unwrap_or(true)
    }

    /// Destages a file that was taken over, before a sync of it is answered.
    pub(crate) async fn destage_takeover(&self, file: &Rc<File>) -> Result<(), HostError> {
        if !file.was_taken_over.get() {
            return Ok(());
        }
        let _guard = file.lock.write().await;
        if file.was_taken_over.get() {
            self.destage_locked(file).await?;
            self.kept_tokens.add(file, self.world.now());
        }
        Ok(())
    }

    /// Returns the kept tokens whose time has passed, unless the file was used since.
    pub(crate) async fn return_kept_tokens(self: &Rc<Self>) {
        let now = self.world.now();
        let mut due = Vec::new();
        while let Some(file) = self.kept_tokens.take_due(now) {
            if file.opens.get() > 0 || file.dirty.get().is_some() {
                self.kept_tokens.add(&file, now);
            } else {
                due.push(file);
            }
        }
        let work = due.into_iter().map(|file| -> Work<'_> {
            let host = self.clone();
            Box::pin(async move {
                let returned = async move {
                    let _busy = host.busy();
                    // A lost connection is already recorded.
                    let _ = host.let_go(&file).await;
                };
                self.bounded(returned).await;
                Ok(())
            })
        });
        at_once(work.collect(), FILES_AT_ONCE).await;
    }
}
