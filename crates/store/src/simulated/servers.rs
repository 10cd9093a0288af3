//! The servers' state, and the network between them and the clients.

use super::data_servers::{DataServer, OBJECT_BYTES, ServerDisks};
use super::link::Link;
use super::locks::SimulatedLocks;
use super::tokens::SimulatedTokens;
use crate::attributes::{FileAttributes, FileId, FileKind, Version};
use crate::error::StoreError;
use crate::event::{Identity, StoreEvent};
use device::{Disk, World};
use runtime::join_window;
use runtime::sync::Event as Signal;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use units::{Instant, Timestamp};

pub(super) const NAME: &str = "simulated cluster";
pub(super) const ROOT: FileId = FileId(1);
/// Length of a change of names or attributes in the metadata server's journal.
const NAMES_JOURNAL_BYTES: u64 = 2048;
/// Head of a message, in bytes on the network.
const MESSAGE_BYTES: u64 = 200;
/// Content of an answer to a read of one block.
const COLD_BYTES: u64 = 4096;
/// Downtime of a crashed server.
const RESTART: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// Time in one direction.
    pub latency: Duration,
    /// Time from when a client is asked for a token to when its host reads that. What the host
    /// sends in between meets the recall.
    pub notice: Duration,
    /// Bandwidth of each link.
    pub bytes_per_second: u64,
    /// Time for which a client may keep a recalled token, and may be silent.
    pub lease: Duration,
    /// Above it, in bytes, a client sends its buffer of one file unasked, without the attributes.
    pub buffer_bytes: u64,
    /// Size up to which a new file may grow before the servers must be asked, in bytes.
    pub object_bytes: u64,
    pub metadata: MetadataTimes,
}

impl Default for Network {
    fn default() -> Network {
        Network {
            latency: Duration::from_micros(100),
            notice: Duration::ZERO,
            bytes_per_second: 1_250_000_000,
            lease: Duration::from_secs(30),
            buffer_bytes: 64 << 20,
            object_bytes: 4 << 20,
            metadata: MetadataTimes::default(),
        }
    }
}

/// The subject of a client's message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestKind {
    /// A new name, or any other change at the metadata server except a removal.
    Change,
    Removal,
    Open,
    /// A lookup of names and attributes.
    Lookup,
    /// The number of names left of a file that lost one.
    NamesLeft,
    /// Whether the servers still know this client, after a sync.
    StillKnown,
    /// Attributes changed under a client's token. The metadata server only notes them.
    Attributes,
    /// A token is taken or returned; only noted, too.
    Token,
    /// Content, for a data server.
    Content,
}

impl RequestKind {
    /// Index of the server: the metadata server, then the data servers.
    fn server(self) -> usize {
        usize::from(self == RequestKind::Content)
    }
    fn is_metadata_request(self) -> bool {
        !matches!(self, RequestKind::Attributes | RequestKind::Token | RequestKind::Content)
    }
}

/// Processor time of the metadata server for each message; it serves one at a time.
#[derive(Clone, Copy, Default, Debug)]
pub struct MetadataTimes {
    /// A new name, or any other change there except a removal.
    pub change: Duration,
    pub removal: Duration,
    pub open: Duration,
    /// A lookup of a name or of attributes.
    pub lookup: Duration,
    /// The request for the number of names left.
    pub names_left: Duration,
    /// The request after a sync.
    pub still_known: Duration,
    /// Changed attributes that a client reports.
    pub attributes: Duration,
    /// A token that is taken or returned.
    pub token: Duration,
}

impl MetadataTimes {
    pub fn times(self, factor: f64) -> MetadataTimes {
        let MetadataTimes {
            change,
            removal,
            open,
            lookup,
            names_left,
            still_known,
            attributes,
            token,
        } = self;
        MetadataTimes {
            change: change.mul_f64(factor),
            removal: removal.mul_f64(factor),
            open: open.mul_f64(factor),
            lookup: lookup.mul_f64(factor),
            names_left: names_left.mul_f64(factor),
            still_known: still_known.mul_f64(factor),
            attributes: attributes.mul_f64(factor),
            token: token.mul_f64(factor),
        }
    }
    fn of(&self, request: RequestKind) -> Duration {
        match request {
            RequestKind::Change => self.change,
            RequestKind::Removal => self.removal,
            RequestKind::Open => self.open,
            RequestKind::Lookup => self.lookup,
            RequestKind::NamesLeft => self.names_left,
            RequestKind::StillKnown => self.still_known,
            RequestKind::Attributes => self.attributes,
            RequestKind::Token => self.token,
            RequestKind::Content => Duration::ZERO,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutKind {
    /// The client's host: it sends and receives nothing any more.
    Client,
    /// The server of the message. It comes back after a while, and serves no client until then. If
    /// it is a data server, all of them are down.
    Server,
    /// The client's link, for longer than the lease.
    Network,
    /// Stops all servers for good: they take no message and answer none.
    Servers,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// The message does not arrive.
    Request,
    /// The message is carried out; the answer does not arrive.
    Answer,
}

/// A fault, and the message at which it happens (counted from 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    pub kind: CutKind,
    pub message: u64,
    pub moment: Moment,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TrafficCount {
    pub messages: u64,
    /// Requests that make the metadata server do more than note something.
    pub metadata_requests: u64,
    /// Messages for data servers.
    pub content_messages: u64,
    /// Bytes received by data servers from clients and from one another.
    pub data_bytes: u64,
    /// Bytes of content sent by data servers to one another and to clients.
    pub sent_bytes: u64,
    /// Writes of the data servers' journals.
    pub journal_writes: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub attributes: FileAttributes,
    pub data: Vec<u8>,
    /// Time at which the latest content was written, by the client's clock.
    pub written: Timestamp,
    /// Opens by clients; those of dead clients still count.
    pub opens: u64,
    /// Entries of a directory; `None` for others.
    pub entries: BTreeMap<Vec<u8>, FileId>,
    pub target: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A client's connection, as both sides see it.
pub(super) struct Session {
    pub identity: Identity,
    pub number: u64,
    /// Events that its host has not read, with the times when it may.
    pub events: RefCell<VecDeque<(Instant, StoreEvent)>>,
    pub changed: Signal,
    pub fenced: Cell<bool>,
    /// Whether the client is silent: nothing passes its link until it reconnects.
    pub silent: Cell<bool>,
    /// Whether the host has crashed.
    pub dead: Cell<bool>,
    /// Number of messages that it has sent, and the number of its message whose answer finds it
    /// dead.
    sent: Cell<u64>,
    dies_at: Cell<Option<u64>>,
    /// Whether its client has given it up: none of its calls goes on.
    pub given_up: Cell<bool>,
    pub gave_up: Signal,
    /// The link on which it sends content.
    pub link: Link,
}

impl Session {
    pub fn new(identity: Identity, number: u64) -> Session {
        Session {
            identity,
            number,
            events: RefCell::default(),
            changed: Signal::default(),
            fenced: Cell::default(),
            silent: Cell::default(),
            dead: Cell::default(),
            sent: Cell::default(),
            dies_at: Cell::default(),
            given_up: Cell::default(),
            gave_up: Signal::default(),
            link: Link::default(),
        }
    }
    /// Takes the next event. Nothing passes a silent link, and a host that has crashed gets none.
    pub fn next_event(&self, now: Instant) -> Option<StoreEvent> {
        let mut events = self.events.borrow_mut();
        let is_due = events.front().is_some_and(|(due, _)| *due <= now);
        let passes = is_due && !self.silent.get() && !self.dead.get();
        passes.then(|| events.pop_front()).flatten().map(|(_, event)| event)
    }
    /// Returns when the host reads that `wanted` is recalled, unless it has.
    pub fn unread_recall(&self, wanted: FileId) -> Option<Instant> {
        let of_wanted = |(due, event): &(Instant, StoreEvent)| match event {
            StoreEvent::Recall { file, .. } if *file == wanted => Some(*due),
            _ => None,
        };
        self.events.borrow().iter().find_map(of_wanted)
    }
    /// Drops recalls of a file that its host has not read: it has a new token.
    pub fn forget_recalls(&self, granted: FileId) {
        self.events.borrow_mut().retain(|(_, event)| match event {
            StoreEvent::Recall { file, .. } => *file != granted,
            _ => true,
        });
    }
}

pub(super) struct State {
    /// Number of the cluster.
    pub number: u64,
    pub world: Rc<dyn World>,
    pub network: Network,
    pub inodes: RefCell<BTreeMap<FileId, Inode>>,
    pub next_inode: Cell<u64>,
    pub tokens: RefCell<SimulatedTokens>,
    pub locks: RefCell<SimulatedLocks>,
    /// Registered hosts.
    pub hosts: RefCell<BTreeSet<Identity>>,
    pub sessions: RefCell<Vec<Rc<Session>>>,
    pub next_session: Cell<u64>,
    /// Number of changes of names by each session.
    pub name_changes: RefCell<BTreeMap<u64, u64>>,
    /// Set when tokens were returned, or a client was fenced.
    pub freed: Signal,
    /// Files for whose content there is no space; `None` in it: for no file's.
    full: RefCell<BTreeSet<Option<FileId>>>,
    data_servers: Vec<DataServer>,
    replicas: usize,
    /// Time at which the metadata server will have served all messages that have arrived.
    metadata_idle: Cell<Instant>,
    /// Time until which the metadata server, and the data servers, are down.
    away: Cell<[Instant; 2]>,
    /// Whether all servers are gone for good.
    gone: Cell<bool>,
    traffic: Cell<TrafficCount>,
    cut: Cell<Option<Cut>>,
    was_cut: Signal,
}

/// A cluster. Clones are the same cluster. It outlives its clients.
#[derive(Clone)]
pub struct Cluster(pub(super) Rc<State>);

impl Cluster {
    /// Creates a cluster. `disks`: one data server each, with its journal on that disk; none: data
    /// costs only the network. Each byte is kept by `replicas` of them.
    pub fn new(
        world: Rc<dyn World>,
        network: Network,
        disks: Vec<Rc<dyn Disk>>,
        replicas: usize,
    ) -> Cluster {
        assert!(replicas >= 1 && (disks.is_empty() || replicas <= disks.len()));
        Cluster::of(world, network, disks.into_iter().map(DataServer::new).collect(), replicas)
    }
    /// Creates a cluster whose data servers write content back to a second disk.
    pub fn with_homes(
        world: Rc<dyn World>,
        network: Network,
        disks: &[ServerDisks],
        replicas: usize,
    ) -> Cluster {
        assert!((1..=disks.len()).contains(&replicas));
        let servers = disks.iter().map(DataServer::with_home).collect();
        let cluster = Cluster::of(world.clone(), network, servers, replicas);
        for (number, disks) in disks.iter().enumerate() {
            let (state, clock, every) = (cluster.0.clone(), world.clone(), disks.home_every);
            world.spawn(Box::pin(async move {
                state.data_servers[number].write_back(clock, every).await
            }));
        }
        cluster
    }
    fn of(
        world: Rc<dyn World>,
        network: Network,
        data_servers: Vec<DataServer>,
        replicas: usize,
    ) -> Cluster {
        let root = Inode {
            attributes: fresh(ROOT, FileKind::Directory, 0o755),
            data: Vec::new(),
            written: Timestamp::default(),
            opens: 0,
            entries: BTreeMap::new(),
            target: Vec::new(),
            xattrs: BTreeMap::new(),
        };
        Cluster(Rc::new(State {
            number: world.random(),
            world,
            network,
            inodes: RefCell::new([(ROOT, root)].into()),
            next_inode: Cell::new(2),
            tokens: RefCell::default(),
            locks: RefCell::default(),
            hosts: RefCell::default(),
            sessions: RefCell::default(),
            next_session: Cell::new(1),
            name_changes: RefCell::default(),
            freed: Signal::default(),
            full: RefCell::default(),
            data_servers,
            replicas,
            metadata_idle: Cell::default(),
            away: Cell::default(),
            gone: Cell::default(),
            traffic: Cell::default(),
            cut: Cell::default(),
            was_cut: Signal::default(),
        }))
    }

    pub fn messages(&self) -> u64 {
        self.0.traffic.get().messages
    }
    pub fn traffic(&self) -> TrafficCount {
        self.0.traffic.get()
    }
    /// Arms a fault, once, at a later message.
    pub fn cut_at(&self, cut: Cut) {
        assert!(cut.message > self.messages());
        self.0.cut.set(Some(cut));
    }
    /// Crashes the host with this identity at a message of its latest connection, counted from 1:
    /// it is carried out, and the answer does not arrive.
    pub fn kill_at(&self, identity: &Identity, message: u64) {
        let sessions = self.0.sessions.borrow();
        let latest = sessions.iter().rev().find(|session| session.identity == *identity);
        let latest = latest.expect("a connection of this host");
        assert!(message > latest.sent.get());
        latest.dies_at.set(Some(message));
    }
    /// Waits until a client has been cut off by [`CutKind::Client`].
    pub async fn until_client_cut(&self) {
        let dead =
            || self.0.sessions.borrow().iter().any(|session| session.dead.get()).then_some(());
        self.0.was_cut.until(dead).await
    }
    /// Disarms the fault. Returns whether it has come, which is also so if there was none.
    pub fn cancel_cut(&self) -> bool {
        self.0.cut.take().is_none()
    }
    /// Waits like [`Cluster::until_client_cut`], but for the latest connection: those before it are
    /// dead already.
    pub async fn until_alive_cut(&self) {
        let dead = || {
            self.0.sessions.borrow().last().is_some_and(|session| session.dead.get()).then_some(())
        };
        self.0.was_cut.until(dead).await
    }
    /// Crashes the host with this identity. None of its unanswered messages is carried out any
    /// more, nor does it answer recalls.
    pub fn kill(&self, identity: &Identity) {
        for session in
            self.0.sessions.borrow().iter().filter(|session| session.identity == *identity)
        {
            session.dead.set(true);
        }
        self.0.was_cut.notify();
    }
    /// Waits until one more connection of this host is killed, or cut off by [`CutKind::Client`].
    pub fn until_dead(&self, identity: &Identity) -> impl Future<Output = ()> + use<> {
        let (state, identity) = (self.0.clone(), identity.clone());
        let dead = move |state: &State| {
            let sessions = state.sessions.borrow();
            let dead = |session: &&Rc<Session>| session.identity == identity && session.dead.get();
            sessions.iter().filter(dead).count()
        };
        let before = dead(&state);
        async move { state.was_cut.until(|| (dead(&state) > before).then_some(())).await }
    }
    /// Blocks the link of this host until it reconnects.
    pub fn silence(&self, identity: &Identity) {
        for session in
            self.0.sessions.borrow().iter().filter(|session| session.identity == *identity)
        {
            session.silent.set(true);
        }
    }
    /// Restores all links.
    pub fn heal(&self) {
        for session in self.0.sessions.borrow().iter() {
            session.silent.set(false);
            session.changed.notify();
        }
        self.0.freed.notify();
    }
    /// Refuses content of `file`, or of any file, until [`Cluster::free_space`].
    pub fn fill(&self, file: Option<FileId>) {
        self.0.full.borrow_mut().insert(file);
    }
    pub fn is_full(&self) -> bool {
        !self.0.full.borrow().is_empty()
    }
    pub fn free_space(&self) {
        self.0.full.borrow_mut().clear();
    }
    /// Reads a block of a file that neither a client nor a server has in memory.
    pub async fn read_cold(&self, file: FileId, at: u64) {
        self.0.travel(MESSAGE_BYTES).await;
        if !self.0.data_servers.is_empty() {
            self.0.data_servers[self.0.first_of(file, at)].read(file, at).await;
        }
        self.0.count(|traffic| traffic.sent_bytes += COLD_BYTES);
        self.0.travel(MESSAGE_BYTES + COLD_BYTES).await;
    }
    /// Returns a file's attributes as the servers have them, for checks.
    pub fn attributes(&self, file: FileId) -> Option<FileAttributes> {
        self.0.inodes.borrow().get(&file).map(|inode| inode.attributes)
    }
    /// Returns a file's content and version as the servers have it, for checks.
    pub fn content(&self, file: FileId) -> Option<(Vec<u8>, Version)> {
        self.0
            .inodes
            .borrow()
            .get(&file)
            .map(|inode| (inode.data.clone(), inode.attributes.version))
    }
}

pub(super) fn fresh(file: FileId, kind: FileKind, mode: u32) -> FileAttributes {
    let links = if kind == FileKind::Directory { 2 } else { 1 };
    FileAttributes {
        file,
        kind,
        version: Version::default(),
        mode,
        links,
        uid: 0,
        gid: 0,
        rdev: 0,
        blocks: 0,
        accessed: Default::default(),
        modified: Default::default(),
        changed: Default::default(),
    }
}

impl Inode {
    /// Sets what a client reports that held the file.
    pub fn set(&mut self, attributes: FileAttributes) {
        let links = self.attributes.links;
        self.attributes = FileAttributes { links, ..attributes };
        self.data.resize(attributes.version.size as usize, 0);
        self.drop_unreachable();
    }
    /// Drops the content of a file that has neither a name nor an open handle.
    pub fn drop_unreachable(&mut self) {
        if self.attributes.links == 0 && self.opens == 0 {
            self.data = Vec::new();
        }
    }
    /// Recovers after the writer has died: size and times follow the content.
    fn recover(&mut self) {
        let FileAttributes { version, modified, changed, .. } = &mut self.attributes;
        version.size = version.size.max(self.data.len() as u64);
        *modified = self.written.max(*modified);
        *changed = self.written.max(*changed);
        version.ctime_ns = version.ctime_ns.max(nanoseconds_of(self.written));
    }
}

fn nanoseconds_of(time: Timestamp) -> u64 {
    time.seconds as u64 * 1_000_000_000 + u64::from(time.nanoseconds)
}

impl State {
    fn count(&self, change: impl FnOnce(&mut TrafficCount)) {
        let mut traffic = self.traffic.get();
        change(&mut traffic);
        self.traffic.set(traffic);
    }

    pub fn is_full(&self, file: FileId) -> bool {
        let full = self.full.borrow();
        full.contains(&None) || full.contains(&Some(file))
    }
    pub fn sending_time(&self, bytes: u64) -> Duration {
        Duration::from_nanos(
            bytes.saturating_mul(1_000_000_000) / self.network.bytes_per_second.max(1),
        )
    }
    async fn travel(&self, bytes: u64) {
        let time = self.network.latency + self.sending_time(bytes);
        self.world.sleep_until(self.world.now().plus(time)).await;
    }

    /// Exchanges one message between a client and a server. `carry_out` may run twice; it returns
    /// the answer.
    pub async fn exchange<T>(
        &self,
        session: &Session,
        request: RequestKind,
        bytes: u64,
        mut carry_out: impl FnMut() -> T,
    ) -> Result<T, StoreError> {
        self.count(|traffic| {
            traffic.messages += 1;
            traffic.metadata_requests += u64::from(request.is_metadata_request());
            traffic.content_messages += u64::from(request == RequestKind::Content);
        });
        let message = self.traffic.get().messages;
        session.sent.set(session.sent.get() + 1);
        let own_message = session.sent.get();
        loop {
            self.travel(MESSAGE_BYTES + bytes).await;
            if self.is_cut(message, Moment::Request) && self.fails(session, request).await? {
                continue;
            }
            // A client whose server is down sends again when it is back.
            let back = self.away.get()[request.server()];
            if back > self.world.now() {
                self.world.sleep_until(back).await;
            }
            self.check(session).await?;
            self.serve_metadata(request).await;
            let answer = carry_out();
            if session.dies_at.get() == Some(own_message) {
                session.dead.set(true);
                self.was_cut.notify();
            }
            if self.is_cut(message, Moment::Answer) && self.fails(session, request).await? {
                continue;
            }
            self.travel(MESSAGE_BYTES).await;
            self.check(session).await?;
            return Ok(answer);
        }
    }

    /// Serves messages one after the other, in their order of arrival.
    async fn serve_metadata(&self, request: RequestKind) {
        let service = self.network.metadata.of(request);
        if service.is_zero() {
            return;
        }
        let done = self.metadata_idle.get().max(self.world.now()).plus(service);
        self.metadata_idle.set(done);
        self.world.sleep_until(done).await;
    }

    /// Sends content to the data servers that hold it: durable in their journals afterwards.
    pub async fn journal_data(&self, file: FileId, at: u64, bytes: u64) {
        self.count_replicated(bytes);
        if self.data_servers.is_empty() {
            return;
        }
        self.journal_at(self.first_of(file, at), bytes).await;
        for server in self.replicas_from(self.first_of(file, at)) {
            server.note_dirty(file, at, bytes);
        }
    }
    /// Writes the metadata server's journal, which is stored at the data servers, too.
    pub async fn journal_names(&self) {
        if self.data_servers.is_empty() {
            return;
        }
        self.count_replicated(NAMES_JOURNAL_BYTES);
        self.journal_at(0, NAMES_JOURNAL_BYTES).await;
    }
    /// Counts content that goes to one data server, and from there to the others that keep it.
    fn count_replicated(&self, bytes: u64) {
        let replicas = self.replicas as u64;
        self.count(|traffic| {
            traffic.data_bytes += bytes * replicas;
            traffic.sent_bytes += bytes * (replicas - 1);
        });
    }
    fn first_of(&self, file: FileId, at: u64) -> usize {
        (file.0 + at / OBJECT_BYTES) as usize % self.data_servers.len()
    }
    fn replicas_from(&self, first: usize) -> impl Iterator<Item = &DataServer> {
        let count = self.data_servers.len();
        (0..self.replicas).map(move |replica| &self.data_servers[(first + replica) % count])
    }
    /// Journals at the first server, which sends to the others while it writes.
    async fn journal_at(&self, first: usize, bytes: u64) {
        let writes = self.replicas_from(first).enumerate().map(
            |(replica, server)| -> Pin<Box<dyn Future<Output = Result<(), ()>> + '_>> {
                Box::pin(async move {
                    if replica > 0 {
                        self.data_servers[first]
                            .link
                            .pass(&*self.world, self.sending_time(bytes))
                            .await;
                        self.travel(MESSAGE_BYTES).await;
                    }
                    if server.journal(bytes).await {
                        self.count(|traffic| traffic.journal_writes += 1);
                    }
                    Ok(())
                })
            },
        );
        let _ = join_window(writes.collect::<Vec<_>>(), self.replicas).await;
    }

    fn is_cut(&self, message: u64, moment: Moment) -> bool {
        self.cut.get().is_some_and(|cut| cut.message == message && cut.moment == moment)
    }

    /// Carries out the fault. Returns whether the message is sent again.
    async fn fails(&self, session: &Session, request: RequestKind) -> Result<bool, StoreError> {
        let cut = self.cut.take().expect("a cut that is due");
        match cut.kind {
            CutKind::Client => {
                session.dead.set(true);
                self.was_cut.notify();
                std::future::pending::<()>().await;
            }
            CutKind::Server => {
                let mut away = self.away.get();
                away[request.server()] = self.world.now().plus(RESTART);
                self.away.set(away);
                self.world.sleep_until(away[request.server()]).await;
            }
            CutKind::Network => {
                session.silent.set(true);
                self.until_reachable(session).await?;
            }
            CutKind::Servers => {
                self.gone.set(true);
                std::future::pending::<()>().await;
            }
        }
        Ok(true)
    }

    async fn check(&self, session: &Session) -> Result<(), StoreError> {
        if session.dead.get() || self.gone.get() {
            std::future::pending::<()>().await;
        }
        if session.silent.get() {
            self.until_reachable(session).await?;
        }
        if session.fenced.get() {
            let why = "another session replaced it, or it did not give a token back in time".into();
            return Err(StoreError::Fenced { store: NAME.into(), why });
        }
        Ok(())
    }

    /// Waits on a silent link: after the lease the client knows that it may have been fenced, and
    /// the servers fence it.
    async fn until_reachable(&self, session: &Session) -> Result<(), StoreError> {
        self.world.sleep_until(self.world.now().plus(self.network.lease)).await;
        session.silent.set(false);
        self.fence(session);
        session.changed.notify();
        Err(StoreError::Disconnected { store: NAME.into(), why: "the network is down".into() })
    }

    /// Fences a session: nothing of it is carried out any more, and its tokens are free.
    pub fn fence(&self, session: &Session) {
        if !session.fenced.replace(true) {
            self.locks.borrow_mut().drop_session(session.number);
            for file in self.tokens.borrow_mut().drop_session(session.number) {
                // Its attributes may never come: the content decides.
                if let Some(inode) = self.inodes.borrow_mut().get_mut(&file) {
                    inode.recover();
                }
            }
            let event = StoreEvent::Disconnected { fenced: true };
            session.events.borrow_mut().push_back((self.world.now(), event));
            session.changed.notify();
        }
        self.freed.notify();
    }

    /// Returns the number of names. Clients know it of the files that they hold: changes reach them
    /// at once.
    pub fn links(&self, file: FileId) -> Option<u32> {
        self.inodes.borrow().get(&file).map(|inode| inode.attributes.links)
    }

    /// Returns the next state of a file: one number further, at this time.
    pub fn next_version(&self, before: Version, size: u64) -> Version {
        let ctime_ns = nanoseconds_of(self.world.wall_clock());
        Version { number: before.number + 1, ctime_ns, size }
    }
}
