//! The daemon's life: up, down, killed, refused.

mod common;

use common::{Volume, gone, is_alive, okeanos, said, signal};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

const MODES: [&str; 5] = ["writeback", "ordered", "journal", "wasteless", "selective"];

#[test]
fn a_synchronous_write_survives_the_death_of_the_daemon() {
    for mode in MODES {
        let volume = Volume::new(&["-t", "ext4", "-b", "4096"]);
        volume.mount(&format!("data={mode}"));
        let open =
            OpenOptions::new().create(true).append(true).custom_flags(libc::O_SYNC).open(volume.at("log"));
        let mut log = open.unwrap();
        for record in 0..100 {
            writeln!(log, "record {record}").unwrap();
        }
        let daemon = volume.daemon();
        signal(daemon, libc::SIGKILL);
        gone(daemon);
        assert!(log.write_all(b"too late").is_err());
        drop(log);
        let refused = volume.try_mount("");
        assert!(!refused.status.success() && said(&refused).contains("has died"), "{}", said(&refused));
        volume.umount();
        volume.mount("");
        let text = fs::read_to_string(volume.at("log")).unwrap();
        let expected: String = (0..100).map(|record| format!("record {record}\n")).collect();
        assert_eq!(text, expected, "data={mode}");
        volume.umount_and_check();
    }
}

#[test]
fn umount_returns_when_everything_is_home_and_the_daemon_gone() {
    for options in ["data=wasteless", "data=wasteless,noloop"] {
        let volume = Volume::new(&["-t", "ext4"]);
        volume.mount(options);
        fs::write(volume.at("file"), vec![7; 5 << 20]).unwrap();
        let daemon = volume.daemon();
        volume.umount();
        assert!(!is_alive(daemon), "{options}");
        volume.check();
        let dump = Command::new("debugfs").args(["-R", "stat file"]).arg(volume.image()).output().unwrap();
        assert!(said(&dump).contains(&format!("Size: {}", 5 << 20)), "{}", said(&dump));
    }
}

#[test]
fn a_termination_signal_unmounts_cleanly() {
    for end in [libc::SIGTERM, libc::SIGINT] {
        let volume = Volume::new(&["-t", "ext4"]);
        volume.mount("");
        fs::write(volume.at("file"), b"home").unwrap();
        let daemon = volume.daemon();
        signal(daemon, end);
        gone(daemon);
        assert!(!volume.at("file").exists(), "the mount is gone");
        volume.check();
        volume.mount("");
        assert_eq!(fs::read(volume.at("file")).unwrap(), b"home");
        volume.umount_and_check();
    }
}

#[test]
fn a_second_signal_ends_a_mount_that_is_still_in_use() {
    let volume = Volume::new(&["-t", "ext4"]);
    volume.mount("");
    let mut file = fs::File::create(volume.at("file")).unwrap();
    file.write_all(b"not yet synced").unwrap();
    let daemon = volume.daemon();
    signal(daemon, libc::SIGTERM);
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(is_alive(daemon), "somebody still uses it");
    signal(daemon, libc::SIGTERM);
    gone(daemon);
    assert!(file.write_all(b"too late").is_err());
    drop(file);
    volume.check();
    volume.mount("");
    assert_eq!(fs::read(volume.at("file")).unwrap(), b"not yet synced");
    volume.umount_and_check();
}

#[test]
fn a_foreground_daemon_exits_with_success_when_told_to_end() {
    let volume = Volume::new(&["-t", "ext4"]);
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_okeanos"))
        .args(["mount", "-f"])
        .args([volume.image(), volume.root()])
        .spawn()
        .unwrap();
    while !volume.at("lost+found").exists() {
        assert!(daemon.try_wait().unwrap().is_none(), "it ended early");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    signal(daemon.id() as i32, libc::SIGTERM);
    assert!(daemon.wait().unwrap().success());
    volume.check();
}

#[test]
fn what_is_mounted_is_not_mounted_again() {
    let volume = Volume::new(&["-t", "ext4"]);
    for (first, second) in [("", ""), ("", "noloop"), ("noloop", ""), ("noloop", "noloop")] {
        volume.mount(first);
        fs::write(volume.at("file"), b"first").unwrap();
        let refused = volume.try_mount(second);
        assert!(!refused.status.success(), "{first:?} then {second:?}");
        assert!(
            said(&refused).contains("mounted") || said(&refused).contains("in use"),
            "{}",
            said(&refused)
        );
        assert_eq!(fs::read(volume.at("file")).unwrap(), b"first");
        volume.umount_and_check();
    }
}

#[test]
fn what_is_no_volume_is_refused_and_untouched() {
    let volume = Volume::new(&["-t", "ext4"]);
    fs::write(volume.image(), vec![b'x'; 1 << 20]).unwrap();
    let refused = volume.try_mount("");
    assert!(!refused.status.success() && said(&refused).contains("image"), "{}", said(&refused));
    assert!(fs::read(volume.image()).unwrap().iter().all(|&byte| byte == b'x'));
    for (words, wrong) in [("frobnicate", "frobnicate"), ("data=everything", "selective")] {
        let refused = volume.try_mount(words);
        assert!(!refused.status.success() && said(&refused).contains(wrong), "{}", said(&refused));
    }
    let (image, root) = (volume.image(), volume.root());
    for arguments in [
        ["mount".as_ref(), image.as_os_str(), "/no/such/directory".as_ref()],
        ["mount".as_ref(), "/no/such/image".as_ref(), root.as_os_str()],
        ["mount".as_ref(), image.as_os_str(), image.as_os_str()],
    ] {
        let refused = okeanos(&arguments);
        assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    }
}

#[test]
fn an_ordinary_user_mounts_with_the_helper_or_is_told_what_is_missing() {
    const NOBODY: u32 = 65534;
    let volume = Volume::new(&["-t", "ext4"]);
    let own = |path: &std::path::Path| std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    own(volume.directory.path());
    own(&volume.image());
    own(&volume.root());
    // The program itself may lie where nobody may look.
    let program = volume.directory.path().join("okeanos");
    fs::copy(env!("CARGO_BIN_EXE_okeanos"), &program).unwrap();
    let as_nobody = |arguments: &[&std::ffi::OsStr]| {
        let mut command = Command::new("timeout");
        command.arg("60").arg(&program).args(arguments).uid(NOBODY).gid(NOBODY).output().unwrap()
    };
    let (image, root) = (volume.image(), volume.root());
    let mounted = as_nobody(&["mount".as_ref(), image.as_os_str(), root.as_os_str()]);
    if mounted.status.success() {
        let umounted = as_nobody(&["umount".as_ref(), root.as_os_str()]);
        assert!(umounted.status.success(), "{}", said(&umounted));
    } else {
        assert!(said(&mounted).contains("fusermount3"), "{}", said(&mounted));
    }
    volume.check();
}

#[test]
fn statistics_tell_what_was_written() {
    let volume = Volume::new(&["-t", "ext4", "-b", "4096"]);
    volume.mount("data=wasteless");
    let open = OpenOptions::new().create(true).append(true).custom_flags(libc::O_SYNC).open(volume.at("log"));
    let mut log = open.unwrap();
    (0..50).for_each(|_| log.write_all(&[7; 128]).unwrap());
    drop(log);
    let engine = &volume.statistics()["engine"];
    assert!(engine["commits"].as_u64().unwrap() >= 50, "{engine:#}");
    assert!(engine["payload_bytes"].as_u64().unwrap() >= 50 * 128, "{engine:#}");
    assert!(engine["log_written"]["multiwrite"]["blocks"].as_u64().unwrap() >= 1, "{engine:#}");
    let table = okeanos(&["stats".as_ref(), volume.at("log").as_os_str()]);
    assert!(said(&table).contains("journal bytes per payload byte"), "{}", said(&table));
    let prometheus = okeanos(&["stats".as_ref(), "--prometheus".as_ref(), volume.root().as_os_str()]);
    assert!(said(&prometheus).contains("okeanos_engine_commits "), "{}", said(&prometheus));
    volume.umount_and_check();
    let nowhere = okeanos(&["stats".as_ref(), volume.root().as_os_str()]);
    assert!(!nowhere.status.success() && said(&nowhere).contains("no okeanos volume"), "{}", said(&nowhere));
}

#[test]
fn an_fstab_line_mounts_through_the_helper() {
    let volume = Volume::new(&["-t", "ext4"]);
    let helper = volume.directory.path().join("mount.fuse.okeanos");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_okeanos"), &helper).unwrap();
    // As mount(8) calls it.
    let output = Command::new("timeout")
        .arg("60")
        .arg(&helper)
        .args([volume.image(), volume.root()])
        .args(["-o", "rw,noatime,user,data=wasteless", "-n", "-t", "fuse.okeanos"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(volume.statistics()["about"]["data"], "wasteless");
    volume.umount_and_check();
}
