//! Recovery after a crash of this host: journaled bytes are brought to the store, as far as no
//! other client has changed the files since.
//!
//! 1. What an earlier recovery, dropped with its connection, has in flight to the journal ends
//!    first. The former client is fenced: nothing of it arrives any more, and its tokens are free.
//! 2. Several files are recovered at once, begun in the order of their numbers (`recovery_window`).
//!    Of each the token is taken; then, and only then, is the file's state compared.
//! 3. A file is replayed only if the store's (version, change time, size) is one of three kinds of
//!    state: the one the journal builds on, one that was journaled, or one that an earlier recovery
//!    has recorded as its own. Everything else is set aside. At a store that counts every change,
//!    the number of the state built on is enough: content of ours may have arrived without its
//!    attributes, and nobody else has changed anything as long as the number is the same. Number
//!    and time of a state of ours are enough, too.
//! 4. The ledger records the states that the replay brings about before the servers get them. The
//!    state that the replay builds on is recorded before anything is written. A write that meets a
//!    recall is refused, and made again under the next token: the state after it would be known to
//!    nobody here, and might be another client's.
//! 5. A file is recorded as done when the store has made it durable, and before its token is
//!    returned. From then on others may change it.
//! 6. Another client that wants a file during its replay gets it, if the store counts every change:
//!    the reported states are recorded and made durable, and the token is returned. Then it is
//!    taken again, and the state compared again.
//! 7. The log is marked empty when all files are done. Until then a crash starts again here.

use crate::conflict::{SetAsideFile, set_aside};
use crate::error::HostError;
use crate::ledger::{FILES_MAX, Ledger, Progress, SharedLedger};
use crate::record::{BLOCK, STATES_MAX};
use crate::recovery_window::{RecoveryWindow, states_for};
use crate::removals::{Removal, Removals};
use crate::replay::{FileReplay, LogContent};
use crate::superblock::HostJournal;
use commit::LogSuperblock;
use device::World;
use journal::{plan_empty_log, plan_flush_on_open};
use runtime::sync::RwLock;
use runtime::{Either, join_window, race};
use serde::Serialize;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use store::{
    Answer, AttributeChange, FileAttributes, FileId, FileKind, HostPhase, OpenFile, OpenMode,
    Refusal, Store, StoreError, StoreEvent, TRANSFER_BYTES_MAX, TimeChange, Version,
};
use units::LogBlock;

/// Time for which another client may keep a file open. Ceph grants no token during that time.
const PATIENCE: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(100);
/// Connections in a row on which a recovery may finish no file.
const FAILED_MAX: u32 = 8;
/// Bytes in the store's buffer at most, but for one write of each file. A write that waited for
/// space there could not give way to a recall.
const BUFFERED_MAX: u64 = 32 << 20;
/// Bytes of one write to the store at most.
const RUN_MAX: u64 = TRANSFER_BYTES_MAX as u64;

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileFate {
    /// The store has it now.
    Replayed,
    /// An earlier recovery, which crashed, had brought it to the store.
    DoneBefore,
    /// This host removed the file, and the store no longer has it.
    Removed,
    /// The file of the conflict directory that has its bytes, and the reason.
    SetAside { name: String, why: String },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FileOutcome {
    pub file: u64,
    pub outcome: FileFate,
    /// Journaled bytes of the file.
    pub bytes: u64,
}

#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct HostRecoveryReport {
    /// Whether the log was empty.
    pub clean: bool,
    /// Whether nothing was changed; then outcomes are predictions.
    pub dry_run: bool,
    pub transactions: u64,
    /// Slots that the store had already.
    pub slots_home: u64,
    pub files: Vec<FileOutcome>,
    pub nanoseconds: u64,
}

impl HostRecoveryReport {
    /// Adds the outcomes of earlier recoveries of the same log, which this one found finished.
    pub(crate) fn add_earlier(&mut self, earlier: BTreeMap<FileId, FileOutcome>) {
        self.clean &= earlier.is_empty();
        self.files.retain(|file| !earlier.contains_key(&FileId(file.file)));
        self.files.extend(earlier.into_values());
        self.files.sort_by_key(|outcome| outcome.file);
    }
}

/// Replays the journal to the store, and marks it empty. With `dry_run` only reports what would be
/// done now.
pub async fn recover(
    world: &dyn World,
    store: &dyn Store,
    journal: &HostJournal,
    dry_run: bool,
) -> Result<HostRecoveryReport, HostError> {
    recover_noting(world, store, journal, dry_run, &|_| {}).await
}

/// Recovers as [`recover`] does. A lost connection is made again as long as files are finished in
/// between, and a few times without that: its end may be the store's way to keep states from its
/// servers that no ledger has. That of a fenced client is not.
pub async fn recover_reconnecting(
    world: &dyn World,
    store: &dyn Store,
    journal: &HostJournal,
) -> Result<HostRecoveryReport, HostError> {
    let fates = RefCell::new(BTreeMap::new());
    let note = |outcome: &FileOutcome| {
        fates.borrow_mut().insert(FileId(outcome.file), outcome.clone());
    };
    let (mut failed, mut known) = (0, 0);
    loop {
        match recover_noting(world, store, journal, false, &note).await {
            Err(HostError::Store(StoreError::Disconnected { .. })) if failed < FAILED_MAX => {
                let finished = fates.borrow().len();
                failed = if finished > known { 0 } else { failed + 1 };
                known = finished;
                world.sleep_until(world.now().plus(AGAIN * failed)).await;
                store.reconnect().await?;
            }
            recovered => {
                let mut report = recovered?;
                report.add_earlier(fates.take());
                return Ok(report);
            }
        }
    }
}

/// Recovers as [`recover`] does. Calls `note` with the outcome of each file before the ledger
/// records it as finished: later recoveries of the same log know no more of it.
pub(crate) async fn recover_noting(
    world: &dyn World,
    store: &dyn Store,
    journal: &HostJournal,
    dry_run: bool,
    note: &dyn Fn(&FileOutcome),
) -> Result<HostRecoveryReport, HostError> {
    let begun = world.now();
    journal.check_store(store.name())?;
    if !units::fault!("host-any-store") {
        journal.check_store_identity(&store.store_identity())?;
    }
    let _searches = dry_run.then(|| ExpectedSearches::of(store));
    if !dry_run {
        begin_at_store(store, journal).await?;
    }
    let superblock = journal.read_superblock().await?;
    let mut report = HostRecoveryReport {
        clean: superblock.is_clean(),
        dry_run,
        ..HostRecoveryReport::default()
    };
    if superblock.is_clean() {
        if !dry_run {
            end_at_store(store, journal).await?;
        }
        return Ok(report);
    }
    let content = LogContent::read(journal, &superblock).await?;
    (report.transactions, report.slots_home) = (content.transactions, content.slots_freed);
    let log = (superblock.sequence.0, superblock.start.get());
    let ledger = Ledger::read(journal, log).await?;
    let order: Vec<FileId> = content.files.keys().copied().collect();
    let noted = order.iter().map(|file| ledger.states(*file).len()).sum();
    let (ledger, setting_aside) = (SharedLedger::new(ledger), Rc::default());
    let recovery = Recovery {
        world,
        store,
        journal,
        ledger,
        window: RecoveryWindow::of(order.len(), noted),
        order,
        setting_aside,
        recalled: RefCell::default(),
        replayed: RefCell::default(),
        removals: Removals::default(),
        removal: OnceCell::new(),
        log,
        dry_run,
        note,
    };
    let files = content.files.values().enumerate();
    let work = files.map(|(index, replay)| -> Pin<Box<dyn Future<Output = _> + '_>> {
        Box::pin(recovery.in_order(index, replay))
    });
    report.files = match race(join_window(work, FILES_MAX), recovery.watch_store()).await {
        Either::Left(files) => files?,
        Either::Right(never) => match never {},
    };
    report.files.sort_by_key(|outcome| outcome.file);
    if !dry_run {
        let executor = journal.executor(superblock.log_block_bytes());
        let superblock = LogSuperblock::new(superblock, LogBlock(0), true);
        executor.run(plan_empty_log(superblock.emptied(content.next.previous(), true))).await?;
        end_at_store(store, journal).await?;
    }
    report.nanoseconds = world.now().since(begun).as_nanos() as u64;
    Ok(report)
}

/// Waits for the end of an earlier recovery's writes, fences the former connection, and registers
/// the host. It is registered since its first mount, unless that was by an older release.
async fn begin_at_store(store: &dyn Store, journal: &HostJournal) -> Result<(), HostError> {
    if !units::fault!("host-late-recovery-writes") {
        journal.abandoned.until_ended().await;
    }
    if !units::fault!("host-found-not-flushed") {
        // A killed daemon may have left it in the disk's cache, and it is acted upon.
        journal.executor(BLOCK.bytes()).run(plan_flush_on_open()).await?;
    }
    if !units::fault!("host-not-fenced") {
        store.fence(&journal.head.identity).await?;
    }
    Ok(store.register_host(HostPhase::Recovering).await?)
}
/// The searches of a dry run, which registers no host.
struct ExpectedSearches<'a>(&'a dyn Store);
impl ExpectedSearches<'_> {
    fn of(store: &dyn Store) -> ExpectedSearches<'_> {
        store.expect_searches(!units::fault!("host-dry-run-searches-again"));
        ExpectedSearches(store)
    }
}
impl Drop for ExpectedSearches<'_> {
    fn drop(&mut self) {
        self.0.expect_searches(false);
    }
}

/// Notes that the journal has nothing of an earlier life.
async fn end_at_store(store: &dyn Store, journal: &HostJournal) -> Result<(), HostError> {
    journal.note_store_identity(&store.store_identity()).await?;
    Ok(store.register_host(HostPhase::Running).await?)
}

struct Recovery<'a> {
    world: &'a dyn World,
    store: &'a dyn Store,
    journal: &'a HostJournal,
    ledger: SharedLedger,
    /// Files of the log, in order.
    order: Vec<FileId>,
    window: RecoveryWindow,
    /// Conflict files share a directory: one is made at a time.
    setting_aside: Rc<RwLock>,
    /// Files that other clients want, until the token is back.
    recalled: RefCell<BTreeSet<FileId>>,
    /// Files that are being replayed, each with the bytes that the store may still buffer of it.
    replayed: RefCell<BTreeMap<FileId, u64>>,
    removals: Removals,
    removal: OnceCell<Removal>,
    log: (u32, u32),
    dry_run: bool,
    note: &'a dyn Fn(&FileOutcome),
}

impl Recovery<'_> {
    async fn in_order(&self, index: usize, replay: &FileReplay) -> Result<FileOutcome, HostError> {
        let file = replay.last.file;
        let (noted, is_finished) =
            self.ledger.with(|ledger| (ledger.states(file).len(), ledger.is_finished(file)));
        // One more for what has no bytes at its end.
        let states = if is_finished { 0 } else { states_for(replay.runs(RUN_MAX).len() + 1) };
        let slot = self.window.enter(index, states, noted).await?;
        let outcome = match is_finished {
            true => self.outcome(replay, FileFate::DoneBefore),
            false => match self.file(replay).await {
                Err(error) => return Err(self.stuck_with(file, error).await),
                outcome => outcome?,
            },
        };
        slot.finish();
        Ok(outcome)
    }
    /// Names the file for which the store has no space.
    async fn stuck_with(&self, file: FileId, error: HostError) -> HostError {
        let error = match error {
            HostError::Store(error @ (StoreError::Refused(_) | StoreError::Failed { .. })) => error,
            error => return error,
        };
        let path = self.store.path_of(file).await.ok().flatten();
        let name = path.filter(|_| !units::fault!("host-refused-file-unnamed")).map_or_else(
            || format!("find -inum {} in it prints the name", file.0),
            |path| String::from_utf8_lossy(&path).into_owned(),
        );
        HostError::NotReplayed { file: file.0, name, error }
    }
    fn outcome(&self, replay: &FileReplay, outcome: FileFate) -> FileOutcome {
        FileOutcome { file: replay.last.file.0, outcome, bytes: replay.bytes() }
    }

    async fn file(&self, replay: &FileReplay) -> Result<FileOutcome, HostError> {
        let (fate, open) = self.fate(replay).await?;
        let outcome = self.outcome(replay, fate);
        if self.dry_run {
            return Ok(outcome);
        }
        if !units::fault!("host-fate-forgotten") {
            (self.note)(&outcome);
        }
        self.finish(replay).await?;
        if let Some(open) = open {
            self.store.return_token(replay.last.file).await?;
            self.store.close(open).await?;
        }
        Ok(outcome)
    }
    /// Recovers one file. Returns its fate, and the open file with a token, if there is one.
    async fn fate(&self, replay: &FileReplay) -> Result<(FileFate, Option<OpenFile>), HostError> {
        let file = replay.last.file;
        match self.store.find(file).await {
            Err(StoreError::Refused(Refusal::Stale | Refusal::NotFound)) => {
                return Ok((self.gone(replay).await?, None));
            }
            Err(error) => return Err(error.into()),
            // Its number names something else by now.
            Ok(found)
                if found.attributes.kind != FileKind::Regular
                    && !units::fault!("host-kind-not-asked") =>
            {
                return Ok((self.gone(replay).await?, None));
            }
            Ok(found) if self.dry_run => {
                let fate = match self.judge(replay, found.attributes.version) {
                    None => FileFate::Replayed,
                    Some(why) => FileFate::SetAside { name: String::new(), why },
                };
                return Ok((fate, None));
            }
            Ok(_) => {}
        }
        let Some(open) = self.open(file).await? else {
            return Ok((self.gone(replay).await?, None));
        };
        let refused = match self.take_token_or_refuse(replay, open).await? {
            Err(why) => Some(why),
            Ok(found) => match self.judge(replay, found) {
                None => self.replay_unless_changed(replay, open, found).await?,
                refused => refused,
            },
        };
        let fate = match refused {
            None => FileFate::Replayed,
            // That it was to be removed proves nothing. The removal may not have arrived, or
            // another host has given the file a further name.
            Some(_) if replay.last.is_removed && units::fault!("host-removal-believed") => {
                FileFate::Removed
            }
            Some(why) => self.set_aside(replay, why).await?,
        };
        Ok((fate, Some(open)))
    }

    /// Opens a file. `None`: it is gone. The store may need the token for it, too.
    async fn open(&self, file: FileId) -> Result<Option<OpenFile>, HostError> {
        let until = self.world.now().plus(PATIENCE);
        loop {
            match self.store.open(file, OpenMode::ReadWrite).await {
                Err(StoreError::TokenHeld)
                    if self.world.now() < until && !units::fault!("host-kept-open-not-awaited") =>
                {
                    self.world.sleep_until(self.world.now().plus(AGAIN)).await;
                }
                Err(StoreError::TokenHeld) => return Err(HostError::KeptOpen { file: file.0 }),
                Err(StoreError::Refused(
                    Refusal::Stale | Refusal::NotFound | Refusal::IsDirectory,
                )) => return Ok(None),
                opened => return Ok(Some(opened?)),
            }
        }
    }

    /// Returns why the file may not be replayed over this state.
    fn judge(&self, replay: &FileReplay, version: Version) -> Option<String> {
        let noted = self.ledger.with(|ledger| ledger.states(replay.last.file).to_vec());
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
            "The file was changed by others: the store has version {number}, changed {ctime_ns} ns \
             after 1970, {size} bytes, which is no state that was journaled here."
        ))
    }

    /// Decides the fate of a file that the store does not have. One that this host removed is not
    /// missed.
    async fn gone(&self, replay: &FileReplay) -> Result<FileFate, HostError> {
        match replay.last.is_removed {
            true if self.dry_run => Ok(FileFate::Removed),
            true => {
                // Otherwise a crash of the store brings it back, and its records are gone.
                // All of them were gone when the first was looked for, and one sync serves all.
                let removal = *self.removal.get_or_init(|| self.removals.add_anywhere());
                self.removals.make_durable(self.store, removal).await?;
                Ok(FileFate::Removed)
            }
            false => self.set_aside(replay, "The file is gone.".into()).await,
        }
    }

    async fn set_aside(&self, replay: &FileReplay, why: String) -> Result<FileFate, HostError> {
        if self.dry_run {
            return Ok(FileFate::SetAside { name: String::new(), why });
        }
        let _guard = self.setting_aside.write().await;
        let runs = replay.runs(RUN_MAX);
        let of = SetAsideFile {
            file: replay.last.file,
            uid: replay.last.uid,
            gid: replay.last.gid,
            host: &self.journal.head.identity,
            log: format!("{}.{}", self.log.0, self.log.1),
            last: replay.last.states.last().copied().unwrap_or(replay.last.base),
            ranges: runs.clone(),
        };
        let name =
            set_aside(self.store, &of, async |index| Ok(replay.bytes_of(&runs[index])), &why)
                .await?;
        Ok(FileFate::SetAside { name, why })
    }

    /// Records that nothing is left to do for this file.
    async fn finish(&self, replay: &FileReplay) -> Result<(), HostError> {
        let finish = |ledger: &mut Ledger| ledger.finish(replay.last.file, &self.order);
        self.ledger.change(self.journal, finish).await
    }

    /// Replays a file. Returns why that must stop, if it must: another program has changed the file
    /// past the store since the comparison, or the store has no file that long. The latter would
    /// otherwise keep the log's other files from the store, at each mount.
    async fn replay_unless_changed(
        &self,
        replay: &FileReplay,
        open: OpenFile,
        found: Version,
    ) -> Result<Option<String>, HostError> {
        let file = replay.last.file;
        self.replayed.borrow_mut().insert(file, 0);
        let replayed = self.replay(replay, open, found).await;
        self.replayed.borrow_mut().remove(&file);
        match replayed {
            Err(HostError::Store(
                error @ (StoreError::ChangedPast { .. }
                | StoreError::Refused(Refusal::FileTooLarge)),
            )) => {
                self.store.discard(file).await?;
                Ok(Some(format!("It could not be replayed: {error}.")))
            }
            replayed => replayed,
        }
    }
    /// Writes every journaled byte, then the attributes. Returns why that must stop, if it must.
    async fn replay(
        &self,
        replay: &FileReplay,
        open: OpenFile,
        found: Version,
    ) -> Result<Option<String>, HostError> {
        let mut reported = vec![found];
        let mut size = found.size;
        if !units::fault!("host-ledger-without-base") {
            self.note(replay, &reported).await?;
        }
        let runs = replay.runs(RUN_MAX);
        let end = runs.last().map_or(size, |run| run.end.max(size));
        let last = &replay.last;
        let wanted = last.states.last().map_or(0, |state| state.size);
        // A change of the size alone would reach the servers in a state that was not noted before.
        let hole = (wanted > end).then(|| wanted - 1..wanted);
        for run in runs.iter().chain(&hole) {
            let (at, end) = (run.start, run.end);
            let bytes = if hole.as_ref() == Some(run) { vec![0] } else { replay.bytes_of(run) };
            let outgrows = end > size && end >= self.store.held_below(reported[0].size);
            let is_full = self.buffered() + (end - at) > BUFFERED_MAX;
            if reported.len() == STATES_MAX - 1 || ((outgrows || is_full) && reported.len() > 1) {
                self.settle(replay, open, &mut reported).await?;
                self.note(replay, &reported).await?;
            }
            let write = || self.store.write(open, at, &bytes);
            match self.change(replay, open, &mut reported, write).await? {
                Ok(version) => size = version.size,
                Err(why) => return Ok(Some(why)),
            }
            *self.replayed.borrow_mut().entry(last.file).or_default() += end - at;
        }
        let change = AttributeChange {
            size: None,
            mode: Some(last.mode),
            uid: Some(last.uid),
            gid: Some(last.gid),
            accessed: Some(TimeChange::To(last.accessed)),
            modified: Some(TimeChange::To(last.modified)),
        };
        let set = || self.store.set_attributes(last.file, change);
        if let Err(why) = self.change(replay, open, &mut reported, set).await? {
            return Ok(Some(why));
        }
        self.settle(replay, open, &mut reported).await?;
        Ok(None)
    }
    /// Returns how much the store may buffer.
    fn buffered(&self) -> u64 {
        self.replayed.borrow().values().sum()
    }
    /// Makes one change under the token, and keeps the state that the store reports. Returns why
    /// the replay must stop, if it must.
    async fn change(
        &self,
        replay: &FileReplay,
        open: OpenFile,
        reported: &mut Vec<Version>,
        change: impl Fn() -> Answer<FileAttributes>,
    ) -> Result<Result<Version, String>, HostError> {
        loop {
            if let Some(why) = self.yield_token(replay, open, reported).await? {
                return Ok(Err(why));
            }
            match change().await {
                // The token was recalled before that.
                Err(StoreError::TokenHeld) => {
                    self.world.sleep_until(self.world.now().plus(AGAIN)).await;
                }
                Err(error) => {
                    if !error.is_lost() {
                        // The recall of a file that is replayed no more is acknowledged at once.
                        self.note(replay, reported).await?;
                    }
                    return Err(error.into());
                }
                Ok(FileAttributes { version, .. }) => {
                    reported.push(version);
                    return Ok(Ok(version));
                }
            }
        }
    }

    /// Records which files other clients want. Events of files whose tokens are returned already do
    /// not matter. All states of files that are not being replayed are noted.
    async fn watch_store(&self) -> Infallible {
        loop {
            // Each call reports a lost connection.
            if let StoreEvent::Recall { file, .. } = self.store.next_event().await {
                self.recalled.borrow_mut().insert(file);
                if !self.replayed.borrow().contains_key(&file) {
                    let _ = self.store.acknowledge_recall(file).await;
                }
            }
        }
    }
    /// Takes the token, or returns why the file is set aside. A client that keeps the file open may
    /// have changed it; then no token is needed: where each change counts, the number never becomes
    /// one of ours again.
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
            match self.store.take_token_to_recover(open).await {
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
            match self.store.take_token_to_recover(open).await {
                Err(StoreError::TokenHeld) if self.world.now() < until => {
                    self.world.sleep_until(self.world.now().plus(AGAIN)).await;
                }
                Err(StoreError::TokenHeld) => return Err(HostError::KeptOpen { file: file.0 }),
                answer => return Ok(answer?),
            }
        }
    }
    /// Returns the token if another client wants the file, and takes it again. Returns why the file
    /// may not be replayed any more, if that client has changed it.
    async fn yield_token(
        &self,
        replay: &FileReplay,
        open: OpenFile,
        reported: &mut Vec<Version>,
    ) -> Result<Option<String>, HostError> {
        let file = replay.last.file;
        if !self.store.counts_every_change() && !units::fault!("host-gives-way-anywhere") {
            // Such a store knows our states only as long as we have the token: the file would be
            // another's afterwards. The other client waits for the end of the replay.
            return Ok(None);
        }
        // Repeated if yet another client came in between: nothing is awaited between the last check
        // and what follows.
        while self.recalled.borrow().contains(&file) {
            if !units::fault!("host-gives-way-unnoted") {
                self.settle(replay, open, reported).await?;
            }
            self.store.return_token(file).await?;
            self.recalled.borrow_mut().remove(&file);
            let found = self.take_token(file, open).await?.version;
            if let Some(why) = self.judge(replay, found) {
                return Ok(Some(why));
            }
            *reported = vec![found];
            self.note(replay, reported).await?;
        }
        Ok(None)
    }

    /// Records the reported states and makes the file durable; only the last of them can be at the
    /// store afterwards.
    async fn settle(
        &self,
        replay: &FileReplay,
        open: OpenFile,
        reported: &mut Vec<Version>,
    ) -> Result<(), HostError> {
        self.note(replay, reported).await?;
        self.store.make_durable(open).await?;
        self.replayed.borrow_mut().entry(replay.last.file).and_modify(|bytes| *bytes = 0);
        reported.drain(..reported.len() - 1);
        Ok(())
    }
    /// Records states in the ledger; the first is one that the store has.
    async fn note(&self, replay: &FileReplay, reported: &[Version]) -> Result<(), HostError> {
        let noted = Progress::Noted(reported.to_vec());
        let note = |ledger: &mut Ledger| drop(ledger.files.insert(replay.last.file, noted));
        if units::fault!("host-ledger-not-written") {
            return Ok(());
        }
        self.ledger.change(self.journal, note).await
    }
}

/// Returns whether no other client has brought the file to this state. `bases` were durable at the
/// store, `own` were reported by it.
fn is_ours<'a>(
    found: Version,
    mut bases: impl Iterator<Item = &'a Version>,
    mut own: impl Iterator<Item = &'a Version>,
    counts_every_change: bool,
) -> bool {
    let is_built_on = |base: &Version| found.number == base.number && found.size >= base.size;
    // The time of a later write, or a size that was announced ahead, with the attributes of the
    // write before.
    let is_own = |state: &Version| {
        let (number, ctime_ns) = (state.number, state.ctime_ns);
        let is_later = found.ctime_ns == ctime_ns || units::fault!("host-number-alone");
        found.number == number && is_later && found.size >= state.size
    };
    match counts_every_change && !units::fault!("host-only-reported-states") {
        true => bases.any(is_built_on) || own.any(is_own),
        false => own.any(|state| *state == found),
    }
}
