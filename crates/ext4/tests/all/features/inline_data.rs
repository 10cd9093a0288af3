//! `inline_data`: content of small files and directories in their inodes.

use crate::features::support::*;
use disks::CrashPolicy;
use ext4::{Caller, RangeMode, RenameMode, SeekWhat};
use runtime::race;

const KINDS: [&str; 4] = [
    "-O inline_data -I 256 -b 4096",
    "-O inline_data -I 1024 -b 1024",
    "-O inline_data,^metadata_csum,^dir_index -I 512 -b 2048",
    "-O inline_data,^extents,^64bit -I 256 -b 1024",
];

/// Contents of 0 to 150 bytes, links of all lengths, directories within inodes and outgrown ones.
const FILL: &str = "
    for size in 0 1 59 60 61 100 130 150 5000; do head -c $size /dev/zero | tr '\\0' x >f$size; done
    mkdir empty few many few/below; touch few/{a,bb,ccc}; for i in $(seq 40); do echo $i >many/a-longer-name-$i; done
    ln -s $(printf '%0059d' 1) fast; ln -s $(printf '%0060d' 1) edge; ln -s $(printf '%0100d' 1) link; ln -s $(printf '%0200d' 1) long";

#[test]
fn what_others_put_into_inodes_is_read() {
    for kind in KINDS {
        let image = TestImage::scripted(kind, "16M", FILL);
        // The kernel puts names into the attribute as well, and leaves sizes larger than the inline
        // area.
        image.with_kernel(
            "mkdir two; touch two/{name-1,name-2,name-3,name-4,name-5}; rm two/name-{2,5}; touch two/name-6
             echo short >grown; truncate -s 3000 grown; echo other >few/ccc; mkdir gone; touch gone/x; rm gone/x",
        );
        assert_eq!(image.stat_field("few", "Flags"), "0x10000000");
        assert_eq!(image.stat_field("two", "Flags"), "0x10000000");
        let expected = image.kernels_tree();
        assert_eq!(
            image.with_volume(MODES[1], |volume| async move { tree(&volume).await }),
            expected,
            "{kind}"
        );
        image.with_volume(MODES[1], |volume| async move {
            let file = at(&volume, "f100").await;
            for (what, from, found) in
                [(SeekWhat::Data, 0, 0), (SeekWhat::Data, 99, 99), (SeekWhat::Hole, 5, 100)]
            {
                assert_eq!(volume.seek(&file, from, what).await.unwrap(), found);
            }
            assert!(volume.seek(&file, 100, SeekWhat::Data).await.is_err());
            assert_eq!(volume.exposed_address(&file, units::FileBlock(0)).await.unwrap(), None);
            let below = at(&volume, "few/below").await;
            assert_eq!(
                volume.lookup(&below, b"..").await.unwrap().number,
                at(&volume, "few").await.number
            );
            // Nothing was moved by looking.
            assert!(volume.is_inline(&file));
        });
    }
}

#[test]
fn files_in_inodes_are_changed_as_any_others() {
    // Each kind and each mode.
    for (kind, mode) in KINDS.into_iter().cycle().zip(MODES) {
        let image = TestImage::scripted(kind, "16M", FILL);
        let ours = image.with_volume(mode, |volume| async move {
            let mut expected = tree(&volume).await;
            let hex = |bytes: &[u8]| {
                bytes.iter().fold("f".to_string(), |text, byte| text + &format!("{byte:02x}"))
            };
            write(&volume, &at(&volume, "f0").await, 0, b"begun").await;
            expected.insert("f0".into(), hex(b"begun"));
            write(&volume, &at(&volume, "f1").await, 1, &[b'y'; 7000]).await;
            expected.insert("f1".into(), hex(&[&b"x"[..], &[b'y'; 7000]].concat()));
            write(&volume, &at(&volume, "f59").await, 10, b"-----").await;
            expected.insert("f59".into(), hex(&[&[b'x'; 10][..], b"-----", &[b'x'; 44]].concat()));
            write(&volume, &at(&volume, "f60").await, 9000, b"far").await;
            expected.insert("f60".into(), hex(&[&[b'x'; 60][..], &[0; 8940], b"far"].concat()));
            for (name, size) in [("f61", 30), ("f100", 0), ("f130", 140)] {
                volume.truncate(&at(&volume, name).await, size).await.unwrap();
            }
            expected.insert("f61".into(), hex(&[b'x'; 30]));
            expected.insert("f100".into(), hex(b""));
            expected.insert("f130".into(), hex(&[&[b'x'; 130][..], &[0; 10]].concat()));
            let file = at(&volume, "f150").await;
            volume
                .fallocate(&file, &Caller::ROOT, RangeMode::PunchHole, true, 20, 50)
                .await
                .unwrap();
            expected.insert("f150".into(), hex(&[&[b'x'; 20][..], &[0; 50], &[b'x'; 80]].concat()));
            for name in ["edge", "link", "many/a-longer-name-3"] {
                let (directory, name) = name.rsplit_once('/').unwrap_or(("", name));
                volume.unlink(&at(&volume, directory).await, name.as_bytes()).await.unwrap();
            }
            expected.retain(|path, _| {
                !["edge", "link", "many/a-longer-name-3"].contains(&path.as_str())
            });
            assert_eq!(tree(&volume).await, expected);
            expected
        });
        assert_eq!(image.kernels_tree(), ours, "{kind} {mode:?}");
    }
}

#[test]
fn directories_in_inodes_are_changed_as_any_others() {
    for kind in KINDS {
        let image = TestImage::scripted(kind, "16M", FILL);
        let ours = image.with_volume(MODES[3], |volume| async move {
            let root = volume.inode(ROOT).await.unwrap();
            let few = at(&volume, "few").await;
            // In place: removed, replaced, exchanged, moved elsewhere.
            volume.unlink(&few, b"bb").await.unwrap();
            let replace = RenameMode::Replace;
            volume.rename((&root, b"f59"), (&few, b"ccc"), &Caller::ROOT, replace).await.unwrap();
            volume
                .rename((&few, b"a"), (&root, b"f60"), &Caller::ROOT, RenameMode::Exchange)
                .await
                .unwrap();
            assert!(volume.is_inline(&few));
            volume
                .rename((&few, b"below"), (&root, b"moved"), &Caller::ROOT, replace)
                .await
                .unwrap();
            let moved = at(&volume, "moved").await;
            assert!(volume.is_inline(&moved) && volume.is_inline(&few));
            assert_eq!(volume.lookup(&moved, b"..").await.unwrap().number, ROOT);
            assert_eq!(names(&volume, &few, 1).await.len(), 2);
            assert!(volume.rmdir(&root, b"few").await.is_err());
            volume.rmdir(&root, b"empty").await.unwrap();
            // A new name needs a block; a listing that began before goes on as if nothing had
            // happened.
            let begun = volume.readdir(&few, 0, 3).await.unwrap();
            let last = begun.last().unwrap();
            make_file(&volume, &few, "new").await;
            assert!(!volume.is_inline(&few));
            let rest = volume.readdir(&few, last.cookie, 10).await.unwrap();
            for name in ["a", "ccc"] {
                let count =
                    begun.iter().chain(&rest).filter(|entry| entry.name == name.as_bytes()).count();
                assert_eq!(count, 1, "{name}");
            }
            for count in 0..200 {
                make_file(&volume, &moved, &format!("{count:0200}")).await;
            }
            for path in ["few/x", "few/y"] {
                volume.mkdir(&few, &path.as_bytes()[4..], &Caller::ROOT, 0o755).await.unwrap();
            }
            tree(&volume).await
        });
        assert_eq!(image.kernels_tree(), ours, "{kind}");
    }
}

#[test]
fn attributes_beside_inline_content_leave_it_alone() {
    let image = TestImage::scripted(KINDS[0], "16M", FILL);
    image.with_volume(MODES[1], |volume| async move {
        for path in ["f100", "f1", "few"] {
            let inode = at(&volume, path).await;
            let before = tree(&volume).await;
            for (name, length) in [("user.short", 5), ("user.long", 300), ("user.third", 40)] {
                let value = vec![b'v'; length];
                let set = ext4::SetXattr {
                    name: name.as_bytes(),
                    value: &value,
                    existence: ext4::Existence::New,
                    clear_set_group: false,
                };
                volume.set_xattr(&inode, &Caller::ROOT, set).await.unwrap();
            }
            let listed = volume.list_xattrs(&inode, || true).await.unwrap();
            assert!(
                !String::from_utf8_lossy(&listed).contains("data"),
                "it is no attribute of the user's"
            );
            assert_eq!(tree(&volume).await, before);
            volume.remove_xattr(&inode, b"user.long").await.unwrap();
            assert!(volume.is_inline(&inode));
        }
    });
}

#[test]
fn on_a_full_volume_content_stays_in_its_inode() {
    let image = TestImage::scripted(KINDS[0], "8M", FILL);
    image.with_volume(MODES[1], |volume| async move {
        let caller = Caller { uid: 1000, gid: 1000, ..Caller::ROOT };
        let root = volume.inode(ROOT).await.unwrap();
        let fill = make_file(&volume, &root, "fill").await;
        let (bytes, mut at_byte) = (vec![7; 1 << 20], 0);
        while let Ok(written) =
            volume.write(&fill, &caller, at_byte, &bytes, Default::default()).await
        {
            at_byte += written.count as u64;
        }
        let file = at(&volume, "f100").await;
        let refused = volume.write(&file, &caller, 100, b"more", Default::default()).await;
        assert_eq!(refused.unwrap_err().refusal(), Some(units::Refusal::NoSpace));
        let few = at(&volume, "few").await;
        let made = volume.mknod(&few, b"new", &caller, 0o100_644, 0).await;
        assert_eq!(made.err().and_then(|error| error.refusal()), Some(units::Refusal::NoSpace));
        assert!(volume.is_inline(&file) && volume.is_inline(&few));
        assert_eq!(content(&volume, &file).await, [b'x'; 100]);
        assert_eq!(names(&volume, &few, 10).await.len(), 4);
        volume.truncate(&file, 0).await.unwrap();
    });
}

/// Content that was durable in an inode is never lost when it moves to a block.
#[test]
fn content_survives_a_power_cut_while_it_leaves_its_inode() {
    let image = TestImage::scripted(KINDS[0], "8M", FILL);
    for mode in MODES {
        let mut cut = 0;
        loop {
            let (virtual_world, world, disk) = image.world(cut);
            let home = disk.clone();
            let for_script = world.clone();
            let finished = virtual_world.run(async move {
                let script = async {
                    let volume = open(&for_script, &home, mode).await.unwrap();
                    home.cut_at(home.changes() + cut);
                    write(&volume, &at(&volume, "f100").await, 100, &[b'z'; 50]).await;
                    make_file(&volume, &at(&volume, "few").await, "new").await;
                    volume
                        .engine()
                        .commit(volume.engine().start(Default::default()).await.unwrap().stop())
                        .await
                        .unwrap();
                    volume.close().await.unwrap();
                };
                matches!(race(Box::pin(script), home.power_lost()).await, runtime::Either::Left(()))
            });
            for policy in [CrashPolicy::LoseAll, CrashPolicy::KeepAll] {
                run_on(disk.crash(policy), mode, move |volume| async move {
                    let found = content(&volume, &at(&volume, "f100").await).await;
                    assert_eq!(
                        found.get(..100),
                        Some(&[b'x'; 100][..]),
                        "{mode:?} cut {cut} {policy:?}"
                    );
                    let names = names(&volume, &at(&volume, "few").await, 10).await.len();
                    assert!(
                        (4..=5).contains(&names),
                        "{mode:?} cut {cut} {policy:?}: {names} names"
                    );
                });
            }
            if finished {
                break;
            }
            cut += 1;
        }
        assert!(cut > 3, "{mode:?}: {cut} places");
    }
}

/// The kernel has stored the size, and the content is whole.
#[test]
fn an_unfinished_truncate_of_content_within_an_inode_is_finished() {
    for kind in KINDS {
        let image = TestImage::scripted(kind, "16M", FILL);
        // The ends lie in the inode's 60 bytes, and in the attribute behind them.
        for (name, size) in [("f100", 50), ("f130", 70)] {
            let number = image.number(name).get();
            image.debugfs_write(&format!("sif <{number}> size {size}"));
            image.debugfs_write(&format!("ssv last_orphan {number}"));
            image.with_volume(MODES[1], move |volume| async move {
                let orphans = volume.open_report().orphans;
                assert_eq!((orphans.truncated, orphans.damaged), (1, 0), "{kind}");
                assert!(!volume.needs_check(), "{kind}");
                let file = at(&volume, name).await;
                assert_eq!(content(&volume, &file).await, vec![b'x'; size], "{kind}");
            });
            // Others, too, find zeros once the file is longer.
            let area = image.debugfs(&format!("cat {name}")).into_bytes();
            assert!(area[..size].iter().all(|byte| *byte == b'x'), "{kind} {name}");
            assert!(area[size..].iter().all(|byte| *byte == 0), "{kind} {name}: {area:?}");
        }
    }
}
