//! Comparison of our geometry with that of dumpe2fs.

use crate::volume::image::{ALL, Kind, TestImage, open};
use ext4::Access;
use format::ext4::{GroupDescriptor, VolumeSuperblock};
use std::future::poll_fn;
use std::pin::pin;
use units::GroupNumber;

fn field(text: &str, name: &str) -> u64 {
    let line = text
        .lines()
        .find(|line| line.starts_with(name))
        .unwrap_or_else(|| panic!("no {name} in {text}"));
    line[name.len()..].split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn superblock_says_what_dumpe2fs_says() {
    for kind in ALL {
        let image = TestImage::of(kind);
        let superblock = VolumeSuperblock::parse(&image.bytes()[1024..]).unwrap();
        let text = image.dumpe2fs();
        let numbers = [
            ("Inode count:", u64::from(superblock.inodes)),
            ("Block count:", superblock.blocks),
            ("Reserved block count:", superblock.reserved_blocks),
            ("Free blocks:", superblock.free_blocks),
            ("Free inodes:", superblock.free_inodes.into()),
            ("First block:", superblock.first_data_block.into()),
            ("Block size:", superblock.block_size.bytes() as u64),
            ("Blocks per group:", superblock.blocks_per_group.into()),
            ("Inodes per group:", superblock.inodes_per_group.into()),
            ("Inode blocks per group:", superblock.inode_table_blocks().into()),
            ("Inode size:", superblock.inode_size.into()),
            ("Journal inode:", superblock.journal_inode.into()),
            ("First inode:", superblock.first_inode.into()),
        ];
        for (name, ours) in numbers {
            assert_eq!(ours, field(&text, name), "{name} of {kind:?}");
        }
        let line = text.lines().find(|line| line.starts_with("Filesystem features:")).unwrap();
        let mut theirs: Vec<&str> = line.split_whitespace().skip(2).collect();
        let mut ours: Vec<&str> = format::ext4::features::FEATURES
            .iter()
            .filter(|row| superblock.features.has(row.feature))
            .map(|row| row.name)
            .collect();
        theirs.sort_unstable();
        ours.sort_unstable();
        assert_eq!(ours, theirs, "{kind:?}");
        assert_eq!(&superblock.serialize()[..], &image.bytes()[1024..2048], "{kind:?}");
    }
}

#[test]
fn group_descriptors_say_what_dumpe2fs_says() {
    for kind in ALL {
        let image = TestImage::of(kind);
        let bytes = image.bytes();
        let superblock = VolumeSuperblock::parse(&bytes[1024..]).unwrap();
        let text = image.dumpe2fs();
        let groups: Vec<&str> = text
            .split("\nGroup ")
            .filter(|part| part.starts_with(|c: char| c.is_ascii_digit()))
            .collect();
        assert_eq!(groups.len(), superblock.groups() as usize, "{kind:?}");
        for (index, theirs) in groups.iter().enumerate() {
            let group = GroupNumber(index as u32);
            let per_block = superblock.descriptors_per_block();
            let block = superblock.descriptor_block(group.get() / per_block).get() as usize;
            let size = usize::from(superblock.descriptor_size());
            let start =
                block * superblock.block_size.bytes() + (group.get() % per_block) as usize * size;
            let raw = &bytes[start..start + size];
            let ours = GroupDescriptor::parse(raw);
            ours.check(raw, group, &superblock)
                .unwrap_or_else(|why| panic!("{group} of {kind:?}: {why}"));
            let mut again = raw.to_vec();
            ours.serialize(&mut again, group, &superblock);
            assert_eq!(again, raw, "{group} of {kind:?}");
            let first = superblock.group_start(group).get();
            let last = first + u64::from(superblock.blocks_in_group(group)) - 1;
            let table_end = ours.inode_table.get() + u64::from(superblock.inode_table_blocks()) - 1;
            let mut expected = vec![
                format!("(Blocks {first}-{last})"),
                format!("Block bitmap at {}", ours.block_bitmap.get()),
                format!("Inode bitmap at {}", ours.inode_bitmap.get()),
                format!("Inode table at {}-{table_end}", ours.inode_table.get()),
                format!(
                    "{} free blocks, {} free inodes, {} directories",
                    ours.free_blocks, ours.free_inodes, ours.directories
                ),
            ];
            if ours.unused_inodes > 0 {
                expected.push(format!("{} unused inodes", ours.unused_inodes));
            }
            assert_eq!(
                superblock.has_superblock(group),
                theirs.contains(" superblock at "),
                "{theirs}"
            );
            for line in expected {
                assert!(theirs.contains(&line), "{kind:?}: no `{line}` in {theirs}");
            }
        }
    }
}

#[test]
fn a_torn_superblock_is_the_old_one_or_the_new_one() {
    for kind in ALL {
        let bytes = TestImage::of(kind).bytes();
        let old = VolumeSuperblock::parse(&bytes[1024..]).unwrap();
        let mut new = old.clone();
        new.features.set(format::ext4::feature::RECOVER);
        (new.mount_time, new.mount_count, new.last_orphan) = (77, 8, 13);
        let (before, after) = (old.serialize(), new.serialize());
        assert_eq!(VolumeSuperblock::parse(&after).unwrap().serialize(), after);
        let torn = [&after[..512], &before[512..]].concat();
        assert_eq!(VolumeSuperblock::parse(&torn).unwrap().last_orphan, 13);
        let torn = [&before[..512], &after[512..]].concat();
        assert_eq!(VolumeSuperblock::parse(&torn).unwrap().last_orphan, 0);
    }
}

#[test]
fn pointers_of_32_bits_reach_the_groups_that_lie_below_two_to_the_32nd() {
    for kind in ALL {
        let mut superblock = VolumeSuperblock::parse(&TestImage::of(kind).bytes()[1024..]).unwrap();
        assert_eq!(superblock.groups_for_pointers(), superblock.groups(), "{kind:?}");
        for blocks in [(1 << 32) + 1, 1 << 33] {
            superblock.blocks = blocks;
            let groups = superblock.groups_for_pointers();
            let start = |group| superblock.group_start(GroupNumber(group)).get();
            assert!(start(groups) <= 1 << 32 && start(groups + 1) > 1 << 32, "{kind:?}");
        }
    }
}

/// The descriptors come with one request, so nothing else would let another task run.
#[test]
fn a_volume_of_many_groups_is_opened_in_steps() {
    const GROUPS: u64 = 16 << 10;
    const ARGUMENTS: &str =
        "-t ext4 -b 1024 -g 1024 -N 131072 -O ^resize_inode,meta_bg -E lazy_itable_init=1";
    let image = TestImage::of(Kind { arguments: ARGUMENTS, size: "16G" });
    let steps = image.in_world(1, async |world, disk| {
        let mut opened = pin!(open(&world, &disk, Access::ReadOnly));
        let mut steps = 0;
        let volume = poll_fn(|context| {
            steps += 1;
            opened.as_mut().poll(context)
        });
        let volume = volume.await.unwrap();
        assert_eq!(u64::from(volume.superblock().groups()), GROUPS);
        volume.close().await.unwrap();
        steps
    });
    assert!(steps > 3 * GROUPS / 1024, "{steps} steps");
}
