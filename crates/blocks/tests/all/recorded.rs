//! Errors that the journal records: they stay until somebody says that the file system above was
//! checked, since that knows nothing of them.

use crate::common::{Images, Life, Making, make, open, options, write};
use blocks::{BlocksError, GroupBytes, Persistence};
use device::{Disk, Operation};
use disks::{CrashPolicy, Fault};
use engine::{DataMode, ERRNO_DAMAGED, EngineError, EngineOptions, LogKind};
use std::time::Duration;

const EIO: i32 = -5;

fn makings() -> [(Making, LogKind); 3] {
    let groups = Some(GroupBytes { log: 512 << 10, group: 1536 << 10 });
    [
        (Making::default(), LogKind::Circular),
        (Making { journal_disk: Some(6 << 20), ..Making::default() }, LogKind::Circular),
        (Making { groups, ..Making::default() }, LogKind::Scattered),
    ]
}

fn logging(log: LogKind) -> EngineOptions {
    let never = Duration::from_secs(100_000);
    let (data, commit, expire) = (DataMode::Wasteless, never, never);
    EngineOptions { data, log, commit, expire, writeback: never, ..options() }
}

/// Writes a block, and closes the volume. Returns the error that was recorded when it was opened.
fn live(images: &Images, options: &EngineOptions) -> (i32, Images) {
    let life = Life::new(2, images);
    life.on_volume(options, async move |volume| {
        write(&volume, 8192, 3, 4096).await;
        volume.flush().await.expect("a flush");
        volume.close().await.expect("a close");
        volume.report().recovery.recorded_error
    })
}

/// Asserts that the error is reported by every later opening and check, until it is cleared.
fn expect_recorded(images: Images, options: &EngineOptions, error: i32) {
    let mut images = images;
    for life in 0..3 {
        let found;
        (found, images) = live(&images, options);
        assert_eq!(found, error, "life {life}");
    }
    let life = Life::new(3, &images);
    let parts = life.parts(options, Persistence::WriteBack);
    let images = life
        .play(async move {
            let dry = blocks::recover(&parts, true).await.expect("a dry run");
            assert_eq!(dry.recorded_error, error);
            blocks::recover(&parts, false).await.expect("an empty log");
            blocks::clear_recorded_error(&parts).await.expect("a superblock to write");
            let dry = blocks::recover(&parts, true).await.expect("a dry run");
            assert_eq!(dry.recorded_error, 0);
        })
        .1;
    let (found, images) = live(&images, options);
    assert_eq!((found, live(&images, options).0), (0, 0));
}

/// Lives until a flush fails.
fn fail_a_flush(images: &Images, options: &EngineOptions) -> Images {
    let life = Life::new(1, images);
    life.disks.iter().for_each(|disk| disk.hide_forced_unit_access());
    let parts = life.parts(options, Persistence::WriteBack);
    let disks = life.disks.clone();
    let script = async move {
        let volume = open(parts).await;
        write(&volume, 0, 1, 4096).await;
        volume.flush().await.expect("a flush");
        disks.iter().for_each(|disk| disk.inject(Fault::once(Operation::Flush)));
        write(&volume, 4096, 2, 4096).await;
        volume.flush().await.expect_err("a flush that fails");
        let _ = volume.close().await;
    };
    life.play(script).1
}

#[test]
fn a_failed_flush_is_reported_until_it_is_cleared() {
    for (making, log) in makings() {
        let (images, options) = (make(&making).expect("a volume"), logging(log));
        expect_recorded(fail_a_flush(&images, &options), &options, EIO);
    }
}

#[test]
fn a_recovery_that_gave_up_is_reported_until_it_is_cleared() {
    for (making, log) in makings().into_iter().filter(|(_, log)| *log == LogKind::Circular) {
        let (images, options) = (make(&making).expect("a volume"), logging(log));
        let life = Life::new(1, &images);
        let parts = life.parts(&options, Persistence::WriteBack);
        let (_, mut images) = life.run(CrashPolicy::LoseAll, async move {
            let volume = open(parts).await;
            for block in 0..20u64 {
                write(&volume, block * 4096, block as u8 + 1, 4096).await;
                volume.flush().await.expect("a flush");
            }
        });
        // The journal begins after the first mebibyte, its log after a block.
        let journal = images.last_mut().expect("a disk");
        journal.write((1 << 20) + 4096 + 3 * 512, &[0x5a; 4096]);
        let life = Life::new(1, &images);
        let parts = life.parts(&options, Persistence::WriteBack);
        let (given_up, images) = life.play(async move {
            let refused = blocks::recover(&parts, false).await;
            assert!(matches!(refused, Err(BlocksError::Engine(_))), "{refused:?}");
            let cleared = blocks::clear_recorded_error(&parts).await;
            let is_refused =
                matches!(cleared, Err(BlocksError::Engine(EngineError::NeedsRecovery)));
            assert!(is_refused, "{cleared:?}");
            let until = EngineOptions { until_damage: true, ..parts.options.clone() };
            let parts = blocks::BlockParts { options: until, ..parts };
            blocks::recover(&parts, false).await.expect("a recovery").gave_up
        });
        assert!(given_up, "{making:?}");
        // What it left out stays left out, also behind a failed flush.
        let images = fail_a_flush(&images, &options);
        expect_recorded(images, &options, ERRNO_DAMAGED);
    }
}

#[test]
fn every_home_leads_back_to_its_exported_byte() {
    for (making, _) in makings() {
        for block_size in [1024, 4096] {
            let images = make(&Making { block_size, ..making }).expect("a volume");
            let log = if making.groups.is_some() { LogKind::Scattered } else { LogKind::Circular };
            let life = Life::new(1, &images);
            let parts = life.parts(&logging(log), Persistence::WriteBack);
            let layout = life.play(async move { open(parts).await.layout() }).0;
            let disk_blocks = making.disk_bytes / u64::from(block_size);
            let bytes =
                (0..disk_blocks).filter_map(|at| layout.exported_byte(units::HomeBlock(at)));
            let expected = (0..layout.blocks()).map(|block| block * u64::from(block_size));
            assert!(bytes.eq(expected), "{making:?}");
        }
    }
}
