//! Allocates ranges of files and punches holes, at the store and at once, as changes of size do.

use crate::error::HostError;
use crate::host::{Host, end_of};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use store::{Allocation, FileId, Token};

impl Host {
    /// Destages the journaled bytes of the file first: no replay may bring back what a hole has
    /// removed. Where others share the file, the store orders the changes.
    pub async fn allocate(
        self: &Rc<Self>,
        id: FileId,
        what: Allocation,
        range: Range<u64>,
    ) -> Result<(), HostError> {
        end_of(range.start, range.end.saturating_sub(range.start))?;
        self.once("a change of allocation", async |is_sent| {
            self.try_allocate(id, what, &range, is_sent).await
        })
        .await
    }

    /// Returns whether the store has files that end there, as far as it knows for this one.
    pub fn may_end_at(&self, id: FileId, end: u64) -> bool {
        let open = self.files.get(id).and_then(|file| file.open.get());
        open.is_none_or(|open| self.store.may_end_at(open, end))
    }

    async fn try_allocate(
        &self,
        id: FileId,
        what: Allocation,
        range: &Range<u64>,
        is_sent: &Cell<bool>,
    ) -> Result<(), HostError> {
        let file = self.files.get_or_new(id);
        loop {
            self.check()?;
            self.check_file(&file)?;
            let guard = file.lock.write().await;
            // As for a write.
            self.check_file(&file)?;
            if !file.recalled.get() {
                self.hold(&file, Token::ExclusiveWrite).await?;
                if !units::fault!("host-hole-before-destage") {
                    self.destage_locked(&file).await?;
                }
            }
            if file.recalled.get() {
                drop(guard);
                file.until_returned().await;
                continue;
            }
            let open = file.open.get().expect("a file with a token is open");
            self.begin_sending(is_sent)?;
            let allocated = self.store.allocate(open, what, range.clone()).await;
            match self.noted_change(&file, allocated) {
                Ok(attributes) => file.reported.set(attributes.version),
                Err(error) => {
                    // A part of the change may have been carried out.
                    self.settle_unreported(&file).await?;
                    return Err(error);
                }
            }
            return Ok(());
        }
    }
}
