//! Concurrent clients: each has a task that reads its requests, and one for each request in flight.

use crate::clients::{Clients, Connections};
use crate::connection::{Connection, Socket};
use crate::export::Export;
use crate::listener::Listener;
use crate::negotiate::{Agreed, negotiate};
use crate::patience::Patience;
use crate::request::{
    Command, EIO, ENOSPC, ENOTSUP, HEADER, NbdRequest, data_chunk, error_chunk, simple_reply,
};
use crate::window::{Pool, Reservation, Window};
use device::{Buffer, DeviceError, Durability, World};
use runtime::{Either, File, RealWorld, race, spawn_with_result};
use std::cell::Cell;
use std::io;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

/// Maximum number of connections at a time.
const CLIENTS_MAX: usize = 64;
/// Time limit of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// Bytes that write-zeroes writes at once.
const ZEROES: usize = 1 << 20;

/// Serves until it is dropped. All connections are shut then, unless they are held: what was not
/// answered is the client's to send again.
///
/// # Errors
/// The listener fails. The connections are held, and the caller ends them.
pub async fn serve(
    world: RealWorld,
    listener: Listener,
    export: Rc<Export>,
    connections: Connections,
) -> io::Result<()> {
    let watched = File::new(listener.copy()?);
    let mut ready = world.ring().poll(&watched, libc::POLLIN);
    let (count, pool) = (Rc::new(Cell::new(0)), Rc::new(Pool::default()));
    let clients = connections.0.clone();
    let _shut = ShutAtEnd(clients.clone());
    loop {
        loop {
            match listener.accept() {
                // Above the limit the socket is closed at once.
                Ok(socket) if count.get() < CLIENTS_MAX => {
                    let client = Count::new(&count);
                    let (own, export, pool) = (world.clone(), export.clone(), pool.clone());
                    let clients = clients.clone();
                    world.spawn(Box::pin(async move {
                        // An error of a client ends only that client.
                        let _ = converse(own, socket, export, &pool, clients).await;
                        drop(client);
                    }));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The client has gone already; or no descriptor is free: the next one may find one.
                Err(_) => world.sleep_until(world.now().plus(Duration::from_millis(10))).await,
            }
            // Clients may connect faster than they are accepted.
            runtime::yield_now().await;
        }
        ready.next().await.inspect_err(|_| connections.hold())?;
    }
}

struct Count(Rc<Cell<usize>>);
impl Count {
    fn new(count: &Rc<Cell<usize>>) -> Count {
        count.set(count.get() + 1);
        Count(count.clone())
    }
}
impl Drop for Count {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

struct ShutAtEnd(Rc<Clients>);
impl Drop for ShutAtEnd {
    fn drop(&mut self) {
        if !units::fault!("nbd-left-open") {
            self.0.shut_with_server();
        }
    }
}

/// Serves one client, which is connected already, until it has gone.
///
/// # Errors
/// The client breaks the protocol, or its socket fails.
pub async fn serve_client(
    world: RealWorld,
    socket: UnixStream,
    export: Rc<Export>,
) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    converse(world, Socket::Unix(socket), export, &Rc::default(), Rc::default()).await
}

/// The connection of the kernel's own client, until it is dropped: then nothing is answered any
/// more. What was begun is carried out, and the kernel sends it again over the next connection, or
/// fails it.
pub struct KernelConnection {
    _shut: ShutAtEnd,
}

impl KernelConnection {
    /// Serves the server's end of a connection that [`crate::NbdClient`] has made. The future
    /// returns why the connection has ended, if it was neither dropped nor ended by the kernel's
    /// request to disconnect: the device is without a server then. Otherwise it never returns.
    ///
    /// # Errors
    /// The socket cannot be made non-blocking, or no descriptor is left.
    pub fn serve(
        world: &RealWorld,
        socket: UnixStream,
        export: Rc<Export>,
    ) -> io::Result<(KernelConnection, impl Future<Output = io::Error> + use<>)> {
        socket.set_nonblocking(true)?;
        let connection = Rc::new(Connection::new(world, Socket::Unix(socket))?);
        let clients = Rc::new(Clients::default());
        let (own, shared) = (world.clone(), clients.clone());
        let served = spawn_with_result(world, async move {
            let _member = shared.admit(&connection);
            let (agreed, pool) = (Agreed::default(), Rc::new(Pool::default()));
            let served = transmit(own, connection, (export, agreed), &pool, shared.clone()).await;
            served.err().filter(|_| !shared.are_shut())
        });
        let broken = async move {
            match served.await {
                Some(Some(error)) => error,
                _ => std::future::pending().await,
            }
        };
        Ok((KernelConnection { _shut: ShutAtEnd(clients) }, broken))
    }
}

async fn converse(
    world: RealWorld,
    socket: Socket,
    export: Rc<Export>,
    pool: &Rc<Pool>,
    clients: Rc<Clients>,
) -> io::Result<()> {
    let connection = Rc::new(Connection::new(&world, socket)?);
    let _member = clients.admit(&connection);
    let late = world.sleep_until(world.now().plus(HANDSHAKE));
    let agreed = match race(negotiate(&connection, &export), late).await {
        Either::Left(agreed) => agreed?,
        Either::Right(()) => return Err(io::ErrorKind::TimedOut.into()),
    };
    match agreed {
        Some(agreed) => transmit(world, connection, (export, agreed), pool, clients).await,
        None => Ok(()),
    }
}

/// Carries out the requests of a client, until it ends.
async fn transmit(
    world: RealWorld,
    connection: Rc<Connection>,
    (export, agreed): (Rc<Export>, Agreed),
    pool: &Rc<Pool>,
    clients: Rc<Clients>,
) -> io::Result<()> {
    let window = Rc::new(Window::new(pool));
    let patience = Rc::new(Patience { world: world.clone(), pool: pool.clone() });
    let client =
        Client { world, connection, export, agreed, window: window.clone(), patience, clients };
    let result = client.read_requests().await;
    // Changes that were begun are carried out, also for a client that has gone.
    window.empty().await;
    result
}

#[derive(Clone)]
struct Client {
    world: RealWorld,
    connection: Rc<Connection>,
    export: Rc<Export>,
    agreed: Agreed,
    window: Rc<Window>,
    patience: Rc<Patience>,
    clients: Rc<Clients>,
}

impl Client {
    async fn read_requests(&self) -> io::Result<()> {
        loop {
            // Refused requests wait for nothing, and other clients must be served between them.
            runtime::yield_now().await;
            let mut header = [0; HEADER];
            self.connection.read_exact(&mut header).await?;
            let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, error);
            let request = NbdRequest::parse(&header).map_err(wrong)?;
            if request.command == Command::Disconnect {
                self.connection.goodbye();
                return Ok(());
            }
            let refused =
                request.refuse(self.export.size(), self.export.sector(), self.export.read_only);
            let bytes = match request.command {
                Command::Write => request.length as usize,
                Command::Read if refused.is_none() => request.length as usize,
                Command::WriteZeroes => ZEROES,
                _ => 0,
            };
            let reservation = self.window.enter(bytes).await;
            let payload = match request.command {
                Command::Write => {
                    let mut payload = Buffer::zeroed(bytes.next_multiple_of(512));
                    let read = self.connection.read_exact(&mut payload[..bytes]);
                    self.patience.with(&self.connection, Connection::received, read).await?;
                    Some(payload)
                }
                _ => None,
            };
            match refused {
                Some(error) => self.answer_error(&request, error).await?,
                None => {
                    let (client, pending) = (self.clone(), self.clients.note_request());
                    self.world.spawn(Box::pin(async move {
                        // A client that has gone needs no reply.
                        let _ = client.carry_out(request, payload, reservation).await;
                        drop(pending);
                    }));
                }
            }
        }
    }

    /// Carries out a request and answers it, unless the server ends first: then it is not begun, or
    /// its answer is an error, or it has none. Changes of a client that has gone are not begun.
    async fn carry_out(
        &self,
        request: NbdRequest,
        payload: Option<Buffer>,
        _reservation: Reservation,
    ) -> io::Result<()> {
        if self.clients.are_failing().await {
            return self.answer_error(&request, EIO).await;
        }
        let disk = &self.export.disk;
        let change = match request.is_change() {
            true => Some(self.clients.begin_change(&self.connection, request.bytes()).await?),
            false => None,
        };
        let durability = if request.fua { Durability::Durable } else { Durability::Cached };
        let result = match request.command {
            Command::Read => match disk.read(request.at, request.length as usize).await {
                Ok(data) if !self.clients.are_failing().await => {
                    return self.answer_data(&request, &data).await;
                }
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            },
            Command::Write => {
                disk.write(request.at, payload.into_iter().map(Rc::new).collect(), durability).await
            }
            Command::Flush => disk.flush().await,
            Command::Trim => self.trim(&request).await,
            Command::WriteZeroes => self.write_zeroes(&request).await,
            Command::Cache => Ok(()),
            Command::Disconnect | Command::Unknown(_) => {
                return self.answer_error(&request, ENOTSUP).await;
            }
        };
        drop(change);
        if self.clients.are_failing().await {
            return self.answer_error(&request, EIO).await;
        }
        match result {
            Ok(()) => self.send(&[&simple_reply(request.cookie, 0)]).await,
            Err(error) => self.answer_error(&request, number_of(&error, request.command)).await,
        }
    }

    /// Discards whole sectors only; partial ones keep their content.
    async fn trim(&self, request: &NbdRequest) -> Result<(), DeviceError> {
        let (disk, sector) = (&self.export.disk, u64::from(self.export.sector()));
        let at = request.at.next_multiple_of(sector);
        let end = (request.at + u64::from(request.length)) / sector * sector;
        if at < end && disk.geometry().discard {
            disk.discard(at, end - at).await?;
        }
        if request.fua { disk.flush().await } else { Ok(()) }
    }

    async fn write_zeroes(&self, request: &NbdRequest) -> Result<(), DeviceError> {
        let disk = &self.export.disk;
        let end = request.at + u64::from(request.length);
        let zeroes = Rc::new(Buffer::zeroed(ZEROES.min(request.length as usize)));
        let mut at = request.at;
        // A client that has gone sends the whole again.
        while at < end && !self.connection.is_given_up() {
            let length = (end - at).min(ZEROES as u64) as usize;
            let part = if length == zeroes.len() {
                zeroes.clone()
            } else {
                Rc::new(Buffer::zeroed(length))
            };
            disk.write(at, vec![part], Durability::Cached).await?;
            at += length as u64;
        }
        if request.fua { disk.flush().await } else { Ok(()) }
    }

    async fn answer_data(&self, request: &NbdRequest, data: &[u8]) -> io::Result<()> {
        let head = if self.agreed.structured {
            data_chunk(request.cookie, request.at, request.length)
        } else {
            simple_reply(request.cookie, 0)
        };
        self.send(&[&head, data]).await
    }
    async fn answer_error(&self, request: &NbdRequest, error: u32) -> io::Result<()> {
        let reply = if self.agreed.structured && request.command == Command::Read {
            error_chunk(request.cookie, error)
        } else {
            simple_reply(request.cookie, error)
        };
        self.send(&[&reply]).await
    }

    /// Sends a reply, waiting only for a client that reads.
    async fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
        let sending = self.connection.send(parts);
        self.patience.with(&self.connection, Connection::sent, sending).await
    }
}

/// Returns the protocol's number for an error of the disk. Of the few that it knows, ENOSPC is for
/// changes alone; a request that should have been refused earlier is an internal error.
fn number_of(error: &DeviceError, command: Command) -> u32 {
    let changes = !matches!(command, Command::Read | Command::Flush);
    match error {
        DeviceError::Failed { code, .. }
            if changes && matches!(*code, libc::ENOSPC | libc::EDQUOT) =>
        {
            ENOSPC
        }
        DeviceError::Failed { .. } | DeviceError::OutOfRange { .. } => EIO,
        DeviceError::Unaligned { .. } => crate::request::EINVAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::Operation;

    #[test]
    fn full_disks_are_no_answer_to_reads() {
        let failed = |code| DeviceError::Failed {
            disk: "d".into(),
            operation: Operation::Write,
            at: 0,
            length: 512,
            code,
        };
        assert_eq!(number_of(&failed(libc::ENOSPC), Command::Write), ENOSPC);
        assert_eq!(number_of(&failed(libc::EDQUOT), Command::WriteZeroes), ENOSPC);
        for command in [Command::Read, Command::Flush] {
            assert_eq!(number_of(&failed(libc::ENOSPC), command), EIO);
        }
        let (disk, operation) = ("d".to_owned(), Operation::Read);
        let beyond = DeviceError::OutOfRange { disk, operation, at: 8, length: 8, size: 8 };
        assert_eq!(number_of(&beyond, Command::Read), EIO);
        assert_eq!(number_of(&beyond, Command::Write), EIO);
    }
}
