//! The operations that a front end calls: reading, writing and syncing files of the store through
//! the journal. Names: `names`; destaging: `destage`; lost connections: `connection`.

use crate::creations::Creations;
use crate::departures::Departures;
use crate::error::HostError;
use crate::files::{Dirty, Failure, File, Files};
use crate::interrupt::{Interrupt, interruptible};
use crate::kept_tokens::KeptTokens;
use crate::lease::{StoreLease, while_answered};
use crate::log::{FileChange, HostLog, LogReservation};
use crate::options::HostOptions;
use crate::pauses::Pauses;
use crate::record::{BLOCK, Slot};
use crate::recover::{FileOutcome, HostRecoveryReport};
use crate::removals::Removals;
use crate::shared_lookups::SharedLookups;
use crate::stats::HostStatistics;
use crate::superblock::HostJournal;
use crate::unsynced_names::UnsyncedNames;
use device::World;
use runtime::spawn_after_first_step;
use runtime::sync::{Event, RwLock, WriteGuard};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use store::{
    Answer, FileAttributes, FileId, Found, OpenFile, OpenMode, Refusal, Store, StoreError, Token,
};
use units::{Instant, TransactionId};

/// Time for which a write waits for another client that extends the file: one that has died keeps
/// others out until its servers have ended its session.
const EXTENDER_MAX: Duration = Duration::from_secs(60);

/// Point at which a write is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durable {
    /// Durable within `journal_flush`.
    Soon,
    /// Durable before the reply.
    Now,
}

/// Offset of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    At(u64),
    /// The end of the file, as it is when this host has the token.
    End,
}

impl Position {
    /// Returns the position of a write to a descriptor. With O_APPEND `at` is only what this host's
    /// kernel takes for the end: another host may have extended the file.
    pub fn of_descriptor(at: u64, appends: bool) -> Position {
        match appends && !units::fault!("host-appends-where-the-kernel-says") {
            true => Position::End,
            false => Position::At(at),
        }
    }
}

/// A write of a program.
#[derive(Clone, Copy)]
pub struct HostWrite<'a> {
    pub position: Position,
    /// At most [`store::TRANSFER_BYTES_MAX`].
    pub bytes: &'a [u8],
    pub durable: Durable,
    /// Ends the write while it waits for something, until the store is asked to write: for a
    /// connection, the file, its token, or room in memory or in the log.
    pub interrupt: Option<&'a Interrupt>,
}

/// The attributes after a write, and the transaction that has its bytes, or `None` if the store has
/// them.
type Written = (FileAttributes, Option<TransactionId>);

/// Listener called after each recovery that the host started by itself.
type Listener = Box<dyn Fn(&HostRecoveryReport)>;

/// Reports errors for which no caller waits.
pub(crate) type Trouble = Box<dyn Fn(&str)>;

/// Makes the front end's kernel forget the attributes of a file; it has when this returns.
pub(crate) type Forget = Box<dyn Fn(FileId)>;

pub struct Host {
    pub(crate) world: Rc<dyn World>,
    pub(crate) store: Rc<dyn Store>,
    pub(crate) journal: HostJournal,
    /// The log of this connection: the next one begins a new log.
    pub(crate) log: RefCell<Rc<HostLog>>,
    pub(crate) options: HostOptions,
    pub(crate) files: Files,
    pub(crate) creations: Creations,
    pub(crate) departures: Departures,
    pub(crate) removals: Removals,
    pub(crate) unsynced_names: UnsyncedNames,
    pub(crate) kept_tokens: KeptTokens,
    pub(crate) attributes_asked: SharedLookups<FileId, Result<FileAttributes, StoreError>>,
    pub(crate) names_asked: SharedLookups<(FileId, Vec<u8>), Result<Found, StoreError>>,
    pub(crate) lease: StoreLease,
    /// Reason why the connection was lost.
    pub(crate) lost: RefCell<Option<String>>,
    /// Set when no file may change any more and everything is destaged.
    pub(crate) closing: Cell<bool>,
    pub(crate) closed: Cell<bool>,
    /// Set by [`Host::closed`] or when the connection is lost.
    pub(crate) ended: Event,
    /// Set when more files may be dirty than allowed.
    pub(crate) many_dirty: Event,
    /// Set when less is held in memory, or no caller gets more.
    pub(crate) drained: Event,
    /// Operations and tasks in flight on this connection.
    pub(crate) busy: Cell<usize>,
    pub(crate) idle: Event,
    /// Lock held while the connection is restored or closed.
    pub(crate) restoring: Rc<RwLock>,
    pub(crate) restored: Event,
    /// Outcomes of the files that were recovered since the connection was lost.
    pub(crate) fates: RefCell<BTreeMap<FileId, FileOutcome>>,
    /// Conflict files share a directory: one is made at a time.
    pub(crate) setting_aside: Rc<RwLock>,
    pub(crate) recovery_listener: RefCell<Option<Listener>>,
    /// Receives errors for which no caller waits.
    pub(crate) trouble: RefCell<Option<Trouble>>,
    pub(crate) forget: RefCell<Option<Forget>>,
    pub(crate) counters: Cell<HostStatistics>,
    /// Pieces of the unmount's work that have ended.
    pub(crate) unmounted_pieces: Cell<u64>,
}

impl Host {
    /// Opens a host. The journal must be recovered ([`crate::recover`]) with this store and this
    /// connection.
    pub async fn open(
        world: Rc<dyn World>,
        store: Rc<dyn Store>,
        journal: &HostJournal,
        options: HostOptions,
    ) -> Result<Rc<Host>, HostError> {
        let log = HostLog::open(world.clone(), journal, options.records).await?;
        let host = Rc::new(Host {
            world,
            store,
            journal: journal.clone(),
            log: RefCell::new(log),
            options,
            files: Files::default(),
            creations: Creations::default(),
            departures: Departures::default(),
            removals: Removals::default(),
            unsynced_names: UnsyncedNames::default(),
            kept_tokens: KeptTokens::default(),
            attributes_asked: SharedLookups::default(),
            names_asked: SharedLookups::default(),
            lease: StoreLease::default(),
            lost: RefCell::default(),
            closing: Cell::default(),
            closed: Cell::default(),
            ended: Event::default(),
            many_dirty: Event::default(),
            drained: Event::default(),
            busy: Cell::default(),
            idle: Event::default(),
            restoring: Rc::default(),
            restored: Event::default(),
            fates: RefCell::default(),
            setting_aside: Rc::default(),
            recovery_listener: RefCell::default(),
            trouble: RefCell::default(),
            forget: RefCell::default(),
            counters: Cell::default(),
            unmounted_pieces: Cell::default(),
        });
        host.begin_lease().await?;
        host.start_tasks();
        if host.options.reconnect.is_some() {
            host.world.spawn(Box::pin(host.clone().keep_connected()));
        }
        Ok(host)
    }

    pub(crate) fn log(&self) -> Rc<HostLog> {
        self.log.borrow().clone()
    }

    pub fn store(&self) -> &Rc<dyn Store> {
        &self.store
    }
    /// Returns how many files are open, dirty, or held by a token.
    pub fn known_files(&self) -> usize {
        self.files.all().len()
    }
    pub fn statistics(&self) -> HostStatistics {
        let log = self.log();
        let mut failed = self.files.failed();
        failed.extend(self.files.stuck().into_iter().filter(|file| !file.has_failed()));
        HostStatistics {
            failed_files: failed.len() as u64,
            failed_bytes: failed.iter().map(|file| file.ranges.borrow().bytes()).sum(),
            held_bytes: self.files.held_bytes(),
            ..self.counters.get().with_log(log.usage(), log.commits())
        }
    }
    pub(crate) fn count(&self, change: impl FnOnce(&mut HostStatistics)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Pauses a caller that knows no clock.
    pub async fn pause_for(&self, time: Duration) {
        self.world.sleep_until(self.world.now().plus(time)).await;
    }

    // Descriptors

    /// Opens an existing file for an application.
    pub async fn open_file(&self, id: FileId) -> Result<(), HostError> {
        let _busy = self.enter().await?;
        let file = self.files.keep(self.files.get_or_new(id));
        if self.store.reuses_numbers() && !units::fault!("host-number-not-held") {
            let _guard = file.lock.write().await;
            self.opened(&file).await?;
        }
        file.opens.set(file.opens.get() + 1);
        Ok(())
    }
    pub async fn close_file(&self, id: FileId) -> Result<(), HostError> {
        let Some(file) = self.files.get(id) else { return Ok(()) };
        file.opens.set(file.opens.get().saturating_sub(1));
        if file.opens.get() == 0 {
            file.forgive();
        }
        if self.check().is_err() {
            return Ok(());
        }
        let _busy = self.busy();
        self.drop_nameless(&file).await;
        self.let_go(&file).await?;
        self.limit_dirty_files().await;
        Ok(())
    }
    /// Returns the token and closes the file at the store, if it is neither open nor dirty, and
    /// does not keep its token.
    pub(crate) async fn let_go(&self, file: &Rc<File>) -> Result<(), HostError> {
        if !file.is_idle() || self.check().is_err() {
            return Ok(());
        }
        let guard = file.lock.write().await;
        let closed = self.close_idle(file).await;
        drop(guard);
        self.files.forget(file);
        closed
    }
    /// Does the same for a caller that holds the file's lock, and forgets nothing.
    pub(crate) async fn close_idle(&self, file: &File) -> Result<(), HostError> {
        if !file.is_idle() || self.check().is_err() {
            return Ok(());
        }
        let handed_back = self.give_up_token(file).await;
        // Also after an error: a later open must not get it.
        if let Some(open) = file.open.take() {
            self.noted(self.store.close(open).await)?;
        }
        handed_back
    }

    /// Takes a token; the caller holds the file's lock for writing. Returns the token that the file
    /// has then: `wanted`, a stronger one, or the one for shared writing where another client keeps
    /// the file.
    pub(crate) async fn hold(&self, file: &File, wanted: Token) -> Result<Token, HostError> {
        self.check()?;
        let wanted = self.token_beside_locks(file, wanted);
        let mut open = self.opened(file).await?;
        if file.is_read_only.get() && wanted != Token::SharedRead {
            // Its mode may have changed since.
            open = self.noted(self.store.open(file.id, OpenMode::ReadWrite).await)?;
            self.give_up_token(file).await?;
            let former = file.open.replace(Some(open));
            file.is_read_only.set(false);
            if let Some(former) = former {
                self.noted(self.store.close(former).await)?;
            }
        }
        match file.token.get() {
            Some(held) if held == wanted || held != Token::SharedRead => return Ok(held),
            Some(_) => {
                // Two hosts that both hold one for reading and wait for each other would deadlock.
                self.end_token(file);
                self.hand_back(file).await?;
            }
            None => {}
        }
        let (taken, attributes) = match self.store.take_token(open, wanted).await {
            Err(StoreError::TokenHeld) => (
                Token::SharedWrite,
                self.noted(self.store.take_token(open, Token::SharedWrite).await)?,
            ),
            result => (wanted, self.noted(result)?),
        };
        let is_taken_over = taken == Token::ExclusiveWrite && self.may_have_dead_owner(file).await;
        self.begin_token(file, taken, &attributes);
        file.was_taken_over.set(is_taken_over);
        Ok(taken)
    }

    /// Returns the open file at the store; the caller holds the file's lock for writing.
    pub(crate) async fn opened(&self, file: &File) -> Result<OpenFile, HostError> {
        if let Some(open) = file.open.get() {
            return Ok(open);
        }
        let opened = self.store.open(file.id, OpenMode::ReadWrite).await;
        let is_refused = matches!(
            opened,
            Err(StoreError::Refused(
                Refusal::AccessDenied | Refusal::ReadOnly | Refusal::Other(ETXTBSY)
            ))
        );
        let opened = match is_refused {
            true => self.store.open(file.id, OpenMode::Read).await,
            false => opened,
        };
        let open = self.noted(opened)?;
        file.open.set(Some(open));
        file.is_read_only.set(is_refused);
        Ok(open)
    }

    // Content

    pub async fn read(&self, id: FileId, at: u64, length: usize) -> Result<Vec<u8>, HostError> {
        loop {
            let _busy = self.enter().await?;
            match self.try_read(id, at, length).await {
                Err(error) if self.is_again(&error) => {}
                result => return result,
            }
        }
    }
    async fn try_read(&self, id: FileId, at: u64, length: usize) -> Result<Vec<u8>, HostError> {
        let file = self.files.get_or_new(id);
        loop {
            self.check()?;
            let guard = file.lock.read().await;
            if file.is_given_up.get() {
                self.check_file(&file)?;
            }
            if let (Some(_), Some(open)) = (file.token.get(), file.open.get()) {
                return self.noted(self.store.read(open, at, length).await);
            }
            drop(guard);
            file.until_returned().await;
            let _guard = file.lock.write().await;
            self.hold(&file, Token::SharedRead).await?;
        }
    }

    /// Writes `bytes`, at most [`store::TRANSFER_BYTES_MAX`]. The journal has all of them or none.
    pub async fn write(
        self: &Rc<Self>,
        id: FileId,
        at: u64,
        bytes: &[u8],
        durable: Durable,
    ) -> Result<FileAttributes, HostError> {
        let position = Position::At(at);
        self.write_at(id, HostWrite { position, bytes, durable, interrupt: None }).await
    }
    /// Appends at the end of the file, as it is when this host has the token: no other host extends
    /// the file in between.
    pub async fn append(
        self: &Rc<Self>,
        id: FileId,
        bytes: &[u8],
        durable: Durable,
    ) -> Result<FileAttributes, HostError> {
        let position = Position::End;
        self.write_at(id, HostWrite { position, bytes, durable, interrupt: None }).await
    }
    /// Writes as [`Host::write`] or [`Host::append`] does. EINTR: a signal ended a wait, and
    /// nothing was written.
    pub async fn write_at(
        self: &Rc<Self>,
        id: FileId,
        write: HostWrite<'_>,
    ) -> Result<FileAttributes, HostError> {
        if let Position::At(at) = write.position {
            end_of(at, write.bytes.len() as u64)?;
        }
        // Stays known while this waits: a recovery in between records in it what became of the
        // file.
        let file = self.files.get_or_new(id);
        let is_sent = Cell::new(false);
        loop {
            let busy = interruptible(write.interrupt, self.enter()).await??;
            let (attributes, last) = match self.try_write(&file, &write, &is_sent).await {
                Err(error) if error.is_lost() && is_sent.get() => {
                    return Err(self.unsure("a write", &error));
                }
                Err(error) if self.is_again(&error) => continue,
                result => result?,
            };
            let is_soon =
                write.durable == Durable::Soon || units::fault!("host-answered-before-commit");
            let Some(last) = last.filter(|_| !is_soon) else { return Ok(attributes) };
            match self.commit_proven(&file, last).await {
                Err(error) if self.is_again(&error) => drop(busy),
                result => return result.map(|()| attributes),
            }
            if units::fault!("host-append-repeated") {
                continue;
            }
            // The journal has it, and a recovery brings it to the store: it is not written again.
            return self.sync_file(id).await.map(|()| attributes);
        }
    }
    async fn commit_proven(
        self: &Rc<Self>,
        file: &Rc<File>,
        last: TransactionId,
    ) -> Result<(), HostError> {
        self.destage_takeover(file).await?;
        self.log().commit(last).await?;
        self.check_file(file)?;
        self.prove_lease().await
    }
    /// Takes the token for a write, and does what comes before it. The caller holds the file's
    /// lock. `None`: another client wants the file.
    async fn prepare_write(
        &self,
        file: &File,
        position: Position,
        length: usize,
    ) -> Result<Option<Token>, HostError> {
        if file.recalled.get() {
            return Ok(None);
        }
        // The store may have refused the file while this waited for the lock, and another client
        // may have it now: its old records must not get states that follow theirs.
        self.check_file(file)?;
        let token = self.hold(file, Token::ExclusiveWrite).await?;
        if !file.recalled.get() {
            self.drop_capabilities(file).await?;
        }
        if token == Token::ExclusiveWrite && !file.recalled.get() {
            let at = match position {
                Position::At(at) => at,
                Position::End => file.reported.get().size,
            };
            self.destage_before_growth(file, end_of(at, length as u64)?).await?;
        }
        Ok((!file.recalled.get()).then_some(token))
    }

    /// Has the store write. Where an append ends up is the store's to say: the token may be
    /// recalled before the write begins there.
    fn put(&self, open: OpenFile, position: Position, bytes: &[u8]) -> Answer<FileAttributes> {
        match position {
            Position::At(at) => self.store.write(open, at, bytes),
            Position::End => self.store.append(open, bytes),
        }
    }

    /// Returns where an append began, from the attributes after it: nothing else says it, and the
    /// journal's addresses come of it.
    fn begin_of_append(&self, after: &FileAttributes, length: u64) -> Result<u64, HostError> {
        let size = after.version.size;
        let at = size.checked_sub(length).filter(|at| end_of(*at, length).is_ok());
        let nonsense = || StoreError::Nonsense {
            store: self.store.name().into(),
            what: format!("{size} bytes for the file behind an append of {length}"),
        };
        Ok(at.ok_or_else(nonsense)?)
    }

    /// Writes under a token for shared writing, past the journal. `None`: another client extends
    /// the file, and nothing was written.
    async fn write_shared(
        &self,
        file: &File,
        open: OpenFile,
        (position, bytes): (Position, &[u8]),
        (durable, is_sent): (Durable, &Cell<bool>),
    ) -> Result<Option<Written>, HostError> {
        self.check_closing()?;
        is_sent.set(!units::fault!("host-append-repeated"));
        let written = self.put(open, position, bytes).await;
        if written == Err(StoreError::TokenHeld) {
            is_sent.set(false);
            return Ok(None);
        }
        file.shared_writes.set(file.shared_writes.get() + 1);
        self.count(|counters| counters.shared_bytes += bytes.len() as u64);
        let attributes = self.noted(written)?;
        if durable == Durable::Now {
            self.sync_shared(file, open).await?;
        }
        Ok(Some((attributes, None)))
    }

    /// Writes under the exclusive token, and logs that. `None` as for a shared write: the token was
    /// recalled before the store had the bytes.
    async fn write_held(
        &self,
        file: &File,
        open: OpenFile,
        (position, bytes): (Position, &[u8]),
        (reservation, is_sent): (&LogReservation, &Cell<bool>),
    ) -> Result<Option<Written>, HostError> {
        self.check_closing()?;
        let is_once = !units::fault!("host-append-repeated");
        let recalls = file.recalls.get();
        let attributes = match self.put(open, position, bytes).await {
            Ok(attributes) => attributes,
            Err(StoreError::TokenHeld) => {
                self.settle_unreported(file).await?;
                return Ok(None);
            }
            error => {
                // A part of it may be in the store's buffer, in a state that was not reported: only
                // what is durable there is known.
                is_sent.set(is_once && file.met_recall(recalls));
                let noted = self.noted(error.map(|_| None));
                self.settle_unreported(file).await?;
                return noted;
            }
        };
        if file.met_recall(recalls) {
            // Another client may have held the file when the store took the bytes: no replay may
            // build on them.
            is_sent.set(is_once);
            self.settle_unreported(file).await?;
            return Ok(Some((attributes, None)));
        }
        let at = match position {
            Position::At(at) => at,
            Position::End => match self.begin_of_append(&attributes, bytes.len() as u64) {
                Ok(at) => at,
                Err(error) => {
                    self.settle_unreported(file).await?;
                    return Err(error);
                }
            },
        };
        let last = self.note_change(file, reservation, &attributes, (at, bytes));
        Ok(Some((attributes, Some(last))))
    }

    /// Pauses while another client extends the file. TokenHeld: it has done so for too long.
    async fn pause_for_extender(
        &self,
        pauses: &mut Pauses,
        until: Instant,
    ) -> Result<(), HostError> {
        let now = self.world.now();
        if now >= until {
            return Err(StoreError::TokenHeld.into());
        }
        self.world.sleep_until(now.plus(pauses.next())).await;
        Ok(())
    }

    /// Locks the file and takes the token for a write, as [`Host::prepare_write`] does. A caller
    /// that does not wait for the end leaves it to a task: the answer of the store may be a token.
    async fn lock_for_write(
        self: &Rc<Self>,
        file: &Rc<File>,
        write: &HostWrite<'_>,
    ) -> Result<(WriteGuard, Option<Token>), HostError> {
        let guard = interruptible(write.interrupt, file.lock.write()).await?;
        let (host, one) = (self.clone(), file.clone());
        let (position, length) = (write.position, write.bytes.len());
        let prepared = spawn_after_first_step(&*self.world, async move {
            let _busy = host.busy();
            (guard, host.prepare_write(&one, position, length).await)
        });
        let (guard, token) = interruptible(write.interrupt, prepared).await?;
        Ok((guard, token?))
    }

    /// Writes, and returns the transaction that has the bytes in the journal, or `None` if the
    /// store has them. Sets `is_sent` before the servers may have them under a token that keeps no
    /// other client away: it may have read them and written since.
    async fn try_write(
        self: &Rc<Self>,
        file: &Rc<File>,
        write: &HostWrite<'_>,
        is_sent: &Cell<bool>,
    ) -> Result<Written, HostError> {
        let HostWrite { position, bytes, durable, interrupt } = *write;
        let mut pauses = Pauses::default();
        let until = self.world.now().plus(EXTENDER_MAX);
        loop {
            self.check()?;
            self.check_file(file)?;
            // Before the file: other files may have to be destaged first, perhaps this one.
            interruptible(interrupt, self.memory(bytes.len())).await??;
            let early = match units::fault!("host-space-before-token") {
                true => Some(self.log().reserve(bytes.len()).await?),
                false => None,
            };
            let (guard, token) = self.lock_for_write(file, write).await?;
            let Some(token) = token else {
                drop((guard, early));
                interruptible(interrupt, file.until_returned()).await?;
                continue;
            };
            let open = file.open.get().expect("a file with a token is open");
            let what = (position, bytes);
            let written = if token == Token::ExclusiveWrite {
                // Behind the token: a writer that waits for another client must hold no space, or
                // those of other files wait with it.
                let Some(reservation) = self.log().reserve_at_once(bytes.len())? else {
                    drop(guard);
                    interruptible(interrupt, self.log().until_space(bytes.len())).await??;
                    continue;
                };
                self.write_held(file, open, what, (&reservation, is_sent)).await?
            } else {
                self.write_shared(file, open, what, (durable, is_sent)).await?
            };
            if let Some(written) = written {
                return Ok(written);
            }
            // Nothing is held here in between: not the file, so that its token can be returned.
            drop((guard, early));
            interruptible(interrupt, self.pause_for_extender(&mut pauses, until)).await??;
        }
    }

    /// Logs a state that the store has reported, and marks the file dirty. The file must not be
    /// given up: a recovery takes every logged state for ours.
    pub(crate) fn note_change(
        &self,
        file: &File,
        reservation: &LogReservation,
        attributes: &FileAttributes,
        (at, bytes): (u64, &[u8]),
    ) -> TransactionId {
        debug_assert!(!file.is_given_up.get(), "another client may have changed the file");
        let fresh = || Dirty {
            slot: self.log().new_slot(),
            base: file.reported.get(),
            since: self.world.now(),
            slot_since: self.world.now(),
            last: self.log().running_id(),
        };
        let mut dirty = file.dirty.get().unwrap_or_else(fresh);
        let change = FileChange { is_removed: file.is_gone(), at, bytes };
        dirty.last = self.log().append(reservation, dirty.slot, dirty.base, attributes, change);
        self.files.hold(file, at..at + bytes.len() as u64);
        self.files.set_dirty(file, Some(dirty));
        file.reported.set(attributes.version);
        dirty.last
    }

    pub(crate) fn check_closing(&self) -> Result<(), HostError> {
        if self.closing.get() { Err(HostError::Closing) } else { Ok(()) }
    }
    pub(crate) fn check_file(&self, file: &File) -> Result<(), HostError> {
        match file.failure.borrow().clone() {
            None => Ok(()),
            Some(Failure::SetAside(why)) => Err(HostError::SetAside(why)),
            Some(Failure::LocksLost) => Err(HostError::LocksLost),
            Some(Failure::NotDestaged(error)) => Err(HostError::NotDestaged(error)),
            Some(Failure::Unsynced(error)) => Err(HostError::Unsynced(error)),
        }
    }

    /// Makes everything durable that was acknowledged of the file before: it survives a crash of
    /// this host.
    pub async fn sync_file(self: &Rc<Self>, id: FileId) -> Result<(), HostError> {
        loop {
            let _busy = self.enter().await?;
            match self.try_sync_file(id).await {
                Err(error) if self.is_again(&error) => {}
                result => return result,
            }
        }
    }
    async fn try_sync_file(self: &Rc<Self>, id: FileId) -> Result<(), HostError> {
        let Some(file) = self.files.get(id) else { return self.check() };
        let file = self.files.keep(file);
        self.destage_takeover(&file).await?;
        if let Some(dirty) = file.dirty.get() {
            self.log().commit(dirty.last).await?;
            self.check_file(&file)?;
            return self.prove_lease().await;
        }
        self.check_file(&file)?;
        let is_shared = file.token.get() == Some(Token::SharedWrite);
        let unsynced = |open: &OpenFile| is_shared || self.store.is_unsynced(*open);
        match file.open.get().filter(unsynced) {
            Some(open) => self.sync_shared(&file, open).await,
            None => self.check(),
        }
    }

    /// Makes everything durable that was acknowledged of all files before.
    pub async fn sync(self: &Rc<Self>) -> Result<(), HostError> {
        let _busy = self.enter().await?;
        let files: Vec<FileId> = self.files.all().iter().map(|file| file.id).collect();
        for file in files {
            self.try_sync_file(file).await?;
        }
        self.log().commit_all().await?;
        self.prove_lease().await
    }

    /// Destages all files, returns all tokens, and marks the journal empty.
    pub async fn close(self: &Rc<Self>) -> Result<(), HostError> {
        if self.closed.get() {
            return Ok(());
        }
        let Some(_guard) = self.stop_restoring().await else {
            return Err(HostError::NotAnswered { files: self.files.dirty().len() as u64 });
        };
        let destage = self.while_moving(self.destage_all());
        let destaged = while_answered(&*self.world, &*self.store, destage).await;
        let mut result = destaged.inspect_err(|error| {
            if error.is_lost() {
                self.lose(&error.to_string());
            }
        });
        self.closed.set(true);
        self.ended.notify();
        self.idle.notify();
        self.restored.notify();
        let log = self.log().close().await;
        if result.is_ok() {
            result = self.end_connection(log.is_ok() && self.log().has_no_slots()).await;
        }
        result.and(log)
    }
}

/// Returns the end of a range, if the journal can address its blocks.
pub(crate) fn end_of(at: u64, length: u64) -> Result<u64, HostError> {
    let end = at.checked_add(length).filter(|end| Slot(0).block_at(end >> BLOCK.shift()).is_some());
    Ok(end.ok_or(StoreError::from(Refusal::FileTooLarge))?)
}

const ETXTBSY: i32 = 26;
