//! Files go to the store: when they are old, when the journal or memory is short, and when another
//! wants them. Which of them go now: [`crate::destage_choice`].
//!
//! The order for one file, under its lock. Its states are in the journal, the store makes it
//! durable, its slot is freed, and the journal makes that durable. Only then it is written again,
//! or its token is returned.

use crate::destage_choice::{GiveWay, LoggedFacts, due, for_journal, share_of};
use crate::error::HostError;
use crate::files::{Dirty, File};
use crate::host::Host;
use crate::options::Destage;
use runtime::{Either, join_window, race};
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use store::{StoreEvent, Token};
use units::Instant;

/// Files on their way at once.
const FILES_AT_ONCE: usize = 64;
/// What is done with one file. What goes wrong is noted elsewhere, so that the others go on.
pub(crate) type Work<'a> = Pin<Box<dyn Future<Output = Result<(), ()>> + 'a>>;
/// Between two looks under pressure.
const PAUSE: Duration = Duration::from_millis(10);
/// How long a file that others want stays closed at the store, if nobody reads it.
const CLOSED: Duration = Duration::from_secs(2);
/// When nothing can go to the store.
const STUCK: Duration = Duration::from_secs(1);
/// How often failed files are looked for.
const LOOK: Duration = Duration::from_secs(5);

/// The oldest of them.
fn to_store(files: Vec<(Dirty, Rc<File>)>, count: usize) -> Vec<(Rc<File>, GiveWay)> {
    files.into_iter().take(count).map(|(_, file)| (file, GiveWay::ToStore)).collect()
}

/// So many at once.
pub(crate) async fn at_once(work: Vec<Work<'_>>, limit: usize) {
    let _ = join_window(work, limit).await;
}

impl Host {
    /// The file's lock is held for writing. Its slot is freed, durably: what comes next builds on
    /// what the store has now. And who has the token next may change the file: no recovery may find
    /// our records of it then.
    pub(crate) async fn bring_home(&self, file: &File) -> Result<(), HostError> {
        self.check()?;
        if !self.may_try_again(file) {
            self.check_file(file)?;
        }
        let Some(dirty) = file.dirty.get() else { return Ok(()) };
        // The store may give up any of these states from here on: a crash must find them in the
        // journal.
        if !units::fault!("host-state-not-journaled") {
            self.log().commit(dirty.last).await?;
        }
        let open = file.open.get().expect("a dirty file is open at the store");
        if units::fault!("host-freed-too-early") {
            self.log().free(dirty.slot);
            self.log().commit_all().await?;
        }
        // Where the store forgets what failed, a second try that succeeds would prove nothing. The
        // journal has it all.
        self.noted_with(file, self.store.make_durable(open).await)?;
        self.succeeded(file).await?;
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

    /// Before a write up to `end`, under the file's lock. When a file outgrows its room at the
    /// store, the store tells its servers of the file's state. That state may not be in the journal
    /// yet. So the file is brought home first: the servers are told of a state that they have.
    pub(crate) async fn make_room(&self, file: &File, end: u64) -> Result<(), HostError> {
        let told = file.told.get();
        let home = file.dirty.get().map_or(told, |dirty| dirty.base);
        let is_fault = units::fault!("host-outgrows-its-room");
        if !is_fault && end > told.size && end >= self.store.held_below(home.size) {
            self.bring_home(file).await?;
        }
        Ok(())
    }

    /// The store may be in a state that it has not told. What it can make durable is the new
    /// beginning; the lock is held.
    pub(crate) async fn settle_untold(&self, file: &File) -> Result<(), HostError> {
        self.check()?;
        if let Some(dirty) = file.dirty.get() {
            self.log().commit(dirty.last).await?;
        }
        let Some(open) = file.open.get() else { return Ok(()) };
        self.noted_with(file, self.store.make_durable(open).await)?;
        file.told.set(self.noted(self.store.attributes(file.id).await)?.version);
        if let Some(dirty) = file.dirty.get() {
            self.log().free(dirty.slot);
            self.files.set_dirty(file, None);
            self.drained.notify();
        }
        self.log().commit_all().await
    }

    pub(crate) async fn destage(&self, file: &Rc<File>) -> Result<(), HostError> {
        let guard = file.lock.write().await;
        self.bring_home(file).await?;
        drop(guard);
        self.let_go(file).await
    }

    /// All files, and nobody writes any more. To make each durable has Ceph's metadata server write
    /// its journal as often. So all contents go first, then the attributes of all at once; then
    /// there is little left to make durable.
    pub(crate) async fn bring_all_home(&self) -> Result<(), HostError> {
        self.check()?;
        self.closing.set(true);
        self.departures.changed.notify();
        let files = self.files.all();
        for file in &files {
            // What has begun ends, with its state in the log.
            drop(file.lock.write().await);
        }
        self.check()?;
        if self.files.has_more_dirty(1) {
            // As for one file: the store may give up any state of any file from here on.
            if !units::fault!("host-flushed-before-journal") {
                self.log().commit_all().await?;
            }
            let contents = files.iter().map(|file| -> Work<'_> {
                Box::pin(async move {
                    self.send_content(file).await;
                    Ok(())
                })
            });
            at_once(contents.collect(), FILES_AT_ONCE).await;
            self.check()?;
            self.noted(self.store.send_attributes().await)?;
        }
        let failed = RefCell::new(None);
        let told = &failed;
        let work = files.iter().map(|file| -> Work<'_> {
            Box::pin(async move {
                let _guard = file.lock.write().await;
                if let Err(error) = self.bring_home(file).await {
                    told.borrow_mut().get_or_insert(error);
                }
                Ok(())
            })
        });
        at_once(work.collect(), FILES_AT_ONCE).await;
        failed.take().map_or(Ok(()), Err)
    }
    /// What goes wrong is noted with the file.
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
                    // Before anyone else runs: nobody begins to write any more.
                    if !file.recalled.replace(true) {
                        self.lease.begin_recall(file.id);
                        self.forget_kept(&file);
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
        // What goes wrong here is noted with the file or the connection, and told by the next sync.
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
        // The servers hear of all that was told with the recall, and a write under way may have the
        // store give the token back.
        if let Some(dirty) = file.dirty.get() {
            self.log().commit(dirty.last).await?;
        }
        self.noted(self.store.acknowledge_recall(file.id).await)?;
        let _guard = file.lock.write().await;
        self.bring_home(file).await?;
        let held = self.end_token(file);
        self.noted(self.store.return_token(file.id).await)?;
        match held {
            Some(Token::SharedRead | Token::ExclusiveWrite) => self.close_for_others(file).await,
            _ => Ok(()),
        }
    }

    /// Some stores give nobody an exclusive token of a file that a client has open. So one that is
    /// only read, such as by `tail -f`, or written in turns, is closed there: until the next read
    /// or write, and for a moment at most. Another may take its last name meanwhile, and nobody
    /// opens it then. A recall may come with that. The store tells how many names are left when it
    /// is done. Locks of programs hang on what is open.
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
                // As a read does. Who cannot open it is told so with the next one.
                let _ = self.hold(&file, Token::SharedRead).await;
            }
        }
        let _ = self.let_go(&file).await;
    }

    // Age and pressure

    pub(crate) async fn flush_journal(self: Rc<Self>) {
        let _busy = self.busy();
        while self.pause(self.options.journal_flush).await {
            // A failure is told by the next sync.
            let _ = self.log().commit_all().await;
        }
    }

    /// False: it is over.
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
            let crowded =
                self.crowd.until(|| (self.is_crowded(1) || self.is_memory_short()).then_some(()));
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
                    self.retry_elsewhere().await;
                }
                Either::Right(false) => return,
            }
        }
    }

    fn is_crowded(&self, times: usize) -> bool {
        self.files.has_more_dirty(times * self.options.dirty_files_max)
    }
    /// Whoever closes a file need not wait for others', as long as these go to the store fast
    /// enough.
    pub(crate) async fn leave_crowd(&self) {
        if !self.is_crowded(1) {
            return;
        }
        self.crowd.notify();
        let dirty = if self.is_crowded(2) { self.files.dirty() } else { Vec::new() };
        if let Some((_, oldest)) = dirty.iter().find(|(_, file)| file.failure.borrow().is_none()) {
            // What goes wrong is the oldest file's, and told by its next sync.
            let _ = self.destage(oldest).await;
        }
    }

    /// What memory has no room for, and old files if they are looked for. False: there was nothing.
    async fn destage_due(&self, by_age: bool) -> bool {
        let expire = match self.options.destage {
            Destage::After(age) if by_age => Some(age),
            _ => None,
        };
        let now = self.world.now();
        let (again, files): (Vec<_>, Vec<_>) =
            self.files.dirty().into_iter().partition(|(_, file)| file.has_failed());
        let kept: u64 = again.iter().map(|(_, file)| file.held_bytes()).sum();
        let known: Vec<(Instant, u64)> =
            files.iter().map(|(dirty, file)| (dirty.since, file.held_bytes())).collect();
        let most = self.options.dirty_bytes_max.saturating_sub(kept);
        let count = due(&known, now, expire, most);
        let mut chosen = to_store(files, count);
        chosen.extend(self.due_again(&again));
        let is_some = !chosen.is_empty();
        self.give_way_all(chosen).await;
        is_some
    }

    /// The journal or memory is short, or too many files are dirty. False: nothing could be done.
    async fn relieve(&self) -> bool {
        let (failed, files): (Vec<_>, Vec<_>) =
            self.files.dirty().into_iter().partition(|(_, file)| file.has_failed());
        let mut chosen = self.due_again(&failed);
        if self.log().is_short() {
            chosen.extend(self.give_way_to_journal(&files));
        } else if self.is_crowded(1) {
            let count = share_of(files.len());
            chosen.extend(to_store(files, count));
        }
        let mut did_something = !chosen.is_empty();
        self.give_way_all(chosen).await;
        if self.is_memory_short() {
            did_something |= self.destage_due(false).await;
        }
        // What has just failed may hold the tail, and others fill the log soon.
        did_something |= self.carry_on_failed().await;
        // With the revokes the tail moves.
        let _ = self.log().commit_all().await;
        self.refuse_if_stuck(did_something);
        did_something
    }

    fn give_way_to_journal(&self, files: &[(Dirty, Rc<File>)]) -> Vec<(Rc<File>, GiveWay)> {
        let log = self.log();
        let facts = files.iter().map(|(dirty, file)| LoggedFacts {
            slot_since: dirty.slot_since,
            held_bytes: file.held_bytes(),
            logged_bytes: log.logged_bytes(dirty.slot),
            may_be_logged_anew: self.may_be_logged_anew(file, dirty),
        });
        let chosen = for_journal(&facts.collect::<Vec<_>>()).into_iter();
        chosen.map(|(file, way)| (files[file].1.clone(), way)).collect()
    }

    async fn give_way_all(&self, files: Vec<(Rc<File>, GiveWay)>) {
        let work = files.iter().map(|(file, way)| -> Work<'_> {
            Box::pin(async move {
                // Noted with the file or the connection.
                let _ = match way {
                    GiveWay::ToStore => self.destage(file).await,
                    GiveWay::LoggedAnew => self.log_anew_or_destage(file).await,
                };
                Ok(())
            })
        });
        at_once(work.collect(), FILES_AT_ONCE).await;
    }
}
