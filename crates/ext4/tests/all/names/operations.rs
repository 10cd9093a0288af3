//! Results and errors of each call.

use crate::names::support::*;
use ext4::{Caller, FileType, Inode, RenameMode, Volume};
use std::rc::Rc;
use units::Refusal;

fn links(inode: &Inode) -> u16 {
    inode.fields.borrow().links
}
async fn root(volume: &Volume) -> Rc<Inode> {
    volume.inode(ROOT).await.unwrap()
}
async fn rename(
    volume: &Rc<Volume>,
    from: (&Rc<Inode>, &str),
    to: (&Rc<Inode>, &str),
    mode: RenameMode,
) -> ext4::Result<()> {
    let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
    volume.rename(from, to, &Caller::ROOT, mode).await.map(|_| ())
}

#[test]
fn every_kind_of_file_is_made_and_found() {
    for kind in ALL {
        let image = TestImage::of_inodes(kind, "8M", 100);
        image.with(1, move |volume, _| async move {
            let root = root(&volume).await;
            let caller = Caller { uid: 1000, gid: 70_000, umask: 0o027, labels: &[] };
            let made = [
                ("regular", 0o100_666, 0, FileType::Regular),
                ("fifo", 0o010_666, 0, FileType::Fifo),
                ("socket", 0o140_666, 0, FileType::Socket),
                ("null", 0o020_666, 0x103, FileType::CharacterDevice),
                ("disk", 0o060_666, 0x1234_5678, FileType::BlockDevice),
            ];
            for (name, mode, rdev, _) in made {
                let inode =
                    volume.mknod(&root, name.as_bytes(), &caller, mode, rdev).await.unwrap().value;
                let attributes = volume.getattr(&inode);
                assert_eq!((attributes.mode, attributes.device), (mode & !0o027, rdev), "{name}");
                assert_eq!((attributes.uid, attributes.gid), (1000, 70_000));
                assert!(Rc::ptr_eq(&inode, &volume.lookup(&root, name.as_bytes()).await.unwrap()));
            }
            let listed = list(&volume, &root, 3).await;
            for (name, _, _, file_type) in made {
                let entry = listed.iter().find(|entry| entry.name == name.as_bytes()).expect(name);
                let expected = if kind.0 == UNTYPED.0 { FileType::Unknown } else { file_type };
                assert_eq!(entry.file_type, expected, "{name}");
            }
        });
        let device = image.debugfs("stat /disk");
        assert!(device.contains("Device major"), "{device}");
    }
}

#[test]
fn symbolic_links_of_every_length_are_read_back() {
    for kind in ALL {
        let image = TestImage::of_inodes(kind, "8M", 100);
        image.with(1, |volume, _| async move {
            let root = root(&volume).await;
            for length in [1, 58, 59, 60, 61, 100, volume.block_size().bytes() - 1] {
                let (name, target) = (format!("link-{length}"), vec![b'x'; length]);
                let link = volume
                    .symlink(&root, name.as_bytes(), &Caller::ROOT, &target)
                    .await
                    .unwrap()
                    .value;
                assert_eq!(volume.readlink(&link).await.unwrap(), target);
            }
            let too_long = vec![b'x'; volume.block_size().bytes()];
            let refused = volume.symlink(&root, b"too-long", &Caller::ROOT, &too_long).await;
            assert_refused(refused, Refusal::NameTooLong);
            let file = make_file(&volume, &root, "file").await;
            assert_refused(volume.readlink(&file).await, Refusal::Invalid);
        });
        let again = image.debugfs("stat /link-100");
        assert!(again.contains("Type: symlink") && again.contains("Size: 100"), "{again}");
        image.with(2, |volume, _| async move {
            let root = root(&volume).await;
            for length in [59, 60, 100] {
                let link = volume.lookup(&root, format!("link-{length}").as_bytes()).await.unwrap();
                assert_eq!(volume.readlink(&link).await.unwrap(), vec![b'x'; length]);
                volume.unlink(&root, format!("link-{length}").as_bytes()).await.unwrap();
            }
        });
    }
}

#[test]
fn names_that_cannot_be_are_refused() {
    TestImage::of_inodes(EXT4, "8M", 100).with(1, |volume, _| async move {
        let root = root(&volume).await;
        let file = make_file(&volume, &root, "file").await;
        let long = vec![b'n'; 256];
        assert_refused(volume.lookup(&root, &long).await, Refusal::NameTooLong);
        assert_refused(
            volume.mknod(&root, &long, &Caller::ROOT, REGULAR, 0).await.map(|_| ()),
            Refusal::NameTooLong,
        );
        make_file(&volume, &root, &"n".repeat(255)).await;
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert_refused(volume.mkdir(&root, name, &Caller::ROOT, 0o755).await, Refusal::Invalid);
            assert_refused(volume.unlink(&root, name).await, Refusal::Invalid);
        }
        assert_refused(volume.lookup(&root, b"nothing").await, Refusal::NotFound);
        assert_refused(volume.lookup(&file, b"name").await, Refusal::NotDirectory);
        assert_refused(volume.readdir(&file, 0, 10).await, Refusal::NotDirectory);
        assert_refused(volume.mkdir(&root, b"file", &Caller::ROOT, 0o755).await, Refusal::Exists);
    });
}

#[test]
fn links_and_removals_keep_count() {
    for kind in [EXT4, EXT3] {
        TestImage::of_inodes(kind, "8M", 100).with(1, |volume, _| async move {
            let root = root(&volume).await;
            let before = links(&root);
            let directory = make_directory(&volume, &root, "directory").await;
            assert_eq!((links(&root), links(&directory)), (before + 1, 2));
            let file = make_file(&volume, &directory, "file").await;
            volume.link(&file, &root, b"other", &Caller::ROOT).await.unwrap();
            assert_eq!(links(&file), 2);
            assert_refused(
                volume.link(&file, &root, b"other", &Caller::ROOT).await,
                Refusal::Exists,
            );
            assert_refused(
                volume.link(&directory, &root, b"again", &Caller::ROOT).await,
                Refusal::NotPermitted,
            );
            assert_refused(volume.rmdir(&root, b"directory").await, Refusal::NotEmpty);
            assert_refused(volume.unlink(&root, b"directory").await, Refusal::IsDirectory);
            assert_refused(volume.rmdir(&root, b"other").await, Refusal::NotDirectory);
            volume.unlink(&directory, b"file").await.unwrap();
            assert_eq!(links(&file), 1);
            volume.rmdir(&root, b"directory").await.unwrap();
            assert_eq!((links(&root), links(&directory)), (before, 0));
            assert_refused(
                volume.mkdir(&directory, b"late", &Caller::ROOT, 0o755).await,
                Refusal::NotFound,
            );
            assert!(volume.readdir(&directory, 0, 10).await.unwrap().is_empty());
        });
    }
}

#[test]
fn an_open_file_outlives_its_name_and_not_its_descriptor() {
    let image = TestImage::of_inodes(EXT4, "8M", 100);
    image.with(1, |volume, _| async move {
        let root = root(&volume).await;
        let free = volume.statfs().await.unwrap().inodes_free;
        let file = make_file(&volume, &root, "file").await;
        volume.opened(&file);
        volume.unlink(&root, b"file").await.unwrap();
        assert_eq!(volume.statfs().await.unwrap().inodes_free, free - 1);
        volume.closed(file.number).await.unwrap();
        assert_eq!(volume.statfs().await.unwrap().inodes_free, free);
    });
}

#[test]
fn a_nameless_file_can_be_given_a_name() {
    for kind in [EXT4, EXT3] {
        TestImage::of_inodes(kind, "8M", 100).with(1, |volume, _| async move {
            let root = root(&volume).await;
            let free = volume.statfs().await.unwrap().inodes_free;
            let kept = volume.tmpfile(&root, &Caller::ROOT, 0o600).await.unwrap().value;
            let dropped = volume.tmpfile(&root, &Caller::ROOT, 0o600).await.unwrap().value;
            volume.opened(&kept);
            volume.opened(&dropped);
            assert_eq!((links(&kept), links(&dropped)), (0, 0));
            volume.link(&kept, &root, b"kept", &Caller::ROOT).await.unwrap();
            for inode in [kept, dropped] {
                volume.closed(inode.number).await.unwrap();
            }
            assert_eq!(volume.statfs().await.unwrap().inodes_free, free - 1);
            assert_eq!(names(&volume, &root).await, [&b"kept"[..], b"lost+found"]);
        });
    }
}

#[test]
fn set_group_id_directories_hand_down_their_group() {
    TestImage::of_inodes(EXT4, "8M", 100).with(1, |volume, _| async move {
        let root = root(&volume).await;
        let caller = Caller { uid: 1, gid: 50, ..Caller::ROOT };
        let shared = volume.mkdir(&root, b"shared", &caller, 0o2775).await.unwrap().value;
        let other = Caller { uid: 2, gid: 60, ..Caller::ROOT };
        let file = volume.mknod(&shared, b"file", &other, REGULAR, 0).await.unwrap().value;
        let below = volume.mkdir(&shared, b"below", &other, 0o755).await.unwrap().value;
        assert_eq!((file.fields.borrow().gid, file.fields.borrow().mode), (50, REGULAR));
        assert_eq!((below.fields.borrow().gid, below.fields.borrow().mode), (50, 0o042_755));
    });
}

#[test]
fn renames_obey_their_rules() {
    for kind in [EXT4, EXT3, UNTYPED] {
        TestImage::of_inodes(kind, "8M", 100).with(1, |volume, _| async move {
            let root = root(&volume).await;
            let (a, b) = (
                make_directory(&volume, &root, "a").await,
                make_directory(&volume, &root, "b").await,
            );
            let below = make_directory(&volume, &a, "below").await;
            let file = make_file(&volume, &a, "file").await;
            let other = make_file(&volume, &b, "other").await;
            use RenameMode::*;
            for (from, to, mode, refusal) in [
                ((&a, "none"), (&b, "x"), Replace, Refusal::NotFound),
                ((&a, "file"), (&b, "other"), NoReplace, Refusal::Exists),
                ((&a, "file"), (&b, "none"), Exchange, Refusal::NotFound),
                ((&a, "file"), (&root, "b"), Replace, Refusal::IsDirectory),
                ((&a, "below"), (&b, "other"), Replace, Refusal::NotDirectory),
                ((&root, "a"), (&below, "x"), Replace, Refusal::Invalid),
                ((&root, "a"), (&a, "x"), Replace, Refusal::Invalid),
                ((&a, "below"), (&root, "a"), Replace, Refusal::NotEmpty),
                ((&a, "below"), (&root, "a"), Exchange, Refusal::Invalid),
                ((&root, "b"), (&root, "a"), Replace, Refusal::NotEmpty),
            ] {
                let why = rename(&volume, from, to, mode).await.unwrap_err().refusal();
                assert_eq!(why, Some(refusal), "{} to {}, {mode:?}", from.1, to.1);
            }
            // A file over a file.
            rename(&volume, (&a, "file"), (&b, "other"), Replace).await.unwrap();
            assert_eq!((links(&file), links(&other)), (1, 0));
            assert!(Rc::ptr_eq(&volume.lookup(&b, b"other").await.unwrap(), &file));
            // Two names of one file: nothing happens.
            volume.link(&file, &a, b"twin", &Caller::ROOT).await.unwrap();
            rename(&volume, (&a, "twin"), (&b, "other"), Replace).await.unwrap();
            assert_eq!((links(&file), names(&volume, &a).await.len()), (2, 2));
            // A directory to another one.
            rename(&volume, (&a, "below"), (&b, "moved"), Replace).await.unwrap();
            assert_eq!((links(&a), links(&b)), (2, 3));
            assert!(Rc::ptr_eq(&volume.lookup(&below, b"..").await.unwrap(), &b));
            // A directory and a file change places.
            rename(&volume, (&a, "twin"), (&b, "moved"), Exchange).await.unwrap();
            assert_eq!((links(&a), links(&b)), (3, 2));
            assert!(Rc::ptr_eq(&volume.lookup(&below, b"..").await.unwrap(), &a));
            assert!(Rc::ptr_eq(&volume.lookup(&b, b"moved").await.unwrap(), &file));
            // A directory over an empty one, within one directory and across.
            let empty = make_directory(&volume, &a, "empty").await;
            rename(&volume, (&a, "twin"), (&a, "empty"), Replace).await.unwrap();
            assert_eq!((links(&a), links(&empty)), (3, 0));
            make_directory(&volume, &b, "empty").await;
            rename(&volume, (&a, "empty"), (&b, "empty"), Replace).await.unwrap();
            assert_eq!((links(&a), links(&b)), (2, 3));
            // A whiteout stays behind.
            rename(&volume, (&b, "moved"), (&a, "gone"), Whiteout).await.unwrap();
            let whiteout = volume.lookup(&b, b"moved").await.unwrap();
            assert_eq!(
                (whiteout.fields.borrow().mode & 0o170_000, volume.getattr(&whiteout).device),
                (0o020_000, 0)
            );
            assert_refused(
                rename(&volume, (&a, "gone"), (&b, "moved"), NoReplaceWhiteout).await,
                Refusal::Exists,
            );
            rename(&volume, (&a, "gone"), (&a, "went"), NoReplaceWhiteout).await.unwrap();
            assert_eq!(volume.lookup(&a, b"gone").await.unwrap().kind(), 0o020_000);
            // Within one directory, new name or taken one.
            rename(&volume, (&b, "other"), (&b, "renamed"), NoReplace).await.unwrap();
            rename(&volume, (&b, "renamed"), (&b, "moved"), Exchange).await.unwrap();
            assert_eq!(names(&volume, &b).await, [&b"empty"[..], b"moved", b"renamed"]);
        });
    }
}

/// The new name is put between the old one and the name before it, whose entry would otherwise take
/// over the space of both.
#[test]
fn a_rename_to_the_space_before_its_old_name_keeps_the_new_one() {
    for kind in ALL {
        TestImage::of_inodes(kind, "8M", 100).with(1, |volume, _| async move {
            let directory = make_directory(&volume, &root(&volume).await, "directory").await;
            for name in ["first", "gap", "old", "last"] {
                make_file(&volume, &directory, name).await;
            }
            volume.unlink(&directory, b"gap").await.unwrap();
            rename(&volume, (&directory, "old"), (&directory, "new"), RenameMode::Replace)
                .await
                .unwrap();
            assert_eq!(names(&volume, &directory).await, [&b"first"[..], b"last", b"new"]);
        });
    }
}

#[test]
fn flags_forbid_changes() {
    let image = TestImage::of_inodes(EXT4, "8M", 100);
    image.with(1, |volume, _| async move {
        let root = root(&volume).await;
        for name in ["immutable", "append"] {
            let directory = make_directory(&volume, &root, name).await;
            make_file(&volume, &directory, "file").await;
        }
        make_file(&volume, &root, "fixed").await;
    });
    image.debugfs_write("set_inode_field /immutable flags 0x80010");
    image.debugfs_write("set_inode_field /append flags 0x80020");
    image.debugfs_write("set_inode_field /fixed flags 0x80010");
    image.with(2, |volume, _| async move {
        let root = root(&volume).await;
        let immutable = volume.lookup(&root, b"immutable").await.unwrap();
        let append = volume.lookup(&root, b"append").await.unwrap();
        let fixed = volume.lookup(&root, b"fixed").await.unwrap();
        assert_refused(
            volume.mkdir(&immutable, b"x", &Caller::ROOT, 0o755).await,
            Refusal::NotPermitted,
        );
        assert_refused(volume.unlink(&immutable, b"file").await, Refusal::NotPermitted);
        assert_refused(volume.unlink(&append, b"file").await, Refusal::NotPermitted);
        make_file(&volume, &append, "more").await;
        let from = (&append, "file");
        assert_refused(
            rename(&volume, from, (&root, "y"), RenameMode::Replace).await,
            Refusal::NotPermitted,
        );
        assert_refused(volume.unlink(&root, b"fixed").await, Refusal::NotPermitted);
        assert_refused(
            volume.link(&fixed, &root, b"z", &Caller::ROOT).await,
            Refusal::NotPermitted,
        );
        assert_refused(volume.rmdir(&root, b"immutable").await, Refusal::NotPermitted);
    });
}

#[test]
fn a_full_volume_refuses_names_and_stays_whole() {
    for kind in [EXT4_1K, EXT3_1K] {
        let image = TestImage::of_inodes(kind, "4M", 4000);
        image.with(1, |volume, _| async move {
            let root = root(&volume).await;
            let nobody = Caller { uid: 1000, gid: 1000, ..Caller::ROOT };
            let mut made = 0;
            let refused = loop {
                let (name, target) = (format!("{made:0200}"), [b't'; 500]);
                match volume.symlink(&root, name.as_bytes(), &nobody, &target).await {
                    Ok(_) => made += 1,
                    Err(error) => break error,
                }
            };
            assert_eq!(refused.refusal(), Some(Refusal::NoSpace));
            assert!(made > 100, "{made}");
            assert_eq!(names(&volume, &root).await.len(), made + 1);
            volume.unlink(&root, format!("{:0200}", 0).as_bytes()).await.unwrap();
            volume.unlink(&root, format!("{:0200}", 1).as_bytes()).await.unwrap();
            // Freed blocks come back once the transaction is committed, which the allocator sees
            // to.
            volume
                .symlink(&root, format!("{:0200}", 0).as_bytes(), &nobody, &[b't'; 500])
                .await
                .unwrap();
        });
    }
}

#[test]
fn a_directory_counts_subdirectories_up_to_the_limit() {
    TestImage::of_inodes(EXT4, "300M", 66_000).with(1, |volume, _| async move {
        let root = root(&volume).await;
        let parent = make_directory(&volume, &root, "parent").await;
        for number in 0..65_100 {
            make_directory(&volume, &parent, &format!("{number}")).await;
        }
        assert_eq!(links(&parent), 1);
        for number in 0..200 {
            volume.rmdir(&parent, format!("{number}").as_bytes()).await.unwrap();
        }
        assert_eq!(links(&parent), 1);
    });
}

#[test]
fn a_file_has_at_most_65000_names() {
    TestImage::of_inodes(EXT4, "32M", 100).with(1, |volume, _| async move {
        let root = root(&volume).await;
        let directory = make_directory(&volume, &root, "directory").await;
        let file = make_file(&volume, &root, "file").await;
        for number in 1..65_000 {
            volume
                .link(&file, &directory, format!("{number}").as_bytes(), &Caller::ROOT)
                .await
                .unwrap();
        }
        assert_eq!(links(&file), 65_000);
        assert_refused(
            volume.link(&file, &root, b"more", &Caller::ROOT).await,
            Refusal::TooManyLinks,
        );
    });
}

#[test]
fn a_removed_directory_that_is_open_has_no_links_and_no_size() {
    TestImage::of_inodes(EXT4_1K, "16M", 1000).with(1, |volume, _| async move {
        let root = volume.inode(ROOT).await.unwrap();
        let directory = make_directory(&volume, &root, "directory").await;
        volume.opened(&directory);
        volume.rmdir(&root, b"directory").await.unwrap();
        let removed = volume.getattr(&directory);
        assert_eq!((removed.links, removed.size), (0, 0));
        volume.closed(directory.number).await.unwrap();
    });
}

#[test]
fn a_directory_that_replaces_another_leaves_the_greatest_link_count() {
    let image = TestImage::of_inodes(EXT3, "16M", 64);
    image.with(1, move |volume, _| async move {
        let root = root(&volume).await;
        let full = make_directory(&volume, &root, "full").await;
        make_directory(&volume, &full, "replaced").await;
        make_directory(&volume, &root, "moving").await;
        full.fields.borrow_mut().links = 65_000;
        rename(&volume, (&root, "moving"), (&full, "replaced"), RenameMode::Replace).await.unwrap();
        assert_eq!(links(&full), 65_000);
        // For e2fsck.
        full.fields.borrow_mut().links = 3;
        make_file(&volume, &full, "stores-it").await;
    });
}
