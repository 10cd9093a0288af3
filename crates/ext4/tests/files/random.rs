//! Thousands of operations by chance, compared with a model.

use crate::image::{ALL, Kind, TestImage, with_volume};
use crate::model::ModelFile;
use std::cell::RefCell;
use std::rc::Rc;

const FILES: usize = 3;

/// Runs `steps` operations in rounds, closing and reopening the volume between them.
fn run(kind: Kind, seed: u64, rounds: u64, steps: usize, size_max: u64) {
    let image = TestImage::make(kind, "48M", FILES);
    let contents = Rc::new(RefCell::new(vec![Vec::new(); FILES]));
    for round in 0..rounds {
        let contents = contents.clone();
        let last = contents.clone();
        with_volume(&image, seed.wrapping_add(round), move |volume, inodes| async move {
            let mut files: Vec<ModelFile> = inodes
                .into_iter()
                .zip(contents.take())
                .map(|(inode, content)| ModelFile { inode, content, extents: kind.extents, size_max })
                .collect();
            let world = volume.engine().world().clone();
            for step in 0..steps {
                let index = world.random() as usize % FILES;
                // Shown only when the test fails.
                eprint!("{} seed {seed} round {round} step {step} file {index}: ", kind.name);
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
