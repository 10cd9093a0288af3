//! Damaged volumes: an error, never a panic, never an endless loop.

use crate::image::world_with;
use crate::image::{in_mode, open as open_volume};
use crate::volume::allocation::create;
use crate::volume::image::{ALL, EXT3, EXT4, EXT4_1K, Kind, TestImage, open};
use disks::{CrashPolicy, Image, MemoryDisk};
use engine::{DataMode, EngineOptions};
use ext4::{
    Access, AllocationRequest, Caller, Error, OnError, OpenParts, Purpose, Result, VolumeOptions,
};
use format::ext4::{GroupDescriptor, VolumeSuperblock};
use runtime::SplitMix;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;
use units::{FileBlock, InodeNumber};

/// Opens the volume, uses every function of this crate, closes it. Errors are expected.
fn use_volume(bytes: &[u8], seed: u64) -> Result<()> {
    use_image(Image::of_bytes(bytes), seed)
}

fn use_image(image: Image, seed: u64) -> Result<()> {
    let (virtual_world, world, disk) = world_with(seed, image);
    virtual_world.run(async move {
        let volume = open(&world, &disk, Access::ReadWrite).await?;
        let inodes = volume.superblock().inodes;
        for number in 0..inodes.min(100) + 2 {
            let _ = volume.inode(InodeNumber(number)).await;
        }
        let root = volume.inode(InodeNumber(2)).await?;
        for _ in 0..10 {
            let inode = create(&volume, &root, 0o100_644).await?;
            let mut handle = volume.engine().start(volume.credits_allocate(1)).await?;
            let request = AllocationRequest {
                inode: &inode,
                goal: None,
                count: 100,
                at: FileBlock(0),
                purpose: Purpose::Data,
                use_reserve: true,
            };
            let run = volume.allocate_blocks(&mut handle, request).await;
            handle.stop();
            let _ = volume.statfs().await;
            let mut handle = volume.engine().start(volume.credits_free(1, 100)).await?;
            if let Ok(run) = run {
                let contents = engine::Contents::Data;
                let _ =
                    volume.free_blocks(&mut handle, run.start, run.count.into(), contents).await;
            }
            handle.stop();
            volume.free_if_unused(&inode).await?;
        }
        volume.close().await
    })
}

#[test]
fn random_damage_gives_errors_and_no_panic() {
    for kind in ALL {
        let image = TestImage::of(kind);
        let bytes = image.bytes();
        let pristine = Image::read_file(&image.path()).unwrap();
        let superblock = VolumeSuperblock::parse(&bytes[1024..]).unwrap();
        let block = superblock.block_size.bytes() as u64;
        // The blocks that this crate reads: descriptors, bitmaps, the first inodes.
        let at = (superblock.descriptor_block(0).get() * block) as usize;
        let group =
            GroupDescriptor::parse(&bytes[at..at + usize::from(superblock.descriptor_size())]);
        let places = [
            group.block_bitmap,
            group.inode_bitmap,
            group.inode_table,
            superblock.descriptor_block(0),
        ];
        for seed in 0..60 {
            let random = SplitMix::new(seed);
            let mut damaged = pristine.clone();
            for _ in 0..1 + random.next() % 4 {
                let (start, length) = match random.next() % 6 {
                    0 | 1 => (1024, 0x290),
                    place => (places[place as usize - 2].get() * block, block.min(512)),
                };
                damaged.write(start + random.next() % length, &[random.next() as u8]);
            }
            println!("{kind:?} seed {seed}");
            let _ = use_image(damaged, seed);
        }
    }
}

/// Every byte of the superblock of a volume without checksums, set to values that tend to hurt.
#[test]
fn no_superblock_can_do_harm() {
    let bytes = TestImage::of(EXT3).bytes();
    for at in 1024..1024 + 0x290 {
        for value in [0, 1, 0x7f, 0xff] {
            let mut damaged = bytes[1024..2048].to_vec();
            damaged[at - 1024] = value;
            if let Ok(superblock) = VolumeSuperblock::parse(&damaged) {
                let _ = (
                    superblock.groups(),
                    superblock.descriptor_blocks(),
                    superblock.inode_table_blocks(),
                );
                for group in 0..superblock.groups().min(100) {
                    let _ = superblock.superblock_and_descriptors(units::GroupNumber(group));
                }
                for index in 0..superblock.descriptor_blocks().min(100) {
                    let _ = superblock.descriptor_block(index);
                }
            }
        }
    }
}

#[test]
fn what_is_no_volume_is_refused_with_the_reason() {
    let refuse = |bytes: &[u8]| use_volume(bytes, 1).unwrap_err().to_string();
    assert!(refuse(&vec![0; 1 << 20]).contains("not an ext4 volume"));
    assert!(refuse(&vec![0; 1024]).contains("truncated"));
    let bytes = TestImage::of(EXT4).bytes();
    let truncated = refuse(&bytes[..bytes.len() / 2]);
    assert!(
        truncated.contains("the image is truncated: the volume needs 67108864 bytes"),
        "{truncated}"
    );
    let mut flipped = bytes.clone();
    flipped[1024 + 0x70] ^= 1;
    assert!(refuse(&flipped).contains("the superblock's checksum"), "{}", refuse(&flipped));
}

#[test]
fn features_are_refused_by_name() {
    let made = |arguments| use_volume(&TestImage::of(Kind { arguments, size: "64M" }).bytes(), 1);
    for (arguments, name) in [
        ("-t ext4 -O encrypt", "encrypt"),
        ("-t ext4 -O casefold", "casefold"),
        ("-t ext4 -O bigalloc", "bigalloc"),
        ("-O journal_dev", "journal_dev"),
    ] {
        let error = made(arguments).unwrap_err();
        assert!(matches!(error, Error::Superblock(_)), "{name}: {error}");
        assert!(error.to_string().contains(name), "{name}: {error}");
    }
    for (arguments, name) in [("-t ext4 -O quota", "quota"), ("-t ext4 -O verity", "verity")] {
        let error = made(arguments).unwrap_err();
        assert!(
            matches!(&error, Error::OnlyReadable { names } if names.contains(&name.to_owned())),
            "{error}"
        );
    }
}

#[test]
fn a_volume_of_hurd_or_without_a_root_is_refused_with_the_reason() {
    let hurd = TestImage::of(Kind { arguments: "-t ext2 -o hurd", size: "16M" });
    let error = use_volume(&hurd.bytes(), 1).unwrap_err();
    assert!(error.to_string().contains("Hurd"), "{error}");
    for request in
        ["clri <2>", "set_inode_field <2> mode 0100644", "set_inode_field <2> links_count 0"]
    {
        let image = TestImage::of(EXT4);
        image.debugfs_write(request);
        let before = image.bytes();
        let error = use_volume(&before, 1).unwrap_err().to_string();
        assert!(error.contains("inode 2 ") && error.contains("run e2fsck"), "{request}: {error}");
    }
}

#[test]
fn unknown_features_are_refused_by_number() {
    let mut bytes = TestImage::of(EXT3).bytes();
    bytes[1024 + 0x62] |= 0x10;
    let error = use_volume(&bytes, 1).unwrap_err();
    assert!(error.to_string().contains("FEATURE_I20"), "{error}");
}

#[test]
fn a_damaged_orphan_list_does_not_hinder_opening() {
    let image = TestImage::of(EXT4_1K);
    image.debugfs_write("set_super_value last_orphan 4000000");
    use_volume(&image.bytes(), 1).unwrap();
    let image = TestImage::of(EXT3);
    image.debugfs_write("set_super_value last_orphan 12");
    use_volume(&image.bytes(), 1).unwrap();
}

/// The log may hold parts of the superblock, its checksum among them. They are replayed over what
/// home says.
#[test]
fn a_mark_of_damage_past_the_log_survives_the_replay_of_it() {
    for kind in [EXT4, EXT4_1K] {
        let image = TestImage::of(kind);
        image.in_world(1, async move |world, disk| {
            let engine = EngineOptions { data: DataMode::Wasteless, ..EngineOptions::default() };
            let options =
                VolumeOptions { engine, on_error: OnError::Stop, ..VolumeOptions::default() };
            let volume = open_volume(&world, &disk, None, options.clone()).await.unwrap();
            volume.set_label(b"one").await.unwrap();
            volume.engine().checkpoint().await.unwrap();
            volume.set_label(b"two").await.unwrap();
            let _ = volume.note_damage(Error::corrupt_inode(InodeNumber(12), "of the test"));
            world.sleep_until(world.now().plus(Duration::from_secs(1))).await;
            assert!(volume.needs_check());
            let disk = MemoryDisk::from_image(world.clone(), disk.crash(CrashPolicy::LoseAll));
            let volume = open_volume(&world, &disk, None, options).await.unwrap();
            assert!(volume.open_report().recovery.transactions > 0, "nothing was replayed");
            assert_eq!(volume.label(), b"two");
            assert!(volume.needs_check(), "the mark is gone");
            assert_ne!(volume.superblock().error_count, 0, "nobody counted the damage");
            let _ = volume.close().await;
        });
    }
}

/// No other program could replay the log or repair the volume if the descriptor of the journal's
/// inode were damaged.
#[test]
fn a_log_is_replayed_although_the_journals_descriptor_is_damaged() {
    for (kind, inode_too) in [(EXT4, false), (EXT4_1K, false), (EXT4, true)] {
        let image = TestImage::of(kind);
        let (virtual_world, world, disk) = image.world(1);
        let (repaired, path) = (image.path(), image.path());
        virtual_world.run(async move {
            let options = in_mode(DataMode::Wasteless);
            let volume = open_volume(&world, &disk, None, options.clone()).await.unwrap();
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            volume.mkdir(&root, b"kept", &Caller::ROOT, 0o755).await.unwrap();
            volume.sync().await.unwrap();
            let superblock = volume.superblock().clone();
            let mut left = disk.crash(CrashPolicy::LoseAll);
            let block = superblock.block_size.bytes() as u64;
            let descriptor = superblock.descriptor_block(0).get() * block;
            let mut bytes = [0; 64];
            left.read(descriptor, &mut bytes);
            match inode_too {
                // The journal's inode is the eighth.
                true => {
                    let table = GroupDescriptor::parse(&bytes).inode_table.get() * block;
                    left.fill(table + 7 * u64::from(superblock.inode_size), 60, 0xff);
                }
                // The upper half of the place of the inode table.
                false => left.write(descriptor + 0x28, &[0x55]),
            }
            let disk = MemoryDisk::from_image(world.clone(), left);
            let home = Rc::new(disk.clone());
            let parts = OpenParts { world: world.clone(), home, journal: None, options };
            let report = ext4::recover(&parts, false).await.unwrap();
            assert!(report.transactions > 0, "{report:?}");
            disk.write_image(&path).unwrap();
        });
        let checked = Command::new("e2fsck").args(["-fy"]).arg(&repaired).output().unwrap();
        let said = String::from_utf8_lossy(&checked.stdout);
        assert!(matches!(checked.status.code(), Some(0 | 1)), "{kind:?}: {said}");
        assert!(image.debugfs("ls -l /").contains("kept"), "{kind:?}: {said}");
    }
}

#[test]
fn a_reserve_of_more_than_all_blocks_is_refused() {
    let mut bytes = TestImage::of(EXT3).bytes();
    bytes[1024 + 0x8..][..4].fill(0xff);
    let error = use_volume(&bytes, 1).unwrap_err().to_string();
    assert!(error.contains("s_r_blocks_count"), "{error}");
}

/// Bits that one group marks as used or free would change the bitmap of the other.
#[test]
fn groups_that_share_a_bitmap_or_a_table_are_refused() {
    let kind = Kind { arguments: "-t ext4 -O ^metadata_csum,^uninit_bg -b 1024", size: "48M" };
    for field in ["block_bitmap", "inode_bitmap", "inode_table"] {
        let image = TestImage::of(kind);
        let bytes = image.bytes();
        let superblock = VolumeSuperblock::parse(&bytes[1024..]).unwrap();
        let at = superblock.descriptor_block(0).get() as usize * 1024;
        let first = GroupDescriptor::parse(&bytes[at..]);
        let place = match field {
            "block_bitmap" => first.inode_bitmap,
            "inode_bitmap" => first.inode_bitmap,
            _ => first.inode_table.plus(1),
        };
        image.debugfs_write(&format!("set_block_group 1 {field} {}", place.get()));
        let error = use_volume(&image.bytes(), 1).unwrap_err().to_string();
        assert!(error.contains("group"), "{field}: {error}");
        assert!(error.contains("another group"), "{field}: {error}");
    }
}
