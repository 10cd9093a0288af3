//! One client's socket on the ring: whole messages in and out.

use crate::request::{Command, HEADER, NbdRequest};
use runtime::sync::RwLock;
use runtime::{File, PollStream, RealWorld};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionread;
use rustix::net::{RecvFlags, recv};
use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

pub enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    fn watched(&self) -> io::Result<File> {
        let copy: OwnedFd = match self {
            Socket::Unix(stream) => stream.try_clone()?.into(),
            Socket::Tcp(stream) => stream.try_clone()?.into(),
        };
        Ok(File::new(copy))
    }
    fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => (&mut &*stream).read(bytes),
            Socket::Tcp(stream) => (&mut &*stream).read(bytes),
        }
    }
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => (&mut &*stream).write(bytes),
            Socket::Tcp(stream) => (&mut &*stream).write(bytes),
        }
    }
    fn shut(&self) {
        // An error means that it is shut already.
        let _ = match self {
            Socket::Unix(stream) => stream.shutdown(std::net::Shutdown::Both),
            Socket::Tcp(stream) => stream.shutdown(std::net::Shutdown::Both),
        };
    }
}

/// Maximum number of bytes that a socket holds; the kernel's limits are lower.
const SOCKET_BYTES_MAX: u64 = 64 << 20;

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Unix(stream) => stream.as_fd(),
            Socket::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Socket {
    /// Whether the other side sends nothing any more, although bytes of it may be unread.
    fn is_half_closed(&self) -> bool {
        let mut polled = [PollFd::new(self, PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Hanging up and errors are reported in any case.
        matches!(poll(&mut polled, Some(&at_once)), Ok(1..))
    }
    /// Whether the unread bytes of a socket that is half closed end with a request to disconnect.
    fn ends_with_disconnect(&self) -> bool {
        let Ok(length) = ioctl_fionread(self) else { return false };
        let mut unread = vec![0; length.min(SOCKET_BYTES_MAX) as usize];
        let found = recv(self, &mut unread[..], RecvFlags::PEEK).map_or(0, |(count, _)| count);
        let last = unread[..found].last_chunk::<HEADER>().map(|last| NbdRequest::parse(last));
        last.is_some_and(|last| last.is_ok_and(|last| last.command == Command::Disconnect))
    }
}

pub struct Connection {
    socket: Socket,
    readable: RefCell<PollStream>,
    writable: RefCell<PollStream>,
    /// Lock held for one reply at a time.
    replying: Rc<RwLock>,
    /// Whether the connection was shut, or a reply was cut: nothing after that makes sense to the
    /// client.
    broken: Cell<bool>,
    /// Whether the client may send its requests again over another connection, once that is known.
    given_up: Cell<Option<bool>>,
    /// Byte ranges of changes that are carried out ([`crate::clients::Clients::begin_change`]).
    pub changes: RefCell<Vec<Range<u64>>>,
    /// Bytes that the client sent and received, since it connected.
    received: Cell<u64>,
    sent: Cell<u64>,
}

impl Connection {
    /// Creates a connection; the socket becomes non-blocking.
    pub fn new(world: &RealWorld, socket: Socket) -> io::Result<Connection> {
        let (readable, writable) = (socket.watched()?, socket.watched()?);
        Ok(Connection {
            readable: RefCell::new(world.ring().poll(&readable, libc::POLLIN)),
            writable: RefCell::new(world.ring().poll(&writable, libc::POLLOUT)),
            socket,
            replying: Rc::default(),
            broken: Cell::new(false),
            given_up: Cell::new(None),
            changes: RefCell::default(),
            received: Cell::new(0),
            sent: Cell::new(0),
        })
    }

    pub fn received(&self) -> u64 {
        self.received.get()
    }
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }
    /// Ends the connection: nothing is sent any more, and all operations that wait for the client
    /// fail.
    pub fn shut(&self) {
        self.broken.set(true);
        self.socket.shut();
    }

    /// Ends the connection of a server that ends: nothing of it is carried out any more.
    pub fn abandon(&self) {
        self.given_up.set(Some(true));
        self.shut();
    }
    /// Whether a change of any of these bytes is carried out.
    pub fn changes_any_of(&self, bytes: &Range<u64>) -> bool {
        let overlaps = |one: &Range<u64>| one.start < bytes.end && bytes.start < one.end;
        self.changes.borrow().iter().any(overlaps)
    }

    /// Notes that a request to disconnect was read.
    pub fn goodbye(&self) {
        self.given_up.set(self.given_up.get().or(Some(false)));
    }
    /// Returns whether the client may send the requests of this connection again over another one:
    /// the connection has ended, and not with a request to disconnect.
    ///
    /// A client that has sent that request wants all before it carried out, and some close the
    /// socket for writing at once (libnbd).
    pub fn is_given_up(&self) -> bool {
        if let Some(known) = self.given_up.get() {
            return known;
        }
        let is_open = !self.broken.get() && !self.socket.is_half_closed();
        if is_open || units::fault!("nbd-outdated-carried-out") {
            return false;
        }
        let given_up = !self.socket.ends_with_disconnect();
        self.given_up.set(Some(given_up));
        if given_up {
            self.shut();
        }
        given_up
    }

    /// Reads exactly `bytes`, and nothing of a connection that was given up: what the socket holds
    /// then may be outdated. Only the task that reads requests calls it.
    #[expect(clippy::await_holding_refcell_ref, reason = "one task reads")]
    pub async fn read_exact(&self, bytes: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            if self.broken.get() && self.is_given_up() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            match self.socket.read(&mut bytes[done..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    done += count;
                    self.received.set(self.received.get() + count as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable.borrow_mut().next().await?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends the parts as one message.
    pub async fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
        let _one = self.replying.write().await;
        if self.broken.get() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        for part in parts {
            let sent = self.write_all(part).await;
            if sent.is_err() {
                self.shut();
            }
            sent?;
        }
        Ok(())
    }

    #[expect(clippy::await_holding_refcell_ref, reason = "the writer holds `replying`")]
    async fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.socket.write(&bytes[done..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    done += count;
                    self.sent.set(self.sent.get() + count as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writable.borrow_mut().next().await?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
