//! One client's socket on the ring: whole messages in and out.

use runtime::sync::RwLock;
use runtime::{File, PollStream, RealWorld};
use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
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

pub struct Connection {
    socket: Socket,
    readable: RefCell<PollStream>,
    writable: RefCell<PollStream>,
    /// Held for one reply at a time.
    replying: Rc<RwLock>,
    /// A reply was cut: nothing after it makes sense to the client.
    broken: Cell<bool>,
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
    /// Ends the connection: all operations that wait for the client fail.
    pub fn shut(&self) {
        self.broken.set(true);
        self.socket.shut();
    }

    /// Reads exactly `bytes`. Only the task that reads requests calls it.
    #[expect(clippy::await_holding_refcell_ref, reason = "one task reads")]
    pub async fn read_exact(&self, bytes: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
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
