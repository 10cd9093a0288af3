//! One host's connection to the cluster, and its buffer. `serve` has the calls of the store,
//! `leases` the names that it knows, `recalls` what it reports to the servers with a recall.

mod leases;
mod names;
mod recalls;
mod serve;

use super::servers::{Cluster, Inode, NAME, RequestKind, Session, State, fresh};
use crate::attributes::{Allocation, AttributeChange, FileAttributes, FileId, FileKind, Version};
use crate::error::{Refusal, StoreError};
use crate::event::{Identity, StoreEvent, Token};
use crate::limits::{TRANSFER_BYTES_MAX, size_report_threshold};
use crate::names::{Created, Creator, Found, NewNode};
use crate::open_file::OpenFile;
use crate::opens::Opens;
use crate::overlay::Overlay;
use crate::store::Answer;
use leases::Lease;
use recalls::Recalls;
use runtime::sync::RwLock;
use runtime::{Either, join_window, race};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use units::Timestamp;

/// Files flushed at once in a sync of all files.
const FLUSHED_AT_ONCE: usize = 64;

/// A kernel client of Ceph caches and sends whole pages.
const PAGE: u64 = 4096;
/// Enough to keep links and journals busy. libcephfs has up to 1,024 in flight
/// (`objecter_inflight_ops`).
const MESSAGES_AT_ONCE: usize = 128;

/// One message to a data server: `range`, and the bytes changed in it.
struct Parcel<'a> {
    range: Range<u64>,
    pieces: Vec<(u64, &'a [u8])>,
}
type Sent<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + 'a>>;

/// A connection. Clones are the same connection.
#[derive(Clone)]
pub struct SimulatedStore(Rc<Client>);

pub(super) struct Client {
    pub state: Rc<State>,
    identity: Identity,
    session: RefCell<Rc<Session>>,
    files: RefCell<BTreeMap<FileId, SimulatedBuffered>>,
    opens: RefCell<Opens<()>>,
    next_open: Cell<u64>,
    recalls: RefCell<Recalls>,
    /// Whether this is a kernel client; others end a sync with a request that a fenced client is
    /// refused.
    is_kernel: bool,
    leases: RefCell<BTreeMap<(FileId, Vec<u8>), Lease>>,
}

/// A file held exclusively.
struct SimulatedBuffered {
    attributes: FileAttributes,
    overlay: Overlay,
    /// Changes in flight to the servers.
    flushing: Option<Overlay>,
    /// Whether the servers have these attributes.
    clean: bool,
    /// The size that the servers have.
    reported: u64,
    /// Whether this client has removed a name, and not asked since how many are left.
    lost_name: bool,
    /// Whether a recovery has it ([`Store::take_token_to_recover`]).
    is_recovered: bool,
    flush_lock: Rc<RwLock>,
}

impl SimulatedStore {
    pub fn connect(cluster: &Cluster, identity: Identity) -> SimulatedStore {
        SimulatedStore::new(cluster, identity, false)
    }
    /// Connects like Linux's own client of Ceph: it sends whole pages, and a sync waits for content
    /// alone, as the metadata server can recover size and time, without another request.
    pub fn connect_as_kernel(cluster: &Cluster, identity: Identity) -> SimulatedStore {
        SimulatedStore::new(cluster, identity, true)
    }
    fn new(cluster: &Cluster, identity: Identity, is_kernel: bool) -> SimulatedStore {
        let session = RefCell::new(new_session(&cluster.0, &identity));
        SimulatedStore(Rc::new(Client {
            state: cluster.0.clone(),
            identity,
            session,
            files: RefCell::default(),
            opens: RefCell::default(),
            next_open: Cell::new(1),
            recalls: RefCell::default(),
            is_kernel,
            leases: RefCell::default(),
        }))
    }
    fn start<T: 'static, F: Future<Output = Result<T, StoreError>> + 'static>(
        &self,
        work: impl FnOnce(Rc<Client>) -> F,
    ) -> Answer<T> {
        let (client, work) = (self.0.clone(), work(self.0.clone()));
        Box::pin(async move {
            let session = client.session();
            let given_up = session.gave_up.until(|| session.given_up.get().then_some(()));
            if session.given_up.get() {
                return Err(given_up_error());
            }
            match race(work, given_up).await {
                Either::Left(answer) => answer,
                Either::Right(()) => Err(given_up_error()),
            }
        })
    }
}

fn given_up_error() -> StoreError {
    StoreError::Disconnected { store: NAME.into(), why: "it was given up".into() }
}

fn new_session(state: &Rc<State>, identity: &Identity) -> Rc<Session> {
    let number = state.next_session.get();
    state.next_session.set(number + 1);
    let session = Rc::new(Session::new(identity.clone(), number));
    state.sessions.borrow_mut().push(session.clone());
    session
}

impl Client {
    pub fn session_number(&self) -> u64 {
        self.session().number
    }
    fn session(&self) -> Rc<Session> {
        self.session.borrow().clone()
    }
    pub async fn exchange<T>(
        &self,
        request: RequestKind,
        bytes: u64,
        carry_out: impl FnMut() -> T,
    ) -> Result<T, StoreError> {
        self.state.exchange(&self.session(), request, bytes, carry_out).await
    }
    /// Waits for an answer as long as a lease lasts; without one the connection is given up.
    pub async fn within_lease<T>(
        &self,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let until = self.state.world.now().plus(self.state.network.lease);
        match race(answer, self.state.world.sleep_until(until)).await {
            Either::Left(answer) => answer,
            Either::Right(()) => {
                let why = "the servers do not answer".into();
                Err(StoreError::Disconnected { store: NAME.into(), why })
            }
        }
    }
    /// Sends a message about one inode.
    async fn ask<T>(
        &self,
        file: FileId,
        request: RequestKind,
        bytes: u64,
        mut carry_out: impl FnMut(&mut Inode) -> Result<T, Refusal>,
    ) -> Result<T, StoreError> {
        let state = self.state.clone();
        let answer = self.exchange(request, bytes, || {
            let mut inodes = state.inodes.borrow_mut();
            carry_out(inodes.get_mut(&file).ok_or(Refusal::Stale)?)
        });
        Ok(answer.await??)
    }
    fn file_of(&self, open: OpenFile) -> Result<FileId, StoreError> {
        Ok(self.opens.borrow().get(open)?.0)
    }
    fn now(&self) -> Timestamp {
        self.state.world.wall_clock()
    }
    /// Applies a change that the servers need not know yet.
    fn change(
        &self,
        file: FileId,
        change: impl FnOnce(&mut SimulatedBuffered),
    ) -> Option<FileAttributes> {
        let mut files = self.files.borrow_mut();
        let buffered = files.get_mut(&file)?;
        assert!(!self.recalls.borrow().contains(file), "{file:?} was changed while it is recalled");
        change(buffered);
        buffered.clean = false;
        let size = buffered.overlay.size();
        buffered.attributes.version = self.state.next_version(buffered.attributes.version, size);
        buffered.attributes.blocks = size.div_ceil(512);
        buffered.attributes.changed = self.now();
        buffered.attributes.links = self.state.links(file).unwrap_or(buffered.attributes.links);
        Some(buffered.attributes)
    }

    /// Writes at an offset; `None`: at the end.
    async fn write(
        &self,
        open: OpenFile,
        at: Option<u64>,
        bytes: Vec<u8>,
    ) -> Result<FileAttributes, StoreError> {
        let (file, length) = (self.file_of(open)?, bytes.len() as u64);
        if bytes.len() > TRANSFER_BYTES_MAX || at.unwrap_or(0).checked_add(length).is_none() {
            return Err(Refusal::Invalid.into());
        }
        let is_late = self.meet_recall(file).await?;
        let now = self.now();
        let before = self.files.borrow().get(&file).map(|buffered| buffered.attributes);
        let buffered = self.change(file, |buffered| {
            buffered.overlay.write(at.unwrap_or(buffered.overlay.size()), &bytes);
            buffered.attributes.modified = now;
        });
        if let (Some(before), Some(attributes)) = (before, buffered) {
            self.write_back(file, before).await?;
            return Ok(attributes);
        }
        self.state.journal_data(file, at.unwrap_or(0), length).await;
        let (state, mut place) = (self.state.clone(), at);
        let written = self.ask(file, RequestKind::Content, length, move |inode| {
            // The same place if the message is carried out twice.
            let at = *place.get_or_insert(inode.attributes.version.size);
            put(&mut inode.data, at, &bytes);
            let size = inode.attributes.version.size.max(at + length);
            inode.attributes.version = state.next_version(inode.attributes.version, size);
            inode.attributes.modified = now;
            inode.attributes.changed = now;
            inode.attributes.blocks = size.div_ceil(512);
            Ok(inode.attributes)
        });
        match (is_late, written.await?) {
            // Others may have changed it since.
            (true, _) => self.attributes(file).await,
            (false, written) => Ok(written),
        }
    }
    /// Carries out a recall that the host has not read, before its next change, which then goes to
    /// the servers: so does the helper of a host of Ceph. Returns whether there was one. TokenHeld:
    /// a recovery has the token.
    async fn meet_recall(&self, file: FileId) -> Result<bool, StoreError> {
        let is_recovered = self.files.borrow().get(&file).is_some_and(|held| held.is_recovered);
        let unread = self.session().unread_recall(file);
        if is_recovered && (unread.is_some() || self.recalls.borrow().contains(file)) {
            return Err(StoreError::TokenHeld);
        }
        let Some(due) = unread.filter(|_| self.files.borrow().contains_key(&file)) else {
            return Ok(false);
        };
        // The answer to the change comes after the report of the recall.
        self.state.world.sleep_until(due).await;
        self.return_token(file).await?;
        Ok(true)
    }

    async fn read(&self, open: OpenFile, at: u64, length: usize) -> Result<Vec<u8>, StoreError> {
        let file = self.file_of(open)?;
        let length = length.min(TRANSFER_BYTES_MAX);
        let held = self.files.borrow().get(&file).map(|buffered| buffered.overlay.size());
        let base = self.ask(file, RequestKind::Content, length as u64, |inode| {
            // Content may be there before the servers know the file's length.
            let size = held.unwrap_or(inode.attributes.version.size);
            let end = size.min(at.saturating_add(length as u64));
            let mut bytes: Vec<u8> = inode
                .data
                .iter()
                .skip(at as usize)
                .take(end.saturating_sub(at) as usize)
                .copied()
                .collect();
            bytes.resize(end.saturating_sub(at) as usize, 0);
            Ok(bytes)
        });
        let base = base.await?;
        let files = self.files.borrow();
        let Some(buffered) = files.get(&file) else { return Ok(base) };
        let base = match &buffered.flushing {
            Some(flushing) => flushing.read(at, length, base),
            None => base,
        };
        Ok(buffered.overlay.read(at, length, base))
    }

    /// Sends data first, then the attributes that describe it.
    async fn flush(&self, file: FileId) -> Result<(), StoreError> {
        if self.state.links(file) == Some(0) && !self.opens.borrow().is_open(file) {
            // No client will read it.
            self.files.borrow_mut().remove(&file);
            return Ok(());
        }
        let Some(flush_lock) =
            self.files.borrow().get(&file).map(|buffered| buffered.flush_lock.clone())
        else {
            return Ok(());
        };
        let _guard = flush_lock.write().await;
        let (attributes, flushing) = {
            let mut files = self.files.borrow_mut();
            let Some(buffered) = files.get_mut(&file).filter(|buffered| !buffered.clean) else {
                return Ok(());
            };
            let size = buffered.overlay.size();
            let flushing = std::mem::replace(&mut buffered.overlay, Overlay::over(size));
            buffered.flushing = Some(flushing.clone());
            (buffered.clean, buffered.reported) = (true, size);
            (buffered.attributes, flushing)
        };
        let sent = async {
            self.send_content(file, &flushing, attributes.changed).await?;
            if self.is_kernel {
                self.send_attributes_later(file, attributes);
                return Ok(());
            }
            self.send_attributes(file, attributes).await
        };
        match sent.await {
            Err(error) if error.is_lost() => self.files.borrow_mut().clear(),
            Err(error) => {
                if let Some(buffered) = self.files.borrow_mut().get_mut(&file) {
                    if let Some(given) = buffered.flushing.take() {
                        buffered.overlay.put_over(given);
                        buffered.clean = false;
                    }
                }
                return Err(error);
            }
            Ok(()) => {}
        }
        if !self.is_kernel {
            self.state.journal_names().await;
        }
        if let Some(buffered) = self.files.borrow_mut().get_mut(&file) {
            buffered.flushing = None;
        }
        Ok(())
    }

    async fn flush_all(self: Rc<Self>) -> Result<(), StoreError> {
        let held: Vec<FileId> = self.files.borrow().keys().copied().collect();
        let flushes = held.into_iter().map(|file| -> Answer<()> {
            let client = self.clone();
            Box::pin(async move { client.flush(file).await })
        });
        join_window(flushes.collect::<Vec<_>>(), FLUSHED_AT_ONCE).await.map(drop)
    }
    async fn send_content(
        &self,
        file: FileId,
        from: &Overlay,
        written: Timestamp,
    ) -> Result<(), StoreError> {
        if self.state.is_full(file) {
            self.exchange(RequestKind::Content, 0, || ()).await?;
            return Err(Refusal::NoSpace.into());
        }
        let sends = self.parcels(from).into_iter().map(|Parcel { range, pieces }| -> Sent<'_> {
            Box::pin(async move {
                let bytes = range.end - range.start;
                self.session().link.pass(&*self.state.world, self.state.sending_time(bytes)).await;
                self.state.journal_data(file, range.start, bytes).await;
                let put_there = |inode: &mut Inode| {
                    pieces.iter().for_each(|(at, bytes)| put(&mut inode.data, *at, bytes));
                    inode.written = written;
                    Ok(())
                };
                self.ask(file, RequestKind::Content, 0, put_there).await
            })
        });
        join_window(sends.collect::<Vec<_>>(), MESSAGES_AT_ONCE).await.map(drop)
    }
    fn parcels<'a>(&self, from: &'a Overlay) -> Vec<Parcel<'a>> {
        let mut parcels: Vec<Parcel> = Vec::new();
        for (at, bytes) in from.pieces() {
            let mut range = at..at + bytes.len() as u64;
            if self.is_kernel {
                range = at / PAGE * PAGE..range.end.next_multiple_of(PAGE).min(from.size());
            }
            match parcels.last_mut().filter(|last| self.is_kernel && range.start <= last.range.end)
            {
                Some(last) => {
                    last.range.end = range.end;
                    last.pieces.push((at, bytes));
                }
                None => parcels.push(Parcel { range, pieces: vec![(at, bytes)] }),
            }
        }
        parcels
    }
    async fn send_attributes(
        &self,
        file: FileId,
        attributes: FileAttributes,
    ) -> Result<(), StoreError> {
        let set = |inode: &mut Inode| {
            inode.set(attributes);
            Ok(())
        };
        self.ask(file, RequestKind::Attributes, 0, set).await
    }
    /// Sends attributes without waiting for the answer.
    fn send_attributes_later(&self, file: FileId, attributes: FileAttributes) {
        let (state, session) = (self.state.clone(), self.session());
        self.state.world.spawn(Box::pin(async move {
            let set =
                || state.inodes.borrow_mut().get_mut(&file).map(|inode| inode.set(attributes));
            if state.exchange(&session, RequestKind::Attributes, 0, set).await.is_ok() {
                state.journal_names().await;
            }
        }));
    }

    /// Sends what a write makes the client send unasked. The attributes are those of the write
    /// before, except for the size.
    async fn write_back(&self, file: FileId, before: FileAttributes) -> Result<(), StoreError> {
        let is_outgrown = |buffered: &SimulatedBuffered| {
            let size = buffered.overlay.size();
            size > before.version.size && size >= self.held_below(buffered.reported)
        };
        // Otherwise nobody waits for content in flight.
        let sends = |buffered: &&SimulatedBuffered| is_outgrown(buffered) || self.is_full(buffered);
        let Some(flush_lock) = self
            .files
            .borrow()
            .get(&file)
            .filter(sends)
            .map(|buffered| buffered.flush_lock.clone())
        else {
            return Ok(());
        };
        let _guard = flush_lock.write().await;
        let (size, is_outgrown) = {
            let mut files = self.files.borrow_mut();
            let Some(buffered) = files.get_mut(&file) else { return Ok(()) };
            let (size, is_outgrown) = (buffered.overlay.size(), is_outgrown(buffered));
            buffered.reported = if is_outgrown { size } else { buffered.reported };
            (size, is_outgrown)
        };
        if is_outgrown {
            let version = Version { size, ..before.version };
            self.send_attributes(file, FileAttributes { version, ..before }).await?;
        }
        let spilled = {
            let mut files = self.files.borrow_mut();
            let Some(buffered) = files.get_mut(&file).filter(|buffered| self.is_full(buffered))
            else {
                return Ok(());
            };
            let spilled = std::mem::replace(&mut buffered.overlay, Overlay::over(size));
            buffered.flushing = Some(spilled.clone());
            (spilled, buffered.attributes.changed)
        };
        let sent = self.send_content(file, &spilled.0, spilled.1).await;
        if let Some(buffered) = self.files.borrow_mut().get_mut(&file) {
            if let Some(given) = buffered.flushing.take() {
                if sent.is_err() {
                    buffered.overlay.put_over(given);
                }
            }
        }
        sent
    }
    fn is_full(&self, buffered: &SimulatedBuffered) -> bool {
        buffered.overlay.bytes() > self.state.network.buffer_bytes
    }
    fn held_below(&self, size: u64) -> u64 {
        size_report_threshold(size, self.state.network.object_bytes)
    }

    /// Returns the attributes. A client knows those of a file that it holds, except for the number
    /// of names after it has removed one.
    async fn attributes(&self, file: FileId) -> Result<FileAttributes, StoreError> {
        let request = match self.files.borrow().get(&file) {
            None => RequestKind::Lookup,
            Some(held) if held.lost_name => RequestKind::NamesLeft,
            Some(held) => {
                let links = self.state.links(file).unwrap_or(held.attributes.links);
                return Ok(FileAttributes { links, ..held.attributes });
            }
        };
        let asked = self.ask(file, request, 0, |inode| Ok(inode.attributes)).await?;
        let mut files = self.files.borrow_mut();
        let Some(held) = files.get_mut(&file) else { return Ok(asked) };
        held.lost_name = false;
        Ok(FileAttributes { links: asked.links, ..held.attributes })
    }
    /// Withdraws what this client knows of the number of names.
    pub fn lost_name(&self, file: FileId) {
        if let Some(held) = self.files.borrow_mut().get_mut(&file) {
            held.lost_name = true;
        }
    }

    async fn set_attributes(
        &self,
        file: FileId,
        change: AttributeChange,
    ) -> Result<FileAttributes, StoreError> {
        self.meet_recall(file).await?;
        let now = self.now();
        let held = self.files.borrow().get(&file).map(|buffered| buffered.overlay.size());
        if held.is_some_and(|size| change.size.is_none_or(|wanted| wanted == size)) {
            let changed =
                self.change(file, |buffered| change.apply_to(&mut buffered.attributes, now));
            return changed.ok_or(Refusal::Stale.into());
        }
        self.flush(file).await?;
        let (state, number) = (self.state.clone(), self.session().number);
        let deadline = self.state.world.now().plus(self.state.network.lease);
        let mut reported = BTreeSet::new();
        let attributes = loop {
            let changed = self.ask(file, RequestKind::Change, 0, |inode| {
                let against = state.tokens.borrow().against_change(file, number);
                if !against.is_empty() && !units::fault!("store-token-not-recalled") {
                    return Ok(Err(against));
                }
                let before = inode.attributes.version;
                let size = change.size.unwrap_or(before.size);
                inode.data.resize(size as usize, 0);
                change.apply_to(&mut inode.attributes, now);
                inode.attributes.version = state.next_version(before, size);
                inode.attributes.changed = now;
                Ok(Ok(inode.attributes))
            });
            match changed.await? {
                Ok(attributes) => break attributes,
                Err(against) => {
                    let free = || state.tokens.borrow().against_change(file, number).is_empty();
                    self.until_free(file, against, &mut reported, deadline, free).await;
                }
            }
        };
        self.settled(file, attributes);
        Ok(attributes)
    }

    async fn allocate(
        &self,
        open: OpenFile,
        what: Allocation,
        Range { start, end }: Range<u64>,
    ) -> Result<FileAttributes, StoreError> {
        let (file, now) = (self.file_of(open)?, self.now());
        self.flush(file).await?;
        let state = self.state.clone();
        let allocated = self.ask(file, RequestKind::Change, 0, move |inode| {
            let before = inode.attributes.version;
            let size = if what == Allocation::Reserve { before.size.max(end) } else { before.size };
            inode.data.resize(size as usize, 0);
            if what == Allocation::PunchHole {
                let [start, end] = [start, end].map(|at| at.min(size) as usize);
                inode.data[start..end].fill(0);
            }
            inode.attributes.version = state.next_version(before, size);
            (inode.attributes.modified, inode.attributes.changed) = (now, now);
            Ok(inode.attributes)
        });
        let attributes = allocated.await?;
        self.settled(file, attributes);
        Ok(attributes)
    }

    /// Records that the servers have changed a file without buffered changes.
    fn settled(&self, file: FileId, attributes: FileAttributes) {
        if let Some(buffered) = self.files.borrow_mut().get_mut(&file) {
            buffered.attributes = attributes;
            buffered.overlay = Overlay::over(attributes.version.size);
            buffered.reported = attributes.version.size;
        }
    }

    async fn take_token(&self, open: OpenFile, token: Token) -> Result<FileAttributes, StoreError> {
        let file = self.file_of(open)?;
        let session = self.session();
        self.flush(file).await?;
        let deadline = self.state.world.now().plus(self.state.network.lease);
        let mut reported = BTreeSet::new();
        loop {
            let state = self.state.clone();
            let given = self.ask(file, RequestKind::Token, 0, |inode| {
                let mut tokens = state.tokens.borrow_mut();
                let against = tokens.against(file, session.number, token);
                if against.is_empty() {
                    tokens.give(file, session.number, token);
                    session.forget_recalls(file);
                }
                Ok((against, inode.attributes))
            });
            let (against, attributes) = given.await?;
            if against.is_empty() {
                self.recalls.borrow_mut().end(file);
                self.hold(file, token, attributes);
                return Ok(attributes);
            }
            let free =
                || self.state.tokens.borrow().against(file, session.number, token).is_empty();
            self.until_free(file, against, &mut reported, deadline, free).await;
        }
    }

    /// Recalls conflicting tokens, and waits for them. A client that does not return one in time is
    /// cut off.
    async fn until_free(
        &self,
        file: FileId,
        against: Vec<(u64, Token)>,
        reported: &mut BTreeSet<u64>,
        deadline: units::Instant,
        is_free: impl Fn() -> bool,
    ) {
        if self.state.world.now() >= deadline {
            let holders = against.iter().map(|(number, _)| *number).collect::<BTreeSet<_>>();
            let sessions = self.state.sessions.borrow().clone();
            for holder in sessions.iter().filter(|other| holders.contains(&other.number)) {
                self.state.fence(holder);
            }
            return;
        }
        for (number, held) in against {
            if reported.insert(number) {
                self.recall(number, file, held, deadline);
            }
        }
        let session = self.session();
        let free = || (is_free() || session.fenced.get()).then_some(());
        match race(self.state.freed.until(free), self.state.world.sleep_until(deadline)).await {
            Either::Left(()) | Either::Right(()) => {}
        }
    }

    /// Records a token that the servers granted.
    fn hold(&self, file: FileId, token: Token, attributes: FileAttributes) {
        let mut files = self.files.borrow_mut();
        files.remove(&file);
        if token == Token::ExclusiveWrite {
            let size = attributes.version.size;
            let buffered = SimulatedBuffered {
                attributes,
                overlay: Overlay::over(size),
                flushing: None,
                clean: true,
                reported: size,
                lost_name: false,
                is_recovered: false,
                flush_lock: Rc::default(),
            };
            files.insert(file, buffered);
        }
    }

    /// Creates a file, opens it and takes its token with one message.
    async fn create(
        &self,
        parent: FileId,
        name: Vec<u8>,
        mode: u32,
        caller: Creator,
    ) -> Result<Created, StoreError> {
        let session = self.session();
        let found =
            names::make(self, parent, name, NewNode::Regular { mode }, caller, Some(&session))
                .await?;
        let open = self.new_open(found.file);
        // It may have been recalled and returned before this answer: the caller got the recall.
        self.hold(found.file, Token::ExclusiveWrite, found.attributes);
        Ok(Created { found, open: Some(open), is_held: true })
    }
    fn new_open(&self, file: FileId) -> OpenFile {
        let open = OpenFile(self.next_open.get());
        self.next_open.set(open.0 + 1);
        self.opens.borrow_mut().insert(open, file, ());
        if let Some(inode) = self.state.inodes.borrow_mut().get_mut(&file) {
            inode.opens += 1;
        }
        open
    }

    fn recall(&self, number: u64, file: FileId, token: Token, deadline: units::Instant) {
        let sessions = self.state.sessions.borrow();
        if let Some(holder) = sessions.iter().find(|holder| holder.number == number) {
            let due = self.state.world.now().plus(self.state.network.notice);
            let recall = StoreEvent::Recall { file, token, deadline };
            holder.events.borrow_mut().push_back((due, recall));
            if due == self.state.world.now() {
                return holder.changed.notify();
            }
            let (world, holder) = (self.state.world.clone(), holder.clone());
            self.state.world.spawn(Box::pin(async move {
                world.sleep_until(due).await;
                holder.changed.notify();
            }));
        }
    }

    async fn return_token(&self, file: FileId) -> Result<(), StoreError> {
        let flushed = self.flush(file).await;
        if flushed.as_ref().is_err_and(StoreError::is_lost) {
            return flushed;
        }
        let (state, number) = (self.state.clone(), self.session().number);
        self.files.borrow_mut().remove(&file);
        self.recalls.borrow_mut().end(file);
        self.exchange(RequestKind::Token, 0, || {
            state.tokens.borrow_mut().take_back(file, number);
            state.freed.notify();
        })
        .await?;
        flushed
    }

    async fn fence_former(&self, former: Identity) -> Result<(), StoreError> {
        let (state, own) = (self.state.clone(), self.session().number);
        self.exchange(RequestKind::Change, 0, || {
            let sessions = state.sessions.borrow().clone();
            let former = sessions.iter().filter(|one| one.identity == former && one.number != own);
            former.for_each(|session| state.fence(session));
        })
        .await
    }
}

/// Writes into content that may have to grow.
fn put(data: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let end = at as usize + bytes.len();
    if data.len() < end {
        data.resize(end, 0);
    }
    data[at as usize..end].copy_from_slice(bytes);
}

impl Client {
    /// Adds this client's buffered changes to the result.
    fn as_seen(&self, found: Found) -> Found {
        let files = self.files.borrow();
        files.get(&found.file).map_or(found, |held| Found { attributes: held.attributes, ..found })
    }
    /// Returns the number of a new inode, once even if the message is carried out twice.
    pub fn new_file(&self) -> FileId {
        let number = self.state.next_inode.get();
        self.state.next_inode.set(number + 1);
        FileId(number)
    }
    pub fn made(&self, file: FileId, kind: FileKind, mode: u32, caller: Creator) -> FileAttributes {
        let now = self.now();
        let version = self.state.next_version(Default::default(), 0);
        let (uid, gid) = (caller.uid, caller.gid);
        let made = fresh(file, kind, mode);
        FileAttributes { version, uid, gid, accessed: now, modified: now, changed: now, ..made }
    }
}
