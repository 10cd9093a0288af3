//! Tests of `testbeds` from outside: one program, because linking each costs more than running it.

mod auto_threshold;
mod blocks;
mod file_replay;
mod interference;
mod log_gap;
mod restart;
mod stage;

use ext4::{Caller, Inode, RangeMode, Volume};
use std::rc::Rc;
use units::{FileBlock, InodeNumber};

/// Makes a file in a directory of its own, whose blocks count as written. Reading it reads the
/// disk, and an update changes little beside its block.
async fn mapped_file(volume: &Rc<Volume>, directory: &str, size: u64) -> Rc<Inode> {
    let root = volume.inode(InodeNumber(2)).await.unwrap();
    let directory =
        volume.mkdir(&root, directory.as_bytes(), &Caller::ROOT, 0o755).await.unwrap().value;
    let file = volume.mknod(&directory, b"file", &Caller::ROOT, 0o100_644, 0).await.unwrap().value;
    volume.fallocate(&file, &Caller::ROOT, RangeMode::Allocate, false, 0, size).await.unwrap();
    let (blocks, mut at) = ((size >> volume.block_size().shift()) as u32, 0);
    while at < blocks {
        let mut handle = volume.engine().start(volume.credits_map(&file)).await.unwrap();
        let marked = volume.mark_written(&mut handle, &file, FileBlock(at), blocks - at).await;
        handle.stop();
        at += marked.unwrap().max(1);
    }
    file
}
