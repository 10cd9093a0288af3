//! Target: what an NBD client sends, from its first byte on.

use device::World;
use disks::MemoryDisk;
use nbd::{Export, serve_client};
use runtime::RealWorld;
use std::io::{Write, copy, sink};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

const DISK_BYTES: u64 = 1 << 20;
/// A request to disconnect. Changes of a client that ends without one may not be begun.
const DISCONNECT: [u8; 28] = {
    let mut request = [0; 28];
    (request[0], request[1], request[2], request[3]) = (0x25, 0x60, 0x95, 0x13);
    request[7] = 2;
    request
};

/// The input as all that a client sends, and once more with a request to disconnect behind it.
pub fn run(bytes: &[u8]) {
    converse(bytes);
    converse(&[bytes, &DISCONNECT].concat());
}

fn converse(bytes: &[u8]) {
    let (mut client, server) = UnixStream::pair().expect("two sockets");
    let mut reading = client.try_clone().expect("a descriptor");
    let answers = std::thread::spawn(move || copy(&mut reading, &mut sink()));
    let sent = bytes.to_vec();
    let sending = std::thread::spawn(move || {
        // The server may have hung up.
        let _ = client.write_all(&sent);
        let _ = client.shutdown(Shutdown::Write);
    });
    let world = RealWorld::new().expect("a ring, or threads");
    let in_world: Rc<dyn World> = Rc::new(world.clone());
    let disk = Rc::new(MemoryDisk::new(in_world, DISK_BYTES));
    let export = Rc::new(Export { disk, read_only: false, rotational: false });
    // An error ends the client's connection, and that alone.
    let _ = world.run(serve_client(world.clone(), server, export));
    world.end();
    drop(world);
    sending.join().expect("the client has sent all");
    let _ = answers.join().expect("the client has heard all");
}
