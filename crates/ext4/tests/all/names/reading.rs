//! Listing a directory while others change it.

use crate::names::support::*;
use ext4::Caller;
use std::collections::BTreeMap;

/// Volumes in which listings go different ways: by three hashes, two of them with one kind of byte,
/// and by offset.
fn images() -> Vec<(&'static str, TestImage)> {
    let make = |name, kind, version: Option<&str>| {
        let image = TestImage::of_inodes(kind, "24M", 8000);
        if let Some(version) = version {
            image.debugfs_write(&format!("set_super_value def_hash_version {version}"));
        }
        (name, image)
    };
    vec![
        make("half MD4", EXT4_1K, None),
        make("TEA", EXT4_1K, Some("tea")),
        make("legacy", EXT4_1K, Some("legacy")),
        make("large blocks", EXT4, None),
        make("linear", LINEAR, None),
    ]
}

#[test]
fn names_that_stay_are_listed_once_while_others_come_and_go() {
    for (kind, image) in images() {
        image.with(1, move |volume, world| async move {
            let root = volume.inode(ROOT).await.unwrap();
            let directory = make_directory(&volume, &root, "directory").await;
            let stable: Vec<String> = (0..700).map(|number| format!("stable-{number}")).collect();
            for (index, name) in stable.iter().enumerate() {
                make_file(&volume, &directory, name).await;
                if index % 3 == 0 {
                    make_file(&volume, &directory, &format!("goes-{index}")).await;
                }
            }
            for round in 0..4_u32 {
                let mut seen = BTreeMap::<Vec<u8>, u32>::new();
                let (mut cookie, mut chunk) = (0, 0);
                loop {
                    let count = 1 + device::World::random(&world) as usize % 20;
                    let entries = volume.readdir(&directory, cookie, count).await.unwrap();
                    let Some(last) = entries.last() else { break };
                    assert!(last.cookie < 1 << 63);
                    cookie = last.cookie;
                    for entry in entries {
                        *seen.entry(entry.name).or_default() += 1;
                    }
                    // In between, names come (which splits blocks) and go (which joins entries).
                    // Not for ever: in a linear directory they come behind all others.
                    let coming = if chunk < 1000 { 10 } else { 0 };
                    for _ in 0..coming {
                        let name = format!("comes-{round}-{chunk}-with-a-long-tail-to-fill-blocks");
                        chunk += 1;
                        make_file(&volume, &directory, &name).await;
                    }
                    let _ = volume
                        .unlink(&directory, format!("goes-{}", chunk / 10 * 3).as_bytes())
                        .await;
                }
                for name in stable.iter().map(String::as_str).chain([".", ".."]) {
                    assert_eq!(
                        seen.get(name.as_bytes()),
                        Some(&1),
                        "{name} in round {round}, {kind}"
                    );
                }
                assert!(seen.values().all(|times| *times == 1), "{kind}");
                for number in 0..chunk {
                    let name = format!("comes-{round}-{number}-with-a-long-tail-to-fill-blocks");
                    volume.unlink(&directory, name.as_bytes()).await.unwrap();
                }
            }
        });
    }
}

#[test]
fn removing_what_was_listed_empties_a_directory() {
    for (kind, image) in images() {
        image.with(1, move |volume, _| async move {
            let root = volume.inode(ROOT).await.unwrap();
            let directory = make_directory(&volume, &root, "directory").await;
            for number in 0..2000 {
                make_file(&volume, &directory, &format!("{number}")).await;
            }
            let mut cookie = 0;
            loop {
                let entries = volume.readdir(&directory, cookie, 30).await.unwrap();
                let Some(last) = entries.last() else { break };
                cookie = last.cookie;
                for entry in
                    entries.iter().filter(|entry| entry.name != b"." && entry.name != b"..")
                {
                    volume.unlink(&directory, &entry.name).await.unwrap();
                }
            }
            volume.rmdir(&root, b"directory").await.expect(kind);
        });
    }
}

#[test]
fn a_listing_survives_the_change_from_one_block_to_an_index() {
    TestImage::of_inodes(EXT4_1K, "8M", 500).with(1, |volume, _| async move {
        let root = volume.inode(ROOT).await.unwrap();
        let directory = make_directory(&volume, &root, "directory").await;
        let stable: Vec<String> = (0..30).map(|number| format!("stable-{number}")).collect();
        for name in &stable {
            make_file(&volume, &directory, name).await;
        }
        let mut entries = volume.readdir(&directory, 0, 10).await.unwrap();
        for number in 0..300 {
            make_file(&volume, &directory, &format!("new-{number}")).await;
        }
        let mut rest = entries.last().unwrap().cookie;
        loop {
            let more = volume.readdir(&directory, rest, 10).await.unwrap();
            let Some(last) = more.last() else { break };
            rest = last.cookie;
            entries.extend(more);
        }
        for name in &stable {
            let times = entries.iter().filter(|entry| entry.name == name.as_bytes()).count();
            assert_eq!(times, 1, "{name}");
        }
    });
}

#[test]
fn a_listing_with_inodes_gives_those_of_the_names() {
    TestImage::of_inodes(EXT4, "8M", 500).with(1, |volume, _| async move {
        let root = volume.inode(ROOT).await.unwrap();
        for number in 0..100 {
            volume
                .mknod(&root, format!("{number}").as_bytes(), &Caller::ROOT, REGULAR, 0)
                .await
                .unwrap();
        }
        let listed = volume.readdirplus(&root, 0, 1000).await.unwrap();
        assert_eq!(listed.len(), 103);
        for (entry, inode) in listed {
            let is_dots = entry.name == b"." || entry.name == b"..";
            assert_eq!(inode.is_none(), is_dots);
            assert!(inode.is_none_or(|inode| inode.number == entry.inode));
        }
    });
}
