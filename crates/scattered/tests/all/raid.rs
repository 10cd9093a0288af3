//! Scattered logs over a RAID-0: they lie on the aggregate, so sizes of logs and groups divide over
//! the disks.

use device::{Buffer, Disk, Durability, World};
use disks::{CrashPolicy, MemoryDisk, Raid0};
use runtime::{SplitMix, VirtualWorld};
use scattered::{CheckpointPolicy, NearHome, ScatteredDisk, Settings, Sizes};
use std::rc::Rc;

const DISKS: usize = 4;
const CHUNK: u64 = 64 << 10;
const MEMBER: u64 = 64 << 20;
const SIZES: Sizes = Sizes { log: 1 << 20, group: 10 << 20 };

fn settings() -> Settings {
    Settings {
        logged_write_size: 256 << 10,
        near_home: NearHome::IsLogged,
        checkpoint: CheckpointPolicy::Manual,
        ..Settings::default()
    }
}

fn raid(members: &[MemoryDisk]) -> Rc<dyn Disk> {
    let disks = members.iter().map(|disk| Rc::new(disk.clone()) as Rc<dyn Disk>).collect();
    Rc::new(Raid0::new(disks, CHUNK))
}

#[test]
fn four_disks_share_each_log_and_synced_writes_survive_a_cut_of_all() {
    const SPAN: usize = 4 << 20;
    let world = VirtualWorld::new(1);
    let in_world: Rc<dyn World> = Rc::new(world.clone());
    let members: Vec<MemoryDisk> =
        (0..DISKS).map(|_| MemoryDisk::new(in_world.clone(), MEMBER)).collect();
    let disk = raid(&members);
    let plain = world.run(async move {
        ScatteredDisk::format(&in_world, &disk, None, SIZES).await.expect("logs");
        let (logs, _) =
            ScatteredDisk::open(in_world, disk, None, settings()).await.expect("an open disk");
        // A log's bytes on the aggregate fall on the disks chunk by chunk.
        for log in 0..logs.layout().logs {
            let begin = logs.layout().log_begin(log) * 4096;
            let mut of_disk = [0u64; DISKS];
            for at in (begin..begin + SIZES.log).step_by(4096) {
                of_disk[(at / CHUNK) as usize % DISKS] += 4096;
            }
            let quarter = SIZES.log / DISKS as u64;
            assert!(
                of_disk.iter().all(|bytes| bytes.abs_diff(quarter) <= CHUNK),
                "log {log}: {of_disk:?}"
            );
        }
        let random = SplitMix::new(9);
        let (mut plain, sectors) = (vec![0u8; SPAN], SPAN as u64 / 512);
        for step in 0..300u32 {
            let from = random.next() % sectors;
            let count = (1 + random.next() % 100).min(sectors - from);
            let range = (from * 512) as usize..((from + count) * 512) as usize;
            plain[range.clone()].fill(step as u8);
            let part = Rc::new(Buffer::copy_of(&plain[range]));
            logs.write(from * 512, vec![part], Durability::Durable).await.expect("a write");
        }
        assert_eq!(logs.statistics().logged_writes, 300);
        plain
    });
    let left: Vec<_> = members.iter().map(|disk| disk.crash(CrashPolicy::LoseAll)).collect();
    world.end();
    let world = VirtualWorld::new(2);
    let in_world: Rc<dyn World> = Rc::new(world.clone());
    let members: Vec<MemoryDisk> =
        left.into_iter().map(|image| MemoryDisk::from_image(in_world.clone(), image)).collect();
    let disk = raid(&members);
    world.run(async move {
        let (logs, _) =
            ScatteredDisk::open(in_world, disk, None, settings()).await.expect("an open disk");
        assert!(logs.read(0, SPAN).await.expect("a read")[..] == plain[..]);
        logs.checkpoint().await.expect("a checkpoint");
        assert_eq!(logs.statistics().table_entries, 0);
        assert!(logs.read(0, SPAN).await.expect("a read")[..] == plain[..]);
    });
    world.end();
}
