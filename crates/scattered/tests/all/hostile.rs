//! Damaged disks, with checksums that are right again or not: a restart succeeds or says what is
//! wrong, and what it opened can be used.

use device::{Buffer, Disk, Durability, World};
use disks::{Image, MemoryDisk};
use runtime::{SplitMix, VirtualWorld};
use scattered::{CheckpointPolicy, NearHome, ScatteredDisk, Settings, Sizes};
use std::rc::Rc;

const SIZE: u64 = 4 << 20;
const BLOCK: u64 = 4096;
const SETTINGS: Settings = Settings {
    near_home: NearHome::IsLogged,
    logged_write_size: 32 << 10,
    checkpoint: CheckpointPolicy::Manual,
    swap_above: 80,
    swap_idle: std::time::Duration::from_millis(20),
    scan_bytes: 1 << 20,
    scan_regions: 64,
    checkpoint_memory: 1 << 20,
};

/// Makes a disk with a snapshot of some entries, and records after it.
fn used() -> Image {
    let world = VirtualWorld::new(1);
    let in_world: Rc<dyn World> = Rc::new(world.clone());
    let disk = MemoryDisk::new(in_world.clone(), SIZE);
    let main: Rc<dyn Disk> = Rc::new(disk.clone());
    world.run(async move {
        let sizes = Sizes { log: 64 << 10, group: 512 << 10 };
        ScatteredDisk::format(&in_world, &main, None, sizes).await.unwrap();
        let (logs, _) = ScatteredDisk::open(in_world, main, None, SETTINGS).await.unwrap();
        for number in 0..12 {
            let part = Rc::new(Buffer::copy_of(&[number as u8; 8192]));
            logs.write(number * 5 * BLOCK, vec![part], Durability::Durable).await.unwrap();
            if number == 5 {
                logs.snapshot().await.unwrap();
            }
        }
        logs.write(0, vec![Rc::new(Buffer::zeroed(64 << 10))], Durability::Durable).await.unwrap();
    });
    let image = disk.image();
    world.end();
    image
}

/// Blocks that begin as ours do.
fn ours(image: &Image) -> Vec<u64> {
    let mut start = [0; 4];
    (0..SIZE / BLOCK)
        .filter(|block| {
            image.read(block * BLOCK, &mut start);
            start.starts_with(b"OKS")
        })
        .collect()
}

#[test]
fn no_damage_makes_a_restart_panic_or_loop() {
    let image = used();
    let blocks = ours(&image);
    assert!(blocks.len() > 10, "{blocks:?}");
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..1500 {
        let random = SplitMix::new(seed);
        let mut damaged = image.clone();
        for _ in 0..1 + random.next() % 3 {
            let at = blocks[(random.next() % blocks.len() as u64) as usize] * BLOCK;
            let mut block = [0; BLOCK as usize];
            damaged.read(at, &mut block);
            for _ in 0..1 + random.next() % 4 {
                let byte = if random.next() % 2 == 0 {
                    24 + random.next() % 80
                } else {
                    random.next() % BLOCK
                };
                block[byte as usize] =
                    [0, 1, 0x7f, 0xff, random.next() as u8][(random.next() % 5) as usize];
            }
            if random.next() % 4 != 0 {
                block[4..8].fill(0);
                let sum = crc32c::crc32c(&block);
                block[4..8].copy_from_slice(&sum.to_le_bytes());
            }
            damaged.write(at, &block);
        }
        let world = VirtualWorld::new(seed);
        let in_world: Rc<dyn World> = Rc::new(world.clone());
        let main: Rc<dyn Disk> = Rc::new(MemoryDisk::from_image(in_world.clone(), damaged));
        let is_open = world.run(async move {
            let Ok((logs, _)) = ScatteredDisk::open(in_world, main, None, SETTINGS).await else {
                return false;
            };
            // What is opened may have lost blocks, but works.
            let part = Rc::new(Buffer::copy_of(&[9; 4096]));
            let size = logs.geometry().size;
            let _ = logs.read(0, size.min(1 << 20) as usize).await;
            let _ = logs.write(0, vec![part], Durability::Durable).await;
            let _ = logs.checkpoint().await;
            true
        });
        world.end();
        if is_open { opened += 1 } else { refused += 1 }
    }
    assert!(opened > 100 && refused > 100, "{opened} opened, {refused} refused");
}

const ENTRIES_AT: usize = 48;
const CHECKSUM_AT: usize = 56;

/// Returns the place of each snapshot's header, and the length of what follows it.
fn snapshots(image: &Image, logs: u64) -> Vec<(u64, usize)> {
    let headers = ours(image).into_iter().filter_map(|block| {
        let mut header = [0; BLOCK as usize];
        image.read(block * BLOCK, &mut header);
        if !header.starts_with(b"OKSS") {
            return None;
        }
        let entries = u64::from_le_bytes(header[ENTRIES_AT..ENTRIES_AT + 8].try_into().unwrap());
        Some((block * BLOCK, ((logs + entries) * 16).next_multiple_of(BLOCK) as usize))
    });
    headers.collect()
}

/// The number of logs of a disk that opens, or the error.
fn opened(image: Image) -> Result<u32, scattered::OpenError> {
    let world = VirtualWorld::new(1);
    let in_world: Rc<dyn World> = Rc::new(world.clone());
    let main: Rc<dyn Disk> = Rc::new(MemoryDisk::from_image(in_world.clone(), image));
    let logs = world.run(async move {
        let (logs, _) = ScatteredDisk::open(in_world, main, None, SETTINGS).await?;
        let size = logs.geometry().size;
        let _ = logs.read(0, size.min(1 << 20) as usize).await;
        let _ = logs.checkpoint().await;
        Ok(logs.layout().logs)
    });
    world.end();
    logs
}

#[test]
fn a_rotten_table_is_refused_by_name_and_a_lying_one_breaks_nothing() {
    let image = used();
    let logs = u64::from(opened(image.clone()).expect("a good disk"));
    let snapshots = snapshots(&image, logs);
    assert_eq!(snapshots.len(), 2, "{snapshots:?}");
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..400 {
        let random = SplitMix::new(seed);
        let lies = random.next() % 4 != 0;
        let mut damaged = image.clone();
        for (at, length) in &snapshots {
            let (mut header, mut payload) = ([0; BLOCK as usize], vec![0; *length]);
            image.read(*at, &mut header);
            image.read(at + BLOCK, &mut payload);
            for _ in 0..1 + random.next() % 4 {
                let field = (random.next() % (length / 8) as u64) as usize * 8;
                let small = random.next() % 2000;
                let value =
                    [0, u64::MAX, small, small << 8, random.next()][(random.next() % 5) as usize];
                payload[field..field + 8].copy_from_slice(&value.to_le_bytes());
            }
            // Every one is changed, also where chance wrote what was there.
            payload[0] ^= 1;
            damaged.write(at + BLOCK, &payload);
            if lies {
                header[CHECKSUM_AT..CHECKSUM_AT + 4]
                    .copy_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
                header[4..8].fill(0);
                let sum = crc32c::crc32c(&header);
                header[4..8].copy_from_slice(&sum.to_le_bytes());
                damaged.write(*at, &header);
            }
        }
        match opened(damaged) {
            Ok(_) if lies => taken += 1,
            Ok(_) => panic!("seed {seed}: a rotten table was believed"),
            Err(error) => {
                let says = error.to_string();
                assert!(
                    says.contains("memory disk") && says.contains("mapping table is damaged"),
                    "{says}"
                );
                refused += 1;
            }
        }
    }
    assert!(taken > 20 && refused > 100, "{taken} taken, {refused} refused");
}
