//! One mounted file system: takes requests from the kernel until it is unmounted.
//!
//! Every request becomes its own task; replies come in any order. The session knows the protocol's
//! beginning (INIT) and end (DESTROY, ENODEV), and nothing about files.
//!
//! 1. INIT is answered with write(2): when that returns, the kernel has processed it, and only then
//!    does it take ring entries.
//! 2. The classic channel is served also beside the ring. FORGET and INTERRUPT always come that
//!    way, and so does everything else until every processor's queue has an entry.
//! 3. An interrupted request is answered when it is done, never earlier: a synchronous write that
//!    was answered is durable. The file system gets INTERRUPT, for requests that may wait for ever.
//! 4. DESTROY, and the end, wait until nothing else is in flight.
//! 5. Requests are taken only while their memory fits the limit ([`request_memory`]).

mod classic;
mod counts;
mod init;
mod payloads;
mod reply_batch;
mod request_memory;
mod uring;

use init::OptionalFeatures;
pub use init::{InitError, MAX_WRITE, Negotiated, Transport};

use crate::abi::{self, InitIn, opcode};
use crate::reply::Stale;
use crate::{Connection, FileSystem, MalformedRequest, Operation, Reply, Request};
use classic::{Classic, Received};
use counts::Counts;
use device::World;
use reply_batch::ReplyBatch;
use request_memory::{GIVE_BACK_AFTER, RequestMemory, Share};
use runtime::sync::Event;
use runtime::{Either, RealWorld, race};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;
use uring::Entries;

/// Reason for a session's end that is no unmount.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The kernel's error for the connection, or for the world's ring or epoll.
    #[error("/dev/fuse: {0}")]
    Channel(#[from] io::Error),
    /// The negotiation failed: the kernel got EPROTO, and the mount is useless.
    #[error(transparent)]
    Init(#[from] InitError),
    /// The kernel accepted io_uring at INIT and then refused an entry.
    #[error("FUSE over io_uring is not available: {0}")]
    RingUnavailable(&'static str),
}

/// Counts of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStatistics {
    /// Requests given to the file system.
    pub requests: u64,
    /// Requests that came through ring entries.
    pub ring_requests: u64,
    /// Messages of the classic channel without a valid header, which get no reply.
    pub malformed: u64,
    /// INTERRUPT requests.
    pub interrupts: u64,
}

/// Trace function, called for each request.
type Trace = Box<dyn Fn(&str)>;

/// A session: serves one mounted file system.
///
/// [`Session::new`], then [`Session::serve`] within [`RealWorld::run`]. The other functions are for
/// tasks beside it.
pub struct Session<F> {
    world: RealWorld,
    file_system: Rc<F>,
    transport: Transport,
    classic: Classic,
    reply_batch: ReplyBatch,
    /// Number of processors: each has its own queue in the ring.
    processors: u16,
    negotiated: Cell<Option<Negotiated>>,
    stopping: Cell<bool>,
    /// Whether the kernel accepted the ring but did not take an entry.
    ring_refused: Cell<bool>,
    /// Reason why the ring is not used although the kernel offered it.
    fallback_reason: RefCell<Option<String>>,
    /// Set when the cells above have changed.
    changed: Event,
    /// Requests taken and not yet answered.
    running: Cell<u64>,
    idle: Event,
    memory: Rc<RequestMemory>,
    statistics: Cell<SessionStatistics>,
    counts: Counts,
    trace: RefCell<Option<Trace>>,
    /// Features that are not taken, whatever the kernel offers.
    declined: Cell<u64>,
    idmapped_mounts: Cell<bool>,
}

/// Pause before the next read when the kernel had no memory for one.
const PAUSE_WITHOUT_MEMORY: Duration = Duration::from_millis(20);

/// Reason why no more requests are taken from the classic channel.
enum Drained {
    /// No request waits there.
    Empty,
    /// Waiting requests must wait for memory.
    Full,
    /// The kernel lacks memory; requests may wait.
    NoMemory,
    Gone,
}

impl<F: FileSystem> Session<F> {
    /// Creates a session, which does nothing before [`Session::serve`].
    pub fn new(
        world: RealWorld,
        connection: Connection,
        file_system: Rc<F>,
        transport: Transport,
    ) -> Rc<Session<F>> {
        let fuse = Rc::new(connection.fuse);
        Rc::new(Session {
            classic: Classic::new(world.ring().clone(), fuse.clone()),
            reply_batch: ReplyBatch::new(
                fuse,
                std::thread::available_parallelism().map_or(1, usize::from),
            ),
            processors: connection.processors,
            world,
            file_system,
            transport,
            negotiated: Cell::new(None),
            stopping: Cell::new(false),
            ring_refused: Cell::new(false),
            fallback_reason: RefCell::default(),
            changed: Event::default(),
            running: Cell::new(0),
            idle: Event::default(),
            memory: Rc::default(),
            statistics: Cell::default(),
            counts: Counts::default(),
            trace: RefCell::default(),
            declined: Cell::default(),
            idmapped_mounts: Cell::default(),
        })
    }

    /// Returns the counts so far.
    pub fn statistics(&self) -> SessionStatistics {
        self.statistics.get()
    }
    /// Returns the number of replies that the kernel did not take, besides those that the ring
    /// sent.
    pub fn failed_replies(&self) -> u64 {
        self.reply_batch.failed()
    }
    /// Returns the operations that were requested, by the kernel's names, and how often.
    pub fn requests_by_operation(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.counts.by_name()
    }
    /// Sets a function that is called with each request when it is answered.
    pub fn trace(&self, report: impl Fn(&str) + 'static) {
        self.trace.replace(Some(Box::new(report)));
    }
    /// Returns the result of the negotiation with the kernel; `None` before INIT.
    pub fn negotiated(&self) -> Option<Negotiated> {
        self.negotiated.get()
    }

    /// Leaves access control lists out of the negotiation, so that modes alone decide. Takes effect
    /// if called before [`Session::serve`].
    pub fn disable_acls(&self) {
        self.declined.set(self.declined.get() | abi::init::POSIX_ACL);
    }

    /// Leaves shared mappings of files that are opened with [`abi::fopen::DIRECT_IO`] out of the
    /// negotiation: mmap(2) fails with ENODEV, as before Linux 6.6. Takes effect if called before
    /// [`Session::serve`].
    pub fn disable_shared_mappings(&self) {
        self.declined.set(self.declined.get() | abi::init::DIRECT_IO_ALLOW_MMAP);
    }

    /// Lets mounts map users and groups (mount_setattr(2), Linux 6.12). Requests have
    /// [`abi::NO_ID`] as user and group then, on every mount, unless they make a file. Takes effect
    /// if called before [`Session::serve`].
    pub fn allow_idmapped_mounts(&self) {
        self.idmapped_mounts.set(true);
    }

    /// Returns why requests come by the classic channel although the kernel offered the ring.
    pub fn fallback_reason(&self) -> Option<String> {
        self.fallback_reason.borrow().clone()
    }

    /// Makes the kernel forget the attributes of a node; it has when this returns. A reply in
    /// flight does not bring them back: the kernel drops replies to earlier requests.
    pub fn invalidate_attributes(&self, node: u64) {
        self.classic.forget(Stale::Attributes(node));
    }

    /// Waits until the negotiation is complete and the kernel has what it needs: from then on the
    /// mount is in use. Never returns if the kernel refuses; then [`Session::serve`] fails.
    pub async fn until_started(&self) -> Negotiated {
        self.changed.until(|| self.negotiated.get()).await
    }
    /// Takes no more requests, over either channel; [`Session::serve`] ends when those taken are
    /// done. Later users of the mount get errors once the connection is dropped.
    pub fn stop(&self) {
        self.stopping.set(true);
        self.changed.notify();
    }

    /// Serves until the file system is unmounted, the connection aborted or [`Session::stop`]
    /// called, and everything taken is done. [`FileSystem::end`] has ended when this returns, also
    /// after an error. Call it once.
    ///
    /// # Errors
    /// `Init` if the negotiation fails, `Channel` if reading the connection does,
    /// `RingUnavailable` if the kernel accepted io_uring but took no entry.
    pub async fn serve(self: &Rc<Self>) -> Result<(), SessionError> {
        let mut readable = self.classic.readable();
        let result = loop {
            let stopped = self.changed.until(|| self.stopping.get().then_some(()));
            match self.drain() {
                Ok(Drained::Empty) => {}
                Ok(Drained::Full) => match race(stopped, self.memory.until_left()).await {
                    Either::Left(()) => break Ok(()),
                    Either::Right(()) => continue,
                },
                Ok(Drained::NoMemory) => {
                    let later = self.world.now().plus(PAUSE_WITHOUT_MEMORY);
                    match race(stopped, self.world.sleep_until(later)).await {
                        Either::Left(()) => break Ok(()),
                        Either::Right(()) => continue,
                    }
                }
                Ok(Drained::Gone) => break Ok(()),
                Err(error) => break Err(error),
            }
            // Once unmounted the poll reports an error event; reading then returns the cause.
            match race(stopped, readable.next()).await {
                Either::Left(()) => break Ok(()),
                Either::Right(Ok(_)) => {}
                Either::Right(Err(error)) => break Err(error.into()),
            }
        };
        self.file_system.stopping();
        self.until_alone(0).await;
        self.reply_batch.end();
        self.file_system.clone().end().await;
        if self.ring_refused.get() {
            return Err(SessionError::RingUnavailable(
                "the kernel refused an entry; mount with transport=classic",
            ));
        }
        result
    }

    fn reserve_memory(self: &Rc<Self>, request: &Request) -> Share {
        let share = self.memory.take(request);
        if self.memory.is_worth_giving_back() {
            let (world, memory) = (self.world.clone(), self.memory.clone());
            self.world.spawn(Box::pin(async move {
                loop {
                    world.sleep_until(world.now().plus(GIVE_BACK_AFTER)).await;
                    if memory.give_back() {
                        break;
                    }
                }
            }));
        }
        share
    }

    /// Takes the requests that wait in the classic channel, as far as memory allows.
    fn drain(self: &Rc<Self>) -> Result<Drained, SessionError> {
        while self.memory.is_left() {
            match self.classic.receive()? {
                Received::Message => self.take(self.classic.message())?,
                Received::Nothing => return Ok(Drained::Empty),
                Received::NoMemory => return Ok(Drained::NoMemory),
                Received::Gone => return Ok(Drained::Gone),
            }
        }
        Ok(Drained::Full)
    }

    fn take(
        self: &Rc<Self>,
        request: Result<Request, MalformedRequest>,
    ) -> Result<(), SessionError> {
        match request {
            Ok(request) if request.header.opcode == opcode::INIT => self.begin(&request),
            Ok(request) => {
                self.start(request);
                Ok(())
            }
            Err(_) => {
                self.note(|statistics| statistics.malformed += 1);
                Ok(())
            }
        }
    }

    fn begin(self: &Rc<Self>, request: &Request) -> Result<(), SessionError> {
        let unique = request.header.unique;
        let Ok(Operation::Init(offer)) = request.operation() else {
            self.classic.reply_now(unique, Reply::error(libc::EPROTO))?;
            return Ok(());
        };
        match self.agree(&offer) {
            Ok((negotiated, entries)) => {
                self.classic.begin(unique, &negotiated.reply)?;
                if let Some(entries) = entries {
                    self.start_ring(entries);
                }
                self.begin_after_iteration(negotiated);
                Ok(())
            }
            Err(error) => {
                self.classic.reply_now(unique, Reply::error(libc::EPROTO))?;
                Err(error.into())
            }
        }
    }

    /// Negotiates. The ring is used only if there is memory for it.
    fn agree(&self, offer: &InitIn) -> Result<(Negotiated, Option<Entries>), InitError> {
        let mut offer = *offer;
        offer.flags &= !(self.declined.get() as u32);
        offer.flags2 &= !((self.declined.get() >> 32) as u32);
        let optional = OptionalFeatures {
            remote_locks: F::REMOTE_LOCKS,
            security_labels: F::SECURITY_LABELS,
            idmapped_mounts: self.idmapped_mounts.get(),
        };
        let page = crate::page_bytes();
        let agree = |transport| init::negotiate(&offer, transport, optional, page);
        let negotiated = agree(self.transport)?;
        if !negotiated.uring {
            return Ok((negotiated, None));
        }
        if let Some(why) = self.world.ring().no_ring() {
            *self.fallback_reason.borrow_mut() = Some(why.to_string());
            return Ok((agree(Transport::Classic)?, None));
        }
        match Entries::new(self.processors) {
            Ok(entries) => Ok((negotiated, Some(entries))),
            Err(error) => {
                *self.fallback_reason.borrow_mut() =
                    Some(format!("no memory for the requests of its queues: {error}"));
                Ok((agree(Transport::Classic)?, None))
            }
        }
    }

    /// Completes the start one iteration of the loop later: the kernel refuses an entry at once.
    fn begin_after_iteration(self: &Rc<Self>, negotiated: Negotiated) {
        let session = self.clone();
        self.world.spawn(Box::pin(async move {
            let soon = session.world.now().plus(Duration::from_millis(1));
            session.world.sleep_until(soon).await;
            if !session.ring_refused.get() {
                session.negotiated.set(Some(negotiated));
                session.changed.notify();
            }
        }));
    }

    fn start(self: &Rc<Self>, request: Request) {
        if request.header.opcode == opcode::INTERRUPT {
            self.note(|statistics| statistics.interrupts += 1);
            if let Ok(Operation::Interrupt { unique }) = request.operation() {
                self.file_system.interrupt(unique);
            }
            return;
        }
        self.count_in();
        let session = self.clone();
        let share = self.reserve_memory(&request);
        self.world.spawn(Box::pin(async move {
            let (unique, wants_reply) = (request.header.unique, request.wants_reply());
            let reply = session.reply(request).await;
            if wants_reply {
                session.send(unique, reply, share);
            }
        }));
    }

    /// Sends a reply of the classic channel.
    fn send(self: &Rc<Self>, unique: u64, reply: Reply, share: Share) {
        match self.reply_batch.take(self.running.get(), unique, reply) {
            Err(reply) => self.classic.reply(unique, reply, share),
            Ok(false) => {}
            Ok(true) => {
                let session = self.clone();
                self.world.spawn(Box::pin(async move {
                    let after = |time| session.world.sleep_until(session.world.now().plus(time));
                    after(reply_batch::PATIENCE).await;
                    while session.reply_batch.help() {
                        // After an iteration of the loop, which takes new requests: those come
                        // first.
                        after(Duration::from_nanos(1)).await;
                    }
                }));
            }
        }
    }

    /// Counts a request as in flight from when it is taken, not from when its task first runs.
    fn count_in(&self) {
        self.note(|statistics| statistics.requests += 1);
        self.running.set(self.running.get() + 1);
    }

    async fn reply(&self, request: Request) -> Reply {
        self.counts.count(request.header.opcode);
        self.world.name_task(opcode::name(request.header.opcode));
        if request.header.opcode == opcode::DESTROY {
            self.until_alone(1).await;
        }
        let traced = self.trace.borrow().is_some().then_some(request.header);
        let reply = self.file_system.clone().serve(request).await;
        if let (Some(header), Some(report)) = (traced, &*self.trace.borrow()) {
            let (name, node, process) = (opcode::name(header.opcode), header.nodeid, header.pid);
            let end = match reply.errno().unsigned_abs() {
                0 => "done".to_owned(),
                errno => io::Error::from_raw_os_error(errno as i32).to_string(),
            };
            report(&format!(
                "request {}: {name}, node {node}, process {process}: {end}",
                header.unique
            ));
        }
        reply.stale().iter().for_each(|stale| self.classic.forget(*stale));
        self.running.set(self.running.get() - 1);
        self.idle.notify();
        reply
    }

    /// Waits until only `left` requests are in flight.
    async fn until_alone(&self, left: u64) {
        self.idle.until(|| (self.running.get() <= left).then_some(())).await
    }

    fn note(&self, change: impl FnOnce(&mut SessionStatistics)) {
        let mut statistics = self.statistics.get();
        change(&mut statistics);
        self.statistics.set(statistics);
    }
}
