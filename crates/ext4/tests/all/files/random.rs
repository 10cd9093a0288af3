//! Thousands of operations by chance, compared with a model.

use crate::files::image::{ALL, Kind, MODES, TestImage, with_volume, with_volume_in};
use crate::files::model::ModelFile;
use ext4::{Caller, RangeMode, WriteFlags};
use std::cell::RefCell;
use std::rc::Rc;

const FILES: usize = 3;

/// Runs `steps` operations in rounds, closing and reopening the volume between them.
fn run(kind: Kind, seed: u64, rounds: u64, steps: usize, size_max: u64) {
    let image = TestImage::of_files(kind, "48M", FILES);
    let contents = Rc::new(RefCell::new(vec![Vec::new(); FILES]));
    for round in 0..rounds {
        let contents = contents.clone();
        let last = contents.clone();
        let mode = MODES[(seed + round) as usize % MODES.len()];
        with_volume_in(mode, &image, seed + round, move |volume, inodes| async move {
            let mut files: Vec<ModelFile> = inodes
                .into_iter()
                .zip(contents.take())
                .map(|(inode, content)| ModelFile {
                    inode,
                    content,
                    extents: kind.extents,
                    size_max,
                })
                .collect();
            let world = volume.engine().world().clone();
            for step in 0..steps {
                let index = world.random() as usize % FILES;
                // Shown only when the test fails.
                eprint!(
                    "{} {mode:?} seed {seed} round {round} step {step} file {index}: ",
                    kind.name
                );
                eprintln!("{}", files[index].step(&volume, &*world, kind.block).await);
            }
            for file in &files {
                file.read(&volume, 0, usize::MAX).await;
            }
            contents.replace(files.into_iter().map(|file| file.content).collect());
        });
        for (index, content) in last.borrow().iter().enumerate() {
            assert!(
                image.dump(index) == *content,
                "debugfs reads f{index} otherwise, {} round {round}",
                kind.name
            );
        }
    }
}

#[test]
fn files_hold_what_a_model_holds_after_any_operations() {
    for (index, kind) in ALL.into_iter().enumerate() {
        run(kind, 1000 + index as u64, 4, 600, 150 * kind.block);
    }
}

#[test]
fn short_files_hold_what_a_model_holds() {
    for (index, kind) in ALL.into_iter().enumerate() {
        run(kind, 2000 + index as u64, 3, 500, 5 * kind.block);
    }
}

/// The place of the first block of `f0` in the image, in bytes.
fn first_block(image: &TestImage, kind: Kind) -> u64 {
    let block: u64 = image.debugfs("bmap f0 0").trim().parse().unwrap();
    block * kind.block
}

#[test]
fn bytes_behind_the_end_never_show_when_the_file_grows() {
    for kind in ALL {
        for way in 0..3 {
            let image = TestImage::of_files(kind, "16M", 1);
            with_volume(&image, 1, |volume, inodes| async move {
                let flags = WriteFlags::default();
                volume.write(&inodes[0], &Caller::ROOT, 0, b"abc", flags).await.unwrap();
            });
            let mut bytes = disks::Image::read_file(&image.path()).unwrap();
            let at = first_block(&image, kind);
            bytes.write(at + 3, &[0xee; 500]);
            bytes.write_file(&image.path()).unwrap();
            with_volume(&image, 2, move |volume, inodes| async move {
                let (file, caller) = (&inodes[0], &Caller::ROOT);
                let _ = match way {
                    0 => volume.truncate(file, 400).await.unwrap(),
                    1 => {
                        volume
                            .write(file, caller, 399, &[0], WriteFlags::default())
                            .await
                            .unwrap()
                            .transaction
                    }
                    _ if !kind.extents => volume.truncate(file, 400).await.unwrap(),
                    _ => volume
                        .fallocate(file, caller, RangeMode::Allocate, false, 0, 400)
                        .await
                        .unwrap(),
                };
                let mut expected = b"abc".to_vec();
                expected.resize(400, 0);
                assert_eq!(
                    volume.read(file, 0, 1000).await.unwrap().to_vec(),
                    expected,
                    "{} {way}",
                    kind.name
                );
            });
        }
    }
}

#[test]
fn a_shorter_file_leaves_zeros_behind_its_end_on_the_disk() {
    for kind in ALL {
        let image = TestImage::of_files(kind, "16M", 1);
        with_volume(&image, 1, |volume, inodes| async move {
            let flags = WriteFlags::default();
            volume.write(&inodes[0], &Caller::ROOT, 0, &[0xaa; 20_000], flags).await.unwrap();
            volume.truncate(&inodes[0], 100).await.unwrap();
        });
        let mut block = vec![1; kind.block as usize];
        disks::Image::read_file(&image.path()).unwrap().read(first_block(&image, kind), &mut block);
        assert!(
            block[..100].iter().all(|byte| *byte == 0xaa)
                && block[100..].iter().all(|byte| *byte == 0)
        );
    }
}
