//! Freeing many blocks at once.

use crate::common::{Layout, Rig, Setup, file_update};
use disks::Latency;
use engine::{Contents, Credits};
use journal::DataMode;
use runtime::{Either, race};
use std::time::Duration;
use units::HomeBlock;

/// Small updates leave many times more blocks in the log than it has blocks itself. To free them
/// all takes more revokes than one transaction holds.
#[test]
fn every_block_that_a_full_log_has_records_of_may_be_freed_in_steps() {
    const UPDATES_A_HANDLE: u64 = 40;
    for block_size in [1024, 4096] {
        let mut setup = Setup::new(DataMode::Wasteless, Layout::Separate, block_size);
        setup.home_blocks = 100_000;
        setup.options.cache_bytes = 1 << 30;
        setup.options.commit = Duration::from_secs(3600);
        setup.options.expire = Duration::from_secs(3600);
        let rig = Rig::new(&setup, 1, setup.images());
        // Nothing is written back while the log fills.
        let slow = Duration::from_secs(10);
        rig.disks[0].set_latency(Latency { least: slow, spread: Duration::ZERO });
        rig.play(async move |engine| {
            let now = || engine.world().now();
            let mut next = 0;
            'full: loop {
                let mut last = None;
                for _ in 0..20 {
                    let patience = engine.world().sleep_until(now().plus(Duration::from_secs(1)));
                    let start = Box::pin(engine.start_writing(Credits(0), UPDATES_A_HANDLE as u32));
                    let Either::Left(handle) = race(start, patience).await else { break 'full };
                    let mut handle = handle.unwrap();
                    for _ in 0..UPDATES_A_HANDLE {
                        handle.write_file_data(file_update(next, 5, &[7])).await.unwrap();
                        next += 1;
                    }
                    last = Some(handle.stop());
                }
                engine.commit(last.unwrap()).await.unwrap();
            }
            assert!(next > 10_000, "only {next} blocks are in the log");
            let mut handle = engine.start(engine.credits_revokes()).await.unwrap();
            let (mut at, mut transactions) = (0, 1);
            while at < next {
                let count = engine.freeable_in_one_handle(HomeBlock(at), next - at);
                handle.forget(HomeBlock(at), count, Contents::Data);
                at += count;
                if !handle.extend(engine.credits_revokes()) {
                    drop(handle);
                    handle = engine.start(engine.credits_revokes()).await.unwrap();
                    transactions += 1;
                }
            }
            assert!(transactions > 1, "one transaction held all revokes");
            engine.commit(handle.stop()).await.unwrap();
            engine.shutdown().await.unwrap();
        });
    }
}
