//! Forget requests, over a volume in virtual time.

use crate::common::{front_end_over_a_volume, request};
use ext4::Caller;
use fuse_session::abi::{BatchForgetIn, ForgetOne, InHeader, opcode};
use fuse_session::{FileSystem, Request};
use units::InodeNumber;
use zerocopy::IntoBytes;

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
