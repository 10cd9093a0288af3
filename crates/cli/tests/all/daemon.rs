//! Tests of the daemon's life: start, end, kill, refusals.

use crate::common::{Volume, gone, is_alive, okeanos, said, signal};
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

const MODES: [&str; 6] = ["writeback", "ordered", "journal", "wasteless", "selective", "adaptive"];

#[test]
fn a_synchronous_write_survives_the_death_of_the_daemon() {
    for mode in MODES {
        let volume = Volume::mounted(&["-t", "ext4", "-b", "4096"], &format!("data={mode}"));
        let open = OpenOptions::new()
            .create(true)
            .append(true)
            .custom_flags(libc::O_SYNC)
            .open(volume.at("log"));
        let mut log = open.unwrap();
        for record in 0..100 {
            writeln!(log, "record {record}").unwrap();
        }
        let daemon = volume.daemon();
        signal(daemon, libc::SIGKILL);
        gone(daemon);
        assert!(log.write_all(b"too late").is_err());
        drop(log);
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
        let volume = Volume::mounted(&["-t", "ext4"], options);
        fs::write(volume.at("file"), vec![7; 5 << 20]).unwrap();
        let daemon = volume.daemon();
        volume.umount();
        assert!(!is_alive(daemon), "{options}");
        volume.check();
        let dump =
            Command::new("debugfs").args(["-R", "stat file"]).arg(volume.image()).output().unwrap();
        assert!(said(&dump).contains(&format!("Size: {}", 5 << 20)), "{}", said(&dump));
    }
}

#[test]
fn a_termination_signal_unmounts_cleanly() {
    for end in [libc::SIGTERM, libc::SIGINT] {
        let volume = Volume::mounted(&["-t", "ext4"], "");
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
fn root_may_keep_processors_awake_unless_that_is_forbidden() {
    for (options, expected) in [("", true), ("nokeep_awake", false)] {
        let volume = Volume::mounted(&["-t", "ext4"], options);
        let files = fs::read_dir(format!("/proc/{}/fd", volume.daemon())).unwrap();
        let mut opened = files.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
        let found = opened.any(|file| file.ends_with("cpu_dma_latency"));
        assert_eq!(found, expected && Path::new("/dev/cpu_dma_latency").exists(), "{options}");
        volume.umount();
    }
}

#[test]
fn a_second_signal_ends_a_mount_that_is_still_in_use() {
    let volume = Volume::mounted(&["-t", "ext4"], "");
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
fn a_foreground_daemon_ends_with_success_on_a_signal() {
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

/// Runs the program as a user who is not root.
struct User<'a> {
    number: u32,
    program: &'a Path,
}

impl User<'_> {
    fn command(&self, program: &Path, arguments: &[&OsStr]) -> Output {
        let mut command = Command::new("timeout");
        command
            .arg("60")
            .arg(program)
            .args(arguments)
            .current_dir("/")
            .env_remove("XDG_RUNTIME_DIR");
        command.uid(self.number).gid(self.number).output().unwrap()
    }
    fn okeanos(&self, arguments: &[&OsStr]) -> Output {
        self.command(self.program, arguments)
    }
    fn shell(&self, script: &str) -> Output {
        self.command(Path::new("/bin/sh"), &["-c".as_ref(), script.as_ref()])
    }
}

#[test]
fn an_ordinary_user_mounts_looks_and_unmounts_and_others_are_kept_out() {
    const NOBODY: u32 = 65534;
    let volume = Volume::new(&["-t", "ext4", "-E", "root_owner=65534:65534"]);
    // A device that everybody may open, as distributions have it; visible to this test alone.
    let device = volume.directory.path().join("fuse");
    let script = "mknod -m 666 $0 c 10 229; mount --bind $0 /dev/fuse";
    let made = Command::new("sh").args(["-ec", script]).arg(&device).output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    let own = |path: &Path| std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    own(&volume.image());
    own(&volume.root());
    // The program itself may lie in a private directory.
    let program = volume.directory.path().join("okeanos");
    fs::copy(env!("CARGO_BIN_EXE_okeanos"), &program).unwrap();
    fs::set_permissions(volume.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (owner, other) =
        (User { number: NOBODY, program: &program }, User { number: 1234, program: &program });
    let (image, root) = (volume.image(), volume.root());
    let succeeds = |output: Output| assert!(output.status.success(), "{}", said(&output));
    let fails = |output: Output| assert!(!output.status.success(), "{}", said(&output));

    succeeds(owner.okeanos(&[
        "mount".as_ref(),
        "-o".as_ref(),
        "data=wasteless".as_ref(),
        image.as_os_str(),
        root.as_os_str(),
    ]));
    let file = volume.at("mine");
    succeeds(owner.shell(&format!("echo kept > {}; sync {0}", file.display())));
    let statistics = owner.okeanos(&["stats".as_ref(), "--json".as_ref(), root.as_os_str()]);
    assert!(
        statistics.status.success() && said(&statistics).contains("wasteless"),
        "{}",
        said(&statistics)
    );
    fails(other.shell(&format!("cat {}", file.display())));
    fails(other.okeanos(&["stats".as_ref(), root.as_os_str()]));
    fails(other.okeanos(&["umount".as_ref(), root.as_os_str()]));
    fails(other.okeanos(&["mount".as_ref(), image.as_os_str(), root.as_os_str()]));
    assert!(fs::metadata(&file).is_err(), "not even root looks into a user's mount");
    succeeds(owner.okeanos(&["umount".as_ref(), root.as_os_str()]));
    volume.check();
    volume.mount("");
    assert_eq!(fs::read(&file).unwrap(), b"kept\n");
    volume.umount_and_check();
}

#[test]
fn users_of_a_busy_mount_are_named() {
    let volume = Volume::mounted(&["-t", "ext4"], "");
    let file = fs::File::create(volume.at("open")).unwrap();
    let mut sleeper = Command::new("sleep").arg("100").current_dir(volume.root()).spawn().unwrap();
    let refused = okeanos(&["umount".as_ref(), volume.root().as_os_str()]);
    assert!(!refused.status.success());
    for part in ["busy", "open", &format!("sleep ({})", sleeper.id()), "--lazy"] {
        assert!(said(&refused).contains(part), "{part}: {}", said(&refused));
    }
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    drop(file);
    volume.umount_and_check();
}

#[test]
fn statistics_count_what_was_written() {
    let volume = Volume::mounted(&["-t", "ext4", "-b", "4096"], "data=wasteless,records=blocks");
    let open = OpenOptions::new()
        .create(true)
        .append(true)
        .custom_flags(libc::O_SYNC)
        .open(volume.at("log"));
    let mut log = open.unwrap();
    (0..50).for_each(|_| log.write_all(&[7; 128]).unwrap());
    drop(log);
    let engine = &volume.statistics()["engine"];
    assert!(engine["commits"].as_u64().unwrap() >= 50, "{engine:#}");
    assert!(engine["payload_bytes"].as_u64().unwrap() >= 50 * 128, "{engine:#}");
    assert!(engine["log_written"]["multiwrite"]["blocks"].as_u64().unwrap() >= 1, "{engine:#}");
    let table = okeanos(&["stats".as_ref(), volume.at("log").as_os_str()]);
    assert!(said(&table).contains("journal bytes per payload byte"), "{}", said(&table));
    assert!(
        said(&table).contains("data=wasteless, records=blocks of 4096 bytes"),
        "{}",
        said(&table)
    );
    let prometheus =
        okeanos(&["stats".as_ref(), "--prometheus".as_ref(), volume.root().as_os_str()]);
    assert!(said(&prometheus).contains("\nokeanos_commits_total{"), "{}", said(&prometheus));
    volume.umount_and_check();
    let nowhere = okeanos(&["stats".as_ref(), volume.root().as_os_str()]);
    assert!(
        !nowhere.status.success() && said(&nowhere).contains("no okeanos volume"),
        "{}",
        said(&nowhere)
    );
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
