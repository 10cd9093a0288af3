//! Tests of failures and loads: a kill at work, an unplugged disk, full volumes, many files.

use rustix::fs::statvfs;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::failing_disk::{FailingDisk, Request};
use crate::common::{Volume, gone, is_alive, okeanos, said, signal};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MODES: [&str; 5] = ["writeback", "ordered", "journal", "wasteless", "selective"];
const RECORD: usize = 100;

fn synchronous(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).custom_flags(libc::O_SYNC).open(path).unwrap()
}

fn record(number: u64) -> [u8; RECORD] {
    let mut bytes = [b' '; RECORD];
    let text = format!("record {number}");
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}

/// Runs writers that append records until a write fails. Returns the number of acknowledged records
/// of each writer.
fn append_until_failure(
    directory: &Path,
    writers: usize,
    then: impl FnOnce(&dyn Fn() -> u64),
) -> Vec<u64> {
    let acknowledged: Vec<AtomicU64> = (0..writers).map(|_| AtomicU64::new(0)).collect();
    let sum = || acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).sum();
    std::thread::scope(|scope| {
        for (writer, count) in acknowledged.iter().enumerate() {
            let mut log = synchronous(&directory.join(format!("log{writer}")));
            scope.spawn(move || {
                while log.write_all(&record(count.load(Ordering::SeqCst))).is_ok() {
                    count.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        then(&sum);
    });
    acknowledged.into_iter().map(AtomicU64::into_inner).collect()
}

fn expect_records(directory: &Path, acknowledged: &[u64], what: &str) {
    for (writer, &count) in acknowledged.iter().enumerate() {
        // A file without acknowledged records need not exist: its creation was not synced.
        let bytes =
            fs::read(directory.join(format!("log{writer}"))).or_else(|error| match error.kind() {
                ErrorKind::NotFound => Ok(Vec::new()),
                _ => Err(error),
            });
        let bytes = bytes.unwrap();
        assert!(
            bytes.len() as u64 >= count * RECORD as u64,
            "{what}: writer {writer} lost acknowledged records"
        );
        for number in 0..count {
            let at = number as usize * RECORD;
            assert_eq!(
                bytes[at..at + RECORD],
                record(number),
                "{what}: writer {writer}, record {number}"
            );
        }
    }
}

fn wait_for(done: impl Fn() -> bool) {
    while !done() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_mount_point_comes_back_after_its_daemon_was_killed_under_load() {
    for mode in MODES {
        let volume = Volume::mounted(&["-t", "ext4"], &format!("data={mode}"));
        let acknowledged = append_until_failure(&volume.root(), 8, |count| {
            wait_for(|| count() >= 400);
            let daemon = volume.daemon();
            signal(daemon, libc::SIGKILL);
            gone(daemon);
        });
        // As other file systems' users do; or the mount takes the dead one away itself.
        if mode == MODES[0] {
            let umounted = Command::new("umount").arg("-l").arg(volume.root()).output().unwrap();
            assert!(umounted.status.success(), "{}", said(&umounted));
        }
        volume.mount(&format!("data={mode}"));
        expect_records(&volume.root(), &acknowledged, mode);
        volume.umount_and_check();
    }
}

/// Mounts the volume on a disk that may fail, with `data=mode`.
fn mount_failing(disk: &FailingDisk, volume: &Volume, mode: &str) {
    let options = format!("noloop,data={mode}");
    let (path, root) = (disk.path(), volume.root());
    let mounted = okeanos(&[
        "mount".as_ref(),
        "-o".as_ref(),
        options.as_ref(),
        path.as_os_str(),
        root.as_os_str(),
    ]);
    assert!(mounted.status.success(), "{}", said(&mounted));
}

/// Lets the disk work again at once; its content is unknown all the same.
#[test]
fn a_failed_write_or_flush_fails_later_syncs_and_loses_nothing_acknowledged() {
    for (mode, request) in [
        ("wasteless", Request::Write),
        ("ordered", Request::Flush),
        ("selective", Request::Flush),
        ("journal", Request::Write),
    ] {
        let context = format!("{mode}, {request:?}");
        let volume = Volume::new(&["-t", "ext4", "-b", "4096"]);
        let port = volume.directory.path().join("port");
        fs::create_dir(&port).unwrap();
        let disk = FailingDisk::new(&volume.image(), &port);
        mount_failing(&disk, &volume, mode);
        // An orphan at the failure.
        let unlinked = File::create(volume.at("unlinked")).unwrap();
        unlinked.set_len(100_000).unwrap();
        fs::remove_file(volume.at("unlinked")).unwrap();
        unlinked.sync_all().unwrap();
        let daemon = volume.daemon();
        let acknowledged = append_until_failure(&volume.root(), 4, |count| {
            wait_for(|| count() >= 100);
            disk.fail_once(request);
        });
        assert!(disk.has_failed(), "{context}");
        for _ in 0..3 {
            let error = File::open(volume.at("log0"))
                .unwrap()
                .sync_all()
                .expect_err("nothing can be synced");
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{context}: {error}");
        }
        assert!(File::create(volume.at("new")).is_err(), "{context}: the volume is read-only now");
        expect_records(&volume.root(), &acknowledged, &format!("{context}, still mounted"));
        drop(unlinked);
        let umounted = volume.try_umount();
        assert_ne!(umounted.status.code(), Some(124), "{context}: umount hangs");
        gone(daemon);
        mount_failing(&disk, &volume, mode);
        expect_records(&volume.root(), &acknowledged, &context);
        volume.umount();
        drop(disk);
        volume.check();
    }
}

#[test]
fn an_unplugged_disk_fails_every_sync_and_loses_nothing_acknowledged() {
    for mode in MODES {
        let volume = Volume::new(&["-t", "ext4", "-b", "4096"]);
        let port = volume.directory.path().join("port");
        fs::create_dir(&port).unwrap();
        let disk = FailingDisk::new(&volume.image(), &port);
        mount_failing(&disk, &volume, mode);
        fs::write(volume.at("cached"), vec![7; 100_000]).unwrap();
        assert_eq!(fs::read(volume.at("cached")).unwrap(), vec![7; 100_000]);
        let daemon = volume.daemon();
        let acknowledged = append_until_failure(&volume.root(), 8, |count| {
            wait_for(|| count() >= 400);
            disk.unplug();
        });
        let log = OpenOptions::new().write(true).open(volume.at("log0")).unwrap();
        for _ in 0..3 {
            let error = log.sync_all().expect_err("nothing can be synced");
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{mode}: {error}");
        }
        assert!(File::create(volume.at("new")).is_err(), "{mode}: the volume is read-only now");
        assert_eq!(fs::read(volume.at("cached")).unwrap(), vec![7; 100_000], "{mode}: cached");
        assert!(is_alive(daemon), "{mode}");
        drop(log);
        let umounted = volume.try_umount();
        assert_ne!(umounted.status.code(), Some(124), "{mode}: umount hangs");
        gone(daemon);
        disk.plug_in();
        mount_failing(&disk, &volume, mode);
        expect_records(&volume.root(), &acknowledged, mode);
        volume.umount();
        drop(disk);
        volume.check();
    }
}

#[test]
fn ten_thousand_files_are_open_at_once() {
    const FILES: usize = 10_000;
    raise_open_files(FILES as u64 + 1000);
    let volume = Volume::mounted(&["-t", "ext4", "-N", "20000"], "data=wasteless");
    let open = |number: usize| {
        let mut options = OpenOptions::new();
        options
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(volume.at(&format!("file{number}")))
            .unwrap()
    };
    let files: Vec<File> = (0..FILES).map(open).collect();
    for (number, file) in files.iter().enumerate() {
        file.write_all_at(format!("{number}").as_bytes(), 0).unwrap();
        if number % 2 == 0 {
            fs::remove_file(volume.at(&format!("file{number}"))).unwrap();
        }
    }
    for (number, mut file) in files.iter().enumerate() {
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, number.to_string(), "also of removed files");
    }
    drop(files);
    assert_eq!(fs::read_dir(volume.root()).unwrap().count(), FILES / 2 + 1);
    volume.umount_and_check();
}

/// Number of files: `OKEANOS_FILES`, a million in `make test-apps`.
#[test]
fn a_large_directory_is_made_listed_asked_and_emptied() {
    let files: u64 = std::env::var("OKEANOS_FILES").map_or(10_000, |text| text.parse().unwrap());
    let volume = Volume::with_size(
        &["-t", "ext4", "-N", &(files + 1000).to_string()],
        (64 << 20) + files * 1500,
    );
    volume.mount("data=wasteless");
    let before = space(&volume.root());
    let directory = volume.at("directory");
    fs::create_dir(&directory).unwrap();
    let path = |number: u64| directory.join(format!("a file among others, number {number}"));
    (0..files).for_each(|number| drop(File::create_new(path(number)).unwrap()));
    let mut seen = vec![false; files as usize];
    for entry in fs::read_dir(&directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let number: usize = name.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(!std::mem::replace(&mut seen[number], true), "{name} is listed twice");
    }
    assert!(seen.iter().all(|seen| *seen), "every file is listed");
    // The kernel caches them all; the daemon has its cache of 256 MiB and little more.
    assert!(most_resident(&volume) < 450);
    volume.umount_and_check();
    volume.mount("data=wasteless");
    (0..files).for_each(|number| assert_eq!(fs::metadata(path(number)).unwrap().len(), 0));
    (0..files).for_each(|number| fs::remove_file(path(number)).unwrap());
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    fs::remove_dir(&directory).unwrap();
    wait_for_space(&volume, before);
    assert!(most_resident(&volume) < 450);
    volume.umount_and_check();
}

#[test]
fn a_volume_is_filled_to_the_last_block_and_emptied_and_nothing_leaks() {
    for arguments in [["-t", "ext4", "-b", "4096"], ["-t", "ext4", "-b", "1024"]] {
        let volume = Volume::with_size(&arguments, 24 << 20);
        volume.mount("data=wasteless");
        let before = space(&volume.root());
        let mut filled = Vec::new();
        for round in 0..2 {
            // Directories keep the blocks that they grew.
            fs::create_dir(volume.at("full")).unwrap();
            let mut big = File::create(volume.at("big")).unwrap();
            let mut size = 0;
            while size < 8 << 20 {
                big.write_all(&vec![round; 1 << 20]).unwrap();
                size += 1 << 20;
            }
            let mut small = 0u64;
            let refused = loop {
                match fs::write(volume.at(&format!("full/small{small}")), vec![round; 5000]) {
                    Ok(()) => small += 1,
                    Err(error) => break error,
                }
            };
            assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused}");
            let refused = loop {
                match big.write_all(&[round; 1024]) {
                    Ok(()) => size += 1024,
                    Err(error) => break error,
                }
            };
            assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused}");
            drop(big);
            // Free are those alone that are kept for extent trees, a fiftieth of the volume.
            let left = statvfs(volume.root()).unwrap();
            assert_eq!(left.f_bavail, 0, "not a block is available");
            assert!(left.f_bfree <= left.f_blocks / 30, "{} are free", left.f_bfree);
            volume.umount_and_check();
            volume.mount("data=wasteless");
            for number in 0..small {
                let bytes = fs::read(volume.at(&format!("full/small{number}"))).unwrap();
                assert!(bytes == vec![round; 5000], "small{number}");
                fs::remove_file(volume.at(&format!("full/small{number}"))).unwrap();
            }
            let _ = fs::remove_file(volume.at(&format!("full/small{small}")));
            assert!(fs::read(volume.at("big")).unwrap()[..size].iter().all(|&byte| byte == round));
            fs::remove_file(volume.at("big")).unwrap();
            fs::remove_dir(volume.at("full")).unwrap();
            wait_for_space(&volume, before);
            filled.push(small);
        }
        assert!(filled[0].abs_diff(filled[1]) <= 2, "as many files as before: {filled:?}");
        volume.umount_and_check();
    }
}

#[test]
fn memory_stays_bounded_with_a_thousand_writers_and_a_small_cache() {
    const WRITERS: usize = 1000;
    raise_open_files(WRITERS as u64 + 1000);
    let volume = Volume::with_size(&["-t", "ext4"], 256 << 20);
    volume.mount("data=wasteless,cache=16M");
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let root = volume.root();
            let work = move || {
                let mut log = synchronous(&root.join(format!("log{writer}")));
                for number in 0..20 {
                    log.write_all(&record(number)).unwrap();
                    if number == 10 {
                        log.write_all(&vec![7; 64 << 10]).unwrap();
                    }
                }
            };
            std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, work).unwrap();
        }
    });
    let most = most_resident(&volume);
    assert!(most < 200, "{most} MiB");
    volume.umount_and_check();
}

#[test]
fn a_thousand_directories_lie_in_one_another() {
    const DEPTH: usize = 1000;
    raise_open_files(3000);
    let volume = Volume::mounted(&["-t", "ext4"], "");
    // Longer than a path may be, so step by step.
    let script =
        "set -e; for step in $(seq 1000); do mkdir step; cd -P step; done; echo deep >file";
    let made = Command::new("sh").args(["-c", script]).current_dir(volume.root()).output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    volume.umount_and_check();
    volume.mount("");
    let script = "set -e; for step in $(seq 1000); do cd -P step; done; cat file";
    let found =
        Command::new("sh").args(["-c", script]).current_dir(volume.root()).output().unwrap();
    assert_eq!(said(&found), "deep\n");
    let listed = Command::new("find")
        .arg("step")
        .current_dir(volume.root())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(said(&listed).lines().count(), DEPTH + 1);
    fs::remove_dir_all(volume.at("step")).unwrap();
    assert_eq!(fs::read_dir(volume.root()).unwrap().count(), 1);
    volume.umount_and_check();
}

#[test]
fn names_are_as_long_as_255_bytes_and_no_longer() {
    let volume = Volume::mounted(&["-t", "ext4", "-b", "1024"], "");
    let name = |number: usize, length: usize| format!("{number:0>length$}");
    for number in 0..300 {
        fs::write(volume.at(&name(number, 255)), number.to_string()).unwrap();
    }
    let refused = File::create(volume.at(&name(0, 256))).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ENAMETOOLONG));
    volume.umount_and_check();
    volume.mount("");
    for number in 0..300 {
        assert_eq!(fs::read_to_string(volume.at(&name(number, 255))).unwrap(), number.to_string());
    }
    volume.umount_and_check();
}

#[test]
fn a_sparse_file_of_five_tebibytes_takes_what_is_written() {
    let volume = Volume::mounted(&["-t", "ext4", "-b", "4096"], "");
    let file = File::create_new(volume.at("sparse")).unwrap();
    file.set_len(5 << 40).unwrap();
    file.write_all_at(b"last", (5 << 40) - 4).unwrap();
    file.write_all_at(b"middle", 3 << 40).unwrap();
    drop(file);
    volume.umount_and_check();
    volume.mount("");
    let file = File::open(volume.at("sparse")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 5 << 40);
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, (5 << 40) - 8).unwrap();
    assert_eq!(&bytes, b"\0\0\0\0last");
    file.read_exact_at(&mut bytes[..6], 3 << 40).unwrap();
    assert_eq!(&bytes[..6], b"middle");
    file.read_exact_at(&mut bytes, 1 << 40).unwrap();
    assert_eq!(bytes, [0; 8]);
    drop(file);
    volume.umount_and_check();
}

/// Returns the daemon's peak memory in MiB.
fn most_resident(volume: &Volume) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", volume.daemon())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    let kibibytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    println!("at most {} MiB were resident", kibibytes >> 10);
    kibibytes >> 10
}

/// Returns free blocks and free inodes.
fn space(path: &Path) -> (u64, u64) {
    let space = statvfs(path).unwrap();
    (space.f_bfree, space.f_ffree)
}
/// Removed files are freed when the kernel forgets them, a moment later.
fn wait_for_space(volume: &Volume, expected: (u64, u64)) {
    for _ in 0..2000 {
        if space(&volume.root()) == expected {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(space(&volume.root()), expected, "free blocks and inodes as before");
}

/// Raises this process's limit of open files; other tests may have requested more.
fn raise_open_files(count: u64) {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    assert!(most >= count, "ulimit -Hn allows {most} open files, {count} are needed");
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}
