//! The kernel's ext4 as judge and as author: healthy images on a loop device, in a mount namespace
//! of their own.

use crate::image::succeed;
use crate::names::model::{self, TreeState};
use crate::names::support::*;
use ext4::Caller;
use std::process::Command;

/// The tree that the kernel finds in a volume.
pub fn walk(image: &TestImage) -> TreeState {
    let listed = image.mounted(
        "ro",
        r"find . -mindepth 1 -path ./lost+found -prune -o -printf '/%P\t%y\t%i\t%n\t%l\n'",
    );
    let entry = |line: &str| {
        let mut fields = line.split('\t').map(str::to_string);
        let mut next = || fields.next().unwrap();
        let (path, kind, inode, links, target) = (next(), next(), next(), next(), next());
        (
            path,
            (kind.chars().next().unwrap(), inode.parse().unwrap(), links.parse().unwrap(), target),
        )
    };
    listed.lines().map(entry).filter(|(path, _)| path != "/").collect()
}

#[test]
fn directories_made_by_the_kernel_are_read_and_changed() {
    for kind in [EXT4, EXT4_1K, EXT3] {
        let image = TestImage::of_inodes(kind, "64M", 9000);
        image.mounted("rw",
            "mkdir large small; (cd large; seq -f 'file-%05g' 1 6000 | xargs touch; rm file-0001*; mkdir below)
            touch small/x; ln small/x small/y; ln -s x small/z; mkfifo small/pipe; mknod small/null c 1 3
            mknod small/disk b 259 70000; for i in $(seq 100); do ln -s $(printf '%0150d' $i) small/long-$i; done",
        );
        image.check();
        let expected = walk(&image);
        assert!(expected.len() > 6000);
        image.with(1, move |volume, _| async move {
            let root = volume.inode(ROOT).await.unwrap();
            let small = volume.lookup(&root, b"small").await.unwrap();
            for (name, device) in
                [("null", 1 << 8 | 3), ("disk", 70_000 & 0xff | 259 << 8 | (70_000 & !0xff) << 12)]
            {
                let inode = volume.lookup(&small, name.as_bytes()).await.unwrap();
                assert_eq!(volume.getattr(&inode).device, device, "{name}");
                volume.unlink(&small, name.as_bytes()).await.unwrap();
            }
            volume.unlink(&small, b"pipe").await.unwrap();
            let mut left = expected.clone();
            left.retain(|path, _| {
                !["/small/null", "/small/disk", "/small/pipe"].contains(&path.as_str())
            });
            assert_eq!(model::walk(&volume).await, left);
            let large = volume.lookup(&root, b"large").await.unwrap();
            for number in (1..6000).filter(|number| number % 3 == 0 && !(10..20).contains(number)) {
                let (old, new) =
                    (format!("file-{number:05}"), format!("renamed-to-something-longer-{number}"));
                let mode = ext4::RenameMode::NoReplace;
                let ends = ((&large, old.as_bytes()), (&large, new.as_bytes()));
                volume.rename(ends.0, ends.1, &Caller::ROOT, mode).await.unwrap();
            }
            for number in 0..1000 {
                make_file(&volume, &large, &format!("new-{number}")).await;
            }
        });
        let ours = image.with(2, |volume, _| async move { model::walk(&volume).await });
        assert_eq!(walk(&image), ours);
        // The kernel goes on where we stopped.
        image.mounted(
            "rw",
            "cd large; rm -r new-*; seq -f 'again-%05g' 1 2000 | xargs touch; rm renamed-*",
        );
        image.check();
    }
}

#[test]
fn a_name_made_while_indexes_were_off_is_found_by_the_kernel() {
    let image = TestImage::of_inodes(UNCHECKED, "16M", 400);
    image.mounted("rw", "mkdir d; seq -f 'd/file-%020g' 1 200 | xargs touch; rm d/file-*0");
    let features = |change: &str| {
        succeed(Command::new("tune2fs").args(["-O", change]).arg(image.path()));
    };
    features("^dir_index");
    image.with(1, |volume, _| async move {
        let root = volume.inode(ROOT).await.unwrap();
        let directory = volume.lookup(&root, b"d").await.unwrap();
        for number in 0..5 {
            make_file(&volume, &directory, &format!("new-{number}")).await;
        }
    });
    features("dir_index");
    image.mounted("ro", "for i in 0 1 2 3 4; do test -e d/new-$i; done");
}
