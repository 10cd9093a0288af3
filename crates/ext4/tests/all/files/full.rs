//! Preallocated space of a volume that is full.

use crate::files::image::{EXT4, EXT4_1K, Kind, TestImage, with_volume};
use crate::image::ROOT;
use ext4::{Caller, Inode, RangeMode, SyncWhat, Volume, WriteFlags};
use std::rc::Rc;
use units::Refusal;

/// Blocks that are allocated before the volume is full.
const BLOCKS: u64 = 100;

/// Writes to `file` until nothing is left for root either.
async fn fill(volume: &Rc<Volume>, file: &Rc<Inode>) {
    let mut at = 0;
    loop {
        let flags = WriteFlags::default();
        match volume.write(file, &Caller::ROOT, at, &[1; 1 << 16], flags).await {
            Ok(written) => at += written.count as u64,
            Err(error) => return assert_eq!(error.refusal(), Some(Refusal::NoSpace), "{error}"),
        }
    }
}

async fn write(volume: &Rc<Volume>, file: &Rc<Inode>, at: u64, what: &str) {
    let written = volume.write(file, &Caller::ROOT, at, &[9; 1024], WriteFlags::default()).await;
    assert_eq!(written.expect(what).count, 1024, "{what}");
    volume.sync_file(file, SyncWhat::All).await.expect(what);
}

async fn allocate(
    volume: &Rc<Volume>,
    file: &Rc<Inode>,
    mode: RangeMode,
    at: u64,
    length: u64,
) -> ext4::Result<()> {
    volume.fallocate(file, &Caller::ROOT, mode, true, at, length).await.map(drop)
}

/// Allocated space can be written to and freed, although both may split extents.
#[test]
fn preallocated_space_of_a_full_volume_is_usable() {
    for Kind { name, arguments, block, .. } in [EXT4_1K, EXT4] {
        let image = TestImage::filled(&[arguments, &["-m", "0"]].concat(), "24M", |source| {
            ["f0", "f1"].iter().for_each(|file| std::fs::write(source.join(file), b"").unwrap());
        });
        with_volume(&image, 2, move |volume, files| async move {
            let (file, filler) = (&files[0], &files[1]);
            allocate(&volume, file, RangeMode::Allocate, 0, BLOCKS * block).await.unwrap();
            fill(&volume, filler).await;
            let root = volume.inode(ROOT).await.unwrap();
            let refused = volume.mkdir(&root, b"directory", &Caller::ROOT, 0o755).await;
            assert_eq!(refused.err().unwrap().refusal(), Some(Refusal::NoSpace), "{name}");
            assert_eq!(volume.statfs().await.unwrap().blocks_available, 0, "{name}");
            for at in (1..BLOCKS / 2).step_by(2) {
                write(&volume, file, at * block, &format!("{name}: block {at}")).await;
            }
            for at in (1 + BLOCKS / 2..BLOCKS).step_by(2) {
                let punched = allocate(&volume, file, RangeMode::PunchHole, at * block, block);
                punched.await.unwrap_or_else(|error| panic!("{name}: hole at {at}: {error}"));
            }
        });
    }
}
