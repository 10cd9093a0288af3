//! Tests of checks by the daemon on system calls that the kernel passes on unchecked.

use crate::common::{Volume, okeanos, said};
use crate::rig::Rig;
use std::fs::{File, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

const NOBODY: u32 = 65534;
const IMMUTABLE: u64 = 0x10;
const APPEND: u64 = 0x20;
const NO_DUMP: u64 = 0x40;
/// `FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS`, and the number by which a 32-bit process knows the latter.
const GETFLAGS: libc::c_ulong = 0x8008_6601;
const SETFLAGS: libc::c_ulong = 0x4008_6602;
const SETFLAGS_32: libc::c_ulong = 0x4004_6602;

/// Makes a volume whose mount everybody may enter.
fn volume_for_all() -> Volume {
    let volume = Volume::new(&["-t", "ext4"]);
    std::fs::set_permissions(volume.directory.path(), Permissions::from_mode(0o755)).unwrap();
    volume.mount("allow_other");
    volume
}

/// Runs `act` on a thread that has this user's rights and no capability.
fn as_user<T: Send>(user: u32, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: the bare calls take integers and a null list, and change this thread alone.
            unsafe {
                assert_eq!(
                    libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()),
                    0
                );
                assert_eq!(libc::syscall(libc::SYS_setresgid, user, user, user), 0);
                assert_eq!(libc::syscall(libc::SYS_setresuid, user, user, user), 0);
            }
            act()
        });
        thread.join().unwrap()
    })
}

/// Runs `act` on a thread of root's that lacks some capabilities, as root in a container does.
fn without_capabilities<T: Send>(numbers: &[u32], act: impl FnOnce() -> T + Send) -> T {
    let mask = numbers.iter().fold(!0u64, |mask, number| mask & !(1 << number));
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut header = [0x2008_0522u32, 0];
            let mut sets = [0u32; 6];
            // SAFETY: version 3 takes a header of two words and sets of six; both are live.
            unsafe {
                assert_eq!(libc::syscall(libc::SYS_capget, &raw mut header, &raw mut sets), 0);
                for (half, bits) in [mask as u32, (mask >> 32) as u32].into_iter().enumerate() {
                    (0..3).for_each(|set| sets[half * 3 + set] &= bits);
                }
                assert_eq!(libc::syscall(libc::SYS_capset, &raw mut header, &raw mut sets), 0);
            }
            act()
        });
        thread.join().unwrap()
    })
}

/// Returns the error number, or zero.
fn ioctl(path: &Path, command: libc::c_ulong, word: u64) -> i32 {
    let file = File::open(path).unwrap();
    let mut area = [0u8; 256];
    area[..8].copy_from_slice(&word.to_ne_bytes());
    // SAFETY: no command here reads or writes more than the area holds.
    match unsafe { libc::ioctl(file.as_raw_fd(), command, area.as_mut_ptr()) } {
        -1 => std::io::Error::last_os_error().raw_os_error().unwrap(),
        _ => 0,
    }
}

fn flags_of(path: &Path) -> u64 {
    all_flags_of(path) & (IMMUTABLE | APPEND | NO_DUMP)
}

fn all_flags_of(path: &Path) -> u64 {
    let file = File::open(path).unwrap();
    let mut flags = 0u64;
    // SAFETY: the variable is as wide as the command's number says.
    assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), GETFLAGS, &raw mut flags) }, 0);
    flags
}

/// Sets flags. Returns the error number, or zero. Flags unknown to this test stay.
fn set_flags(path: &Path, command: libc::c_ulong, flags: u64) -> i32 {
    ioctl(path, command, all_flags_of(path) & !(IMMUTABLE | APPEND | NO_DUMP) | flags)
}

#[test]
fn flags_change_for_nobody_whom_the_kernel_did_not_check() {
    let volume = volume_for_all();
    let (file, log, mine) = (volume.at("file"), volume.at("log"), volume.at("mine"));
    for path in [&file, &log, &mine] {
        std::fs::write(path, "readable").unwrap();
    }
    std::os::unix::fs::chown(&mine, Some(NOBODY), Some(NOBODY)).unwrap();
    assert_eq!(set_flags(&log, SETFLAGS, APPEND), 0);
    as_user(NOBODY, || {
        for command in [SETFLAGS, SETFLAGS_32] {
            for path in [&file, &volume.root()] {
                assert_ne!(set_flags(path, command, IMMUTABLE), 0, "{command:x} {path:?}");
                assert_ne!(set_flags(path, command, NO_DUMP), 0, "{command:x} {path:?}");
            }
            assert_ne!(set_flags(&log, command, 0), 0, "{command:x}");
            assert_ne!(set_flags(&mine, command, IMMUTABLE), 0, "{command:x}");
        }
        // An owner may set flags that need no capability.
        assert_eq!(set_flags(&mine, SETFLAGS, NO_DUMP), 0);
        assert_eq!(set_flags(&mine, SETFLAGS_32, 0), libc::ENOTTY, "as the kernel's ext4 says");
    });
    without_capabilities(&[9], || {
        for command in [SETFLAGS, SETFLAGS_32] {
            assert_ne!(set_flags(&file, command, IMMUTABLE), 0, "{command:x}");
        }
    });
    let flags = [&file, &log, &mine, &volume.root()].map(|path| flags_of(path));
    assert_eq!(flags, [0, APPEND, NO_DUMP, 0]);
    assert_eq!((set_flags(&file, SETFLAGS, IMMUTABLE), flags_of(&file)), (0, IMMUTABLE));
    assert_eq!((set_flags(&file, SETFLAGS, 0), flags_of(&file)), (0, 0));
    volume.umount_and_check();
}

/// Calls by which the front end changes something, and the first word of their argument.
/// (linux/fs.h)
const CHANGES: [(&str, libc::c_ulong, u64); 9] = [
    ("FS_IOC_SETFLAGS", SETFLAGS, IMMUTABLE),
    ("FS_IOC32_SETFLAGS", SETFLAGS_32, IMMUTABLE),
    ("FS_IOC_FSSETXATTR", 0x401c_5820, 0x8),
    ("FS_IOC_SETVERSION", 0x4008_7602, 77),
    ("FS_IOC32_SETVERSION", 0x4004_7602, 77),
    ("FS_IOC_SETFSLABEL", 0x4100_9432, 0x64_6c6f),
    ("FITRIM", 0xc018_5879, 0),
    ("FS_IOC_SHUTDOWN", 0x8004_587d, 0),
    ("OKEANOS_SET_DURABILITY", SET_DURABILITY, 1),
];

#[test]
fn no_call_changes_what_its_caller_may_only_read() {
    const GETVERSION: libc::c_ulong = 0x8008_7601;
    const GETFSLABEL: libc::c_ulong = 0x8100_9431;
    let volume = volume_for_all();
    let path = volume.at("file");
    std::fs::write(&path, "readable").unwrap();
    let state = || {
        let file = File::open(&path).unwrap();
        [GETFLAGS, GETVERSION, GETFSLABEL].map(|command| {
            let mut area = [0u8; 256];
            // SAFETY: no command here writes more than the area holds.
            assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), command, area.as_mut_ptr()) }, 0);
            area
        })
    };
    let before = state();
    as_user(NOBODY, || {
        for (name, command, word) in CHANGES {
            for place in [&path, &volume.root()] {
                assert_ne!(ioctl(place, command, word), 0, "{name} {place:?}");
            }
        }
    });
    assert_eq!(state(), before);
    // Root may: the calls are understood.
    for (name, command, word) in CHANGES {
        if name.ends_with("FSSETXATTR") || name.ends_with("SETFSLABEL") {
            assert_eq!(ioctl(&path, command, word), 0, "{name}");
        }
    }
    assert_ne!(state(), before);
    assert_eq!(set_flags(&path, SETFLAGS, 0), 0);
    volume.umount_and_check();
}

/// Expects the rules of `fileattr_set_prepare` for all file systems: otherwise an owner's choice in
/// a user namespace of their own would be charged to others. The kernel's ext4 takes no volume with
/// projects for writing if it was built without quotas.
#[test]
fn projects_are_changed_by_owners_whom_the_machine_knows() {
    let rig = Rig::new();
    let printed = rig.run(
        r#"chmod 755 .; mke2fs -q -t ext4 -O project image 64M >made 2>&1
           $O mount -o allow_other image $M
           cat >change.py <<'END'
import fcntl, os, struct, sys
GET, SET = 0x801c581f, 0x401c5820
path, flags, project = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
try:
    file = os.open(path, os.O_RDONLY)
    words = struct.unpack("5I8x", fcntl.ioctl(file, GET, bytes(28)))
    fcntl.ioctl(file, SET, struct.pack("5I8x", words[0] | flags, 0, 0, project, 0))
    print("done", end=" ")
except OSError as error:
    print(error.errno, end=" ")
END
           chmod 755 $M; mkdir $M/d; chown 65534:65534 $M/d
           stranger() { setpriv --reuid 1000 --regid 1000 --clear-groups -- "$@"; }
           no_owner() { setpriv --bounding-set -fowner -- "$@"; }
           INHERIT=512
           for who in as_nobody stranger no_owner \
               'as_nobody unshare --user' 'unshare --user --map-root-user' env; do
               for what in '0 7' "$INHERIT 0" '0 0' '0 4294967295'; do
                   $who /usr/bin/python3 change.py $M/d $what; chattr -p 0 $M/d; chattr -P $M/d
               done
               echo
           done
           rmdir $M/d; $O umount $M; settle image"#,
    );
    let lines: Vec<&str> = printed.lines().map(str::trim_end).collect();
    let expected = [
        "done done done 22",
        "1 1 1 1",
        "1 1 1 1",
        // Any owner may set it to its present value.
        "22 22 done 22",
        "1 1 1 1",
        "done done done 22",
    ];
    assert_eq!(lines, expected);
    rig.check("");
}

/// `_IOW('O', 0xd0, __u32)`.
const SET_DURABILITY: libc::c_ulong = 0x4004_4fd0;

/// Returns the error number, or zero.
fn set_durability(file: &File, is_enough: u32) -> i32 {
    // SAFETY: the command reads one word.
    match unsafe { libc::ioctl(file.as_raw_fd(), SET_DURABILITY, &raw const is_enough) } {
        -1 => std::io::Error::last_os_error().raw_os_error().unwrap(),
        _ => 0,
    }
}

#[test]
fn writers_of_a_file_may_choose_its_durability() {
    let volume = Volume::new(&["-t", "ext4"]);
    std::fs::set_permissions(volume.directory.path(), Permissions::from_mode(0o755)).unwrap();
    volume.mount("allow_other,data=ordered,durable_only=nothing");
    let data_home = || {
        let printed =
            said(&okeanos(&["stats".as_ref(), "--json".as_ref(), volume.root().as_os_str()]));
        let printed: serde_json::Value = serde_json::from_str(&printed).unwrap();
        printed["engine"]["home_written"]["data"]["blocks"].as_u64().unwrap_or(0)
    };
    // Logging a block decides for its next updates, too: so each write has a block of its own.
    let place = std::sync::atomic::AtomicU64::new(0);
    let is_written_past_the_log = |file: &File| {
        let before = data_home();
        let offset = place.fetch_add(64 << 10, std::sync::atomic::Ordering::Relaxed);
        file.write_all_at(&[7; 64 << 10], offset).unwrap();
        file.sync_all().unwrap();
        data_home() != before
    };
    let (path, mine) = (volume.at("file"), volume.at("mine"));
    let file = File::create(&path).unwrap();
    File::create(&mine).unwrap();
    std::os::unix::fs::chown(&mine, Some(NOBODY), Some(NOBODY)).unwrap();
    assert!(is_written_past_the_log(&file));
    as_user(NOBODY, || {
        assert_eq!(set_durability(&File::open(&path).unwrap(), 1), libc::EPERM);
        assert_eq!(set_durability(&File::open(&mine).unwrap(), 1), 0);
    });
    assert!(is_written_past_the_log(&file));
    without_capabilities(&[3], || {
        assert_eq!(set_durability(&File::open(&mine).unwrap(), 1), libc::EPERM);
        let writable = File::options().write(true).open(&mine).unwrap();
        assert_eq!(set_durability(&writable, 1), 0);
    });
    assert_eq!((set_durability(&file, 2), set_durability(&file, 1)), (libc::EINVAL, 0));
    assert_eq!(set_durability(&File::open(volume.root()).unwrap(), 1), libc::EINVAL);
    assert!(!is_written_past_the_log(&file));
    drop(file);
    // The daemon receives the close after the caller has returned.
    let again = || File::options().write(true).open(&path).unwrap();
    assert!((0..100).any(|_| is_written_past_the_log(&again())));
    volume.umount_and_check();
    volume.mount("data=ordered");
    let file = File::options().write(true).open(&path).unwrap();
    assert_eq!(set_durability(&file, 1), libc::EOPNOTSUPP);
    drop(file);
    volume.umount_and_check();
}
