//! Tokens: what the library calls delegations, granted by the servers' own capabilities.

use super::files::{File, Files, Held, lock};
use super::output::Output;
use crate::library::{Errno, Handle};
use crate::wire::Report;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use store::{Allocation, Token};

/// How long others, once asked, have to let go. They give a token back at once or not at all:
/// whoever keeps the file open goes on sharing it.
const OTHERS: Duration = Duration::from_millis(250);
const AGAIN: Duration = Duration::from_millis(3);
/// For content behind the daemon's end.
const LEAVING: Duration = Duration::from_secs(1);

impl Files {
    /// EAGAIN: others keep the file.
    pub fn take_token(&self, file: &Arc<File>, token: Token) -> Result<(), Errno> {
        let held = file.state().held.clone();
        if held.is_some_and(|held| held.token == token && held.recalled.is_none()) {
            return Ok(());
        }
        self.give_back(file)?;
        if token == Token::SharedWrite {
            // The servers see to it that nobody keeps anything; a write is followed by a sync.
            return Ok(());
        }
        let deadline = Instant::now() + OTHERS;
        loop {
            match self.grant(file, token) {
                Err(Errno(libc::EAGAIN)) if Instant::now() < deadline => {
                    // To look at a file is what recalls another's token, and waits until it is
                    // given back.
                    file.inode.attributes()?;
                    std::thread::sleep(AGAIN);
                }
                answer => return answer,
            }
        }
    }

    /// Of a file that nobody else can have asked for yet: the library gives the token without a
    /// question, or it is taken later.
    pub fn hold_new(&self, file: &Arc<File>) -> bool {
        self.grant(file, Token::ExclusiveWrite).is_ok()
    }

    fn grant(&self, file: &Arc<File>, token: Token) -> Result<(), Errno> {
        let handle = file.handle_for(token)?;
        let number = self.last_grant.fetch_add(1, Ordering::Relaxed) + 1;
        // Known before it is asked for: a recall may come before the answer.
        lock(&self.grants).insert(number, file.clone());
        file.state().held = Some(Held {
            token,
            number,
            handle: handle.clone(),
            recalled: None,
            is_acknowledged: false,
        });
        let answer = handle.take_token(token, number);
        if answer.is_err() {
            self.no_longer_held(file, number);
        }
        answer
    }

    /// Makes durable what was written, and gives the token back. Without one: tells what an earlier
    /// return ran into.
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
        // Also after a failed sync: others must not wait for what cannot be had.
        let returned = held.handle.return_token();
        self.no_longer_held(file, held.number);
        synced.and(returned)
    }

    pub fn sync(&self, file: &File) -> Result<(), Errno> {
        let changes = file.state().changes;
        // The library would send both at once. A client that dies meanwhile would leave a size
        // without content.
        if !units::fault!("ceph-size-beside-content") {
            self.sync_content(file)?;
        }
        self.try_sync(file, |handle| match handle {
            Some(handle) => handle.sync().and_then(|()| handle.ask_servers()),
            None => file.inode.sync(),
        })?;
        let mut state = file.state();
        state.synced = state.synced.max(changes);
        Ok(())
    }
    /// The rest is for [`Files::sync`].
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
        // T4: the library has forgotten what went wrong.
        failure.map_or(Ok(()), Err)?;
        let synced = sync(handle.as_deref());
        if let Err(errno) = synced {
            file.state().failure = Some(errno);
        }
        synced
    }

    fn no_longer_held(&self, file: &File, number: u64) {
        lock(&self.grants).remove(&number);
        let mut state = file.state();
        if state.held.as_ref().is_some_and(|held| held.number == number) {
            state.held = None;
        }
    }

    /// Gives the token back, and leaves buffered what is.
    fn drop_token(&self, file: &File) -> Result<(), Errno> {
        let _one_at_a_time = lock(&file.returning);
        let Some(held) = file.state().held.clone() else { return Ok(()) };
        held.handle.return_token()?;
        self.no_longer_held(file, held.number);
        Ok(())
    }

    /// Before the last close of a file without a name. What is buffered of it need go nowhere,
    /// unless another client has it open: the library gives no token then. T10: attributes that
    /// were held back go, or the servers would keep the file as long as they are.
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

    /// The daemon is gone, in whatever way. The servers may know sizes of files that are recalled:
    /// their content follows, if that is soon. Nothing else goes, as the daemon's next life brings
    /// it.
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
                // What goes wrong the next life brings, too.
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
    /// for its return. The token is given back before, and the daemon reads of a recall: others may
    /// have the file from then on.
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
            // Nobody will read what the last name goes with.
            self.drop_token(&file)?;
        } else {
            self.give_back(&file)?;
        }
        call()
    }
}
