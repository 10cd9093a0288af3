//! The connections of one server, and the order of changes of different connections.
//!
//! A client whose connection broke sends what was not answered again over another one, and newer
//! changes behind it. Invariant: a change begins only while no connection that its client has given
//! up carries out one of the same bytes. So nothing old overwrites what was acknowledged since.
//!
//! That a connection was given up is seen at once on a Unix socket. Over TCP, or through a tunnel,
//! its end may stand behind requests that are still in flight.

use crate::connection::Connection;
use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;
use std::rc::Rc;

#[derive(Default)]
pub struct Clients {
    connections: RefCell<Vec<Rc<Connection>>>,
    closed: Cell<bool>,
    change_ended: Event,
}

/// Membership of a connection, until it is dropped.
pub struct Member(Rc<Clients>, Rc<Connection>);

/// A change of a range of bytes that is carried out, until it is dropped.
pub struct Change<'a>(&'a Clients, &'a Connection, Range<u64>);

impl Clients {
    /// Adds a connection. It is shut at once if the server has ended.
    pub fn admit(self: &Rc<Self>, connection: &Rc<Connection>) -> Member {
        self.connections.borrow_mut().push(connection.clone());
        if self.closed.get() {
            connection.abandon();
        }
        Member(self.clone(), connection.clone())
    }

    /// Ends all connections. What they have sent and was not begun is not carried out; what was
    /// begun is, and is not answered.
    pub fn shut(&self) {
        self.closed.set(true);
        self.connections.borrow().iter().for_each(|connection| connection.abandon());
        self.change_ended.notify();
    }

    /// Whether the server has ended them.
    pub fn are_shut(&self) -> bool {
        self.closed.get()
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
        self.change_ended.until(|| may_begin().then_some(())).await;
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
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut changes = self.1.changes.borrow_mut();
        let own = changes.iter().position(|change| *change == self.2);
        changes.swap_remove(own.expect("it is among them until now"));
        drop(changes);
        self.0.change_ended.notify();
    }
}
