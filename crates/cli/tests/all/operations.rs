//! Tests of every operation once, through the kernel, on volumes made by mke2fs.

use crate::common;

use crate::common::Volume;
use crate::common::mapping::Map;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, RenameFlags, SeekFrom, XattrFlags, fallocate,
    getxattr, getxattr_query, linkat, listxattr, mknodat, removexattr, renameat_with, seek,
    setxattr, statvfs, syncfs,
};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{
    FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink,
};
use std::os::unix::process::CommandExt;
use std::path::Path;

fn errno<T: std::fmt::Debug>(result: Result<T, impl Into<io::Error>>) -> i32 {
    result.map_err(Into::into).unwrap_err().raw_os_error().unwrap()
}

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> rustix::io::Result<()> {
    renameat_with(CWD, from, CWD, to, flags)
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn every_operation(volume: &Volume, has_extents: bool) {
    names_and_kinds(volume);
    renames(volume);
    attributes(volume);
    content(volume, has_extents);
    extended_attributes(volume);
    nameless(volume);
}

fn names_and_kinds(volume: &Volume) {
    fs::create_dir(volume.at("directory")).unwrap();
    fs::write(volume.at("directory/file"), b"content").unwrap();
    symlink("file", volume.at("directory/link")).unwrap();
    let long = "x".repeat(900);
    symlink(&long, volume.at("directory/long link")).unwrap();
    assert_eq!(fs::read(volume.at("directory/link")).unwrap(), b"content");
    assert_eq!(fs::read_link(volume.at("directory/long link")).unwrap(), Path::new(&long));
    let mknod = |name, kind, mode, device| {
        mknodat(CWD, volume.at(name), kind, Mode::from_raw_mode(mode), device).unwrap();
    };
    mknod("fifo", FileType::Fifo, 0o600, 0);
    mknod("null", FileType::CharacterDevice, 0o666, libc::makedev(259, 70000));
    assert!(fs::symlink_metadata(volume.at("fifo")).unwrap().file_type().is_fifo());
    assert_eq!(fs::metadata(volume.at("null")).unwrap().rdev(), libc::makedev(259, 70000));
    let socket = std::os::unix::net::UnixListener::bind(volume.at("socket")).unwrap();
    assert!(fs::symlink_metadata(volume.at("socket")).unwrap().file_type().is_socket());
    drop(socket);
    fs::hard_link(volume.at("directory/file"), volume.at("hard")).unwrap();
    assert_eq!(fs::metadata(volume.at("hard")).unwrap().nlink(), 2);
    assert_eq!(errno(fs::create_dir(volume.at("directory"))), libc::EEXIST);
    assert_eq!(errno(fs::remove_dir(volume.at("directory"))), libc::ENOTEMPTY);
    assert_eq!(errno(File::open(volume.at("none"))), libc::ENOENT);
    assert_eq!(errno(File::open(volume.at("none"))), libc::ENOENT, "a remembered absence");
    assert_eq!(errno(fs::write(volume.at(&"n".repeat(256)), b"")), libc::ENAMETOOLONG);
    fs::write(volume.at("none"), b"now").unwrap();
    assert_eq!(names(&volume.at("directory")), ["file", "link", "long link"]);
    for name in ["fifo", "null", "socket", "hard", "none", "directory/link", "directory/long link"]
    {
        fs::remove_file(volume.at(name)).unwrap();
    }
    assert_eq!(fs::metadata(volume.at("directory/file")).unwrap().nlink(), 1);
}

fn renames(volume: &Volume) {
    fs::write(volume.at("a"), b"a").unwrap();
    fs::write(volume.at("b"), b"b").unwrap();
    assert_eq!(
        errno(rename(&volume.at("a"), &volume.at("b"), RenameFlags::NOREPLACE)),
        libc::EEXIST
    );
    rename(&volume.at("a"), &volume.at("b"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(volume.at("a")).unwrap(), b"b");
    fs::rename(volume.at("a"), volume.at("directory/b")).unwrap();
    assert_eq!(fs::read(volume.at("directory/b")).unwrap(), b"b");
    fs::rename(volume.at("b"), volume.at("directory/b")).unwrap();
    assert_eq!(fs::read(volume.at("directory/b")).unwrap(), b"a");
    fs::create_dir(volume.at("directory/below")).unwrap();
    assert_eq!(
        errno(fs::rename(volume.at("directory"), volume.at("directory/below/x"))),
        libc::EINVAL
    );
    rename(&volume.at("directory/b"), &volume.at("c"), RenameFlags::WHITEOUT).unwrap();
    assert!(fs::symlink_metadata(volume.at("directory/b")).unwrap().file_type().is_char_device());
    fs::remove_dir(volume.at("directory/below")).unwrap();
    fs::remove_file(volume.at("directory/b")).unwrap();
    fs::remove_file(volume.at("c")).unwrap();
}

fn attributes(volume: &Volume) {
    let path = volume.at("attributes");
    fs::write(&path, b"").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o6755);
    std::os::unix::fs::chown(&path, Some(1000), Some(100_000)).unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (1000, 100_000, 0o755));
    let at = |seconds| std::time::UNIX_EPOCH + std::time::Duration::new(seconds, 123_456_789);
    let times = fs::FileTimes::new().set_accessed(at(1)).set_modified(at(5_000_000_000));
    File::open(&path).unwrap().set_times(times).unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.atime(), found.mtime(), found.mtime_nsec()), (1, 5_000_000_000, 123_456_789));
    assert!(found.created().is_ok(), "statx reports the time of birth");
    let space = statvfs(volume.root()).unwrap();
    assert!(space.f_blocks > 0 && space.f_bfree < space.f_blocks && space.f_namemax == 255);
    fs::remove_file(&path).unwrap();
}

fn content(volume: &Volume, has_extents: bool) {
    let path = volume.at("content");
    let mut file = OpenOptions::new().create_new(true).read(true).write(true).open(&path).unwrap();
    let bytes: Vec<u8> = (0..2_500_000u32).map(|at| (at / 7) as u8).collect();
    file.write_all(&bytes).unwrap();
    let mut back = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut back).unwrap();
    assert!(back == bytes);
    file.set_len(1000).unwrap();
    file.set_len(2000).unwrap();
    file.read_exact_at(&mut back[..2000], 0).unwrap();
    assert!(back[..1000] == bytes[..1000] && back[1000..2000].iter().all(|&byte| byte == 0));
    file.write_all_at(b"far", 10 << 20).unwrap();
    assert!(seek(&file, SeekFrom::Hole(0)).unwrap() < 1 << 20);
    let data = seek(&file, SeekFrom::Data(1 << 20)).unwrap();
    assert!((9 << 20..=10 << 20).contains(&data), "{data}");
    assert_eq!(errno(seek(&file, SeekFrom::Data(11 << 20))), libc::ENXIO);
    let allocate = |mode, start, length| fallocate(&file, mode, start, length);
    allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 512).unwrap();
    if has_extents {
        allocate(FallocateFlags::empty(), 0, 11 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 11 << 20);
        allocate(FallocateFlags::ZERO_RANGE, 600, 100).unwrap();
    } else {
        // Indirect blocks cannot say "allocated and zero"; ext4 refuses as well.
        assert_eq!(errno(allocate(FallocateFlags::empty(), 0, 11 << 20)), libc::EOPNOTSUPP);
        file.write_all_at(&[0; 100], 600).unwrap();
    }
    file.read_exact_at(&mut back[..1000], 0).unwrap();
    assert!(back[..512].iter().chain(&back[600..700]).all(|&byte| byte == 0));
    assert_eq!(back[512..600], bytes[512..600]);
    assert_eq!(errno(allocate(FallocateFlags::COLLAPSE_RANGE, 0, 4096)), libc::EOPNOTSUPP);
    assert_eq!(errno(allocate(FallocateFlags::INSERT_RANGE, 0, 4096)), libc::EOPNOTSUPP);
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    File::open(volume.root()).unwrap().sync_all().unwrap();
    syncfs(&file).unwrap();
    mapped(&file);
    fs::copy(&path, volume.at("copy")).unwrap();
    assert!(fs::read(&path).unwrap() == fs::read(volume.at("copy")).unwrap());
    OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
    fs::remove_file(&path).unwrap();
    file.write_all_at(b"still here", 0).unwrap();
    file.read_exact_at(&mut back[..10], 0).unwrap();
    assert_eq!(&back[..10], b"still here", "an unlinked file lives while it is open");
    fs::remove_file(volume.at("copy")).unwrap();
}

fn mapped(file: &File) {
    let mut map = Map::new(file, 8192).unwrap();
    map.bytes()[5000..5006].copy_from_slice(b"mapped");
    map.sync().unwrap();
    drop(map);
    let mut back = [0; 6];
    file.read_exact_at(&mut back, 5000).unwrap();
    assert_eq!(&back, b"mapped");
}

fn extended_attributes(volume: &Volume) {
    let path = volume.at("attributed");
    fs::write(&path, b"").unwrap();
    let (name, value) = ("user.colour", b"blue");
    let mut room = [0u8; 64];
    let set = |flags| setxattr(&path, name, value, flags);
    let get = |room: &mut [u8]| getxattr(&path, name, room);
    assert_eq!(errno(get(&mut room)), libc::ENODATA);
    set(XattrFlags::CREATE).unwrap();
    assert_eq!(errno(set(XattrFlags::CREATE)), libc::EEXIST);
    assert_eq!(getxattr_query(&path, name).unwrap(), 4);
    assert_eq!(errno(get(&mut room[..2])), libc::ERANGE);
    assert_eq!(get(&mut room).unwrap(), 4);
    assert_eq!(&room[..4], value);
    let count = listxattr(&path, &mut room).unwrap();
    assert_eq!(&room[..count], b"user.colour\0");
    removexattr(&path, name).unwrap();
    assert_eq!(errno(get(&mut room)), libc::ENODATA);
    fs::remove_file(&path).unwrap();
}

fn nameless(volume: &Volume) {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(volume.root())
        .unwrap();
    file.write_all(b"found a name").unwrap();
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, from, CWD, volume.at("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    file.rewind().unwrap();
    assert_eq!(fs::read(volume.at("named")).unwrap(), b"found a name");
    fs::remove_file(volume.at("named")).unwrap();
}

#[test]
fn every_operation_works_on_a_volume_of_mke2fs() {
    for (arguments, options) in [
        (&["-t", "ext4"][..], "data=ordered"),
        (&["-t", "ext4", "-b", "4096"], "data=wasteless"),
        (&["-t", "ext3", "-b", "1024"], "data=selective,noloop"),
        (&["-t", "ext4", "-b", "2048"], "data=journal"),
    ] {
        let volume = Volume::mounted(arguments, options);
        every_operation(&volume, arguments[1] == "ext4");
        assert_eq!(names(&volume.root()), ["directory", "lost+found"], "{arguments:?} {options}");
        volume.umount_and_check();
        volume.mount("ro");
        assert_eq!(names(&volume.at("directory")), ["file"]);
        assert_eq!(errno(fs::write(volume.at("no"), b"")), libc::EROFS);
        volume.umount_and_check();
    }
}

#[test]
fn a_directory_of_many_names_is_listed_whole() {
    let volume = Volume::mounted(&["-t", "ext4"], "");
    let mut expected: Vec<String> =
        (0..3000).map(|number| format!("name number {number}")).collect();
    fs::create_dir(volume.at("many")).unwrap();
    expected.iter().for_each(|name| fs::write(volume.at("many").join(name), b"").unwrap());
    expected.sort();
    assert_eq!(names(&volume.at("many")), expected);
    volume.umount_and_check();
}

#[test]
fn a_file_open_through_and_past_the_page_cache_shows_one_content() {
    let volume = Volume::mounted(&["-t", "ext4"], "data=wasteless");
    let path = volume.at("both");
    let open = |flags| {
        OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(&path)
    };
    let (cached, direct) = (open(0).unwrap(), open(libc::O_SYNC).unwrap());
    let mut back = [0; 5000];
    for round in 0..50u8 {
        let (writer, reader) = if round % 2 == 0 { (&cached, &direct) } else { (&direct, &cached) };
        let at = u64::from(round) * 613;
        writer.write_all_at(&[round + 1; 5000], at).unwrap();
        reader.read_exact_at(&mut back, at).unwrap();
        assert!(back.iter().all(|&byte| byte == round + 1), "round {round}");
    }
    drop((cached, direct));
    volume.umount_and_check();
}

#[test]
fn a_direct_write_is_seen_by_cached_readers_however_they_race() {
    let volume = Volume::mounted(&["-t", "ext4"], "data=wasteless");
    let path = volume.at("raced");
    fs::write(&path, [0; 4096]).unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let reader = File::open(&path).unwrap();
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    reader.read_exact_at(&mut [0; 128], 0).unwrap();
                }
            });
        }
        let direct = OpenOptions::new().write(true).custom_flags(libc::O_SYNC).open(&path).unwrap();
        let cached = File::open(&path).unwrap();
        let mut back = [0; 128];
        let seen: Vec<_> = (1..=300u32)
            .map(|round| {
                direct.write_all_at(&[round as u8; 128], 0).unwrap();
                cached.read_exact_at(&mut back, 0).unwrap();
                (round as u8, back[0])
            })
            .collect();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        seen.into_iter().for_each(|(written, read)| assert_eq!(written, read));
    });
    volume.umount_and_check();
}

#[test]
fn owners_and_modes_follow_the_rules_of_the_kernel() {
    let volume = Volume::mounted(&["-t", "ext4"], "allow_other");
    let shell = |user: u32, script: &str| {
        let mut command = std::process::Command::new("sh");
        command.current_dir(volume.root()).args(["-ec", script]).uid(user).gid(user);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{script}: {}", common::said(&output));
    };
    let mode = |name: &str| fs::symlink_metadata(volume.at(name)).unwrap().mode() & 0o7777;
    shell(0, "chmod 1777 .; umask 027; touch file; mkdir directory; mkfifo fifo");
    assert_eq!((mode("file"), mode("directory"), mode("fifo")), (0o640, 0o750, 0o640));
    shell(
        0,
        "mkdir shared; chgrp 100 shared; chmod 2775 shared; mkdir shared/below; touch shared/file",
    );
    assert_eq!(
        (mode("shared/below") & 0o2000, fs::metadata(volume.at("shared/file")).unwrap().gid()),
        (0o2000, 100)
    );
    shell(1000, "touch mine; chmod 6777 mine; echo written by the owner > mine");
    assert_eq!(mode("mine"), 0o777, "a write by an ordinary user takes the set-id bits away");
    shell(1000, "chmod 6777 mine; : > mine");
    assert_eq!(mode("mine"), 0o777, "so does a truncation");
    shell(0, "chmod 4755 mine; echo root may >> mine");
    assert_eq!(mode("mine"), 0o4755, "root keeps them");
    shell(1001, "! rm -f mine 2> /dev/null && ! cat file 2> /dev/null");
    volume.umount_and_check();
}

#[test]
fn chattr_sets_the_flags_that_the_kernel_lets_users_set_and_they_are_obeyed() {
    for (kind, extents) in [("ext4", "e"), ("ext3", "-")] {
        let volume = Volume::mounted(&["-t", kind], "data=wasteless,allow_other");
        let shell = |user: u32, script: &str| {
            let mut command = std::process::Command::new("sh");
            command.current_dir(volume.root()).args(["-ec", script]).uid(user).gid(user);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{kind}: {script}: {}", common::said(&output));
        };
        shell(
            0,
            "chmod 777 .; echo old > fixed; echo old > log; mkdir sealed; touch sealed/inside",
        );
        shell(0, "chattr +i fixed; chattr +a log; chattr +i sealed");
        shell(
            0,
            &format!(
                "[ \"$(lsattr fixed | cut -c 5,15)\" = i{extents} ]
                 lsattr log | cut -c 6 | grep -q a"
            ),
        );
        shell(
            0,
            "! (echo no > fixed) && ! (echo no >> fixed) && ! rm -f fixed && ! mv fixed other",
        );
        shell(
            0,
            "! ln fixed other && ! chmod 600 fixed && ! touch fixed &&
                 ! setfattr -n user.a -v b fixed",
        );
        shell(0, "! (echo no > log) && ! rm -f log && ! truncate -s 0 log && ! chmod 600 log");
        shell(0, "echo new >> log; touch log; [ \"$(cat log)\" = \"$(printf 'old\\nnew')\" ]");
        shell(
            0,
            "! touch sealed/more && ! rm -f sealed/inside && ! mv sealed/inside . &&
                 echo yes > sealed/inside",
        );
        shell(
            0,
            "chattr -i fixed sealed; chattr -a log; echo new > fixed; rm fixed log sealed/inside",
        );
        shell(1000, "touch mine; chattr +dAS mine; ! chattr +i mine 2>&1 && ! chattr +a mine 2>&1");
        shell(1001, "! chattr -d mine 2>&1");
        shell(0, "mkdir strict; chattr +DT strict; touch strict/file; ! chattr +j mine 2>&1");
        assert_eq!(errno(File::options().write(true).open(volume.root())), libc::EISDIR);
        volume.umount_and_check();
        let dump = std::process::Command::new("debugfs")
            .args(["-R", "stat mine"])
            .arg(volume.image())
            .output();
        let flags = if kind == "ext4" { "Flags: 0x800c8" } else { "Flags: 0xc8" };
        assert!(
            common::said(dump.as_ref().unwrap()).contains(flags),
            "{}",
            common::said(&dump.unwrap())
        );
    }
}

#[test]
fn a_program_that_runs_is_not_cut_by_who_would_open_it() {
    let volume = Volume::mounted(&["-t", "ext4"], "");
    let path = volume.at("sleep");
    fs::copy("/usr/bin/sleep", &path).unwrap();
    for _ in 0..20 {
        let mut program = std::process::Command::new(&path).arg("100").spawn().unwrap();
        let cutting = OpenOptions::new().read(true).custom_flags(libc::O_TRUNC).open(&path);
        assert_eq!(errno(cutting), libc::ETXTBSY);
        assert!(fs::read(&path).unwrap() == fs::read("/usr/bin/sleep").unwrap());
        program.kill().unwrap();
        program.wait().unwrap();
    }
    volume.umount_and_check();
}

#[test]
fn requests_come_through_the_ring_when_asked_for() {
    let Some(ring) = common::ring::Ring::take() else { return };
    let volume = Volume::new(&["-t", "ext4", "-b", "4096"]);
    ring.allow(false);
    let refused = volume.try_mount("transport=uring");
    assert!(!refused.status.success() && common::said(&refused).contains("enable_uring"));
    ring.allow(true);
    volume.mount("transport=uring,data=wasteless");
    every_operation(&volume, true);
    let statistics = volume.statistics();
    assert_eq!(statistics["transport"], "io_uring");
    assert!(statistics["front_end"]["ring_requests"].as_u64().unwrap() > 100, "{statistics:#}");
    volume.umount_and_check();
}

/// The rule of `docs/KERNELS.md`: small synchronous writes are not faster over the ring.
#[test]
fn the_ring_is_taken_only_when_asked_for() {
    let Some(ring) = common::ring::Ring::take() else { return };
    let volume = Volume::new(&["-t", "ext4"]);
    for is_allowed in [true, false] {
        ring.allow(is_allowed);
        for options in ["", "transport=auto", "transport=classic"] {
            volume.mount(options);
            fs::write(volume.at("file"), "content").unwrap();
            let statistics = volume.statistics();
            assert_eq!(statistics["transport"], "classic", "{is_allowed}, {options}");
            let over_ring = &statistics["front_end"]["ring_requests"];
            assert_eq!(over_ring, 0, "{is_allowed}, {options}");
            volume.umount_and_check();
        }
    }
}
