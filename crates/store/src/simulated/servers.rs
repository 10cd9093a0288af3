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
/// What a change of names or attributes is in the metadata server's journal.
const NAMES_JOURNAL_BYTES: u64 = 2048;
/// Head of a message, in bytes on the network.
const MESSAGE_BYTES: u64 = 200;
/// How long a crashed server is away.
const RESTART: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// One way.
    pub latency: Duration,
    /// Of each link.
    pub bytes_per_second: u64,
    /// How long a client may keep a token that is recalled, and how long it may be silent.
    pub lease: Duration,
    /// What a client buffers of one file beyond this goes to the servers by itself, without the
    /// attributes.
    pub buffer_bytes: u64,
    /// A new file may grow so far before the servers must be asked.
    pub object_bytes: u64,
    pub metadata: MetadataTimes,
}

impl Default for Network {
    fn default() -> Network {
        Network {
            latency: Duration::from_micros(100),
            bytes_per_second: 1_250_000_000,
            lease: Duration::from_secs(30),
            buffer_bytes: 64 << 20,
            object_bytes: 4 << 20,
            metadata: MetadataTimes::default(),
        }
    }
}

/// What a message from a client is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asks {
    /// A new name, and whatever else changes something at the metadata server, but for a removal.
    Change,
    Removal,
    Open,
    /// Names and attributes.
    Look,
    /// How many names are left of a file that had one less than before.
    NamesLeft,
    /// Whether the servers know this client still, after a sync.
    StillKnown,
    /// A client tells what it has changed under its token. The metadata server only notes it.
    Attributes,
    /// A token is taken or returned. As above.
    Token,
    /// A data server.
    Content,
}

impl Asks {
    /// In what is known of servers: the metadata server, then the data servers.
    fn server(self) -> usize {
        usize::from(self == Asks::Content)
    }
    fn is_metadata_request(self) -> bool {
        !matches!(self, Asks::Attributes | Asks::Token | Asks::Content)
    }
}

/// What the metadata server's one processor needs for a message.
#[derive(Clone, Copy, Default, Debug)]
pub struct MetadataTimes {
    /// A new name, and whatever else changes something there, but for a removal.
    pub change: Duration,
    pub removal: Duration,
    pub open: Duration,
    /// A look at a name or at attributes.
    pub look: Duration,
    /// The question how many names are left.
    pub names_left: Duration,
    /// The question after a sync.
    pub still_known: Duration,
    /// Changed attributes that a client tells of.
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
            look,
            names_left,
            still_known,
            attributes,
            token,
        } = self;
        MetadataTimes {
            change: change.mul_f64(factor),
            removal: removal.mul_f64(factor),
            open: open.mul_f64(factor),
            look: look.mul_f64(factor),
            names_left: names_left.mul_f64(factor),
            still_known: still_known.mul_f64(factor),
            attributes: attributes.mul_f64(factor),
            token: token.mul_f64(factor),
        }
    }
    fn of(&self, asks: Asks) -> Duration {
        match asks {
            Asks::Change => self.change,
            Asks::Removal => self.removal,
            Asks::Open => self.open,
            Asks::Look => self.look,
            Asks::NamesLeft => self.names_left,
            Asks::StillKnown => self.still_known,
            Asks::Attributes => self.attributes,
            Asks::Token => self.token,
            Asks::Content => Duration::ZERO,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutKind {
    /// The client's host: it sends and receives nothing any more.
    Client,
    /// The server that the message is for. It comes back after a while, and serves nobody
    /// meanwhile. Where it is a data server, all of them are away.
    Server,
    /// The client's link, for longer than the lease.
    Network,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// The message does not arrive.
    Request,
    /// It was carried out; the answer does not arrive.
    Answer,
}

/// What fails, and at which message (counted from 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    pub kind: CutKind,
    pub message: u64,
    pub moment: Moment,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TrafficCount {
    pub messages: u64,
    /// Of them, those that the metadata server answers with more than that it has noted something.
    pub metadata_requests: u64,
    /// Of them, those for data servers.
    pub content_messages: u64,
    /// Received by data servers from clients and from one another.
    pub data_bytes: u64,
    /// Writes of the data servers' journals.
    pub journal_writes: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub attributes: FileAttributes,
    pub data: Vec<u8>,
    /// When the latest content was written, by the client's clock.
    pub written: Timestamp,
    /// By clients; those that died count on.
    pub opens: u64,
    /// Of a directory; `None` for others.
    pub entries: BTreeMap<Vec<u8>, FileId>,
    pub target: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A client's connection, as both sides see it.
pub(super) struct Session {
    pub identity: Identity,
    pub number: u64,
    pub events: RefCell<VecDeque<StoreEvent>>,
    pub changed: Signal,
    pub fenced: Cell<bool>,
    /// Nothing passes its link until then.
    pub silent: Cell<bool>,
    /// The host is gone.
    pub dead: Cell<bool>,
    /// What it sends of content.
    pub link: Link,
}

pub(super) struct State {
    /// Of the cluster.
    pub number: u64,
    pub world: Rc<dyn World>,
    pub network: Network,
    pub inodes: RefCell<BTreeMap<FileId, Inode>>,
    pub next_inode: Cell<u64>,
    pub tokens: RefCell<SimulatedTokens>,
    pub locks: RefCell<SimulatedLocks>,
    pub sessions: RefCell<Vec<Rc<Session>>>,
    pub next_session: Cell<u64>,
    /// How many changes of names each session has made.
    pub name_changes: RefCell<BTreeMap<u64, u64>>,
    /// Tokens came back, or a client was fenced.
    pub freed: Signal,
    /// Files for whose content there is no space; `None` in it: for nobody's.
    full: RefCell<BTreeSet<Option<FileId>>>,
    data_servers: Vec<DataServer>,
    replicas: usize,
    /// When the metadata server is done with all messages that have come.
    metadata_idle: Cell<Instant>,
    /// Until when the metadata server is away, and the data servers.
    away: Cell<[Instant; 2]>,
    traffic: Cell<TrafficCount>,
    cut: Cell<Option<Cut>>,
    was_cut: Signal,
}

/// Clones are the same cluster. It outlives its clients.
#[derive(Clone)]
pub struct Cluster(pub(super) Rc<State>);

impl Cluster {
    /// `disks`: one data server each, with its journal on that disk; none: data costs only the
    /// network. Each byte goes to `replicas` of them.
    pub fn new(
        world: Rc<dyn World>,
        network: Network,
        disks: Vec<Rc<dyn Disk>>,
        replicas: usize,
    ) -> Cluster {
        assert!(replicas >= 1 && (disks.is_empty() || replicas <= disks.len()));
        Cluster::of(world, network, disks.into_iter().map(DataServer::new).collect(), replicas)
    }
    /// The same with data servers that bring content to a place of its own.
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
                state.data_servers[number].bring_home(clock, every).await
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
            sessions: RefCell::default(),
            next_session: Cell::new(1),
            name_changes: RefCell::default(),
            freed: Signal::default(),
            full: RefCell::default(),
            data_servers,
            replicas,
            metadata_idle: Cell::default(),
            away: Cell::default(),
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
    /// Fails once, at a message still to come.
    pub fn cut_at(&self, cut: Cut) {
        assert!(cut.message > self.messages());
        self.0.cut.set(Some(cut));
    }
    /// Waits until a client has been cut off by [`CutKind::Client`].
    pub async fn until_client_cut(&self) {
        let dead =
            || self.0.sessions.borrow().iter().any(|session| session.dead.get()).then_some(());
        self.0.was_cut.until(dead).await
    }
    /// No cut is due any more.
    pub fn cancel_cut(&self) {
        self.0.cut.set(None);
    }
    /// As [`Cluster::until_client_cut`], but for the latest connection: those before it are dead
    /// already.
    pub async fn until_alive_cut(&self) {
        let dead = || {
            self.0.sessions.borrow().last().is_some_and(|session| session.dead.get()).then_some(())
        };
        self.0.was_cut.until(dead).await
    }
    /// The host with this identity has crashed. Nothing it has sent and not been answered for is
    /// carried out any more, nor does it answer recalls.
    pub fn kill(&self, identity: &Identity) {
        for session in
            self.0.sessions.borrow().iter().filter(|session| session.identity == *identity)
        {
            session.dead.set(true);
        }
    }
    /// Nothing passes the link of this host, until it connects anew.
    pub fn silence(&self, identity: &Identity) {
        for session in
            self.0.sessions.borrow().iter().filter(|session| session.identity == *identity)
        {
            session.silent.set(true);
        }
    }
    /// All links work again.
    pub fn heal(&self) {
        self.0.sessions.borrow().iter().for_each(|session| session.silent.set(false));
        self.0.freed.notify();
    }
    /// There is no space for the content of `file`, or of any, until there is room again.
    pub fn fill(&self, file: Option<FileId>) {
        self.0.full.borrow_mut().insert(file);
    }
    pub fn has_no_room(&self) -> bool {
        !self.0.full.borrow().is_empty()
    }
    pub fn make_room(&self) {
        self.0.full.borrow_mut().clear();
    }
    /// A block of a file is read that neither a client nor a server has in memory.
    pub async fn read_cold(&self, file: FileId, at: u64) {
        self.0.travel(MESSAGE_BYTES).await;
        if !self.0.data_servers.is_empty() {
            self.0.data_servers[self.0.first_of(file, at)].read(file, at).await;
        }
        self.0.travel(MESSAGE_BYTES + 4096).await;
    }
    /// A file's content and version as the servers have it: for whoever judges.
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
    /// What a client says that held the file.
    pub fn set(&mut self, attributes: FileAttributes) {
        let links = self.attributes.links;
        self.attributes = FileAttributes { links, ..attributes };
        self.data.resize(attributes.version.size as usize, 0);
        self.drop_unreachable();
    }
    /// Nobody can read the content of a file that has neither a name nor anybody who opened it.
    pub fn drop_unreachable(&mut self) {
        if self.attributes.links == 0 && self.opens == 0 {
            self.data = Vec::new();
        }
    }
    /// Who could write has died: size and times follow the content.
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

    /// One message from a client to a server and back. `carry_out` may run twice; it says what the
    /// answer is.
    pub async fn exchange<T>(
        &self,
        session: &Session,
        asks: Asks,
        bytes: u64,
        mut carry_out: impl FnMut() -> T,
    ) -> Result<T, StoreError> {
        self.count(|traffic| {
            traffic.messages += 1;
            traffic.metadata_requests += u64::from(asks.is_metadata_request());
            traffic.content_messages += u64::from(asks == Asks::Content);
        });
        let message = self.traffic.get().messages;
        loop {
            self.travel(MESSAGE_BYTES + bytes).await;
            if self.is_cut(message, Moment::Request) && self.fails(session, asks).await? {
                continue;
            }
            // Who finds nobody sends again when the server is back.
            let back = self.away.get()[asks.server()];
            if back > self.world.now() {
                self.world.sleep_until(back).await;
            }
            self.check(session).await?;
            self.serve_metadata(asks).await;
            let answer = carry_out();
            if self.is_cut(message, Moment::Answer) && self.fails(session, asks).await? {
                continue;
            }
            self.travel(MESSAGE_BYTES).await;
            self.check(session).await?;
            return Ok(answer);
        }
    }

    /// One message after the other, in the order in which they came.
    async fn serve_metadata(&self, asks: Asks) {
        let service = self.network.metadata.of(asks);
        if service.is_zero() {
            return;
        }
        let done = self.metadata_idle.get().max(self.world.now()).plus(service);
        self.metadata_idle.set(done);
        self.world.sleep_until(done).await;
    }

    /// Content on its way to the data servers that hold it: durable in their journals afterwards.
    pub async fn journal_data(&self, file: FileId, at: u64, bytes: u64) {
        self.count(|traffic| traffic.data_bytes += bytes * self.replicas as u64);
        if self.data_servers.is_empty() {
            return;
        }
        self.journal_at(self.first_of(file, at), bytes).await;
        for server in self.replicas_from(self.first_of(file, at)) {
            server.note_dirty(file, at, bytes);
        }
    }
    /// What the metadata server's journal has of a change: it lies at the data servers, too.
    pub async fn journal_names(&self) {
        if self.data_servers.is_empty() {
            return;
        }
        self.count(|traffic| traffic.data_bytes += NAMES_JOURNAL_BYTES * self.replicas as u64);
        self.journal_at(0, NAMES_JOURNAL_BYTES).await;
    }
    fn first_of(&self, file: FileId, at: u64) -> usize {
        (file.0 + at / OBJECT_BYTES) as usize % self.data_servers.len()
    }
    fn replicas_from(&self, first: usize) -> impl Iterator<Item = &DataServer> {
        let count = self.data_servers.len();
        (0..self.replicas).map(move |replica| &self.data_servers[(first + replica) % count])
    }
    /// The first server sends to the others while it writes its own journal.
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

    /// Carries out the cut. True: the message is sent again.
    async fn fails(&self, session: &Session, asks: Asks) -> Result<bool, StoreError> {
        let cut = self.cut.take().expect("a cut that is due");
        match cut.kind {
            CutKind::Client => {
                session.dead.set(true);
                self.was_cut.notify();
                std::future::pending::<()>().await;
            }
            CutKind::Server => {
                let mut away = self.away.get();
                away[asks.server()] = self.world.now().plus(RESTART);
                self.away.set(away);
                self.world.sleep_until(away[asks.server()]).await;
            }
            CutKind::Network => {
                session.silent.set(true);
                self.until_heard(session).await?;
            }
        }
        Ok(true)
    }

    async fn check(&self, session: &Session) -> Result<(), StoreError> {
        if session.dead.get() {
            std::future::pending::<()>().await;
        }
        if session.silent.get() {
            self.until_heard(session).await?;
        }
        if session.fenced.get() {
            let why = "another session replaced it, or it did not give a token back in time".into();
            return Err(StoreError::Fenced { store: NAME.into(), why });
        }
        Ok(())
    }

    /// A silent link: after the lease the client knows that it may have been fenced, and the
    /// servers fence it.
    async fn until_heard(&self, session: &Session) -> Result<(), StoreError> {
        self.world.sleep_until(self.world.now().plus(self.network.lease)).await;
        self.fence(session);
        Err(StoreError::Disconnected { store: NAME.into(), why: "the network is down".into() })
    }

    /// Nothing of this session is carried out any more, and its tokens are free.
    pub fn fence(&self, session: &Session) {
        if !session.fenced.replace(true) {
            self.locks.borrow_mut().drop_session(session.number);
            for file in self.tokens.borrow_mut().drop_session(session.number) {
                // Its attributes may never come: what there is tells.
                if let Some(inode) = self.inodes.borrow_mut().get_mut(&file) {
                    inode.recover();
                }
            }
            session.events.borrow_mut().push_back(StoreEvent::Disconnected { fenced: true });
            session.changed.notify();
        }
        self.freed.notify();
    }

    /// Clients know it of the files that they hold: a change is told to them at once.
    pub fn links(&self, file: FileId) -> Option<u32> {
        self.inodes.borrow().get(&file).map(|inode| inode.attributes.links)
    }

    /// The next state of a file: a number further on, at this time.
    pub fn next_version(&self, before: Version, size: u64) -> Version {
        let ctime_ns = nanoseconds_of(self.world.wall_clock());
        Version { number: before.number + 1, ctime_ns, size }
    }
}
