//! Files that the store refuses: no space, a quota, an error of its disks.
//!
//! 1. The journal keeps what was synced of them. Syncs and changes of the file return the store's
//!    error until the store has taken it. It is asked again after pauses that grow.
//! 2. A store that keeps failed writes is simply asked again. At a store that forgets them, as
//!    Ceph's library may, a success would prove nothing: there the host reconnects once there is
//!    space, and replays the journal.
//! 3. Other files go on. Where a failed file holds the tail of the log, its records are relogged.
//!    If all of them together exceed a quarter of the log, they stay where they are.
//! 4. A caller that then waits for space, in the log or in memory, gets ENOSPC instead, whatever
//!    the store's error is: its own file is not concerned.
//! 5. A file of which a destage does not return is left to its task. Others go on, and an unmount
//!    ends without it: the journal stays.
//! 6. Another client gets the token of a refused file also from a store that forgets failed writes:
//!    it would end the whole connection otherwise. Then the journal alone has what was synced, and
//!    readers here get the error, until a new connection replays it. None is made unless all such
//!    files are held at that moment: a client that keeps one would keep the host from every file.

use crate::destage::DESTAGE_MAX;
use crate::destage_choice::DestageChoice;
use crate::error::HostError;
use crate::files::{Dirty, Failure, File};
use crate::host::Host;
use crate::lease::while_answered;
use runtime::sync::WriteGuard;
use runtime::{Either, race, spawn_with_result};
use std::rc::Rc;
use std::time::Duration;
use store::{OpenFile, OpenMode, Refusal, StoreError, Token};

/// Maximum time for the store to report its space.
const SPACE_MAX: Duration = Duration::from_secs(10);
/// Time for which an unmount waits for the next piece of its work. All that is buffered may be one.
const UNMOUNT_PIECE_MAX: Duration = Duration::from_secs(120);
/// Time for which an unmount waits for the end of the connection, which makes durable what was
/// written past the journal.
const DISCONNECT_MAX: Duration = Duration::from_secs(240);
const EIO: i32 = 5;
/// Interval at which files that are held again are checked for recalls.
const LOOK: Duration = Duration::from_millis(100);
/// Memory beyond `dirty=` for writes that arrive while files are destaged: this part of it.
const MEMORY_OVER: u64 = 4;

/// A given-up file whose token this host has again.
struct HeldAgain {
    file: Rc<File>,
    open: OpenFile,
    /// Reads wait for it, and return the error.
    _guard: WriteGuard,
}

impl Host {
    /// Sets the function that is called with errors for which no caller waits.
    pub fn on_trouble(&self, listener: Box<dyn Fn(&str)>) {
        *self.trouble.borrow_mut() = Some(listener);
    }
    pub(crate) fn report_trouble(&self, what: &str) {
        if let Some(listener) = &*self.trouble.borrow() {
            listener(what);
        }
    }

    /// Records the store's answer to a flush of the file.
    pub(crate) fn noted_with(
        &self,
        file: &File,
        result: Result<(), StoreError>,
    ) -> Result<(), HostError> {
        if let Some(error) = result.as_ref().err().filter(|error| !error.is_lost()) {
            file.fail(error.clone(), self.world.now());
            let pause = file.retry.get().map_or_else(Default::default, |retry| retry.pause);
            let next = match self.store.keeps_failed_writes() {
                true => format!("it is tried again in {pause:?}"),
                false => "it is replayed from the journal once there is space".into(),
            };
            let number = file.id.0;
            self.report_trouble(&format!(
                "file {number} could not be written to the store: {error}; {next}, and what was \
                 synced stays in the journal (find -inum {number} prints its name)"
            ));
        }
        self.noted(result)
    }
    /// Records the store's answer to a sync of what the journal does not have of the file: written
    /// past it, or made durable with the return of a token. Other callers than the one that gets
    /// the error have to learn of it: the store forgets what failed.
    pub(crate) fn noted_sync(
        &self,
        file: &File,
        result: Result<(), StoreError>,
    ) -> Result<(), HostError> {
        let error = result.as_ref().err().filter(|error| !error.is_lost());
        if let Some(error) = error.filter(|_| !units::fault!("host-failed-sync-once")) {
            file.fail_for_good(error.clone());
            let number = file.id.0;
            self.report_trouble(&format!(
                "a sync of file {number} failed: {error}; what was written past the journal may \
                 not be at the store, and each open descriptor reports that (find -inum {number} \
                 prints its name)"
            ));
        }
        self.noted(result)
    }
    /// Records the store's answer to a change that it makes durable at once, with all that was
    /// written past the journal. An error of its disks is that of a sync.
    pub(crate) fn noted_change<T>(
        &self,
        file: &File,
        result: Result<T, StoreError>,
    ) -> Result<T, HostError> {
        let is_shared = file.token.get() == Some(Token::SharedWrite);
        if let Err(error @ StoreError::Failed { .. }) = &result {
            if is_shared {
                self.noted_sync(file, Err(error.clone()))?;
            }
        }
        self.noted(result)
    }
    /// Returns the file's token to the store, which makes durable what it has of the file.
    pub(crate) async fn hand_back(&self, file: &File) -> Result<(), HostError> {
        let covered = file.shared_writes.get();
        self.noted_sync(file, self.store.return_token(file.id).await)?;
        file.synced_writes.set(covered);
        Ok(())
    }
    /// Has the store make durable what went there past the journal.
    pub(crate) async fn sync_shared(&self, file: &File, open: OpenFile) -> Result<(), HostError> {
        let covered = file.shared_writes.get();
        self.noted_sync(file, self.store.make_durable(open).await)?;
        file.synced_writes.set(covered);
        Ok(())
    }
    /// Records that the store has all of the file.
    pub(crate) async fn succeeded(&self, file: &File) -> Result<(), HostError> {
        if file.succeed() {
            self.report_trouble(&format!("file {} is at the store now", file.id.0));
            self.log().refuse(None);
            // The store may have been in a state that it had not reported.
            file.reported.set(self.noted(self.store.attributes(file.id).await)?.version);
        }
        Ok(())
    }

    /// Lets another client have a refused file, or returns the error of its destage: see rule 6.
    /// The caller holds the file's lock, and returns the token.
    pub(crate) fn give_up(&self, file: &File, error: HostError) -> Result<(), HostError> {
        let is_refused = file.has_failed()
            && !error.is_lost()
            && matches!(error, HostError::Store(_) | HostError::NotDestaged(_));
        let is_kept = self.store.keeps_failed_writes();
        if !is_refused || is_kept || units::fault!("host-refused-file-keeps-its-token") {
            return Err(error);
        }
        if !file.is_given_up.replace(true) {
            let number = file.id.0;
            self.report_trouble(&format!(
                "file {number} went to another client without what was synced here, which stays in \
                 the journal until the store takes it"
            ));
        }
        Ok(())
    }

    // Destages that do not return

    pub(crate) fn note_stuck(&self, file: &File, after: Duration) {
        if file.destaging.get().is_none() || file.is_stuck.replace(true) {
            return;
        }
        let number = file.id.0;
        self.report_trouble(&format!(
            "bringing file {number} to the store does not return for {after:?}: other files go on, \
             and what was synced stays in the journal (find -inum {number} prints its name)"
        ));
    }
    pub(crate) fn note_not_stuck(&self, file: &File) {
        if file.is_stuck.replace(false) {
            self.report_trouble(&format!("the store has answered for file {}", file.id.0));
            self.log().refuse(None);
        }
    }
    /// Records that a piece of the unmount's work has ended.
    pub(crate) fn note_progress(&self) {
        self.unmounted_pieces.set(self.unmounted_pieces.get() + 1);
    }
    /// Waits for the unmount's work as long as pieces of it end.
    pub(crate) async fn while_moving(
        &self,
        work: impl Future<Output = Result<(), HostError>>,
    ) -> Result<(), HostError> {
        let stands_still = async {
            loop {
                let before = self.unmounted_pieces.get();
                self.world.sleep_until(self.world.now().plus(UNMOUNT_PIECE_MAX)).await;
                if self.unmounted_pieces.get() == before && !units::fault!("host-unmount-waits") {
                    return;
                }
            }
        };
        match race(work, stands_still).await {
            Either::Left(result) => result,
            Either::Right(()) => {
                let dirty = self.files.dirty();
                Err(HostError::NotAnswered { files: dirty.len() as u64 })
            }
        }
    }

    /// Ends the connection for good, at the end of an unmount. With nothing in the journal the host
    /// is registered no longer.
    pub(crate) async fn end_connection(&self, has_nothing: bool) -> Result<(), HostError> {
        let work = async {
            if has_nothing {
                let unregistered = self.store.unregister_host();
                match while_answered(&*self.world, &*self.store, unregistered).await {
                    // A host that stays registered costs others a destage, and no promise.
                    Err(StoreError::Refused(_)) => {}
                    unregistered => unregistered?,
                }
            }
            self.store.disconnect().await
        };
        let until = self.world.now().plus(DISCONNECT_MAX);
        match race(work, self.world.sleep_until(until)).await {
            Either::Left(ended) => self.noted(ended),
            Either::Right(()) => self.noted(Err(StoreError::Disconnected {
                store: self.store.name().into(),
                why: "it did not answer to the end of the connection".into(),
            })),
        }
    }

    /// Returns whether a success would prove that the store has all of the file.
    pub(crate) fn may_try_again(&self, file: &File) -> bool {
        file.has_failed() && self.store.keeps_failed_writes() && !units::fault!("host-failed-once")
    }

    /// Returns the failed files whose pause has ended.
    pub(crate) fn due_again(&self, failed: &[(Dirty, Rc<File>)]) -> Vec<(Rc<File>, DestageChoice)> {
        let now = self.world.now();
        let due = failed.iter().filter(|(_, file)| self.may_try_again(file) && file.may_go(now));
        due.map(|(_, file)| (file.clone(), DestageChoice::ToStore)).collect()
    }

    /// Relogs failed files at the tail of a short log. Returns false if none could be.
    pub(crate) async fn carry_on_failed(self: &Rc<Self>) -> bool {
        let log = self.log();
        let failed: Vec<_> =
            self.files.dirty().into_iter().filter(|(_, file)| file.has_failed()).collect();
        let held: u64 = failed.iter().map(|(_, file)| file.held_bytes()).sum();
        let is_much = held > log.usage().capacity / 4;
        if is_much || !log.is_short() || units::fault!("host-failed-file-pins-the-tail") {
            return false;
        }
        let mut did_something = false;
        for (dirty, file) in failed {
            // A task that brings it to the store may hold its lock for ever.
            let is_away = file.destaging.get().is_some();
            if !is_away && self.may_try_again(&file) && log.is_old(dirty.slot) {
                did_something |= self.carry_out_one(&file, DestageChoice::RefusedRelogged).await;
                if file.is_stuck.get() {
                    // Writers that wait for space wait for all of this.
                    break;
                }
            }
        }
        did_something
    }

    /// Refuses callers that wait for space that cannot come.
    pub(crate) fn refuse_if_stuck(&self, did_something: bool) {
        let is_stuck = !did_something && (self.log().is_short() || self.is_memory_short());
        let failed = if is_stuck { self.files.failed() } else { Vec::new() };
        let why = failed.iter().find_map(|file| match &*file.failure.borrow() {
            Some(Failure::NotDestaged(error)) => Some(error.clone()),
            _ => None,
        });
        let stuck = if is_stuck { self.files.stuck().into_iter().next() } else { None };
        let why = why.or(stuck.map(|file| StoreError::Failed {
            store: self.store.name().into(),
            what: format!("bringing file {} to it, which does not return,", file.id.0),
            code: EIO,
        }));
        let log = self.log();
        if why.is_some() != log.refusal().is_some() {
            log.refuse(why);
            self.drained.notify();
        }
    }

    // Memory

    pub(crate) fn is_memory_short(&self) -> bool {
        self.files.held_bytes() > self.options.dirty_bytes_max
    }
    /// Waits until a write of `bytes` keeps memory within `dirty=` and a quarter. The caller must
    /// hold no file.
    pub(crate) async fn memory(&self, bytes: usize) -> Result<(), HostError> {
        let bound = self.options.dirty_bytes_max;
        let has_space = || {
            let held = self.files.held_bytes();
            held <= bound || held + bytes as u64 <= bound + bound / MEMORY_OVER
        };
        if has_space() || units::fault!("host-memory-unbounded") {
            return Ok(());
        }
        self.many_dirty.notify();
        let may_go_on = || {
            if self.check().is_err() || self.closing.get() || has_space() {
                return Some(Ok(()));
            }
            self.log().refusal().map(|why| Err(HostError::NoRoom(why)))
        };
        self.drained.until(may_go_on).await
    }

    // A store that forgets what failed

    /// Reconnects when the store has space again: the journal has what the store has forgotten.
    pub(crate) async fn retry_elsewhere(self: &Rc<Self>) {
        if self.store.keeps_failed_writes() || self.options.reconnect.is_none() {
            return;
        }
        let now = self.world.now();
        let is_full = |file: &Rc<File>| {
            let failure = file.failure.borrow();
            let Some(Failure::NotDestaged(error)) = &*failure else { return false };
            error.errno() == Refusal::NoSpace.errno()
        };
        let due: Vec<_> = self.files.failed().into_iter().filter(is_full).collect();
        if due.is_empty() || !due.iter().any(|file| file.may_go(now)) {
            return;
        }
        due.iter().for_each(|file| file.put_off(now));
        let wanted: u64 = self.files.held_bytes();
        // A store that cannot report its space, or not in time, counts as full.
        let until = self.world.now().plus(SPACE_MAX);
        let answer = race(self.store.space(), self.world.sleep_until(until)).await;
        let Either::Left(Ok(space)) = answer else { return };
        let available = space.blocks_available.saturating_mul(space.block_bytes.into());
        if available <= wanted.saturating_mul(2) {
            return;
        }
        let held = self.hold_given_up().await;
        if held.is_some() && self.check().is_ok() {
            self.lose("the store has space again: what it did not take is replayed");
        }
    }

    /// Holds all given-up files at once, whatever they were refused for: their records are in the
    /// log that is replayed. `None` if another client keeps or wants one of them: then a new
    /// connection could not replay it, and the host would have no way to any other file.
    async fn hold_given_up(self: &Rc<Self>) -> Option<Vec<HeldAgain>> {
        let given_up = self.files.failed().into_iter().filter(|file| file.is_given_up.get());
        let until = self.world.now().plus(DESTAGE_MAX);
        let mut held: Vec<HeldAgain> = Vec::new();
        for file in given_up {
            let host = self.clone();
            let mut holding =
                spawn_with_result(&*self.world, async move { host.hold_again(file).await });
            let result = loop {
                let pause = self.world.sleep_until(self.world.now().plus(LOOK));
                match race(&mut holding, pause).await {
                    Either::Left(result) => break result.unwrap_or(Err(())),
                    Either::Right(()) => {}
                }
                // A token that is not returned in time ends the connection for every file.
                let is_wanted = held.iter().any(|held| held.file.recalled.get());
                if is_wanted || self.world.now() >= until {
                    break Err(());
                }
            };
            match result {
                Ok(one) => held.extend(one),
                Err(()) => {
                    let host = self.clone();
                    self.world.spawn(Box::pin(async move {
                        host.release(held).await;
                        if let Some(Ok(one)) = holding.await {
                            host.release(one).await;
                        }
                    }));
                    return None;
                }
            }
            if units::fault!("host-refused-file-released") {
                self.release(std::mem::take(&mut held)).await;
            }
        }
        let is_wanted = held.iter().any(|held| held.file.recalled.get());
        if is_wanted {
            self.release(held).await;
            return None;
        }
        Some(held)
    }

    /// Holds a given-up file. `None` if nothing of it is to be held; an error if another client
    /// keeps it.
    async fn hold_again(self: Rc<Self>, file: Rc<File>) -> Result<Option<HeldAgain>, ()> {
        let _busy = self.busy();
        let guard = file.lock.write().await;
        let tried = async {
            self.give_up_token(&file).await?;
            let open = self.noted(self.store.open(file.id, OpenMode::ReadWrite).await)?;
            let taken = self.noted(self.store.take_token(open, Token::ExclusiveWrite).await);
            if taken.is_err() {
                self.noted(self.store.close(open).await)?;
            }
            taken.map(|_| open)
        };
        // A file that has been removed or made read-only keeps nothing from being replayed. Any
        // other answer may come again, on the new connection, too.
        let is_replayed = |error: &HostError| {
            let HostError::Store(StoreError::Refused(refusal)) = error else { return false };
            matches!(
                refusal,
                Refusal::NotFound
                    | Refusal::Stale
                    | Refusal::IsDirectory
                    | Refusal::AccessDenied
                    | Refusal::ReadOnly
            )
        };
        match tried.await {
            Ok(open) => Ok(Some(HeldAgain { file: file.clone(), open, _guard: guard })),
            Err(error) if is_replayed(&error) => Ok(None),
            Err(_) => Err(()),
        }
    }
    async fn release(&self, held: impl IntoIterator<Item = HeldAgain>) {
        let _busy = self.busy();
        for HeldAgain { file, open, _guard } in held {
            // Errors are those of the connection.
            let _ = self.noted(self.store.return_token(file.id).await);
            let _ = self.noted(self.store.close(open).await);
        }
    }
}
