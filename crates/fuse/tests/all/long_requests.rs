//! Requests about many names: other tasks run during each.

use crate::common::{Opened, front_end_over_a_disk, plain_options, request};
use ext4::Caller;
use fuse_session::abi::{
    BatchForgetIn, Dirent, EntryOut, ForgetOne, InHeader, RECORD_ALIGNMENT, ReadIn, opcode,
};
use fuse_session::{FileSystem, MAX_WRITE};
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::pin;
use units::InodeNumber;
use zerocopy::{FromBytes, IntoBytes};

/// Names of one file, fewer than 65,000: each is a link.
const NAMES: usize = 40_000;
/// Bound on names, or nodes, of each step.
const NAMES_A_STEP: usize = 1024;

/// Returns the output, and the number of steps it took: other tasks run between two.
async fn in_steps<T>(work: impl Future<Output = T>) -> (T, usize) {
    let (mut work, mut steps) = (pin!(work), 0);
    let output = poll_fn(|context| {
        steps += 1;
        work.as_mut().poll(context)
    });
    (output.await, steps)
}

/// Returns the names of a reply to READDIR or READDIRPLUS, and the cookie of the last one.
fn names_in(mut payload: &[u8], plus: bool) -> (Vec<Vec<u8>>, u64) {
    let (mut names, mut cookie) = (Vec::new(), 0);
    while !payload.is_empty() {
        if plus {
            payload = &payload[size_of::<EntryOut>()..];
        }
        let (entry, rest) = Dirent::read_from_prefix(payload).unwrap();
        names.push(rest[..entry.namelen as usize].to_vec());
        cookie = entry.off;
        let length = size_of::<Dirent>() + entry.namelen as usize;
        payload = &payload[length.next_multiple_of(RECORD_ALIGNMENT)..];
    }
    (names, cookie)
}

/// A program chooses how much it asks for at once. Nothing is read from the disk for it.
#[test]
fn a_listing_of_many_names_yields() {
    front_end_over_a_disk(plain_options(), |opened| async move {
        let Opened { front_end, volume, file, .. } = opened;
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let directory =
            volume.mkdir(&root, b"directory", &Caller::ROOT, 0o755).await.unwrap().value;
        let file = volume.inode(file).await.unwrap();
        for number in 0..NAMES {
            let name = format!("name {number}");
            volume.link(&file, &directory, name.as_bytes(), &Caller::ROOT).await.unwrap();
        }
        for (opcode, plus) in [(opcode::READDIR, false), (opcode::READDIRPLUS, true)].repeat(2) {
            let (mut all, mut offset) = (BTreeSet::new(), 0);
            loop {
                let nodeid = directory.number.get().into();
                let header = InHeader { opcode, nodeid, ..Default::default() };
                let arguments = ReadIn { offset, size: MAX_WRITE, ..Default::default() };
                let serve = front_end.clone().serve(request(header, arguments.as_bytes()));
                let (reply, steps) = in_steps(serve).await;
                assert_eq!(reply.errno(), 0);
                let (names, last) = names_in(&reply.payload(), plus);
                let count = names.len();
                assert!(count <= steps * NAMES_A_STEP, "{plus}: {count} names, {steps} steps");
                if names.is_empty() {
                    break;
                }
                offset = last;
                for name in names {
                    assert!(all.insert(name), "listed twice");
                }
            }
            assert_eq!(all.len(), NAMES + 2);
        }
    });
}

/// The kernel sends as many when memory is short.
#[test]
fn a_forget_of_many_nodes_yields() {
    front_end_over_a_disk(plain_options(), |opened| async move {
        let Opened { front_end, .. } = opened;
        let count = BatchForgetIn { count: NAMES as u32, dummy: 0 };
        let forgets: Vec<ForgetOne> =
            (0..NAMES).map(|node| ForgetOne { nodeid: 1000 + node as u64, nlookup: 1 }).collect();
        let header = InHeader { opcode: opcode::BATCH_FORGET, ..Default::default() };
        let body = [count.as_bytes(), forgets.as_bytes()].concat();
        let ((), steps) =
            in_steps(async { drop(front_end.serve(request(header, &body)).await) }).await;
        assert!(steps * NAMES_A_STEP >= NAMES, "{steps} steps");
    });
}
