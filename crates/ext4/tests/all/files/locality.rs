//! Placement of the content of files.

use crate::files::image::{EXT3, EXT4, EXT4_1K, Kind, TestImage, with_volume};
use ext4::{Caller, Inode, MappingState, Volume, WriteFlags};
use std::rc::Rc;
use units::FileBlock;

async fn append(volume: &Rc<Volume>, inode: &Rc<Inode>, bytes: &[u8]) {
    let flags = WriteFlags { append: true, ..WriteFlags::default() };
    let written = volume.write(inode, &Caller::ROOT, 0, bytes, flags).await.unwrap();
    assert_eq!(written.count, bytes.len());
}

/// Runs of blocks that lie together: what filefrag counts.
async fn runs(volume: &Rc<Volume>, inode: &Rc<Inode>) -> usize {
    let listed =
        volume.extents(inode, FileBlock(0), FileBlock(u32::MAX), usize::MAX).await.unwrap();
    let (mut count, mut end) = (0, None);
    for mapping in listed {
        let MappingState::Written(start) = mapping.state else { continue };
        count += usize::from(end != Some(start));
        end = Some(start.plus(mapping.count.into()));
    }
    count
}

/// `files` files grow alternately, `bytes` at a time, to `size` bytes each. None has more than
/// `most` runs, and all together not more than `sum`.
fn appended_in_turn(kind: Kind, files: usize, size: usize, bytes: usize, most: usize, sum: usize) {
    let image = TestImage::of_files(kind, "300M", files);
    with_volume(&image, 1, move |volume, inodes| async move {
        inodes.iter().for_each(|inode| volume.opened(inode));
        for _ in 0..size / bytes {
            for inode in &inodes {
                append(&volume, inode, &vec![7; bytes]).await;
            }
        }
        let mut counts = Vec::new();
        for inode in &inodes {
            counts.push(runs(&volume, inode).await);
            volume.closed(inode.number).await.unwrap();
        }
        let (longest, total) = (*counts.iter().max().unwrap(), counts.iter().sum::<usize>());
        let what = format!("{}, {files} files of {size} bytes", kind.name);
        assert!(
            longest <= most && total <= sum,
            "{what}: {total} runs, at most {longest} in one file"
        );
    });
}

#[test]
fn a_thousand_files_appended_in_turn_are_not_interleaved() {
    appended_in_turn(EXT4, 1000, 60 << 10, 3 << 10, 1, 1000);
    appended_in_turn(EXT4_1K, 1000, 60 << 10, 3 << 10, 1, 1000);
}

#[test]
fn files_that_grow_in_turn_get_longer_and_longer_runs() {
    for kind in [EXT4, EXT4_1K, EXT3] {
        appended_in_turn(kind, 100, 1 << 20, 16 << 10, 4, 350);
    }
}

#[test]
fn a_file_written_in_one_go_is_contiguous() {
    for kind in [EXT4, EXT4_1K] {
        let image = TestImage::of_files(kind, "300M", 1);
        with_volume(&image, 1, move |volume, inodes| async move {
            for _ in 0..128 {
                append(&volume, &inodes[0], &vec![7; 1 << 20]).await;
            }
            let runs = runs(&volume, &inodes[0]).await;
            // Groups of 1 KiB blocks have 8 MiB each; some begin with a copy of the superblock.
            let most = if kind.block == 1024 { 8 } else { 2 };
            assert!(runs <= most, "{}: {runs} runs", kind.name);
        });
    }
}
