//! `ea_inode`: attributes' values in inodes of their own.

use crate::features::support::*;
use device::Operation;
use disks::{Atomicity, CrashPolicy, Effect, Fault};
use engine::EngineOptions;
use ext4::{
    Caller, Error, Existence, Inode, OpenParts, RenameMode, SetXattr, Volume, VolumeOptions,
};
use runtime::{join_all, race};
use std::cell::Cell;
use std::pin::Pin;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;
use units::Refusal;

/// `a` and `b` share the value of `user.big`; the attributes of `d1` and `d2` fill a block that the
/// kernel may share.
const KERNEL: &str = "python3 - <<'P'
import os
for name in ('a', 'b', 'c', 'd1', 'd2', 'gone'): open(name, 'w').close()
os.mkdir('directory')
for name in ('a', 'b', 'directory'): os.setxattr(name, 'user.big', b'v' * 10000)
os.setxattr('c', 'user.many', bytes(range(256)) * 200)
os.setxattr('c', 'user.small', b's')
os.setxattr('c', b'user.\\xc3\\xa4', b'w' * 5000)
for name in ('d1', 'd2'):
    os.setxattr(name, 'user.fill', b'f' * 500)
    os.setxattr(name, 'user.big', b'x' * 20000)
    os.setxattr(name, 'user.more', b'm' * 150)
for index in range(20): os.setxattr('gone', 'user.%d' % index, bytes([index]) * 6000)
P
";

async fn get(volume: &Rc<Volume>, path: &str, name: &str) -> Result<Vec<u8>, Option<Refusal>> {
    volume
        .get_xattr(&at(volume, path).await, name.as_bytes())
        .await
        .map_err(|error| error.refusal())
}
async fn remove(volume: &Rc<Volume>, path: &str, name: &str) {
    volume.remove_xattr(&at(volume, path).await, name.as_bytes()).await.unwrap();
}

#[test]
fn values_in_inodes_of_their_own_are_read_and_removed() {
    for kind in [
        "-O ea_inode -b 1024",
        "-O ea_inode,^metadata_csum -b 4096",
        "-O ea_inode,inline_data -I 512 -b 2048",
    ] {
        let image = TestImage::scripted(kind, "16M", ":");
        image.with_kernel(KERNEL);
        image.check();
        image.with_volume(MODES[3], |volume| async move {
            let free = volume.statfs().await.unwrap();
            for path in ["a", "b", "directory"] {
                assert_eq!(get(&volume, path, "user.big").await.unwrap(), vec![b'v'; 10000]);
            }
            assert_eq!(get(&volume, "c", "user.many").await.unwrap().len(), 51200);
            assert_eq!(get(&volume, "c", "user.ä").await.unwrap(), vec![b'w'; 5000]);
            assert_eq!(get(&volume, "d2", "user.big").await.unwrap(), vec![b'x'; 20000]);
            // One reference of three goes, then an owner; the value stays for the last.
            remove(&volume, "a", "user.big").await;
            assert_eq!(get(&volume, "a", "user.big").await, Err(Some(Refusal::NoAttribute)));
            let root = volume.inode(ROOT).await.unwrap();
            volume.unlink(&root, b"b").await.unwrap();
            assert_eq!(get(&volume, "directory", "user.big").await.unwrap(), vec![b'v'; 10000]);
            // A value that becomes small leaves its inode; one beside it changes.
            let c = at(&volume, "c").await;
            for (name, value) in [("user.many", &b"few"[..]), ("user.small", b"other")] {
                let (name, existence) = (name.as_bytes(), Existence::Old);
                let set = SetXattr { name, value, existence, clear_set_group: false };
                volume.set_xattr(&c, &Caller::ROOT, set).await.unwrap();
            }
            assert_eq!(get(&volume, "c", "user.many").await.unwrap(), b"few");
            assert_eq!(get(&volume, "c", "user.ä").await.unwrap(), vec![b'w'; 5000]);
            // Shared or not, the neighbour keeps its own.
            remove(&volume, "d1", "user.more").await;
            remove(&volume, "d2", "user.big").await;
            assert_eq!(get(&volume, "d1", "user.big").await.unwrap(), vec![b'x'; 20000]);
            volume.unlink(&root, b"gone").await.unwrap();
            volume.sync().await.unwrap();
            let now = volume.statfs().await.unwrap();
            assert!(
                now.inodes_free >= free.inodes_free + 22,
                "{} of {}",
                now.inodes_free,
                free.inodes_free
            );
            assert!(now.blocks_free > free.blocks_free);
        });
        let output = image.with_kernel(
            "getfattr -d -m user -e hex a c d1 d2 directory 2>/dev/null | cut -c1-60 | grep -v '^$'",
        );
        assert_eq!(output.lines().filter(|line| line.starts_with("user.")).count(), 8, "{output}");
    }
}

/// The blocks of the value count as the link's, which has none of its own.
#[test]
fn short_links_with_large_attributes_are_read() {
    for kind in ["-O ea_inode -b 4096", "-O ea_inode,^metadata_csum -b 1024"] {
        let image = TestImage::scripted(kind, "16M", "ln -s target theirs; ln -s target ours");
        image.with_kernel("setfattr -h -n trusted.big -v $(printf 'v%.0s' $(seq 6000)) theirs");
        image.with_volume(MODES[3], move |volume| async move {
            let root = volume.inode(ROOT).await.unwrap();
            set(&volume, "ours", "trusted.big", &value(1, 6000)).await.unwrap();
            for path in ["ours", "theirs"] {
                assert_eq!(get(&volume, path, "trusted.big").await.unwrap().len(), 6000);
                let link = at(&volume, path).await;
                assert_eq!(volume.readlink(&link).await.unwrap(), b"target", "{path} {kind}");
            }
            // e2fsck 1.47 takes the value's blocks for blocks of such a link, of the kernel's too.
            for path in [&b"theirs"[..], b"ours"] {
                volume.unlink(&root, path).await.unwrap();
            }
        });
        image.check();
    }
}

async fn set(
    volume: &Rc<Volume>,
    path: &str,
    name: &str,
    value: &[u8],
) -> Result<(), Option<Refusal>> {
    let set = SetXattr {
        name: name.as_bytes(),
        value,
        existence: Existence::Any,
        clear_set_group: false,
    };
    let changed = volume.set_xattr(&at(volume, path).await, &Caller::ROOT, set).await;
    changed.map(drop).map_err(|error| error.refusal())
}

/// `length` bytes that no other value has.
fn value(mark: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 + at % 251) as u8 ^ mark).collect()
}

const LENGTHS: [usize; 6] = [5000, 10_000, 16_384, 40_001, 65_535, 65_536];

#[test]
fn new_values_in_inodes_of_their_own_are_those_that_the_kernel_reads() {
    for (kind, mode) in [
        ("-O ea_inode -b 1024", MODES[0]),
        ("-O ea_inode,^metadata_csum,^extent,^64bit -b 1024", MODES[1]),
        ("-O ea_inode,^metadata_csum -b 4096", MODES[2]),
        ("-O ea_inode,inline_data -I 512 -b 2048", MODES[3]),
        ("-O ea_inode,^orphan_file -b 4096", MODES[4]),
    ] {
        let image = TestImage::scripted(kind, "16M", "touch a b c; mkdir directory");
        let free = image.with_volume(mode, |volume| async move {
            let free = volume.statfs().await.unwrap();
            for (index, length) in LENGTHS.into_iter().enumerate() {
                let name = format!("user.{index}");
                for path in ["a", "b", "directory"] {
                    set(&volume, path, &name, &value(index as u8, length)).await.unwrap();
                    assert_eq!(
                        get(&volume, path, &name).await.unwrap(),
                        value(index as u8, length)
                    );
                }
            }
            set(&volume, "a", "user.0", &value(9, 30_000)).await.unwrap();
            set(&volume, "a", "user.small", b"beside").await.unwrap();
            set(&volume, "a", "user.1", b"short").await.unwrap();
            set(&volume, "a", "user.\u{e4}", &value(10, 20_000)).await.unwrap();
            remove(&volume, "a", "user.2").await;
            let root = volume.inode(ROOT).await.unwrap();
            volume.unlink(&root, b"b").await.unwrap();
            assert_eq!(
                set(&volume, "c", "user.huge", &[7; 65_537]).await,
                Err(Some(Refusal::NoSpace))
            );
            free
        });
        let hash = "for name in sys.argv[2:]: print(len(os.getxattr(sys.argv[1], name)), \
                    zlib.crc32(os.getxattr(sys.argv[1], name)))";
        let kernel = |path: &str, names: &str| {
            image
                .with_kernel(&format!("python3 -c '\nimport os, sys, zlib\n{hash}' {path} {names}"))
        };
        let printed = |values: &[Vec<u8>]| {
            values
                .iter()
                .map(|value| format!("{} {}\n", value.len(), crc32(value)))
                .collect::<String>()
        };
        let expected = [
            value(9, 30_000),
            b"short".to_vec(),
            value(3, 40_001),
            value(10, 20_000),
            b"beside".to_vec(),
        ];
        assert_eq!(
            kernel("a", "user.0 user.1 user.3 user.\u{e4} user.small"),
            printed(&expected),
            "{kind}"
        );
        let expected: Vec<_> =
            LENGTHS.iter().enumerate().map(|(at, length)| value(at as u8, *length)).collect();
        let names = "user.0 user.1 user.2 user.3 user.4 user.5";
        assert_eq!(kernel("directory", names), printed(&expected), "{kind}");
        // The kernel overwrites our values, and drops them.
        image.with_kernel("setfattr -n user.3 -v few a; setfattr -x user.4 a; rm -r directory");
        image.check();
        image.with_volume(mode, move |volume| async move {
            assert_eq!(get(&volume, "a", "user.3").await.unwrap(), b"few");
            assert_eq!(get(&volume, "a", "user.4").await, Err(Some(Refusal::NoAttribute)));
            assert_eq!(get(&volume, "a", "user.5").await.unwrap(), value(5, 65_536));
            let root = volume.inode(ROOT).await.unwrap();
            for name in [b"a", b"c"] {
                volume.unlink(&root, name).await.unwrap();
            }
            volume.sync().await.unwrap();
            let now = volume.statfs().await.unwrap();
            assert_eq!(now.inodes_free, free.inodes_free + 4, "each inode came back");
            assert!(now.blocks_free >= free.blocks_free);
        });
    }
}

/// CRC-32 as in zlib.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum: u32, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            sum >> 1 ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 }
        })
    })
}

#[test]
fn a_full_volume_refuses_a_new_value_and_keeps_the_old_one() {
    let image = TestImage::scripted("-O ea_inode -b 1024", "8M", "touch file filler");
    image.with_volume(MODES[3], |volume| async move {
        set(&volume, "file", "user.big", &value(1, 50_000)).await.unwrap();
        let filler = at(&volume, "filler").await;
        let flags = ext4::WriteFlags::default();
        let mut end = 0;
        while let Ok(written) = volume.write(&filler, &Caller::ROOT, end, &[1; 8192], flags).await {
            end += written.count as u64;
        }
        let free = volume.statfs().await.unwrap();
        assert_eq!(
            set(&volume, "file", "user.big", &value(2, 60_000)).await,
            Err(Some(Refusal::NoSpace))
        );
        assert_eq!(get(&volume, "file", "user.big").await.unwrap(), value(1, 50_000));
        volume.sync().await.unwrap();
        let now = volume.statfs().await.unwrap();
        assert_eq!((now.blocks_free, now.inodes_free), (free.blocks_free, free.inodes_free));
        volume.truncate(&filler, 0).await.unwrap();
        volume.sync().await.unwrap();
        set(&volume, "file", "user.big", &value(2, 60_000)).await.unwrap();
        assert_eq!(get(&volume, "file", "user.big").await.unwrap(), value(2, 60_000));
    });
}

#[test]
fn many_values_are_dropped_at_once_with_little_memory() {
    let image = TestImage::scripted("-O ea_inode -b 4096", "64M", ":");
    image.with_kernel(
        "python3 -c '
import os
for i in range(60):
    open(\"f%d\" % i, \"w\").close()
    os.setxattr(\"f%d\" % i, \"user.big\", bytes([i]) * 9000)
'",
    );
    let (virtual_world, world, disk) = image.world(1);
    let home = disk.clone();
    virtual_world.run(async move {
        let engine = EngineOptions { cache_bytes: 1 << 20, ..EngineOptions::default() };
        let options = VolumeOptions { engine, ..VolumeOptions::default() };
        let parts = OpenParts { world: world.clone(), home: Rc::new(home), journal: None, options };
        let volume = Volume::open(parts).await.unwrap();
        let remove = |index| {
            let volume = volume.clone();
            async move {
                let file = at(&volume, &format!("f{index}")).await;
                let removed = volume.remove_xattr(&file, b"user.big").await;
                assert!(removed.is_ok(), "f{index}: {removed:?}");
            }
        };
        join_all((0..60).map(|index| Box::pin(remove(index)) as _).collect()).await;
        volume.close().await.unwrap();
    });
    disk.image().write_file(&image.path()).unwrap();
    image.check();
}

#[test]
fn a_power_cut_leaves_the_old_value_or_the_new_one_whole() {
    let image = TestImage::scripted("-O ea_inode -b 1024", "8M", "touch file");
    image.with_volume(MODES[0], |volume| async move {
        set(&volume, "file", "user.big", &value(1, 20_000)).await.unwrap();
    });
    for mode in [MODES[0], MODES[3]] {
        let mut cut = 0;
        loop {
            let (virtual_world, world, disk) = image.world(cut);
            let (home, for_script) = (disk.clone(), world.clone());
            let synced = Rc::new(Cell::new(false));
            let acknowledged = synced.clone();
            let finished = virtual_world.run(async move {
                let script = async {
                    let volume = open(&for_script, &home, mode).await.unwrap();
                    home.cut_at(home.changes() + cut);
                    set(&volume, "file", "user.big", &value(2, 30_000)).await.unwrap();
                    volume.sync().await.unwrap();
                    acknowledged.set(true);
                    volume.close().await.unwrap();
                };
                matches!(race(Box::pin(script), home.power_lost()).await, runtime::Either::Left(()))
            });
            for policy in [
                CrashPolicy::LoseAll,
                CrashPolicy::KeepAll,
                CrashPolicy::Random { seed: cut, atomicity: Atomicity::Unit(512) },
            ] {
                let (after, found) = run_on(disk.crash(policy), mode, move |volume| async move {
                    get(&volume, "file", "user.big").await
                });
                let is_new = found == Ok(value(2, 30_000));
                let context = format!("{mode:?} cut {cut} {policy:?}");
                assert!(
                    is_new || found == Ok(value(1, 20_000)),
                    "{context}: {:?}",
                    found.map(|it| it.len())
                );
                assert!(is_new || !synced.get(), "{context}: what was synced is lost");
                after.write_file(&image.path_of("crashed")).unwrap();
                succeed(
                    Command::new("timeout")
                        .args(["120", "e2fsck", "-fn"])
                        .arg(image.path_of("crashed")),
                );
            }
            if finished {
                break;
            }
            cut += 1;
        }
        assert!(cut > 3, "{mode:?}: {cut} places");
    }
}

#[test]
fn a_damaged_value_is_an_error_and_nothing_else_suffers() {
    let image = TestImage::scripted("-O ea_inode -b 1024", "16M", ":");
    image.with_kernel(KERNEL);
    let number = image.debugfs("inode_dump /a");
    assert!(!number.is_empty());
    // The first inode with a value: its content, its length, its flag, its links.
    let first = (12..60)
        .find(|number| image.debugfs(&format!("stat <{number}>")).contains("Flags: 0x280000"))
        .unwrap();
    let healthy = image.read();
    for request in [
        "set_inode_field <N> atime 5",
        "set_inode_field <N> size 9999",
        "set_inode_field <N> flags 0x80000",
        "set_inode_field <N> links_count 0",
        "set_inode_field <N> version 0",
    ] {
        healthy.write_file(&image.path()).unwrap();
        image.debugfs_write(&request.replace('N', &first.to_string()));
        run_on(image.read(), MODES[1], move |volume| async move {
            let owners = ["a", "b", "directory"];
            let mut refused = 0;
            for path in owners {
                let inode = at(&volume, path).await;
                let got = volume.get_xattr(&inode, b"user.big").await;
                refused += u32::from(matches!(got, Err(Error::Corrupt { .. })));
                let removed = volume.remove_xattr(&inode, b"user.big").await;
                refused += u32::from(matches!(removed, Err(Error::Corrupt { .. })));
            }
            assert!(refused > 0, "{request}");
            let root = volume.inode(ROOT).await.unwrap();
            write(&volume, &at(&volume, "a").await, 0, b"text").await;
            volume.unlink(&root, b"a").await.unwrap();
            volume.unlink(&root, b"b").await.unwrap();
        });
    }
}

/// The name is gone: that a value of the file, or of another, cannot be freed is no matter of the
/// caller who removed it.
#[test]
fn a_value_that_cannot_be_freed_fails_no_unlink() {
    let image = TestImage::scripted("-O ea_inode -b 1024", "16M", ":");
    image.with_kernel(KERNEL);
    for number in 12..60 {
        if image.debugfs(&format!("stat <{number}>")).contains("Flags: 0x280000") {
            // The magic number of its extents.
            image.debugfs_write(&format!("set_inode_field <{number}> block[0] 0"));
        }
    }
    run_on(image.read(), MODES[1], move |volume| async move {
        let root = volume.inode(ROOT).await.unwrap();
        for name in ["c", "d1", "gone"] {
            volume.unlink(&root, name.as_bytes()).await.unwrap();
            assert!(volume.lookup(&root, name.as_bytes()).await.is_err());
        }
        assert!(volume.needs_check(), "nobody noted the damage");
    });
}

/// A volume on which values have attributes themselves, each with the next one's value.
fn chain_of_values(links: u32) -> TestImage {
    let image = TestImage::scripted("-O ea_inode,^metadata_csum -b 1024 -I 256 -N 2040", "8M", ":");
    let files = image.with_volume(MODES[1], move |volume| async move {
        let root = volume.inode(ROOT).await.unwrap();
        let mut files = Vec::new();
        for index in 0..links {
            let name = format!("f{index}");
            files.push(make_file(&volume, &root, &name).await.number.0);
            let value = index.to_le_bytes().repeat(300);
            set(&volume, &name, "user.value", &value).await.unwrap();
        }
        files
    });
    let output = image.debugfs("imap <1>");
    let table: u64 =
        output.split("at block ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    let mut bytes = image.read();
    // One group, so the table is one. Attributes within an inode begin behind 32 further bytes of
    // fields.
    let place = |number: u32| table * 1024 + u64::from(number - 1) * 256 + 160;
    let attributes = |bytes: &disks::Image, number| {
        let mut found = [0; 96];
        bytes.read(place(number), &mut found);
        found
    };
    for pair in files.windows(2) {
        let (owner, next) = (attributes(&bytes, pair[0]), attributes(&bytes, pair[1]));
        assert_eq!((&owner[..4], &next[..4]), (&0xea02_0000u32.to_le_bytes()[..], &owner[..4]));
        let value = u32::from_le_bytes(owner[8..12].try_into().unwrap());
        bytes.write(place(value), &next);
    }
    bytes.write_file(&image.path()).unwrap();
    image
}

#[test]
fn values_that_have_values_are_freed_without_a_deep_stack() {
    const LINKS: u32 = 700;
    let image = chain_of_values(LINKS);
    let path = image.path();
    let freed = std::thread::Builder::new().stack_size(1 << 20).spawn(move || {
        let (_, freed) =
            run_on(disks::Image::read_file(&path).unwrap(), MODES[1], |volume| async move {
                let before = volume.statfs().await.unwrap().inodes_free;
                volume.unlink(&volume.inode(ROOT).await.unwrap(), b"f0").await.unwrap();
                volume.sync().await.unwrap();
                volume.statfs().await.unwrap().inodes_free - before
            });
        freed
    });
    // The file, and each value, which has lost its only reference.
    assert_eq!(freed.unwrap().join().unwrap(), u64::from(LINKS) + 1);
}

/// Makes two directories in different groups, the first with a file whose value is outside and one
/// with content. Returns them with the group of the first.
fn apart() -> (TestImage, [String; 2], u32) {
    let image = TestImage::scripted("-O ea_inode -b 1024", "64M", ":");
    let (names, group) = image.with_volume(MODES[1], |volume| async move {
        let root = volume.inode(ROOT).await.unwrap();
        let mut made = Vec::new();
        for name in ["d0", "d1", "d2", "d3"] {
            let made_now =
                volume.mkdir(&root, name.as_bytes(), &Caller::ROOT, 0o755).await.unwrap();
            made.push((name, made_now.value));
        }
        let (near, directory) = made.remove(0);
        let group = volume.group_of_inode(directory.number);
        let is_far = |(_, other): &&(_, Rc<Inode>)| volume.group_of_inode(other.number) != group;
        let (far, other) = made.iter().find(is_far).expect("directories are spread");
        make_file(&volume, &directory, "a").await;
        set(&volume, &format!("{near}/a"), "user.big", &value(1, 9_000)).await.unwrap();
        let content = make_file(&volume, &directory, "content").await;
        write(&volume, &content, 0, &[1; 1024]).await;
        for name in ["b", "c"] {
            make_file(&volume, other, name).await;
        }
        ([near.to_owned(), (*far).to_owned()], group.get())
    });
    (image, names, group)
}

/// An inode that cannot be freed stays an orphan. The caller has got what it asked for.
#[test]
fn a_change_succeeds_whatever_cannot_be_freed_behind_it() {
    let (image, [near, far], group) = apart();
    let report = image.dumpe2fs();
    let report = report.split(&format!("\nGroup {group}:")).nth(1).unwrap().to_owned();
    let bitmap = |which: &str| -> std::ops::Range<u64> {
        let digits = report.split(which).nth(1).unwrap().split([' ', ',']).next().unwrap();
        let at = 1024 * digits.parse::<u64>().unwrap();
        at..at + 1024
    };
    let (blocks, inodes) = (bitmap("Block bitmap at "), bitmap("Inode bitmap at "));
    for change in ["rename", "unlink", "setxattr", "removexattr", "sync", "own content"] {
        let (virtual_world, world, disk) = image.world(1);
        let (blocks, inodes) = (blocks.clone(), inodes.clone());
        let (near, far) = (near.clone(), far.clone());
        virtual_world.run(async move {
            let volume = open(&world, &disk, MODES[1]).await.unwrap();
            let (from, to) = (at(&volume, &near).await, at(&volume, &far).await);
            set(&volume, &format!("{far}/b"), "user.small", b"s").await.unwrap();
            let failing = Fault { range: blocks, ..Fault::forever(Operation::Read) };
            let hanging = Fault { range: inodes, effect: Effect::Hang, ..failing.clone() };
            disk.inject(failing);
            if change != "own content" {
                // This removal waits for ever, and its value is left to others.
                disk.inject(hanging);
                let (volume, from) = (volume.clone(), from.clone());
                world.spawn(Box::pin(async move { drop(volume.unlink(&from, b"a").await) }));
            }
            world.sleep_until(world.now().plus(Duration::from_millis(1))).await;
            let changed = match change {
                "rename" => {
                    let (old, new) = ((&to, &b"b"[..]), (&to, &b"c"[..]));
                    volume.rename(old, new, &Caller::ROOT, RenameMode::Replace).await.map(drop)
                }
                "unlink" => volume.unlink(&to, b"b").await.map(drop),
                "setxattr" => {
                    set(&volume, &format!("{far}/b"), "user.new", b"n").await.unwrap();
                    Ok(())
                }
                "removexattr" => {
                    let file = at(&volume, &format!("{far}/b")).await;
                    volume.remove_xattr(&file, b"user.small").await.map(drop)
                }
                "sync" => volume.sync().await,
                _ => volume.unlink(&from, b"content").await.map(drop),
            };
            changed.unwrap_or_else(|error| panic!("{change}: {error}"));
        });
        virtual_world.end();
    }
}

/// Makes two files that share an attribute block with the entry of a value outside, as the kernel
/// does where both have the same attributes.
fn sharing() -> TestImage {
    let image = TestImage::scripted("-O ea_inode,^metadata_csum -b 1024 -I 128", "16M", ":");
    image.with_volume(MODES[1], |volume| async move {
        let root = volume.inode(ROOT).await.unwrap();
        for name in ["a", "b"] {
            make_file(&volume, &root, name).await;
        }
        set(&volume, "a", "user.small", b"s").await.unwrap();
        set(&volume, "a", "user.big", &value(1, 9_000)).await.unwrap();
    });
    let [block, sectors] = ["File ACL", "Blockcount"].map(|label| {
        let text = image.debugfs("stat /a");
        let digits = text.split(&format!("{label}: ")).nth(1).unwrap();
        digits.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    });
    image.debugfs_write(&format!("sif /b file_acl {block}"));
    image.debugfs_write(&format!("sif /b blocks {sectors}"));
    let mut bytes = image.read();
    // The count of references, behind the magic number.
    bytes.write(block * 1024 + 4, &2u32.to_le_bytes());
    bytes.write_file(&image.path()).unwrap();
    image.check_as("made for a test");
    image
}

/// Whichever inode is the last of the block drops the references of its entries.
#[test]
fn inodes_that_share_values_are_changed_and_freed_at_once() {
    let image = sharing();
    for (seed, changes) in [["free", "free"], ["remove", "free"], ["set", "free"], ["set", "set"]]
        .iter()
        .flat_map(|changes| (0..20).map(move |seed| (seed, *changes)))
    {
        let latency =
            disks::Latency { least: Duration::from_micros(10), spread: Duration::from_micros(90) };
        let options = crate::image::in_mode(MODES[1]);
        let played = crate::image::play_on(
            image.read(),
            seed,
            Some(latency),
            options,
            move |volume, _| async move {
                let files = [at(&volume, "a").await, at(&volume, "b").await];
                let root = volume.inode(ROOT).await.unwrap();
                for (file, name) in files.iter().zip([b"a", b"b"]) {
                    volume.remember(file);
                    volume.unlink(&root, name).await.unwrap();
                }
                let change = async |file: &Rc<Inode>, change: &str| match change {
                    "free" => volume.forget(file.number, 1).await.unwrap(),
                    "remove" => {
                        volume.remove_xattr(file, b"user.big").await.unwrap();
                    }
                    _ => {
                        let set = SetXattr {
                            name: b"user.new",
                            value: b"n",
                            existence: Existence::Any,
                            clear_set_group: false,
                        };
                        volume.set_xattr(file, &Caller::ROOT, set).await.unwrap();
                    }
                };
                let mut both: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
                for (file, what) in files.iter().zip(changes) {
                    both.push(Box::pin(change(file, what)));
                }
                join_all(both).await;
                for (file, change) in files.iter().zip(changes) {
                    if change != "free" {
                        volume.forget(file.number, 1).await.unwrap();
                    }
                }
            },
        );
        let path = image.path_of("after");
        played.0.write_file(&path).unwrap();
        crate::image::check_file(&path, &format!("{changes:?} seed {seed}"));
    }
}
