//! Tests of the kernel's page cache beside accesses that bypass it: memory maps, synchronous
//! writes, holes, block addresses.

use crate::common::mapping::Map;
use crate::common::{Volume, okeanos, private_mounts, said};
use crate::rig::Rig;
use rustix::fs::{
    AtFlags, CWD, Dir, FallocateFlags, RenameFlags, SeekFrom, fallocate, linkat, renameat_with,
    seek,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

/// Maps a descriptor that may go past the page cache; `None` where the kernel cannot (before Linux
/// 6.6).
fn map_past_the_cache(file: &File, bytes: usize) -> Option<Map> {
    let is_old = || {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>());
        let mut number = || numbers.next().unwrap().unwrap();
        (number(), number()) < (6, 6)
    };
    match Map::new(file, bytes) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) && is_old() => None,
        mapped => Some(mapped.unwrap()),
    }
}

pub fn open(volume: &Volume, name: &str, flags: i32) -> File {
    open_path(&volume.at(name), flags)
}
fn open_path(path: &Path, flags: i32) -> File {
    let mut options = OpenOptions::new();
    let options = options.create(true).truncate(false).read(true).write(true).custom_flags(flags);
    options.open(path).unwrap()
}

pub fn word_at(file: &File, at: usize) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at as u64).unwrap();
    u64::from_le_bytes(bytes)
}

/// Pages, writers and rounds of [`hammer`].
const PAGES: usize = 4;
const WRITERS: usize = 3;
const ROUNDS: u64 = 60;

/// Returns the address of a writer's word of a page.
fn written(writer: usize, page: usize) -> usize {
    page * PAGE + writer * 1024
}
/// Returns the address of a mapper's word of a page.
fn mapped(mapper: usize, page: usize) -> usize {
    page * PAGE + 2048 + 1024 * mapper + 512
}

/// Runs writers with descriptors of `flags`, each at its own words of a few pages, while two
/// threads change the other words through a shared mapping. Returns the last values of these;
/// `None` where the kernel maps no such file.
fn hammer(path: &Path, flags: i32, map_through: i32) -> Option<Vec<u64>> {
    std::fs::write(path, vec![0; PAGES * PAGE]).unwrap();
    let file = open_path(path, map_through);
    let map = map_past_the_cache(&file, PAGES * PAGE)?;
    drop(file);
    let done = AtomicBool::new(false);
    let last: Vec<u64> = std::thread::scope(|scope| {
        let mappers = [0, 1].map(|mapper| {
            let (map, done) = (&map, &done);
            scope.spawn(move || {
                let mut value = 0;
                while !done.load(Ordering::Relaxed) {
                    value += 1;
                    (0..PAGES).for_each(|page| {
                        map.word(mapped(mapper, page)).store(value, Ordering::Relaxed)
                    });
                }
                value
            })
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let file = open_path(path, flags);
                scope.spawn(move || {
                    for value in 1..=ROUNDS {
                        for page in 0..PAGES {
                            let at = written(writer, page);
                            file.write_all_at(&value.to_le_bytes(), at as u64).unwrap();
                            assert_eq!(
                                word_at(&file, at),
                                value,
                                "writer {writer} reads what it wrote"
                            );
                        }
                    }
                })
            })
            .collect();
        let writers: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.unwrap());
        mappers.into_iter().map(|mapper| mapper.join().unwrap()).collect()
    });
    map.sync().unwrap();
    Some(last)
}

/// Checks what [`hammer`] has left.
fn check_hammered(path: &Path, last: &[u64]) {
    let file = File::open(path).unwrap();
    for page in 0..PAGES {
        for writer in 0..WRITERS {
            assert_eq!(
                word_at(&file, written(writer, page)),
                ROUNDS,
                "written by {writer} in page {page}"
            );
        }
        for (mapper, last) in last.iter().enumerate() {
            assert_eq!(
                word_at(&file, mapped(mapper, page)),
                *last,
                "mapped by {mapper} in page {page}"
            );
        }
    }
}

fn hammer_volume(options: &str, flags: i32, map_through: i32) {
    let volume = Volume::mounted(&["-t", "ext4"], options);
    let Some(last) = hammer(&volume.at("file"), flags, map_through) else { return };
    volume.umount_and_check();
    volume.mount(options);
    check_hammered(&volume.at("file"), &last);
    volume.umount_and_check();
}

#[test]
fn a_synchronous_write_survives_a_dirty_mapping_of_its_page() {
    hammer_volume("data=wasteless", libc::O_DSYNC, 0);
}

#[test]
fn a_synchronous_write_survives_a_mapping_of_a_synchronous_descriptor() {
    hammer_volume("data=ordered", libc::O_SYNC, libc::O_SYNC);
}

#[test]
fn a_synchronous_write_on_a_host_survives_a_dirty_mapping() {
    private_mounts();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::create_dir(path("store")).unwrap();
    std::fs::create_dir(path("mount")).unwrap();
    File::create(path("journal")).unwrap().set_len(64 << 20).unwrap();
    let run = |arguments: &[&OsStr]| {
        let output = okeanos(arguments);
        assert!(output.status.success(), "{}", said(&output));
    };
    let store = format!("dir:{}", path("store").display());
    let (journal, mount) = (path("journal"), path("mount"));
    let words = ["host", "mount", "--store", &store, "--journal"].map(OsStr::new);
    let mount_host = || run(&[&words[..], &[journal.as_os_str(), mount.as_os_str()]].concat());
    mount_host();
    let is_mapped = fuse::drops_written_pages();
    let last = is_mapped.then(|| hammer(&path("mount/file"), libc::O_DSYNC, 0).unwrap());
    run(&[OsStr::new("umount"), mount.as_os_str()]);
    let Some(last) = last else { return };
    mount_host();
    check_hammered(&path("mount/file"), &last);
    run(&[OsStr::new("umount"), mount.as_os_str()]);
}

/// Makes a file of `pages` pages: a hole, or unwritten space.
fn make_empty(volume: &Volume, name: &str, pages: usize, allocated: bool) {
    let file = File::create(volume.at(name)).unwrap();
    file.set_len((pages * PAGE) as u64).unwrap();
    if allocated {
        fallocate(&file, FallocateFlags::empty(), 0, (pages * PAGE) as u64).unwrap();
    }
}

#[test]
fn copies_have_what_a_mapping_changed_in_holes() {
    const PAGES: usize = 64;
    // A block smaller than a page, and one as large.
    for block in ["1024", "4096"] {
        let volume = Volume::mounted(&["-t", "ext4", "-b", block], "data=wasteless");
        for (number, allocated) in [false, true, false].into_iter().enumerate() {
            let name = format!("file{number}");
            make_empty(&volume, &name, PAGES, allocated);
            if number == 2 {
                // The pages are cached before they can be changed.
                assert_eq!(std::fs::read(volume.at(&name)).unwrap().len(), PAGES * PAGE);
            }
            let file = open(&volume, &name, 0);
            let map = Map::new(&file, PAGES * PAGE).unwrap();
            for page in [3, 4, 40] {
                map.word(page * PAGE + 2048).store(7, Ordering::Relaxed);
            }
            let first = seek(&file, SeekFrom::Data(0)).unwrap();
            assert!(first <= 3 * PAGE as u64 + 2048, "{name} of {block}: data at {first}");
            let copied = std::process::Command::new("cp")
                .args(["--sparse=auto", "--reflink=never"])
                .args([volume.at(&name), volume.at("copy")])
                .status()
                .unwrap();
            assert!(copied.success());
            let copy = std::fs::read(volume.at("copy")).unwrap();
            assert!(copy == std::fs::read(volume.at(&name)).unwrap(), "{name} of {block}");
            assert_eq!(copy.iter().filter(|byte| **byte == 7).count(), 3);
            std::fs::remove_file(volume.at("copy")).unwrap();
        }
        volume.umount_and_check();
    }
}

#[test]
fn holes_that_nobody_can_have_changed_stay_holes() {
    let volume = Volume::mounted(&["-t", "ext4", "-b", "4096"], "");
    make_empty(&volume, "file", 1024, false);
    let file = open(&volume, "file", 0);
    assert_eq!(seek(&file, SeekFrom::Data(0)), Err(Errno::NXIO), "nobody has read any page");
    let map = Map::new(&file, 1024 * PAGE).unwrap();
    map.word(512 * PAGE).store(1, Ordering::Relaxed);
    assert!(seek(&file, SeekFrom::Data(0)).is_ok());
    drop((map, file));
    let file = File::open(volume.at("file")).unwrap();
    let page = (512 * PAGE) as u64;
    // Written back when the mapping went. That write has a reference to the descriptor, so the
    // kernel may report its end a moment after this open.
    let began = Instant::now();
    while seek(&file, SeekFrom::Data(0)) != Ok(page) {
        assert!(began.elapsed() < Duration::from_secs(10), "still data before {page}");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(seek(&file, SeekFrom::Hole(page)), Ok(page + PAGE as u64));
    drop(file);
    volume.umount_and_check();
}

/// Calls `FIBMAP` (linux/fs.h).
fn address_of(file: &File, block: i32) -> u64 {
    let mut block = block;
    // SAFETY: the ioctl reads and writes one int.
    assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), 1, &mut block) }, 0);
    block as u64
}

#[test]
fn a_reported_address_holds_the_file_and_is_not_overwritten_late() {
    for mode in ["wasteless", "selective", "adaptive", "journal", "ordered", "writeback"] {
        let volume = Volume::mounted(
            &["-t", "ext4", "-b", "4096"],
            &format!("data={mode},writeback=1,expire=1"),
        );
        let image = OpenOptions::new().read(true).write(true).open(volume.image()).unwrap();
        let file = open(&volume, "file", libc::O_DSYNC);
        let map_file = open(&volume, "file", 0);
        file.write_all_at(&[1; 5 * PAGE], 0).unwrap();
        file.write_all_at(b"small", PAGE as u64).unwrap();
        let addresses: Vec<u64> = (0..5).map(|block| address_of(&file, block)).collect();
        assert!(addresses.iter().all(|address| *address > 0), "{mode}");
        let at_home = |block: usize| {
            let mut bytes = vec![0; PAGE];
            image.read_exact_at(&mut bytes, addresses[block] * PAGE as u64).unwrap();
            bytes
        };
        let mut wanted = vec![1; PAGE];
        assert!(at_home(0) == wanted, "{mode}");
        wanted[..5].copy_from_slice(b"small");
        assert!(at_home(1) == wanted, "{mode}");
        // After the query, each write is home before its reply, also one through a mapping.
        file.write_all_at(b"other", PAGE as u64).unwrap();
        assert_eq!(&at_home(1)[..5], b"other", "{mode}");
        let map = map_past_the_cache(&map_file, PAGE);
        if let Some(map) = &map {
            map.word(8).store(u64::MAX, Ordering::Relaxed);
            map.sync().unwrap();
            assert_eq!(at_home(0)[8..16], [255; 8], "{mode}");
        }
        // Another program uses the blocks directly, as swapping does.
        for address in &addresses {
            image.write_all_at(&[9; PAGE], address * PAGE as u64).unwrap();
        }
        image.sync_all().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(3500));
        std::fs::write(volume.at("another"), "to commit").unwrap();
        File::open(volume.root()).unwrap().sync_all().unwrap();
        for block in 0..5 {
            assert!(at_home(block) == [9; PAGE], "{mode}: block {block}");
        }
        drop((map, map_file, file));
        volume.umount_and_check();
    }
}

#[test]
fn times_that_were_set_stay_when_changed_pages_come_back() {
    let volume = Volume::mounted(&["-t", "ext4"], "");
    std::fs::write(volume.at("file"), [0; PAGE]).unwrap();
    let file = open(&volume, "file", 0);
    let map = Map::new(&file, PAGE).unwrap();
    map.word(0).store(1, Ordering::Relaxed);
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    file.set_modified(then).unwrap();
    map.sync().unwrap();
    let modified = || std::fs::metadata(volume.at("file")).unwrap().modified().unwrap();
    assert_eq!(modified(), then);
    map.word(0).store(2, Ordering::Relaxed);
    map.sync().unwrap();
    assert!(modified() > then, "changed after the time was set");
    drop((map, file));
    volume.umount_and_check();
}

/// `FS_IOC_SETFLAGS`, and the flag that makes a file immutable (linux/fs.h).
const SETFLAGS: u64 = 0x4008_6602;
const IMMUTABLE: libc::c_long = 0x10;
const EXTENTS: libc::c_long = 0x8_0000;

fn set_flags(file: &File, flags: libc::c_long) {
    // SAFETY: the ioctl reads one variable.
    assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), SETFLAGS, &flags) }, 0);
}

#[test]
fn what_was_changed_before_a_file_became_immutable_is_kept() {
    let volume = Volume::mounted(&["-t", "ext4"], "");
    std::fs::write(volume.at("file"), [0; PAGE]).unwrap();
    let file = open(&volume, "file", 0);
    let map = Map::new(&file, PAGE).unwrap();
    map.word(0).store(77, Ordering::Relaxed);
    set_flags(&file, EXTENTS | IMMUTABLE);
    map.sync().unwrap();
    drop((map, file));
    volume.umount();
    volume.mount("");
    let file = File::open(volume.at("file")).unwrap();
    assert_eq!(word_at(&file, 0), 77);
    set_flags(&file, EXTENTS);
    drop(file);
    volume.umount_and_check();
}

#[test]
fn chattr_changes_the_time_of_the_last_change() {
    let volume = Volume::mounted(&["-t", "ext4"], "");
    std::fs::write(volume.at("file"), "x").unwrap();
    let file = File::open(volume.at("file")).unwrap();
    let changed = || file.metadata().map(|about| (about.ctime(), about.ctime_nsec())).unwrap();
    let before = changed();
    std::thread::sleep(std::time::Duration::from_millis(30));
    set_flags(&file, EXTENTS | 0x40);
    assert!(changed() > before);
    drop(file);
    volume.umount_and_check();
}

#[test]
fn room_is_counted_as_the_kernels_ext4_counts_it() {
    Rig::new().run(
        r#"for size in 64M 512M 1G; do
             rm -f image; $O mkfs --force image $size -- -q >made
             $O mount image $M; echo x >$M/x; sync -f $M; ours=$(stat -f -c '%b %f %a %c %d' $M)
             $O umount $M; settle image
             mount -o loop,ro image $M; theirs=$(stat -f -c '%b %f %a %c %d' $M); umount $M
             settle image
             [ "$ours" = "$theirs" ] || { echo "$size: $ours, the kernel $theirs"; exit 1; }
           done"#,
    );
}

#[test]
fn a_name_moves_without_replacing_and_leaves_a_whiteout() {
    let volume = Volume::mounted(&["-t", "ext4"], "");
    let rename = |from: &str, to: &str| {
        let flags = RenameFlags::NOREPLACE | RenameFlags::WHITEOUT;
        renameat_with(CWD, volume.at(from), CWD, volume.at(to), flags).is_ok()
    };
    std::fs::write(volume.at("a"), "a").unwrap();
    std::fs::write(volume.at("b"), "b").unwrap();
    assert_eq!((rename("a", "b"), rename("a", "c")), (false, true));
    assert_eq!(std::fs::read(volume.at("c")).unwrap(), b"a");
    let left = std::fs::symlink_metadata(volume.at("a")).unwrap().file_type();
    assert!(std::os::unix::fs::FileTypeExt::is_char_device(&left));
    volume.umount_and_check();
}

/// Returns the inode of `name` as the kernel lists it, without a lookup.
fn listed(directory: &Path, name: &str) -> Option<u64> {
    let mut entries = Dir::read_from(File::open(directory).unwrap()).unwrap();
    let found =
        entries.find(|entry| entry.as_ref().unwrap().file_name().to_bytes() == name.as_bytes());
    found.map(|entry| entry.unwrap().ino())
}

#[test]
fn a_directory_that_moved_lists_its_new_parent() {
    let volume = Volume::mounted(&[], "data=ordered");
    let number = |name: &str| volume.at(name).metadata().unwrap().ino();
    let parent = |name: &str| {
        // The second comes from the kernel's cache, if it caches anything.
        let [first, second] = [(); 2].map(|()| listed(&volume.at(name), "..").unwrap());
        assert_eq!(first, second, "{name}");
        first
    };
    for name in ["a", "b", "a/one", "b/two"] {
        std::fs::create_dir(volume.at(name)).unwrap();
    }
    let (a, b) = (number("a"), number("b"));
    assert_eq!((parent("a/one"), parent("b/two")), (a, b));
    let exchange = || {
        let (one, two) = (volume.at("a/one"), volume.at("b/two"));
        renameat_with(CWD, one, CWD, two, RenameFlags::EXCHANGE).unwrap();
    };
    for round in 0..20 {
        exchange();
        assert_eq!((parent("a/one"), parent("b/two")), (a, b), "exchanged, round {round}");
        std::fs::rename(volume.at("a/one"), volume.at("b/one")).unwrap();
        assert_eq!(parent("b/one"), b, "moved, round {round}");
        std::fs::rename(volume.at("b/one"), volume.at("b/other")).unwrap();
        assert_eq!(parent("b/other"), b, "renamed, round {round}");
        std::fs::rename(volume.at("b/other"), volume.at("a/one")).unwrap();
        assert_eq!(parent("a/one"), a, "moved back, round {round}");
    }
    volume.umount_and_check();
}

#[test]
fn a_file_that_gets_its_name_late_is_listed() {
    let volume = Volume::mounted(&[], "data=ordered");
    std::fs::create_dir(volume.at("directory")).unwrap();
    for number in 0..20 {
        let name = format!("file-{number}");
        assert_eq!(listed(&volume.at("directory"), &name), None);
        let mut options = OpenOptions::new();
        let file =
            options.write(true).custom_flags(libc::O_TMPFILE).open(volume.at("directory")).unwrap();
        let from = format!("/proc/self/fd/{}", file.as_raw_fd());
        let to = volume.at("directory").join(&name);
        linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW).unwrap();
        assert_eq!(listed(&volume.at("directory"), &name), Some(file.metadata().unwrap().ino()));
    }
    volume.umount_and_check();
}

#[test]
fn a_listing_is_asked_for_once_and_shows_every_change() {
    let volume = Volume::mounted(&[], "data=ordered");
    let directory = volume.at("directory");
    std::fs::create_dir(&directory).unwrap();
    let names = || {
        let mut names: Vec<String> = std::fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let mut expected = Vec::new();
    for number in 0..300 {
        let name = format!("file-{number:03}");
        File::create(directory.join(&name)).unwrap();
        expected.push(name);
        if number % 7 == 3 {
            let gone = expected.remove(number % expected.len());
            std::fs::remove_file(directory.join(gone)).unwrap();
        }
        if number % 11 == 5 {
            let (old, new) = (expected.remove(0), format!("moved-{number:03}"));
            std::fs::rename(directory.join(old), directory.join(&new)).unwrap();
            expected.push(new);
        }
        expected.sort();
        assert_eq!(names(), expected, "after {number}");
    }
    let listings = || {
        let counts = &volume.statistics()["front_end"]["by_operation"];
        let names = ["opendir", "readdir", "readdirplus", "releasedir"];
        names.map(|name| counts[name].as_u64().unwrap_or(0)).iter().sum::<u64>()
    };
    // The first fills the kernel's cache, with all changes so far.
    names();
    let before = listings();
    assert!(before > 0);
    for _ in 0..20 {
        assert_eq!(names(), expected);
    }
    assert_eq!(listings(), before, "the kernel has the listing");
    volume.umount_and_check();
}

/// Queries as `xfstests` does (generic/285 and others): with a descriptor that could be mapped, and
/// without any mapping.
#[test]
fn holes_lie_where_the_kernels_ext4_has_them() {
    let script = r#"cat >/tmp/seek.$$ <<'END'
import os, sys
def show(name, change):
    file = os.open(sys.argv[1] + "/seek", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    change(file)
    at, runs = 0, []
    while True:
        try: start = os.lseek(file, at, os.SEEK_DATA)
        except OSError: break
        at = os.lseek(file, start, os.SEEK_HOLE); runs.append((start, at))
    print(name, runs); os.close(file)
K = 1024
def longer(f): os.pwrite(f, b"x" * 4096, 200 * K); os.ftruncate(f, 1 << 20)
def shorter(f): os.pwrite(f, b"x" * 20000, 200 * K); os.ftruncate(f, 210 * K); os.ftruncate(f, 1 << 20)
def in_turns(f): [os.pwrite(f, b"x" * 4096, at * 12 * K) for at in range(9)]; os.ftruncate(f, 150 * K)
def middle(f): os.ftruncate(f, 1 << 20); os.pwrite(f, b"x", 500 * K + 7)
def empty(f): os.ftruncate(f, 300 * K)
def synced(f): longer(f); os.fsync(f)
def written_to_end(f): empty(f); os.pwrite(f, b"x" * 100, 300 * K - 50)
def reserved(f): os.posix_fallocate(f, 0, 1 << 20); os.pwrite(f, b"x" * 5, 600 * K)
for change in longer, shorter, in_turns, middle, empty, synced, written_to_end, reserved:
    show(change.__name__, change)
END
/usr/bin/python3 /tmp/seek.$$ $M; rm $M/seek /tmp/seek.$$"#;
    for block in ["4096", "1024"] {
        let rig = Rig::new();
        rig.run(&format!("truncate -s 64M image; mke2fs -q -F -t ext4 -b {block} image >made"));
        let ours = rig.run(&format!("$O mount image $M; {script}; $O umount $M; settle image"));
        let theirs = rig.run(&format!("mount -o loop image $M; {script}; umount $M; settle image"));
        // In a page of several blocks, one that the kernel cut out may have been changed.
        let same = |text: &str| match block {
            "4096" => text.to_owned(),
            _ => text.lines().filter(|line| !line.starts_with("shorter")).collect(),
        };
        assert_eq!(same(&ours), same(&theirs), "blocks of {block}");
    }
}

#[test]
fn bytes_mapped_behind_the_end_are_zeros_afterwards() {
    let script = r#"cat >/tmp/behind.$$ <<'END'
import mmap, os, sys
for number, (before, after) in enumerate([(100, 4096), (100, 200), (5000, 100000), (4097, 8192)]):
    path = sys.argv[1] + "/behind"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.write(file, b"a" * before)
    pages = (before + 4095) // 4096 * 4096
    os.ftruncate(file, pages)
    map = mmap.mmap(file, pages)
    os.ftruncate(file, before)
    map[before:] = b"j" * (len(map) - before)
    map[0] = 66
    os.ftruncate(file, after)
    print(number, os.pread(file, after, 0).count(b"j"))
    map[before] = 67
    map.flush(); map.close(); os.close(file)
    content = open(path, "rb").read()
    print(number, content.count(b"j"), content[0], content[before])
END
/usr/bin/python3 /tmp/behind.$$ $M; rm $M/behind /tmp/behind.$$"#;
    let rig = Rig::new();
    rig.run("truncate -s 64M image; mke2fs -q -F -t ext4 -b 4096 image >made");
    let ours = rig.run(&format!("$O mount image $M; {script}; $O umount $M; settle image"));
    // As the kernel's ext4 has it, but for older ones: that of Linux 6.1 shows the bytes.
    let wanted = (0..4).map(|number| format!("{number} 0\n{number} 0 66 67\n"));
    assert_eq!(ours, wanted.collect::<String>());
}
