//! Forget requests, over a volume in virtual time.

use crate::common::{
    Opened, front_end_over_a_disk, front_end_over_a_volume, plain_options, request,
};
use ext4::Caller;
use fuse::FrontEndOptions;
use fuse_session::abi::{BatchForgetIn, CreateIn, EntryOut, ForgetOne, InHeader, opcode};
use fuse_session::{FileSystem, Request};
use units::{FileBlock, InodeNumber};
use zerocopy::{FromBytes, IntoBytes};

/// No node: inode numbers have 32 bits.
const IMPOSSIBLE: u64 = 1 << 40;

fn batch(nodes: &[u64]) -> Request {
    let forgets: Vec<ForgetOne> =
        nodes.iter().map(|&nodeid| ForgetOne { nodeid, nlookup: 1 }).collect();
    let count = BatchForgetIn { count: nodes.len() as u32, dummy: 0 };
    let header = InHeader { opcode: opcode::BATCH_FORGET, ..Default::default() };
    request(header, &[count.as_bytes(), forgets.as_bytes()].concat())
}

#[test]
fn a_forget_that_fails_does_not_stop_the_others() {
    front_end_over_a_volume(true, |front_end, volume, _| async move {
        let free = async || volume.statfs().await.unwrap().inodes_free;
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let before = free().await;
        let mut nodes = vec![IMPOSSIBLE];
        for name in ["one", "two"] {
            let caller = Caller::ROOT;
            let made = volume.mkdir(&root, name.as_bytes(), &caller, 0o755).await.unwrap().value;
            volume.remember(&made);
            nodes.extend([made.number.get().into(), IMPOSSIBLE]);
            drop(made);
            volume.rmdir(&root, name.as_bytes()).await.unwrap();
        }
        assert_eq!(free().await, before - 2, "the kernel still refers to them");
        front_end.serve(batch(&nodes)).await;
        assert_eq!(free().await, before);
    });
}

/// The kernel sends no RELEASE once it opens files by itself.
#[test]
fn a_file_made_under_noopen_is_freed() {
    let options = FrontEndOptions { without_open: true, ..plain_options() };
    front_end_over_a_disk(options, |opened| async move {
        let Opened { front_end, volume, .. } = opened;
        let free = async || volume.statfs().await.unwrap().inodes_free;
        let before = free().await;
        let mode = libc::S_IFREG | 0o600;
        let create = CreateIn { mode, flags: libc::O_RDWR as u32, ..Default::default() };
        let ask = async |opcode, arguments: &[u8]| {
            let header = InHeader { opcode, nodeid: 1, ..Default::default() };
            let reply = front_end.clone().serve(request(header, arguments)).await;
            assert_eq!(reply.errno(), 0);
            reply.payload()
        };
        let made = ask(opcode::CREATE, &[create.as_bytes(), b"temporary\0"].concat()).await;
        let node = EntryOut::read_from_prefix(&made).unwrap().0.nodeid;
        ask(opcode::UNLINK, b"temporary\0").await;
        assert_eq!(free().await, before - 1, "it is open");
        front_end.serve(batch(&[node])).await;
        assert_eq!(free().await, before);
    });
}

/// A file that grows has blocks set aside behind its last one, until it is closed. With `noopen`
/// there is no close, and the kernel's last reference stands for it.
#[test]
fn space_set_aside_under_noopen_ends_with_the_references() {
    let options = FrontEndOptions { without_open: true, ..plain_options() };
    front_end_over_a_disk(options, |opened| async move {
        let Opened { front_end, volume, .. } = opened;
        let mut ends = Vec::new();
        for name in [&b"one\0"[..], b"two\0", b"three\0"] {
            let create = CreateIn {
                mode: libc::S_IFREG | 0o600,
                flags: libc::O_RDWR as u32,
                ..Default::default()
            };
            let header = InHeader { opcode: opcode::CREATE, nodeid: 1, ..Default::default() };
            let made = front_end
                .clone()
                .serve(request(header, &[create.as_bytes(), name].concat()))
                .await
                .payload();
            let node = EntryOut::read_from_prefix(&made).unwrap().0.nodeid;
            let inode = volume.inode(InodeNumber(node as u32)).await.unwrap();
            volume.write(&inode, &Caller::ROOT, 0, b"text", Default::default()).await.unwrap();
            let home = volume.map(&inode, FileBlock(0), 1).await.unwrap().home().unwrap();
            drop(inode);
            front_end.clone().serve(batch(&[node])).await;
            ends.push(home.get());
        }
        assert_eq!(ends, [ends[0], ends[0] + 1, ends[0] + 2], "space is left between the files");
    });
}
