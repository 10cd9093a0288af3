//! Tokens: the library's delegations, granted by the servers' own capabilities.

use super::files::{File, Files, HeldToken, lock};
use super::output::Output;
use crate::library::{Errno, Handle};
use crate::wire::Report;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use store::{Allocation, Token};

/// Time that other clients have to return a token. They return it at once or not at all: a client
/// that keeps the file open goes on sharing it.
const OTHERS: Duration = Duration::from_millis(250);
const AGAIN: Duration = Duration::from_millis(3);
/// Time for sending content after the daemon's end.
const LEAVING: Duration = Duration::from_secs(1);

impl Files {
    /// Takes a token; `to_recover`: as [`store::Store::take_token_to_recover`] says. EAGAIN: other
    /// clients keep the file.
    pub fn take_token(
        &self,
        file: &Arc<File>,
        token: Token,
        to_recover: bool,
    ) -> Result<(), Errno> {
        let is_held = |held: HeldToken| {
            (held.token, held.to_recover) == (token, to_recover) && held.recalled.is_none()
        };
        if file.state().held.clone().is_some_and(is_held) {
            return Ok(());
        }
        self.give_back(file)?;
        if token == Token::SharedWrite {
            // The servers ensure that no client caches; each write is followed by a sync.
            return Ok(());
        }
        let deadline = Instant::now() + OTHERS;
        loop {
            match self.grant(file, token, to_recover) {
                Err(Errno(libc::EAGAIN)) if Instant::now() < deadline => {
                    // A lookup of the file recalls another's token, and waits until it is returned.
                    file.inode.attributes()?;
                    std::thread::sleep(AGAIN);
                }
                answer => return answer,
            }
        }
    }

    /// Takes the token of a file that no other client can have asked for yet: the library grants it
    /// without a request, or it is taken later.
    pub fn hold_new(&self, file: &Arc<File>) -> bool {
        self.grant(file, Token::ExclusiveWrite, false).is_ok()
    }

    fn grant(&self, file: &Arc<File>, token: Token, to_recover: bool) -> Result<(), Errno> {
        let handle = file.handle_for(token)?;
        let number = self.last_grant.fetch_add(1, Ordering::Relaxed) + 1;
        if to_recover {
            self.gate.shut(number);
        }
        // Recorded before the request: a recall may come before the answer.
        lock(&self.grants).insert(number, file.clone());
        file.state().held = Some(HeldToken {
            token,
            number,
            handle: handle.clone(),
            to_recover,
            recalled: None,
            is_acknowledged: false,
        });
        let answer = handle.take_token(token, number);
        if answer.is_err() {
            self.no_longer_held(file, number);
        }
        answer
    }

    /// Makes writes durable, and returns the token. Without one: returns the error of an earlier
    /// return.
    pub fn give_back(&self, file: &File) -> Result<(), Errno> {
        let _one_at_a_time = lock(&file.returning);
        let Some(held) = file.state().held.clone() else {
            return file.state().failure.map_or(Ok(()), Err);
        };
        // T1: while a token is recalled its file can be synced, and must not be written.
        let is_wanted = held.token == Token::ExclusiveWrite && !file.is_settled();
        let synced = if is_wanted { self.sync(file) } else { Ok(()) };
        if let Err(errno @ Errno(libc::ENOTCONN | libc::ESHUTDOWN)) = synced {
            return Err(errno);
        }
        // A write that waits in the library for this return may have looked at the end already.
        if held.token == Token::ExclusiveWrite && file.state().extends {
            self.lock_extension_for_return(file)?;
        }
        // Also after a failed sync: others must not wait in vain.
        let returned = held.handle.return_token();
        self.no_longer_held(file, held.number);
        synced.and(returned)
    }

    pub fn sync(&self, file: &File) -> Result<(), Errno> {
        let changes = file.state().changes;
        // The library would send both at once. A client that dies in between would leave a size
        // without content.
        if !units::fault!("ceph-size-beside-content") {
            self.sync_content(file)?;
        }
        self.try_sync(file, |handle| {
            match handle {
                Some(handle) => handle.sync().and_then(|()| handle.ask_servers())?,
                None => file.inode.sync()?,
            }
            self.session.ask()?;
            self.check_kept(file)
        })?;
        let mut state = file.state();
        state.synced = state.synced.max(changes);
        if state.is_settled() {
            state.drops = None;
        }
        Ok(())
    }
    /// Fails with ENOSPC if the library may have dropped what it had buffered of the file.
    fn check_kept(&self, file: &File) -> Result<(), Errno> {
        let Some(before) = file.state().drops else { return Ok(()) };
        let is_kept = self.drop_detector.look()? == before;
        is_kept.then_some(()).ok_or(Errno(libc::ENOSPC))
    }
    /// Records that the library is about to buffer a change of the file.
    pub fn begin_change(&self, file: &File) {
        let drops = self.drop_detector.drops();
        file.state().drops.get_or_insert(drops);
    }
    /// Sends content; the rest is for [`Files::sync`].
    pub fn sync_content(&self, file: &File) -> Result<(), Errno> {
        self.try_sync(file, |handle| match handle {
            Some(handle) => handle.sync_content(),
            None => file.inode.sync_content(),
        })
    }
    fn try_sync(
        &self,
        file: &File,
        sync: impl FnOnce(Option<&Handle>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let (handle, failure) = {
            let state = file.state();
            let held = state.held.as_ref().map(|held| held.handle.clone());
            (held.or_else(|| state.handle.clone()), state.failure)
        };
        // T4: the library has forgotten the error.
        failure.map_or(Ok(()), Err)?;
        let synced = sync(handle.as_deref());
        if let Err(errno) = synced {
            file.state().failure = Some(errno);
        }
        synced
    }

    /// Begins a write. Without the exclusive token one that extends the file has a lock from its
    /// look at the end until the servers have the new one: clients of this store extend a file one
    /// after the other. A token that is returned between them is replaced by the lock.
    pub fn begin_write(&self, file: &File) {
        let _no_return = lock(&file.returning);
        file.state().extends = true;
    }
    /// Locks out other clients that extend the file, in the place of the token that is about to be
    /// returned. The size is not asked for: the servers may wait for this token before they answer.
    /// An error ends the connection: others wait for the token, and it cannot be returned.
    fn lock_extension_for_return(&self, file: &File) -> Result<(), Errno> {
        let deadline = Instant::now() + Duration::from_millis(self.mount.recall_ms());
        loop {
            match self.try_lock_extension(file) {
                Err(Errno(libc::EAGAIN)) if Instant::now() < deadline => {
                    std::thread::sleep(AGAIN);
                }
                locked => return locked.map_err(|_| Errno(libc::ENOTCONN)),
            }
        }
    }
    /// Locks out other clients that extend the file, until the write ends. EAGAIN: one of them is
    /// doing so.
    pub fn lock_extension(&self, file: &File) -> Result<(), Errno> {
        match self.try_lock_extension(file) {
            Err(Errno(libc::EAGAIN)) => {
                // The servers ask that client for its size, and end its session if it does not
                // answer.
                file.inode.size()?;
                self.try_lock_extension(file)
            }
            locked => locked,
        }
    }
    fn try_lock_extension(&self, file: &File) -> Result<(), Errno> {
        if file.state().has_extension_lock || units::fault!("ceph-extended-without-lock") {
            return Ok(());
        }
        self.session.lock_extension(file.id)?;
        file.state().has_extension_lock = true;
        Ok(())
    }
    pub fn end_write(&self, file: &File) -> Result<(), Errno> {
        let _no_return = lock(&file.returning);
        file.state().extends = false;
        // Others' recalls wait for the file's state: it is not kept over a call.
        let has_lock = std::mem::take(&mut file.state().has_extension_lock);
        match has_lock {
            true => self.session.unlock_extension(file.id),
            false => Ok(()),
        }
    }

    fn no_longer_held(&self, file: &File, number: u64) {
        lock(&self.grants).remove(&number);
        self.gate.forget(number);
        let mut state = file.state();
        if state.held.as_ref().is_some_and(|held| held.number == number) {
            state.held = None;
        }
    }

    /// Returns the token, and leaves the buffer as it is.
    fn drop_token(&self, file: &File) -> Result<(), Errno> {
        let _one_at_a_time = lock(&file.returning);
        let Some(held) = file.state().held.clone() else { return Ok(()) };
        held.handle.return_token()?;
        self.no_longer_held(file, held.number);
        Ok(())
    }

    /// Drops the buffer of a file without a name before its last close, unless another client has
    /// it open: the library grants no token then. T10: held-back attributes are sent, or the
    /// servers would keep the file as long as they are.
    pub fn discard(&self, file: &Arc<File>) -> Result<(), Errno> {
        let handle = file.handle(true)?;
        if !self.hold_new(file) {
            return handle.sync();
        }
        let size = file.inode.attributes()?.version.size;
        if size > 0 {
            handle.allocate(Allocation::PunchHole, &(0..size))?;
        }
        self.drop_token(file)?;
        handle.send_attributes()
    }

    /// Leaves when the daemon has ended, in whatever way. The servers may know sizes of recalled
    /// files: their content follows, if that is quick. Nothing else is sent: the daemon's next run
    /// recovers it.
    pub fn leave(self: &Arc<Self>) {
        if self.gate.keeps_any() || units::fault!("ceph-content-left-behind") {
            return;
        }
        let recalled = self.all().into_iter().filter(|file| file.is_recalled());
        let (done, sent) = mpsc::channel();
        let mut count = 0;
        for file in recalled {
            let (files, done) = (self.clone(), done.clone());
            std::thread::spawn(move || {
                // The next run recovers what fails here, too.
                let _ = files.sync_content(&file);
                let _ = done.send(());
            });
            count += 1;
        }
        let until = Instant::now() + LEAVING;
        for _ in 0..count {
            if sent.recv_timeout(until.saturating_duration_since(Instant::now())).is_err() {
                return;
            }
        }
    }

    /// Carries out a call on names that recalls this client's own token of `file`, and would wait
    /// for its return. The token is returned before, and the daemon gets a recall: others may have
    /// the file from then on.
    pub fn without_token<T>(
        &self,
        file: Option<Arc<File>>,
        output: &Output,
        is_going: bool,
        call: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let held = file.as_ref().and_then(|file| file.state().held.clone());
        let (Some(file), Some(held)) = (file, held) else { return call() };
        if held.recalled.is_none() {
            output.send(&Report::Recall { file: file.id, token: held.token });
        }
        if is_going {
            // Nobody can read it after its last name is removed.
            self.drop_token(&file)?;
        } else {
            self.give_back(&file)?;
        }
        call()
    }
}
