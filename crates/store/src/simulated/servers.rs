//! The servers' state, and the network between them and the clients.

use super::tokens::Tokens;
use crate::attributes::{Attributes, FileId, FileKind, Version};
use crate::error::StoreError;
use crate::event::{Event, Identity};
use device::{Buffer, Disk, Durability, World};
use runtime::sync::Event as Signal;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

pub(super) const NAME: &str = "simulated cluster";
pub(super) const ROOT: FileId = FileId(1);
/// A file's content lies on the data servers in pieces of this size, as Ceph's objects do.
const OBJECT_BYTES: u64 = 4 << 20;
const SECTOR: u64 = 4096;
/// Head of a message, in bytes on the network.
const MESSAGE_BYTES: u64 = 200;
/// How long a crashed server is away.
const RESTART: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// One way.
    pub latency: Duration,
    /// Of each client's link.
    pub bytes_per_second: u64,
    /// How long a client may keep a token that is recalled, and how long it may be silent.
    pub lease: Duration,
}

impl Default for Network {
    fn default() -> Network {
        Network {
            latency: Duration::from_micros(100),
            bytes_per_second: 1_250_000_000,
            lease: Duration::from_secs(30),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutKind {
    /// The client's host: it sends and receives nothing any more.
    Client,
    /// The server that the message is for.
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
    /// Received by data servers from clients and from one another.
    pub data_bytes: u64,
    /// Writes of the data servers' journals.
    pub journal_writes: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub attributes: Attributes,
    pub data: Vec<u8>,
    /// Of a directory; `None` for others.
    pub entries: BTreeMap<Vec<u8>, FileId>,
    pub target: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A client's connection, as both sides see it.
pub(super) struct Session {
    pub identity: Identity,
    pub number: u64,
    pub events: RefCell<VecDeque<Event>>,
    pub changed: Signal,
    pub fenced: Cell<bool>,
    /// Nothing passes its link until then.
    pub silent: Cell<bool>,
    /// The host is gone.
    pub dead: Cell<bool>,
}

pub(super) struct DataServer {
    disk: Rc<dyn Disk>,
    /// Where its journal goes on.
    at: Cell<u64>,
    /// One write of its journal at a time.
    turn: Rc<runtime::sync::RwLock>,
}

pub(super) struct State {
    pub world: Rc<dyn World>,
    pub network: Network,
    pub inodes: RefCell<BTreeMap<FileId, Inode>>,
    pub next_inode: Cell<u64>,
    pub tokens: RefCell<Tokens>,
    pub sessions: RefCell<Vec<Rc<Session>>>,
    pub next_session: Cell<u64>,
    /// Tokens came back, or a client was fenced.
    pub freed: Signal,
    data_servers: Vec<DataServer>,
    replicas: usize,
    traffic: Cell<TrafficCount>,
    cut: Cell<Option<Cut>>,
    was_cut: Signal,
}

/// Clones are the same cluster. It outlives its clients.
#[derive(Clone)]
pub struct Cluster(pub(super) Rc<State>);

impl Cluster {
    /// `disks`: one data server each, with its journal on that disk; none: data costs only the network. Each byte goes to
    /// `replicas` of them.
    pub fn new(world: Rc<dyn World>, network: Network, disks: Vec<Rc<dyn Disk>>, replicas: usize) -> Cluster {
        assert!(replicas >= 1 && (disks.is_empty() || replicas <= disks.len()));
        let server = |disk| DataServer { disk, at: Cell::new(0), turn: Rc::default() };
        let root = Inode {
            attributes: fresh(ROOT, FileKind::Directory, 0o755),
            data: Vec::new(),
            entries: BTreeMap::new(),
            target: Vec::new(),
            xattrs: BTreeMap::new(),
        };
        Cluster(Rc::new(State {
            world,
            network,
            inodes: RefCell::new([(ROOT, root)].into()),
            next_inode: Cell::new(2),
            tokens: RefCell::default(),
            sessions: RefCell::default(),
            next_session: Cell::new(1),
            freed: Signal::default(),
            data_servers: disks.into_iter().map(server).collect(),
            replicas,
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
        let dead = || self.0.sessions.borrow().iter().any(|session| session.dead.get()).then_some(());
        self.0.was_cut.until(dead).await
    }
    /// No cut is due any more.
    pub fn cancel_cut(&self) {
        self.0.cut.set(None);
    }
    /// As [`Cluster::until_client_cut`], but for the latest connection: those before it are dead already.
    pub async fn until_alive_cut(&self) {
        let dead = || self.0.sessions.borrow().last().is_some_and(|session| session.dead.get()).then_some(());
        self.0.was_cut.until(dead).await
    }
    /// The host with this identity has crashed: nothing it has sent and not been answered for is carried out any more, and it
    /// neither answers recalls.
    pub fn kill(&self, identity: &Identity) {
        for session in self.0.sessions.borrow().iter().filter(|session| session.identity == *identity) {
            session.dead.set(true);
        }
    }
    /// All links work again.
    pub fn heal(&self) {
        self.0.sessions.borrow().iter().for_each(|session| session.silent.set(false));
        self.0.freed.notify();
    }
    /// A file's content and version as the servers have it: for whoever judges.
    pub fn content(&self, file: FileId) -> Option<(Vec<u8>, Version)> {
        self.0.inodes.borrow().get(&file).map(|inode| (inode.data.clone(), inode.attributes.version))
    }
}

pub(super) fn fresh(file: FileId, kind: FileKind, mode: u32) -> Attributes {
    let links = if kind == FileKind::Directory { 2 } else { 1 };
    Attributes {
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

impl State {
    fn count(&self, change: impl FnOnce(&mut TrafficCount)) {
        let mut traffic = self.traffic.get();
        change(&mut traffic);
        self.traffic.set(traffic);
    }

    async fn travel(&self, bytes: u64) {
        let time = bytes.saturating_mul(1_000_000_000) / self.network.bytes_per_second.max(1);
        let time = self.network.latency + Duration::from_nanos(time);
        self.world.sleep_until(self.world.now().plus(time)).await;
    }

    /// One message from a client to a server and back. `carry_out` may run twice; it says what the answer is.
    pub async fn exchange<T>(
        &self,
        session: &Session,
        bytes: u64,
        mut carry_out: impl FnMut() -> T,
    ) -> Result<T, StoreError> {
        self.count(|traffic| traffic.messages += 1);
        let message = self.traffic.get().messages;
        loop {
            self.travel(MESSAGE_BYTES + bytes).await;
            if self.is_cut(message, Moment::Request) && self.fails(session).await? {
                continue;
            }
            self.check(session).await?;
            let answer = carry_out();
            if self.is_cut(message, Moment::Answer) && self.fails(session).await? {
                continue;
            }
            self.travel(MESSAGE_BYTES).await;
            self.check(session).await?;
            return Ok(answer);
        }
    }

    /// Content on its way to the data servers that hold it: durable in their journals afterwards.
    pub async fn journal_data(&self, file: FileId, at: u64, bytes: u64) {
        self.count(|traffic| traffic.data_bytes += bytes * self.replicas as u64);
        if self.data_servers.is_empty() {
            return;
        }
        let first = (file.0 + at / OBJECT_BYTES) as usize;
        for replica in 0..self.replicas {
            let server = &self.data_servers[(first + replica) % self.data_servers.len()];
            if replica > 0 {
                self.travel(MESSAGE_BYTES + bytes).await;
            }
            let _turn = server.turn.write().await;
            let length = (bytes + SECTOR).next_multiple_of(SECTOR).min(server.disk.geometry().size);
            if server.at.get() + length > server.disk.geometry().size {
                server.at.set(0);
            }
            self.count(|traffic| traffic.journal_writes += 1);
            let parts = vec![Rc::new(Buffer::zeroed(length as usize))];
            // A data server whose disk fails is not played.
            let _ = server.disk.write(server.at.get(), parts, Durability::Durable).await;
            server.at.set(server.at.get() + length);
        }
    }

    fn is_cut(&self, message: u64, moment: Moment) -> bool {
        self.cut.get().is_some_and(|cut| cut.message == message && cut.moment == moment)
    }

    /// Carries out the cut. True: the message is sent again.
    async fn fails(&self, session: &Session) -> Result<bool, StoreError> {
        let cut = self.cut.take().expect("a cut that is due");
        match cut.kind {
            CutKind::Client => {
                session.dead.set(true);
                self.was_cut.notify();
                std::future::pending::<()>().await;
            }
            CutKind::Server => {
                self.world.sleep_until(self.world.now().plus(RESTART)).await;
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

    /// A silent link: after the lease the client knows that it may have been fenced, and the servers fence it.
    async fn until_heard(&self, session: &Session) -> Result<(), StoreError> {
        self.world.sleep_until(self.world.now().plus(self.network.lease)).await;
        self.fence(session);
        Err(StoreError::Disconnected { store: NAME.into(), why: "the network is down".into() })
    }

    /// Nothing of this session is carried out any more, and its tokens are free.
    pub fn fence(&self, session: &Session) {
        if !session.fenced.replace(true) {
            self.tokens.borrow_mut().drop_session(session.number);
            session.events.borrow_mut().push_back(Event::Disconnected { fenced: true });
            session.changed.notify();
        }
        self.freed.notify();
    }

    /// The next state of a file: a number further on, at this time.
    pub fn next_version(&self, before: Version, size: u64) -> Version {
        let now = self.world.wall_clock();
        let ctime_ns = now.seconds as u64 * 1_000_000_000 + u64::from(now.nanoseconds);
        Version { number: before.number + 1, ctime_ns, size }
    }
}
