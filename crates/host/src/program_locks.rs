//! Locks that programs take: the store keeps them, so that they bind programs of other hosts, too.
//!
//! 1. The store is asked without waiting. Who waits for a lock asks again and again, and holds
//!    nothing here meanwhile: no operation waits for him, and a signal ends it.
//! 2. A file with locks stays open at the store, to which they belong.
//! 3. With the connection the locks are lost. Who had some must not go on as if he had them: the
//!    file answers with an error until every descriptor of it is closed.

use crate::error::HostError;
use crate::files::{Failure, File};
use crate::host::Host;
use crate::lock_owners::Interrupt;
use runtime::race;
use std::rc::Rc;
use std::time::Duration;
use store::{FileId, FileLock, LockOwner, Refusal, StoreError, Token};

const EAGAIN: i32 = 11;
const EINTR: i32 = 4;
/// Between two questions for a lock that another has: at first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

impl Host {
    /// Sets or removes a lock, asked for by a descriptor. Without `wait`: EAGAIN where another's
    /// stands against it.
    pub async fn lock(
        &self,
        id: FileId,
        lock: FileLock,
        descriptor: u64,
        wait: Option<&Interrupt>,
    ) -> Result<(), HostError> {
        let mut pause = PAUSES[0];
        loop {
            let result = self.lock_once(id, &lock, descriptor).await;
            let (Some(interrupt), true) = (wait, is_taken(&result)) else { return result };
            let until = self.world.now().plus(pause);
            race(self.world.sleep_until(until), interrupt.until_set()).await;
            if interrupt.is_set() || self.closing.get() {
                return Err(StoreError::from(Refusal::Other(EINTR)).into());
            }
            pause = (pause * 2).min(PAUSES[1]);
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
            // From now on the file is held for writing or not at all: what is open stays the same.
            self.give_up_token(&file).await?;
        }
        let open = self.opened(&file).await?;
        self.noted(self.store.lock(open, lock.clone()).await)?;
        file.locks.note(lock, descriptor);
        Ok(())
    }

    /// A lock of another that stands against this one.
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

    /// A program closes one of its descriptors: it has no lock of that kind any more.
    pub async fn unlock_owner(&self, id: FileId, owner: LockOwner) -> Result<(), HostError> {
        let Some(file) = self.files.get(id) else { return Ok(()) };
        let outlives = units::fault!("host-locks-outlive-close");
        if !file.locks.has(owner) || outlives {
            return Ok(());
        }
        self.unlock(&file, owner).await
    }
    /// The last copy of a descriptor is closed.
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

    /// The token that a file is to be held with. Where locks hang on what is open, one for reading
    /// would take another way of opening the file.
    pub(crate) fn token_beside_locks(&self, file: &File, wanted: Token) -> Token {
        match wanted {
            Token::SharedRead if self.store.wants_files_closed() && !file.locks.is_empty() => {
                Token::ExclusiveWrite
            }
            wanted => wanted,
        }
    }

    /// The connection is gone, and all locks with it.
    pub(crate) fn lose_locks(&self, file: &File) {
        if !file.locks.is_empty() {
            file.locks.clear();
            file.failure.borrow_mut().get_or_insert(Failure::LocksLost);
        }
    }
}

/// By another, for now.
fn is_taken(result: &Result<(), HostError>) -> bool {
    matches!(result, Err(HostError::Store(StoreError::Refused(Refusal::Other(EAGAIN)))))
}
