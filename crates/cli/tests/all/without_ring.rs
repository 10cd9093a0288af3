//! Tests on machines that refuse io_uring: by seccomp, as Docker does, with each errno that kernels
//! give.

use crate::common::{Volume, gone, said, signal};
use crate::programs;
#[path = "../../../runtime/tests/all/filter.rs"]
mod filter;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs `okeanos` with these arguments, where io_uring_setup(2) fails with `errno`.
fn refused(errno: i32, choice: &str, arguments: &[&OsStr]) -> Output {
    refused_to(Path::new(env!("CARGO_BIN_EXE_okeanos")), errno, choice, arguments)
}

/// Runs a program, and what it starts, like [`refused`].
fn refused_to(program: &Path, errno: i32, choice: &str, arguments: &[&OsStr]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120"]).arg(program).args(arguments);
    command.env("OKEANOS_IO", choice).stdin(Stdio::null());
    let program = filter::program(&[(libc::SYS_io_uring_setup, errno)]);
    // SAFETY: the closure makes two system calls, and allocates no memory.
    unsafe { command.pre_exec(move || filter::install(&program)) };
    command.output().unwrap()
}

fn mount(volume: &Volume, errno: i32, choice: &str, options: &str) -> Output {
    let (image, root) = (volume.image(), volume.root());
    let words = ["mount".as_ref(), "-o".as_ref(), OsStr::new(options)];
    refused(errno, choice, &[&words[..], &[image.as_os_str(), root.as_os_str()]].concat())
}

/// Returns the cause of a refusal with this errno, by a filter and no sysctl.
fn cause_of(errno: i32) -> &'static str {
    let sysctl = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    match errno {
        libc::EPERM if sysctl.is_ok_and(|value| value.trim() == "2") => "io_uring_disabled=2",
        libc::EPERM => "a seccomp filter forbids it",
        libc::ENOSYS => "a seccomp filter hides it",
        _ => "came with Linux 5.19",
    }
}

#[test]
fn acknowledged_writes_outlive_a_kill_without_a_ring() {
    for errno in [libc::EPERM, libc::ENOSYS, libc::EINVAL] {
        let volume = Volume::new(&["-t", "ext4"]);
        let log = volume.directory.path().join("log");
        let options = format!("data=wasteless,transport=auto,log_file={}", log.display());
        let output = mount(&volume, errno, "auto", &options);
        assert!(output.status.success(), "errno {errno}: {}", said(&output));
        let statistics = volume.statistics();
        assert_eq!(statistics["io"]["by"], "threads");
        let why = statistics["io"]["why"].as_str().unwrap();
        assert!(why.contains(cause_of(errno)), "errno {errno}: {why}");
        let printed = std::fs::read_to_string(&log).unwrap();
        assert!(printed.contains(why), "errno {errno}: {printed}");
        let daemon = volume.daemon();
        let write = |name: &str, bytes: &[u8]| {
            let mut options = OpenOptions::new();
            options.write(true).create(true).custom_flags(libc::O_DSYNC);
            options.open(volume.at(name)).unwrap().write_all(bytes).unwrap();
        };
        let content = |number: usize| vec![number as u8; 1000 + 3000 * number];
        (0..20).for_each(|number| write(&format!("file{number}"), &content(number)));
        signal(daemon, libc::SIGKILL);
        gone(daemon);
        let root = volume.root();
        refused(errno, "auto", &["umount".as_ref(), "--force".as_ref(), root.as_os_str()]);
        let image = volume.image();
        let recovered = refused(errno, "auto", &["recover".as_ref(), image.as_os_str()]);
        assert!(recovered.status.success(), "errno {errno}: {}", said(&recovered));
        volume.check();
        let output = mount(&volume, errno, "auto", &options);
        assert!(output.status.success(), "errno {errno}: {}", said(&output));
        for number in 0..20 {
            let read = std::fs::read(volume.at(&format!("file{number}"))).unwrap();
            assert!(read == content(number), "errno {errno}: file{number}");
        }
        volume.umount_and_check();
    }
}

#[test]
fn a_ring_that_is_insisted_on_is_named_with_who_refuses_it() {
    let volume = Volume::new(&[]);
    for errno in [libc::EPERM, libc::ENOSYS, libc::EINVAL] {
        let output = mount(&volume, errno, "ring", "transport=classic");
        let text = said(&output);
        assert!(!output.status.success() && text.contains(cause_of(errno)), "{text}");
        let output = mount(&volume, errno, "auto", "transport=uring");
        let text = said(&output);
        assert!(!output.status.success() && text.contains(cause_of(errno)), "{text}");
        assert!(text.contains("transport=classic"), "{text}");
    }
    let output = mount(&volume, libc::EPERM, "always", "transport=classic");
    let text = said(&output);
    assert!(!output.status.success() && text.contains("none of auto, ring, classic"), "{text}");
    volume.check();
}

#[test]
fn every_thread_of_a_daemon_has_given_its_rights_up() {
    let volume = Volume::new(&[]);
    // Without a loop device: AIO takes short requests to devices, and no thread is needed.
    let output = mount(&volume, libc::EPERM, "auto", "transport=classic,noloop");
    assert!(output.status.success(), "{}", said(&output));
    std::fs::write(volume.at("file"), [1; 100_000]).unwrap();
    std::fs::File::open(volume.at("file")).unwrap().sync_all().unwrap();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", volume.daemon())).unwrap();
    let rights: Vec<String> = tasks
        .map(|task| {
            let text = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let of_rights = ["CapEff:", "CapBnd:", "NoNewPrivs:", "Seccomp", "Uid:"];
            let is_right = |line: &&str| of_rights.iter().any(|name| line.starts_with(name));
            text.lines().filter(is_right).collect::<Vec<_>>().join("\n")
        })
        .collect();
    assert!(rights.len() > 1, "no thread waits for the disk");
    assert!(rights.iter().all(|of_thread| *of_thread == rights[0]), "{rights:#?}");
    assert!(rights[0].contains("NoNewPrivs:\t1"), "{}", rights[0]);
    volume.umount_and_check();
}

#[test]
fn the_doctor_names_who_refuses_a_ring() {
    for errno in [libc::EPERM, libc::ENOSYS, libc::EINVAL] {
        let output = refused(errno, "auto", &["doctor".as_ref(), "--json".as_ref()]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["machine"]["io_uring"], false, "{report}");
        let why = report["machine"]["io_uring_refused"].as_str().unwrap();
        assert!(why.contains(cause_of(errno)), "errno {errno}: {why}");
        assert!(report["limits"].to_string().contains(cause_of(errno)), "{report}");
    }
}

/// Plays the steps of `make demo` with fewer writers and modes.
#[test]
fn the_demo_ends_well_without_a_ring() {
    let directory = tempfile::tempdir().unwrap();
    let words =
        "bench demo --modes okeanos,wasteless --writers 8 --seconds 300ms --crash-after 500ms";
    let mut words: Vec<&OsStr> = words.split(' ').map(OsStr::new).collect();
    words.extend(["--json", "--directory"].map(OsStr::new));
    words.push(directory.path().as_os_str());
    let output = refused_to(&programs::lab(), libc::EPERM, "auto", &words);
    assert!(output.status.success(), "{}", said(&output));
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 2, "{rows:?}");
    for row in rows {
        assert_eq!(row["stats"]["io"]["by"], "threads", "{row}");
        assert_eq!(row["lost"], 0, "{row}");
        assert!(row["acknowledged"].as_u64().is_some_and(|records| records > 0), "{row}");
    }
}
