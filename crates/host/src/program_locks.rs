//! Locks of programs. The store keeps them, so that they bind programs of other hosts, too.
//!
//! 1. The store is asked without waiting. A program that waits for a lock asks again and again, and
//!    holds nothing here in between: no operation waits for it, and a signal ends the wait.
//! 2. A file with locks stays open at the store, since the locks belong to the open file.
//! 3. Locks are lost with the connection. A program that held some must not go on as if it still
//!    did: the file answers with an error until every descriptor of it is closed.

use crate::error::HostError;
use crate::files::{Failure, File};
use crate::host::Host;
use crate::interrupt::{Interrupt, interrupted};
use crate::pauses::Pauses;
use runtime::race;
use std::rc::Rc;
use store::{FileId, FileLock, LockOwner, Refusal, StoreError, Token};

const EAGAIN: i32 = 11;

impl Host {
    /// Sets or removes a lock that was requested by a descriptor. Without `wait` a conflicting lock
    /// of another owner is EAGAIN.
    pub async fn lock(
        &self,
        id: FileId,
        lock: FileLock,
        descriptor: u64,
        wait: Option<&Interrupt>,
    ) -> Result<(), HostError> {
        let mut pauses = Pauses::default();
        loop {
            let result = self.lock_once(id, &lock, descriptor).await;
            let (Some(interrupt), true) = (wait, is_taken(&result)) else { return result };
            let until = self.world.now().plus(pauses.next());
            race(self.world.sleep_until(until), interrupt.until_set()).await;
            if interrupt.is_set() || self.closing.get() {
                return Err(interrupted());
            }
        }
    }

    async fn lock_once(
        &self,
        id: FileId,
        lock: &FileLock,
        descriptor: u64,
    ) -> Result<(), HostError> {
        let _busy = self.enter().await?;
        let file = self.files.get_or_new(id);
        if lock.mode.is_some() {
            self.check_file(&file)?;
        }
        let _guard = file.lock.write().await;
        let hangs_on_open = self.store.wants_files_closed();
        if hangs_on_open && file.token.get() == Some(Token::SharedRead) {
            // From now on the file is held for writing or not at all: the open file stays the same.
            self.give_up_token(&file).await?;
        }
        let open = self.opened(&file).await?;
        if !units::fault!("host-locks-of-one-host") {
            self.noted(self.store.lock(open, lock.clone()).await)?;
        }
        file.locks.note(lock, descriptor);
        Ok(())
    }

    /// Returns a lock of another owner that conflicts with this one.
    pub async fn test_lock(
        &self,
        id: FileId,
        lock: FileLock,
    ) -> Result<Option<FileLock>, HostError> {
        let _busy = self.enter().await?;
        let file = self.files.get_or_new(id);
        let _guard = file.lock.write().await;
        let open = self.opened(&file).await?;
        self.noted(self.store.test_lock(open, lock).await)
    }

    /// Removes the locks of an owner that closes one of its descriptors.
    pub async fn unlock_owner(&self, id: FileId, owner: LockOwner) -> Result<(), HostError> {
        let Some(file) = self.files.get(id) else { return Ok(()) };
        let outlives = units::fault!("host-locks-outlive-close");
        if !file.locks.has(owner) || outlives {
            return Ok(());
        }
        self.unlock(&file, owner).await
    }
    /// Removes the locks of a descriptor whose last copy is closed.
    pub async fn unlock_descriptor(&self, id: FileId, descriptor: u64) -> Result<(), HostError> {
        let Some(file) = self.files.get(id) else { return Ok(()) };
        for owner in file.locks.owners_by(descriptor) {
            self.unlock(&file, owner).await?;
        }
        Ok(())
    }
    async fn unlock(&self, file: &Rc<File>, owner: LockOwner) -> Result<(), HostError> {
        self.lock_once(file.id, &FileLock::none_of(owner), 0).await
    }

    /// Returns the token to take for a file. Where locks depend on the open file, a token for
    /// reading would open the file in another way.
    pub(crate) fn token_beside_locks(&self, file: &File, wanted: Token) -> Token {
        match wanted {
            Token::SharedRead if self.store.wants_files_closed() && !file.locks.is_empty() => {
                Token::ExclusiveWrite
            }
            wanted => wanted,
        }
    }

    /// Drops all locks of a file: the connection they belonged to is lost.
    pub(crate) fn lose_locks(&self, file: &File) {
        if !file.locks.is_empty() {
            file.locks.clear();
            file.failure.borrow_mut().get_or_insert(Failure::LocksLost);
        }
    }
}

/// Returns whether another owner has the lock for now.
fn is_taken(result: &Result<(), HostError>) -> bool {
    matches!(result, Err(HostError::Store(StoreError::Refused(Refusal::Other(EAGAIN)))))
}
