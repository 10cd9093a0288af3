//! Directories with very many names.

use crate::names::support::{
    EXT4, EXT4_1K, Kind, LINEAR, ROOT, TestImage, list, make_directory, make_file, names,
};
use std::collections::BTreeSet;

fn name(number: u32) -> String {
    format!("file-{number:07}")
}

/// Makes `count` files in one directory, looks them all up, lists them, removes all but every
/// tenth.
fn grow_and_shrink(kind: Kind, size: &str, count: u32) {
    let image = TestImage::of_inodes(kind, size, count + 1000);
    image.with(1, move |volume, _| async move {
        let root = volume.inode(ROOT).await.unwrap();
        let directory = make_directory(&volume, &root, "large").await;
        for number in 0..count {
            make_file(&volume, &directory, &name(number)).await;
        }
    });
    image.with(2, move |volume, _| async move {
        let root = volume.inode(ROOT).await.unwrap();
        let directory = volume.lookup(&root, b"large").await.unwrap();
        for number in 0..count {
            volume.lookup(&directory, name(number).as_bytes()).await.unwrap();
        }
        let listed = list(&volume, &directory, 1000).await;
        assert_eq!(listed.len(), count as usize + 2);
        let distinct: BTreeSet<&[u8]> = listed.iter().map(|entry| &entry.name[..]).collect();
        assert_eq!(distinct.len(), listed.len());
        for number in (0..count).filter(|number| number % 10 != 0) {
            volume.unlink(&directory, name(number).as_bytes()).await.unwrap();
        }
        let left: Vec<Vec<u8>> =
            (0..count).step_by(10).map(|number| name(number).into_bytes()).collect();
        assert_eq!(names(&volume, &directory).await, left);
    });
}

#[test]
fn a_directory_holds_a_hundred_thousand_names() {
    grow_and_shrink(EXT4, "200M", 100_000);
}

#[test]
fn an_index_of_small_blocks_grows_to_two_levels() {
    grow_and_shrink(EXT4_1K, "40M", 30_000);
}

#[test]
fn a_linear_directory_of_many_blocks_works() {
    grow_and_shrink(LINEAR, "16M", 1500);
}

/// The soak: `cargo test -p ext4 --release --test all names -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn a_directory_holds_a_million_names() {
    grow_and_shrink(EXT4, "1G", 1_000_000);
}
