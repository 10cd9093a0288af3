//! The server over real sockets, driven byte by byte: behaviour that clients rely on, and hostile
//! clients.

mod reconnect;

use device::World;
use disks::MemoryDisk;
use nbd::{Connections, Export, Listener, serve};
use runtime::RealWorld;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

const SIZE: u64 = 8 << 20;
/// Time after which a client that sends nothing of what it announced is disconnected in any case.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// A server on a thread of its own, until the process ends.
struct Server {
    _directory: tempfile::TempDir,
    address: Address,
}

/// The kinds of sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SocketKind {
    Unix,
    Tcp,
}

enum Address {
    Unix(PathBuf),
    Tcp(String),
}

impl Server {
    fn start() -> Server {
        Server::with(SocketKind::Unix, async |world, disk, listener| {
            let export = Export { disk: Rc::new(disk), read_only: false, rotational: false };
            serve(world, listener, Rc::new(export), Connections::default()).await.unwrap();
        })
    }
    /// Runs `script` over a disk in memory.
    fn with(
        kind: SocketKind,
        script: impl AsyncFnOnce(RealWorld, MemoryDisk, Listener) + Send + 'static,
    ) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let (own, (ready, started)) = (path.clone(), std::sync::mpsc::channel());
        std::thread::spawn(move || {
            let world = RealWorld::new().unwrap();
            let in_world: Rc<dyn World> = Rc::new(world.clone());
            let disk = MemoryDisk::new(in_world, SIZE);
            let listener = match kind {
                SocketKind::Unix => Listener::unix(&own),
                SocketKind::Tcp => Listener::tcp("127.0.0.1:0"),
            };
            let listener = listener.unwrap();
            ready.send(listener.uri()).unwrap();
            world.run(script(world.clone(), disk, listener));
        });
        let uri = started.recv().unwrap();
        let address = match uri.strip_prefix("nbd://") {
            Some(address) => Address::Tcp(address.to_owned()),
            None => Address::Unix(path),
        };
        Server { _directory: directory, address }
    }
    fn connect(&self) -> Client {
        let timeout = Some(Duration::from_secs(60));
        let mut client = match &self.address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).unwrap();
                stream.set_read_timeout(timeout).unwrap();
                Client(Box::new(stream))
            }
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(timeout).unwrap();
                Client(Box::new(stream))
            }
        };
        let hello = client.take(18);
        assert_eq!(&hello[..16], b"NBDMAGICIHAVEOPT");
        client.say(&[&3u32.to_be_bytes()]);
        client
    }
    /// Enters the transmission phase, with structured replies or without.
    fn transmit(&self, structured: bool) -> Client {
        let mut client = self.connect();
        if structured {
            client.option(8, &[]);
            assert_eq!(client.option_reply(8), (1, vec![]));
        }
        client.option(7, &[0, 0, 0, 0, 0, 1, 0, 3]);
        let (kind, export) = client.option_reply(7);
        assert_eq!((kind, &export[..10]), (3, &[&[0, 0][..], &SIZE.to_be_bytes()].concat()[..]));
        let (kind, sizes) = client.option_reply(7);
        assert_eq!((kind, &sizes[..6]), (3, &[0, 3, 0, 0, 2, 0][..]));
        assert_eq!(client.option_reply(7), (1, vec![]));
        client
    }
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

struct Client(Box<dyn Stream>);

impl Client {
    fn say(&mut self, parts: &[&[u8]]) {
        self.0.write_all(&parts.concat()).unwrap();
    }
    fn take(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }
    fn option(&mut self, kind: u32, data: &[u8]) {
        self.say(&[b"IHAVEOPT", &kind.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data]);
    }
    fn option_reply(&mut self, of: u32) -> (u32, Vec<u8>) {
        let header = self.take(20);
        assert_eq!(header[8..12], of.to_be_bytes());
        let length = u32::from_be_bytes(header[16..].try_into().unwrap());
        (u32::from_be_bytes(header[12..16].try_into().unwrap()), self.take(length as usize))
    }
    fn ask(&mut self, flags: u16, kind: u16, cookie: u64, at: u64, length: u32, payload: &[u8]) {
        self.try_ask(flags, kind, cookie, at, length, payload).unwrap();
    }
    /// Fails if the server has closed the connection.
    fn try_ask(
        &mut self,
        flags: u16,
        kind: u16,
        cookie: u64,
        at: u64,
        length: u32,
        payload: &[u8],
    ) -> std::io::Result<()> {
        let fields =
            [&flags.to_be_bytes()[..], &kind.to_be_bytes(), &cookie.to_be_bytes()].concat();
        let magic = 0x2560_9513u32.to_be_bytes();
        let header = [&magic[..], &fields, &at.to_be_bytes(), &length.to_be_bytes()].concat();
        self.0.write_all(&[&header, payload].concat())
    }
    /// Reads a simple reply: error and cookie.
    fn simple(&mut self) -> (u32, u64) {
        let reply = self.take(16);
        assert_eq!(reply[..4], 0x6744_6698u32.to_be_bytes());
        (
            u32::from_be_bytes(reply[4..8].try_into().unwrap()),
            u64::from_be_bytes(reply[8..].try_into().unwrap()),
        )
    }
    fn is_closed(&mut self) -> bool {
        match self.0.read(&mut [0; 1]) {
            Ok(count) => count == 0,
            // Bytes that were sent and not read make it a reset. The time limit is an error, too.
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn what_one_client_writes_and_flushes_another_reads() {
    let server = Server::start();
    let (mut one, mut other) = (server.transmit(true), server.transmit(false));
    one.ask(0, 1, 11, 4096, 1024, &[7; 1024]);
    assert_eq!(one.simple(), (0, 11));
    one.ask(1, 6, 12, 4096, 512, &[]);
    assert_eq!(one.simple(), (0, 12));
    one.ask(0, 3, 13, 0, 0, &[]);
    assert_eq!(one.simple(), (0, 13));
    other.ask(0, 0, 14, 4096, 1024, &[]);
    assert_eq!(other.simple(), (0, 14));
    let read = other.take(1024);
    assert!(read[..512].iter().all(|byte| *byte == 0) && read[512..].iter().all(|byte| *byte == 7));
    one.ask(4, 0, 15, 4608, 512, &[]);
    let chunk = one.take(28);
    assert_eq!(chunk[..8], [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1]);
    assert_eq!(
        (&chunk[16..20], &chunk[20..28]),
        (&520u32.to_be_bytes()[..], &4608u64.to_be_bytes()[..])
    );
    assert_eq!(one.take(512), [7; 512]);
    one.ask(0, 4, 16, 4096, 4096, &[]);
    assert_eq!(one.simple(), (0, 16));
    one.ask(0, 2, 17, 0, 0, &[]);
    assert!(one.is_closed());
}

#[test]
fn requests_that_cannot_be_carried_out_get_errors_and_the_next_one_an_answer() {
    let server = Server::start();
    let mut client = server.transmit(false);
    client.ask(0, 1, 1, SIZE, 512, &[1; 512]);
    assert_eq!(client.simple(), (28, 1));
    client.ask(0, 1, 2, 100, 100, &[1; 100]);
    assert_eq!(client.simple(), (22, 2));
    client.ask(0, 0, 3, 0, u32::MAX - 511, &[]);
    assert_eq!(client.simple(), (22, 3));
    client.ask(0, 77, 4, 0, 0, &[]);
    assert_eq!(client.simple(), (22, 4));
    client.ask(0, 0, 5, 0, 512, &[]);
    assert_eq!((client.simple(), client.take(512)), ((0, 5), vec![0; 512]));
}

#[test]
fn many_requests_at_once_are_all_answered() {
    let server = Server::start();
    let mut client = server.transmit(false);
    let mut answered = Vec::new();
    // A client that reads no replies gets none of the server's memory: it would wait for itself.
    for first in [0, 100, 200, 300, 400] {
        for cookie in first..first + 100 {
            client.ask(
                (cookie % 2) as u16,
                1,
                cookie,
                cookie % 100 * 4096,
                4096,
                &[cookie as u8; 4096],
            );
        }
        for _ in 0..100 {
            let (error, cookie) = client.simple();
            assert_eq!(error, 0);
            answered.push(cookie);
        }
    }
    answered.sort_unstable();
    assert!(answered.into_iter().eq(0..500));
}

#[test]
fn who_speaks_nonsense_is_shown_out_and_others_are_served() {
    let server = Server::start();
    let mut other = server.transmit(false);
    let mut oversized = server.connect();
    oversized.say(&[b"IHAVEOPT", &7u32.to_be_bytes(), &u32::MAX.to_be_bytes()]);
    assert!(oversized.is_closed());
    let mut nonsense = server.connect();
    nonsense.say(&[&[0xff; 16]]);
    assert!(nonsense.is_closed());
    let mut bad_request = server.transmit(false);
    bad_request.say(&[&[0; 28]]);
    assert!(bad_request.is_closed());
    let mut too_long = server.transmit(true);
    too_long.ask(0, 1, 1, 0, u32::MAX, &[]);
    assert!(too_long.is_closed());
    let mut wrong_name = server.connect();
    wrong_name.option(7, &[0, 0, 0, 1, b'x', 0, 0]);
    assert_eq!(wrong_name.option_reply(7).0, 1 << 31 | 6);
    wrong_name.option(5, &[]);
    assert_eq!(wrong_name.option_reply(5).0, 1 << 31 | 2, "there is no TLS");
    wrong_name.option(7, &[0, 0, 0, 9]);
    assert_eq!(wrong_name.option_reply(7).0, 1 << 31 | 3);
    wrong_name.option(2, &[]);
    assert_eq!(wrong_name.option_reply(2).0, 1);
    other.ask(0, 3, 9, 0, 0, &[]);
    assert_eq!(other.simple(), (0, 9));
}

/// Fills the shared pool, which is small compared with the requests allowed.
#[test]
fn stalled_clients_hold_no_memory_that_others_need() {
    let server = Server::start();
    let mut stalled = Vec::new();
    for cookie in 0..8 {
        // A header and a thousand bytes.
        let mut writer = server.transmit(false);
        writer.ask(0, 1, cookie, 0, 32 << 20, &[1; 1000]);
        stalled.push(writer);
    }
    for cookie in 0..8 {
        // Replies that the client does not read.
        let mut reader = server.transmit(false);
        for _ in 0..4 {
            reader.ask(0, 0, cookie, 0, SIZE as u32, &[]);
        }
        stalled.push(reader);
    }
    std::thread::sleep(Duration::from_millis(200));
    let begun = Instant::now();
    let mut other = server.transmit(false);
    other.ask(0, 1, 1, 0, 4 << 20, &[7; 4 << 20]);
    assert_eq!(other.simple(), (0, 1));
    other.ask(0, 0, 2, 0, 4 << 20, &[]);
    assert_eq!((other.simple(), other.take(4 << 20)), ((0, 2), vec![7; 4 << 20]));
    assert!(begun.elapsed() < SILENCE_MAX, "they were cut off for their silence alone");
    drop(stalled);
}

/// Tests a slow client whose memory no other needs.
#[test]
fn a_slow_client_alone_is_served() {
    let server = Server::start();
    let mut slow = server.transmit(false);
    slow.ask(0, 1, 1, 0, 3 << 20, &[7; 1 << 20]);
    for _ in 0..2 {
        std::thread::sleep(Duration::from_secs(3));
        slow.say(&[&[7; 1 << 20]]);
    }
    assert_eq!(slow.simple(), (0, 1));
}

#[test]
fn a_socket_that_is_no_server_of_ours_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let living = UnixDatagram::bind(&path).unwrap();
    assert!(Listener::unix(&path).is_err());
    assert!(path.exists());
    drop(living);
}
