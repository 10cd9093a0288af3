//! Tests of many threads at once on one volume, through the kernel, in every mode. `OPERATIONS` and
//! `SEED` in the environment change their length and choices.

use crate::common::{Volume, lab, said};
use crate::programs;
use std::ffi::OsStr;
use std::fs::File;
use std::process::Command;

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Runs stress, a clean unmount, e2fsck, and checks all content again.
fn survives(arguments: &[&str], options: &str) {
    let operations = from_environment("OPERATIONS", 8000).to_string();
    let seed = from_environment("SEED", 1).to_string();
    // Built before the volume exists, as its time limit is short.
    programs::lab();
    let volume = Volume::new(arguments);
    let complaints = volume.directory.path().join("complaints");
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_okeanos"))
        .args(["mount", "-f", "-o", options])
        .args([volume.image(), volume.root()])
        .stderr(File::create(&complaints).unwrap())
        .spawn()
        .unwrap();
    while !volume.at("lost+found").exists() {
        assert!(daemon.try_wait().unwrap().is_none(), "it ended early");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let root = volume.root();
    let bench = |words: &[&str]| {
        let mut arguments: Vec<&OsStr> =
            ["bench", "stress"].iter().chain(words).map(OsStr::new).collect();
        arguments.push(root.as_os_str());
        let output = lab(&arguments);
        assert!(output.status.success(), "{options}, seed {seed}: {}", said(&output));
    };
    bench(&["--threads", "16", "--operations", &operations, "--seed", &seed, "--names", "25"]);
    volume.umount_and_check();
    assert!(daemon.wait().unwrap().success());
    let complaints = std::fs::read_to_string(complaints).unwrap();
    // A mount without a loop device is warned of.
    let warned = ["syncfs(2)", "What must be durable", "All else is durable"];
    let is_other = |line: &&str| !warned.iter().any(|words| line.contains(words));
    let others: Vec<_> = complaints.lines().filter(is_other).collect();
    assert!(others.is_empty(), "{options}, seed {seed}: {others:?}");
    volume.mount("");
    bench(&["--check"]);
    volume.umount_and_check();
}

#[test]
fn wasteless_survives_with_a_small_cache_and_a_small_journal() {
    survives(&["-t", "ext4", "-b", "4096", "-J", "size=4"], "data=wasteless,cache=16M");
}

#[test]
fn journal_survives_with_a_small_cache_and_a_small_journal() {
    survives(&["-t", "ext4", "-b", "1024", "-J", "size=2"], "data=journal,cache=16M");
}

#[test]
fn ordered_survives_on_block_maps() {
    survives(&["-t", "ext3", "-b", "1024"], "data=ordered");
}

#[test]
fn selective_survives_many_threads() {
    survives(&["-t", "ext4", "-b", "2048"], "data=selective,cache=16M");
}

#[test]
fn writeback_survives_without_a_loop_device() {
    survives(&["-t", "ext4"], "data=writeback,noloop");
}
