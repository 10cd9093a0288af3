//! Names with one and the same hash, spread over several leaves of an index.

use crate::names::support::*;
use format::ext4::SUPERBLOCK_OFFSET;
use format::ext4::VolumeSuperblock;
use format::ext4::hash::{HashBytes, HashVersion, NameHasher};
use std::collections::BTreeMap;

/// The hash function of a volume.
fn hasher(image: &TestImage) -> NameHasher {
    let bytes = std::fs::read(image.path()).unwrap();
    let superblock = VolumeSuperblock::parse(&bytes[SUPERBLOCK_OFFSET as usize..][..1024]).unwrap();
    let version = HashVersion::new(superblock.default_hash_version).unwrap();
    NameHasher { version, bytes: HashBytes::new(superblock.flags), seed: superblock.hash_seed }
}

/// Long names, so that a leaf of 1 KiB holds three: pairs of equal hashes, each with a name just
/// above them.
fn triples(hasher: &NameHasher) -> Vec<[String; 3]> {
    let name = |number: u32| format!("{number:0250}");
    let mut by_hash = BTreeMap::<u32, Vec<u32>>::new();
    for number in 0..250_000 {
        by_hash.entry(hasher.hash(name(number).as_bytes()).major).or_default().push(number);
    }
    let pairs = by_hash.iter().filter(|(_, numbers)| numbers.len() == 2);
    let triple = |(hash, numbers): (&u32, &Vec<u32>)| {
        let (_, above) = by_hash.range(hash + 1..).next()?;
        Some([name(numbers[0]), name(numbers[1]), name(above[0])])
    };
    pairs.filter_map(triple).collect()
}

#[test]
fn names_of_one_hash_are_found_in_every_leaf_that_holds_them() {
    for version in ["half_md4", "legacy", "tea"] {
        let image = TestImage::of_inodes(EXT4_1K, "16M", 2000);
        image.debugfs_write(&format!("set_super_value def_hash_version {version}"));
        let triples = triples(&hasher(&image));
        assert!(triples.len() > 3, "{} collisions of {version}", triples.len());
        let count = triples.len();
        image.with(1, move |volume, _| async move {
            let root = volume.inode(ROOT).await.unwrap();
            for (number, names) in triples.iter().enumerate() {
                let directory = make_directory(&volume, &root, &format!("{number}")).await;
                // The first three fill the only block; the fourth makes it an index and splits the
                // leaf, between the two names of one hash.
                for name in names {
                    make_file(&volume, &directory, name).await;
                }
                make_file(&volume, &directory, &format!("{:0250}", 999_999)).await;
                for name in names {
                    volume.lookup(&directory, name.as_bytes()).await.unwrap();
                }
                for chunk in [1, 2, 100] {
                    let listed = list(&volume, &directory, chunk).await;
                    assert_eq!(listed.len(), 6);
                    for name in names {
                        assert_eq!(
                            listed.iter().filter(|entry| entry.name == name.as_bytes()).count(),
                            1
                        );
                    }
                }
            }
        });
        // At least one leaf begins with a hash that the leaf before has, too.
        let split = (0..count).any(|number| {
            let dump = image.debugfs(&format!("htree_dump /{number}"));
            dump.lines().any(|line| {
                line.trim().strip_prefix("Entry #").is_some_and(|rest| {
                    let hash = rest.split("0x").nth(1).unwrap_or("0");
                    let digits: String = hash.chars().take_while(char::is_ascii_hexdigit).collect();
                    u32::from_str_radix(&digits, 16).is_ok_and(|hash| hash & 1 == 1)
                })
            })
        });
        assert!(split, "no hash in two leaves with {version}");
        image.with(2, move |volume, _| async move {
            let root = volume.inode(ROOT).await.unwrap();
            for number in 0..count {
                let directory = volume.lookup(&root, format!("{number}").as_bytes()).await.unwrap();
                for name in names(&volume, &directory).await {
                    volume.unlink(&directory, &name).await.unwrap();
                }
                volume.rmdir(&root, format!("{number}").as_bytes()).await.unwrap();
            }
        });
    }
}
