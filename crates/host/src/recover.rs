//! After a crash of this host: what was journaled goes to the store, as far as nobody else has
//! changed the files since.
//!
//! 1. The former self is fenced first: nothing of it arrives any more, and its tokens are free.
//! 2. Several files at once, begun in the order of their numbers (`recovery_window`). Of each: the
//!    token is taken; then, and only then, is the file's state compared.
//! 3. A file is replayed only if the store's (version, change time, size) are one of three states.
//!    The journal builds on it, it was journaled, or an earlier recovery has noted it as its own.
//!    Everything else is set aside. At a store that counts every change, the number of the state
//!    built on is enough. Content of ours may have come without its attributes, and others have
//!    changed nothing as long as the number is the same. Number and time of a state of ours are
//!    enough, too.
//! 4. States that the replay brings about are noted in the ledger before they are made durable at
//!    the store. The state that it builds on is noted before anything is written.
//! 5. A file is noted as done when the store has made it durable, and before its token is returned.
//!    From then on others may change it.
//! 6. Another who wants a file amid its replay gets a turn. What was told is noted and made
//!    durable, and the token goes back. Then it is taken again, and the state compared again.
//! 7. The log is marked empty when all files are done. Until then a crash begins again here.

use crate::conflict::set_aside;
use crate::error::HostError;
use crate::ledger::{FILES_MAX, Ledger, Progress, SharedLedger};
use crate::log::image_of;
use crate::record::STATES_MAX;
use crate::recovery_window::{RecoveryWindow, states_for};
use crate::replay::{FileReplay, LogContent};
use crate::run_plan::run_plan;
use crate::superblock::HostJournal;
use device::World;
use journal::plan_empty_log;
use journal::records;
use runtime::sync::RwLock;
use runtime::{Either, join_window, race};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use store::{
    AttributeChange, FileAttributes, FileId, OpenFile, OpenMode, Refusal, Store, StoreError,
    StoreEvent, TRANSFER_BYTES_MAX, TimeChange, Token, Version,
};

/// How long who has a file open may keep it. Ceph gives no token then.
const PATIENCE: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(100);

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileFate {
    /// The store has it now.
    Replayed,
    /// An earlier recovery, which crashed, had brought it there.
    DoneBefore,
    /// It was removed on this host, and the store does not have it any more.
    Removed,
    /// Its bytes are in this file of the directory for conflicts, and why.
    SetAside { name: String, why: String },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FileOutcome {
    pub file: u64,
    pub outcome: FileFate,
    /// Journaled bytes of it.
    pub bytes: u64,
}

#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct HostRecoveryReport {
    /// The log was empty.
    pub clean: bool,
    /// Nothing was changed; outcomes are what would be.
    pub dry_run: bool,
    pub transactions: u64,
    /// Files that the store had already, by their slots.
    pub slots_home: u64,
    pub files: Vec<FileOutcome>,
    pub nanoseconds: u64,
}

/// Replays the journal to the store, and marks it empty. With `dry_run` only tells what would be
/// done now.
pub async fn recover(
    world: &dyn World,
    store: &dyn Store,
    journal: &HostJournal,
    dry_run: bool,
) -> Result<HostRecoveryReport, HostError> {
    let begun = world.now();
    journal.check_store(store.name())?;
    if !units::fault!("host-any-store") {
        journal.check_store_identity(&store.store_identity())?;
    }
    if !dry_run && !units::fault!("host-not-fenced") {
        store.fence(&journal.head.identity).await?;
    }
    let mut superblock = journal.read_superblock().await?;
    let mut report = HostRecoveryReport {
        clean: superblock.is_clean(),
        dry_run,
        ..HostRecoveryReport::default()
    };
    if superblock.is_clean() {
        if !dry_run {
            journal.note_store_identity(&store.store_identity()).await?;
        }
        return Ok(report);
    }
    let content = LogContent::read(journal, &superblock).await?;
    (report.transactions, report.slots_home) = (content.transactions, content.slots_freed);
    let log = (superblock.sequence.0, superblock.start.get());
    let ledger = Ledger::read(journal, log).await?;
    let order: Vec<FileId> = content.files.keys().copied().collect();
    let noted = order.iter().map(|file| ledger.states(*file).len()).sum();
    let window = RecoveryWindow::of(order.len(), noted);
    let (ledger, setting_aside) = (SharedLedger::new(ledger), Rc::default());
    let recalled = RefCell::default();
    let recovery = Recovery {
        world,
        store,
        journal,
        ledger,
        order,
        window,
        setting_aside,
        recalled,
        log,
        dry_run,
    };
    let files = content.files.values().enumerate();
    let work = files.map(|(index, replay)| -> Pin<Box<dyn Future<Output = _> + '_>> {
        Box::pin(recovery.in_its_turn(index, replay))
    });
    report.files = match race(join_window(work, FILES_MAX), recovery.watch_store()).await {
        Either::Left(files) => files?,
        Either::Right(never) => match never {},
    };
    report.files.sort_by_key(|outcome| outcome.file);
    if !dry_run {
        let unit = superblock.log_block_bytes();
        superblock.set_clean(content.next.previous());
        records::clear(&mut superblock, true);
        run_plan(&*journal.disk, unit, plan_empty_log(Some(image_of(&superblock)))).await?;
        journal.note_store_identity(&store.store_identity()).await?;
    }
    report.nanoseconds = world.now().since(begun).as_nanos() as u64;
    Ok(report)
}

struct Recovery<'a> {
    world: &'a dyn World,
    store: &'a dyn Store,
    journal: &'a HostJournal,
    ledger: SharedLedger,
    /// All files of the log.
    order: Vec<FileId>,
    window: RecoveryWindow,
    /// Conflict files share a directory: one is made at a time.
    setting_aside: Rc<RwLock>,
    /// Files that others want, until the token is back.
    recalled: RefCell<BTreeSet<FileId>>,
    log: (u32, u32),
    dry_run: bool,
}

impl Recovery<'_> {
    async fn in_its_turn(
        &self,
        index: usize,
        replay: &FileReplay,
    ) -> Result<FileOutcome, HostError> {
        let file = replay.last.file;
        let (noted, is_finished) =
            self.ledger.look(|ledger| (ledger.states(file).len(), ledger.is_finished(file)));
        let states =
            if is_finished { 0 } else { states_for(replay.runs(TRANSFER_BYTES_MAX).len()) };
        let place = self.window.enter(index, states, noted).await?;
        let outcome = match is_finished {
            true => FileFate::DoneBefore,
            false => self.file(replay).await.map_err(|error| stuck_with(file, error))?,
        };
        place.finish();
        Ok(FileOutcome { file: file.0, outcome, bytes: replay.bytes() })
    }

    async fn file(&self, replay: &FileReplay) -> Result<FileFate, HostError> {
        let file = replay.last.file;
        match self.store.find(file).await {
            Err(StoreError::Refused(Refusal::Stale | Refusal::NotFound)) => {
                return self.gone(replay).await;
            }
            Err(error) => return Err(error.into()),
            Ok(found) if self.dry_run => {
                return match self.judge(replay, found.attributes.version) {
                    None => Ok(FileFate::Replayed),
                    Some(_) if replay.last.is_removed => Ok(FileFate::Removed),
                    Some(why) => Ok(FileFate::SetAside { name: String::new(), why }),
                };
            }
            Ok(_) => {}
        }
        let open = match self.store.open(file, OpenMode::ReadWrite).await {
            // Its number names something else by now.
            Err(StoreError::Refused(Refusal::Stale | Refusal::NotFound | Refusal::IsDirectory)) => {
                return self.gone(replay).await;
            }
            result => result?,
        };
        let refused = match self.take_token_or_refuse(replay, open).await? {
            Err(why) => Some(why),
            Ok(found) => match self.judge(replay, found) {
                None => self.replay(replay, open, found).await?,
                refused => refused,
            },
        };
        let outcome = match refused {
            None => FileFate::Replayed,
            // Another file has its number by now.
            Some(_) if replay.last.is_removed => FileFate::Removed,
            Some(why) => self.set_aside(replay, why, Some(open)).await?,
        };
        self.finish(replay).await?;
        self.store.return_token(file).await?;
        self.store.close(open).await?;
        Ok(outcome)
    }

    /// Why the file may not be replayed over this state.
    fn judge(&self, replay: &FileReplay, version: Version) -> Option<String> {
        let noted = self.ledger.look(|ledger| ledger.states(replay.last.file).to_vec());
        let bases = [Some(&replay.base), noted.first()].into_iter().flatten();
        if is_ours(
            version,
            bases,
            replay.states.iter().chain(&noted),
            self.store.counts_every_change(),
        ) || units::fault!("host-version-ignored")
        {
            return None;
        }
        let Version { number, ctime_ns, size } = version;
        Some(format!(
            "The file was changed by others: the store has version {number}, changed {ctime_ns} ns after 1970, {size} \
             bytes, which is no state that was journaled here."
        ))
    }

    /// Nobody misses a file that this host has removed.
    async fn gone(&self, replay: &FileReplay) -> Result<FileFate, HostError> {
        if !replay.last.is_removed {
            return self.set_aside(replay, "The file is gone.".into(), None).await;
        }
        if !self.dry_run {
            self.finish(replay).await?;
        }
        Ok(FileFate::Removed)
    }

    async fn set_aside(
        &self,
        replay: &FileReplay,
        why: String,
        open: Option<OpenFile>,
    ) -> Result<FileFate, HostError> {
        if self.dry_run {
            return Ok(FileFate::SetAside { name: String::new(), why });
        }
        let turn = self.setting_aside.write().await;
        let name = set_aside(self.store, replay, self.log, &why).await?;
        drop(turn);
        if open.is_none() {
            self.finish(replay).await?;
        }
        Ok(FileFate::SetAside { name, why })
    }

    /// Nothing is left to do for this file.
    async fn finish(&self, replay: &FileReplay) -> Result<(), HostError> {
        let finish = |ledger: &mut Ledger| ledger.finish(replay.last.file, &self.order);
        self.ledger.change(self.journal, finish).await
    }

    /// Every journaled byte, then the size, then the attributes. Or why that may not go on.
    async fn replay(
        &self,
        replay: &FileReplay,
        open: OpenFile,
        found: Version,
    ) -> Result<Option<String>, HostError> {
        let mut told = vec![found];
        let mut size = found.size;
        if !units::fault!("host-ledger-without-base") {
            self.note(replay, &told).await?;
        }
        for (at, bytes) in replay.runs(TRANSFER_BYTES_MAX) {
            let end = at + bytes.len() as u64;
            let outgrows = end > size && end >= self.store.held_below(told[0].size);
            if told.len() == STATES_MAX - 1 || (outgrows && told.len() > 1) {
                self.settle(replay, open, &mut told).await?;
                self.note(replay, &told).await?;
            }
            if let Some(why) = self.give_way(replay, open, &mut told).await? {
                return Ok(Some(why));
            }
            let attributes = self.store.write(open, at, &bytes).await?;
            size = attributes.version.size;
            told.push(attributes.version);
        }
        if let Some(why) = self.give_way(replay, open, &mut told).await? {
            return Ok(Some(why));
        }
        let last = &replay.last;
        let wanted = last.states.last().map_or(size, |state| state.size);
        let change = AttributeChange {
            size: (wanted > size).then_some(wanted),
            mode: Some(last.mode),
            uid: Some(last.uid),
            gid: Some(last.gid),
            accessed: Some(TimeChange::To(last.accessed)),
            modified: Some(TimeChange::To(last.modified)),
        };
        told.push(self.store.set_attributes(last.file, change).await?.version);
        self.settle(replay, open, &mut told).await?;
        Ok(None)
    }

    /// Notes what others want. Events of files whose tokens are back already are of no use to
    /// anybody.
    async fn watch_store(&self) -> Infallible {
        loop {
            // A lost connection is told by each call.
            if let StoreEvent::Recall { file, .. } = self.store.next_event().await {
                self.recalled.borrow_mut().insert(file);
            }
        }
    }
    /// Who keeps the file open may have changed it. Then no token is needed: where each change
    /// counts, the number never becomes one of ours again.
    async fn take_token_or_refuse(
        &self,
        replay: &FileReplay,
        open: OpenFile,
    ) -> Result<Result<Version, String>, HostError> {
        let file = replay.last.file;
        if units::fault!("host-token-not-taken") {
            return Ok(Ok(self.store.attributes(file).await?.version));
        }
        let until = self.world.now().plus(PATIENCE);
        loop {
            match self.store.take_token(open, Token::ExclusiveWrite).await {
                Err(StoreError::TokenHeld) => {}
                taken => return Ok(Ok(taken?.version)),
            }
            if self.store.counts_every_change() {
                let found = self.store.find(file).await?.attributes.version;
                if let Some(why) = self.judge(replay, found) {
                    return Ok(Err(why));
                }
            }
            if self.world.now() >= until {
                return Err(HostError::KeptOpen { file: file.0 });
            }
            self.world.sleep_until(self.world.now().plus(AGAIN)).await;
        }
    }
    async fn take_token(&self, file: FileId, open: OpenFile) -> Result<FileAttributes, HostError> {
        let until = self.world.now().plus(PATIENCE);
        loop {
            match self.store.take_token(open, Token::ExclusiveWrite).await {
                Err(StoreError::TokenHeld) if self.world.now() < until => {
                    self.world.sleep_until(self.world.now().plus(AGAIN)).await;
                }
                Err(StoreError::TokenHeld) => return Err(HostError::KeptOpen { file: file.0 }),
                answer => return Ok(answer?),
            }
        }
    }
    /// If another wants the file, he gets it here. Why the file may not be replayed any more, if he
    /// has changed it.
    async fn give_way(
        &self,
        replay: &FileReplay,
        open: OpenFile,
        told: &mut Vec<Version>,
    ) -> Result<Option<String>, HostError> {
        let file = replay.last.file;
        // Again, if yet another came meanwhile: nothing is waited for between the last look and
        // what follows.
        while self.recalled.borrow().contains(&file) {
            if !units::fault!("host-gives-way-unnoted") {
                self.settle(replay, open, told).await?;
            }
            self.store.return_token(file).await?;
            self.recalled.borrow_mut().remove(&file);
            let found = self.take_token(file, open).await?.version;
            if let Some(why) = self.judge(replay, found) {
                return Ok(Some(why));
            }
            *told = vec![found];
            self.note(replay, told).await?;
        }
        Ok(None)
    }

    /// What was told is noted, and then made durable; of it only the last state can be there
    /// afterwards.
    async fn settle(
        &self,
        replay: &FileReplay,
        open: OpenFile,
        told: &mut Vec<Version>,
    ) -> Result<(), HostError> {
        self.note(replay, told).await?;
        self.store.make_durable(open).await?;
        told.drain(..told.len() - 1);
        Ok(())
    }
    /// The first is one that the store has.
    async fn note(&self, replay: &FileReplay, told: &[Version]) -> Result<(), HostError> {
        let noted = Progress::Noted(told.to_vec());
        let note = |ledger: &mut Ledger| drop(ledger.files.insert(replay.last.file, noted));
        if units::fault!("host-ledger-not-written") {
            return Ok(());
        }
        self.ledger.change(self.journal, note).await
    }
}

/// A store without space is said so of the file that it has none for.
fn stuck_with(file: FileId, error: HostError) -> HostError {
    match error {
        HostError::Store(error @ (StoreError::Refused(_) | StoreError::Failed { .. })) => {
            HostError::NotReplayed { file: file.0, error }
        }
        error => error,
    }
}

/// Whether nobody else has brought the file to this state. `bases` were durable at the store, `own`
/// were told by it.
fn is_ours<'a>(
    found: Version,
    mut bases: impl Iterator<Item = &'a Version>,
    mut own: impl Iterator<Item = &'a Version>,
    counts_every_change: bool,
) -> bool {
    let is_built_on = |base: &Version| found.number == base.number && found.size >= base.size;
    // The time of a later write, or a size that was told ahead, with the attributes of the write
    // before.
    let is_own = |state: &Version| {
        let (number, ctime_ns) = (state.number, state.ctime_ns);
        let is_later = found.ctime_ns == ctime_ns || units::fault!("host-number-alone");
        found.number == number && is_later && found.size >= state.size
    };
    match counts_every_change && !units::fault!("host-only-told-states") {
        true => bases.any(is_built_on) || own.any(is_own),
        false => own.any(|state| *state == found),
    }
}
