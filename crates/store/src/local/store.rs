use super::buffered::{LocalBuffered, Seen};
use super::change_times::ChangeTimes;
use super::durability::Durability;
use super::hosts::LocalHosts;
use super::identity::{identity_in, identity_or_new};
use super::lent_rights::LentRights;
use super::listed::Listed;
use super::notes::Notes;
use super::own_directory::OwnDirectory;
use super::places::Places;
use super::tokens::{Excluded, LocalTokens, lock_life};
use super::{OWN_DIRECTORY, failed};
use crate::attributes::{Allocation, AttributeChange, FileAttributes, FileId, FileKind};
use crate::error::{Refusal, StoreError};
use crate::event::{HostPhase, Identity, StoreEvent, Token};
use crate::lock::{FileLock, LockOwner};
use crate::names::{Created, Creator, Found, Listing, NewNode, RenameOver, Space, XattrMode};
use crate::open_file::{OpenFile, OpenMode};
use crate::opens::Opens;
use crate::overlay::Overlay;
use crate::store::{Answer, Store};
use device::{LocalFuture, World};
use runtime::sync::RwLock;
use rustix::fs::fstatvfs;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

/// Interval between checks for wishes while tokens are held, and between attempts to lock.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Time after a wish during which checks stay as frequent.
const BUSY: Duration = Duration::from_secs(1);
/// Interval when there is no token to return, or no wish was made for long.
const IDLE: Duration = Duration::from_millis(50);
/// Time that others have to return a token, and that this client waits for it.
const LEASE: Duration = Duration::from_secs(30);
/// Number of times that another client may replace a file, or another call of this client may get
/// its token, while a call waits for it.
pub(super) const REPLACED_MAX: u32 = 100;

/// Maximum number of searches for files by one call: it has two files at most, which may move.
const SEARCHES_MAX: u32 = 4;

/// A connection to a directory. Clones are the same connection.
#[derive(Clone)]
pub struct LocalStore(Rc<Local>);

pub(super) struct Local {
    pub world: Rc<dyn World>,
    pub name: String,
    identity: Identity,
    store_identity: String,
    pub places: Places,
    pub notes: Notes,
    pub rights: LentRights,
    pub change_times: ChangeTimes,
    pub tokens: LocalTokens,
    hosts: LocalHosts,
    pub files: RefCell<BTreeMap<FileId, LocalBuffered>>,
    pub opens: RefCell<Opens<Open>>,
    pub listings: RefCell<BTreeMap<FileId, Rc<Listed>>>,
    /// Locks of programs: each owner has its own open file description.
    pub locks: RefCell<BTreeMap<(FileId, LockOwner), File>>,
    /// Removed directories that a caller still knows.
    pub removed: RefCell<BTreeMap<FileId, File>>,
    /// Seed of the order of listings.
    pub listing_seed: u64,
    /// One search of the tree at a time.
    searching: Rc<RwLock>,
    next_open: Cell<u64>,
    steps: Cell<u64>,
    lives: OwnDirectory,
    _life: File,
}

pub(super) struct Open {
    pub access: OpenMode,
    pub handle: Rc<File>,
    pub durability: Durability,
}

impl LocalStore {
    /// Opens a directory. [`StoreError::TokenHeld`]: a host with this identity is running.
    pub fn open(
        world: Rc<dyn World>,
        directory: &Path,
        identity: Identity,
    ) -> Result<LocalStore, StoreError> {
        let valid = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
        if identity.0.is_empty()
            || identity.0.len() > 64
            || !identity.0.as_bytes().iter().all(valid)
        {
            return Err(Refusal::Invalid.into());
        }
        let name = format!("dir:{}", directory.display());
        let cannot = |error: &io::Error| failed(&name, "opening", error);
        let root = fs::canonicalize(directory).map_err(|error| cannot(&error))?;
        let places = Places::new(root).map_err(|error| cannot(&error))?;
        let own_path = format!("{name}/{OWN_DIRECTORY}");
        let own = OwnDirectory::in_root(places.root_directory(), OWN_DIRECTORY);
        let own = own.map_err(|error| failed(&own_path, "opening as its owner", &error))?;
        let inner = |part: &str| own.inner(part).map_err(|error| failed(&own_path, part, &error));
        let (notes, lives) = (inner("notes")?, inner("lives")?);
        let tokens = LocalTokens::new(inner("tokens")?, inner("wishes")?, identity.clone());
        let hosts = LocalHosts::new(inner("hosts")?, &identity);
        let rights = LentRights::new(inner("modes")?, identity.clone());
        let change_times = ChangeTimes::open(inner("changes")?, &identity);
        let life = lock_life(&lives, &identity)?;
        let uuid = u128::from(world.random()) << 64 | u128::from(world.random());
        let store_identity = identity_or_new(&own, uuid).map_err(|error| cannot(&error))?;
        let listing_seed = world.random();
        Ok(LocalStore(Rc::new(Local {
            world,
            identity,
            store_identity,
            places,
            notes: Notes(notes),
            rights,
            change_times,
            tokens,
            hosts,
            files: RefCell::default(),
            opens: RefCell::default(),
            listings: RefCell::default(),
            locks: RefCell::default(),
            removed: RefCell::default(),
            listing_seed,
            searching: Rc::default(),
            next_open: Cell::new(1),
            steps: Cell::default(),
            lives,
            _life: life,
            name,
        })))
    }

    /// Returns what [`Store::store_identity`] of a directory will be, if a host had it before.
    /// Makes nothing there.
    pub fn identity_of(directory: &Path) -> Result<Option<String>, StoreError> {
        let name = format!("dir:{}", directory.display());
        identity_in(directory, OWN_DIRECTORY).map_err(|error| failed(&name, "opening", &error))
    }
    /// Returns the magic number of the file system that the directory is on, as statfs(2) reports
    /// it.
    pub fn file_system_type(directory: &Path) -> Result<u64, StoreError> {
        let name = format!("dir:{}", directory.display());
        let asked = rustix::fs::statfs(directory);
        // Some have 32 bits of it, with a sign.
        let magic = asked.map(|found| found.f_type as u64 & u64::from(u32::MAX));
        magic.map_err(|error| failed(&name, "opening", &error.into()))
    }
    /// Returns whether a host, also of an older release, had the directory before.
    pub fn was_used(directory: &Path) -> bool {
        directory.join(OWN_DIRECTORY).is_dir()
    }

    fn start<T: 'static, F: Future<Output = Result<T, StoreError>> + 'static>(
        &self,
        work: impl FnOnce(Rc<Local>) -> F,
    ) -> Answer<T> {
        Box::pin(work(self.0.clone()))
    }
    /// Runs a call that the kernel carries out at once.
    fn at_once<T: 'static>(
        &self,
        work: impl Fn(&Local) -> Result<T, StoreError> + 'static,
    ) -> Answer<T> {
        let local = self.0.clone();
        Box::pin(async move { local.searching(|| work(&local)).await })
    }
}

impl Local {
    pub fn failed(&self, what: &str, error: &io::Error) -> StoreError {
        failed(&self.name, what, error)
    }

    /// Runs a call that changes nothing before it has the places of all files. If one of them is
    /// not where it was last, searches for it and runs the call again.
    pub async fn searching<T>(
        &self,
        work: impl Fn() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        for _ in 0..SEARCHES_MAX {
            self.places.take_wanted();
            let result = work();
            match self.places.take_wanted() {
                Some(wanted) if self.search(wanted).await? => {}
                _ => return result,
            }
        }
        Err(Refusal::Stale.into())
    }
    /// Searches the whole tree for a file, as after a crash, and remembers what is met. Returns
    /// whether the file was found. Other requests are answered in the meantime, and another search
    /// waits: it may be for the same file.
    async fn search(&self, wanted: FileId) -> Result<bool, StoreError> {
        if !self.places.may_be_found(wanted) {
            return Ok(false);
        }
        let _one_at_a_time = self.searching.write().await;
        if self.places.is_there(wanted) {
            return Ok(true);
        }
        if !self.places.may_be_found(wanted) {
            return Ok(false);
        }
        let what = "searching for a file";
        let mut may_be_there = false;
        for _ in 0..self.places.walks() {
            let walk = self.places.walk().map_err(|error| self.failed(what, &error))?;
            let walked = self.on_thread(what, move || walk.run(&mut |_, _| {})).await?;
            may_be_there |= self.places.add(walked, wanted)?;
            if self.places.is_there(wanted) {
                return Ok(true);
            }
        }
        match (may_be_there, self.places.is_recovering()) {
            // It is moved all the time, and not gone.
            (true, true) => Err(self.failed(what, &io::Error::from_raw_os_error(libc::EAGAIN))),
            (true, false) => Ok(false),
            (false, _) => {
                self.places.note_missing(wanted);
                Ok(false)
            }
        }
    }

    pub fn opened(&self, file: FileId, access: OpenMode, handle: File) -> OpenFile {
        let number = OpenFile(self.next_open.replace(self.next_open.get() + 1));
        let durability = Durability::opened_at(self.next_step());
        let open = Open { access, handle: Rc::new(handle), durability };
        self.opens.borrow_mut().insert(number, file, open);
        number
    }
    pub fn next_step(&self) -> u64 {
        self.steps.set(self.steps.get() + 1);
        self.steps.get()
    }

    fn create(
        &self,
        parent: FileId,
        name: &[u8],
        mode: u32,
        caller: Creator,
    ) -> Result<Created, StoreError> {
        // Opened as it is made: a mode that forbids it binds those who come later.
        let (found, handle) = self.make(parent, name, &NewNode::Regular { mode }, caller)?;
        let open = self.opened(found.file, OpenMode::ReadWrite, handle);
        Ok(Created { found, open: Some(open), is_held: false })
    }

    /// Excludes other clients before a call changes a file of which this client has no token: their
    /// buffers are flushed, and none of them gets a token until the result is dropped.
    pub async fn exclude(&self, file: FileId, kind: FileKind) -> Result<Excluded, StoreError> {
        if kind != FileKind::Regular || units::fault!("store-token-not-recalled") {
            return Ok(Excluded::Needless);
        }
        // With a shared token nobody has it exclusively.
        let is_held = || self.tokens.of(file).is_some();
        if is_held() {
            return Ok(Excluded::Held);
        }
        let until = self.world.now().plus(LEASE);
        let mut wished = false;
        let result = loop {
            if is_held() {
                break Ok(match units::fault!("store-own-token-overlooked") {
                    true => Excluded::Needless,
                    false => Excluded::Overtaken,
                });
            }
            match self.tokens.try_exclude(file) {
                Ok(Some(exclusion)) => break Ok(Excluded::Until(exclusion)),
                Ok(None) if self.world.now() < until => {}
                Ok(None) => break Err(StoreError::TokenHeld),
                Err(error) => break Err(self.failed("recalling a token", &error)),
            }
            if let Err(error) = self.tokens.wish(file) {
                break Err(self.failed("wishing for a token", &error));
            }
            wished = true;
            self.world.sleep_until(self.world.now().plus(POLL_INTERVAL)).await;
        };
        if wished {
            self.tokens.end_wish(file);
        }
        result
    }
    /// Returns whether others are still kept from a file: this client may have returned its token.
    pub fn are_excluded(&self, (found, excluded): &(Metadata, Excluded)) -> bool {
        let is_held = || self.tokens.of(FileId(found.ino())).is_some();
        !matches!(excluded, Excluded::Held) || is_held()
    }
    /// Excludes others from the file that `find` finds, which another client may replace at any
    /// time.
    pub async fn exclude_found(
        &self,
        what: &str,
        find: impl Fn() -> io::Result<Metadata>,
    ) -> Result<(Metadata, Excluded), StoreError> {
        for _ in 0..REPLACED_MAX {
            let found = find().map_err(|error| self.failed(what, &error))?;
            let kind = self.attributes_of(&found).kind;
            let excluded = self.exclude(FileId(found.ino()), kind).await?;
            let now = find().map_err(|error| self.failed(what, &error))?;
            if now.ino() == found.ino() && !matches!(excluded, Excluded::Overtaken) {
                return Ok((now, excluded));
            }
        }
        Err(Refusal::Stale.into())
    }

    fn space(&self) -> Result<Space, StoreError> {
        let seen = fstatvfs(self.places.root_directory());
        let seen = seen.map_err(|error| self.failed("asking for the space", &error.into()))?;
        Ok(Space {
            block_bytes: u32::try_from(seen.f_frsize).unwrap_or(u32::MAX),
            blocks: seen.f_blocks,
            blocks_free: seen.f_bfree,
            blocks_available: seen.f_bavail,
            files: seen.f_files,
            files_free: seen.f_ffree,
        })
    }

    async fn take_token(&self, open: OpenFile, token: Token) -> Result<FileAttributes, StoreError> {
        let (file, handle) = {
            let opens = self.opens.borrow();
            let (file, open) = opens.get(open)?;
            (file, open.handle.clone())
        };
        self.flush(file).await?;
        let former = self.files.borrow_mut().remove(&file);
        let was_noted = former.is_some_and(|former| former.was_noted);
        if self.tokens.is_wished(file) && self.tokens.of(file).is_none() {
            // A waiting client checks only this often: a client that has just returned the token
            // must not win each time.
            self.world.sleep_until(self.world.now().plus(POLL_INTERVAL * 3)).await;
        }
        let until = self.world.now().plus(LEASE);
        let mut wished = false;
        let taken = loop {
            match self.tokens.try_take(file, token) {
                Ok(true) => break Ok(()),
                Ok(false) if self.world.now() < until => {}
                Ok(false) => break Err(StoreError::TokenHeld),
                Err(error) => break Err(self.failed("taking a token", &error)),
            }
            // Wish again: another request of this client may have withdrawn the wish.
            self.tokens.wish(file).map_err(|error| self.failed("wishing for a token", &error))?;
            wished = true;
            self.world.sleep_until(self.world.now().plus(POLL_INTERVAL)).await;
        };
        if wished {
            self.tokens.end_wish(file);
        }
        taken?;
        let metadata = handle.metadata().map_err(|error| self.failed("taking a token", &error))?;
        let attributes = self.attributes_of(&metadata);
        if token == Token::ExclusiveWrite {
            let overlay = Overlay::over(attributes.version.size);
            let flush_lock = Rc::default();
            let buffered = LocalBuffered {
                attributes,
                overlay,
                flushing: None,
                clean: true,
                was_noted,
                flush_lock,
                seen: Seen::of(&metadata),
                handle,
            };
            self.files.borrow_mut().insert(file, buffered);
        }
        Ok(attributes)
    }

    async fn return_token(&self, file: FileId) -> Result<(), StoreError> {
        let mut flushed = match self.tokens.of(file) {
            Some(Token::SharedWrite) => self.sync_shared(file).await,
            _ => self.flush(file).await,
        };
        let held = self.files.borrow_mut().remove(&file);
        if let Some(held) = held.filter(|_| flushed.is_ok()) {
            if held.was_noted && !self.is_awaited() {
                // No client asks for a reported state any more: what it guarded is in the file.
                let removed = self.notes.remove(file);
                flushed = removed.map_err(|error| self.failed("removing a note", &error));
            }
            drop(held);
        }
        self.tokens.give_back(file);
        flushed
    }
    /// Drops the buffer of a file, and returns its token.
    fn discard(&self, file: FileId) {
        self.files.borrow_mut().remove(&file);
        self.tokens.give_back(file);
    }
    /// Returns whether programs on other hosts may have files open.
    pub fn has_other_hosts(&self) -> bool {
        !units::fault!("store-others-not-asked") && self.hosts.has_others().unwrap_or(true)
    }
    /// Returns whether the recovery of another host may compare a file with what it builds on.
    /// Where times have whole seconds, only the note distinguishes a state from the one before.
    pub fn is_awaited(&self) -> bool {
        !units::fault!("store-note-not-kept") && self.hosts.has_dead().unwrap_or(true)
    }

    async fn next_event(&self) -> StoreEvent {
        // A client wanted once is usually wanted again soon.
        let busy_until = self.world.now().plus(BUSY);
        loop {
            let now = self.world.wall_clock();
            let clock = UNIX_EPOCH + Duration::new(now.seconds.max(0) as u64, now.nanoseconds);
            let is_idle = self.tokens.is_empty();
            if !is_idle {
                if let Some((file, token)) = self.tokens.next_recall(clock) {
                    return StoreEvent::Recall {
                        file,
                        token,
                        deadline: self.world.now().plus(LEASE),
                    };
                }
            }
            let is_idle = is_idle || self.world.now() > busy_until;
            let wait = if is_idle { IDLE } else { POLL_INTERVAL };
            self.world.sleep_until(self.world.now().plus(wait)).await;
        }
    }
}

impl Store for LocalStore {
    fn name(&self) -> &str {
        &self.0.name
    }
    fn identity(&self) -> Identity {
        self.0.identity.clone()
    }
    fn store_identity(&self) -> String {
        self.0.store_identity.clone()
    }
    fn held_below(&self, _size: u64) -> u64 {
        u64::MAX
    }
    fn keeps_failed_writes(&self) -> bool {
        true
    }
    fn counts_every_change(&self) -> bool {
        false
    }
    fn hold_ms(&self) -> u64 {
        u64::MAX
    }
    /// Tokens are locks that the kernel drops only with their process.
    fn lease_ms(&self) -> u64 {
        u64::MAX
    }
    fn still_known(&self) -> Answer<()> {
        Box::pin(async { Ok(()) })
    }
    fn reuses_numbers(&self) -> bool {
        true
    }
    fn others_read_removed(&self) -> bool {
        self.0.has_other_hosts()
    }

    /// Fences nothing: a dead client has left nothing behind: its buffer died with it, and the
    /// kernel dropped its locks.
    fn fence(&self, former: &Identity) -> Answer<()> {
        let former = former.clone();
        self.at_once(move |local| {
            if former == local.identity {
                return Ok(());
            }
            lock_life(&local.lives, &former).map(drop)
        })
    }
    /// Does nothing: the kernel's calls return in their own time.
    fn give_up_connection(&self) {}
    fn reconnect(&self) -> Answer<()> {
        self.at_once(|local| {
            local.files.borrow_mut().clear();
            local.opens.borrow_mut().clear();
            local.locks.borrow_mut().clear();
            local.tokens.held().into_iter().for_each(|file| local.tokens.give_back(file));
            Ok(())
        })
    }
    fn next_event(&self) -> LocalFuture<StoreEvent> {
        let local = self.0.clone();
        Box::pin(async move { local.next_event().await })
    }
    fn disconnect(&self) -> Answer<()> {
        self.start(|local| async move {
            for file in local.tokens.held() {
                local.return_token(file).await?;
            }
            // Without them files look changed, and nothing is lost.
            let _ = local.change_times.keep();
            Ok(())
        })
    }

    fn root(&self) -> FileId {
        self.0.places.root()
    }
    fn lookup(&self, parent: FileId, name: &[u8]) -> Answer<Found> {
        let name = name.to_vec();
        self.at_once(move |local| local.lookup(parent, &name))
    }
    fn find(&self, file: FileId) -> Answer<Found> {
        self.at_once(move |local| Ok(Found { file, attributes: local.attributes(file)? }))
    }
    fn path_of(&self, file: FileId) -> Answer<Option<Vec<u8>>> {
        self.at_once(move |local| Ok(local.places.path(file)))
    }
    fn forget(&self, file: FileId) {
        let held = self.0.files.borrow().contains_key(&file);
        let is_open = self.0.opens.borrow().is_open(file);
        if !held && !is_open {
            self.0.places.forget(file);
            self.0.listings.borrow_mut().remove(&file);
            self.0.removed.borrow_mut().remove(&file);
        }
    }
    fn make(&self, parent: FileId, name: &[u8], node: NewNode, caller: Creator) -> Answer<Found> {
        let name = name.to_vec();
        self.at_once(move |local| local.make(parent, &name, &node, caller).map(|(found, _)| found))
    }
    fn create(&self, parent: FileId, name: &[u8], mode: u32, caller: Creator) -> Answer<Created> {
        let name = name.to_vec();
        self.at_once(move |local| local.create(parent, &name, mode, caller))
    }
    fn link(&self, file: FileId, parent: FileId, name: &[u8]) -> Answer<FileAttributes> {
        let name = name.to_vec();
        self.start(move |local| async move { local.link(file, parent, &name).await })
    }
    fn unlink(&self, parent: FileId, name: &[u8]) -> Answer<()> {
        let name = name.to_vec();
        self.start(move |local| async move { local.unlink(parent, &name).await })
    }
    fn remove_directory(&self, parent: FileId, name: &[u8]) -> Answer<()> {
        let name = name.to_vec();
        self.at_once(move |local| local.remove_directory(parent, &name))
    }
    fn rename(
        &self,
        parent: FileId,
        name: &[u8],
        new_parent: FileId,
        new_name: &[u8],
        mode: RenameOver,
    ) -> Answer<()> {
        let (name, new_name) = (name.to_vec(), new_name.to_vec());
        self.start(move |local| async move {
            local.rename((parent, &name), (new_parent, &new_name), mode).await
        })
    }
    fn read_link(&self, file: FileId) -> Answer<Vec<u8>> {
        self.at_once(move |local| local.read_link(file))
    }
    fn list(&self, directory: FileId, cursor: u64) -> Answer<Listing> {
        self.start(move |local| async move { local.list(directory, cursor).await })
    }
    fn sync_directory(&self, directory: FileId) -> Answer<()> {
        self.start(move |local| async move { local.sync_names(directory).await })
    }
    fn make_removals_durable(&self, directories: Option<Vec<FileId>>) -> Answer<()> {
        self.start(move |local| async move { local.sync_removals(directories).await })
    }
    fn space(&self) -> Answer<Space> {
        self.at_once(|local| local.space())
    }

    fn attributes(&self, file: FileId) -> Answer<FileAttributes> {
        self.at_once(move |local| local.attributes(file))
    }
    fn set_attributes(&self, file: FileId, change: AttributeChange) -> Answer<FileAttributes> {
        self.start(move |local| async move { local.set_attributes(file, change).await })
    }
    fn xattr(&self, file: FileId, name: &[u8]) -> Answer<Vec<u8>> {
        let name = name.to_vec();
        self.at_once(move |local| local.xattr(file, &name))
    }
    fn xattr_names(&self, file: FileId) -> Answer<Vec<u8>> {
        self.at_once(move |local| local.xattr_names(file))
    }
    fn set_xattr(&self, file: FileId, name: &[u8], value: &[u8], mode: XattrMode) -> Answer<()> {
        let (name, value) = (name.to_vec(), value.to_vec());
        self.start(
            move |local| async move { local.change_xattr(file, name, Some((value, mode))).await },
        )
    }
    fn remove_xattr(&self, file: FileId, name: &[u8]) -> Answer<()> {
        let name = name.to_vec();
        self.start(move |local| async move { local.change_xattr(file, name, None).await })
    }

    fn open(&self, file: FileId, access: OpenMode) -> Answer<OpenFile> {
        self.start(move |local| async move { local.open(file, access).await })
    }
    fn close(&self, open: OpenFile) -> Answer<()> {
        self.start(move |local| async move { local.close(open).await })
    }
    fn read(&self, open: OpenFile, at: u64, length: usize) -> Answer<Vec<u8>> {
        self.at_once(move |local| local.read(open, at, length))
    }
    fn write(&self, open: OpenFile, at: u64, bytes: &[u8]) -> Answer<FileAttributes> {
        let bytes = bytes.to_vec();
        self.at_once(move |local| local.write(open, Some(at), &bytes))
    }
    fn append(&self, open: OpenFile, bytes: &[u8]) -> Answer<FileAttributes> {
        let bytes = bytes.to_vec();
        self.at_once(move |local| local.write(open, None, &bytes))
    }
    fn allocate(
        &self,
        open: OpenFile,
        what: Allocation,
        range: Range<u64>,
    ) -> Answer<FileAttributes> {
        self.start(move |local| async move { local.allocate(open, what, range).await })
    }
    fn make_durable(&self, open: OpenFile) -> Answer<()> {
        self.start(move |local| async move { local.make_durable(open).await })
    }
    fn discard(&self, file: FileId) -> Answer<()> {
        self.at_once(move |local| {
            local.discard(file);
            Ok(())
        })
    }
    fn may_end_at(&self, open: OpenFile, end: u64) -> bool {
        self.0.may_end_at(open, end)
    }
    fn is_unsynced(&self, open: OpenFile) -> bool {
        self.0.is_unsynced(open)
    }
    fn take_token(&self, open: OpenFile, token: Token) -> Answer<FileAttributes> {
        self.start(move |local| async move { local.take_token(open, token).await })
    }
    fn return_token(&self, file: FileId) -> Answer<()> {
        self.start(move |local| async move { local.return_token(file).await })
    }

    fn register_host(&self, phase: HostPhase) -> Answer<()> {
        self.start(move |local| async move {
            let is_recovering = phase == HostPhase::Recovering;
            local.places.set_recovering(is_recovering);
            local.hosts.register(phase).map_err(|error| local.failed("registering", &error))?;
            if is_recovering { local.take_rights_back().await } else { Ok(()) }
        })
    }
    fn expect_searches(&self, are_expected: bool) {
        self.0.places.set_recovering(are_expected);
    }
    fn unregister_host(&self) -> Answer<()> {
        self.at_once(|local| {
            local.hosts.unregister().map_err(|error| local.failed("unregistering", &error))
        })
    }
    fn may_have_dead_owner(&self, file: FileId) -> Answer<bool> {
        self.at_once(move |local| {
            let has_dead = || {
                let found = local.hosts.has_dead();
                found.map_err(|error| local.failed("looking for other hosts", &error))
            };
            Ok(local.tokens.was_left(file) || has_dead()?)
        })
    }

    fn lock(&self, open: OpenFile, lock: FileLock) -> Answer<()> {
        self.at_once(move |local| local.lock(open, &lock))
    }
    fn test_lock(&self, open: OpenFile, lock: FileLock) -> Answer<Option<FileLock>> {
        self.at_once(move |local| local.test_lock(open, &lock))
    }
}
