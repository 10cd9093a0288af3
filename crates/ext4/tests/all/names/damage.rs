//! Damaged directory blocks: an error, never a panic, an endless walk or a deadlock.

use crate::names::support::*;
use device::{Disk, Durability, World};
use disks::MemoryDisk;
use ext4::{Caller, Error, Inode, RenameMode, Volume};
use runtime::VirtualWorld;
use std::collections::BTreeSet;
use std::rc::Rc;

const NAMES: usize = 400;

/// A volume with an indexed directory of two levels' worth of blocks, a small one, and a tree; and
/// the blocks of them.
fn image_and_blocks(kind: Kind) -> (TestImage, Vec<u64>) {
    let image = TestImage::of_inodes(kind, "8M", 1500);
    image.with(1, |volume, _| async move {
        let root = volume.inode(ROOT).await.unwrap();
        let large = make_directory(&volume, &root, "large").await;
        for number in 0..NAMES {
            make_file(&volume, &large, &format!("{number:0100}")).await;
        }
        let small = make_directory(&volume, &root, "small").await;
        let below = make_directory(&volume, &small, "below").await;
        make_file(&volume, &below, "file").await;
    });
    let of = |path: &str| {
        let text = image.debugfs(&format!("blocks {path}"));
        text.split_whitespace().map(|block| block.parse().unwrap()).collect::<Vec<u64>>()
    };
    let blocks = ["/", "/large", "/small", "/small/below"].into_iter().flat_map(of).collect();
    (image, blocks)
}

/// Makes every kind of call, over everything reachable.
async fn use_everything(volume: &Rc<Volume>) -> ext4::Result<()> {
    let root = volume.inode(ROOT).await?;
    let mut directories: Vec<Rc<Inode>> = vec![root.clone()];
    let mut seen = BTreeSet::from([ROOT]);
    let mut first_error = Ok(());
    let mut note = |result: ext4::Result<()>| {
        if let Err(error) = result {
            if matches!(error, Error::Corrupt { .. }) && first_error.is_ok() {
                first_error = Err(error);
            }
        }
    };
    while let Some(directory) = directories.pop() {
        let (mut cookie, mut chunks) = (0, 0);
        loop {
            let listed = match volume.readdirplus(&directory, cookie, 50).await {
                Ok(listed) => listed,
                Err(error) => break note(Err(error)),
            };
            let Some((last, _)) = listed.last() else { break };
            cookie = last.cookie;
            chunks += 1;
            assert!(chunks < 10_000, "a listing without end");
            for (entry, inode) in listed {
                note(volume.lookup(&directory, &entry.name).await.map(|_| ()));
                if let Some(inode) =
                    inode.filter(|inode| inode.is_directory() && seen.insert(inode.number))
                {
                    directories.push(inode);
                }
            }
        }
        for number in 0..30 {
            let name = format!("new-{number}-{}", "x".repeat(200));
            note(volume.mkdir(&directory, name.as_bytes(), &Caller::ROOT, 0o755).await.map(|_| ()));
            let other = format!("{number:0100}");
            let ends = ((&directory, name.as_bytes()), (&root, other.as_bytes()));
            note(
                volume.rename(ends.0, ends.1, &Caller::ROOT, RenameMode::Replace).await.map(|_| ()),
            );
            note(volume.unlink(&directory, other.as_bytes()).await.map(|_| ()));
            note(volume.rmdir(&root, other.as_bytes()).await.map(|_| ()));
        }
    }
    first_error
}

/// Damages a copy of the image as `damage` says, and uses everything on it.
fn try_damaged(
    disk: &MemoryDisk,
    world: &VirtualWorld,
    seed: u64,
    blocks: &[u64],
) -> ext4::Result<()> {
    let shared: Rc<dyn World> = Rc::new(world.clone());
    let disk = disk.fork(shared.clone());
    let blocks = blocks.to_vec();
    let chance = world.clone();
    world.run(async move {
        for _ in 0..1 + seed % 4 {
            let random = |limit: u64| chance.random() % limit;
            let at = blocks[random(blocks.len() as u64) as usize] * 1024;
            let mut bytes = disk.read(at, 1024).await.unwrap();
            for _ in 0..1 + random(3) {
                // Half of the damage hits the start, where the headers of index and first entries
                // are.
                let offset = random(if random(2) == 0 { 64 } else { 1024 }) as usize;
                bytes[offset] = [random(256) as u8, 0, 0xff, bytes[offset] ^ 1 << random(8)]
                    [random(4) as usize];
            }
            disk.write(at, vec![Rc::new(bytes)], Durability::Cached).await.unwrap();
        }
        let volume = open(&shared, &disk).await?;
        use_everything(&volume).await
    })
}

fn damage(kind: Kind, cases: u64) -> usize {
    let (image, blocks) = image_and_blocks(kind);
    let mut noticed = 0;
    for seed in 0..cases {
        println!("seed {seed} on {}", kind.0);
        let world = VirtualWorld::new(seed);
        let disk = MemoryDisk::read_image(Rc::new(world.clone()), &image.path()).unwrap();
        match try_damaged(&disk, &world, seed, &blocks) {
            Ok(()) => {}
            Err(error) => {
                assert!(matches!(error, Error::Corrupt { .. }), "{error}");
                noticed += 1;
            }
        }
    }
    noticed
}

#[test]
fn damaged_blocks_without_checksums_do_no_harm() {
    let noticed = damage(UNCHECKED, 150)
        + damage(Kind("linear", &["-t", "ext3", "-b", "1024", "-O", "^dir_index"]), 100);
    assert!(noticed > 50, "{noticed}");
}

#[test]
fn checksums_detect_every_damaged_block() {
    for kind in [EXT4_1K, LINEAR] {
        let (image, blocks) = image_and_blocks(kind);
        for (index, block) in blocks.iter().enumerate() {
            // A byte that every kind of block covers by its checksum.
            let at = block * 1024 + 8 + index as u64 % 16;
            let (world, shared, disk) = image.world(index as u64);
            let error = world.run(async move {
                let start = at / 1024 * 1024;
                let mut bytes = disk.read(start, 1024).await.unwrap();
                bytes[(at - start) as usize] ^= 0x10;
                disk.write(start, vec![Rc::new(bytes)], Durability::Cached).await.unwrap();
                let volume = open(&shared, &disk).await.unwrap();
                use_everything(&volume).await
            });
            assert!(matches!(error.expect_err("the damage is found"), Error::Corrupt { .. }));
        }
    }
}

#[test]
fn a_directory_that_lies_within_itself_is_corrupt() {
    let image = TestImage::of_inodes(UNCHECKED, "8M", 100);
    let numbers = image.with(1, |volume, _| async move {
        let root = volume.inode(ROOT).await.unwrap();
        let outer = make_directory(&volume, &root, "outer").await;
        let inner = make_directory(&volume, &outer, "inner").await;
        make_directory(&volume, &root, "other").await;
        (outer.number, inner.number)
    });
    // `..` of outer leads to inner, so going up never ends.
    let block: u64 = image.debugfs("blocks /outer").trim().parse().unwrap();
    let (world, shared, disk) = image.world(1);
    world.run(async move {
        let mut bytes = disk.read(block * 1024, 1024).await.unwrap();
        bytes[12..16].copy_from_slice(&numbers.1.get().to_le_bytes());
        disk.write(block * 1024, vec![Rc::new(bytes)], Durability::Cached).await.unwrap();
        let volume = open(&shared, &disk).await.unwrap();
        let (inner, root) =
            (volume.inode(numbers.1).await.unwrap(), volume.inode(ROOT).await.unwrap());
        let ends = ((&root, &b"other"[..]), (&inner, &b"other"[..]));
        let moved = volume.rename(ends.0, ends.1, &Caller::ROOT, RenameMode::Replace).await;
        assert!(matches!(moved, Err(Error::Corrupt { .. })));
        volume.inode(numbers.0).await.unwrap();
    });
}

/// `..` of the moved directory, or of the one that it is exchanged with, is no entry.
#[test]
fn a_directory_with_a_damaged_parent_keeps_its_place() {
    for (damaged, mode) in [
        ("/from/moved", RenameMode::Replace),
        ("/from/moved", RenameMode::Exchange),
        ("/to/other", RenameMode::Exchange),
    ] {
        let image = TestImage::of_inodes(UNCHECKED, "8M", 100);
        image.with(1, |volume, _| async move {
            let root = volume.inode(ROOT).await.unwrap();
            for (parent, name) in [("from", "moved"), ("to", "other")] {
                let parent = make_directory(&volume, &root, parent).await;
                make_directory(&volume, &parent, name).await;
            }
        });
        let block: u64 = image.debugfs(&format!("blocks {damaged}")).trim().parse().unwrap();
        let (world, shared, disk) = image.world(1);
        world.run(async move {
            let mut bytes = disk.read(block * 1024, 1024).await.unwrap();
            // The length of the entry `..`.
            bytes[16..18].copy_from_slice(&3u16.to_le_bytes());
            disk.write(block * 1024, vec![Rc::new(bytes)], Durability::Cached).await.unwrap();
            let volume = open(&shared, &disk).await.unwrap();
            let root = volume.inode(ROOT).await.unwrap();
            let from = volume.lookup(&root, b"from").await.unwrap();
            let to = volume.lookup(&root, b"to").await.unwrap();
            let before = [names(&volume, &from).await, names(&volume, &to).await];
            let links = [&from, &to].map(|inode| volume.getattr(inode).links);
            let ends = ((&from, &b"moved"[..]), (&to, &b"other"[..]));
            let moved = volume.rename(ends.0, ends.1, &Caller::ROOT, mode).await;
            assert!(matches!(moved, Err(Error::Corrupt { .. })), "{damaged} {mode:?}");
            assert_eq!([names(&volume, &from).await, names(&volume, &to).await], before);
            let other = volume.lookup(&to, b"other").await.unwrap().number;
            let moved = volume.lookup(&from, b"moved").await.unwrap().number;
            assert!(other != moved, "{damaged} {mode:?}: a name has changed");
            assert_eq!([&from, &to].map(|inode| volume.getattr(inode).links), links);
        });
    }
}

/// The root of the index of `/large`, which has no checksum, as `change` leaves it; then `test`
/// with the volume and the directory.
fn with_index<F: Future<Output = ()> + 'static>(
    change: impl FnOnce(&mut [u8]) + 'static,
    test: impl FnOnce(Rc<Volume>, Rc<Inode>) -> F + 'static,
) {
    let (image, _) = image_and_blocks(UNCHECKED);
    let blocks = image.debugfs("blocks /large");
    let root: u64 = blocks.split_whitespace().next().unwrap().parse().unwrap();
    let (world, shared, disk) = image.world(1);
    world.run(async move {
        let mut bytes = disk.read(root * 1024, 1024).await.unwrap();
        change(&mut bytes);
        disk.write(root * 1024, vec![Rc::new(bytes)], Durability::Cached).await.unwrap();
        let volume = open(&shared, &disk).await.unwrap();
        let root = volume.inode(ROOT).await.unwrap();
        let directory = volume.lookup(&root, b"large").await.unwrap();
        test(volume, directory).await;
    });
}

/// Offset of the table in the root: limit and count, then the first block; entries of hash and
/// block.
const TABLE: usize = 32;

/// The table is full of entries that name one and the same leaf.
#[test]
fn an_index_that_names_a_leaf_again_and_again_is_corrupt() {
    let repeat = |bytes: &mut [u8]| {
        let limit = u16::from_le_bytes([bytes[TABLE], bytes[TABLE + 1]]);
        bytes[TABLE + 2..TABLE + 4].copy_from_slice(&limit.to_le_bytes());
        let leaf: [u8; 4] = bytes[TABLE + 4..TABLE + 8].try_into().unwrap();
        for index in 1..usize::from(limit) {
            let entry = &mut bytes[TABLE + 8 * index..][..8];
            // Behind the hash of every name in the leaf.
            entry[..4].copy_from_slice(&(0xf000_0000 + index as u32 * 2).to_le_bytes());
            entry[4..].copy_from_slice(&leaf);
        }
    };
    with_index(repeat, |volume, directory| async move {
        let mut listed = Ok(Vec::new());
        let mut cookie = 0;
        // Chunks grow: the last ones walk through all that is left.
        while let Ok(entries) = &listed {
            cookie = entries.last().map_or(cookie, |entry: &ext4::DirectoryEntry| entry.cookie);
            listed = volume.readdir(&directory, cookie, 100_000).await;
            assert!(listed.as_ref().is_ok_and(|it| !it.is_empty()) || listed.is_err(), "listed");
        }
        assert!(matches!(listed, Err(Error::Corrupt { .. })), "{listed:?}");
    });
}

/// The index has lost all leaves but the first.
#[test]
fn a_directory_is_not_empty_while_a_block_beside_its_index_has_a_name() {
    let shorten = |bytes: &mut [u8]| bytes[TABLE + 2..TABLE + 4].copy_from_slice(&[1, 0]);
    with_index(shorten, |volume, directory| async move {
        let listed = names(&volume, &directory).await;
        assert!(!listed.is_empty() && listed.len() < NAMES, "{}", listed.len());
        for name in listed {
            volume.unlink(&directory, &name).await.unwrap();
        }
        assert!(names(&volume, &directory).await.is_empty());
        let root = volume.inode(ROOT).await.unwrap();
        assert_refused(volume.rmdir(&root, b"large").await, units::Refusal::NotEmpty);
    });
}
