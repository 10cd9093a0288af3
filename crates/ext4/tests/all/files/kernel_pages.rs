//! Pages that the kernel writes back beside writes that went past its cache.

use crate::files::image::{EXT4, TestImage, open, with_volume, with_volume_in};
use device::Operation;
use disks::Fault;
use engine::DataMode;
use ext4::{
    Caller, Inode, KillPrivileges, RangeMode, SeekWhat, SetAttributes, SetTime, SyncWhat, Volume,
    WriteFlags, WriteOrigin,
};
use std::rc::Rc;
use units::Refusal;
use units::Timestamp;

const PAST: WriteFlags = WriteFlags {
    append: false,
    kill_privileges: KillPrivileges::No,
    origin: WriteOrigin::PastCache,
};
const BACK: WriteFlags = WriteFlags { origin: WriteOrigin::WriteBack, ..PAST };
const THROUGH: WriteFlags = WriteFlags { origin: WriteOrigin::ThroughCache, ..PAST };

/// Runs `script` with an empty file.
fn with_file(script: impl AsyncFnOnce(Rc<Volume>, &Rc<Inode>, &Caller) + 'static) {
    let image = TestImage::of_files(EXT4, "16M", 1);
    with_volume(&image, 1, |volume, inodes| async move {
        script(volume, &inodes[0], &Caller::ROOT).await;
    });
}

#[test]
fn an_older_page_written_back_takes_no_newer_bytes_away() {
    with_file(async |volume, file, root| {
        volume.write(file, root, 0, &[1; 8192], THROUGH).await.unwrap();
        let mut page = volume.read_for_cache(file, 0, 4096).await.unwrap().to_vec();
        volume.write(file, root, 100, &[2; 50], PAST).await.unwrap();
        volume.write(file, root, 4000, &[2; 200], PAST).await.unwrap();
        // Changed through the mapping, beside the writes.
        page[200..300].fill(3);
        let written = volume.write(file, root, 0, &page, BACK).await.unwrap();
        assert_eq!(written.count, page.len());
        let mut wanted = vec![1; 8192];
        wanted[100..150].fill(2);
        wanted[200..300].fill(3);
        wanted[4000..4200].fill(2);
        assert!(volume.read(file, 0, 8192).await.unwrap().to_vec() == wanted);
        // Read anew, the page is as new as the file, and the mapping may change what it likes.
        volume.read_for_cache(file, 0, 4096).await.unwrap();
        volume.write(file, root, 0, &[4; 4096], BACK).await.unwrap();
        wanted[..4096].fill(4);
        assert!(volume.read(file, 0, 8192).await.unwrap().to_vec() == wanted);
    });
}

#[test]
fn pages_that_a_write_filled_take_no_newer_bytes_away() {
    with_file(async |volume, file, root| {
        // A whole page that is written is in the kernel's cache without any read.
        let mut page = vec![1; 4096];
        volume.write(file, root, 0, &page, THROUGH).await.unwrap();
        volume.write(file, root, 100, &[2; 50], PAST).await.unwrap();
        page[200..300].fill(3);
        volume.write(file, root, 0, &page, BACK).await.unwrap();
        page[100..150].fill(2);
        assert!(volume.read(file, 0, 4096).await.unwrap().to_vec() == page);
        // Bytes that the cache gets as well may be changed there.
        volume.write(file, root, 100, &[4; 50], THROUGH).await.unwrap();
        volume.write(file, root, 0, &[5; 4096], BACK).await.unwrap();
        assert!(volume.read(file, 0, 4096).await.unwrap().to_vec() == [5; 4096]);
    });
}

#[test]
fn an_older_page_written_back_fills_no_hole() {
    for mode in [RangeMode::PunchHole, RangeMode::Zero] {
        let image = TestImage::of_files(EXT4, "16M", 1);
        with_volume(&image, 1, move |volume, inodes| async move {
            let (file, root) = (&inodes[0], &Caller::ROOT);
            volume.set_kernel_page(4096);
            let mut old = vec![1; 4 * 4096];
            volume.write(file, root, 0, &old, THROUGH).await.unwrap();
            let hole = 1000..3 * 4096;
            let length = hole.end - hole.start;
            volume.fallocate(file, root, mode, true, hole.start, length).await.unwrap();
            // Pages that a mapping changed while the call was in flight.
            old[500] = 3;
            old[5000] = 3;
            volume.write(file, root, 0, &old, BACK).await.unwrap();
            let mut wanted = old.clone();
            wanted[1000..3 * 4096].fill(0);
            assert!(volume.read(file, 0, 4 * 4096).await.unwrap().to_vec() == wanted, "{mode:?}");
            // The kernel has zeroed its first page in part and dropped the others; it reads them
            // anew before they are changed.
            volume.zeros_settled(file, hole, true).await;
            volume.read_for_cache(file, 4096, 8192).await.unwrap();
            wanted[..3 * 4096].fill(4);
            volume.write(file, root, 0, &[4; 3 * 4096], BACK).await.unwrap();
            assert!(volume.read(file, 0, 4 * 4096).await.unwrap().to_vec() == wanted, "{mode:?}");
        });
    }
}

#[test]
fn pages_behind_a_failed_fallocate_may_be_changed() {
    with_file(async |volume, file, root| {
        volume.set_kernel_page(4096);
        volume.write(file, root, 0, &[1; 8192], THROUGH).await.unwrap();
        // Refused: a hole changes no size.
        let refused = volume.fallocate(file, root, RangeMode::PunchHole, false, 0, 8192).await;
        assert_eq!(refused.unwrap_err().refusal(), Some(Refusal::Unsupported));
        volume.write(file, root, 0, &[2; 8192], BACK).await.unwrap();
        assert!(volume.read(file, 0, 8192).await.unwrap().to_vec() == [2; 8192]);
        // Done, and reported as failed, since it could not be made durable.
        volume.fallocate(file, root, RangeMode::PunchHole, true, 100, 8092).await.unwrap();
        volume.zeros_settled(file, 100..8192, false).await;
        volume.write(file, root, 0, &[3; 8192], BACK).await.unwrap();
        assert!(volume.read(file, 0, 8192).await.unwrap().to_vec() == [3; 8192]);
    });
}

#[test]
fn of_a_page_written_back_only_what_changed_is_logged() {
    let image = TestImage::of_files(EXT4, "16M", 1);
    with_volume_in(DataMode::Wasteless, &image, 1, |volume, inodes| async move {
        let (file, root) = (&inodes[0], &Caller::ROOT);
        let mut pages = vec![1; 8192];
        volume.write(file, root, 0, &pages, THROUGH).await.unwrap();
        volume.sync_file(file, SyncWhat::All).await.unwrap();
        let before = volume.engine().statistics().payload_bytes;
        pages[5000..5010].fill(2);
        let written = volume.write(file, root, 0, &pages, BACK).await.unwrap();
        volume.sync_file(file, SyncWhat::All).await.unwrap();
        let logged = volume.engine().statistics().payload_bytes - before;
        assert!(written.count == 8192 && (10..=128).contains(&logged), "{logged} bytes");
        assert!(volume.read(file, 0, 8192).await.unwrap().to_vec() == pages);
    });
}

#[test]
fn long_reads_for_the_kernels_cache_are_cached_once_and_miss_no_change() {
    let image = TestImage::of_files(EXT4, "16M", 1);
    // A hole lies between two runs.
    let content = || {
        let mut content: Vec<u8> = (0..2 << 20).map(|at: u32| (at >> 10) as u8).collect();
        content[1 << 20..3 << 19].fill(0);
        content
    };
    with_volume(&image, 1, move |volume, inodes| async move {
        let (file, root, content) = (&inodes[0], &Caller::ROOT, content());
        volume.write(file, root, 0, &content[..1 << 20], PAST).await.unwrap();
        volume.write(file, root, 3 << 19, &content[3 << 19..], PAST).await.unwrap();
    });
    with_volume_in(DataMode::Selective, &image, 1, move |volume, inodes| async move {
        let (file, root, mut wanted) = (&inodes[0], &Caller::ROOT, content());
        assert!(wanted == volume.read_for_cache(file, 0, 2 << 20).await.unwrap().to_vec());
        let before = volume.engine().statistics();
        assert!(wanted == volume.read_for_cache(file, 0, 2 << 20).await.unwrap().to_vec());
        let after = volume.engine().statistics();
        assert_eq!(after.cache.blocks, before.cache.blocks);
        assert!(after.home_reads - before.home_reads <= 4, "{after:?}");
        for (at, length) in [(0, 10), (70_000, 5), (500_000, 100_000), ((2 << 20) - 3, 3)] {
            volume.write(file, root, at as u64, &vec![9; length], PAST).await.unwrap();
            wanted[at..at + length].fill(9);
            let found = volume.read_for_cache(file, 0, 2 << 20).await.unwrap().to_vec();
            assert!(found == wanted, "after {length} bytes at {at}");
        }
    });
}

#[test]
fn what_the_cache_got_as_well_may_be_changed_there() {
    with_file(async |volume, file, root| {
        volume.write(file, root, 0, &[1; 4096], THROUGH).await.unwrap();
        volume.read_for_cache(file, 0, 4096).await.unwrap();
        volume.write(file, root, 0, &[2; 100], PAST).await.unwrap();
        volume.write(file, root, 0, &[3; 50], THROUGH).await.unwrap();
        volume.write(file, root, 0, &[4; 4096], BACK).await.unwrap();
        let found = volume.read(file, 0, 4096).await.unwrap().to_vec();
        assert!(found[..50] == [4; 50] && found[50..100] == [2; 50] && found[100..] == [4; 3996]);
    });
}

#[test]
fn holes_shown_to_the_kernel_count_as_data_while_they_may_be_changed() {
    let image = TestImage::of_files(EXT4, "16M", 1);
    with_volume(&image, 1, |volume, inodes| async move {
        let file = &inodes[0];
        volume.truncate(file, 100_000).await.unwrap();
        volume.read_for_cache(file, 8192, 4096).await.unwrap();
        let refused = volume.seek(file, 0, SeekWhat::Data).await.unwrap_err();
        assert_eq!(refused.refusal(), Some(Refusal::BeyondEnd));
        file.pages.mappable_opened();
        assert_eq!(volume.seek(file, 0, SeekWhat::Data).await.unwrap(), 8192);
        assert_eq!(volume.seek(file, 8192, SeekWhat::Hole).await.unwrap(), 12288);
        assert_eq!(volume.seek(file, 0, SeekWhat::Hole).await.unwrap(), 0);
        file.pages.mappable_closed();
        assert!(volume.seek(file, 0, SeekWhat::Data).await.is_err());
    });
}

#[test]
fn a_time_that_was_set_outlives_pages_changed_before() {
    with_file(async |volume, file, root| {
        let then = Timestamp { seconds: 5, nanoseconds: 0 };
        let set = SetAttributes { modified: Some(SetTime::At(then)), ..Default::default() };
        volume.write(file, root, 0, &[1; 4096], THROUGH).await.unwrap();
        file.pages.mappable_opened();
        volume.setattr(file, root, set).await.unwrap();
        volume.write(file, root, 0, &[2; 4096], BACK).await.unwrap();
        assert_eq!(volume.getattr(file).modified, then);
        volume.sync_file(file, SyncWhat::Data).await.unwrap();
        volume.write(file, root, 0, &[3; 4096], BACK).await.unwrap();
        assert!(volume.getattr(file).modified > then, "changed after fsync");
        volume.setattr(file, root, set).await.unwrap();
        volume.write(file, root, 0, &[4; 4096], THROUGH).await.unwrap();
        assert!(volume.getattr(file).modified > then, "written");
    });
}

#[test]
fn holes_beside_the_end_of_content_stay_holes() {
    with_file(async |volume, file, root| {
        volume.set_kernel_page(4096);
        file.pages.mappable_opened();
        volume.write(file, root, 200 << 10, &[1; 4096], THROUGH).await.unwrap();
        volume.truncate(file, 1 << 20).await.unwrap();
        let runs = |at| {
            let volume = volume.clone();
            async move {
                let data = volume.seek(file, at, SeekWhat::Data).await.unwrap();
                data..volume.seek(file, data, SeekWhat::Hole).await.unwrap()
            }
        };
        assert_eq!(runs(0).await, 200 << 10..204 << 10);
        // The kernel put zeros into the rest of the page, and may have let them be changed.
        let block = volume.block_size().bytes() as u64;
        volume.truncate(file, (200 << 10) + block).await.unwrap();
        volume.truncate(file, 1 << 20).await.unwrap();
        assert_eq!(runs(0).await, 200 << 10..204 << 10);
        file.pages.mappable_closed();
        assert_eq!(runs(0).await, 200 << 10..(200 << 10) + block);
    });
}

#[test]
fn bytes_stored_behind_the_end_are_no_content() {
    with_file(async |volume, file, root| {
        volume.set_kernel_page(4096);
        file.pages.mappable_opened();
        volume.write(file, root, 0, &[1; 100], THROUGH).await.unwrap();
        volume.read_for_cache(file, 0, 4096).await.unwrap();
        // The mapping has changed the whole page when the file is made longer.
        volume.truncate(file, 8192).await.unwrap();
        volume.write(file, root, 0, &[7; 4096], BACK).await.unwrap();
        let mut wanted = vec![7; 100];
        wanted.resize(8192, 0);
        assert!(volume.read(file, 0, 8192).await.unwrap().to_vec() == wanted);
        // What it changes after it has read the page anew is content.
        volume.read_for_cache(file, 0, 4096).await.unwrap();
        volume.write(file, root, 0, &[8; 4096], BACK).await.unwrap();
        wanted[..4096].fill(8);
        assert!(volume.read(file, 0, 8192).await.unwrap().to_vec() == wanted);
    });
}

#[test]
fn pages_read_before_the_last_close_are_remembered() {
    with_file(async |volume, file, root| {
        volume.opened(file);
        volume.write(file, root, 0, &[1; 4096], THROUGH).await.unwrap();
        volume.read_for_cache(file, 0, 4096).await.unwrap();
        volume.closed(file.number).await.unwrap();
        volume.opened(file);
        volume.write(file, root, 0, &[2; 50], PAST).await.unwrap();
        // The page that the kernel kept, changed through a mapping beside the write.
        let mut page = vec![1; 4096];
        page[100] = 3;
        volume.write(file, root, 0, &page, BACK).await.unwrap();
        let found = volume.read(file, 0, 4096).await.unwrap().to_vec();
        assert!(found[..50] == [2; 50] && found[100] == 3, "the synchronous write is kept");
    });
}

/// The first block is written, and of the second the bytes behind the file's end would have to be
/// read.
#[test]
fn a_block_that_cannot_be_read_is_no_lack_of_space() {
    let image = TestImage::of_files(EXT4, "16M", 1);
    with_volume(&image, 1, |volume, inodes| async move {
        volume.write(&inodes[0], &Caller::ROOT, 0, &[1; 8192], THROUGH).await.unwrap();
    });
    let number = image.inode(0);
    image.in_world(1, async move |world, disk| {
        let volume = open(&world, &disk).await.unwrap();
        let file = volume.inode(number).await.unwrap();
        disk.inject(Fault::forever(Operation::Read));
        let failed = volume.write(&file, &Caller::ROOT, 0, &[2; 6000], BACK).await.unwrap_err();
        disk.heal();
        assert_eq!(failed.refusal(), None, "{failed}");
        volume.close().await.unwrap();
    });
}
