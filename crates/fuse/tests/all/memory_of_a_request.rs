//! Memory of a request while it waits.

use crate::common::{front_end_over_a_volume, request};
use fuse_session::FileSystem;
use fuse_session::abi::{FsyncIn, InHeader, WriteIn, opcode};
use zerocopy::IntoBytes;

/// Bytes. Everything held by the requests that wait for one commit should fit into a processor's
/// cache. With 9,000 bytes for each request, a thousand writers had two thirds of the syncs.
const LIMIT: usize = 2048;

#[test]
fn a_synchronous_write_and_an_fsync_take_little_memory_while_they_wait() {
    front_end_over_a_volume(true, |front_end, _, file| async move {
        let header = |opcode| InHeader { opcode, nodeid: file.get().into(), ..Default::default() };
        let flags = (libc::O_WRONLY | libc::O_SYNC) as u32;
        let write = WriteIn { size: 5, flags, ..Default::default() };
        let write = request(header(opcode::WRITE), &[write.as_bytes(), b"hello"].concat());
        let fsync = request(header(opcode::FSYNC), FsyncIn::default().as_bytes());
        for request in [write, fsync] {
            let reply = front_end.clone().serve(request);
            let held = size_of_val(&reply);
            assert_eq!(reply.await.errno(), 0);
            assert!(held <= LIMIT, "{held} bytes");
        }
    });
}
