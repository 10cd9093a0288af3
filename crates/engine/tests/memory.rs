//! Memory stays within its bound: every image of every block counts.

mod common;

use common::{Layout, Rig, Setup};
use disks::Latency;
use engine::{Base, Contents, Credits, Engine, FileUpdate};
use journal::DataMode;
use std::rc::Rc;
use std::time::Duration;
use units::{BlockRange, HomeBlock, InodeNumber, TransactionId};

async fn write(engine: &Rc<Engine>, home: u64, byte: u8) -> TransactionId {
    let mut handle = engine.start(Credits(0)).await.unwrap();
    let update = FileUpdate {
        inode: InodeNumber(1),
        home: HomeBlock(home),
        range: BlockRange::new(0, 4096),
        bytes: &[byte; 4096],
        base: Base::Zero,
        request: 4096,
        sequential: false,
    };
    handle.file_data(update).await.unwrap();
    handle.stop()
}

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() << 12
}

#[test]
fn writing_and_freeing_the_same_blocks_takes_no_more_memory_each_time() {
    const BLOCKS: u64 = 256;
    let mut setup = Setup::new(DataMode::Ordered, Layout::Separate, 4096);
    setup.home_blocks = 1024;
    let rig = Rig::new(&setup, 1, setup.images());
    let parts = rig.parts.clone();
    rig.run(async move {
        let engine = Rig::open(parts).await;
        let mut before = 0;
        for round in 0..200 {
            if round == 10 {
                before = resident_bytes();
            }
            for number in 0..BLOCKS {
                write(&engine, number, round).await;
            }
            engine.sync().await.unwrap();
            let mut handle = engine.start(Credits(1)).await.unwrap();
            handle.create(HomeBlock(BLOCKS + 1));
            handle.forget(HomeBlock(0), BLOCKS, Contents::Data);
            engine.commit(handle.stop()).await.unwrap();
            assert!(engine.statistics().cache.bytes <= engine.statistics().cache.limit_bytes);
        }
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 64 << 20, "{} MiB more", grown >> 20);
    })
    .unwrap();
}

/// Commits and home writes are slow, so a block that is overwritten again and again has as many images as it can.
#[test]
fn overwriting_blocks_on_their_way_keeps_all_their_images_within_the_bound() {
    const BLOCKS: u64 = 400;
    for mode in DataMode::ALL {
        let mut setup = Setup::new(mode, Layout::Separate, 4096);
        setup.log_blocks = 4096;
        setup.home_blocks = 1024;
        setup.options.cache_bytes = 3 << 20;
        let rig = Rig::new(&setup, 1, setup.images());
        let slow = Latency { least: Duration::from_millis(2), spread: Duration::from_millis(5) };
        rig.disks.iter().for_each(|disk| disk.set_latency(slow));
        let parts = rig.parts.clone();
        rig.run(async move {
            let engine = Rig::open(parts).await;
            for round in 0..10u8 {
                let mut last = None;
                for number in 0..BLOCKS {
                    last = Some(write(&engine, number * 2, round).await);
                    let cache = engine.statistics().cache;
                    // One handle's blocks, and what is being written home.
                    assert!(cache.bytes <= cache.limit_bytes + (256 << 10), "{mode}, {round}: {cache:?}");
                }
                if round % 3 == 2 {
                    engine.commit(last.unwrap()).await.unwrap();
                }
            }
            engine.shutdown().await.unwrap();
            let cache = engine.statistics().cache;
            assert!(cache.dirty_blocks == 0 && cache.bytes <= cache.limit_bytes, "{mode}: {cache:?}");
        })
        .unwrap();
        for number in 0..BLOCKS {
            assert_eq!(rig.home_block(number * 2)[..], [9; 4096], "{mode}");
        }
    }
}
