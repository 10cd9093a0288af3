//! What the logs hold, told beside the open disk: as a restart would find it, and what a checkpoint
//! then takes.

use device::{Buffer, Disk, Durability, World};
use disks::MemoryDisk;
use runtime::{SplitMix, VirtualWorld};
use scattered::{CheckpointPolicy, LogState, ScatteredDisk, Settings, Sizes};
use std::rc::Rc;

const SIZES: Sizes = Sizes { log: 256 << 10, group: 2 << 20 };
const SEEDS: u64 = 8;
/// So few that no log is ever full.
const WRITES: u64 = 30;

async fn explore(seed: u64, world: Rc<dyn World>, table_elsewhere: bool) {
    let dice = SplitMix::new(seed);
    let memory = MemoryDisk::new(world.clone(), 16 << 20);
    let main: Rc<dyn Disk> = Rc::new(memory.clone());
    let table: Option<Rc<dyn Disk>> =
        table_elsewhere.then(|| Rc::new(MemoryDisk::new(world.clone(), 4 << 20)) as _);
    ScatteredDisk::format(&world, &main, table.as_ref(), SIZES).await.expect("logs");
    let settings =
        Settings { checkpoint: CheckpointPolicy::Manual, swap_above: 100, ..Settings::default() };
    let (disk, _) =
        ScatteredDisk::open(world, main.clone(), table.clone(), settings).await.expect("a disk");
    let before = ScatteredDisk::look(&main, table.as_ref()).await.expect("empty logs");
    assert!(before.logs.is_empty() && before.newest == 0, "{before:?}");
    let (sectors, middle) = (disk.geometry().size / 512, dice.below(WRITES));
    for write in 0..WRITES {
        let from = if dice.below(2) == 0 { dice.below(64) } else { dice.below(sectors - 64) };
        let part =
            Rc::new(Buffer::copy_of(&vec![write as u8; 512 * (1 + dice.below(24) as usize)]));
        disk.write(from * 512, vec![part], Durability::Durable).await.expect("a write");
        if write == middle {
            disk.snapshot().await.expect("a snapshot");
        }
    }
    let changes = memory.changes();
    let told = ScatteredDisk::look(&main, table.as_ref()).await.expect("logs");
    assert_eq!(memory.changes(), changes, "looking wrote something");
    let statistics = disk.statistics();
    assert_eq!(told.logs.len() as u32, statistics.logs_in_use, "{told:?}");
    let sum = |of: &dyn Fn(&LogState) -> u64| told.logs.iter().map(of).sum::<u64>();
    assert_eq!(sum(&|log| log.records), statistics.records, "{told:?}");
    assert_eq!(sum(&|log| log.live_blocks), statistics.table_entries, "{told:?}");
    assert_eq!(told.newest, statistics.records, "{told:?}");
    assert_eq!(told.snapshot, middle + 1, "{told:?}");
    for log in &told.logs {
        assert!(log.live_records <= log.records && log.live_last <= told.newest, "{log:?}");
        assert!(log.live_first <= log.live_last && log.bytes_used <= SIZES.log, "{log:?}");
        assert_eq!(log.live_records == 0, log.live_blocks == 0, "{log:?}");
    }
    let report = disk.checkpoint().await.expect("a checkpoint");
    let [reads, writes] =
        [&told.checkpoint.reads, &told.checkpoint.writes].map(|requests| requests.len());
    assert_eq!((reads as u64, writes as u64), (report.log_reads, report.home_writes), "{report:?}");
    let after = ScatteredDisk::look(&main, table.as_ref()).await.expect("empty logs");
    assert!(after.logs.is_empty() && after.checkpoint.writes.is_empty(), "{after:?}");
}

#[test]
fn what_a_look_tells_is_what_a_checkpoint_takes() {
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let world = VirtualWorld::new(seed);
        let in_world: Rc<dyn World> = Rc::new(world.clone());
        world.run(explore(seed, in_world, seed % 2 == 1));
        world.end();
    }
}
