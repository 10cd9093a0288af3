//! Clients that connect again, as far as a change that they have sent before may come late.

use crate::{Client, SIZE, Server, SocketKind};
use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture, Operation, World};
use disks::MemoryDisk;
use nbd::{Connections, Export, KernelConnection, serve};
use runtime::sync::Event;
use runtime::{Either, RealWorld, race};
use std::cell::Cell;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Byte of the disk at which reads and writes of [`OLD`] wait for a read at [`GATE`].
const HELD: u64 = 1 << 20;
const GATE: u64 = 2 << 20;
/// Byte at which a read ends the server.
const STOP: u64 = 3 << 20;
const OLD: u8 = 1;
const NEW: u8 = 2;
/// errno
const ESHUTDOWN: i32 = 108;

#[derive(Clone)]
struct GatedDisk(Rc<Gates>);

struct Gates {
    disk: MemoryDisk,
    open: Cell<bool>,
    stopped: Cell<bool>,
    closed: Cell<bool>,
    changed: Event,
}

impl GatedDisk {
    fn over(disk: MemoryDisk) -> GatedDisk {
        let (open, stopped, closed) = (Cell::new(false), Cell::new(false), Cell::new(false));
        GatedDisk(Rc::new(Gates { disk, open, stopped, closed, changed: Event::default() }))
    }
    async fn until(&self, gate: impl Fn(&Gates) -> bool) {
        self.0.changed.until(|| gate(&self.0).then_some(())).await;
    }
    fn set(&self, gate: impl Fn(&Gates) -> &Cell<bool>) {
        gate(&self.0).set(true);
        self.0.changed.notify();
    }
    fn check(&self, operation: Operation) -> Result<(), DeviceError> {
        let disk = self.0.disk.name().to_owned();
        match self.0.closed.get() {
            true => Err(DeviceError::Failed { disk, operation, at: 0, length: 0, code: ESHUTDOWN }),
            false => Ok(()),
        }
    }
}

impl Disk for GatedDisk {
    fn name(&self) -> &str {
        self.0.disk.name()
    }
    fn geometry(&self) -> Geometry {
        self.0.disk.geometry()
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        let own = self.clone();
        Box::pin(async move {
            match at {
                HELD => own.until(|gates| gates.open.get()).await,
                GATE => own.set(|gates| &gates.open),
                STOP => own.set(|gates| &gates.stopped),
                _ => {}
            }
            own.check(Operation::Read)?;
            own.0.disk.read(at, length).await
        })
    }
    fn write(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        let own = self.clone();
        Box::pin(async move {
            if at == HELD && parts[0][0] == OLD {
                own.until(|gates| gates.open.get()).await;
            }
            own.check(Operation::Write)?;
            own.0.disk.write(at, parts, durability).await
        })
    }
    fn flush(&self) -> LocalFuture<Result<(), DeviceError>> {
        let own = self.clone();
        Box::pin(async move {
            own.check(Operation::Flush)?;
            own.0.disk.flush().await
        })
    }
    fn discard(&self, at: u64, length: u64) -> LocalFuture<Result<(), DeviceError>> {
        self.0.disk.discard(at, length)
    }
}

/// Serves a gated disk. The receiver has a message once the server has ended and the disk is
/// closed.
fn start(kind: SocketKind) -> (Server, Receiver<()>) {
    let (send, ended) = channel();
    let server = Server::with(kind, async move |world, disk, listener| {
        let disk = GatedDisk::over(disk);
        let export = Export { disk: Rc::new(disk.clone()), read_only: false, rotational: false };
        let connections = Connections::default();
        let mut serving = Box::pin(serve(world, listener, Rc::new(export), connections));
        let stopped = disk.until(|gates| gates.stopped.get());
        assert!(matches!(race(&mut serving, stopped).await, Either::Right(())));
        drop(serving);
        disk.set(|gates| &gates.closed);
        send.send(()).unwrap();
        std::future::pending().await
    });
    (server, ended)
}

fn over_both(test: impl Fn(Server, Receiver<()>)) {
    for kind in [SocketKind::Unix, SocketKind::Tcp] {
        println!("{kind:?}");
        let (server, ended) = start(kind);
        test(server, ended);
    }
}

fn write(client: &mut Client, cookie: u64, at: u64, byte: u8) {
    client.ask(0, 1, cookie, at, 512, &[byte; 512]);
}

fn read(client: &mut Client, at: u64) -> u8 {
    client.ask(0, 0, 7, at, 512, &[]);
    assert_eq!(client.simple(), (0, 7));
    client.take(512)[0]
}

/// Sends more requests than one client may have in flight: the rest stays in its socket.
fn fill_window(client: &mut Client) {
    for cookie in 0..200 {
        client.ask(0, 0, cookie, HELD, 512, &[]);
    }
}

#[test]
fn changes_buffered_on_a_dead_connection_are_dropped() {
    over_both(|server, _ended| {
        let (mut dead, mut client) = (server.transmit(false), server.transmit(false));
        fill_window(&mut dead);
        write(&mut dead, 1, 0, OLD);
        write(&mut dead, 2, 4096, OLD);
        drop(dead);
        for at in [0, 4096] {
            write(&mut client, 3, at, NEW);
            assert_eq!(client.simple(), (0, 3));
        }
        read(&mut client, GATE);
        for _ in 0..100 {
            assert_eq!((read(&mut client, 0), read(&mut client, 4096)), (NEW, NEW));
        }
    });
}

#[test]
fn changes_wait_for_those_of_a_dead_connection() {
    over_both(|server, _ended| {
        let (mut dead, mut client) = (server.transmit(false), server.transmit(false));
        write(&mut dead, 1, HELD, OLD);
        // Its answer says that the disk has the write.
        read(&mut dead, 0);
        drop(dead);
        write(&mut client, 2, HELD, NEW);
        // Without waiting the write would be answered before the gate is opened.
        let mut is_answered = false;
        let mut until = |client: &mut Client, wanted: u64| {
            while !(wanted == 2 && is_answered) {
                let (error, cookie) = client.simple();
                assert_eq!(error, 0);
                is_answered |= cookie == 2;
                client.take(if cookie == 2 { 0 } else { 512 });
                if cookie == wanted {
                    break;
                }
            }
        };
        for _ in 0..100 {
            client.ask(0, 0, 3, 0, 512, &[]);
            until(&mut client, 3);
        }
        client.ask(0, 0, 4, GATE, 512, &[]);
        until(&mut client, 4);
        until(&mut client, 2);
        for _ in 0..100 {
            assert_eq!(read(&mut client, HELD), NEW);
        }
    });
}

/// A client that says goodbye has sent all that it wants, and may close at once.
#[test]
fn changes_before_a_goodbye_are_carried_out() {
    over_both(|server, _ended| {
        let (mut leaving, mut client) = (server.transmit(false), server.transmit(false));
        fill_window(&mut leaving);
        write(&mut leaving, 1, 0, OLD);
        leaving.ask(0, 2, 2, 0, 0, &[]);
        drop(leaving);
        read(&mut client, GATE);
        while read(&mut client, 0) != OLD {}
    });
}

#[test]
fn a_server_that_ends_answers_no_request_with_an_error() {
    over_both(|server, ended| {
        let (mut client, mut other) = (server.transmit(false), server.transmit(false));
        write(&mut client, 1, 0, NEW);
        assert_eq!(client.simple(), (0, 1));
        other.ask(0, 0, 2, STOP, 512, &[]);
        ended.recv().unwrap();
        // An error says the same.
        let _ = client.try_ask(0, 3, 3, 0, 0, &[]);
        assert!(client.is_closed(), "it can send its requests to the next server");
    });
}

/// The kernel sends what was not answered over its next connection, or fails it.
#[test]
fn the_kernels_connection_has_no_handshake_and_answers_nothing_at_its_end() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (send, ended) = channel();
    std::thread::spawn(move || {
        let world = RealWorld::new().unwrap();
        let own = world.clone();
        world.run(async move {
            let in_world: Rc<dyn World> = Rc::new(own.clone());
            let disk = GatedDisk::over(MemoryDisk::new(in_world, SIZE));
            let shown: Rc<dyn Disk> = Rc::new(disk.clone());
            let export = Rc::new(Export { disk: shown, read_only: false, rotational: false });
            let (connection, _) = KernelConnection::serve(&own, theirs, export).unwrap();
            disk.until(|gates| gates.stopped.get()).await;
            drop(connection);
            disk.set(|gates| &gates.closed);
            send.send(()).unwrap();
            std::future::pending::<()>().await
        });
    });
    let mut kernel = Client(Box::new(ours));
    write(&mut kernel, 1, 0, NEW);
    assert_eq!(kernel.simple(), (0, 1));
    assert_eq!(read(&mut kernel, 0), NEW);
    write(&mut kernel, 2, HELD, OLD);
    kernel.ask(0, 0, 3, STOP, 512, &[]);
    ended.recv().unwrap();
    // An error says the same.
    let _ = kernel.try_ask(0, 3, 4, 0, 0, &[]);
    assert!(kernel.is_closed(), "it was answered");
}

/// Whether the server reports the end of a kernel's connection that ends in this way.
fn is_reported_broken(end: impl FnOnce(Client) + Send + 'static) -> bool {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let world = RealWorld::new().unwrap();
    let own = world.clone();
    let kernel = std::thread::spawn(move || end(Client(Box::new(ours))));
    let reported = world.run(async move {
        let in_world: Rc<dyn World> = Rc::new(own.clone());
        let disk = Rc::new(MemoryDisk::new(in_world, SIZE));
        let export = Rc::new(Export { disk, read_only: false, rotational: false });
        let (_connection, broken) = KernelConnection::serve(&own, theirs, export).unwrap();
        let patience = own.sleep_until(own.now().plus(Duration::from_millis(500)));
        matches!(race(broken, patience).await, Either::Left(_))
    });
    kernel.join().unwrap();
    world.end();
    reported
}

/// A request to disconnect is how the kernel removes a device.
#[test]
fn a_kernels_connection_that_breaks_is_reported() {
    assert!(is_reported_broken(drop));
    assert!(!is_reported_broken(|mut kernel| {
        kernel.ask(0, 2, 1, 0, 0, &[]);
    }));
}

/// Starts a server that holds its connections behind a read at [`STOP`], and has their requests
/// fail then, until `limit` ends. The receiver has a message when they are held, and at the end.
fn start_losing(
    limit: impl Future<Output = ()> + Send + 'static,
) -> (Server, Receiver<&'static str>) {
    let (send, phases) = channel();
    let server = Server::with(SocketKind::Unix, async move |world, disk, listener| {
        let disk = GatedDisk::over(disk);
        let export = Export { disk: Rc::new(disk.clone()), read_only: false, rotational: false };
        let connections = Connections::default();
        let served = serve(world.clone(), listener, Rc::new(export), connections.clone());
        let mut serving = Box::pin(served);
        let stopped = disk.until(|gates| gates.stopped.get());
        assert!(matches!(race(&mut serving, stopped).await, Either::Right(())));
        connections.hold();
        drop(serving);
        // What was begun goes on, and has no answer yet.
        disk.set(|gates| &gates.open);
        world.sleep_until(world.now().plus(Duration::from_millis(200))).await;
        send.send("held").unwrap();
        connections.end(&world, false, limit).await;
        send.send("gone").unwrap();
        std::future::pending().await
    });
    (server, phases)
}

/// Connects two clients, of which the first has a write acknowledged and another one held, the
/// second a read.
fn clients_that_are_held(server: &Server, phases: &Receiver<&'static str>) -> (Client, Client) {
    let (mut one, mut other) = (server.transmit(false), server.transmit(false));
    write(&mut one, 1, 0, OLD);
    assert_eq!(one.simple(), (0, 1));
    write(&mut one, 2, HELD, OLD);
    other.ask(0, 0, 3, STOP, 512, &[]);
    assert_eq!(phases.recv(), Ok("held"));
    (one, other)
}

/// A flush at the next server would succeed, and what this one acknowledged be gone.
#[test]
fn clients_of_a_server_that_lost_something_get_errors() {
    let (server, phases) = start_losing(std::future::pending());
    let (mut one, mut other) = clients_that_are_held(&server, &phases);
    one.ask(0, 3, 4, 0, 0, &[]);
    let answers = std::collections::BTreeSet::from([one.simple(), one.simple()]);
    assert_eq!(answers, [(5, 2), (5, 4)].into());
    assert_eq!(other.simple(), (5, 3));
    drop(one);
    write(&mut other, 5, 0, NEW);
    assert_eq!(other.simple(), (5, 5));
    assert!(phases.try_recv().is_err(), "a client was left");
    drop(other);
    assert_eq!(phases.recv_timeout(Duration::from_secs(60)), Ok("gone"));
}

/// A second signal may have come while the server made its volume durable.
#[test]
fn what_was_held_is_answered_though_the_limit_has_ended() {
    let (server, phases) = start_losing(std::future::ready(()));
    let (mut one, mut other) = clients_that_are_held(&server, &phases);
    assert_eq!((one.simple(), other.simple()), ((5, 2), (5, 3)));
    assert!(one.is_closed() && other.is_closed());
    assert_eq!(phases.recv_timeout(Duration::from_secs(60)), Ok("gone"));
}
