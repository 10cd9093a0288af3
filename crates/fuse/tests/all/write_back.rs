//! Writes that no process waits for: the kernel writes its pages back.

use crate::common::{Opened, front_end_over_a_disk, plain_options, request};
use ext4::{Caller, SetAttributes, flags};
use fuse_session::abi::{InHeader, WriteIn, opcode, write};
use fuse_session::{FileSystem, Reply};
use runtime::{Either, race};
use zerocopy::IntoBytes;

/// Serves a write that waits for a commit, while the mode of its file changes.
async fn write_beside_chmod(opened: &Opened, write_flags: u32, mode: u16) -> Reply {
    let Opened { front_end, volume, file, .. } = opened;
    let inode = volume.inode(*file).await.unwrap();
    let header =
        InHeader { opcode: opcode::WRITE, nodeid: file.get().into(), ..Default::default() };
    let arguments = WriteIn { size: 5, write_flags, ..Default::default() };
    let message = request(header, &[arguments.as_bytes(), b"hello"].concat());
    let mut reply = Box::pin(front_end.clone().serve(message));
    let change = SetAttributes { mode: Some(mode), ..Default::default() };
    match race(&mut reply, volume.setattr(&inode, &Caller::ROOT, change)).await {
        Either::Left(_) => panic!("the write did not wait for its commit"),
        Either::Right(changed) => drop(changed.unwrap()),
    }
    reply.await
}

/// The kernel waits for a write-back while it evicts the file, and a notification would wait for
/// the eviction.
#[test]
fn a_write_back_notifies_the_kernel_of_nothing() {
    front_end_over_a_disk(plain_options(), |opened| async move {
        let inode = opened.volume.inode(opened.file).await.unwrap();
        let synchronous = opened.volume.flags(&inode) | flags::SYNC;
        opened.volume.set_flags(&inode, synchronous).await.unwrap();
        let of_process = write_beside_chmod(&opened, 0, 0o600).await;
        assert!(of_process.errno() == 0 && of_process.has_stale());
        let of_kernel = write_beside_chmod(&opened, write::CACHE, 0o640).await;
        assert!(of_kernel.errno() == 0 && !of_kernel.has_stale());
    });
}
