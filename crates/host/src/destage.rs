//! Destages files to the store: when they are old, when the journal or memory is short, or when
//! another client wants them. [`crate::destage_choice`] decides which files go.
//!
//! Each file is destaged in this order, under its lock: its states are in the journal; the store
//! makes it durable; its slot is freed; the journal makes that durable. Only then is the file
//! written again or its token returned.

use crate::destage_choice::{DestageChoice, LoggedFacts, count_expired, for_journal, share_of};
use crate::error::HostError;
use crate::files::{Dirty, File};
use crate::host::Host;
use crate::options::Destage;
use runtime::{Either, join_window, race, spawn_with_result};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use store::{StoreEvent, Token};
use units::Instant;

/// Files destaged at once.
pub(crate) const FILES_AT_ONCE: usize = 64;
/// The work on one file. Its errors are recorded with the file, so that the others go on.
pub(crate) type Work<'a> = Pin<Box<dyn Future<Output = Result<(), ()>> + 'a>>;
type DirtyFiles = Vec<(Dirty, Rc<File>)>;
/// Pause between two checks under pressure.
const PAUSE: Duration = Duration::from_millis(10);
/// Time for which a file that another client wants stays closed at the store, if nobody reads it.
const CLOSED: Duration = Duration::from_secs(2);
/// Pause when nothing can be destaged.
const STUCK: Duration = Duration::from_secs(1);
/// Interval at which failed files are looked for.
const LOOK: Duration = Duration::from_secs(5);

/// Chooses the oldest `count` files.
fn to_store(files: Vec<(Dirty, Rc<File>)>, count: usize) -> Vec<(Rc<File>, DestageChoice)> {
    files.into_iter().take(count).map(|(_, file)| (file, DestageChoice::ToStore)).collect()
}

/// Time for which other files wait for one that is destaged.
pub(crate) const DESTAGE_MAX: Duration = Duration::from_secs(30);

/// Runs all work, at most `limit` pieces at once.
pub(crate) async fn at_once(work: Vec<Work<'_>>, limit: usize) {
    let _ = join_window(work, limit).await;
}

impl Host {
    /// Destages a file whose lock the caller holds for writing, and frees its slot durably. What
    /// follows builds on the store's present state, and the next holder of the token may change the
    /// file: no recovery may find our records of it then.
    pub(crate) async fn destage_locked(&self, file: &File) -> Result<(), HostError> {
        self.check()?;
        if !self.may_try_again(file) {
            self.check_file(file)?;
        }
        let Some(dirty) = file.dirty.get() else { return Ok(()) };
        // From here on the store may write back any of these states: after a crash they must be
        // found in the journal.
        if !units::fault!("host-state-not-journaled") {
            self.log().commit(dirty.last).await?;
        }
        let open = file.open.get().expect("a dirty file is open at the store");
        if units::fault!("host-freed-too-early") {
            self.log().free(dirty.slot);
            self.log().commit_all().await?;
        }
        // Where the store forgets a failed write, a second flush that succeeds proves nothing. The
        // journal still has everything.
        self.flush_or_set_aside(file, open, dirty).await?;
        self.succeeded(file).await?;
        file.was_taken_over.set(false);
        self.log().free(dirty.slot);
        let bytes = file.ranges.borrow().bytes();
        self.files.set_dirty(file, None);
        self.drained.notify();
        self.count(|counters| {
            counters.destaged_bytes += bytes;
            counters.destaged_files += 1;
        });
        if units::fault!("host-token-before-revoke") {
            return Ok(());
        }
        self.log().commit_all().await
    }

    /// Destages a file before a write up to `end`, under the file's lock, if the write outgrows the
    /// size that the servers granted. The store would then report the file's state to its servers,
    /// and that state may not be in the journal yet.
    pub(crate) async fn destage_before_growth(
        &self,
        file: &File,
        end: u64,
    ) -> Result<(), HostError> {
        let reported = file.reported.get();
        let home = file.dirty.get().map_or(reported, |dirty| dirty.base);
        let is_fault = units::fault!("host-outgrows-its-grant");
        if !is_fault && end > reported.size && end >= self.store.held_below(home.size) {
            self.destage_locked(file).await?;
        }
        Ok(())
    }

    /// Settles a file whose store may be in a state that it has not reported: makes it durable and
    /// builds on that state. The caller holds the lock.
    pub(crate) async fn settle_unreported(&self, file: &File) -> Result<(), HostError> {
        self.check()?;
        if let Some(dirty) = file.dirty.get() {
            self.log().commit(dirty.last).await?;
        }
        let Some(open) = file.open.get() else { return Ok(()) };
        match file.dirty.get() {
            Some(dirty) => self.flush_or_set_aside(file, open, dirty).await?,
            None => self.noted_with(file, self.store.make_durable(open).await)?,
        }
        file.reported.set(self.noted(self.store.attributes(file.id).await)?.version);
        if let Some(dirty) = file.dirty.get() {
            self.log().free(dirty.slot);
            self.files.set_dirty(file, None);
            self.drained.notify();
        }
        self.log().commit_all().await
    }

    pub(crate) async fn destage(&self, file: &Rc<File>) -> Result<(), HostError> {
        let guard = file.lock.write().await;
        self.destage_locked(file).await?;
        drop(guard);
        self.let_go(file).await
    }

    /// Destages all files; no file is written any more. On Ceph making a file durable costs one
    /// journal write of the metadata server. So all contents are sent first, then the attributes of
    /// all files together, which leaves little to make durable.
    pub(crate) async fn destage_all(self: &Rc<Self>) -> Result<(), HostError> {
        self.check()?;
        self.closing.set(true);
        self.departures.changed.notify();
        let late = RefCell::new(Vec::new());
        let waits = self.files.in_use().into_iter().map(|file| -> Work<'_> {
            let late = &late;
            Box::pin(async move {
                if !self.is_free(&file).await {
                    late.borrow_mut().push(file);
                }
                Ok(())
            })
        });
        at_once(waits.collect(), FILES_AT_ONCE).await;
        let late = late.take();
        let is_late = |file: &Rc<File>| late.iter().any(|late| Rc::ptr_eq(late, file));
        let files: Vec<_> = self.files.in_use().into_iter().filter(|file| !is_late(file)).collect();
        let result = self.destage_together(&files, late.is_empty()).await;
        // Those whose task does not return must not keep the others from the store.
        let last = if late.is_empty() { Ok(()) } else { self.destage_together(&late, false).await };
        result.and(last)
    }
    /// Waits until a write that has begun has ended, with its state in the log. Returns false if a
    /// task holds the file too long.
    async fn is_free(&self, file: &File) -> bool {
        if file.is_stuck.get() {
            return false;
        }
        let until = self.world.now().plus(DESTAGE_MAX);
        let is_free =
            matches!(race(file.lock.write(), self.world.sleep_until(until)).await, Either::Left(_));
        if is_free {
            self.note_progress();
        }
        is_free
    }
    /// Destages files together; `is_all` if no other file is dirty. Otherwise attributes go with
    /// each file alone: a store that sends those of all files sends contents along, whose errors
    /// are lost, and a state whose write has not ended, which the journal does not have.
    async fn destage_together(
        self: &Rc<Self>,
        files: &[Rc<File>],
        is_all: bool,
    ) -> Result<(), HostError> {
        self.check()?;
        if self.files.has_more_dirty(1) {
            // As for one file: from here on the store may write back any state of any file.
            if !units::fault!("host-flushed-before-journal") {
                self.log().commit_all().await?;
            }
            let all_sent = Cell::new(true);
            let contents = files.iter().map(|file| -> Work<'_> {
                let all_sent = &all_sent;
                Box::pin(async move {
                    let (host, one) = (self.clone(), file.clone());
                    let sent = self.bounded(async move {
                        host.send_content(&one).await;
                        host.note_progress();
                    });
                    if sent.await.is_none() {
                        all_sent.set(false);
                    }
                    Ok(())
                })
            });
            at_once(contents.collect(), FILES_AT_ONCE).await;
            self.check()?;
            if (is_all && all_sent.get()) || units::fault!("host-attributes-before-content") {
                let store = self.store.clone();
                // What is not sent now is sent with each file.
                if let Some(sent) = self.bounded(async move { store.send_attributes().await }).await
                {
                    self.noted(sent)?;
                }
            }
        }
        let failed = RefCell::new(None);
        let reported = &failed;
        let work = files.iter().map(|file| -> Work<'_> {
            Box::pin(async move {
                let _guard = file.lock.write().await;
                match self.destage_locked(file).await {
                    // Reported already, and nothing is left to be done for the file.
                    Err(HostError::SetAside(_)) | Ok(()) => {}
                    Err(error) => drop(reported.borrow_mut().get_or_insert(error)),
                }
                self.note_progress();
                Ok(())
            })
        });
        at_once(work.collect(), FILES_AT_ONCE).await;
        failed.take().map_or(Ok(()), Err)
    }
    /// Sends the content of a file. Errors are recorded with the file.
    async fn send_content(&self, file: &Rc<File>) {
        let _guard = file.lock.write().await;
        let (Some(_), Some(open)) = (file.dirty.get(), file.open.get()) else { return };
        if self.check_file(file).is_ok() {
            let _ = self.noted_with(file, self.store.send_content(open).await);
        }
    }

    // Recall

    pub(crate) async fn watch_store(self: Rc<Self>) {
        let _busy = self.busy();
        loop {
            let ended =
                self.ended.until(|| (self.closed.get() || self.check().is_err()).then_some(()));
            match race(self.store.next_event(), ended).await {
                Either::Right(()) => return,
                Either::Left(StoreEvent::Recall { file, .. }) => {
                    self.creations.note_recall(file);
                    let file = self.files.get_or_new(file);
                    // Set before any other task runs: no write starts from now on.
                    if !file.recalled.replace(true) {
                        file.recalls.set(file.recalls.get() + 1);
                        self.lease.begin_recall(file.id);
                        self.invalidate_attributes(&file);
                        self.count(|counters| counters.recalls += 1);
                        self.world.spawn(Box::pin(self.clone().give_back(file)));
                    }
                }
                Either::Left(StoreEvent::Disconnected { fenced }) => {
                    let why = if fenced {
                        "the store has fenced this host"
                    } else {
                        "the store is out of reach"
                    };
                    self.lose(why);
                }
                Either::Left(StoreEvent::Changed { .. }) => {}
            }
        }
    }

    async fn give_back(self: Rc<Self>, file: Rc<File>) {
        let _busy = self.busy();
        // Errors are recorded with the file or the connection, and reported by the next sync.
        let _ = self.try_give_back(&file).await;
        self.lease.end_recall(file.id);
        file.recalled.set(false);
        file.returned.notify();
        let _ = self.let_go(&file).await;
    }

    async fn try_give_back(self: &Rc<Self>, file: &Rc<File>) -> Result<(), HostError> {
        if units::fault!("host-recall-acknowledged-early") {
            self.noted(self.store.acknowledge_recall(file.id).await)?;
        }
        // The recall makes the store send every reported state to the servers, and a write in
        // flight may make it return the token.
        if let Some(dirty) = file.dirty.get() {
            self.log().commit(dirty.last).await?;
        }
        self.noted(self.store.acknowledge_recall(file.id).await)?;
        let _guard = file.lock.write().await;
        match self.destage_locked(file).await {
            // The other client must not wait for programs here that have the file open.
            Err(_)
                if file.dirty.get().is_none() && !units::fault!("host-clean-file-not-returned") =>
            {
                self.check()?;
                self.log().check()?
            }
            Err(error) => self.give_up(file, error)?,
            Ok(()) => {}
        }
        let held = self.end_token(file);
        let handed_back = self.hand_back(file).await;
        if !file.is_given_up.get() {
            handed_back?;
        }
        match held {
            Some(Token::SharedRead | Token::ExclusiveWrite) => self.close_for_others(file).await,
            _ => Ok(()),
        }
    }

    /// Closes a file at the store for other clients. Some stores grant no exclusive token of a file
    /// that a client has open. So a file that is only read, such as by `tail -f`, or written
    /// alternately, is closed until the next read or write, for [`CLOSED`] at most. Another client
    /// may remove its last name during that time, and then nobody opens it; a recall may follow,
    /// and the store reports how many names are left when it is done. Files with program locks stay
    /// open, because the locks belong to the open file.
    async fn close_for_others(self: &Rc<Self>, file: &Rc<File>) -> Result<(), HostError> {
        let stays = !self.store.wants_files_closed() || !file.locks.is_empty();
        if stays
            || file.open.get().is_none()
            || self.noted(self.store.attributes(file.id).await)?.links == 0
        {
            return Ok(());
        }
        let Some(open) = file.open.take() else { return Ok(()) };
        if file.opens.get() > 0 {
            self.world.spawn(Box::pin(self.clone().open_again(file.clone())));
        }
        self.noted(self.store.close(open).await)
    }
    async fn open_again(self: Rc<Self>, file: Rc<File>) {
        let _busy = self.busy();
        if self.pause(CLOSED).await {
            let _guard = file.lock.write().await;
            let is_closed = file.open.get().is_none() && file.token.get().is_none();
            if is_closed && file.opens.get() > 0 && !file.recalled.get() {
                // As for a read. If it cannot be opened, the next operation returns the error.
                let _ = self.hold(&file, Token::SharedRead).await;
            }
        }
        let _ = self.let_go(&file).await;
    }

    // Age and pressure

    pub(crate) async fn flush_journal(self: Rc<Self>) {
        let _busy = self.busy();
        while self.pause(self.options.journal_flush).await {
            // The next sync reports a failure.
            let _ = self.log().commit_all().await;
        }
    }

    /// Pauses for `time`. Returns false if the connection or the host has ended.
    async fn pause(&self, time: Duration) -> bool {
        let is_over = || self.closed.get() || self.check().is_err();
        let until = self.world.now().plus(time);
        let ended = self.ended.until(|| is_over().then_some(()));
        race(self.world.sleep_until(until), ended).await;
        !is_over()
    }

    pub(crate) async fn destage_task(self: Rc<Self>) {
        let _busy = self.busy();
        let (log, writeback) = (self.log(), self.options.writeback);
        let mut look_at = self.world.now().plus(writeback);
        loop {
            let crowded = self
                .many_dirty
                .until(|| (self.has_too_many_dirty(1) || self.is_memory_short()).then_some(()));
            let pressed = race(log.until_short(), crowded);
            let pause = LOOK.min(look_at.since(self.world.now()));
            match race(pressed, self.pause(pause)).await {
                Either::Left(_) => {
                    let did_something = self.relieve().await;
                    self.retry_elsewhere().await;
                    if !self.pause(if did_something { PAUSE } else { STUCK }).await {
                        return;
                    }
                }
                Either::Right(true) => {
                    let now = self.world.now();
                    let is_time = now >= look_at;
                    if is_time {
                        look_at = now.plus(writeback);
                    }
                    self.destage_due(is_time).await;
                    self.return_kept_tokens().await;
                    self.retry_elsewhere().await;
                }
                Either::Right(false) => return,
            }
        }
    }

    fn has_too_many_dirty(&self, times: usize) -> bool {
        self.files.has_more_dirty(times * self.options.dirty_files_max)
    }
    /// Bounds the number of dirty files. A program that closes a file does not wait for other files
    /// as long as these are destaged fast enough.
    pub(crate) async fn limit_dirty_files(&self) {
        if !self.has_too_many_dirty(1) {
            return;
        }
        self.many_dirty.notify();
        if !self.has_too_many_dirty(2) {
            return;
        }
        let may_go =
            |file: &File| file.failure.borrow().is_none() && file.destaging.get().is_none();
        // No reference to the others is left, which would keep tasks from forgetting them.
        let oldest = self.files.dirty().into_iter().find(|(_, file)| may_go(file));
        if let Some((_, oldest)) = oldest {
            // Errors belong to the oldest file and are reported by its next sync.
            let _ = self.destage(&oldest).await;
        }
    }

    /// Destages what exceeds the memory bound, and old files if `by_age`. Returns false if there
    /// was nothing to destage.
    async fn destage_due(self: &Rc<Self>, by_age: bool) -> bool {
        let expire = match self.options.destage {
            Destage::After(age) if by_age => Some(age),
            _ => None,
        };
        let now = self.world.now();
        let (away, dirty) = self.dirty_by_task();
        let (again, files): (Vec<_>, Vec<_>) =
            dirty.into_iter().partition(|(_, file)| file.has_failed());
        let kept: u64 = again.iter().chain(&away).map(|(_, file)| file.held_bytes()).sum();
        let known: Vec<(Instant, u64)> =
            files.iter().map(|(dirty, file)| (dirty.since, file.held_bytes())).collect();
        let most = self.options.dirty_bytes_max.saturating_sub(kept);
        let count = count_expired(&known, now, expire, most);
        let mut chosen = to_store(files, count);
        chosen.extend(self.due_again(&again));
        let is_some = !chosen.is_empty();
        // Files are forgotten where no other reference is left.
        drop((away, again));
        self.carry_out(chosen).await;
        is_some
    }

    /// Destages or relogs files when the journal or memory is short, or too many files are dirty.
    /// Returns false if nothing could be done.
    async fn relieve(self: &Rc<Self>) -> bool {
        let chosen = self.choose_for_relief();
        let mut did_something = !chosen.is_empty();
        self.carry_out(chosen).await;
        if self.is_memory_short() {
            did_something |= self.destage_due(false).await;
        }
        // A file that has just failed may hold the tail, and other files will soon fill the log.
        did_something |= self.carry_on_failed().await;
        // The tail moves with the revokes.
        let _ = self.log().commit_all().await;
        self.refuse_if_stuck(did_something);
        did_something
    }

    fn choose_for_relief(&self) -> Vec<(Rc<File>, DestageChoice)> {
        let (failed, files): (Vec<_>, Vec<_>) =
            self.dirty_by_task().1.into_iter().partition(|(_, file)| file.has_failed());
        let mut chosen = self.due_again(&failed);
        if self.log().is_short() {
            chosen.extend(self.choose_for_journal(&files));
        } else if self.has_too_many_dirty(1) {
            let count = share_of(files.len());
            chosen.extend(to_store(files, count));
        }
        chosen
    }
    fn choose_for_journal(&self, files: &[(Dirty, Rc<File>)]) -> Vec<(Rc<File>, DestageChoice)> {
        let log = self.log();
        let facts = files.iter().map(|(dirty, file)| LoggedFacts {
            slot_since: dirty.slot_since,
            held_bytes: file.held_bytes(),
            logged_bytes: log.logged_bytes(dirty.slot),
            may_be_relogged: self.may_be_relogged(file, dirty),
        });
        let chosen = for_journal(&facts.collect::<Vec<_>>()).into_iter();
        chosen.map(|(file, way)| (files[file].1.clone(), way)).collect()
    }

    /// Returns the dirty files that a task brings to the store, and the others.
    fn dirty_by_task(&self) -> (DirtyFiles, DirtyFiles) {
        let is_away = |(_, file): &(Dirty, Rc<File>)| {
            file.destaging.get().is_some() && !units::fault!("host-stuck-file-stops-all")
        };
        self.files.dirty().into_iter().partition(is_away)
    }

    /// Brings files to the store, each by a task of its own.
    async fn carry_out(self: &Rc<Self>, files: Vec<(Rc<File>, DestageChoice)>) {
        let work = files.into_iter().map(|(file, way)| -> Work<'_> {
            Box::pin(async move {
                self.carry_out_one(&file, way).await;
                // The task could not, beside this reference.
                self.files.forget(&file);
                Ok(())
            })
        });
        at_once(work.collect(), FILES_AT_ONCE).await;
    }
    /// Brings one file to the store. It is left to its task if the store does not answer for it
    /// within [`DESTAGE_MAX`]. Returns whether it has been done.
    pub(crate) async fn carry_out_one(
        self: &Rc<Self>,
        file: &Rc<File>,
        way: DestageChoice,
    ) -> bool {
        let (host, one) = (self.clone(), file.clone());
        let carried = self.bounded(async move { host.carry_out_alone(&one, way).await }).await;
        if carried.is_none() {
            self.note_stuck(file, DESTAGE_MAX);
        }
        carried.unwrap_or(false)
    }
    async fn carry_out_alone(&self, file: &Rc<File>, way: DestageChoice) -> bool {
        let _busy = self.busy();
        file.destaging.set(Some(self.world.now()));
        // Errors are recorded with the file or the connection.
        let carried = match way {
            DestageChoice::ToStore => self.destage(file).await.map(|()| true),
            DestageChoice::Relogged => self.relog_or_destage(file).await.map(|()| true),
            DestageChoice::RefusedRelogged => self.carry_on(file).await,
        };
        file.destaging.set(None);
        self.note_not_stuck(file);
        carried.unwrap_or(false)
    }
    /// Runs work in a task of its own. Returns its result, or `None` if that takes longer than
    /// [`DESTAGE_MAX`]: it goes on, and other files do not wait for it.
    pub(crate) async fn bounded<T: 'static>(
        &self,
        work: impl Future<Output = T> + 'static,
    ) -> Option<T> {
        let done = spawn_with_result(&*self.world, work);
        if units::fault!("host-stuck-file-stops-all") {
            return done.await;
        }
        match race(done, self.world.sleep_until(self.world.now().plus(DESTAGE_MAX))).await {
            Either::Left(result) => result,
            Either::Right(()) => None,
        }
    }
}
