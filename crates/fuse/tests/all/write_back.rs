//! Writes that no process waits for: the kernel writes its pages back.

use crate::common::{Opened, front_end_over_a_disk, plain_options, request};
use ext4::{Caller, SetAttributes, flags};
use fuse_session::abi::{FallocateIn, InHeader, WriteIn, opcode, write};
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

/// The kernel zeros its own pages only behind the answer, which may wait for a commit.
#[test]
fn a_hole_is_protected_until_it_is_answered() {
    front_end_over_a_disk(plain_options(), |opened| async move {
        let Opened { front_end, volume, file, .. } = &opened;
        let inode = volume.inode(*file).await.unwrap();
        let nodeid = file.get().into();
        let page = fuse_session::page_bytes() as usize;
        let write = |write_flags, content: &[u8]| {
            let header = InHeader { opcode: opcode::WRITE, nodeid, ..Default::default() };
            let size = content.len() as u32;
            let arguments = WriteIn { size, write_flags, ..Default::default() };
            front_end.clone().serve(request(header, &[arguments.as_bytes(), content].concat()))
        };
        let mut content = vec![1; 2 * page];
        assert_eq!(write(0, &content).await.errno(), 0);
        let header = InHeader { opcode: opcode::FALLOCATE, nodeid, ..Default::default() };
        let punch = FallocateIn {
            fh: (libc::O_RDWR | libc::O_DSYNC) as u64,
            offset: 1000,
            length: 2 * page as u64 - 1000,
            mode: (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32,
            ..Default::default()
        };
        let mut punched = Box::pin(front_end.clone().serve(request(header, punch.as_bytes())));
        // The whole page and the one at the edge, as they were before.
        content[500] = 3;
        match race(&mut punched, write(write::CACHE, &content)).await {
            Either::Left(_) => panic!("the hole did not wait for its commit"),
            Either::Right(written) => assert_eq!(written.errno(), 0),
        }
        assert_eq!(punched.await.errno(), 0);
        content[1000..].fill(0);
        assert!(volume.read(&inode, 0, 2 * page).await.unwrap().to_vec() == content);
        // The kernel has zeroed its page at the edge, and what is stored there now is content.
        assert_eq!(write(write::CACHE, &vec![4; page]).await.errno(), 0);
        content[..page].fill(4);
        assert!(volume.read(&inode, 0, 2 * page).await.unwrap().to_vec() == content);
    });
}
