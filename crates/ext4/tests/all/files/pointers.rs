//! Pointer blocks that hold only zeros: the kernel leaves them where it punches holes, and where a
//! crash interrupts its truncate.

use crate::files::image::{EXT3, EXT3_1K, TestImage, with_volume};
use ext4::{Caller, Inode, RangeMode, Volume};
use std::process::Command;
use std::rc::Rc;
use units::InodeNumber;

const ROOT: InodeNumber = InodeNumber(2);
/// Blocks of the file: the direct ones, those of the first pointer block, and of two more.
const BLOCKS: u64 = 12 + 3 * 256;

/// Makes a file of [`BLOCKS`] blocks, with zeros in the pointer blocks that `emptied` counts, in
/// the order of the file.
fn with_zeros(emptied: &[usize]) -> TestImage {
    let image = TestImage::of_files(EXT3_1K, "16M", 1);
    with_volume(&image, 1, |volume, files| async move {
        let bytes = vec![1; BLOCKS as usize * 1024];
        volume.write(&files[0], &Caller::ROOT, 0, &bytes, Default::default()).await.unwrap();
    });
    let text = image.debugfs("stat f0");
    let pointers: Vec<u64> = text
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("(IND):").or(word.strip_prefix("(DIND):")))
        .map(|block| block.trim_end_matches(',').parse().unwrap())
        .collect();
    assert_eq!(pointers.len(), 4, "{text}");
    for index in emptied {
        image.debugfs_write(&format!("zap_block -p 0 {}", pointers[*index]));
    }
    // It frees what the pointers led to.
    let fixed = Command::new("e2fsck").args(["-fy"]).arg(image.path()).output().unwrap();
    assert_eq!(fixed.status.code(), Some(1), "{fixed:?}");
    image.check_as("made for a test");
    image
}

async fn content(volume: &Rc<Volume>, file: &Rc<Inode>) -> Vec<u8> {
    volume.read(file, 0, BLOCKS as usize * 1024).await.unwrap().to_vec()
}

async fn unlink(volume: &Rc<Volume>) {
    volume.unlink(&volume.inode(ROOT).await.unwrap(), b"f0").await.unwrap();
}

#[test]
fn pointer_blocks_of_zeros_are_freed_with_the_rest() {
    // The only block of a level, one of two, all leaves, and the block above them.
    for emptied in [&[0][..], &[2], &[3], &[0, 2, 3], &[0, 1]] {
        let image = with_zeros(emptied);
        let made = image.bytes();
        // The range that is cut out, in blocks; none: the file.
        let cuts = [(0, BLOCKS), (5, BLOCKS), (20, BLOCKS), (300, BLOCKS), (600, BLOCKS)];
        let holes = [(0, BLOCKS), (12, 12 + 256), (20, 30), (200, 300), (270, 600), (779, 780)];
        let holes = holes.map(|hole| (hole, true));
        let changes = cuts.map(|cut| (cut, false)).into_iter().chain(holes).map(Some);
        for change in changes.chain([None]) {
            println!("pointer blocks {emptied:?}, {change:?}");
            std::fs::write(image.path(), &made).unwrap();
            with_volume(&image, 1, move |volume, files| async move {
                let file = &files[0];
                let mut expected = content(&volume, file).await;
                let Some(((from, to), is_hole)) = change else {
                    return unlink(&volume).await;
                };
                let (at, end) = (from * 1024, to * 1024);
                if is_hole {
                    let (mode, length) = (RangeMode::PunchHole, end - at);
                    volume.fallocate(file, &Caller::ROOT, mode, true, at, length).await.unwrap();
                    expected[at as usize..end as usize].fill(0);
                } else {
                    volume.truncate(file, at).await.unwrap();
                    expected.truncate(at as usize);
                }
                assert!(content(&volume, file).await == expected);
                if (from, to) == (0, BLOCKS) {
                    assert_eq!(volume.getattr(file).sectors, 0);
                }
            });
        }
    }
}

#[test]
fn files_that_the_kernel_has_punched_are_freed_whole() {
    let image = TestImage::of_files(EXT3, "16M", 1);
    image.with_kernel(
        "head -c 81920 /dev/zero | tr '\\0' x >f0; sync f0; fallocate -p -o 48K -l 32K f0",
    );
    let text = image.debugfs("stat f0");
    assert!(text.contains("(IND)"), "the kernel has freed it: {text}");
    with_volume(&image, 1, |volume, _| async move { unlink(&volume).await });
}
