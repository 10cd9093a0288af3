//! Bits of bitmaps are flipped at random, with counts and checksums that agree, under a volume
//! whose files are in memory. There is no panic, and no file gets the content of another.
//! `OKEANOS_HOSTILE_SEED` and `OKEANOS_HOSTILE_ROUNDS` as for the targets.

use device::World;
use disks::MemoryDisk;
use engine::{DataMode, EngineOptions};
use ext4::{
    Caller, Inode, OpenParts, RangeMode, Result, SyncWhat, Volume, VolumeOptions, WriteFlags,
};
use hostile::lie_in_bitmaps;
use runtime::{SplitMix, VirtualWorld};
use std::rc::Rc;
use units::InodeNumber;
use volume_images::{ImageRequest, Journal};

const MODES: [DataMode; 5] = [
    DataMode::Wasteless,
    DataMode::Ordered,
    DataMode::Journal,
    DataMode::Selective,
    DataMode::Writeback,
];
const ROUNDS: u64 = 150;
const FILES: u64 = 24;
const STEPS: u64 = 120;

/// A file, and the one byte that all of its content consists of.
struct File {
    inode: Rc<Inode>,
    name: Vec<u8>,
    byte: u8,
}

async fn open(world: &Rc<dyn World>, disk: &MemoryDisk, data: DataMode) -> Result<Rc<Volume>> {
    let engine = EngineOptions { data, ..EngineOptions::default() };
    let options = VolumeOptions { engine, ..VolumeOptions::default() };
    Volume::open(OpenParts {
        world: world.clone(),
        home: Rc::new(disk.clone()),
        journal: None,
        options,
    })
    .await
}

async fn make(volume: &Rc<Volume>, name: String, byte: u8, length: usize) -> Result<File> {
    let root = volume.inode(InodeNumber(2)).await?;
    let name = name.into_bytes();
    let inode = volume.mknod(&root, &name, &Caller::ROOT, 0o100_644, 0).await?.value;
    volume.opened(&inode);
    // An error may follow a partial write.
    let _ =
        volume.write(&inode, &Caller::ROOT, 0, &vec![byte; length], WriteFlags::default()).await;
    Ok(File { inode, name, byte })
}

/// Checks that every byte is the file's own, or was never written.
async fn check(volume: &Rc<Volume>, file: &File) {
    let Ok(content) = volume.read(&file.inode, 0, 1 << 20).await else { return };
    let foreign = content.to_vec().into_iter().find(|byte| *byte != 0 && *byte != file.byte);
    assert_eq!(foreign, None, "{} holds another's content", String::from_utf8_lossy(&file.name));
}

async fn play(volume: &Rc<Volume>, files: &mut Vec<File>, random: &SplitMix) {
    let root = volume.inode(InodeNumber(2)).await.unwrap();
    for step in 0..STEPS {
        let pick = (random.next() % files.len() as u64) as usize;
        let offset = random.next() % 60_000;
        let length = 1 + (random.next() % 9000) as usize;
        let (inode, byte) = (files[pick].inode.clone(), files[pick].byte);
        match random.next() % 9 {
            0..3 => {
                let bytes = vec![byte; length];
                let _ = volume
                    .write(&inode, &Caller::ROOT, offset, &bytes, WriteFlags::default())
                    .await;
            }
            3 => {
                let _ = volume.truncate(&inode, offset / 4).await;
            }
            4 => {
                let mode = RangeMode::PunchHole;
                let _ = volume.fallocate(&inode, &Caller::ROOT, mode, true, offset / 2, 9000).await;
            }
            5 | 6 => {
                let byte = (files.len() % 255) as u8 + 1;
                if let Ok(file) = make(volume, format!("new-{step}"), byte, length).await {
                    files.push(file);
                }
            }
            7 if files.len() > 4 => {
                let file = files.swap_remove(pick);
                let _ = volume.unlink(&root, &file.name).await;
                let _ = volume.closed(file.inode.number).await;
            }
            7 => {}
            _ => {
                let _ = volume
                    .mkdir(&root, format!("directory-{step}").as_bytes(), &Caller::ROOT, 0o755)
                    .await;
                let _ = volume.sync_file(&inode, SyncWhat::All).await;
            }
        }
        check(volume, &files[(random.next() % files.len() as u64) as usize]).await;
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect(variable))
}

#[test]
fn hostile_bitmaps_under_a_live_cache_make_no_file_hold_anothers_content() {
    let kinds = [("ext4", 1024, 6 << 20), ("ext3", 1024, 20 << 20), ("ext4", 4096, 12 << 20)];
    let seed = number("OKEANOS_HOSTILE_SEED", 1);
    for round in 0..ROUNDS * number("OKEANOS_HOSTILE_ROUNDS", 1) {
        let random = SplitMix::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(round));
        let (kind, block_size, size) = kinds[(random.next() % 3) as usize];
        let data = MODES[(random.next() % 5) as usize];
        println!("seed {seed} round {round}: {kind} {block_size} {data:?}");
        let request = ImageRequest {
            options: &["-t", kind],
            block_size,
            size,
            journal: Journal::Inside,
            stale: None,
        };
        let image = volume_images::make(&request).unwrap().home;
        let virtual_world = VirtualWorld::new(round);
        let world: Rc<dyn World> = Rc::new(virtual_world.clone());
        let disk = MemoryDisk::from_image(world.clone(), image.clone());
        let fresh = image;
        virtual_world.run(async move {
            let volume = open(&world, &disk, data).await.unwrap();
            for index in 0..FILES {
                let length = (random.next() % 30_000) as usize;
                make(&volume, format!("file-{index}"), 1 + index as u8, length).await.unwrap();
            }
            volume.close().await.unwrap();
            let mut image = disk.image();
            lie_in_bitmaps(&mut image, &fresh, &random);
            let disk = MemoryDisk::from_image(world.clone(), image);
            let volume = open(&world, &disk, data).await.unwrap();
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            let mut files = Vec::new();
            for index in 0..FILES {
                let name = format!("file-{index}").into_bytes();
                let inode = volume.lookup(&root, &name).await.unwrap();
                volume.opened(&inode);
                let file = File { inode, name, byte: 1 + index as u8 };
                check(&volume, &file).await;
                files.push(file);
            }
            play(&volume, &mut files, &random).await;
            let _ = volume.sync().await;
            for file in &files {
                check(&volume, file).await;
            }
            let _ = volume.close().await;
        });
        virtual_world.end();
    }
}
