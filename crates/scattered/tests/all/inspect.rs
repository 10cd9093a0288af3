//! Inspection of the logs beside the open disk: as a restart would find them, and what a checkpoint
//! then takes.

use device::{Buffer, Disk, Durability, World};
use disks::MemoryDisk;
use runtime::{SplitMix, VirtualWorld};
use scattered::{CheckpointPolicy, LogState, ScatteredDisk, Settings, Sizes};
use std::rc::Rc;

const SIZES: Sizes = Sizes { log: 256 << 10, group: 2 << 20 };
const SEEDS: u64 = 8;
/// Few enough that no log is ever full.
const WRITES: u64 = 30;

async fn explore(seed: u64, world: Rc<dyn World>, table_elsewhere: bool) {
    let random = SplitMix::new(seed);
    let memory = MemoryDisk::new(world.clone(), 16 << 20);
    let main: Rc<dyn Disk> = Rc::new(memory.clone());
    let table: Option<Rc<dyn Disk>> =
        table_elsewhere.then(|| Rc::new(MemoryDisk::new(world.clone(), 4 << 20)) as _);
    ScatteredDisk::format(&world, &main, table.as_ref(), SIZES).await.expect("logs");
    let settings =
        Settings { checkpoint: CheckpointPolicy::Manual, swap_above: 100, ..Settings::default() };
    let (disk, _) =
        ScatteredDisk::open(world, main.clone(), table.clone(), settings).await.expect("a disk");
    let before = ScatteredDisk::inspect(&main, table.as_ref()).await.expect("empty logs");
    assert!(before.logs.is_empty() && before.newest == 0, "{before:?}");
    let (sectors, middle) = (disk.geometry().size / 512, random.below(WRITES));
    for write in 0..WRITES {
        let from = if random.below(2) == 0 { random.below(64) } else { random.below(sectors - 64) };
        let part =
            Rc::new(Buffer::copy_of(&vec![write as u8; 512 * (1 + random.below(24) as usize)]));
        disk.write(from * 512, vec![part], Durability::Durable).await.expect("a write");
        if write == middle {
            disk.snapshot().await.expect("a snapshot");
        }
    }
    let changes = memory.changes();
    let recorded = ScatteredDisk::inspect(&main, table.as_ref()).await.expect("logs");
    assert_eq!(memory.changes(), changes, "looking wrote something");
    let statistics = disk.statistics();
    assert_eq!(recorded.logs.len() as u32, statistics.logs_in_use, "{recorded:?}");
    let sum = |of: &dyn Fn(&LogState) -> u64| recorded.logs.iter().map(of).sum::<u64>();
    assert_eq!(sum(&|log| log.records), statistics.records, "{recorded:?}");
    assert_eq!(sum(&|log| log.live_blocks), statistics.table_entries, "{recorded:?}");
    assert_eq!(recorded.newest, statistics.records, "{recorded:?}");
    assert_eq!(recorded.snapshot, middle + 1, "{recorded:?}");
    for log in &recorded.logs {
        assert!(log.live_records <= log.records && log.live_last <= recorded.newest, "{log:?}");
        assert!(log.live_first <= log.live_last && log.bytes_used <= SIZES.log, "{log:?}");
        assert_eq!(log.live_records == 0, log.live_blocks == 0, "{log:?}");
    }
    let report = disk.checkpoint().await.expect("a checkpoint");
    let [reads, writes] =
        [&recorded.checkpoint.reads, &recorded.checkpoint.writes].map(|requests| requests.len());
    assert_eq!((reads as u64, writes as u64), (report.log_reads, report.home_writes), "{report:?}");
    let after = ScatteredDisk::inspect(&main, table.as_ref()).await.expect("empty logs");
    assert!(after.logs.is_empty() && after.checkpoint.writes.is_empty(), "{after:?}");
}

#[test]
fn an_inspection_predicts_what_a_checkpoint_takes() {
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let world = VirtualWorld::new(seed);
        let in_world: Rc<dyn World> = Rc::new(world.clone());
        world.run(explore(seed, in_world, seed % 2 == 1));
        world.end();
    }
}
