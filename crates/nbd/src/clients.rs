//! The connections of one server, and the order of changes of different connections.
//!
//! A client whose connection broke sends what was not answered again over another one, and newer
//! changes behind it. Invariant: a change begins only while no connection that its client has given
//! up carries out one of the same bytes. So nothing old overwrites what was acknowledged since.
//!
//! That a connection was given up is seen at once on a Unix socket. Over TCP, or through a tunnel,
//! its end may stand behind requests that are still in flight.

use crate::connection::Connection;
use device::World;
use runtime::sync::Event;
use runtime::{RealWorld, race};
use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// Time limit for the errors that answer the requests of connections that were held.
const ANSWERS: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct Clients {
    connections: RefCell<Vec<Rc<Connection>>>,
    phase: Cell<Phase>,
    /// Requests that were read and have no answer.
    requests: Cell<usize>,
    /// Set when a request, a change or a connection has ended, or the phase is another one.
    changed: Event,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Served,
    /// Requests wait, and so do answers, until it is known how the server ends.
    Held,
    /// Requests are answered with errors.
    Failing,
    Ended,
}

/// The connections of a server, for the caller that ends it. Clones are the same.
///
/// A client whose connection ends sends again what was not answered, and a flush of the next server
/// succeeds. So the connections may be shut without an answer only if everything that was
/// acknowledged is durable: [`Connections::hold`] them, make it so, and [`Connections::end`] them.
#[derive(Clone, Default)]
pub struct Connections(pub(crate) Rc<Clients>);

impl Connections {
    /// Lets requests wait, those that are carried out with their answers. The server may be dropped
    /// then, and the connections stay.
    pub fn hold(&self) {
        if self.0.phase.get() == Phase::Served && !units::fault!("nbd-losses-unsaid") {
            self.0.enter(Phase::Held);
        }
    }

    /// Ends the connections that are held: at once if `all_is_durable`, and clients send again what
    /// was not answered. Else every request fails until all clients have gone, or `limit` ends. The
    /// requests that were held are answered before that is looked at, within two seconds.
    pub async fn end<T>(
        &self,
        world: &RealWorld,
        all_is_durable: bool,
        limit: impl Future<Output = T>,
    ) {
        if !all_is_durable && self.0.phase.get() == Phase::Held {
            self.0.enter(Phase::Failing);
            let late = world.sleep_until(world.now().plus(ANSWERS));
            let are_answered = || self.0.requests.get() == 0;
            race(self.0.changed.until(|| are_answered().then_some(())), late).await;
            let have_gone = || self.0.connections.borrow().is_empty();
            race(self.0.changed.until(|| have_gone().then_some(())), limit).await;
        }
        self.0.shut();
    }
}

/// Membership of a connection, until it is dropped.
pub struct Member(Rc<Clients>, Rc<Connection>);

/// A request that was read, until it is dropped.
pub struct PendingRequest(Rc<Clients>);

/// A change of a range of bytes that is carried out, until it is dropped.
pub struct Change<'a>(&'a Clients, &'a Connection, Range<u64>);

impl Clients {
    /// Adds a connection. It is shut at once if the server has ended.
    pub fn admit(self: &Rc<Self>, connection: &Rc<Connection>) -> Member {
        self.connections.borrow_mut().push(connection.clone());
        if self.are_shut() {
            connection.abandon();
        }
        Member(self.clone(), connection.clone())
    }

    /// Counts a request.
    pub fn note_request(self: &Rc<Self>) -> PendingRequest {
        self.requests.set(self.requests.get() + 1);
        PendingRequest(self.clone())
    }

    /// Ends all connections. What they have sent and was not begun is not carried out; what was
    /// begun is, and is not answered.
    pub fn shut(&self) {
        self.connections.borrow().iter().for_each(|connection| connection.abandon());
        self.enter(Phase::Ended);
    }

    /// Ends them with their server, unless they are held.
    pub fn shut_with_server(&self) {
        if self.phase.get() == Phase::Served {
            self.shut();
        }
    }

    fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.changed.notify();
    }

    /// Whether the server has ended them.
    pub fn are_shut(&self) -> bool {
        self.phase.get() == Phase::Ended
    }

    /// Returns whether a request is to be answered with an error whatever became of it. Waits while
    /// that is not known.
    pub async fn are_failing(&self) -> bool {
        let known = || Some(self.phase.get()).filter(|phase| *phase != Phase::Held);
        self.changed.until(known).await == Phase::Failing
    }

    /// Waits for the changes of `bytes` of connections that were given up.
    ///
    /// # Errors
    /// `BrokenPipe` if `own` was given up: the change must not begin.
    pub async fn begin_change<'a>(
        &'a self,
        own: &'a Connection,
        bytes: Range<u64>,
    ) -> io::Result<Change<'a>> {
        let may_begin = || own.is_given_up() || !self.is_changed_from_behind(own, &bytes);
        self.changed.until(|| may_begin().then_some(())).await;
        if own.is_given_up() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        own.changes.borrow_mut().push(bytes.clone());
        Ok(Change(self, own, bytes))
    }

    /// Whether another connection carries out changes of these bytes of which its client does not
    /// wait for the answers.
    fn is_changed_from_behind(&self, own: &Connection, bytes: &Range<u64>) -> bool {
        let connections = self.connections.borrow();
        let mut others = connections.iter().filter(|other| !std::ptr::eq(&***other, own));
        others.any(|other| other.changes_any_of(bytes) && other.is_given_up())
            && !units::fault!("nbd-former-change-overtaken")
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.connections.borrow_mut().retain(|connection| !Rc::ptr_eq(connection, &self.1));
        self.0.changed.notify();
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.0.requests.set(self.0.requests.get() - 1);
        self.0.changed.notify();
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut changes = self.1.changes.borrow_mut();
        let own = changes.iter().position(|change| *change == self.2);
        changes.swap_remove(own.expect("it is among them until now"));
        drop(changes);
        self.0.changed.notify();
    }
}
